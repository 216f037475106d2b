"""`sparkrack serve status`, with nodes that are shells of this machine."""

from __future__ import annotations

import json
import re
import typing
from pathlib import Path
from typing import Any

import pytest

from serving.options import served_units
from sparkrack.engine import subcommands
from sparkrack.serving import coordinator as coordinator
from sparkrack.serving.coordinator import (
    SERVING,
    STOPPED,
    CoordinatorError,
    DesiredStateRefusedError,
    UnitAbsentError,
    UnitState,
)
from sparkrack.serving.unit_status import UnitStatus, build_serve_status, next_command
from tests.serving.serve_modules import serve_lifecycle, serve_phases
from tests.unit.cli.serve_rack import BEGIN, ServeRack, answer
from tests.unit.model.serving_racks import loaded, text, unit


@pytest.fixture
def rack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ServeRack:
    monkeypatch.delenv(subcommands.WITHIN, raising=False)
    return ServeRack(tmp_path, monkeypatch)


def states(rack: ServeRack) -> dict[str, tuple[str, bool | None]]:
    report = json.loads(rack.run("status", "--json").stdout)
    assert report["schema"] == "sparkrack.serve-status/1"
    return {one["unit"]: (one["state"], one["as_desired"]) for one in report["units"]}


def test_the_states_are_those_of_the_coordinator() -> None:
    assert set(typing.get_args(UnitState)) == set(serve_lifecycle.STATES)
    assert set(serve_lifecycle.RUNNING) > SERVING
    assert not STOPPED & set(serve_lifecycle.RUNNING)


def test_a_unit_that_serves_is_shown_with_its_figures(rack: ServeRack) -> None:
    figures = {"gates_s": 12.0, "ready_s": 131.2, "completion_s": 0.8}
    restarts = [BEGIN - 99999, BEGIN]
    rack.answers(answer("starting", "ready", figures=figures, restarts=restarts, version=rack.version()))
    done = rack.run("status")
    assert done.exit_code == 0, done.output
    assert [line.rstrip() for line in done.stdout.splitlines()] == [
        "unit  desired  state  for  generation  ranks      restarts",
        "qwen  up       ready  1m   7           2 running  1/1",
        "qwen: ready: reason 1",
        "qwen: gates 12 s, start to ready 131.2 s, latest completion 0.8 s",
        "1 unit: 1 as desired, 0 not as desired, 0 unknown",
    ]
    assert "Next: sparkrack status" in done.stderr
    assert rack.asked() == []
    assert not rack.lock.exists()


@pytest.mark.parametrize(
    ("figure", "shown"), [("embedding_s", "latest embeddings 0.2 s"), ("ranking_s", "latest ranking 0.2 s")]
)
def test_the_figures_of_a_unit_that_pools_are_shown(rack: ServeRack, figure: str, shown: str) -> None:
    rack.answers(answer("starting", "ready", figures={figure: 0.2}, version=rack.version(), dimension=384))
    assert f"qwen: {shown}" in [line.rstrip() for line in rack.run("status").stdout.splitlines()]


def test_the_phases_of_the_latest_start_are_shown_and_one_that_was_not_seen_is_unknown(rack: ServeRack) -> None:
    phases = {
        "gates": {"begin": BEGIN - 12, "seconds": 12.0},
        "weights": {"begin": BEGIN + 20, "seconds": 152.4},
        "graphs": {"begin": BEGIN + 190, "seconds": None},
    }
    ready = answer("starting", "ready", phases=phases, version=rack.version())
    rack.answers(*[ready] * 3)
    start = "container unknown, rendezvous unknown, weights 152.4 s, compile unknown, graphs"
    line = f"qwen: start: gates 12 s, {start} unknown, answer unknown"
    assert line in " ".join(rack.run("status", "qwen").stdout.split())
    assert "start:" not in rack.run("status").stdout, "the table of all units is short"
    (found,) = json.loads(rack.run("status", "--json").stdout)["units"]
    assert [one["phase"] for one in found["phases"]] == list(serve_phases.PHASES)
    assert found["phases"][1] == {"phase": "container", "begin": None, "seconds": None}
    assert found["phases"][3]["seconds"] == 152.4
    assert found["phases"][5] == {"phase": "graphs", "begin": "2026-09-21T14:16:30Z", "seconds": None}
    rack.answers(answer("gating", "starting", phases=phases, version=rack.version()))
    shown = " ".join(rack.run("status").stdout.split())
    assert re.search(rf"qwen: start: gates 12 s, {start} for [0-9]+ s, answer unknown", shown)


