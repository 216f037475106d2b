"""Build what all nodes share, kernel and disk image, once for each version of the recipe."""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from lab import apt_packages
from lab.errors import LabError
from lab.image.debian import run, unpack
from lab.image.kernel import Kernel, kernel
from lab.image.kernel import recipe_hash as kernel_recipe
from lab.image.mirror import mirror
from lab.paths import give_to_caller

RECIPE = Path(__file__).parent
RELEASE = "trixie"
"""Debian 13 stands in for Ubuntu 24.04 / DGX OS 7: same netplan 1.1, systemd 257 there against 255."""
SIZE = 32 * 1024**3
"""Bytes of a node's disk; only what is written takes space."""
OPTIONS = ("-i", "65536", "-J", "size=64", "-E", "lazy_itable_init=0,lazy_journal_init=0")
"""Few inodes, a small journal and nothing put off: what a node's kernel would do to it in the background takes space in
the copy of every node. In a sparse file it takes none now."""

TOOLS, TOOLS_RELEASE = ("docker-registry", "busybox-static", "chrony"), "bookworm"
"""Programs of Debian that run on this machine for the lab, of one release whatever this machine runs."""
PYTHON = ("python3.11-minimal", "libpython3.11-minimal", "libpython3.11-stdlib", "libc6", "libexpat1", "zlib1g")
"""The interpreter in the images of served units, and what it needs; of the same release."""
KEPT = 2
"""Number of older bases and kernels that are kept: a lab of another checkout may run from one."""


@dataclass(frozen=True)
class Base:
    """Kernel and disk image that all nodes start from."""

    folder: Path
    kernel: Kernel

    @property
    def disk(self) -> Path:
        """The image; nodes write to a copy-on-write file of their own above it."""
        return self.folder / "base.raw"

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

    @property
    def python(self) -> Path:
        """The root of the interpreter in the images of served units."""
        return self.folder / "python"


def recipe_hash() -> str:
    """Names the recipe: changes when anything does that the image is made from."""
    # The kernel's as well: a node has the list of the modules built into its kernel.
    digest = hashlib.sha256(f"{RELEASE} {TOOLS_RELEASE} {TOOLS} {PYTHON} {SIZE} {OPTIONS} {kernel_recipe()}".encode())
    folders = [path for name in ("rootfs", "vendor") for path in (RECIPE / name).rglob("*")]
    files = [*(RECIPE / name for name in ("packages.txt", "customize.sh", "vendor.toml")), *folders]
    files.append(RECIPE.parent / "apt_packages.py")
    for path in sorted(path for path in files if path.is_file()):
        digest.update(f"\0{path.relative_to(RECIPE.parent)}\0{path.stat().st_mode & 0o111}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def base(cache: Path, say: Callable[[str], None]) -> Base:
    """The kernel and the image of today's recipes, from the cache or built now (4 minutes on two cores; root).

    The image is built beside the kernel: unpacking the source and installing packages use one core each. Builds in a
    side folder and renames it, so that an interrupted build leaves nothing that looks whole.
    Raises LabError with what failed.
    """
    if platform.machine() != "x86_64":
        raise LabError("user-mode Linux, the kernel of the virtual nodes, exists for x86-64 machines only")
    labs = cache / "lab"
    labs.mkdir(parents=True, exist_ok=True)
    with (labs / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two labs that start at once build once
        done = labs / f"image-{recipe_hash()}"
        with ThreadPoolExecutor(1) as beside:
            built = beside.submit(kernel, labs, say)
            if not done.exists():
                _build(done, built, say)
                for kind in ("kernel-", "image-"):
                    _forget(labs, kind)
    return Base(done, built.result())


def _forget(labs: Path, kind: str) -> None:
    """Delete what was built of older recipes, and what an interrupted build left."""
    found = sorted(labs.glob(f"{kind}*"), key=lambda path: path.stat().st_mtime)
    for old in found[: -KEPT - 1]:
        shutil.rmtree(old, ignore_errors=True)


def _build(done: Path, kernel: Future[Kernel], say: Callable[[str], None]) -> None:
    work = done.with_name(f"{done.name}.new")
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir()
    say("fetching the registry of the nodes' images")
    places = {**dict.fromkeys(TOOLS, work / "tools"), **dict.fromkeys(PYTHON, work / "python")}
    unpack(TOOLS_RELEASE, places, work / "apt")
    repository = work / "repository"
    vendor = apt_packages.build(repository)
    factory = work / "factory"
    factory.mkdir()
    for package in vendor:
        if package.factory:
            os.link(repository / package.file, factory / package.file)
    names = (RECIPE / "packages.txt").read_text().split()
    if kernel.done():
        kernel.result()  # raises at once where its source cannot be downloaded
    say(
        f"building the image of the nodes: Debian {RELEASE}, {len(names)} packages and what they need, "
        f"{len(list(factory.iterdir()))} of the vendor's"
    )
    tree = work / "tree"
    hook = f'"{RECIPE}/customize.sh" "$1" "{RECIPE}" "{factory}"'
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
    built = kernel.result()
    base = Base(work, built)
    for release in built.modules.iterdir():
        shutil.copytree(release, tree / "lib/modules" / release.name)
        run(["chroot", str(tree), "depmod", release.name], "listing what is built into the kernel")
    with base.disk.open("w") as file:
        os.truncate(file.fileno(), SIZE)
    run(["mkfs.ext4", "-q", "-F", *OPTIONS, "-d", str(tree), str(base.disk)], "making the disk image")
    shutil.rmtree(tree)
    shutil.rmtree(factory)
    work.rename(done)
    give_to_caller(done.parent.parent)
