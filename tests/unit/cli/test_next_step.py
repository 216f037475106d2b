"""Each command ends with the command to run next, on stderr; readers and commands for programs do not."""

from __future__ import annotations

import ast
import shlex
from collections.abc import Iterator
from inspect import getsource, unwrap
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from core.model.errors import NO_SUDO
from core.util.event import Event, EventKind
from roles.access import sshd_config
from roles.docker.desired import flags_in_the_way
from sparkrack.cli.main import sparkrack
from sparkrack.cli.next_step import after_error, after_plan, begin, next_step, same_again
from sparkrack.engine.subcommands import WITHIN
from tests.unit.cli.runs import command
from tests.unit.drift.plans import machine, plan, unreachable
from tests.unit.model.racks import SWITCH, loaded

RACK = Path(__file__).parents[3] / "examples" / "rack.yaml"
WITHOUT = {
    "completion": "its output is sourced by a shell",
    "export ansible-inventory": "its output is read by another program",
    "export hosts": "its output is read by another program",
    "export ssh-config": "its output is read by another program",
    "serve export": "its output is read by another program",
    "serve import": "its output is pasted into rack.yaml",
    "serve render": "its output is read by another program",
    "serve logs": "it only prints; what follows is the owner's choice",
    "lab run": "the command that it runs has its own next step",
    "lab ssh": "the command that it runs has its own end",
    "serve bench": "it measures; what follows is the owner's choice",
    "serve check": "it computes; what follows is the owner's choice",
    "serve options": "it judges a line; what follows is the owner's choice",
    "support": "its last lines name the archive",
    "runs": "it only reads what earlier runs left",
}
"""Commands without a next step, with the reason."""


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command is not within another one."""
    monkeypatch.delenv(WITHIN)


def commands(group: click.Group, *before: str) -> Iterator[tuple[str, click.Command]]:
    for name in group.list_commands(click.Context(group)):
        command = group.get_command(click.Context(group), name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from commands(command, *before, name)
        if not isinstance(command, click.Group) or command.invoke_without_command:
            yield " ".join((*before, name)), command


ALL = dict(commands(sparkrack))


@pytest.mark.parametrize("name", ALL)
def test_each_command_has_one_or_a_reason(name: str) -> None:
    called = "next" in calls(name)
    assert called != (name in WITHOUT), f"{name}: {'has a step and a reason' if called else 'has neither'}"


def calls(name: str) -> set[str]:
    """`next` when the command's function prints a next step."""
    text = getsource(unwrap(ALL[name].callback))  # type: ignore[arg-type]
    names = {
        node.func.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Call) and hasattr(node.func, "id")
    }
    return (
        {"next"} if names & {"next_step", "print_next", "after_plan", "exit_with_next", "_print_next_step"} else set()
    )


def printed(capsys: pytest.CaptureFixture[str]) -> str:
    out, err = capsys.readouterr()
    assert out == ""
    return err


