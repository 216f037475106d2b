"""Nodes for the preflight role's tests: what a healthy one answers, and facts of it with something changed."""

from __future__ import annotations

from roles.preflight import answers, view
from roles.preflight.state import Facts

from .cases import NOW, OPERATIONS, read


def said() -> dict[str, str]:
    """The answers of a healthy spark1."""
    return dict(read(OPERATIONS / "preflight.node.yaml"))


def facts(*edits: tuple[str, str], asked: tuple[float, float] = (NOW, NOW)) -> Facts:
    """Its facts, with each old text of its answers replaced by a new one. Raises ValueError as the role's parser."""
    node = said()
    for old, new in edits:
        holders = [key for key, text in node.items() if text and old in text]
        assert holders, f"{old!r} is in no answer"
        for key in holders:
            node[key] = node[key].replace(old, new)
    keys = (view.OS, view.CMDLINE, view.MACHINE_ID, view.LASTING, view.NOW)
    return answers.facts(answers.Texts(*(node[key] for key in keys)), asked)
