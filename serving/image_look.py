"""What a container of an image is asked about its NCCL: the same as the start gate asks. Pure."""

from __future__ import annotations

from core.util import resources
from serving.launch import NCCL_CONF

ENTRYPOINT = "sh"
"""The program of the container: an image without Python tells its /etc/nccl.conf, too."""


def nccl_arguments() -> tuple[str, ...]:
    """Return the arguments of the program of the container, which prints `nccl: VERSION BUILD`, and each line of the
    image's /etc/nccl.conf after its path."""
    shell, python = (resources.file_text("serving", f"files/look_into_image.{ending}") for ending in ("sh", "py"))
    return ("-c", shell, python, f"settings:{NCCL_CONF}", "nccl")
