"""`sparkrack drift` as it is called: what goes where, and the exit code."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from sparkrack.cli.drift import drift
from sparkrack.fleet import Rack
from sparkrack.ops.account import Sort
from sparkrack.run import history
from sparkrack.run.drift import Drift, of
from sparkrack.run.plan import Plan
from tests.unit.cli.runs import command
from tests.unit.fleet.racks import DIRECT, changed

from .plans import EVIL, MADE, MIXED, machine, plan, unreachable

IN_SYNC = plan(machine("spark1", ("docker", Sort.UNMANAGED, "container old")), machine("spark2"))
DRIFTED = plan(machine("spark1", ("fabric", Sort.CHANGE, "mtu 1500 -> 9000")), machine("spark2"))
Run = Callable[..., Result]


@dataclass(frozen=True)
class Seen:
    """What a session hands out, as far as this command looks."""

    plan: Plan


@dataclass(frozen=True)
class Named:
    rack: str = "lab"


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    return tmp_path / "state/sparkrack/lab/drift"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Run:
    """Run the command on a plan, or a fault. The module that it is from replaces parts of the standard library as soon
    as it is imported, so all of it is another one here."""

    def invoke(whole: Plan | Exception, *words: str | Path) -> Result:
        @contextmanager
        def evaluated(rack: Rack, file: Path, selection: object) -> Iterator[Seen]:
            if isinstance(whole, Exception):
                raise whole
            yield Seen(whole)

        def selected(*_: Sequence[str] | Path) -> tuple[Any, Any]:
            return Named(), None

        stub = ModuleType("sparkrack.cli.session")
        stub.__dict__.update(evaluated=evaluated, selected=selected)
        monkeypatch.setitem(sys.modules, "sparkrack.cli.session", stub)
        ended = CliRunner().invoke(drift, [str(word) for word in words])
        assert ended.exception is None or isinstance(ended.exception, SystemExit), ended.exception
        return ended

    return invoke


@pytest.mark.parametrize(("whole", "code"), [(IN_SYNC, 0), (DRIFTED, 2), (MIXED, 1), (EVIL, 1)])
@pytest.mark.parametrize("words", [[], ["--json"], ["--markdown"], ["--quiet"], ["--junit", "x.xml"]])
def test_every_format_ends_alike(run: Run, tmp_path: Path, whole: Plan, code: int, words: list[str]) -> None:
    ended = run(whole, *(tmp_path / word if word == "x.xml" else word for word in words))
    assert ended.exit_code == code, ended.output
    assert ended.stderr == ""
    assert "\x1b" not in ended.stdout
    # JSON is for programs, and holds what was said.
    assert words == ["--json"] or all(sign.isprintable() or sign == "\n" for sign in ended.stdout)


def test_text(run: Run) -> None:
    lines = run(MIXED).stdout.splitlines()
    assert lines == [
        "Not as declared (seen -> declared)",
        "  spark1",
        "    access: /etc/hosts differs",
        "      @@ -1,2 +1,1 @@",
        "       ::1 localhost",
        "      -10.77.0.9 spark9",
        "    memory: vm.min_free_kbytes: 45155 -> 1572864",
        "  spark2",
        "    rdma: a person must mend this: /etc/nccl.conf turns RDMA off",
        "  crs812",
        "    switch: ~ /system/identity: name MikroTik -> crs812",
        "Configured as declared, and does not work",
        "  spark1",
        "    fabric: enp1s0f1np1 has no carrier",
        "Unlike the other nodes",
        "  spark1",
        "    preflight: BIOS 5.36_0ACUM018, and 5.36_0ACUM023 on spark2",
        "Not managed, and left alone (no drift)",
        "  spark1",
        "    docker: container old runs outside of sparkrack.slice",
        "  crs812",
        "    switch: /user admin",
        "Could not be told",
        "  spark3: unreachable: no route to host",
        "cannot be told: 4 declared, 1 runtime, 1 fleet, 2 unmanaged; 1 of 4 machines unknown",
    ]


def test_quiet_says_only_what_is_wrong(run: Run) -> None:
    assert run(MIXED, "--quiet").stdout.splitlines() == [
        "spark1 access: /etc/hosts differs",
        "spark1 memory: vm.min_free_kbytes: 45155 -> 1572864",
        "spark2 rdma: a person must mend this: /etc/nccl.conf turns RDMA off",
        "crs812 switch: ~ /system/identity: name MikroTik -> crs812",
        "spark1 fabric: enp1s0f1np1 has no carrier",
        "spark1 preflight: BIOS 5.36_0ACUM018, and 5.36_0ACUM023 on spark2",
        "spark3: unreachable: no route to host",
        "cannot be told: 4 declared, 1 runtime, 1 fleet, 2 unmanaged; 1 of 4 machines unknown",
    ]
    assert (
        run(IN_SYNC, "--quiet").stdout
        == "in sync: 0 declared, 0 runtime, 0 fleet, 1 unmanaged; 0 of 2 machines unknown\n"
    )


def test_json_is_the_model_and_nothing_else(run: Run) -> None:
    ended = run(MIXED, "--json")
    assert Drift.model_validate_json(ended.stdout) == of(MIXED)
    told = json.loads(ended.stdout)
    assert told["schema"] == "sparkrack.drift/1"
    assert told["since"] is None


def test_files_that_others_read(run: Run, tmp_path: Path, state: Path) -> None:
    xml, prom = tmp_path / "out/drift.xml", tmp_path / "sparkrack.prom"
    prom.write_text("an older one")
    ended = run(DRIFTED, "--json", "--junit", xml, "--prom", prom)
    assert ended.exit_code == 2
    assert "<failure " in xml.read_text()
    assert 'sparkrack_drift{kind="declared",machine="spark1",rack="lab",role="fabric"} 1.0' in prom.read_text()
    assert {path.stat().st_mode & 0o777 for path in (xml, prom)} == {0o644}
    assert json.loads(ended.stdout)
    assert len(list(state.iterdir())) == 1


def test_a_file_that_cannot_be_written_is_an_error_and_the_report_is_there(run: Run, tmp_path: Path) -> None:
    (tmp_path / "taken").touch()
    ended = run(IN_SYNC, "--junit", tmp_path / "taken/x.xml")
    assert ended.exit_code == 1
    assert ended.stderr.startswith(f"Error: {tmp_path}/taken/x.xml could not be kept: ")
    assert ended.stdout.endswith("0 of 2 machines unknown\n")


def test_a_history_that_cannot_be_kept(run: Run, tmp_path: Path) -> None:
    (tmp_path / "state").touch()
    ended = run(DRIFTED)
    assert ended.exit_code == 1
    assert ended.stderr.startswith("Error: this run could not be kept: ")
    assert run(DRIFTED, "--no-history").exit_code == 2


def test_no_history_leaves_nothing(run: Run, state: Path) -> None:
    assert run(DRIFTED, "--no-history").exit_code == 2
    assert not state.exists()


def test_since(run: Run) -> None:
    old = history.keep(of(plan(machine("spark1", ("rdma", Sort.FAULT, "dead")), machine("spark2"))))
    ended = run(plan(*DRIFTED.machines, made=MADE + timedelta(days=1)), "--since", old.stem)
    assert ended.exit_code == 2
    assert ended.stdout.splitlines()[-4:-1] == [
        f"Since {old.stem}",
        "  came: spark1 fabric (declared): mtu 1500 -> 9000",
        "  went: spark1 rdma (runtime): dead",
    ]
    assert json.loads(run(DRIFTED, "--since", old.stem, "--json").stdout)["since"]["run"] == old.stem


def test_since_is_asked_before_the_rack(run: Run) -> None:
    ended = run(AssertionError("the rack was asked"), "--since", "2d")
    assert ended.exit_code == 1
    assert ended.stderr.startswith("Error: --since 2d: no run of lab is kept yet")


def test_an_earlier_run_that_cannot_be_read(run: Run) -> None:
    old = history.keep(of(IN_SYNC))
    old.write_text("{")
    ended = run(DRIFTED, "--since", old.stem, "--json")
    assert ended.exit_code == 1
    assert f"{old}: skipped, cannot be read" in ended.stderr
    assert ended.stderr.endswith("Error: no earlier run can be read\n")


def test_nothing_to_look_at(run: Run, state: Path) -> None:
    ended = run(plan(machine("crs812", kind="switch"), roles={"preflight", "fabric"}))
    assert ended.exit_code == 1
    assert "leave no role of any machine" in ended.stderr
    assert not state.exists()
    assert run(plan(unreachable("crs812", kind="switch"), roles={"preflight"})).exit_code == 1


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--json", "--markdown"], "choose one"),
        (["--prom", "metrics.txt"], "end in .prom"),
        (["--json", "timer"], "stand behind it"),
        (["no-such"], "No such command"),
    ],
)
def test_wrong_words(run: Run, words: list[str], line: str) -> None:
    ended = run(AssertionError("the rack was asked"), *words)
    assert ended.exit_code
    assert line in ended.stderr


def test_what_pyinfra_cannot_go_on_with(run: Run, state: Path) -> None:
    ended = run(click.ClickException("no"), "--json")
    assert (ended.exit_code, ended.stdout, ended.stderr) == (1, "", "Error: no\n")
    assert not state.exists()


def test_nodes_that_do_not_answer_for_real(tmp_path: Path) -> None:
    """Nothing is another one here, from the command to the socket."""
    (tmp_path / "known_hosts").touch()
    port = ("known_hosts: known_hosts}", "known_hosts: known_hosts, port: 1}")
    (tmp_path / "rack.yaml").write_text(changed(DIRECT, port).replace("10.77.0.", "127.77.0."))
    call = "import sys; from sparkrack.cli.drift import drift; drift(sys.argv[1:])"
    ended = command("python", "-c", call, "--rack", tmp_path / "rack.yaml", "--json", XDG_STATE_HOME=str(tmp_path))
    assert ended.code == 1, ended.text
    found = Drift.model_validate_json(ended.stdout)
    assert len(found.untold) == len(found.machines) == 2
    assert all("refused" in machine.why or "127.77.0." in machine.why for machine in found.machines)
    assert len(list((tmp_path / "sparkrack" / found.rack / "drift").iterdir())) == 1
