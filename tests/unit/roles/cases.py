"""Operations as data: one file a case, what a node answers and what is sent to it for that."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pyinfra.context import ctx_host
from ruamel.yaml import YAML

from core.model import Rack
from core.model.role import role_named
from core.ops import host_facts
from core.util.event import Event
from tests.unit.model.racks import VALID, changed, loaded
from tests.unit.ops.fakenode import Answers

OPERATIONS = Path(__file__).parents[2] / "cases/operations"

NOW = 1_800_000_000.0
vars(host_facts)["time"] = SimpleNamespace(time=lambda: NOW)  # what nodes say stands in files, the time as well


def read(path: Path) -> Any:
    """Load a file; each caller may change the result."""
    return deepcopy(_parse_case_file(path))


@cache
def _parse_case_file(path: Path) -> Any:
    return YAML(typ="safe", pure=True).load(path)  # 2 ms of CPU time a file; a test reads twenty


def node_of(role: str) -> dict[str, Any]:
    """Return the answers of a node on which this role has nothing to do, including the answers to other probes."""
    found: dict[str, Any] = {}
    for file in sorted(OPERATIONS.glob("*.node.yaml")):
        found |= read(file)
    return found | dict(read(OPERATIONS / f"{role}.node.yaml"))


def rack_of(case: dict[str, Any]) -> Rack:
    """The rack of a case; one object for all cases with the same text, since a rack is never changed."""
    text = (VALID / f"{case.get('base', 'switch')}.yaml").read_text()
    return _loaded(changed(text, *map(tuple, case.get("rack", []))))


_loaded = cache(loaded)


def node_in(role: str, case: dict[str, Any]) -> dict[str, Any]:
    """Return the answers of a case's node. `from`: its base state besides `node`, from ROLE.FROM.yaml, which may
    have one of its own.
    """
    return with_changes(base_of(role, case, node_of(role)), case.get("node", {}))


def base_of(role: str, case: Mapping[str, Any], usual: Mapping[str, Any]) -> dict[str, Any]:
    """Return the base state of a case or of a base state; without one that is usual."""
    if "from" not in case:
        return dict(usual)
    like = read(OPERATIONS / f"{role}.{case['from']}.yaml")
    base = base_of(role, like, usual)
    return with_changes(base, {key: value for key, value in like.items() if key != "from"})


def with_changes(answers: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """Return answers with other ones by key: the whole answer, or edits `[old, new]` of the text that is there."""
    edited = {key: changed(answers[key], *map(tuple, new)) for key, new in changes.items() if isinstance(new, list)}
    return {**answers, **changes, **edited}


def answers_of(role: str, case: dict[str, Any]) -> Answers:
    return Answers(node_in(role, case), fails=case.get("fails"), refuses=case.get("connection") == "refused")


def role_file(role: str) -> dict[str, Any]:
    """Load ROLE.role.yaml for the tests of all roles.

    `differs`: a case with a change. `key`: a fact that it needs. `bytes`: files with arbitrary bytes. `there`: files of
    which only the presence matters. `late`: facts that are only read when an earlier operation of the role has nothing
    to do, and the answers for that (`late_node`). `changes`: whether the role ever changes anything; if not, `differs`
    is any case. `rack`: edits of the rack without which it has nothing to do (`right_rack`: others, with which it is in
    sync).
    """
    usual = {"bytes": [], "there": [], "late": [], "late_node": {}, "changes": True, "rack": []}
    return usual | dict(read(OPERATIONS / f"{role}.role.yaml"))


def deploy_of(role: str) -> Callable[[], None]:
    """The deploy of a role, as deploy.py calls it."""
    apply = role_named(role).module("apply").apply

    def deploy() -> None:
        host = ctx_host.get()  # type: ignore[no-untyped-call]
        apply(rack=host.data.rack, node=host.data.node)

    return deploy


ROLES = sorted(path.name.removesuffix(".role.yaml") for path in OPERATIONS.glob("*.role.yaml"))
DEPLOYS = {role: deploy_of(role) for role in ROLES}
BYTES = {path for role in ROLES for path in role_file(role)["bytes"]}
THERE = {path for role in ROLES for path in role_file(role)["there"]}


@contextmanager
def named(part: str) -> Iterator[None]:
    """Name the part of a test, of which it has several, in the error with which it fails."""
    try:
        yield
    except BaseException as error:
        error.add_note(f"in the part: {part}")
        raise


def sentences(events: Iterable[Event]) -> list[str]:
    """The events as they are shown."""
    return [event.message for event in events]


def matches(sent: tuple[str, str], wanted: Any) -> bool:
    """Return whether a command is the expected one: its exact text, or an entry with what it `holds` and its `stdin`.

    `stdin: any` leaves that to other tests, `stdin_holds` names a part of it.
    """
    text, stdin = sent
    text = text.removeprefix("set -eu; export LC_ALL=C; ")
    if isinstance(wanted, str):
        return text == wanted and not stdin
    holds = all(part in text for part in wanted["holds"])
    if "stdin_holds" in wanted:
        return holds and wanted["stdin_holds"] in stdin
    return holds and wanted.get("stdin", "") in (stdin, "any")
