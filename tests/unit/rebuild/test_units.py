"""A rebuild and the units of inference engines: named, stopped on all nodes first, and started before verify."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.model.racks import changed
from tests.unit.rebuild.rebuild_folder import Workdir

SERVING = """\
  swap: false
images: [nvcr.io/nvidia/vllm:26.04-py3]
models: {{qwen: {{source: Qwen/Small}}}}
serving:
  units:
    alone: {{engine: vllm, version: 0.19.1, image: 'nvcr.io/nvidia/vllm:26.04-py3', model: qwen, nodes: [spark1],
      context: 65536, memory: 0.8, state: down}}
    one: {{engine: vllm, version: 0.19.1, image: 'nvcr.io/nvidia/vllm:26.04-py3', model: qwen, nodes: [spark1, spark2],
      parallel: {{tensor: 2}}, context: 65536, memory: 0.8, state: {state}}}
"""


def made(folder: Path, desired_state: str = "up") -> Workdir:
    return Workdir(folder, lambda text: changed(text, ("  swap: false\n", SERVING.format(state=desired_state))))


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Workdir]:
    workdir = made(tmp_path)
    yield workdir
    workdir.close()


def both_run(workdir: Workdir, unit: str = "one") -> None:
    for node in ("spark1", "spark2"):
        workdir.runs(node, 0, unit)


@pytest.mark.parametrize("words", [("spark2",), ("--switch",), ("--all",), ("spark2", "--containers", "*")])
def test_a_unit_that_is_up_is_not_ended_without_a_confirmation(served: Workdir, words: tuple[str, ...]) -> None:
    both_run(served)
    done = served.run(*words)
    assert done.returncode == 1
    assert "unit one (spark1, spark2) runs on " in done.stderr
    assert "pass --stop-units, which stops it on all its nodes first, or run `sparkrack serve stop one`" in done.stderr
    assert "nothing was begun" in done.stderr
    assert (served.calls, served.journals) == ([], [])


def test_it_is_stopped_first_and_started_before_verify(served: Workdir) -> None:
    both_run(served)
    done = served.run("spark2", "--stop-units")
    assert done.returncode == 0, done.stderr
    assert "unit one (spark1, spark2) is stopped on all its nodes until phase start" in done.stdout
    verbs = served.verbs()
    assert verbs[:2] == ["serve stop one", "bootstrap nodes"]
    assert verbs.index("serve start one") == verbs.index("verify") - 1
    assert served.entered() == ["wait", "bootstrap", "apply", "reboot", "start", "verify"]


def test_a_unit_that_is_down_and_to_be_up_is_started(served: Workdir) -> None:
    assert served.run("spark2").returncode == 0
    assert "serve stop one" not in served.verbs()
    assert "serve start one" in served.verbs()


def test_a_unit_that_is_to_be_down_is_not_started(tmp_path: Path) -> None:
    workdir = made(tmp_path, "down")
    try:
        both_run(workdir)
        done = workdir.run("spark2", "--stop-units")
        assert done.returncode == 0, done.stderr
        assert "is stopped on all its nodes and stays down, as rack.yaml has no state: up" in done.stdout
        assert "serve stop one" in workdir.verbs()
        assert "serve start one" not in workdir.verbs()
        assert "start" not in workdir.entered()
    finally:
        workdir.close()


def test_a_unit_that_cannot_be_stopped_ends_the_rebuild(served: Workdir) -> None:
    both_run(served)
    served.does("serve", exit=1)
    done = served.run("spark2", "--stop-units")
    assert done.returncode == 1
    assert served.verbs() == ["serve stop one"]
    assert "[2/6] bootstrap: failed" in done.stdout
    assert "sparkrack serve stop one ended with 1" in done.stdout


def test_a_unit_that_is_not_proven_fails_and_the_rebuild_is_resumed_there(served: Workdir) -> None:
    served.does("serve", exit=1)
    done = served.run("spark2")
    assert done.returncode == 1
    assert "[5/6] start: failed" in done.stdout
    assert "verify" not in served.verbs()
    assert "--stop-units" in done.stderr.splitlines()[-1]
    before = len(served.calls)
    served.does("serve")
    assert served.run("spark2").returncode == 0
    assert served.verbs(before) == ["serve start one", "verify", "verify"]


def test_a_unit_that_apply_has_started_is_stopped_for_a_restart(served: Workdir) -> None:
    """It needs no confirmation: it was down when the rebuild began."""
    served.status(spark1=False, spark2=True)
    both_run(served)
    groups = {node: (served.folder / "nodes" / node).read_text() for node in ("spark1", "spark2")}
    for node in groups:
        served.runs(node, 0)
    served.does("apply", nodes=groups)
    done = served.run("spark2")
    assert done.returncode == 0, done.stderr
    verbs = served.verbs()
    assert verbs.count("serve stop one") == 1
    assert verbs[verbs.index("serve stop one") :][:3] == ["serve stop one", "reboot", "serve start one"]


def test_a_unit_without_all_its_nodes_is_not_started(served: Workdir) -> None:
    done = served.run("--all", "--exclude", "spark1")
    assert "unit one: spark1 of it is excluded, so it is not started" in done.stdout
    assert "serve start one" not in served.verbs()


def test_a_unit_that_rack_yaml_does_not_declare_is_not_stopped(served: Workdir) -> None:
    both_run(served, "old")
    done = served.run("spark2", "--stop-units")
    assert done.returncode == 1
    assert "unit old, which " in done.stderr
    assert "serve_coordinator.py /etc/sparkrack/serve/old.json down` on its head first" in done.stderr
    assert served.calls == []


APART = ("--exclude", "spark1", "--exclude", "spark2")


@pytest.mark.parametrize("words", [("--switch", *APART), ("--all", "--exclude", "nodes")])
def test_a_unit_of_excluded_nodes_is_not_cut_off_unconfirmed(served: Workdir, words: tuple[str, ...]) -> None:
    """Excluded nodes keep the cables to the switch that is rebuilt."""
    both_run(served)
    done = served.run(*words)
    assert done.returncode == 1
    assert "unit one (spark1, spark2) runs on spark1, spark2; pass --stop-units" in done.stderr
    assert (served.calls, served.journals) == ([], [])


def test_with_one_it_is_stopped_and_left_down(served: Workdir) -> None:
    both_run(served)
    done = served.run("--switch", *APART, "--stop-units")
    assert done.returncode == 0, done.stderr
    assert served.verbs()[0] == "serve stop one"
    assert "unit one: spark1, spark2 of it is excluded, so it is not started" in done.stdout
    assert "serve start one" not in served.verbs()


@pytest.mark.parametrize("words", [("--switch", "--exclude", "spark1"), ("spark2", "--exclude", "spark1"), ("spark2",)])
def test_a_unit_that_only_another_node_shows_runs(served: Workdir, words: tuple[str, ...]) -> None:
    served.runs("spark1", 0, "one")
    done = served.run(*words)
    assert done.returncode == 1
    assert "unit one (spark1, spark2) runs on spark1; pass --stop-units" in done.stderr
    assert served.calls == []


@pytest.mark.parametrize("words", [("spark2",), ("spark2", "--exclude", "spark1"), ("--switch", "--exclude", "spark1")])
def test_what_else_runs_on_another_node_is_left(served: Workdir, words: tuple[str, ...]) -> None:
    """Containers, a unit that uses no link of the switch, and one that rack.yaml does not declare."""
    served.runs("spark1", 2, "alone", "old")
    done = served.run(*words, "--stop-units")
    assert done.returncode == 0, done.stderr
    assert not {"serve stop alone", "serve stop old"} & {*served.verbs()}


@pytest.mark.parametrize("words", [("spark2",), ("spark2", "--exclude", "spark1"), ("--switch", "--exclude", "spark1")])
@pytest.mark.parametrize("how", ["mad", "away", "foreign"])
def test_a_silent_node_is_not_needed_where_another_shows_no_rank(
    served: Workdir, words: tuple[str, ...], how: str
) -> None:
    served.marked("spark1", how)
    done = served.run(*words)
    assert done.returncode == 0, done.stderr


def test_a_unit_of_which_no_node_shows_anything_is_unknown(served: Workdir) -> None:
    for node in ("spark1", "spark2"):
        served.marked(node, "mad")
    done = served.run("--switch", *APART)
    assert done.returncode == 1
    assert (
        "whether unit one (spark1, spark2) runs is unknown: spark1: it prints sh: find: not found instead of control "
        "groups; spark2: it prints sh: find: not found instead of control groups; run again, or pass --containers "
        "spark1 --containers spark2" in done.stderr
    )
    assert served.calls == []
    assert served.run("--switch", *APART, "--containers", "nodes").returncode == 0


def test_a_node_whose_work_may_end_is_not_waited_for(served: Workdir) -> None:
    """--containers waives the answer of spark2, so that only spark1 is named."""
    for node in ("spark1", "spark2"):
        served.marked(node, "mad")
    done = served.run("spark2", "--containers", "spark2")
    assert done.returncode == 1
    assert "whether unit one (spark1, spark2) runs is unknown: spark1: it prints" in done.stderr
    assert "run again, or pass --containers spark1\n" in done.stderr