def test_a_coordinator_that_reports_no_phases_shows_none(rack: ServeRack) -> None:
    rack.answers(*[answer("starting", "ready", version=rack.version())] * 2)
    assert "start:" not in rack.run("status", "qwen").stdout
    assert json.loads(rack.run("status", "--json").stdout)["units"][0]["phases"] == []


RANKS = [
    {"rank": 0, "node": "n0", "state": "stopping", "generation": 7, "age_s": 0.4, "detail": "the coordinator \x1b[2J"},
    {"rank": 1, "node": "n1", "state": "unknown", "generation": None, "age_s": None},
]


def test_a_unit_that_is_not_as_desired_is_explained(rack: ServeRack) -> None:
    unsaved = "No space left on device"
    rack.answers(
        answer("ready", "stopping", desired_state="down", ranks=RANKS, unsaved=unsaved, version=rack.version())
    )
    done = rack.run("status", "--quiet")
    assert done.exit_code == 2
    assert done.stdout.splitlines() == [
        "qwen: stopping: reason 1; the coordinator cannot write its record: No space left on device",
        "qwen: rack.yaml has state: up, and the latest command was to stop it",
        "qwen: n0 (rank 0): stopping, report 0 s ago: the coordinator \\x1b[2J",
        "qwen: n1 (rank 1): unknown, no report",
        "qwen: gates 10 s",
        "1 unit: 0 as desired, 1 not as desired, 0 unknown",
    ]


def test_a_probe_that_cannot_ask_is_said_of_a_unit_that_serves(rack: ServeRack) -> None:
    remark = "no completion can be asked for: /etc/sparkrack/serve/qwen.token: No such file or directory"
    rack.answers(answer("ready", probe_fault=remark, restarts=[BEGIN, BEGIN + 1e9], version=rack.version()))
    done = rack.run("status")
    assert done.exit_code == 0
    assert f"; {remark}" in done.stdout
    assert " 1/1" in done.stdout, "a restart in the future counts"


def test_failed_gates_are_a_line_for_each_node(rack: ServeRack) -> None:
    rack.answers(answer("gating", "held", failed_gates={"n0": "12 GiB", "n1": "the image differs"}, cause="gate"))
    done = rack.run("status", "qwen")
    assert done.exit_code == 2
    lines = done.stdout.splitlines()
    at = lines.index("qwen: held: a gate failed")
    assert lines[at + 1 : at + 3] == ["qwen: n0: gate: 12 GiB", "qwen: n1: gate: the image differs"]
    assert "Next: sparkrack serve start qwen" in done.stderr


@pytest.mark.parametrize(
    ("state", "cause", "verb"),
    [("held", "failed", "logs"), ("held", "machine", "start"), ("held", "gate", "start"), ("down", "failed", "start")],
)
def test_the_next_step_does_not_repeat_what_failed(rack: ServeRack, state: str, cause: str, verb: str) -> None:
    rack.answers(answer("starting", state, cause=cause))
    assert f"Next: sparkrack serve {verb} qwen" in rack.run("status").stderr


@pytest.mark.parametrize(
    ("desired_state", "state", "as_desired", "code"),
    [
        ("up", "ready", True, 0),
        ("up", "busy", True, 0),
        ("up", "starting", False, 2),
        ("up", "held", False, 2),
        ("up", "down", False, 2),
        ("down", "down", True, 0),
        ("down", "held", True, 0),
        ("down", "stopping", False, 2),
        ("down", "ready", False, 2),
    ],
)
def test_the_desired_state_of_the_rack_file_decides(
    rack: ServeRack, desired_state: str, state: str, as_desired: bool, code: int
) -> None:
    rack.declare({"qwen": unit(state=desired_state)})
    rack.answers(answer(state))
    assert states(rack) == {"qwen": (state, as_desired)}
    assert rack.run("status").exit_code == code


def test_a_unit_that_is_down_is_not_as_desired_while_something_of_it_is_left(rack: ServeRack) -> None:
    rack.declare({"qwen": unit(state="down")})
    left = "not started by its agent: 4112 vllm (S)"
    ranks = [{"rank": n, "node": f"n{n}", "state": "unknown", "age_s": 0.4, "detail": left} for n in range(2)]
    rack.answers(answer("down", ranks=ranks, left=["n0", "n1"], version=rack.version()))
    assert states(rack) == {"qwen": ("down", False)}
    done = rack.run("status")
    assert done.exit_code == 2
    assert "qwen: down: reason 0; not every rank is stopped: n0, n1" in done.stdout
    assert f"qwen: n1 (rank 1): unknown, report 0 s ago: {left}" in done.stdout


