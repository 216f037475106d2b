"""Writes the seeds of nodes, over no file of others."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from core.model import Rack
from core.ssh.operator_key import OperatorKeyError, public_key
from core.util import regular_file
from core.util.atomic_file import write_atomic
from core.util.command_error import CommandError
from sparkrack.cloud_init.network_config import Management, NetworkError
from sparkrack.cloud_init.user_data import MARK, autoinstall, seed_files

_LONGEST = 1024
"""Number of bytes of an existing file that are read; its mark is in the first 400 characters."""
FORMATS = ("cloud-init", "autoinstall")


def write_seeds(
    rack: Rack, names: Iterable[str], out: Path, form: str, management: Management | None, erase_disk: str | None
) -> dict[str, dict[str, str]]:
    """Write the files of these nodes, each into a folder of its own below `out`; return them by node. `form`: of
    FORMATS. `erase_disk`: the disk that the installer may erase. Raises CommandError.
    """
    if rack.access.user == "root":
        raise CommandError("access.user: a seed keeps root from logging in; write another user, like ops")
    try:
        key = public_key(rack.access.key)
        texts = {
            name: autoinstall(rack, rack.nodes[name], key, management, erase_disk)
            if form == "autoinstall"
            else seed_files(rack, rack.nodes[name], key, management)
            for name in names
        }
    except (OperatorKeyError, NetworkError) as fault:
        raise CommandError(f"{fault}; nothing was written") from None
    files = {out / name / file: text for name, of in texts.items() for file, text in of.items()}
    for path in files:
        _require_ours(path)
    try:
        for path, text in files.items():
            write_atomic(path, text, 0o644)
    except OSError as fault:
        raise CommandError(f"{fault.filename or out}: {fault.strerror}") from None
    return texts


def _require_ours(path: Path) -> None:
    """Raise CommandError for a file that sparkrack did not write."""
    try:
        there = path.exists() or path.is_symlink()
        text = regular_file.read_bytes(path, _LONGEST).decode(errors="replace") if there else MARK
    except OSError as fault:
        raise CommandError(f"{path}: {fault.strerror}; nothing was written") from None
    if MARK not in text[:400]:
        raise CommandError(f"{path}: is there and was not written by sparkrack seed; nothing was written")
