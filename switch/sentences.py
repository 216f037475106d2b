"""API sentences as text: what pyinfra shows at -vv is what a user can type after `pyinfra ... exec --`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass

from .diff import Change

Sentence = tuple[str, ...]
"""A command word such as /interface/ethernet/set, then its attribute (=k=v) and query (?...) words."""

_COMMAND = re.compile(r"(/[a-z0-9-]+)+")


def parse(text: str) -> Sentence:
    """Split shell-quoted text into the words of one sentence.

    Raises ValueError for an open quote, a first word that is no command, or a further word that is neither an
    attribute nor a query (tags belong to the session): the sentence would mean something else than was typed.
    The message does not repeat the text, which may hold a secret.
    """
    words = tuple(shlex.split(text))
    if not words or not _COMMAND.fullmatch(words[0]):
        raise ValueError("not an API sentence; one is like /system/identity/set =name=crs812")
    for number, word in enumerate(words[1:], start=2):
        if not re.match(r"=[^=]|\?.", word):
            raise ValueError(
                f"word {number} is no API word; attributes are like =name=crs812, queries like ?name=ether1"
            )
    return words


@dataclass(frozen=True)
class Write:
    """A sentence that changes rows, and the user's names of them."""

    sentence: Sentence
    rows: tuple[str, ...]

    @property
    def title(self) -> str:
        menu = self.sentence[0].rpartition("/")[0]
        return f"writing {menu} {', '.join(self.rows)}".rstrip()


def writes(changes: Iterable[Change]) -> tuple[Write, ...]:
    """The sentences that carry out `changes`, in order. Neighbours that are given the same values share one
    sentence with a list of ids: every write to a lane restarts its cage, so fewer sentences are fewer
    restarts."""
    groups: list[list[Change]] = []
    for change in changes:
        last = groups[-1][-1] if groups else None
        if last and (last.menu.path, last.values) == (change.menu.path, change.values):
            groups[-1].append(change)
        else:
            groups.append([change])
    return tuple(_write(group) for group in groups)


def _write(group: list[Change]) -> Write:
    menu = group[0].menu
    ids = [change.id for change in group if change.id]
    command = f"{menu.path}/{'add' if group[0].adds else 'set'}"
    rows = (f"=.id={','.join(ids)}",) if ids else ()
    sentence = (command, *rows, *(f"={name}={value}" for name, value in group[0].values))
    return Write(sentence, tuple(change.row for change in group))
