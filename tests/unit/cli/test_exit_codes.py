"""How the real `sparkrack` command ends, over real ssh connections to loopback: code, stdout, stderr, no traceback."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner

from sparkrack.cli.main import sparkrack
from sparkrack.engine.plan import Plan
from tests.unit.cli.cli_fixtures import ESCAPE, PLAN, SPARKRACK, SWAPS, Scene, closed_port, node, saying, settings
from tests.unit.cli.runs import Ended
from tests.unit.engine.fake_rack import connected, usual
from tests.unit.engine.ssh_node import SshNode, rack_file
from tests.unit.model.racks import CASES, SWITCH, loaded
from tests.unit.ops.fakenode import Answers

SECRET = "CRS812_PASSWORD"

KNOWN = "not in the rack; there are spark1, spark2, crs812"

SCENES: Mapping[str, Scene] = {
    # First what takes longest: paramiko waits 15 s for a server's first word.
    "connection that says nothing": Scene(1, "spark1: unreachable: ", speak=node(), greets=False),
    "in sync": Scene(0, "1 host, 0 changes, 0 unknown\n", speak=node()),
    "changes, as JSON": Scene(2, '"changes"', words=(*PLAN, "--json"), speak=node(**SWAPS)),
    "changes, and no input": Scene(2, "~ release zram0", speak=node(**SWAPS), fed="<&-"),
    "a question that fails": Scene(
        1, "zram-devices: reading it ends with exit 3", speak=node(zram_devices={"exit": 3})
    ),
    "permission denied": Scene(1, "state of the node: Permission denied", speak=saying(1, "Permission denied")),
    "dead host, as JSON": Scene(1, '"unreachable"', words=(*PLAN, "--json")),
    "dead switch": Scene(1, "crs812: unreachable: ", words=("plan", "--limit", "crs812"), env={SECRET: "canary"}),
    "unknown host key": Scene(1, "spark1: unreachable: ", speak=node(), known=False),
    "no match": Scene(
        1, err=f"Error: --limit spark9: {KNOWN}; did you mean spark2?\n", words=("plan", "--limit", "spark9")
    ),
}
"""What is about processes and connections; what is not is below."""


def play(scene: Scene, folder: Path) -> tuple[Ended, list[str]]:
    """How the call ends, and what its node was reported beside the probe."""
    there = SshNode(scene.speak, greets=scene.greets) if scene.speak else None
    try:
        rack = rack_file(folder, there, None if there else closed_port(), known=scene.known)
        shell = ["sh", "-c", f'exec "$@" {scene.fed}', "sh", SPARKRACK, *scene.words]
        done = subprocess.run(
            shell, env=settings(folder, RACK=str(rack), **scene.env), capture_output=True, text=True, timeout=120
        )
        return Ended(done.returncode, done.stdout, done.stderr), there.commands if there else []
    finally:
        if there:
            there.close()


@pytest.fixture(scope="module")
def plays(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Future[tuple[Ended, list[str]]]]]:
    """All of them, some at a time."""
    with ThreadPoolExecutor(3) as pool:
        yield {name: pool.submit(play, scene, tmp_path_factory.mktemp("scene")) for name, scene in SCENES.items()}


@pytest.mark.parametrize("name", [*list(SCENES)[1:], next(iter(SCENES))])
def test_it_ends(name: str, plays: Mapping[str, Future[tuple[Ended, list[str]]]]) -> None:
    scene = SCENES[name]
    ended, reported = plays[name].result()
    judge(scene, ended)
    assert reported == [], "a plan changes nothing"


def judge(scene: Scene, ended: Ended) -> None:
    assert ended.code == scene.code, ended.text
    assert "Traceback" not in ended.text, ended.text
    assert "canary" not in ended.text
    assert ESCAPE not in ended.text, "no one watches"
    if scene.err:
        assert scene.err in ended.stderr
        assert ended.stdout == ""
    else:
        assert scene.out in ended.stdout
        assert re.sub(r"^\d+ s: .*\n", "", ended.stderr, flags=re.MULTILINE) == ""  # nothing but progress
    if "--json" in scene.words and not scene.err:
        assert json.loads(ended.stdout)["schema"] == "sparkrack.plan/2"
        assert Plan.model_validate_json(ended.stdout).code == scene.code


INSIDE: Mapping[str, tuple[Scene, dict[str, Any]]] = {
    "quiet": (Scene(0, "1 host, 0 changes, 0 unknown\n", words=(*PLAN, "--quiet")), {}),
    "quiet, changes": (Scene(2, "1 host, 1 change, 0 unknown\n", words=(*PLAN, "--quiet")), SWAPS),
    "quiet, unknown": (Scene(1, "spark1: unknown: ", words=(*PLAN, "--quiet")), {"zram_devices": {"exit": 3}}),
    "unknown, as JSON": (Scene(1, '"unknown"', words=(*PLAN, "--json")), {"zram_devices": {"exit": 3}}),
    "refused, as JSON": (Scene(1, '"refused"', words=(*PLAN, "--json")), {"preflight_now": "clock 0 1700000000.0\n"}),
    "garbage": (Scene(1, "unknown: "), {"zram_devices": "what is this\n"}),
    "no match, as JSON": (Scene(1, err="--limit spark9", words=("plan", "--limit", "spark9", "--json")), {}),
    "no one left": (Scene(1, err="leave no machine\n", words=(*PLAN, "--exclude", "spark1")), {}),
    "missing file": (Scene(1, err="no/such.yaml", words=("plan", "--rack", "no/such.yaml")), {}),
    "bad file": (Scene(1, err="typo-in-key.yaml:", words=("plan", "--rack", str(CASES / "typo-in-key.yaml"))), {}),
    "nowhere to keep it": (Scene(1, err="/proc/version/plan", words=(*PLAN, "--out", "/proc/version/plan")), {}),
    "no such verb": (Scene(1, err="No such command 'plna'. Did you mean 'plan'?", words=("plna",)), {}),
    "no such option": (Scene(1, err="No such option", words=("plan", "--dry")), {}),
    "no such role": (Scene(1, err="Invalid value for '--only'", words=("plan", "--only", "fabrik")), {}),
    "option without its value": (Scene(1, err="requires an argument", words=("plan", "--limit")), {}),
    "help": (Scene(0, "Exit codes: ", words=("--help",)), {}),
    "help of a verb": (Scene(0, "--only", words=("plan", "--help")), {}),
    "version": (Scene(0, "sparkrack, version", words=("--version",)), {}),
    "nothing said": (Scene(1, err="Usage: sparkrack", words=()), {}),
}
"""The same, by a node that no connection is made to: how it differs from a sound one."""


@pytest.mark.parametrize("name", INSIDE)
def test_it_ends_inside(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene, differs = INSIDE[name]
    monkeypatch.setenv("RACK", str(tmp_path / "rack.yaml"))  # put back afterwards: a session sets it as well
    (tmp_path / "rack.yaml").write_text(SWITCH)
    answers = Answers(dict(usual("memory")) | {key.replace("_", "-"): value for key, value in differs.items()})
    with connected(loaded(SWITCH), {"spark1": answers}):
        done = CliRunner().invoke(sparkrack, list(scene.words), prog_name="sparkrack")
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    judge(scene, Ended(done.exit_code, done.stdout, done.stderr))
    assert answers.sent == []


@pytest.mark.parametrize(
    ("end", "code", "shown"), [("the disk is gone", 1, "the disk is gone\n"), (None, 0, ""), (2, 2, ""), (0, 0, "")]
)
def test_an_end_with_a_text_is_an_error_with_this_text(
    monkeypatch: pytest.MonkeyPatch, end: str | int | None, code: int, shown: str
) -> None:
    """As Python itself ends with `sys.exit(TEXT)`, which any library below a verb may call."""

    def leave(*_: object) -> None:
        sys.exit(end)

    monkeypatch.setattr(click.Group, "invoke", leave)
    done = CliRunner().invoke(sparkrack, ["check"])
    assert (done.exit_code, done.stderr) == (code, shown)
