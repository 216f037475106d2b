"""Nodes for the preflight role's tests: what a healthy one answers, and facts of it with something changed."""

from __future__ import annotations

from roles.preflight import parse
from roles.preflight.desired import MachineFacts
from roles.preflight.facts import CMDLINE, LASTING, MACHINE_ID, OS
from roles.preflight.facts import NOW as TIMES
from tests.unit.roles.cases import NOW, OPERATIONS, read


def reported() -> dict[str, str]:
    """The answers of a healthy spark1."""
    return dict(read(OPERATIONS / "preflight.node.yaml"))


def facts(*edits: tuple[str, str], asked: tuple[float, float] = (NOW, NOW)) -> MachineFacts:
    """Its facts, with each old text of its answers replaced by a new one. Raises ValueError as the role's parser."""
    node = reported()
    for old, new in edits:
        holders = [key for key, text in node.items() if text and old in text]
        assert holders, f"{old!r} is in no answer"
        for key in holders:
            node[key] = node[key].replace(old, new)
    keys = (OS, CMDLINE, MACHINE_ID, LASTING, TIMES)
    return parse.facts(parse.Texts(*(node[key] for key in keys)), asked)