UNKNOWN: dict[str, Any] = {
    "off": "n0: cannot be asked: ssh: connect: No route to host",
    "no coordinator": "n0: the coordinator of unit qwen does not answer at 10.0.0.1:29400: Connection refused",
    "garbage": "n0: the answer of the coordinator cannot be read: Invalid JSON",
    "another unit": "n0: the coordinator of unit qwen answers about unit other",
}


@pytest.mark.parametrize("case", UNKNOWN)
@pytest.mark.parametrize("desired_state", ["up", "down"])
def test_what_is_not_known_is_unknown_and_never_down(rack: ServeRack, case: str, desired_state: str) -> None:
    rack.declare({"qwen": unit(state=desired_state)})
    printed = {"garbage": "{", "another unit": json.dumps(answer("down", name="other"))}
    rack.answers(printed.get(case, json.dumps(answer("down"))))
    if case == "off":
        rack.off("n0")
    elif case == "no coordinator":
        rack.fail(
            "fault",
            "serve-coordinator: the coordinator of unit qwen does not answer at 10.0.0.1:29400: Connection refused",
        )
    assert states(rack) == {"qwen": ("unknown", None)}
    done = rack.run("status")
    assert done.exit_code == 1
    assert f"qwen: unknown: {UNKNOWN[case]}" in done.stdout
    assert "1 unit: 0 as desired, 0 not as desired, 1 unknown" in done.stdout
    assert "Traceback" not in done.output


@pytest.mark.parametrize(("desired_state", "code"), [("up", 2), ("down", 0)])
def test_a_unit_without_files_is_absent(rack: ServeRack, desired_state: str, code: int) -> None:
    rack.declare({"qwen": unit(state=desired_state)})
    (rack.folder / "n0/etc/sparkrack/serve/qwen.json").unlink()
    done = rack.run("status")
    assert done.exit_code == code
    assert "qwen: absent: n0: has no files of unit qwen; run `sparkrack apply`" in done.stdout
    assert ("Next: sparkrack apply" in done.stderr) == (desired_state == "up")


def test_heads_are_asked_for_all_their_units(rack: ServeRack) -> None:
    """One of three is not known: that decides, and the others are shown."""
    rack.declare({"one": unit(), "two": unit(state="down"), "three": unit(nodes=["n2"], parallel={})})
    rack.answers(answer("ready", name="one"), name="one")
    rack.answers(answer("held", name="two"), name="two")
    rack.off("n2")
    assert states(rack) == {"one": ("ready", True), "two": ("held", True), "three": ("unknown", None)}
    assert rack.run("status").exit_code == 1
    assert rack.run("status", "two").exit_code == 0


def test_other_nodes_than_those_of_the_rack_file_are_not_as_desired(rack: ServeRack) -> None:
    rack.declare({"qwen": unit(nodes=["n0", "n2"])})
    rack.answers(answer("ready"))
    done = rack.run("status")
    assert done.exit_code == 2
    assert "qwen: ready: reason 0; the head has the unit on n0, n1; run `sparkrack apply`" in done.stdout


def test_a_rack_without_units_has_no_status(rack: ServeRack) -> None:
    text = rack.file.read_text()
    rack.file.write_text(text[: text.index("serving:")])
    done = rack.run("status")
    assert done.exit_code == 1
    assert f"Error: {rack.file} has no serving section\n" in done.stderr


# The files with which a unit runs


def files(rack: ServeRack) -> list[Any]:
    report = json.loads(rack.run("status", "--json").stdout)
    return [report["units"][0][key] for key in ("files", "previous", "files_unknown", "as_desired")]


def test_the_declared_files_are_distinguished_from_others(rack: ServeRack) -> None:
    rack.answers(answer("ready", version=rack.version(), previous=None))
    assert files(rack) == ["declared", None, "", True]
    assert "files" not in rack.run("status").stdout
    rack.declare({"qwen": unit(sequences=7)})
    assert files(rack) == ["other", None, "", True]
    done = rack.run("status", "--quiet")
    assert done.exit_code == 0
    assert "qwen: has other files than rack.yaml declares; `sparkrack drift` shows which" in done.stdout


