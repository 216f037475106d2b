"""Operations as data: one file a case, what a node answers and what is sent to it for that."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyinfra.context import ctx_host
from ruamel.yaml import YAML

from roles.fabric.apply import apply as fabric
from roles.lossless.apply import apply as lossless
from roles.memory.apply import apply as memory
from sparkrack.fleet import Rack
from tests.unit.fleet.racks import VALID, changed, loaded
from tests.unit.ops.fakenode import Answers

OPERATIONS = Path(__file__).parents[2] / "cases/operations"


def read(path: Path) -> Any:
    return YAML(typ="safe", pure=True).load(path)


def node_of(role: str) -> dict[str, Any]:
    """The answers of a node on which this role finds nothing to do; what the other asks for is said as well."""
    found: dict[str, Any] = {}
    for file in sorted(OPERATIONS.glob("*.node.yaml")):
        found |= read(file)
    return found | dict(read(OPERATIONS / f"{role}.node.yaml"))


def rack_of(case: dict[str, Any]) -> Rack:
    text = (VALID / f"{case.get('base', 'switch')}.yaml").read_text()
    return loaded(changed(text, *map(tuple, case.get("rack", []))))


def node_in(role: str, case: dict[str, Any]) -> dict[str, Any]:
    """The answers of a case's node. `from`: what it is like, beside what `node` says, as ROLE.FROM.yaml has it."""
    like = dict(read(OPERATIONS / f"{role}.{case['from']}.yaml")) if "from" in case else {}
    return node_of(role) | like | dict(case.get("node", {}))


def answers_of(role: str, case: dict[str, Any]) -> Answers:
    return Answers(node_in(role, case), fails=case.get("fails"), refuses=case.get("connection") == "refused")


def apply_memory() -> None:
    host = ctx_host.get()  # type: ignore[no-untyped-call]
    memory(rack=host.data.rack)


def apply_fabric() -> None:
    host = ctx_host.get()  # type: ignore[no-untyped-call]
    fabric(rack=host.data.rack, node=host.data.node)


def apply_lossless() -> None:
    host = ctx_host.get()  # type: ignore[no-untyped-call]
    lossless(rack=host.data.rack, node=host.data.node)


DEPLOYS = {"memory": apply_memory, "lossless": apply_lossless, "fabric": apply_fabric}


def matches(sent: tuple[str, str], wanted: Any) -> bool:
    """Whether a command is the wanted one: its exact text, or an entry with what it `holds` and its `stdin`.

    `stdin: any` leaves that to other tests.
    """
    text, stdin = sent
    text = text.removeprefix("set -eu; ")
    if isinstance(wanted, str):
        return text == wanted and not stdin
    holds = all(part in text for part in wanted["holds"])
    return holds and wanted.get("stdin", "") in (stdin, "any")
