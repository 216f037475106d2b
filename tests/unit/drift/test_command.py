"""`sparkrack drift` as it is called: what goes where, and the exit code."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from click.testing import CliRunner, Result

from core.model import Rack
from core.util.command_error import CommandError
from core.util.event import EventKind
from sparkrack.cli.main import sparkrack
from sparkrack.drift import history
from sparkrack.drift.findings import Drift, drift_of
from sparkrack.engine.plan import Plan
from sparkrack.engine.subcommands import WITHIN
from tests.unit.cli.runs import command
from tests.unit.drift.plans import EVIL, MADE, MIXED, machine, plan, unreachable
from tests.unit.model.racks import DIRECT, changed

IN_SYNC = plan(machine("spark1", ("docker", EventKind.UNMANAGED, "container old")), machine("spark2"))
DRIFTED = plan(machine("spark1", ("fabric", EventKind.CHANGE, "mtu 1500 -> 9000")), machine("spark2"))
Run = Callable[..., Result]


@dataclass(frozen=True)
class Seen:
    """What a session hands out, as far as this command looks."""

    plan: Plan


@dataclass(frozen=True)
class Named:
    """A rack without a watch."""

    rack: str = "lab"

    def declared(self, _section: object) -> None:
        return None


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
        def evaluated(rack: Rack, file: Path, selection: object, progress: object) -> Iterator[Seen]:
            if isinstance(whole, Exception):
                raise whole
            yield Seen(whole)

        def selected(*_: Sequence[str] | Path) -> tuple[Any, Any]:
            return Named(), None

        stub = ModuleType("sparkrack.engine.evaluated")
        stub.__dict__.update(evaluated=evaluated, selected=selected)
        monkeypatch.setitem(sys.modules, "sparkrack.engine.evaluated", stub)
        ended = CliRunner().invoke(sparkrack, ["drift", *map(str, words)], prog_name="sparkrack")
        assert ended.exception is None or isinstance(ended.exception, SystemExit), ended.exception
        return ended

    return invoke


@pytest.mark.parametrize(("whole", "code"), [(IN_SYNC, 0), (DRIFTED, 2), (MIXED, 1), (EVIL, 1)])
@pytest.mark.parametrize("words", [[], ["--json"], ["--markdown"], ["--quiet"], ["--prom", "x.prom"]])
def test_every_format_ends_alike(run: Run, tmp_path: Path, whole: Plan, code: int, words: list[str]) -> None:
    ended = run(whole, *(tmp_path / word if word == "x.prom" else word for word in words))
    assert ended.exit_code == code, ended.output
    assert ended.stderr == ""
    assert "\x1b" not in ended.stdout
    # JSON is for programs, and holds the messages.
    assert words == ["--json"] or all(sign.isprintable() or sign == "\n" for sign in ended.stdout)


def test_text(run: Run) -> None:
    lines = run(MIXED).stdout.splitlines()
    assert lines == [
        "Not as declared (actual -> declared)",
        "  spark1",
        "    access: /etc/hosts differs",
        "      @@ -1,2 +1,1 @@",
        "       ::1 localhost",
        "      -10.77.0.9 spark9",
        "    memory: vm.min_free_kbytes: 45155 -> 1572864",
        "  spark2",
        "    rdma: manual fix required: /etc/nccl.conf turns RDMA off",
        "  crs812",
        "    switch: ~ /system/identity: name MikroTik -> crs812",
        "Configured correctly but not working",
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
        "Unknown",
        "  spark3: unreachable: no route to host",
        "unknown: 4 declared, 1 broken, 1 outlier, 2 unmanaged; 1 of 4 machines unknown",
    ]


def test_quiet_says_only_what_is_wrong(run: Run) -> None:
    assert run(MIXED, "--quiet").stdout.splitlines() == [
        "spark1 access: /etc/hosts differs",
        "spark1 memory: vm.min_free_kbytes: 45155 -> 1572864",
        "spark2 rdma: manual fix required: /etc/nccl.conf turns RDMA off",
        "crs812 switch: ~ /system/identity: name MikroTik -> crs812",
        "spark1 fabric: enp1s0f1np1 has no carrier",
        "spark1 preflight: BIOS 5.36_0ACUM018, and 5.36_0ACUM023 on spark2",
        "spark3: unreachable: no route to host",
        "unknown: 4 declared, 1 broken, 1 outlier, 2 unmanaged; 1 of 4 machines unknown",
    ]
    assert (
        run(IN_SYNC, "--quiet").stdout
        == "in sync: 0 declared, 0 broken, 0 outlier, 1 unmanaged; 0 of 2 machines unknown\n"
    )


def test_json_is_the_model_and_nothing_else(run: Run) -> None:
    ended = run(MIXED, "--json")
    assert Drift.model_validate_json(ended.stdout) == drift_of(MIXED)
    reported = json.loads(ended.stdout)
    assert reported["schema"] == "sparkrack.drift/2"
    assert reported["since"] is None


def test_the_file_of_metrics_is_written_whole_and_readable_by_all(run: Run, tmp_path: Path, state: Path) -> None:
    prom = tmp_path / "sparkrack.prom"
    prom.write_text("an older one")
    ended = run(DRIFTED, "--json", "--prom", prom)
    assert ended.exit_code == 2
    labels = f'host="spark1",kind="declared",rack="lab",ran_on="{socket.gethostname()}",role="fabric"'
    assert f"sparkrack_drift{{{labels}}} 1.0" in prom.read_text()
    assert prom.stat().st_mode & 0o777 == 0o644
    assert json.loads(ended.stdout)
    assert len(list(state.iterdir())) == 1


def test_a_file_that_cannot_be_written_is_an_error_and_the_report_is_there(run: Run, tmp_path: Path) -> None:
    (tmp_path / "taken").touch()
    ended = run(IN_SYNC, "--prom", tmp_path / "taken/x.prom")
    assert ended.exit_code == 1
    assert ended.stderr.startswith(f"Error: {tmp_path}/taken/x.prom could not be kept: ")
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
    old = history.store_run(drift_of(plan(machine("spark1", ("rdma", EventKind.BROKEN, "dead")), machine("spark2"))))
    ended = run(plan(*DRIFTED.hosts, made=MADE + timedelta(days=1)), "--since", old.stem)
    assert ended.exit_code == 2
    assert ended.stdout.splitlines()[-4:-1] == [
        f"Since {old.stem}",
        "  appeared: spark1 fabric (declared): mtu 1500 -> 9000",
        "  resolved: spark1 rdma (broken): dead",
    ]
    assert json.loads(run(DRIFTED, "--since", old.stem, "--json").stdout)["since"]["run"] == old.stem


def test_since_is_asked_before_the_rack(run: Run) -> None:
    ended = run(AssertionError("the rack was asked"), "--since", "2d")
    assert ended.exit_code == 1
    assert ended.stderr.startswith("Error: --since 2d: no run of lab is kept yet")


def test_an_earlier_run_that_cannot_be_read(run: Run) -> None:
    old = history.store_run(drift_of(IN_SYNC))
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
    ended = run(CommandError("no"), "--json")
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
    assert len(found.unknown_hosts) == len(found.hosts) == 2
    assert all("refused" in machine.reason or "127.77.0." in machine.reason for machine in found.hosts)
    assert len(list((tmp_path / "sparkrack" / found.rack / "drift").iterdir())) == 1


@pytest.mark.parametrize(
    ("kind", "verb"), [(EventKind.BROKEN, "verify"), (EventKind.OUTLIER, "verify"), (EventKind.CHANGE, "plan")]
)
def test_the_next_step_is_a_plan_only_where_a_run_would_change_something(
    run: Run, monkeypatch: pytest.MonkeyPatch, kind: EventKind, verb: str
) -> None:
    monkeypatch.delenv(WITHIN, raising=False)
    ended = run(plan(machine("spark1", ("fabric", kind, "no link")), machine("spark2")))
    assert (ended.exit_code, ended.stderr.splitlines()[-1]) == (2, f"Next: sparkrack {verb}")
