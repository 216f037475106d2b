"""The nodes of a rack as pyinfra hosts, under their own names: they give the configured answers, without a
connection.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyinfra
from pyinfra.api.inventory import Inventory

from core.model import Rack
from core.model.selection import Selection, select
from sparkrack.engine import evaluate as engine_evaluate
from sparkrack.engine import session as engine
from sparkrack.engine.evaluate import evaluate
from sparkrack.engine.plan import Plan
from tests.unit.ops import fakenode
from tests.unit.ops.fakenode import Answers, Node, encode_answer
from tests.unit.probe_output import encode_answers
from tests.unit.roles.cases import base_of, node_of, with_changes

FILE = Path("rack.yaml")
usual = cache(node_of)


def inventory(rack: Rack, nodes: Mapping[str, Answers]) -> Inventory:
    """Return the inventory of these nodes of a rack."""
    hosts = [(name, {"rack": rack, "node": rack.nodes[name], "answers": nodes[name]}) for name in nodes]
    made = Inventory((hosts, {}), nodes=([name for name, _ in hosts], {}))  # type: ignore[no-untyped-call]
    for host in made:
        host.connector_cls = Node
    return made


@contextmanager
def without_shell() -> Iterator[None]:
    """Nodes give the probe's answers without its script: many tests need many of them."""
    with patch.object(fakenode, "answer", spoken):
        yield


@contextmanager
def connected(rack: Rack, nodes: Mapping[str, Answers]) -> Iterator[None]:
    """Sessions are about these nodes. Neither a shell nor git is started for a plan."""
    with (
        patch.object(engine, "make_inventory", lambda *_, **__: inventory(rack, nodes)),
        without_shell(),
        patch.object(engine_evaluate, "revision", lambda _: "0123456789ab"),
        patch.object(pyinfra, "is_cli", True),  # as sparkrack.engine.gevent_patch has it
    ):
        yield


@contextmanager
def prepared(rack: Rack, nodes: Mapping[str, Answers], selection: Selection) -> Iterator[engine.RunSession]:
    """A session about these nodes whose operations are known."""
    with connected(rack, nodes):
        session = engine.RunSession(rack, FILE, selection)
        try:
            session.connect()
            session.prepare()
            yield session
        finally:
            session.close()


def planned(rack: Rack, nodes: Mapping[str, Answers], *only: str) -> Plan:
    """The plan of these nodes, for these roles or for all."""
    with prepared(rack, nodes, select(rack, limit=nodes, only=only)) as session:
        return evaluate(session, FILE)


def node_in(role: str, case: dict[str, Any]) -> dict[str, Any]:
    """The answers of a case's node, as tests.unit.roles.cases.node_in has them; the files are read once."""
    return with_changes(base_of(role, case, usual(role)), case.get("node", {}))


def spoken(node: Mapping[str, Any]) -> list[str]:
    """Return the output of the probe's script on such a node."""
    answers = (encode_answer(key, value) for key, value in node.items())
    return encode_answers(answer for answer in answers if answer).splitlines()
