"""Worlds that `sparkrack apply` is called in, and how each of these calls ends."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from core.ops.run_lock import Holder
from tests.unit.cli.rack_folder import NAMES, World, many
from tests.unit.cli.runs import Ended

Runs = dict[str, tuple[World, Ended]]
"""By name of its case: the world of a call, and how the call ended."""

OTHER = Holder("20260314T091500-3fa2", "ben@desk", "2026-03-14T09:15:00+00:00", "spark2: memory")


@dataclass
class Case:
    """A world, and a call of `sparkrack apply` in it. `keys`: typed input, at a terminal. `lines`: number of journal
    lines before the disk is full. `git`: the rack's folder is a repository.
    """

    words: tuple[str, ...]
    peculiar: dict[str, Any] = field(default_factory=dict)
    new: tuple[str, ...] = ()
    lock: str | None = None
    keys: str | None = None
    lines: int | None = None
    state_is_a_file: bool = False
    git: bool = False


CASES = {
    "all": Case(("-y",)),
    "nothing": Case(("-y",), new=NAMES),
    "nothing-json": Case(("-y", "--json"), new=NAMES),
    "json": Case(("-y", "--json"), new=("spark1", "spark2")),
    "quiet": Case(("-y", "--quiet")),
    "one": Case(("-y", "--limit", "spark2", "--only", "rdma")),
    "canary fails": Case(("-y",), {"spark1": {"fails": True}}),
    "fails": Case(("-y", "--json"), {"spark2": {"fails": True}}),
    "bug": Case(("-y",), {"spark2": {"bug": True}}, new=("spark1",)),
    "unknown": Case(("-y",), {"spark3": {"unknown": "the node did not \x1b[2Janswer"}}),
    "refused": Case(("-y",), {"spark3": {"refused": "it is in the way"}}),
    "late": Case(("-y",), {"spark2": {"late": "it is in the way now"}}, new=("spark1",)),
    "moves": Case((), {"spark2": {"moves": True}}, keys="y\n"),
    "moves alone": Case(("-y",), {"spark2": {"moves": True}}),
    "creeps": Case(("-y", "--json"), {"spark2": {"creeps": True}}),
    "canary creeps": Case(("-y",), {"spark1": {"creeps": True}}),
    "unreachable": Case(("-y",), {"spark3": {"away": True}}),
    "head away": Case(("-y", "--exclude", "spark1"), {"spark1": {"away": True}}),
    "held": Case(("-y",), lock=OTHER.text),
    "held by garbage": Case(("-y",), lock="\x1b[2J"),
    "lock goes": Case(("-y", "--json"), {"spark2": {"unlocks": True}}, new=("spark3",)),
    "disk full": Case(("-y",), lines=4),
    "git": Case(("-y", "--limit", "spark3", "--only", "rdma"), git=True),
    "no journal": Case(("-y",), state_is_a_file=True),
    "no one to ask": Case(()),
    "yes": Case((), keys="y\n"),
    "no": Case((), keys="n\n"),
    "no one answers": Case((), keys=""),
    "names": Case(("-y", "--limit", "spark9")),
}


def play(top: Path) -> Runs:
    """All of them, each in a folder of its own below `top`."""
    worlds, asked = {}, []
    for name, case in CASES.items():
        world = worlds[name] = World(top / name.replace(" ", "-"), case.peculiar, case.new, case.lock)
        if case.state_is_a_file:
            (world.folder / "state").touch()
        if case.git:
            git(world.folder, "init", "-q")
            git(world.folder, "add", "rack.yaml")
            git(world.folder, "-c", "user.name=ana", "-c", "user.email=ana@desk", "commit", "-q", "-m", "the rack")
        more = {"keys": case.keys, "lines": case.lines}
        known = {key: value for key, value in more.items() if value is not None}
        asked.append({"folder": world.folder, "words": ["apply", *case.words], **known})
    return {name: (worlds[name], ended) for name, ended in zip(CASES, many(asked), strict=True)}


def git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", "-C", folder, *words], check=True, capture_output=True, text=True).stdout.strip()


def of(journal: list[dict[str, Any]], event: str) -> list[dict[str, Any]]:
    return [line for line in journal if line["event"] == event]


def last(ended: Ended) -> str:
    return ended.stdout.splitlines()[-1]
