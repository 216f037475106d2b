"""The archive of a support bundle: files without secrets, and a manifest with the hash of each."""

from __future__ import annotations

import hashlib
import io
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from pydantic import Field
from ruamel.yaml import YAML

from core.model.secrets import SecretRef
from core.util.archive import write_archive
from core.util.records import Record, Text
from core.util.scrub import MASK, scrub
from switch.anonymize import Mask

MAX_FILE_BYTES = 1 << 20
"""Bytes of one file in the archive; of a longer one the end is kept."""
_MAC = re.compile(r"\b[0-9A-Fa-f]{2}(?::[0-9A-Fa-f]{2}){5}\b")


class HostAnswer(Record):
    """Whether a host answered everything it was asked. `reason`: why not; empty when it did."""

    name: str
    answered: bool
    reason: Text = ""


class BundleFile(Record):
    """One file of the archive; `sha256` of its content."""

    path: Text
    bytes: int
    sha256: str


class SupportManifest(Record):
    """What `manifest.json` of a support bundle holds. `versions`: of this program and its packages. `anonymized`:
    whether addresses outside of private networks, MAC addresses and serial numbers are replaced."""

    schema_: Literal["sparkrack.support/1"] = Field("sparkrack.support/1", alias="schema", serialization_alias="schema")
    rack: str
    made: datetime
    versions: Text
    anonymized: bool
    hosts: tuple[HostAnswer, ...]
    files: tuple[BundleFile, ...]


@dataclass
class Bundle:
    """The files of a bundle, without secrets. `serials`: serial numbers to replace in an anonymized one."""

    files: dict[str, str] = field(default_factory=dict)
    hosts: list[HostAnswer] = field(default_factory=list)
    serials: list[str] = field(default_factory=list)

    def add(self, path: str, text: str) -> None:
        """Add a file: its secrets are removed, and of a long one the end is kept."""
        clean = scrub(text)  # before it is cut: the rest of a secret would not be recognized
        if len(clean) > MAX_FILE_BYTES:
            clean = f"({len(clean) - MAX_FILE_BYTES} characters left out)\n{clean[-MAX_FILE_BYTES:]}"
        self.files[path] = clean

    def anonymize(self) -> None:
        """Replace serial numbers, MAC addresses and addresses outside of private networks, the same by the same."""
        macs = {mac for text in self.files.values() for mac in _MAC.findall(text)}
        mask = Mask(macs, self.serials)
        self.files = {
            path: "\n".join(mask.words(line) for line in text.split("\n")) for path, text in self.files.items()
        }

    def write(self, path: Path, rack: str, made: datetime, versions: str, *, anonymized: bool) -> SupportManifest:
        """Write the archive, for its owner only, and return its manifest. Raises OSError; FileExistsError when the file
        exists.
        """
        data = {name: text.encode("utf-8", "backslashreplace") for name, text in sorted(self.files.items())}
        manifest = SupportManifest(
            rack=rack,
            made=made,
            versions=versions,
            anonymized=anonymized,
            hosts=tuple(self.hosts),
            files=tuple(
                BundleFile(path=name, bytes=len(content), sha256=hashlib.sha256(content).hexdigest())
                for name, content in data.items()
            ),
        )
        data = {"manifest.json": (manifest.model_dump_json(by_alias=True, indent=1) + "\n").encode(), **data}
        write_archive(path, data, made)
        return manifest


def rack_without_secrets(text: str) -> str:
    """Return the text of a rack file without its comments and without the references to its secrets, whose commands may
    hold a token."""
    file = io.StringIO()
    yaml = YAML(typ="safe", pure=True)
    yaml.default_flow_style = False
    yaml.dump(_without_secrets(yaml.load(text)), file)
    return file.getvalue()


def _without_secrets(value: Any) -> Any:
    if isinstance(value, dict):
        if len(value) == 1 and next(iter(value)) in SecretRef.model_fields:
            return MASK
        return {key: _without_secrets(one) for key, one in value.items()}
    return [_without_secrets(one) for one in value] if isinstance(value, list) else value


def newest(paths: Iterable[Path], most: int) -> list[Path]:
    """Return the newest of some files, by their names."""
    return sorted(paths, reverse=True)[:most]
