"""The kernel of the nodes: user-mode Linux, built once from Debian's kernel source and kept in the cache."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.errors import LabError
from lab.image.debian import Suite, extract, run

CONFIG = Path(__file__).parent / "kernel.config"
BOOT = Path(__file__).parent / "boot-node"
PATCH = Path(__file__).parent / "kernel.patch"
"""What the kernel has otherwise than its source; the reasons are in its head."""
SUITE = "trixie-backports"
SERIES = (7, 2)
"""The series that the lab was measured with. The suite moves on: where it is gone, the newest one there is taken."""
FIRST = (6, 16)
"""Older series have no `seccomp=`: each system call of a node then costs several switches of process (ptrace)."""
LEFT_OUT = (
    *("Documentation", "tools/testing", "tools/perf", "drivers/gpu/*.[ch]", "drivers/media/*.[ch]"),
    *("drivers/net/ethernet/*.[ch]", "drivers/net/wireless/*.[ch]", "drivers/scsi/*.[ch]", "drivers/staging/*.[ch]"),
    *("drivers/infiniband/*.[ch]", "drivers/iio/*.[ch]", "sound/*.[ch]", "arch/*/boot/dts", "*.rst"),
)
"""Parts of the source that user-mode Linux never compiles: 800 MB of 1.6 GB. Kconfig files stay, since one reads them
all."""
FILES = 975
"""Approximate number of files that a build compiles, for its progress on the screen."""


@dataclass(frozen=True)
class Kernel:
    """A kernel that was built."""

    folder: Path

    @property
    def program(self) -> Path:
        """The program that starts it: `boot-node` beside the kernel itself."""
        return self.folder / "boot-node"

    @property
    def modules(self) -> Path:
        """Content of a node's /lib/modules: the names of the built-in modules, for which modprobe then exits with 0."""
        return self.folder / "modules"

    @property
    def record(self) -> dict[str, Any]:
        """Build record: `release`, source `package` with its `version`, `suite`, `compiler`, `seconds`, the options of
        `kernel.config` that this source does not accept (`not_taken`), and whether it accepts `kernel.patch`
        (`patched`).
        """
        found: dict[str, Any] = json.loads((self.folder / "kernel.json").read_text())
        return found

    def describe(self) -> str:
        """The record as one line."""
        record = self.record
        return (
            f"Linux {record['release']}, built from {record['package']} {record['version']} of {record['suite']} "
            f"with {record['compiler']}"
        )


def recipe_hash() -> str:
    """Names the recipe: changes when anything does that decides what is built."""
    digest = hashlib.sha256(f"{SUITE} {SERIES} {FIRST} {LEFT_OUT}".encode())
    digest.update(CONFIG.read_bytes())
    digest.update(BOOT.read_bytes())
    digest.update(PATCH.read_bytes())
    return digest.hexdigest()[:16]


def kernel(cache: Path, mirror: str, say: Callable[[str], None]) -> Kernel:
    """The kernel of today's recipe, from the cache or built now (4 to 6 minutes on two idle cores).

    Builds in a side folder and renames it, so that an interrupted build leaves nothing that looks whole.
    Raises LabError with what failed. The caller holds the cache's lock.
    """
    done = cache / f"kernel-{recipe_hash()}"
    if not done.exists():
        work = done.with_name(f"{done.name}.new")
        work.mkdir()
        _build_kernel(work, done, mirror, say)
        work.rename(done)
    return Kernel(done)


def describe(cache: Path) -> str:
    """Return the source of the kernel of the current recipe, as one line."""
    done = cache / f"kernel-{recipe_hash()}"
    return Kernel(done).describe() if done.exists() else "not built yet"


def choose(packages: list[str]) -> str:
    """The source package to build: of SERIES, or else the newest one. Raises LabError where all are too old."""
    found = {tuple(map(int, version.groups())): name for name in packages if (version := _parse_version(name))}
    usable = {series: name for series, name in found.items() if series >= FIRST}
    if not usable:
        raise LabError(f"{SUITE} has no linux-source of {FIRST[0]}.{FIRST[1]} or newer")
    return usable.get(SERIES) or usable[max(usable)]


def _parse_version(name: str) -> re.Match[str] | None:
    return re.fullmatch(r"linux-source-(\d+)\.(\d+)", name)


