"""The kernel of the nodes: Debian's user-mode Linux, unpacked into the cache, not installed on the machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from lab.image.debian import run

PACKAGE = "user-mode-linux"
SHIM = Path(__file__).parent.parent / "uml" / "xstate.c"


@dataclass(frozen=True)
class Kernel:
    """The program that is the kernel, its modules, and the shim it needs on hosts with a large FPU state."""

    folder: Path

    @property
    def program(self) -> Path:
        """The user-mode Linux program."""
        return self.folder / "usr/bin/linux.uml"

    @property
    def modules(self) -> Path:
        """The folder of its modules, named by its version."""
        return next((self.folder / "usr/lib/uml/modules").iterdir())

    @property
    def shim(self) -> Path:
        """The library to load before it."""
        return self.folder / "xstate.so"

    def compile_shim(self) -> None:
        """Make that library. Raises LabError with what failed."""
        command = ["cc", "-O2", "-Wall", "-shared", "-fPIC", "-o", str(self.shim), str(SHIM)]
        run(command, "compiling the kernel's shim")
