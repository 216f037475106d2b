"""A case of tests/cases/operations as a plan: all of it in words, nothing sent, and the run after it the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any

from pyinfra.api.exceptions import PyinfraError
from pyinfra.api.host import Host
from pyinfra.api.operations import run_ops
from pyinfra.api.state import StateStage

from core.model import Rack
from core.model.selection import Selection
from core.ops import events
from core.util.event import Event
from sparkrack.engine.evaluate import SENDS, evaluate
from sparkrack.engine.execute import ShownPlan
from sparkrack.engine.plan import CHANGES, HostPlan, HostState, Plan
from sparkrack.engine.session import RunSession
from sparkrack.engine.session import machine as machine_of
from tests.unit.engine.fake_rack import FILE, node_in, prepared
from tests.unit.ops.fakenode import Answers
from tests.unit.roles.cases import matches

STANDINGS = {
    "right": {HostState.IN_SYNC},
    "changed": {HostState.CHANGES},
    "failed": {HostState.CHANGES},  # which shows only when it is done
    "refused": {HostState.REFUSED, HostState.UNKNOWN},
}


def evaluated(role: str, case: dict[str, Any], rack: Rack) -> Iterator[tuple[RunSession, Plan, Answers]]:
    """One role alone: whether its case pleases the gates is not asked."""
    name = next(iter(rack.nodes))
    answers = Answers(node_in(role, case), fails=case.get("fails"), refuses=case.get("connection") == "refused")
    with prepared(rack, {name: answers}, Selection((name,), frozenset({role}))) as session:
        yield session, evaluate(session, FILE), answers


def listening(session: RunSession, plan: Plan) -> list[Event]:
    """What operations say from now on that the plan does not show."""
    shown, unshown = ShownPlan(plan), list[Event]()

    def hear(host: Host, entry: Event) -> None:
        op_hash = host.current_op_hash or ""
        where = (machine_of(host), *events.operation_title(session.state, op_hash))
        if not events.is_open(host, op_hash) and not shown.has(*where, entry):
            unshown.append(entry)

    events.subscribe(session.state, hear)
    return unshown


def unknown_texts(machine: HostPlan) -> list[str]:
    return [step.title for step, reported in machine.events(*CHANGES) if reported.message == SENDS.message]


def check_plan(role: str, name: str, case: dict[str, Any], rack: Rack) -> None:
    """Plan a case of this name, then run it; the plan must show what its file says, and the run must keep to it."""
    for session, plan, answers in evaluated(role, case, rack):
        (machine,) = plan.hosts
        # Alone: with the roles images and models a plan waits for what they record.
        ends = "refused" if (role, name) == ("serving", "not-locked") else case["ends"]
        assert machine.state in STANDINGS[ends], plan
        assert answers.sent == []
        assert answers.probes <= 1
        assert unknown_texts(machine) == []
        assert {step.role for step in machine.operations} <= {role}
        if ends in ("right", "refused"):
            assert plan.code == (0 if ends == "right" else 1)
            continue
        assert plan.code == 2
        assert machine.changes
        # The plan has left nothing behind that would lead the run astray.
        unshown = listening(session, plan)
        session.state.set_stage(StateStage.Execute)
        with suppress(PyinfraError):  # that no host is left
            run_ops(session.state)
        assert unshown == [], "a run would stop before it is sent"
        assert len(answers.sent) == len(case["sent"]), answers.sent
        for sent, command in zip(answers.sent, case["sent"], strict=True):
            assert matches(sent, command), (sent, command)
        assert (session.state.failed_hosts != set()) == (case["ends"] == "failed")
