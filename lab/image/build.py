"""Build what all nodes share, kernel and disk image, once for each version of the recipe."""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from lab import packages
from lab.errors import LabError
from lab.image import kernel as uml
from lab.image.debian import SUITE, run, unpack
from lab.image.kernel import SHIM, Kernel
from lab.image.mirror import mirror
from lab.place import give_to_caller

RECIPE = Path(__file__).parent
RELEASE = "trixie"
"""Debian 13 stands in for Ubuntu 24.04 / DGX OS 7: same netplan 1.1, systemd 257 there against 255."""
SIZE = 32 * 1024**3
"""Bytes of a node's disk; only what is written takes space."""
OPTIONS = ("-i", "65536", "-J", "size=64", "-E", "lazy_itable_init=0,lazy_journal_init=0")
"""Few inodes, a small journal and nothing put off: what a node's kernel would do to it in the background takes space in
the copy of every node. In a sparse file it takes none now."""

KEPT = 2
"""How many older bases stay: a lab of another checkout may run from one."""


@dataclass(frozen=True)
class Base:
    """Kernel and disk image that all nodes start from."""

    folder: Path

    @property
    def disk(self) -> Path:
        """The image; nodes write to a copy-on-write file of their own above it."""
        return self.folder / "base.raw"

    @property
    def kernel(self) -> Kernel:
        """The kernel that boots it."""
        return Kernel(self.folder / "kernel")

    @property
    def repository(self) -> Path:
        """The vendor's packages, as apt takes them."""
        return self.folder / "repository"

    @property
    def registry(self) -> Path:
        """The program that serves images."""
        return self.folder / "tools/usr/bin/docker-registry"

    @property
    def busybox(self) -> Path:
        """The program in the images; needs no library."""
        return self.folder / "tools/bin/busybox"


def recipe_hash() -> str:
    """Names the recipe: changes when anything does that the image is made from."""
    digest = hashlib.sha256(f"{RELEASE} {SUITE} {SIZE} {OPTIONS}".encode())
    folders = [path for name in ("rootfs", "vendor") for path in (RECIPE / name).rglob("*")]
    files = [*(RECIPE / name for name in ("packages.txt", "customize.sh", "vendor.toml")), SHIM, *folders]
    files.append(RECIPE.parent / "packages.py")
    for path in sorted(path for path in files if path.is_file()):
        digest.update(f"\0{path.relative_to(RECIPE.parent)}\0{path.stat().st_mode & 0o111}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def base(cache: Path, say: Callable[[str], None]) -> Base:
    """The built base of today's recipe, from the cache or built now (a minute or two; root).

    Builds in a side folder and renames it, so that an interrupted build leaves nothing that looks whole.
    Raises LabError with what failed.
    """
    if platform.machine() != "x86_64":
        raise LabError("user-mode Linux, the kernel of the virtual nodes, exists for x86-64 machines only")
    labs = cache / "lab"
    labs.mkdir(parents=True, exist_ok=True)
    done = labs / recipe_hash()
    with (labs / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two labs that start at once build once
        if not done.exists():
            _build(done, say)
    return Base(done)


def _build(done: Path, say: Callable[[str], None]) -> None:
    work = done.with_name(f"{done.name}.new")
    shutil.rmtree(work, ignore_errors=True)
    bases = sorted((path for path in done.parent.iterdir() if path.is_dir()), key=lambda path: path.stat().st_mtime)
    for old in bases[:-KEPT]:
        shutil.rmtree(old, ignore_errors=True)
    work.mkdir()
    base = Base(work)
    say("fetching the kernel of the nodes and the registry of their images")
    tools = dict.fromkeys(("docker-registry", "busybox-static"), work / "tools")
    unpack({uml.PACKAGE: base.kernel.folder, **tools})
    base.kernel.compile_shim()
    vendor = packages.build(base.repository)
    factory = work / "factory"
    factory.mkdir()
    for package in vendor:
        if package.factory:
            os.link(base.repository / package.file, factory / package.file)
    names = (RECIPE / "packages.txt").read_text().split()
    say(
        f"building the image of the nodes: Debian {RELEASE}, {len(names)} packages and what they need, "
        f"{len(list(factory.iterdir()))} of the vendor's"
    )
    tree = work / "tree"
    hook = f'"{RECIPE}/customize.sh" "$1" "{RECIPE}" "{base.kernel.modules}" "{factory}"'
    run(
        [
            "mmdebstrap",
            "--variant=minbase",
            "--quiet",
            f"--include={','.join(names)}",
            f"--customize-hook={hook}",
            RELEASE,
            str(tree),
            mirror(),
        ],
        "building the image",
    )
    with base.disk.open("w") as file:
        os.truncate(file.fileno(), SIZE)
    run(["mkfs.ext4", "-q", "-F", *OPTIONS, "-d", str(tree), str(base.disk)], "making the disk image")
    shutil.rmtree(tree)
    shutil.rmtree(factory)
    work.rename(done)
    give_to_caller(done.parent.parent)
