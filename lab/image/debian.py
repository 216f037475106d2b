"""Debian packages that serve the lab on this machine: downloaded and unpacked into the cache, not installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from lab.errors import LabError

KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_BOUND = ("setpriv", "--pdeathsig", "KILL", "--")
_NAMESPACES = (
    ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc", "--"),
    ("unshare", "--pid", "--fork", "--kill-child", "--"),
)
"""A step has its own processes and mounts: when it is killed, the kernel ends all that it started and drops the mounts
that mmdebstrap makes in its tree. In a chroot `unshare` makes no mounts, and an ordinary user gets neither."""

_running: set[subprocess.Popen[str]] = set()
"""The steps that run, of all threads."""


@dataclass(frozen=True)
class Suite:
    """The packages of one Debian suite, read into a folder of its own: this machine's apt keeps its state."""

    name: str
    folder: Path
    mirror: str

    @property
    def _apt_options(self) -> list[str]:
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
        (self.folder / "sources.list").write_text(f"deb [signed-by={KEYRING}] {self.mirror} {self.name} main\n")
        (self.folder / "status").touch()
        # Without Error-Mode apt-get ends with 0 where the mirror does not answer.
        run(
            ["apt-get", "-qq", *self._apt_options, "-oAPT::Update::Error-Mode=any", "update"],
            f"package lists of {self.name}",
        )

    def names(self, prefix: str) -> list[str]:
        """The packages whose names begin so."""
        done = run(["apt-cache", *self._apt_options, "pkgnames", prefix], f"packages of {self.name}")
        return sorted(done.stdout.split())

    def download(self, *packages: str) -> dict[str, Path]:
        """Download packages, without what they depend on. Raises LabError with what failed."""
        run(
            ["apt-get", "-qq", *self._apt_options, "download", *packages],
            f"downloading {', '.join(packages)}",
            cwd=self.folder,
        )
        return {package: next(self.folder.glob(f"{package}_*.deb")) for package in packages}


def unpack(source: Suite, packages: Mapping[str, Path]) -> None:
    """Download packages of a suite and unpack each into its folder; the suite's own is gone afterwards. Raises
    LabError.
    """
    source.update()
    for package, file in source.download(*packages).items():
        packages[package].mkdir(parents=True, exist_ok=True)
        extract(file, packages[package])
    shutil.rmtree(source.folder)


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

    `each_line` is called with each line that it prints, as it prints it. The step and all that it started end when
    this function is left, when `end_steps` is called, and when this process ends, by whatever signal.
    """
    if not shutil.which(command[0]):
        raise LabError(f"{what}: {command[0]} is not installed; run `make setup`")
    settled = {**os.environ, "LC_ALL": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive", **(environment or {})}
    with subprocess.Popen(
        [*_BOUND, *_namespace_command(), *command],
        cwd=cwd,
        env=settled,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        _running.add(process)
        assert process.stdout  # noqa: S101 - asked for above
        lines = []
        try:
            for line in process.stdout:
                lines.append(line)
                if each_line:
                    each_line(line)
        except BaseException:
            process.kill()
            raise
        finally:
            _running.remove(process)
    if process.returncode:
        tail = "".join(lines[-8:]).strip()
        raise LabError(f"{what} failed (exit {process.returncode}):\n{tail}")
    return subprocess.CompletedProcess(command, process.returncode, "".join(lines))


def end_steps() -> None:
    """End the steps that run in all threads, each with all that it started; each raises LabError in its thread."""
    for process in list(_running):
        process.kill()


@cache
def _namespace_command() -> tuple[str, ...]:
    """The words before a command that give it namespaces of its own, as far as this machine gives them."""
    for words in _NAMESPACES:
        if subprocess.run([*words, "true"], capture_output=True).returncode == 0:
            return words
    return ()
