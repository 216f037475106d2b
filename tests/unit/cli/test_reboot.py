"""`sparkrack reboot --rolling`, with nodes that are shells of this machine."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from sparkrack.cli import reboot
from sparkrack.cli.main import sparkrack
from sparkrack.proof.outcome import Outcome
from tests.unit.fleet.racks import SWITCH

# A node is a folder: its boot id, how many containers it has, and whether it comes back.
SSH = """\
#!/bin/sh
node="$NODES/$3"
[ ! -e "$node/off" ] || { echo "ssh: connect: No route to host" >&2; exit 255; }
sed -u "s#/run/sparkrack#$node/run/sparkrack#g" | PATH="$NODES/bin:$PATH" NODE="$node" sh
"""
CAT = """#!/bin/sh
case $1 in /proc/sys/kernel/random/boot_id) exec /bin/cat "$NODE/boot";; *) exec /bin/cat "$@";; esac
"""
FIND = """#!/bin/sh
/bin/cat "$NODE/containers"
"""
SYSTEMCTL = """#!/bin/sh
echo "$NODE" >> "$NODES/restarted"
[ ! -e "$NODE/stubborn" ] || { echo "Access denied" >&2; exit 1; }
[ ! -e "$NODE/dies" ] || touch "$NODE/off"
echo second > "$NODE/boot"
rm -rf "$NODE/run/sparkrack"
"""


class Rack:
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.unsound: set[str] = set()
        (folder / "rack.yaml").write_text(SWITCH)
        (folder / "bin").mkdir()
        for name, text in {"ssh": SSH, "bin/cat": CAT, "bin/find": FIND, "bin/systemctl": SYSTEMCTL}.items():
            (folder / name).write_text(text)
            (folder / name).chmod(stat.S_IRWXU)
        for name in ("spark1", "spark2"):
            (folder / name / "run").mkdir(parents=True)
            (folder / name / "boot").write_text("first\n")
            (folder / name / "containers").write_text("")
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
        monkeypatch.setenv("NODES", str(folder))
        monkeypatch.setattr(reboot, "PAUSE", 0.01)
        monkeypatch.setattr(reboot, "prove", self.prove)

    def prove(self, _rack: object, _files: object, names: list[str], _junit: None) -> list[Outcome]:
        (name,) = names
        assert (self.folder / name / "boot").read_text() == "second\n", "proven before it was back"
        assert self.lock.exists() == (name != "spark1"), "that of spark1 went with its restart"
        fine = name not in self.unsound
        return [Outcome(name, "memory", "test_swap", passed=fine, why="" if fine else f"{name}: swap is on")]

    def run(self, *words: str) -> Result:
        return CliRunner().invoke(sparkrack, ["reboot", "--rack", str(self.folder / "rack.yaml"), "--rolling", *words])

    @property
    def lock(self) -> Path:
        return self.folder / "spark1/run/sparkrack/run.lock"

    def restarted(self) -> list[str]:
        noted = self.folder / "restarted"
        return [Path(line).name for line in noted.read_text().splitlines()] if noted.exists() else []


@pytest.fixture
def rack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Rack:
    return Rack(tmp_path, monkeypatch)


def test_one_after_the_other(rack: Rack) -> None:
    done = rack.run()
    assert done.exit_code == 0, done.output
    assert rack.restarted() == ["spark1", "spark2"]
    lines = done.output.splitlines()
    assert lines.index("spark1: 1 checks passed") < lines.index("spark2: restarts")
    assert lines[-1] == "2 of 2 nodes restarted and proven"
    assert not rack.lock.exists()


def test_not_while_another_run_changes_the_rack(rack: Rack) -> None:
    rack.lock.parent.mkdir()
    rack.lock.write_text("{}")
    done = rack.run()
    assert done.exit_code == 1
    assert "changes the rack; when that run is gone: sparkrack unlock unknown" in done.output
    assert rack.restarted() == []
    assert rack.lock.exists()


def test_only_those_that_are_named(rack: Rack) -> None:
    assert rack.run("--limit", "spark2").exit_code == 0
    assert rack.restarted() == ["spark2"]
    done = rack.run("--limit", "crs812")
    assert done.exit_code == 1
    assert "--limit crs812: not a node" in done.output


def test_a_node_that_is_not_as_declared_ends_it(rack: Rack) -> None:
    rack.unsound = {"spark1"}
    done = rack.run()
    assert done.exit_code == 1
    assert "spark1: failed memory: spark1: swap is on" in done.output
    assert "spark1: is back, and is not as declared" in done.output
    assert "0 of 2 nodes restarted and proven; not touched: spark2" in done.output
    assert rack.restarted() == ["spark1"]


def test_a_node_that_does_not_come_back_ends_it(rack: Rack) -> None:
    (rack.folder / "spark1/dies").touch()
    done = rack.run("--timeout", "1")
    assert done.exit_code == 1
    assert "spark1: did not come back within 1 s" in done.output
    assert rack.restarted() == ["spark1"]


@pytest.mark.parametrize(
    ("name", "state", "said"),
    [
        ("spark1", "off", "spark1: the lock of the rack cannot be taken: ssh: connect: No route to host"),
        ("spark2", "off", "spark2: cannot be asked: ssh: connect: No route to host"),
        ("spark1", "stubborn", "spark1: does not restart: Access denied"),
    ],
)
def test_a_node_that_cannot_be_restarted_ends_it(rack: Rack, name: str, state: str, said: str) -> None:
    (rack.folder / name / state).touch()
    done = rack.run("--limit", name)
    assert done.exit_code == 1
    assert said in done.output
    assert "Traceback" not in done.output
    assert not rack.lock.exists()


def test_containers_are_not_ended_unasked(rack: Rack) -> None:
    (rack.folder / "spark1/containers").write_text("/sys/fs/cgroup/sparkrack.slice/docker-a.scope\n")
    done = rack.run()
    assert done.exit_code == 1
    assert "spark1: 1 containers run; stop them, or say --containers" in done.output
    assert rack.restarted() == []
    assert rack.run("--containers").exit_code == 0


def test_there_is_no_way_but_rolling(rack: Rack) -> None:
    done = CliRunner().invoke(sparkrack, ["reboot", "--rack", str(rack.folder / "rack.yaml")])
    assert done.exit_code == 1
    assert "--rolling" in done.output
