"""The kernel of the nodes: Debian's user-mode Linux, unpacked into the cache, not installed on the machine."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from lab.errors import LabError
from lab.image.mirror import mirror

SUITE = "bookworm"
"""The release whose kernel is taken, whatever this machine runs: nodes then behave alike everywhere."""
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
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


def fetch(folder: Path) -> Kernel:
    """Download and unpack the kernel into `folder`, and compile its shim. Raises LabError with what failed."""
    for name in ("lists/partial", "archives/partial"):
        (folder / "apt" / name).mkdir(parents=True)
    sources = folder / "apt" / "sources.list"
    sources.write_text(f"deb [signed-by={KEYRING}] {mirror()} {SUITE} main\n")
    status = folder / "apt" / "status"
    status.touch()
    options = {
        "Dir::Etc::SourceList": sources,
        "Dir::Etc::SourceParts": "/dev/null",
        "Dir::State::Lists": folder / "apt/lists",
        "Dir::State::Status": status,
        "Dir::Cache": folder / "apt",
        "Dir::Cache::Archives": folder / "apt/archives",
        "APT::Sandbox::User": "root",
        "Acquire::Languages": "none",
    }
    apt = ["apt-get", "-qq", *(f"-o{name}={value}" for name, value in options.items())]
    run([*apt, "update"], "package lists")
    run([*apt, "download", "user-mode-linux"], "the kernel's package", cwd=folder)
    package = next(folder.glob("user-mode-linux_*.deb"))
    run(["dpkg-deb", "--extract", str(package), str(folder)], "unpacking the kernel")
    package.unlink()
    kernel = Kernel(folder)
    run(
        ["cc", "-O2", "-Wall", "-shared", "-fPIC", "-o", str(kernel.shim), str(SHIM)],
        "compiling the kernel's shim",
    )
    return kernel


def run(command: list[str], what: str, cwd: Path | None = None) -> None:
    """Run a step of the build. Raises LabError with the last lines of what it said."""
    environment = {**os.environ, "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True)
    except FileNotFoundError as error:
        raise LabError(f"{what}: {error.filename} is not installed; run `make setup`") from None
    if done.returncode:
        tail = "\n".join((done.stdout + done.stderr).strip().splitlines()[-8:])
        raise LabError(f"{what} failed (exit {done.returncode}):\n{tail}")
