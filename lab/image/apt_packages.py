"""The vendor's packages of the lab: their list, their files, and the index that apt reads.

The list is vendor.toml, their content is in vendor. A repository is a flat folder.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lab.image.debian import run

LIST = Path(__file__).parent / "vendor.toml"
FILES = Path(__file__).parent / "vendor"
EPOCH = 1735689600
"""Times in the packages and of the index: the start of 2025, so that the same list gives the same bytes."""
DATE = "Wed, 01 Jan 2025 00:00:00 UTC"


@dataclass(frozen=True)
class LabPackage:
    """One version of one package."""

    name: str
    version: str
    factory: bool
    """Whether it is in the factory image."""
    content: str
    """The folder of its files, by the name it has in the list."""
    depends: tuple[str, ...] = ()
    one: str | None = None
    """Group of packages of which a node can have only one."""
    configuration: tuple[str, ...] = ()
    enable: tuple[str, ...] = ()
    links: tuple[tuple[str, str], ...] = ()

    @property
    def file(self) -> str:
        """Its file in the repository."""
        return f"{self.name}_{self.version}_all.deb"

    @property
    def control(self) -> str:
        """Its control data for dpkg."""
        fields = {
            "Package": self.name,
            "Version": self.version,
            "Architecture": "all",
            "Maintainer": "sparkrack <sparkrack@localhost>",
            "Section": "misc",
            "Priority": "optional",
            "Depends": ", ".join(self.depends),
            **({"Provides": self.one, "Conflicts": self.one, "Replaces": self.one} if self.one else {}),
            "Description": f"stand-in for {self.name} in a virtual rack",
        }
        return "".join(f"{key}: {value}\n" for key, value in fields.items() if value)

    @property
    def script(self) -> str:
        """The script that dpkg runs after unpacking: enables its units, once, as the real ones do."""
        units = " ".join(self.enable)
        return f'#!/bin/sh\nset -e\nif [ "$1" = configure ] && [ -z "$2" ]; then systemctl --quiet enable {units}; fi\n'


def listed(text: str) -> tuple[LabPackage, ...]:
    """The packages of a list."""
    data = tomllib.loads(text)
    found = [package for row in data["package"] for package in _list_versions(row, row["versions"], {})]
    for group in data.get("set", []):
        for branch, versions in group["branches"].items():
            for row in group["package"]:
                factory = {"factory": branch == group["factory"]}
                found += _list_versions({**row, **factory}, versions, {"branch": branch})
    return tuple(found)


def _list_versions(row: Mapping[str, Any], versions: list[str], words: dict[str, str]) -> Iterator[LabPackage]:
    for number, version in enumerate(versions):
        kernel = f"{version.rpartition('.')[0]}-nvidia"
        words = {**words, "version": version, "kernel": kernel}
        yield LabPackage(
            name=row["name"].format(**words),
            version=version,
            factory=number == 0 and row.get("factory", True),
            content=row["name"],
            depends=tuple(one.format(**words) for one in row.get("depends", [])),
            one=row.get("one"),
            configuration=tuple(row.get("configuration", [])),
            enable=tuple(row.get("enable", [])),
            links=tuple(row.get("links", {}).items()),
        )


def build(folder: Path) -> tuple[LabPackage, ...]:
    """Make a repository in `folder`, which must not exist. Raises LabError with what failed."""
    packages = listed(LIST.read_text())
    folder.mkdir()
    tree = folder / "tree"
    for package in packages:
        _lay_out(package, tree)
        command = ["dpkg-deb", "--build", "--root-owner-group", "-Znone", str(tree), str(folder / package.file)]
        run(command, f"making the package {package.name}", environment={"SOURCE_DATE_EPOCH": str(EPOCH)})
        shutil.rmtree(tree)
    text = index({package: (folder / package.file).read_bytes() for package in packages})
    (folder / "Packages").write_text(text)
    (folder / "Release").write_text(release(text))
    return packages


def _lay_out(package: LabPackage, tree: Path) -> None:
    if (FILES / package.content).exists():
        shutil.copytree(FILES / package.content, tree)
    control = tree / "DEBIAN"
    control.mkdir(parents=True)
    (control / "control").write_text(package.control)
    if package.configuration:
        (control / "conffiles").write_text("".join(f"{path}\n" for path in package.configuration))
    if package.enable:
        (control / "postinst").write_text(package.script)
        (control / "postinst").chmod(0o755)
    for link, target in package.links:
        (tree / link).parent.mkdir(parents=True)
        (tree / link).symlink_to(target)
    for path in tree.rglob("*"):  # a strict umask must not show in a node
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & 0o100 else 0o644)
        os.utime(path, (EPOCH, EPOCH), follow_symlinks=False)
    tree.chmod(0o755)


def index(files: Mapping[LabPackage, bytes]) -> str:
    """The file `Packages` of a repository that has these."""
    return "\n".join(
        f"{package.control}Filename: ./{package.file}\nSize: {len(data)}\nSHA256: {hashlib.sha256(data).hexdigest()}\n"
        for package, data in files.items()
    )


def release(text: str) -> str:
    """Return the file `Release` of a repository whose `Packages` is this. It is not signed: nodes are configured to
    trust it.
    """
    data = text.encode()
    return (
        f"Origin: sparkrack-lab\nLabel: sparkrack-lab\nSuite: stable\nCodename: lab\nDate: {DATE}\n"
        f"Architectures: all amd64\nSHA256:\n {hashlib.sha256(data).hexdigest()} {len(data)} Packages\n"
    )
