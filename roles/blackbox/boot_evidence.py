"""Evidence of the end of a boot: the program that collects it, and its units. Pure."""

from __future__ import annotations

from core.model import Rack
from core.util import resources
from core.util.managed_file import ManagedFile, header, validate_unit
from roles.blackbox.options import BlackboxOptions

FOLDER = "/var/lib/sparkrack/blackbox"
"""What a node keeps of its boots, and what it receives from other nodes."""
BOOTS = f"{FOLDER}/boots"
PROGRAM = "/usr/local/lib/sparkrack/boot_evidence.py"
COLLECT = "sparkrack-boot-evidence.service"
"""Collects, once in each boot."""
MARK = "sparkrack-clean-stop.service"
"""Stops after all services, and marks that a shutdown was in order."""
NAMES = (MARK, COLLECT)
"""In the order in which they start."""
_UNITS = "/etc/systemd/system"
PATHS = (PROGRAM, *(f"{_UNITS}/{name}" for name in NAMES))


def wanted(rack: Rack) -> bool:
    """Return whether rack.yaml declares it."""
    return rack.options(BlackboxOptions).boot_evidence


# claim: blackbox.boot-evidence
def files(rack: Rack) -> list[ManagedFile]:
    """Return the program and its units."""
    program = resources.file_text("roles.blackbox", "files/boot_evidence.py")
    return [
        ManagedFile(PROGRAM, program.encode(), "755"),
        _unit_file(rack, MARK, "templates/sparkrack-clean-stop.service"),
        _unit_file(rack, COLLECT, "templates/sparkrack-boot-evidence.service"),
    ]


def _unit_file(rack: Rack, name: str, template: str) -> ManagedFile:
    text = resources.file_text("roles.blackbox", template, header=header(rack.rack), program=PROGRAM)
    return ManagedFile(f"{_UNITS}/{name}", text.encode(), validate=validate_unit(name))
