"""The units that look regularly, as systemd itself reads them."""

from __future__ import annotations

import getpass
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sparkrack.cli.main import sparkrack
from sparkrack.drift.systemd_timer import SystemdTimer, UnitError, units
from tests.unit.drift import plans
from tests.unit.model.racks import SWITCH

ANALYZE = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not here")
TIMER = replace(plans.TIMER, program=Path("/bin/true"))  # systemd looks whether it is there
ODD = Path('/srv/a "b" c%h $d\\e')


def analyze(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["systemd-analyze", *words], capture_output=True, text=True, timeout=120, check=False)


def put(folder: Path, timer: SystemdTimer) -> list[Path]:
    for name, text in units(timer).items():
        (folder / name).write_text(text)
    return sorted(folder.iterdir())


@ANALYZE
@pytest.mark.parametrize("odd", [False, True])
def test_systemd_takes_them(tmp_path: Path, odd: bool) -> None:
    timer = TIMER
    if odd:
        timer = replace(TIMER, file=ODD / "rack.yaml", state=ODD / "state", prom=ODD / "x.prom")
    done = analyze("verify", "--man=no", *put(tmp_path, timer))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@ANALYZE
@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("service", "ProtectSystem=strict", "ProtectSystem=very"),
        ("service", "[Service]", "[Servic]"),
        ("timer", "OnBootSec=5min", "OnBootSec=soon"),
    ],
)
def test_systemd_would_say_what_is_wrong(tmp_path: Path, name: str, old: str, new: str) -> None:
    files = put(tmp_path, TIMER)
    (file,) = [file for file in files if file.suffix == f".{name}"]
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    done = analyze("verify", "--man=no", *files)
    assert done.returncode or done.stderr


@ANALYZE
def test_it_is_shut_in(tmp_path: Path) -> None:
    done = analyze("security", "--offline=true", "--threshold=25", put(tmp_path, TIMER)[0])
    assert done.returncode == 0, done.stdout[-300:]
    weak = tmp_path / "weak.service"
    weak.write_text("[Service]\nExecStart=/bin/true\nUser=nobody\n")
    assert analyze("security", "--offline=true", "--threshold=25", weak).returncode, "it would take anything"


def test_paths_are_quoted() -> None:
    service = units(replace(TIMER, program=ODD, file=ODD, state=ODD))["sparkrack-drift-lab.service"]
    assert 'ExecStart="/srv/a \\"b\\" c%%h $$d\\\\e" drift --quiet --prom' in service
    assert 'Environment="RACK=/srv/a \\"b\\" c%%h $d\\\\e" "XDG_STATE_HOME=/srv/a' in service
    assert 'ReadWritePaths="-/srv/a \\"b\\" c%%h $d\\\\e/sparkrack" "-/var/lib/prometheus/node-exporter"' in service


@pytest.mark.parametrize("field", ["program", "file", "state", "prom"])
def test_what_no_unit_can_hold(field: str) -> None:
    with pytest.raises(UnitError) as error:
        units(SystemdTimer(**{**vars(TIMER), field: Path("/a\nExecStartPre=/bin/evil")}))
    assert str(error.value).isprintable()


@pytest.mark.parametrize("user", ["", "a\\", "a\tb"])
def test_a_value_that_would_end_its_line_is_refused(user: str) -> None:
    with pytest.raises(UnitError) as error:
        units(replace(TIMER, user=user))
    assert str(error.value) == f"{user!r} cannot stand in a unit file"


def test_the_units_have_what_was_asked_for_and_no_more() -> None:
    service, timer = units(TIMER).values()
    assert list(units(TIMER)) == ["sparkrack-drift-lab.service", "sparkrack-drift-lab.timer"]
    assert 'ExecStart="/bin/true" drift --quiet --prom "/var/lib/prometheus/node-exporter/sparkrack.prom"\n' in service
    assert "EnvironmentFile=-/etc/sparkrack/drift.env\n" in service
    assert "User=ops\n" in service
    assert "OnUnitActiveSec=1h\n" in timer
    alone = units(replace(TIMER, prom=None, user="a%b"))["sparkrack-drift-lab.service"]
    assert 'ExecStart="/bin/true" drift --quiet\n' in alone
    assert 'ReadWritePaths="-/home/ops/.local/state/sparkrack"\n' in alone
    assert "User=a%%b\n" in alone


def test_drift_is_not_a_failure_and_an_error_is() -> None:
    lines = units(TIMER)["sparkrack-drift-lab.service"].splitlines()
    assert "SuccessExitStatus=2" in lines
    assert not [line for line in lines if line.startswith("ExecStart=-")]


def run(folder: Path, *words: str | Path) -> Result:
    rack = folder / "rack.yaml"
    rack.write_text(SWITCH)
    return CliRunner().invoke(sparkrack, ["drift", "timer", "--rack", str(rack), *map(str, words)])


@pytest.fixture
def user(monkeypatch: pytest.MonkeyPatch) -> str:
    """An ordinary user: tests may be run by root."""
    return "nobody" if os.getuid() == 0 else getpass.getuser()


def test_they_are_printed(tmp_path: Path, user: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ended = run(Path(), "--user", user, "--every", "30m", "--prom", "x.prom")
    assert ended.exit_code == 0, ended.output
    assert ended.output.count("# /etc/systemd/system/sparkrack-drift-") == 2
    assert f'"RACK={tmp_path}/rack.yaml"' in ended.output
    assert "OnUnitActiveSec=30m\n" in ended.output
    assert f'--prom "{Path.cwd()}/x.prom"' in ended.output
    assert f"User={user}\n" in ended.output


def test_they_are_written(tmp_path: Path, user: str) -> None:
    (tmp_path / "units").mkdir()
    ended = run(tmp_path, "--user", user, "--into", tmp_path / "units")
    assert ended.exit_code == 0, ended.output
    files = sorted((tmp_path / "units").iterdir())
    assert [file.suffix for file in files] == [".service", ".timer"]
    assert {file.stat().st_mode & 0o777 for file in files} == {0o644}
    assert all(str(file) in ended.output for file in files)


def test_the_history_is_that_of_the_user(tmp_path: Path, user: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/srv/state")
    ended = run(tmp_path, "--user", user)
    own = user == getpass.getuser()
    assert ('"XDG_STATE_HOME=/srv/state"' in ended.output) == own
    assert ('ReadWritePaths="-/srv/state/sparkrack"' in ended.output) == own
    assert ('/.local/state"' in ended.output) != own


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--every", "1s"], "1s is not a time span"),
        (["--every", "0m"], "once a minute is the most"),
        (["--prom", "metrics.txt"], "end in .prom"),
        (["--user", "root"], "name an ordinary user"),
        (["--user", "no-such-user"], "there is no such user"),
        (["--into", "no-such-folder"], "does not exist"),
    ],
)
def test_wrong_words(tmp_path: Path, user: str, words: list[str], line: str) -> None:
    ended = run(tmp_path, "--user", user, *words)
    assert ended.exit_code
    assert line in ended.output
    assert isinstance(ended.exception, SystemExit)
