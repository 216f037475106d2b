"""The records of claims.yaml, from which docs/unproven.md is made.

Code and tests that rest on a claim name its id in a comment or docstring, after the word claim and a colon.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, TypeAdapter, ValidationError, model_validator
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from core.util.records import Record

CLAIMS = Path(__file__).with_name("claims.yaml")

_Cell = Annotated[str, Field(min_length=1, pattern=r"^[^|\n]+$")]
"""Text of one cell of a table."""


_Pattern = re.Pattern[str]
"""A regular expression; `^` and `$` match at each line where it begins with `(?m)`."""


class NodeLook(Record):
    """A reading of each node that settles a claim, without a change. The answer is what the command prints."""

    node: str
    """Text for a root shell, which changes nothing. When it fails, the claim is not observed."""
    when: _Pattern | None = None
    """The claim is about nodes in whose answer this occurs; absent: about all."""
    needs: _Pattern | None = None
    """Without it the answer is not understood."""
    expect: tuple[_Pattern, ...] = ()
    """Each occurs in the answer, or the claim is refuted."""
    reject: tuple[_Pattern, ...] = ()
    """Where one occurs in a line of the answer, the claim is refuted."""
    excuse: _Pattern | None = None
    """Where it occurs in the answer, a claim that would be refuted is not observed: the answer has another cause."""
    rest: str = ""
    """The part of the claim that this reading cannot show: it refutes the claim and does not confirm it."""


class SwitchLook(Record):
    """A reading of one menu of each switch that settles a claim, without a change."""

    menu: str
    """The path of the menu, like `/system/routerboard`."""
    model: str | None = None
    """The claim is about switches that rack.yaml declares as this model; absent: about all."""
    where: Mapping[str, _Pattern] = Field(default_factory=dict)
    """Only rows count whose fields match as a whole."""
    fields: tuple[Annotated[str, Field(min_length=1)], ...] = Field(min_length=1)
    """Each row that counts has these fields."""
    matches: _Pattern | None = None
    """The values of these fields match it as a whole: in every row, or in one of them (`rows: some`)."""
    rows: Literal["every", "some"] = "every"
    count: int | None = None
    """The number of rows that count; absent: one or more."""


class CheckLook(Record):
    """A function of sparkrack.accept.checks that settles a claim by reading."""

    check: str


class HandLook(Record):
    """A reading that the program cannot make; `by_hand` has the reason."""

    by_hand: _Cell


class Claim(Record):
    """One statement about hardware or software of others that this project has not seen."""

    id: Annotated[str, Field(pattern=r"^[a-z0-9]+(\.[a-z0-9]+(-[a-z0-9]+)*){1,2}$")]
    """Its name in code and reports, like `switch.safe-mode.api`; it is never changed or used again."""
    area: str
    """The part of the project that depends on it: the first word of the id."""
    claim: _Cell
    source: _Cell
    """What the claim rests on."""
    lab: _Cell | None = None
    """What the virtual rack does in its place; absent where public sources of real units settle the claim."""
    level: Literal["look", "change", "load"]
    """What an observation does to a real rack: `look` only reads, `change` changes settings and restores them, `load`
    takes links, memory or processors of nodes. `sparkrack accept` observes claims of the first two."""
    observe: _Cell
    """The command or the reading that shows on a real rack whether the claim holds."""
    refutes: _Cell
    """The observation that refutes the claim."""
    matters: _Cell
    """What a refuted claim means for the promises of the roles and commands."""
    look: NodeLook | SwitchLook | CheckLook | HandLook | None = None
    """How `sparkrack accept` reads it; a claim of the level `look` has one, and no other claim has."""

    @model_validator(mode="after")
    def _area_is_of_id(self) -> Self:
        if self.area != self.id.partition(".")[0]:
            raise ValueError(f"area {self.area} is not the first word of the id {self.id}")
        return self

    @model_validator(mode="after")
    def _look_is_of_level(self) -> Self:
        if (self.look is not None) != (self.level == "look"):
            raise ValueError(f"level {self.level} and look do not fit: a claim has `look` when its level is look")
        return self

    @property
    def settled(self) -> bool:
        """Whether public sources of real units show the claim."""
        return self.lab is None


_CLAIMS = TypeAdapter(tuple[Claim, ...])


def read_claims(path: Path) -> tuple[Claim, ...]:
    """Return the claims of a file in its order.

    Raises:
        ValueError: the file is not YAML, a record has an unknown key, lacks one or has a wrong value, or an id occurs
            twice.
        OSError: the file cannot be read.
    """
    try:
        claims = _CLAIMS.validate_python(YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8")))
    except (YAMLError, ValidationError) as error:
        raise ValueError(f"{path}: {error}") from error
    if twice := [name for name, count in Counter(claim.id for claim in claims).items() if count > 1]:
        raise ValueError(f"{path}: the id {', '.join(twice)} occurs more than once; give each claim an id of its own")
    return claims


@cache
def known_claims() -> tuple[Claim, ...]:
    """Return the claims of this project."""
    return read_claims(CLAIMS)


class UnknownClaimError(ValueError):
    """An id that no claim of this project has."""


def select_claims(ids: Sequence[str]) -> tuple[Claim, ...]:
    """Return the claims with these ids, or all of this project without ids. Raises UnknownClaimError."""
    known = {claim.id: claim for claim in known_claims()}
    for name in ids:
        if name not in known:
            near = get_close_matches(name, known, 1)
            hint = f"did you mean {near[0]}?" if near else "docs/unproven.md has the ids"
            raise UnknownClaimError(f"{name}: there is no such claim; {hint}")
    return tuple(known[name] for name in dict.fromkeys(ids)) or tuple(known.values())
