"""In a copy of the project that has the toy: where it appears. Prints JSON.

python -m tests.unit.toy.exercise
"""

from __future__ import annotations

# isort: split
import json
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from core.model import ConfigError, Rack
from core.model.schema import rack_model
from core.verify.checked_roles import verify_files
from core.verify.runner import session
from sparkrack.cli.main import sparkrack as program
from sparkrack.discovery.yaml_writer import text
from sparkrack.drift.findings import FindingKind, drift_of
from sparkrack.engine.execute import RISKY
from sparkrack.engine.plan import CHANGES, Plan
from sparkrack.rebuild import phase_commands
from sparkrack.rebuild.model import Request
from sparkrack.status import render
from sparkrack.status.model import LastDrift, LockStatus, Status
from tests.unit.discovery.worlds import world
from tests.unit.engine.fake_rack import planned, usual
from tests.unit.model.racks import SWITCH, changed, loaded
from tests.unit.ops.fakenode import Answers


def rack_with(*lines: str) -> Rack:
    return loaded(changed(SWITCH, ("rack: two", "\n".join(("rack: two", *lines)))))


def refusal(*lines: str) -> str:
    try:
        rack_with(*lines)
    except ConfigError as error:
        fault = error.faults[0]
        return f"{fault.line}: {fault.path}: {fault.what}; {fault.right}"
    return ""


def plan_of(rack: Rack, *only: str) -> Plan:
    return planned(rack, {"spark1": Answers({**usual("memory"), "/etc/toy.conf": "level = 1\n"})}, *only)


def changes(plan: Plan) -> list[str]:
    return [
        f"{step.role}: {step.title}: {reported.message}"
        for one in plan.hosts
        for step, reported in one.events(*CHANGES)
    ]


def verified(level: int) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        outcomes = session(
            rack_with(f"toy: {{level: {level}}}"),
            [str(one) for one in verify_files(["toy"])],
            "spark1",
            Path(folder) / "junit.xml",
            False,
        )
    return [f"{outcome.role}: {outcome.passed}: {outcome.why}" for outcome in outcomes]


def adopted() -> str:
    found = world(rack_with())
    for name in found.nodes:
        found.say(name, "toy.level", "level = 5")
    return text(found.sheet())


def status_line(*looked: str) -> str:
    now = datetime(2026, 11, 23, tzinfo=UTC)
    drift = LastDrift(run="x", made=now, hosts=("spark1",), roles=looked, unknown_hosts=(), counts={})
    made = Status(
        rack="two", file="rack.yaml", made=now, nodes=(), switches=(), lock=LockStatus(known=False), drift=drift
    )
    return render._drift_text(made)


def main() -> dict[str, Any]:
    rack = rack_with("toy: {level: 7}")
    left = rack_with("toy: {level: 7}", "leave: [toy]")
    request = Request(kind="nodes", rack="two", file="rack.yaml", nodes=("spark1",), switches=(), apart=())
    node_roles = tuple(role for role in plan_of(rack).roles if role not in ("switch", "toy"))
    return {
        "plan": changes(plan_of(rack)),
        "only": [changes(plan_of(rack, "toy")), plan_of(rack, "toy").roles],
        "not asked for": changes(plan_of(rack, "fabric")),
        "left": changes(plan_of(left)),
        "drift": [
            f"{role}: {finding.message}"
            for one in drift_of(plan_of(rack)).hosts
            for role, finding in one.found(FindingKind.DECLARED)
        ],
        "risky": "toy" in RISKY,
        "verify": verified(7) + verified(9),
        "adopt": [line for line in adopted().splitlines() if "toy" in line or "level" in line],
        "status": [status_line(*node_roles), status_line(*node_roles, "toy")],
        "schema": rack_model().model_json_schema()["$defs"]["ToyOptions"]["properties"]["level"],
        "refused": [refusal("toy: {level: 10}"), refusal("leave: [toi]")],
        "rebuild": [" ".join(words) for words in phase_commands.apply(request, rack)],
        "help": CliRunner().invoke(program, ["plan", "--help"]).stdout,
    }


if __name__ == "__main__":
    print(json.dumps(main()))
