"""The rows of advisories.yaml, from which docs/reference/advisories.md is made, and the answer for one version."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping
from datetime import date
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Annotated, Self

from pydantic import AfterValidator, Field, TypeAdapter, ValidationError, model_validator
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from core.util.records import Record

ADVISORIES = Path(__file__).with_name("advisories.yaml")
PAGE = "docs/reference/advisories.md"
ROUTEROS = "RouterOS"
NGINX = "nginx of Ubuntu 24.04"
NVIDIA_DRIVER = "NVIDIA driver"
KERNEL = "kernel"
TOOLKIT = "NVIDIA container toolkit"
NCCL = "NCCL"
WITHOUT_KHO, CDI_MODE = "a boot without kho=off", "CDI mode"
"""Features of a node that rows name."""
PIP_WHEEL, RING = "build of the pip wheel", "a ring"
"""Features of an image and of the cables of its ranks that rows about NCCL name."""

VersionKey = tuple[tuple[int, ...], int, int]

_VERSION = re.compile(r"(\d+(?:(?:[.-]|ubuntu)\d+)*)(?:(alpha|beta|rc)(\d*))?")
_STAGES = {"alpha": -3, "beta": -2, "rc": -1}


def version_key(text: str) -> VersionKey | None:
    """Return a version in an order in which versions can be compared; None for text that is not a version.

    "7.23.7 (long-term)", "6.17.0-1021-nvidia" and "1.24.0-2ubuntu7.8" are versions; 7.24 is 7.24.0, and 7.24rc4 is
    before it.
    """
    found = _VERSION.match(text)
    if not found:
        return None
    numbers = [int(number) for number in re.split("[.-]|ubuntu", found[1])]
    while len(numbers) > 1 and not numbers[-1]:
        numbers.pop()
    return tuple(numbers), _STAGES.get(found[2] or "", 0), int(found[3] or 0)


def _is_version(text: str) -> str:
    if version_key(text) is None:
        raise ValueError(f"{text} is not a version")
    return text


_Version = Annotated[str, AfterValidator(_is_version)]
_Cell = Annotated[str, Field(min_length=1, pattern=r"^[^|\n]+$")]
"""Text of one cell of a table."""


class Severity(StrEnum):
    """What follows from a row, the worst first."""

    EXPLOITED = "exploited"
    """Attackers use it: a fault wherever the version is seen."""
    SECURITY = "security"
    """It can be attacked: a fault wherever the version is seen."""
    NO_ROLLBACK = "no-rollback"
    """A change may not be undone by the switch itself: a note, and no upgrade to it."""
    DEFECT = "defect"
    """A note."""


class AffectedVersions(Record):
    """A range of versions: `since` is the first that is affected, `fixed` the first after it that is not (absent:
    none so far)."""

    since: _Version
    fixed: _Version | None = None

    @model_validator(mode="after")
    def _ends_after_its_begin(self) -> Self:
        if self.fixed is not None and not _version_key(self.since) < _version_key(self.fixed):
            raise ValueError(f"fixed {self.fixed} is not after since {self.since}")
        return self

    def holds(self, version: str) -> bool:
        """Return whether a version is in the range."""
        return _version_key(self.since) <= _version_key(version) and (
            self.fixed is None or _version_key(version) < _version_key(self.fixed)
        )

    def __str__(self) -> str:
        return f"{self.since} to before {self.fixed}" if self.fixed else f"{self.since} and later"


class Advisory(Record):
    """One thing that is known against some versions of one subject."""

    id: Annotated[str, Field(pattern=r"^[a-z0-9]+\.[a-z0-9]+(-[a-z0-9]+)*$")]
    """Its name in reports, like `routeros.scheduler`; it is never changed or used again."""
    subject: _Cell
    """The software, like `RouterOS`."""
    versions: Annotated[tuple[AffectedVersions, ...], Field(min_length=1)]
    severity: Severity
    effect: _Cell
    """What happens on an affected version."""
    remedy: _Cell | None = None
    """What to do besides an upgrade, or until it."""
    source: _Cell
    """The publications that it rests on."""
    unseen: _Cell | None = None
    """What these publications do not tell; absent: nothing is missing."""
    date: date
    """When the source was published."""
    feature: _Cell | None = None
    """The row matters only to a rack that uses this; absent: to every rack."""

    @property
    def fault(self) -> bool:
        """Whether a machine with an affected version has a fault."""
        return self.severity in (Severity.EXPLOITED, Severity.SECURITY)

    def affects(self, version: str) -> bool:
        """Return whether a version is affected; False for text that is not a version."""
        return version_key(version) is not None and any(part.holds(version) for part in self.versions)


class CurrentRelease(Record):
    """A release to install: the newest of its channel on a date."""

    version: _Version
    channel: _Cell
    date: date

    def __str__(self) -> str:
        return f"{self.version} ({self.channel})"


class AdvisoryTable(Record):
    """The file. `current`: releases to install, by subject; none of them is affected by more than a defect."""

    current: Mapping[str, tuple[CurrentRelease, ...]]
    advisories: tuple[Advisory, ...]

    @model_validator(mode="after")
    def _ids_differ(self) -> Self:
        if twice := [name for name, count in Counter(row.id for row in self.advisories).items() if count > 1]:
            raise ValueError(f"the id {', '.join(twice)} occurs more than once; give each advisory an id of its own")
        return self

    @model_validator(mode="after")
    def _current_releases_are_good(self) -> Self:
        for subject, releases in self.current.items():
            for release in releases:
                for row in self.known_against(subject, release.version):
                    if row.severity is not Severity.DEFECT:
                        raise ValueError(f"{subject} {release} is current and affected by {row.id}")
        return self

    def known_against(self, subject: str, version: str, features: Collection[str] = ()) -> tuple[Advisory, ...]:
        """Return what is known against a version, the worst first."""
        order = list(Severity)
        rows = (row for row in self.advisories if row.subject == subject and row.affects(version))
        counting = (row for row in rows if row.feature is None or row.feature in features)
        return tuple(sorted(counting, key=lambda row: order.index(row.severity)))


_TABLE = TypeAdapter(AdvisoryTable)


def read_advisories(path: Path) -> AdvisoryTable:
    """Return the rows of a file.

    Raises:
        ValueError: the file is not YAML, a row has an unknown key, lacks one or has a wrong value, an id occurs twice,
            or a current release is affected.
        OSError: the file cannot be read.
    """
    try:
        return _TABLE.validate_python(YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8")))
    except (YAMLError, ValidationError) as error:
        raise ValueError(f"{path}: {error}") from error


@cache
def advisory_table() -> AdvisoryTable:
    """Return the rows of this project."""
    return read_advisories(ADVISORIES)


def known_against(subject: str, version: str, features: Collection[str] = ()) -> tuple[Advisory, ...]:
    """Return what is known against a subject in a version, the worst first.

    version: as the machine or rack.yaml names it. features: what the rack uses of the subject; a row about a feature
    counts only when it is among them.
    """
    return advisory_table().known_against(subject, version, features)


def current_releases(subject: str) -> str:
    """Return the releases of a subject to install, as words of a sentence: "7.24.6 (long-term) or 7.25.2 (stable)"."""
    return " or ".join(map(str, advisory_table().current.get(subject, ())))


def advisory_line(row: Advisory, version: str) -> str:
    """Return the one line that says what is known against a version, and what to do."""
    take = current_releases(row.subject) if any(part.fixed for part in row.versions) else ""
    words = (f"{row.subject} {version}: {row.effect}", take and f"take {take}", row.remedy)
    return f"{'; '.join(filter(None, words))} ({row.id}, {PAGE})"


def _version_key(text: str) -> VersionKey:
    key = version_key(text)
    if key is None:
        raise ValueError(f"{text} is not a version")
    return key