@pytest.mark.parametrize(("state", "verb"), [("ready", "serves"), ("busy", "serves"), ("held", "has")])
def test_a_previous_version_is_named(rack: ServeRack, state: str, verb: str) -> None:
    rack.version()
    rack.answers(answer(state, version="0123456789abcdef", previous=5))
    assert files(rack)[:3] == ["previous", 5, ""]
    why = "`serve recreate` went back to it, and rack.yaml declares another one"
    for words in (("status",), ("status", "--quiet")):
        lines = rack.run(*words).stdout.splitlines()
        assert f"qwen: {verb} its previous version, the files of generation 5: {why}" in lines


def test_a_previous_version_of_an_unknown_generation_is_named(rack: ServeRack) -> None:
    rack.version()
    rack.answers(answer("ready", version="", previous=0))
    assert files(rack)[:2] == ["previous", 0]
    assert "qwen: serves its previous version, the files of an unknown generation: " in rack.run("status").stdout


def test_a_previous_version_that_rack_yaml_declares_again_is_the_declared_one(rack: ServeRack) -> None:
    rack.answers(answer("ready", version=rack.version(), previous=5))
    assert files(rack)[:2] == ["declared", None]


UNKNOWN_FILES = {
    "older coordinator": "its coordinator does not report a version; `sparkrack apply --only serving` renews it",
    "no lock file": "the lock file has no ID of nvcr.io/nvidia/vllm:26.04-py3; run `sparkrack apply --only images`",
}


@pytest.mark.parametrize("case", UNKNOWN_FILES)
def test_files_that_cannot_be_compared_are_unknown(rack: ServeRack, case: str) -> None:
    version = rack.version()
    lock = rack.folder / "rack.lock.json"
    if case == "no lock file":
        lock.unlink()
    rack.answers(answer("ready", **({} if case == "older coordinator" else {"version": version})))
    found = files(rack)
    assert (found[0], found[3]) == (None, True)
    assert UNKNOWN_FILES[case] in found[2]
    done = rack.run("status", "--quiet")
    assert "qwen: whether its files are those of rack.yaml is unknown: " in done.stdout
    assert "Traceback" not in done.output


# What a coordinator's program says, and what follows from its answer


SERVED = loaded(text({"qwen": unit()}))
QWEN = served_units(SERVED)["qwen"]


@pytest.mark.parametrize(
    ("code", "complaint", "kind", "said"),
    [
        (66, "", UnitAbsentError, "n0: has no files of unit qwen; run `sparkrack apply`"),
        (1, "unit qwen is not started: x\n", DesiredStateRefusedError, "n0: unit qwen is not started: x"),
        (
            1,
            "serve-coordinator: no secret\n",
            CoordinatorError,
            "n0: no secret; see `systemctl status sparkrack-serve-qwen-coordinator.service` there",
        ),
        (
            1,
            "Traceback\nValueError: x\n",
            CoordinatorError,
            "n0: ValueError: x; see `systemctl status sparkrack-serve-qwen-coordinator.service` there",
        ),
        (2, "x", CoordinatorError, "n0: x; see `systemctl status sparkrack-serve-qwen-coordinator.service` there"),
        (
            124,
            "",
            CoordinatorError,
            (
                "n0: the coordinator's program ended with exit 124; see `systemctl status "
                "sparkrack-serve-qwen-coordinator.service` there"
            ),
        ),
    ],
)
def test_an_exit_code_of_the_program_is_reported_as_what_it_is(
    code: int, complaint: str, kind: type[CoordinatorError], said: str
) -> None:
    assert QWEN
    found = coordinator._make_error(QWEN, "n0", code, complaint)
    assert type(found) is kind
    assert str(found) == said


def test_the_program_is_asked_where_both_it_and_the_unit_s_file_are() -> None:
    assert QWEN
    program, file = "/usr/local/lib/sparkrack/serve/serve_coordinator.py", "/etc/sparkrack/serve/qwen.json"
    there = f"[ -e {program} ] && [ -e {file} ] || exit 66; "
    assert coordinator.question(QWEN, "up", "--anyway") == f"{there}{program} {file} up --anyway"
    assert coordinator.question(QWEN, "status", limit=7) == f"{there}timeout 7 {program} {file} status"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"generation": "x"},
            "n0: the answer of the coordinator cannot be read: generation: Input should be a valid in",
        ),
        (
            {"desired_state": "sideways"},
            "n0: the answer of the coordinator cannot be read: desired_state: Input should be 'up' or 'down'",
        ),
        ({"since": float("nan")}, "n0: the answer of the coordinator cannot be read: "),
        ({"name": "other"}, "n0: the coordinator of unit qwen answers about unit other"),
    ],
)
def test_an_answer_that_cannot_be_read_is_reported_with_its_place(change: dict[str, Any], said: str) -> None:
    assert QWEN
    with pytest.raises(CoordinatorError) as unread:
        coordinator.parse_status(QWEN, "n0", json.dumps(answer("ready") | change))
    assert str(unread.value).startswith(said)


