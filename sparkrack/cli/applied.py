"""How a run ended, as data: what `sparkrack apply --json` prints."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from sparkrack.fleet.record import Text
from sparkrack.run.journal import RunResult

Fault = Literal["", "refused", "failed", "cut off"]
"""What went wrong on a machine; empty for nothing."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", json_schema_serialization_defaults_required=True)


class State(_Part):
    """In what state a run leaves a machine. `changed`: how many operations changed it. `step`: the operation in which
    it was when something went wrong; empty when nothing did."""

    name: str
    changed: int
    fault: Fault = ""
    step: str = ""


class Applied(_Part):
    """One run. `run` and `journal`, its ID and its file, are None when nothing was to do, and `machines` is empty then.
    `notes`: what is worth knowing. `faults`: what is wrong with lock or journal, if anything."""

    schema_: Literal["sparkrack.apply/1"] = Field("sparkrack.apply/1", alias="schema", serialization_alias="schema")
    result: Literal["nothing to do", RunResult]
    run: str | None = None
    journal: Text | None = None
    machines: tuple[State, ...] = ()
    notes: tuple[Text, ...] = ()
    faults: tuple[Text, ...] = ()

    @property
    def code(self) -> int:
        """The exit code: 0 when everything is done or nothing was to do, and nothing is wrong."""
        return 0 if self.result in ("done", "nothing to do") and not self.faults else 1
