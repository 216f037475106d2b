"""The programs of a served unit, as they are installed on its nodes. Pure."""

from __future__ import annotations

from core.util import resources
from core.util.managed_file import ManagedFile, validate_shell
from serving.launch import UNIT_PROGRAMS

FOLDER = str(UNIT_PROGRAMS)
MODULES = (
    "files/serve_unit.py",
    "files/serve_lifecycle.py",
    "files/serve_answers.py",
    "files/serve_probe.py",
    "files/serve_causes.py",
    "files/serve_rdma.py",
    "files/serve_phases.py",
    "files/serve_gate_command.py",
    "files/serve_rdma_check.py",
    "files/serve_slice.py",
    "files/serve_other_units.py",
    "files/serve_start.py",
    "files/look_into_image.py",
    "files/look_into_image.sh",
)
"""Modules of the programs, which find them in their own folder."""
COORDINATOR, AGENT = f"{FOLDER}/serve_coordinator.py", f"{FOLDER}/serve_agent.py"
GATE, RUN = f"{FOLDER}/serve_start_gate.py", f"{FOLDER}/serve-run.sh"
FILES = (
    *MODULES,
    "files/serve_coordinator.py",
    "files/serve_agent.py",
    "files/serve_start_gate.py",
    "files/serve_hang.py",
    "files/serve_cuda.py",
    "files/serve-run.sh",
)


def programs() -> tuple[ManagedFile, ...]:
    """Return the programs, which are the same on each node."""
    return tuple(
        ManagedFile(
            f"{FOLDER}/{name.removeprefix('files/')}",
            resources.file_text("serving", name).encode(),
            "644" if name in MODULES else "755",
            validate_shell() if name.endswith(".sh") else "",
        )
        for name in FILES
    )
