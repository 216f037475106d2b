"""Units that run on a node: by the control groups of its kernel, with a real shell, and in a sentence."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from serving.running_engines import (
    MARKS,
    PROBE,
    link_unit_blockers,
    parse_running_units,
    unit_blockers,
    unit_of_cgroup,
)
from tests.unit.model.serving_racks import loaded, machines, text, unit

PAIR = loaded(text({"qwen": unit()}, machines(3)))


def groups(
    folder: Path, paths: dict[str, int | None], wanted: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    """Ask a node with these control groups, each with whether it has processes; None: that cannot be read. `wanted`:
    the units whose agent has the mark.
    """
    for name in wanted:
        (folder / "run" / name).mkdir(parents=True)
        (folder / "run" / name / "wanted").touch()
    for path, populated in paths.items():
        (folder / path).mkdir(parents=True)
        if populated is not None:
            (folder / path / "cgroup.events").write_text(f"populated {populated}\nfrozen 0\n")
    script = PROBE.replace("/sys/fs/cgroup", str(folder)).replace(f"in {MARKS}/", f"in {folder}/run/")
    return subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("paths", "running"),
    [
        ({}, ()),
        ({"sparkrack.slice/sparkrack-qwen.slice": 1}, ("qwen",)),
        ({"sparkrack.slice/sparkrack-qwen.slice": 0}, ()),
        ({"system.slice/sparkrack-serve-qwen.service": 1}, ("qwen",)),
        (
            {"sparkrack.slice/sparkrack-qwen.slice": 1, "system.slice/sparkrack-serve-qwen.service": 1},
            ("qwen",),
        ),
        (
            {
                "system.slice/sparkrack-serve-qwen-agent.service": 1,
                "system.slice/sparkrack-serve-qwen-coordinator.service": 1,
            },
            (),
        ),
        ({"sparkrack.slice/docker-aa.scope": 1, "system.slice/sparkrack-memory-guard.service": 1}, ()),
    ],
)
def test_a_unit_runs_when_its_rank_or_its_container_has_processes(
    tmp_path: Path, paths: dict[str, int | None], running: tuple[str, ...]
) -> None:
    done = groups(tmp_path, paths)
    assert (done.returncode, done.stderr) == (0, "")
    assert parse_running_units(done.stdout) == running


def test_a_unit_whose_gates_run_counts_as_running(tmp_path: Path) -> None:
    """Neither its rank nor its container has a process then, on any node."""
    agents = ("system.slice/sparkrack-serve-qwen-agent.service", "system.slice/sparkrack-serve-other-agent.service")
    done = groups(tmp_path, dict.fromkeys(agents, 1), wanted=("qwen",))
    assert done.returncode == 0
    assert parse_running_units(done.stdout.replace(f"{tmp_path}/run", MARKS)) == ("qwen",)


def test_a_control_group_that_cannot_be_read_is_no_answer(tmp_path: Path) -> None:
    assert groups(tmp_path, {"sparkrack.slice/sparkrack-qwen.slice": None}).returncode == 9


def test_other_output_is_unknown() -> None:
    with pytest.raises(ValueError, match="running-units: unexpected probe output"):
        parse_running_units("sparkrack-qwen.slice\n")


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/sys/fs/cgroup/sparkrack.slice/sparkrack-a_b2.slice/docker-aa.scope", "a_b2"),
        ("/sys/fs/cgroup/sparkrack.slice/docker-aa.scope", None),
        ("/sys/fs/cgroup/other.slice/sparkrack-a.slice", None),
        ("/sys/fs/cgroup/system.slice/sparkrack-serve-a.service", "a"),
        ("/sys/fs/cgroup/system.slice/sparkrack-serve-a-coordinator.service", None),
        ("/run/sparkrack-serve/a/wanted", "a"),
        ("/run/sparkrack-serve/a/other", None),
    ],
)
def test_the_unit_of_a_control_group(path: str, name: str | None) -> None:
    assert unit_of_cgroup(path) == name


def test_a_blocker_names_the_unit_its_nodes_and_the_command() -> None:
    assert unit_blockers(PAIR, ["qwen"], "docker must be restarted") == [
        "unit qwen (n0, n1) runs, and docker must be restarted; run `sparkrack serve stop qwen` first"
    ]
    (line,) = unit_blockers(PAIR, ["old"], "docker must be restarted")
    assert line.endswith(
        "rack.yaml does not declare, runs, and docker must be restarted; run "
        "`/usr/local/lib/sparkrack/serve/serve_coordinator.py /etc/sparkrack/serve/old.json down` on its head first"
    )


def test_a_unit_of_one_node_does_not_use_the_fabric() -> None:
    alone = loaded(text({"one": unit(nodes=["n0"], parallel={"tensor": 1})}, machines(3)))
    assert link_unit_blockers(alone, ["one"], "links change") == []
    assert len(link_unit_blockers(alone, ["unknown"], "links change")) == 1
    assert len(link_unit_blockers(PAIR, ["qwen"], "links change")) == 1
