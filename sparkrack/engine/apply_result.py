"""Result of a run, as data: the output of `sparkrack apply --json`."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field

from core.util.records import Text
from sparkrack.engine.journal import RunResult

Fault = Literal["", "refused", "failed", "interrupted"]
"""Kind of failure on a host; empty for none."""


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", json_schema_serialization_defaults_required=True)


class ApplyState(_Part):
    """In what state a run leaves a machine. `changed`: how many operations changed it. `operation`: the one in which
    it was when something went wrong; empty when nothing did."""

    name: str
    changed: int
    fault: Fault = ""
    operation: str = ""


class ApplyResult(_Part):
    """One run. `run` and `journal`, its ID and its file, are None when there was nothing to do, and `machines` is empty
    then. `notes`: notices. `faults`: problems of lock or journal, if any.
    """

    schema_: Literal["sparkrack.apply/2"] = Field("sparkrack.apply/2", alias="schema", serialization_alias="schema")
    result: Literal["nothing to do", RunResult]
    run: str | None = None
    journal: Text | None = None
    hosts: tuple[ApplyState, ...] = ()
    notes: tuple[Text, ...] = ()
    faults: tuple[Text, ...] = ()

    @property
    def code(self) -> int:
        """The exit code: 0 when everything is done or nothing was to do, and nothing is wrong."""
        return 0 if self.result in ("done", "nothing to do") and not self.faults else 1
