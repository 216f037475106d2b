"""The launch step: a program that frees memory for a workload, or reports that there is not enough. Pure.

Dropping caches is an action at a launch, never a state: this role only installs the program.
"""

from __future__ import annotations

from core.model import Rack
from core.util import resources
from core.util.managed_file import ManagedFile, header, validate_shell
from roles.memory.unit_paths import SCRIPTS

SCRIPT = f"{SCRIPTS}/memory-gate"
DEFAULT_WAIT_SECONDS = 60
"""Default of its waiting time in seconds: memory of a stopped CUDA program was freed within 60 s (reported)."""


def script(rack: Rack) -> ManagedFile:
    """Return the program."""
    text = resources.file_text(
        "roles.memory", "templates/memory-gate.sh", header=header(rack.rack), seconds=DEFAULT_WAIT_SECONDS
    )
    return ManagedFile(SCRIPT, text.encode(), "755", validate_shell())
