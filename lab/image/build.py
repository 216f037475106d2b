"""Build what all nodes share, kernel and disk image, once for each version of the recipe."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.image import apt_packages
from lab.image.debian import Suite, end_steps, run, unpack
from lab.image.kernel import Kernel, kernel
from lab.image.kernel import recipe_hash as kernel_recipe
from lab.image.mirror import debian_mirror
from lab.paths import give_to_caller, make_for_caller

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
    files = [*(RECIPE / name for name in ("packages.txt", "customize.sh", "vendor.toml", "apt_packages.py")), *folders]
    for path in sorted(path for path in files if path.is_file()):
        digest.update(f"\0{path.relative_to(RECIPE.parent)}\0{path.stat().st_mode & 0o111}\0".encode())
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def base(cache: Path, say: Callable[[str], None]) -> Base:
    """The kernel and the image of today's recipes, from the cache or built now (4 minutes on two cores; root).

    The image is built beside the kernel: unpacking the source and installing packages use one core each. Builds in a
    side folder and renames it, so that an interrupted build leaves nothing that looks whole.
    Raises LabError with what failed; what an error or an interrupt left is deleted.
    """
    labs = make_for_caller(cache / "lab")
    with _hold_cache_lock(labs, say):
        _remove_unfinished(labs)
        done = labs / f"image-{recipe_hash()}"
        made = labs / f"kernel-{kernel_recipe()}"
        if not (done.exists() and made.exists()):
            try:
                _build_both(labs, done, debian_mirror(), say)
            finally:
                _remove_unfinished(labs)
                give_to_caller(labs)
            for kind in ("kernel-", "image-"):
                _delete_old_builds(labs, kind)
    return Base(done, Kernel(made))


@contextmanager
def _hold_cache_lock(labs: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Hold the lock of the cache: two labs that start at once build once."""
    with (labs / "lock").open("w") as lock:
        give_to_caller(labs / "lock")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say(f"waiting for another `sparkrack lab`, which builds in {labs}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def remove_unfinished(cache: Path) -> None:
    """Delete what a killed build left, unless another lab builds there now."""
    labs = cache / "lab"
    with suppress(FileNotFoundError, BlockingIOError), (labs / "lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _remove_unfinished(labs)


def _remove_unfinished(labs: Path) -> None:
    for left in labs.glob("*.new"):
        shutil.rmtree(left, ignore_errors=True)


def _build_both(labs: Path, done: Path, mirror: str, say: Callable[[str], None]) -> None:
    """Build kernel and image, those that are missing. The first error ends the other one's steps and is raised."""
    with ThreadPoolExecutor(2) as threads:
        built = threads.submit(kernel, labs, mirror, say)
        both: list[Future[Any]] = [built]
        if not done.exists():
            both.append(threads.submit(_build_image, done, built, mirror, say))
        try:
            for future in wait(both, return_when=FIRST_EXCEPTION).done:
                future.result()
        except BaseException:
            while wait(both, timeout=0.1).not_done:  # also a step that begins meanwhile
                end_steps()
            raise


def _delete_old_builds(labs: Path, kind: str) -> None:
    """Delete what was built of older recipes, and what an interrupted build left."""
    found = sorted(labs.glob(f"{kind}*"), key=lambda path: path.stat().st_mtime)
    for old in found[: -KEPT - 1]:
        shutil.rmtree(old, ignore_errors=True)


def _build_image(done: Path, kernel: Future[Kernel], mirror: str, say: Callable[[str], None]) -> None:
    work = done.with_name(f"{done.name}.new")
    work.mkdir()
    say("fetching the registry of the nodes' images")
    places = {**dict.fromkeys(TOOLS, work / "tools"), **dict.fromkeys(PYTHON, work / "python")}
    unpack(Suite(TOOLS_RELEASE, work / "apt", mirror), places)
    repository = work / "repository"
    vendor = apt_packages.build(repository)
    factory = work / "factory"
    factory.mkdir()
    for package in vendor:
        if package.factory:
            os.link(repository / package.file, factory / package.file)
    names = (RECIPE / "packages.txt").read_text().split()
    say(
        f"building the image of the nodes: Debian {RELEASE}, {len(names)} packages and what they need, "
        f"{len(list(factory.iterdir()))} of the vendor's"
    )
    tree, scratch = work / "tree", work / "tmp"
    scratch.mkdir()
    scratch.chmod(0o1777)
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
            mirror,
        ],
        "building the image",
        environment={"TMPDIR": str(scratch)},  # where a killed mmdebstrap leaves its keyring
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
    shutil.rmtree(scratch)
    work.rename(done)
