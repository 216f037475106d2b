"""API sentences as text: what pyinfra shows at -vv is what a user can type after `pyinfra ... exec --`."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass

from core.model.secrets import SecretRef
from core.routeros.diff import RowChange
from core.routeros.menus import OLDEST, Release, Sentence

_COMMAND = re.compile(r"(/[a-z0-9-]+)+")


def parse(text: str) -> Sentence:
    """Split shell-quoted text into the words of one sentence.

    Raises ValueError for an open quote, a first word that is not a command, or a further word that is neither an
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
    """A sentence that changes rows, and the user's names of them. `secrets` are attributes whose values are
    fetched when it is sent, and shown by their reference until then."""

    sentence: Sentence
    rows: tuple[str, ...]
    secrets: tuple[tuple[str, SecretRef], ...] = ()

    @property
    def title(self) -> str:
        menu = self.sentence[0].rpartition("/")[0]
        return f"writing {menu} {', '.join(self.rows)}".rstrip()


def writes(changes: Iterable[RowChange], release: Release = OLDEST) -> tuple[Write, ...]:
    """The sentences that carry out `changes`, in order, in the words of a release.

    Neighbours that are given the same values share one sentence with a list of ids: every write to a lane
    restarts its cage, so fewer sentences are fewer restarts.
    """
    groups: list[list[RowChange]] = []
    for change in changes:
        last = groups[-1][-1] if groups else None
        if last and not change.adds and _are_alike(last, change):
            groups[-1].append(change)
        else:
            groups.append([change])
    return tuple(_group_write(group, release) for group in groups)


def _are_alike(one: RowChange, other: RowChange) -> bool:
    return (one.menu.path, one.values, one.removes) == (other.menu.path, other.values, other.removes)


def _group_write(group: list[RowChange], release: Release) -> Write:
    """Return the sentence of a group."""
    first = group[0]
    ids = [change.id for change in group if change.id]
    verb = "remove" if first.removes else "add" if first.adds else "set"
    rows = (f"=.id={','.join(ids)}",) if ids else ()
    names = tuple(change.named for change in group)
    fields = [(first.menu.spelled(name, release), value) for name, value in first.values]
    plain = (f"={name}={value}" for name, value in fields if not isinstance(value, SecretRef))
    secrets = tuple((name, value) for name, value in fields if isinstance(value, SecretRef))
    return Write((f"{first.menu.path}/{verb}", *rows, *plain), names, secrets)