def status_of(**values: Any) -> UnitStatus:
    assert QWEN
    states = values.pop("states", ("starting", "ready"))
    answers = {"qwen": coordinator.parse_status(QWEN, "n0", json.dumps(answer(*states, **values)))}
    (found,) = build_serve_status(SERVED, [QWEN], answers).units
    return found


@pytest.mark.parametrize(
    ("values", "reason", "as_desired"),
    [
        ({}, "reason 1", True),
        ({"unsaved": "full"}, "reason 1; the coordinator cannot write its record: full", True),
        ({"probe_fault": "no key"}, "reason 1; no key", True),
        ({"left": ["n1"]}, "reason 1; not every rank is stopped: n1", False),
        (
            {"ranks": [{"rank": 0, "node": "n9", "state": "running", "age_s": 1.0}]},
            "reason 1; the head has the unit on n9; run `sparkrack apply`",
            False,
        ),
    ],
)
def test_each_reason_is_reported_after_that_of_the_state(values: dict[str, Any], reason: str, as_desired: bool) -> None:
    found = status_of(**values)
    assert (found.reason, found.as_desired) == (reason, as_desired)


@pytest.mark.parametrize(("ago", "used"), [(-1.0, 0), (0.0, 1), (21599.0, 1), (21600.0, 0)])
def test_restarts_count_within_their_time(ago: float, used: int) -> None:
    clock = BEGIN + 50_000
    found = status_of(clock=clock, restarts=[clock - ago])
    assert (found.restarts.used, found.restarts.allowed, found.restarts.within) == (used, 1, 21600)


def test_the_fields_of_a_status_are_those_of_the_answer() -> None:
    found = status_of(desired_state="down", failed_gates={"n0": "x"}, cause="gate", figures={"ready_s": 3.0})
    assert (found.head, found.desired_state, found.asked, found.state, found.cause) == (
        "n0",
        "up",
        "down",
        "ready",
        "gate",
    )
    assert (found.generation, found.seconds, found.failed_gates) == (7, 70.0, {"n0": "x"})
    assert found.figures == {"ready_s": 3.0}
    assert [(one.rank, one.node, one.state, one.age) for one in found.ranks] == [
        (0, "n0", "running", 0.4),
        (1, "n1", "running", 0.4),
    ]
    assert status_of(clock=BEGIN).seconds == 0.0
    never = status_of(generation=0)
    assert (never.generation, never.seconds) == (0, None)


@pytest.mark.parametrize(
    ("desired", "code"),
    [([], 0), ([True], 0), ([True, False], 2), ([False, None], 1), ([None], 1), ([True, True], 0)],
)
def test_the_exit_code_is_that_of_the_least_known_unit(desired: list[bool | None], code: int) -> None:
    made = build_serve_status(SERVED, [], {})
    one = status_of()
    units = tuple(one.model_copy(update={"as_desired": value}) for value in desired)
    assert made.model_copy(update={"units": units}).code == code


@pytest.mark.parametrize(
    ("states", "desired_state", "expected"),
    [
        (("absent", None, "up"), "up", ["apply"]),
        (("gating", False, "up"), "up", ["serve", "logs", "qwen"]),
        (("down", False, "up"), "up", ["serve", "start", "qwen"]),
        (("ready", False, "down"), "down", ["serve", "stop", "qwen"]),
        (("unknown", None, "up"), "up", ["serve", "logs", "qwen"]),
        (("ready", True, "up"), "up", ["status"]),
        (("absent", True, "down"), "down", ["status"]),
    ],
)
def test_the_next_step_follows_from_the_first_unit_that_is_not_as_desired(
    states: tuple[str, bool | None, str], desired_state: str, expected: list[str]
) -> None:
    made = build_serve_status(SERVED, [], {})
    state, as_desired, _ = states
    fine, one = (
        status_of(),
        status_of().model_copy(update={"state": state, "as_desired": as_desired, "desired_state": desired_state}),
    )
    assert next_command(made.model_copy(update={"units": (fine, one)})) == expected