def _download_source(work: Path, done: Path, mirror: str, say: Callable[[str], None]) -> tuple[str, Path]:
    """Return the name of the package of the source, and its file. Raises LabError."""
    say(f"fetching the source of the nodes' kernel from {SUITE}")
    try:
        suite = Suite(SUITE, work / "apt", mirror)
        suite.update()
        package = choose(suite.names("linux-source-"))
        return package, suite.download(package)[package]
    except LabError as error:
        raise LabError(
            f"the source of the nodes' kernel cannot be downloaded, and the lab runs on no other kernel: {error}\n"
            "connect this machine to a Debian mirror (SPARKRACK_DEBIAN_MIRROR names another one), or copy "
            f"{done} from a machine that has built it"
        ) from None


def _build_kernel(work: Path, done: Path, mirror: str, say: Callable[[str], None]) -> None:
    begin = time.monotonic()
    package, file = _download_source(work, done, mirror, say)
    version = run(["dpkg-deb", "--field", str(file), "Version"], f"reading {file.name}").stdout.strip()
    say(f"unpacking {package} {version}")
    extract(file, work / "deb")
    (archive,) = (work / "deb/usr/src").glob("linux-source-*.tar.*")
    source, out = work / "source", work / "out"
    source.mkdir()
    excluded = [f"--exclude=*/{part}" for part in LEFT_OUT]
    run(
        ["tar", "-xf", str(archive), "-C", str(source), "--strip-components=1", "--wildcards", *excluded],
        f"unpacking {archive.name}",
    )
    (source / "Documentation").mkdir(exist_ok=True)
    (source / "Documentation/Kconfig").touch()  # the top Kconfig reads it
    patched = patch(source)
    if not patched:
        say(f"{package} does not take {PATCH.name}: a node that panics sends no messages of that, and does not restart")
    make = ["make", "ARCH=um", f"O={out}", "-C", str(source)]
    run([*make, f"KCONFIG_ALLCONFIG={CONFIG}", "allnoconfig"], "configuring the kernel")
    not_taken = missing(CONFIG.read_text(), (out / ".config").read_text())
    if not_taken:
        say(f"{package} does not take {', '.join(not_taken)}")
    cores = len(os.sched_getaffinity(0))
    say(f"compiling the kernel, about {FILES} files, on {cores} cores")
    run([*make, f"-j{cores}", "linux"], "compiling the kernel", each_line=_Progress(say))
    for name in (".config", "include/config/kernel.release"):
        shutil.copyfile(out / name, work / Path(name).name.lstrip("."))
    run(["strip", "-o", str(work / "linux"), str(out / "linux")], "stripping the kernel")
    shutil.copy(BOOT, work / "boot-node")
    release = (work / "kernel.release").read_text().strip()
    modules = work / "modules" / release
    modules.mkdir(parents=True)
    for name in ("modules.builtin", "modules.builtin.modinfo"):
        shutil.copyfile(out / name, modules / name)
    (modules / "modules.order").touch()
    record = {
        "release": release,
        "package": package,
        "version": version,
        "suite": SUITE,
        "compiler": run(["cc", "--version"], "the compiler's version").stdout.splitlines()[0],
        "seconds": round(time.monotonic() - begin),
        "not_taken": not_taken,
        "patched": patched,
    }
    (work / "kernel.json").write_text(json.dumps(record, indent=1))
    for folder in (work / "apt", work / "deb", source, out):
        shutil.rmtree(folder)
    say(f"built {Kernel(work).describe()} in {record['seconds']} s")


def patch(source: Path) -> bool:
    """Apply `kernel.patch` as a whole to a source, and return whether it fits. Raises LabError without the program."""
    run(["patch", "--version"], "patching the kernel")
    command = ["patch", "--batch", "--forward", "--strip=1", f"--directory={source}", f"--input={PATCH}"]
    try:
        run([*command, "--dry-run"], f"trying {PATCH.name}")
    except LabError:
        return False
    run(command, f"applying {PATCH.name}")
    return True


def missing(asked: str, taken: str) -> list[str]:
    """Return the options of a configuration that another one lacks or has with another value."""
    have = set(taken.splitlines())
    return [line for line in asked.splitlines() if line.startswith("CONFIG_") and line not in have]


class _Progress:
    """Says now and then how many files are compiled."""

    SECONDS = 20

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._files = 0
        self._begin = self._last = time.monotonic()

    def __call__(self, line: str) -> None:
        self._files += line.startswith(("  CC ", "  AS "))
        now = time.monotonic()
        if now - self._last >= self.SECONDS:
            self._last = now
            self._say(f"compiled {self._files} of about {FILES} files, {now - self._begin:.0f} s")
