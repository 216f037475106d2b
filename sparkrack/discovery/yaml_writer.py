"""A sheet as the text of a rack file, with its notes as comments. Pure."""

from __future__ import annotations

import io
from collections.abc import Mapping
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq

from core.model.errors import Path, printable_line
from core.model.role import roles
from sparkrack.discovery.draft import RackDraft

WIDTH = 4096
"""Columns: no line is broken, since a comment belongs to its line."""
_BLOCKS = ("access", "nodes", "switches", "fabric", *(role.key for role in roles() if role.adopt))
"""Sections with a line for each key; what stands in them is written in braces, but for a switch."""
NOTES: Mapping[Path, str] = {
    ("rack",): "stands in reports and at the top of every managed file",
    ("access", "key"): "of the operator; the nodes let it in",
    ("access", "known_hosts"): "a host key that is not in it, or differs, ends the run",
}
COMPACT: Mapping[Path, str] = {
    ("nodes",): "by rank, the first is the head; port 0 is the cage next to the RJ45",
    ("driver",): "held: no update of a node changes them",
    ("blackbox",): "what a node that dies leaves behind",
    ("watch",): "metrics and alerts, kept on a node",
}
"""What stands behind the lines of a compact file."""
HEADS: Mapping[Path, str] = {
    ("nodes",): "The order is the rank: the first is the head. Port 0 is the cage next to the RJ45.\n"
    "A cable ends at a leg of a switch (switch/cage-lane) or at the port of another node (node/port).",
    ("switches",): "A password is a reference: {env: NAME}, {file: path} or {command: [program, argument]}.",
    ("fabric",): "The fast network. A node's number in the subnets is its rank, or its own `host`.",
    ("memory",): "What follows is the same on all nodes.",
    ("images",): "The same bytes on every node.",
    ("leave",): "These roles are left alone: no run changes and no check judges what is theirs.\n"
    "To manage one, remove it here and run sparkrack plan.",
}


def text(sheet: RackDraft) -> str:
    """Return the text of the file: `sheet.data` and comments."""
    root = _block_mapping(sheet, sheet.data, ())
    for key in () if sheet.compact else list(sheet.data)[1:]:
        lines = [HEADS.get((key,), ""), *sheet.heads.get((key,), [])]
        above = "\n".join(line for line in "\n".join(lines).splitlines() if line)
        # A line that is empty but for its end stands between sections.
        root.yaml_set_comment_before_after_key(key, before=f"\n{above}" if above else "\n")
    if top := sheet.heads.get(()):
        root.yaml_set_start_comment("\n".join(map(printable_line, top)))
    paper = io.StringIO()
    yaml = YAML()
    yaml.width = WIDTH
    yaml.indent(mapping=2, sequence=4, offset=2)
    yaml.dump(root, paper)
    return paper.getvalue()


def _block_mapping(sheet: RackDraft, data: Mapping[str, Any], place: Path) -> CommentedMap:
    """A mapping with a line for each key."""
    found = CommentedMap()
    for key, value in data.items():
        here = (*place, key)
        found[key] = _yaml_value(sheet, value, here)
        note = sheet.notes.get(here) or _notes_below(sheet, here) or (COMPACT if sheet.compact else NOTES).get(here)
        if note:
            found.yaml_add_eol_comment(note, key, column=0)
    return found


def _yaml_value(sheet: RackDraft, value: Any, here: Path) -> Any:
    if isinstance(value, Mapping):
        if _is_open_mapping(sheet, here) and value:
            return _block_mapping(sheet, value, here)
        return _flow_mapping(value)
    if isinstance(value, list):
        return _flow_sequence(value, flow=here != ("images",))
    return _plain_value(value)


def _is_open_mapping(sheet: RackDraft, here: Path) -> bool:
    """Whether a mapping has a line for each of its keys."""
    if sheet.compact:
        return here == ("nodes",)
    switch = here[:1] == ("switches",)
    return (here[:1][0] in _BLOCKS and len(here) == 1) or (switch and (len(here) == 2 or here[2:] == ("cages",)))


def _notes_below(sheet: RackDraft, here: Path) -> str:
    """The notes of what stands in the braces of a line: they go behind it."""
    if _is_open_mapping(sheet, here):
        return ""
    return "; ".join(note for place, note in sheet.notes.items() if place[: len(here)] == here and note)


def _flow_mapping(value: Mapping[Any, Any]) -> CommentedMap:
    found = CommentedMap()
    for key, inner in value.items():
        if isinstance(inner, Mapping):
            found[key] = _flow_mapping(inner)
        else:
            found[key] = _flow_sequence(inner, flow=True) if isinstance(inner, list) else _plain_value(inner)
    found.fa.set_flow_style()
    return found


def _flow_sequence(values: list[Any], *, flow: bool) -> CommentedSeq:
    found = CommentedSeq(map(_plain_value, values))
    if flow:
        found.fa.set_flow_style()
    return found


def _plain_value(value: Any) -> Any:
    """A single value; what does not print in a text becomes visible, which no check lets pass as a name."""
    return printable_line(value) if isinstance(value, str) else value