def test_it_can_be_pasted(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    rack = tmp_path / "my rack.yaml"
    next_step(["sparkrack", "apply"], rack=rack, limit=["spark1"], exclude=["spark2"], only=["memory"])
    words = shlex.split(printed(capsys).removeprefix("Next: "))
    assert words == [
        *("sparkrack", "apply", "--rack", str(rack)),
        *("--limit", "spark1", "--exclude", "spark2", "--only", "memory"),
    ]


def test_silent_or_within_another_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    next_step(["sparkrack", "plan"], silent=True)
    monkeypatch.setenv(WITHIN, "rebuild")
    next_step(["sparkrack", "plan"])
    assert printed(capsys) == ""


def test_after_an_error_the_same_again(capsys: pytest.CaptureFixture[str]) -> None:
    begin(["apply", "--limit", "spark 1"])
    same_again("when this is fixed")
    same_again("when this is fixed")
    assert printed(capsys) == "Next, when this is fixed: sparkrack apply --limit 'spark 1'\n"
    begin(["plan", "--json"])
    same_again("when this is fixed")
    assert printed(capsys) == ""


def test_after_the_error_of_a_plan_its_own_next_step(capsys: pytest.CaptureFixture[str]) -> None:
    """A plan that cannot be carried out ends with an error: the next step is the last line, and not above it."""
    begin(["apply"])
    after_error(lambda: next_step(["sparkrack", "apply"], "without the hosts that are not ready"))
    assert printed(capsys) == ""
    same_again("when this is fixed")
    same_again("when this is fixed")
    assert printed(capsys) == "Next, without the hosts that are not ready: sparkrack apply\n"


def test_a_node_whose_sudo_wants_a_password_is_bootstrapped(capsys: pytest.CaptureFixture[str]) -> None:
    sick = machine("spark2", ("preflight", Event(EventKind.UNKNOWN, detail=f"state of the node: {NO_SUDO}")))
    after_plan(plan(machine("spark1"), sick), ["sparkrack", "apply"])
    assert printed(capsys) == "Next, to fix sudo: sparkrack bootstrap nodes spark2\n"


def test_one_host_that_is_away_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    after_plan(plan(machine("spark1"), unreachable("spark2")), ["sparkrack", "apply"], limit=["spark1", "spark2"])
    assert printed(capsys) == (
        "Next, without the hosts that are not ready: sparkrack apply --limit spark1 --exclude spark2\n"
    )


FILES_OF_OTHERS = {
    "netplan": ("fabric", "40-cx7.yaml defines enp1s0f1np1; remove it there (sudoedit /etc/netplan/40-cx7.yaml)"),
    "sshd": (
        "access",
        sshd_config.dropin_blockers(loaded(SWITCH), "/etc/ssh/sshd_config:3:PasswordAuthentication yes")[0],
    ),
    "docker": ("docker", flags_in_the_way(["dockerd", "--log-driver=syslog"])[0]),
}


@pytest.mark.parametrize("case", FILES_OF_OTHERS)
def test_a_file_of_others_is_edited_first(capsys: pytest.CaptureFixture[str], case: str) -> None:
    role, message = FILES_OF_OTHERS[case]
    sick = machine("spark2", (role, Event(EventKind.REFUSED, detail=message)))
    after_plan(plan(machine("spark1"), sick), ["sparkrack", "apply"], only=[role])
    assert printed(capsys) == (
        f"Next, after the edits that are named above, on spark2: sparkrack plan --limit spark2 --only {role}\n"
    )


def test_where_no_host_is_ready_the_same_again(capsys: pytest.CaptureFixture[str]) -> None:
    after_plan(plan(unreachable("spark1")), ["sparkrack", "apply"])
    assert printed(capsys) == "Next, when the reasons above are fixed: sparkrack apply\n"


@pytest.mark.parametrize(("option", "expected"), [("--json", False), ("--quiet", False), (None, True)])
def test_check(option: str | None, expected: bool) -> None:
    done = CliRunner().invoke(sparkrack, ["check", "--rack", str(RACK), *([option] if option else [])])
    assert done.exit_code == 0
    assert ("Next: sparkrack bootstrap --rack" in done.stderr) is expected
    assert "Next" not in done.stdout


def test_a_folder_without_a_rack_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RACK", raising=False)
    done = CliRunner().invoke(sparkrack, ["check"])
    assert (done.exit_code, done.stderr.splitlines()[-1]) == (1, "Next: sparkrack init")


def test_what_is_known_against_a_declared_release_is_a_warning_with_its_line(tmp_path: Path) -> None:
    rack = tmp_path / "rack.yaml"
    text = RACK.read_text().replace('# release: "7.24.6"', 'release: "7.23.3"')
    rack.write_text(text)
    line = next(number for number, one in enumerate(text.splitlines(), 1) if '"7.23.3"' in one)
    done = CliRunner().invoke(sparkrack, ["check", "--rack", str(rack)])
    assert done.exit_code == 0
    place = f"warning: {rack}:{line}: switches.crs812.release: RouterOS 7.23.3: "
    assert f"{place}attackers take switches over by SSH without a password" in done.stderr
    assert "take 7.24.6 (long-term) or 7.25.2 (stable)" in done.stderr
    rack.write_text(text.replace('"7.23.3"', '"7.24.6"'))
    assert "RouterOS" not in CliRunner().invoke(sparkrack, ["check", "--rack", str(rack)]).stderr


def test_a_missing_secret_is_a_warning_with_its_line(tmp_path: Path) -> None:
    rack = tmp_path / "rack.yaml"
    text = (
        RACK.read_text().replace("# reader: ", "reader: ").replace("{env: CRS812_READER_PASSWORD}", "{file: no-reader}")
    )
    rack.write_text(text)
    line = next(number for number, one in enumerate(text.splitlines(), 1) if "no-reader" in one)
    done = CliRunner().invoke(sparkrack, ["check", "--rack", str(rack)])
    assert done.exit_code == 0
    assert f"warning: {rack}:{line}: switches.crs812.reader.password: file {tmp_path}/no-reader does not exist" in (
        done.stderr
    )


def test_a_missing_private_key_is_a_warning_with_its_line(tmp_path: Path) -> None:
    rack, key = tmp_path / "rack.yaml", tmp_path / "key"
    text = RACK.read_text().replace("~/.ssh/id_ed25519", str(key))
    rack.write_text(text)
    line = next(number for number, one in enumerate(text.splitlines(), 1) if str(key) in one)
    done = CliRunner().invoke(sparkrack, ["check", "--rack", str(rack)])
    assert done.exit_code == 0
    assert f"warning: {rack}:{line}: access.key: {key} is not there; make one: ssh-keygen -t ed25519 -f {key}\n" in (
        done.stderr
    )
    key.touch()
    assert "access.key" not in CliRunner().invoke(sparkrack, ["check", "--rack", str(rack)]).stderr


def test_a_rack_file_that_was_named_and_is_missing_is_the_one_to_write() -> None:
    done = CliRunner().invoke(sparkrack, ["check", "--rack", "no/such.yaml"])
    assert (done.exit_code, done.stderr.splitlines()[-1]) == (1, "Next: sparkrack init --out no/such.yaml")


def test_where_no_lab_is_the_next_step_makes_one(tmp_path: Path) -> None:
    done = command("sparkrack", "lab", "status", SPARKRACK_LAB=str(tmp_path / ".lab"))
    assert (done.code, done.stderr.splitlines()[-1]) == (1, "Next: sparkrack lab up")


IN_THE_WAY = {
    "a unit runs": (
        ("unit tiny runs, and docker must be restarted; run `sparkrack serve stop tiny` first",),
        "stop tiny",
    ),
    "its files change": (
        ("unit tiny is up (ready), and tiny.args would change; run `sparkrack serve recreate tiny`, or stop",),
        "recreate tiny",
    ),
    "on two nodes": (("run `sparkrack serve stop tiny` first", "run `sparkrack serve stop tiny` first"), "stop tiny"),
}


@pytest.mark.parametrize("case", IN_THE_WAY)
def test_a_unit_in_the_way_is_stopped_and_no_host_left_out(case: str, capsys: pytest.CaptureFixture[str]) -> None:
    texts, words = IN_THE_WAY[case]
    sick = [
        machine(f"spark{at}", ("docker", Event(EventKind.REFUSED, detail=text))) for at, text in enumerate(texts, 2)
    ]
    after_plan(plan(machine("spark1"), *sick), ["sparkrack", "apply"])
    assert printed(capsys) == f"Next, and then the same again: sparkrack serve {words}\n"


def test_a_host_with_another_reason_beside_a_unit_in_the_way_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    sick = machine("spark2", ("docker", Event(EventKind.REFUSED, detail="run `sparkrack serve stop tiny` first")))
    after_plan(plan(machine("spark1"), sick, unreachable("spark3")), ["sparkrack", "apply"])
    assert printed(capsys).startswith("Next, without the hosts that are not ready: sparkrack apply --exclude spark2")
