"""A rebuild ends no work of others unless that is named on its command line, and refuses what it does not know."""

from __future__ import annotations

import pytest

from sparkrack.rebuild.model import Kind, Request
from tests.unit.rebuild.rebuild_folder import Workdir


def test_a_node_with_containers_is_not_touched(workdir: Workdir) -> None:
    workdir.runs("spark2", 2)
    done = workdir.run("spark2")
    assert done.returncode == 1
    assert "spark2: 2 containers run on it and it is rebuilt; stop them, or pass --containers spark2" in done.stderr
    assert "nothing was begun" in done.stderr
    assert (workdir.calls, workdir.journals) == ([], [])


def test_unless_it_is_named(workdir: Workdir) -> None:
    workdir.runs("spark2", 2)
    workdir.status(spark1=False, spark2=True)
    assert workdir.run("spark2", "--containers", "spark2").returncode == 0
    (reboot,) = [words for words in workdir.calls if words[0] == "reboot"]
    assert reboot[-1] == "--containers"


def test_the_name_of_another_node_does_not_count(workdir: Workdir) -> None:
    workdir.runs("spark1", 1)
    workdir.runs("spark2", 1)
    done = workdir.run("--all", "--containers", "spark2")
    assert done.returncode == 1
    assert "spark1: 1 container run" in done.stderr
    assert "spark2:" not in done.stderr


def test_containers_of_others_do_not_matter_to_a_node(workdir: Workdir) -> None:
    workdir.runs("spark1", 3)
    assert workdir.run("spark2").returncode == 0


def test_the_switch_is_not_touched_while_a_node_behind_it_works(workdir: Workdir) -> None:
    workdir.runs("spark1", 1)
    done = workdir.run("--switch")
    assert done.returncode == 1
    assert "spark1: 1 container run on it and it is cabled to the switch" in done.stderr
    assert workdir.calls == []


@pytest.mark.parametrize("words", [("spark1",), ("--switch",), ("--all",)])
def test_a_node_that_does_not_tell_is_not_touched(workdir: Workdir, words: tuple[str, ...]) -> None:
    workdir.marked("spark1", "mad")
    done = workdir.run(*words)
    assert done.returncode == 1
    assert "spark1: whether containers run on it is unknown: it prints sh: find: not found instead" in done.stderr
    assert workdir.calls == []


def test_a_factory_node_is_not_in_service_until_bootstrap_has_made_it_ours(workdir: Workdir) -> None:
    workdir.marked("spark2", "foreign")
    done = workdir.run("spark2")
    assert "spark2: is not in service: our key, or its host key, is not what this rack knows" in done.stdout
    assert done.returncode == 1, "it is still foreign after bootstrap, and apply would not know"
    assert workdir.verbs() == ["bootstrap nodes"]
    assert "[3/5] apply: failed" in done.stdout
    (workdir.folder / "nodes/spark2.foreign").unlink()
    assert workdir.run("spark2").returncode == 0


def test_containers_that_only_show_once_the_node_is_ours_stop_it_before_apply(workdir: Workdir) -> None:
    workdir.marked("spark2", "foreign")
    with workdir.blocked_in("bootstrap", "spark2") as started:
        (workdir.folder / "nodes/spark2.foreign").unlink()
        workdir.runs("spark2", 1)
        started.terminate()
        started.wait(60)
    done = workdir.run("spark2")
    assert done.returncode == 1
    assert "1 container run on it" in done.stderr
    assert "apply" not in workdir.verbs()


def test_a_switch_may_come_while_its_nodes_are_off(workdir: Workdir) -> None:
    workdir.marked("spark1", "away")
    workdir.marked("spark2", "away")
    done = workdir.run("--switch")
    assert done.returncode == 0, done.stdout
    assert "spark1: does not answer, so it is not in service (ssh: connect to host" in done.stdout


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((), "one of the three"),
        (("spark1", "--all"), "one of the three"),
        (("spark1", "--switch"), "one of the three"),
        (("spark9",), "spark9: not a node of the rack; there are spark1, spark2"),
        (("--switch", "crs813"), "crs813 is not a switch of the rack; it has crs812"),
        (("spark1", "--exclude", "spark1"), "spark1 is rebuilt and excluded at once"),
        (("nodes", "--exclude", "*2"), "spark2 is rebuilt and excluded at once"),
        (("--all", "--exclude", "nodes", "--exclude", "*"), "--exclude leaves no machine"),
        (("--all", "--containers", "switches"), "--containers switches: not a node"),
        (("--all", "--exclude", "spark9"), "--exclude spark9: not in the rack"),
        (("--all", "--containers", "crs812"), "--containers crs812: not a node"),
        (("--all", "--node-password-env", "A", "--node-password-file", "b"), "exclude one another"),
    ],
)
def test_what_cannot_be_meant(workdir: Workdir, words: tuple[str, ...], why: str) -> None:
    done = workdir.run(*words)
    assert done.returncode == 1
    assert why in done.stderr
    assert "Traceback" not in done.stderr
    assert workdir.calls == []


@pytest.mark.parametrize(
    ("kind", "apart", "title"),
    [("all", (), "the whole rack"), ("all", ("spark2",), "spark1, sw1"), ("nodes", (), "spark1, sw1")],
)
def test_only_a_request_for_all_machines_is_called_the_whole_rack(
    kind: Kind, apart: tuple[str, ...], title: str
) -> None:
    request = Request(kind=kind, rack="toy", file="rack.yaml", nodes=("spark1",), switches=("sw1",), apart=apart)
    assert request.title == title
