"""Which options each release of an inference engine takes: options.json of its folder, made by
scripts/engine_options.py."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any, Literal

from serving.engines.registry import FAMILIES
from serving.engines.version import version_key as version_key

Engine = str
"""The family of an engine: the name of the one whose options it has."""
TITLES: Mapping[Engine, str] = {family: engine.title for family, engine in FAMILIES.items()}
WITH_TABLE: tuple[Engine, ...] = tuple(family for family, engine in FAMILIES.items() if engine.table)
"""The engines that have a table of options."""


@dataclass(frozen=True)
class EngineOption:
    """One name of an option in one release.

    `dest`: where the parser keeps the value; names with the same `dest` are one option. `count`: number of values: 0,
    1, or one of ? + * as argparse has them. `kind`: of a flag on, off, flag or refused; of a value text, int, float,
    size, json or object (JSON with keys), and words that it takes besides (`size|auto`). `choices`: the values that the
    engine takes; empty if it does not limit them. `repeats`: whether the option may stand more than once.
    """

    dest: str
    count: int | Literal["?", "+", "*"]
    kind: str
    choices: tuple[str, ...] = ()
    repeats: bool = False

    @property
    def takes_json(self) -> bool:
        """Whether the value is JSON."""
        return self.kind.startswith(("json", "object"))


@dataclass(frozen=True)
class Presence:
    """An option as it is in all known releases from `since` to `until`."""

    since: str
    until: str
    option: EngineOption

    def row(self) -> list[object]:
        """Return the row of options.json."""
        option = self.option
        value = (option.dest, option.count, option.kind, option.choices, option.repeats)
        return [self.since, self.until, *value]


@dataclass(frozen=True)
class EngineTable:
    """The options of one engine in all known releases, oldest first, and the SHA-256 of the archive of each release."""

    engine: Engine
    releases: Mapping[str, str]
    options: Mapping[str, tuple[Presence, ...]]

    @cached_property
    def order(self) -> Mapping[str, int]:
        """The place of each release."""
        return {release: place for place, release in enumerate(self.releases)}

    def of(self, release: str) -> dict[str, EngineOption]:
        """Return the options of a known release by name, with their dashes."""
        place = self.order[release]
        return {
            name: presence.option
            for name, presences in self.options.items()
            for presence in presences
            if self.order[presence.since] <= place <= self.order[presence.until]
        }

    def judging(self, version: str) -> str | None:
        """Return the known release that judges a version, or None if no known release is near enough.

        A version between two known releases is judged by the nearest older one; of vLLM by the one with the same first
        two numbers. One after the last is judged by the last: options that are new in it are unknown then.

        Raises:
            ValueError: the version is not one.
        """
        wanted = version_key(version)
        example = next(iter(self.releases))
        if version.startswith("b") != example.startswith("b"):
            raise ValueError(f"{version!r} is not a version; write it as {example}")
        known = sorted(self.releases, key=version_key)
        if wanted < version_key(known[0]):
            return None
        if wanted > version_key(known[-1]):
            return known[-1]
        older = [release for release in known if version_key(release) <= wanted]
        if FAMILIES[self.engine].syntax.by_minor and version_key(older[-1])[:2] != wanted[:2]:
            newer = known[len(older)]
            if version_key(newer)[:2] == wanted[:2]:
                return newer
        return older[-1]


@cache
def table(engine: Engine) -> EngineTable:
    """Return the table of an engine that has one, with the releases that files of the operator add.

    Raises:
        ValueError: the engine has no table, or a file of the operator is none; the text is one line.
    """
    path = FAMILIES[engine].table
    if path is None:
        raise ValueError(f"{TITLES[engine]} has no table of options")
    known = parse_table(engine, json.loads(path.read_text(encoding="utf-8")))
    added = dict(_added_releases(engine))
    if not added:
        return known
    dumps = {release: known.of(release) for release in known.releases} | {name: one for name, (_, one) in added.items()}
    return build(engine, {**known.releases, **{name: digest for name, (digest, _) in added.items()}}, dumps)


def added_folder() -> Path:
    """Return the folder with releases that the operator adds: ENGINE-VERSION.json, made by dump_options.py."""
    config = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return Path(config).expanduser() / "sparkrack/engines"


def _added_releases(engine: Engine) -> Iterator[tuple[str, tuple[str, dict[str, EngineOption]]]]:
    """Yield each release that the operator adds: its version, the SHA-256 of the file, and its options by name."""
    for path in sorted(added_folder().glob(f"{engine}-*.json")):
        try:
            content = path.read_bytes()
            value = json.loads(content)
            version, options = str(value["version"]), value["options"]
            version_key(version)
            read = {name: EngineOption(**{**one, "choices": tuple(one["choices"])}) for name, one in options.items()}
            right = value["engine"] == engine and bool(read)
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            right = False
        if not right:
            raise ValueError(f"{path}: is not what dump_options.py prints of {engine}; make it again, or remove it")
        yield version, (hashlib.sha256(content).hexdigest(), read)


def parse_table(engine: Engine, value: Mapping[str, Any]) -> EngineTable:
    """Return the table that the content of options.json holds."""
    return EngineTable(
        engine,
        value["releases"],
        {
            name: tuple(
                Presence(since, until, EngineOption(dest, count, kind, tuple(choices), repeats))
                for since, until, dest, count, kind, choices, repeats in rows
            )
            for name, rows in value["options"].items()
        },
    )


def build(engine: Engine, releases: Mapping[str, str], dumps: Mapping[str, Mapping[str, EngineOption]]) -> EngineTable:
    """Return the table of releases.

    Args:
        engine: the engine.
        releases: the SHA-256 of the archive of each release.
        dumps: the options of each release.
    """
    ordered = sorted(releases, key=version_key)
    found: dict[str, list[Presence]] = {}
    previous: Mapping[str, EngineOption] = {}
    for release in ordered:
        for name, option in dumps[release].items():
            rows = found.setdefault(name, [])
            if previous.get(name) == option:
                rows[-1] = Presence(rows[-1].since, release, option)
            else:
                rows.append(Presence(release, release, option))
        previous = dumps[release]
    return EngineTable(
        engine,
        {release: releases[release] for release in ordered},
        {name: tuple(rows) for name, rows in sorted(found.items())},
    )


def render_table(table: EngineTable) -> str:
    """Return the text of options.json, one line for each name of an option."""
    rows = [
        f"{json.dumps(name)}: {json.dumps([presence.row() for presence in presences], separators=(',', ':'))}"
        for name, presences in table.options.items()
    ]
    releases = json.dumps(dict(table.releases), indent=0)
    return '{\n"releases": ' + releases + ',\n"options": {\n' + ",\n".join(rows) + "\n}}\n"
