"""Package files for a switch on the operator's machine: what they are, and whether they are intact. No connection.

Names are NAME-VERSION-ARCHITECTURE.npk, as MikroTik publishes them. A file begins with four magic bytes and the
length of the rest (public tools that read packages); RouterOS itself checks the signature when it installs a file.
"""

from __future__ import annotations

import hashlib
import re
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from core.advisories.advisories import ROUTEROS, current_releases
from core.model.errors import printable_line
from core.routeros.errors import RefusedError
from core.routeros.menus import OLDEST, Release
from core.routeros.versions import release
from core.util import regular_file
from switch.backup import LARGEST

SUMS = "SHA256SUMS"
"""File of checksums that is used when it is beside the packages."""

# claim: switch.upgrade.package-bytes
_MAGIC = b"\x1e\xf1\xd0\xba"
_NAME = re.compile(r"(?P<name>[a-z0-9-]+?)-(?P<version>\d+\.\d+[0-9a-z.]*)-(?P<architecture>[a-z0-9_]+)\.npk")
_SUM = re.compile(r"([0-9a-fA-F]{64}) [ *](.+)")


@dataclass(frozen=True)
class PackageFile:
    """One package. `sha256`: of the file, 64 hex digits. `size`: in bytes."""

    path: Path
    name: str
    version: str
    architecture: str
    size: int
    sha256: str

    @property
    def file(self) -> str:
        """Name of the file, here and on the switch."""
        return self.path.name


@dataclass(frozen=True)
class PackageFolder:
    """The packages of a folder, all of one version and one architecture, by their names."""

    packages: Mapping[str, PackageFile]
    version: str
    release: Release
    architecture: str


def read_folder(folder: Path, sums: Path | None = None) -> PackageFolder:
    """Read and check the packages in `folder`. `sums`: a file as sha256sum writes it, which must name each of them;
    SHA256SUMS in the folder when None and it exists. Raises RefusedError with every reason.
    """
    try:
        paths = sorted(path for path in folder.iterdir() if path.name.endswith(".npk"))
    except OSError as fault:
        raise RefusedError((f"{folder}: {fault.strerror}; --packages is a folder with .npk files",)) from None
    if not paths:
        raise RefusedError((f"{folder}: has no .npk file; download routeros and the switch's other packages",))
    reasons: list[str] = []
    found: list[PackageFile] = []
    for path in paths:
        try:
            found.append(_read_package(path))
        except RefusedError as fault:
            reasons += fault.reasons
    reasons += _list_checksum_faults(found, *_read_checksums(folder, sums))
    for what, values in (
        ("version", {package.version for package in found}),
        ("architecture", {package.architecture for package in found}),
    ):
        if len(values) > 1:
            reasons.append(f"{folder}: has packages of more than one {what}: {', '.join(sorted(values))}; keep one")
    if reasons:
        raise RefusedError(tuple(reasons))
    version = found[0].version
    number = release(version)
    if number is None or number < OLDEST:
        oldest = f"at least {OLDEST[0]}.{OLDEST[1]} is supported, take {current_releases(ROUTEROS)}"
        raise RefusedError((f"{folder}: has RouterOS {version}; {oldest}",))
    if "routeros" not in {package.name for package in found}:
        raise RefusedError((f"{folder}: has no routeros-{version}-{found[0].architecture}.npk",))
    return PackageFolder({package.name: package for package in found}, version, number, found[0].architecture)


def _read_package(path: Path) -> PackageFile:
    shown = printable_line(str(path))
    named = _NAME.fullmatch(path.name)
    if not named:
        raise RefusedError((f"{shown}: is not named NAME-VERSION-ARCHITECTURE.npk, as a download is",))
    try:
        with path.open("rb") as file:
            status = path.stat()
            if not stat.S_ISREG(status.st_mode):
                raise RefusedError((f"{shown}: is not a regular file",))
            head = file.read(8)
            file.seek(0)
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as fault:
        raise RefusedError((f"{shown}: {fault.strerror}",)) from None
    if not status.st_size:
        raise RefusedError((f"{shown}: is empty; download it again",))
    if head[:4] != _MAGIC:
        raise RefusedError((f"{shown}: is no RouterOS package (it does not begin with {_MAGIC.hex(' ')})",))
    expected = int.from_bytes(head[4:8], "little") + 8
    if expected != status.st_size or status.st_size > LARGEST:
        text = f"{shown}: has {status.st_size} bytes, its header says {expected}; download it again"
        raise RefusedError((text,))
    return PackageFile(path, named["name"], named["version"], named["architecture"], status.st_size, digest)


def _read_checksums(folder: Path, sums: Path | None) -> tuple[Path, Mapping[str, str] | None]:
    """The file of checksums, and its lines by name; None when there is no such file."""
    path = sums or folder / SUMS
    if sums is None and not path.exists():
        return path, None
    try:
        lines = [line for line in regular_file.read_bytes(path).decode(errors="replace").splitlines() if line.strip()]
    except OSError as fault:
        raise RefusedError((f"{path}: {fault.strerror}",)) from None
    known = {}
    for number, line in enumerate(lines, start=1):
        if not (found := _SUM.fullmatch(line)):
            raise RefusedError((f"{path}:{number}: is not a line of sha256sum",))
        known[Path(found[2]).name] = found[1].lower()
    return path, known


def _list_checksum_faults(found: list[PackageFile], path: Path, known: Mapping[str, str] | None) -> Iterator[str]:
    for package in found if known is not None else ():
        assert known is not None  # noqa: S101 - the loop is empty otherwise
        expected = known.get(package.file)
        if expected is None:
            yield f"{path}: has no line for {package.file}"
        elif expected != package.sha256:
            yield f"{package.path}: has sha256 {package.sha256}, {path.name} says {expected}; download it again"
