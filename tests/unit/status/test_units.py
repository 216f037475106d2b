"""The states of served units: the question, as a shell of this machine runs it, and how its answer is read."""

from __future__ import annotations

import io
import json
import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from core.model import Rack
from serving.programs import COORDINATOR
from sparkrack.status.build import build_status
from sparkrack.status.collect_answers import NoAnswer
from sparkrack.status.model import Status
from sparkrack.status.probe_script import script
from sparkrack.status.render import show
from tests.unit.cli.serve_rack import answer
from tests.unit.model.serving_racks import loaded, machines, text, unit
from tests.unit.status.machines import NOW


@pytest.fixture(scope="module")
def rack() -> Rack:
    return loaded(
        text(
            {
                "qwen": unit(),
                "idle": unit(state="down"),
                "third": unit(nodes=["n2", "n1"], state="down"),
            },
            machines(3),
        )
    )


def output(rack: Rack, node: str, folder: Path, answers: dict[str, Any]) -> str:
    """Run the script of a node, whose coordinator has these answers: what it prints, its exit code, or None for no
    files."""
    coordinator = folder / "coordinator"
    coordinator.write_text(f'#!/bin/sh\n. "{folder}/$(basename "$1")"\n')
    coordinator.chmod(stat.S_IRWXU)
    for name, one in answers.items():
        if one is not None:
            reported = f"exit {one}" if isinstance(one, int) else f"cat <<'E'\n{one}\nE"
            (folder / f"{name}.json").write_text(f"{reported}\n")
    made = script(rack, node).replace(COORDINATOR, str(coordinator)).replace("/etc/sparkrack/serve", str(folder))
    return subprocess.run(["sh", "-c", made], capture_output=True, text=True, check=True, timeout=120).stdout


def status(rack: Rack, node: str, answered: str | None) -> Status:
    return build_status(rack, [node], {node: NoAnswer("off") if answered is None else answered}, Path("/none"), NOW)


def states(rack: Rack, node: str, answered: str | None) -> dict[str, tuple[str | None, bool | None]]:
    return {one.name: (one.state, one.as_desired) for one in status(rack, node, answered).units}


def test_the_states_are_those_that_the_coordinators_of_the_head_report(rack: Rack, tmp_path: Path) -> None:
    answers = {"qwen": json.dumps(answer("ready")), "idle": json.dumps(answer("held", name="idle"))}
    answered = output(rack, "n0", tmp_path, answers)
    assert states(rack, "n0", answered) == {"qwen": ("ready", True), "idle": ("held", True)}
    paper = io.StringIO()
    show(status(rack, "n0", answered), Console(file=paper, width=200, highlight=False, markup=False))
    assert "serves: qwen ready (n0 n1), idle held (n0 n1)" in [line.rstrip() for line in paper.getvalue().splitlines()]


@pytest.mark.parametrize(
    ("reported", "state", "shown"),
    [
        (json.dumps(answer("held")), ("held", False), "qwen held! (n0 n1)"),
        (None, ("absent", False), "qwen absent! (n0 n1)"),
        (1, (None, None), "qwen ? (n0 n1)"),
        ("garbage", (None, None), "qwen ? (n0 n1)"),
        (json.dumps(answer("ready", name="other")), (None, None), "qwen ? (n0 n1)"),
    ],
)
def test_a_state_that_is_not_desired_is_marked(
    rack: Rack, tmp_path: Path, reported: Any, state: tuple[str | None, bool | None], shown: str
) -> None:
    answered = output(rack, "n0", tmp_path, {"qwen": reported, "idle": json.dumps(answer("down", name="idle"))})
    assert states(rack, "n0", answered) == {"qwen": state, "idle": ("down", True)}
    paper = io.StringIO()
    show(status(rack, "n0", answered), Console(file=paper, width=200, highlight=False, markup=False))
    assert f"serves: {shown}, idle down (n0 n1)" in paper.getvalue()


@pytest.mark.parametrize("answered", [None, "", "garbage\n"])
def test_a_head_without_an_answer_leaves_its_units_unknown(rack: Rack, answered: str | None) -> None:
    assert states(rack, "n0", answered) == {"qwen": (None, None), "idle": (None, None)}


def test_only_the_head_of_a_unit_is_asked(rack: Rack, tmp_path: Path) -> None:
    assert "serve-" not in script(rack, "n1")
    assert states(rack, "n1", output(rack, "n1", tmp_path, {})) == {}
    assert list(states(rack, "n2", output(rack, "n2", tmp_path, {}))) == ["third"]


def test_the_units_change_no_exit_code(rack: Rack, tmp_path: Path) -> None:
    answered = output(rack, "n0", tmp_path, {"qwen": json.dumps(answer("held")), "idle": None})
    found = status(rack, "n0", answered)
    assert found.code == found.model_copy(update={"units": ()}).code
