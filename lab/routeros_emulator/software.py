"""Packages of the unit: what is installed, and what a restart installs from the files of the unit.

A package file is ``NAME-VERSION-ARCHITECTURE.npk``. Its header (magic, the length of the rest, then a part with name
and version) follows public tools that read and write such files; nothing else of a real package is in it, and nothing
of it is signed. What is installed and what is refused is inferred, except that all packages have the version of
``routeros`` and that a restart installs newer files and never older ones (MikroTik manual, 'Packages', 'Upgrading').
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace

from lab.routeros_emulator.config import SwitchConfig
from lab.routeros_emulator.files import Files
from lab.routeros_emulator.node_state_file import replace as replace_file

MAGIC = b"\x1e\xf1\xd0\xba"
ARCHITECTURE = "arm64"
_INFO = 1
_NAME = re.compile(r"([a-z0-9-]+)-(\d+(?:\.\d+)+)-([a-z0-9]+)\.npk")


def package(name: str, version: str, size: int = 4096) -> bytes:
    """Make the contents of a package file with `size` bytes, for tests."""
    major, minor, patch = ([int(part) for part in version.split(".")] + [0, 0])[:3]
    info = struct.pack("<HI16s4B", _INFO, 20, name.encode(), patch, ord("f"), minor, major)
    rest = info + bytes((index * 7 + len(name)) % 251 for index in range(size - len(info) - 8))
    return MAGIC + struct.pack("<I", len(rest)) + rest


@dataclass(frozen=True)
class InstalledSoftware:
    """Release and packages of the unit. `firmware`: of its boot loader. `written`: the firmware that the next start
    has; "" for the same."""

    version: str
    packages: tuple[str, ...]
    firmware: str
    written: str = ""

    @classmethod
    def of(cls, config: SwitchConfig) -> InstalledSoftware:
        """Return what the configuration names."""
        return cls(config.version, config.packages, config.firmware or config.version.split()[0])

    def config(self, config: SwitchConfig) -> SwitchConfig:
        """Return the configuration of a unit that has this software."""
        return config.model_copy(update={"version": self.version, "packages": self.packages, "firmware": self.firmware})

    def restarted(self, files: Files, *, installs: bool) -> tuple[InstalledSoftware, list[str]]:
        """Return the software after a restart, and lines for the log. `installs`: package files are installed and
        removed; else they stay."""
        now = replace(self, firmware=self.written or self.firmware, written="")
        names = [name for name in files.names() if name.endswith(".npk")] if installs else []
        found = {file: _read_package(files, file) for file in names}
        known = {file: known for file, known in found.items() if known}
        lines = [f"can not install {file}: broken package" for file in names if file not in known]
        newest = max((numbers(version) for name, version in known.values() if name == "routeros"), default=())
        target = newest if newest > numbers(self.version) else numbers(self.version)
        chosen = {name: version for name, version in known.values() if numbers(version) == target}
        lines += [
            f"can not install {file}: version {version} does not fit"
            for file, (_, version) in known.items()
            if numbers(version) != target
        ]
        for file in names:
            files.remove(file)
        lacking = [name for name in self.packages if name not in chosen]
        if target > numbers(self.version) and lacking:
            return now, [*lines, f"can not upgrade: package {lacking[0]} of the new version is missing"]
        if not chosen:
            return now, lines
        version = next(iter(chosen.values()))
        lines += [f"installed {name}-{version}" for name in chosen]
        packages = tuple(dict.fromkeys((*self.packages, *chosen)))
        named = self.version if target == numbers(self.version) else f"{version} (stable)"
        return replace(now, version=named, packages=packages), lines


def numbers(version: str) -> tuple[int, ...]:
    """Return a version for comparison."""
    found = tuple(map(int, re.findall(r"\d+", version.split()[0])))
    return (*found, 0, 0)[:3]


def _read_package(files: Files, file: str) -> tuple[str, str] | None:
    """Name and version of a package file; None for one that cannot be installed here."""
    data, named = files.read(file), _NAME.fullmatch(file)
    if not named or len(data) < 34 or data[:4] != MAGIC or struct.unpack("<I", data[4:8])[0] != len(data) - 8:
        return None
    kind, _, name, patch, _, minor, major = struct.unpack("<HI16s4B", data[8:34])
    known = name.rstrip(b"\0").decode(errors="replace")
    if kind != _INFO or named[1] != known or numbers(named[2]) != (major, minor, patch) or named[3] != ARCHITECTURE:
        return None
    return known, named[2]


class SoftwareFile:
    """Keeps the software over restarts of the emulator, beside its saved state."""

    def __init__(self, config: SwitchConfig) -> None:
        self._path = config.state.with_name(f"{config.state.name}.software")

    def load(self, config: SwitchConfig) -> InstalledSoftware:
        """Return what was saved, else what the configuration names."""
        if not self._path.exists():
            return InstalledSoftware.of(config)
        known = json.loads(self._path.read_text())
        return InstalledSoftware(**(known | {"packages": tuple(known["packages"])}))

    def save(self, software: InstalledSoftware) -> None:
        """Save it for the next start."""
        replace_file(self._path, json.dumps(asdict(software)), mode=0o600)

    def forget(self) -> None:
        """Return to what the configuration names."""
        self._path.unlink(missing_ok=True)


def rows(software: InstalledSoftware) -> Iterator[dict[str, str]]:
    """The rows of /system/package."""
    for number, name in enumerate(software.packages, start=1):
        yield {
            ".id": f"*{number:X}",
            "name": name,
            "version": software.version.split()[0],
            "build-time": "2026-08-12 09:14:02",
            "disabled": "false",
            "available": "false",
        }
