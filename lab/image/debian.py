"""Debian packages that serve the lab on this machine: downloaded and unpacked into the cache, not installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from lab.errors import LabError
from lab.image.mirror import mirror

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")


@dataclass(frozen=True)
class Suite:
    """The packages of one Debian suite, read into a folder of its own: this machine's apt keeps its state."""

    name: str
    folder: Path

    @property
    def _apt(self) -> list[str]:
        options = {
            "Dir::Etc::SourceList": self.folder / "sources.list",
            "Dir::Etc::SourceParts": "/dev/null",
            "Dir::State::Lists": self.folder / "lists",
            "Dir::State::Status": self.folder / "status",
            "Dir::Cache": self.folder,
            "Dir::Cache::Archives": self.folder / "archives",
            "APT::Sandbox::User": "root",
            "Acquire::Languages": "none",
        }
        return [f"-o{name}={value}" for name, value in options.items()]

    def update(self) -> None:
        """Read the suite's list of packages. Raises LabError with what failed."""
        for name in ("lists/partial", "archives/partial"):
            (self.folder / name).mkdir(parents=True)
        (self.folder / "sources.list").write_text(f"deb [signed-by={KEYRING}] {mirror()} {self.name} main\n")
        (self.folder / "status").touch()
        # Without Error-Mode apt-get ends with 0 where the mirror does not answer.
        run(["apt-get", "-qq", *self._apt, "-oAPT::Update::Error-Mode=any", "update"], f"package lists of {self.name}")

    def names(self, prefix: str) -> list[str]:
        """The packages whose names begin so."""
        done = run(["apt-cache", *self._apt, "pkgnames", prefix], f"packages of {self.name}")
        return sorted(done.stdout.split())

    def download(self, *packages: str) -> dict[str, Path]:
        """Download packages, without what they depend on. Raises LabError with what failed."""
        run(
            ["apt-get", "-qq", *self._apt, "download", *packages], f"downloading {', '.join(packages)}", cwd=self.folder
        )
        return {package: next(self.folder.glob(f"{package}_*.deb")) for package in packages}


def unpack(suite: str, packages: Mapping[str, Path], work: Path) -> None:
    """Download packages of a suite and unpack each into its folder; `work` is gone afterwards. Raises LabError."""
    source = Suite(suite, work)
    source.update()
    for package, file in source.download(*packages).items():
        packages[package].mkdir(parents=True, exist_ok=True)
        extract(file, packages[package])
    shutil.rmtree(work)


def extract(package: Path, folder: Path) -> None:
    """Unpack the files of a package. Raises LabError with what failed."""
    run(["dpkg-deb", "--extract", str(package), str(folder)], f"unpacking {package.name}")


def run(
    command: list[str],
    what: str,
    cwd: Path | None = None,
    environment: Mapping[str, str] | None = None,
    each_line: Callable[[str], None] | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a step of the build. Raises LabError with the last lines of what it printed.

    `each_line` is called with each line that it prints, as it prints it.
    """
    settled = {**os.environ, "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive", **(environment or {})}
    try:
        with subprocess.Popen(
            command,
            cwd=cwd,
            env=settled,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        ) as process:
            assert process.stdout  # noqa: S101 - asked for above
            lines = []
            for line in process.stdout:
                lines.append(line)
                if each_line:
                    each_line(line)
    except FileNotFoundError as error:
        raise LabError(f"{what}: {error.filename} is not installed; run `make setup`") from None
    if process.returncode:
        tail = "".join(lines[-8:]).strip()
        raise LabError(f"{what} failed (exit {process.returncode}):\n{tail}")
    return subprocess.CompletedProcess(command, process.returncode, "".join(lines))
