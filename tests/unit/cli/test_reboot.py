"""`sparkrack reboot`, with nodes that are shells of this machine."""

from __future__ import annotations

import json
import os
import signal
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from core.model import SecretRef
from core.ssh import node_shells
from core.ssh.own_node import own_node
from core.ssh.root_shell import RootShell
from core.util.progress import ProgressObserver
from core.verify.outcomes import Outcome
from sparkrack.cli.main import sparkrack
from sparkrack.engine.rack_lock import RackLock
from sparkrack.engine.ssh_locking import hold_lock
from sparkrack.maintenance import rolling_reboot
from sparkrack.rebuild import restart
from sparkrack.rebuild.workloads import CONTAINERS
from tests.unit.cli.cli_fixtures import settings
from tests.unit.cli.terminal import ERASED, on_terminal
from tests.unit.cli.test_unlock import OTHER, eventually
from tests.unit.model.racks import SWITCH, loaded

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
[ ! -e "$NODE/stubborn" ] || { echo "Access denied to $CANARY" >&2; exit 1; }
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
        monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))
        monkeypatch.setattr(restart, "POLL_SECONDS", 0.01)
        monkeypatch.setattr(restart, "run_checks", self.prove)

    def prove(
        self, _rack: object, _files: object, names: list[str], _junit: None, *, progress: ProgressObserver
    ) -> list[Outcome]:
        progress.phase("verify", names)
        (name,) = names
        assert (self.folder / name / "boot").read_text() == "second\n", "proven before it was back"
        assert self.lock.exists() == (name != "spark1"), "that of spark1 went with its restart"
        fine = name not in self.unsound
        return [Outcome(name, "memory", "test_swap", passed=fine, why="" if fine else f"{name}: swap is on")]

    def run(self, *words: str) -> Result:
        return CliRunner().invoke(sparkrack, ["reboot", "--rack", str(self.folder / "rack.yaml"), "-y", *words])

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
    assert "; if that run is dead: sparkrack unlock unknown" in done.output
    assert rack.restarted() == []
    assert rack.lock.exists()


def test_only_those_that_are_named(rack: Rack) -> None:
    assert rack.run("--limit", "spark2").exit_code == 0
    assert rack.restarted() == ["spark2"]
    done = rack.run("--limit", "crs812")
    assert done.exit_code == 1
    assert "--limit crs812: not a node" in done.output


def test_those_that_a_glob_matches(rack: Rack) -> None:
    assert rack.run("--limit", "*2").exit_code == 0
    assert rack.restarted() == ["spark2"]


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
    ("name", "state", "reported"),
    [
        ("spark1", "off", "spark1: the lock of the rack cannot be taken: ssh: connect: No route to host"),
        ("spark2", "off", "spark2: cannot be asked: ssh: connect: No route to host"),
        ("spark1", "stubborn", "spark1: does not restart: Access denied"),
    ],
)
def test_a_node_that_cannot_be_restarted_ends_it(rack: Rack, name: str, state: str, reported: str) -> None:
    (rack.folder / name / state).touch()
    done = rack.run("--limit", name)
    assert done.exit_code == 1
    assert reported in done.output
    assert "Traceback" not in done.output
    assert not rack.lock.exists()


def test_containers_are_not_ended_unasked(rack: Rack) -> None:
    (rack.folder / "spark1/containers").write_text("/sys/fs/cgroup/sparkrack.slice/docker-a.scope\n")
    done = rack.run()
    assert done.exit_code == 1
    assert "spark1: 1 containers run; stop them, or pass --containers" in done.output
    assert rack.restarted() == []
    assert rack.run("--containers").exit_code == 0


@pytest.mark.parametrize(
    ("containers", "find", "reason"),
    [
        ("/sys/fs/cgroup/a/docker-a.scope\n/sys/fs/cgroup/a/docker-b.scope\n", FIND, "2 containers run; stop them"),
        ("nonsense\n", FIND, "whether containers run is unknown: it prints nonsense instead of control groups"),
        ("", "#!/bin/sh\nexit 3\n", "perhaps containers run; stop them, or pass --containers"),
    ],
)
def test_what_may_run_on_a_node_is_reported(rack: Rack, containers: str, find: str, reason: str) -> None:
    (rack.folder / "spark1/containers").write_text(containers)
    (rack.folder / "bin/find").write_text(find)
    done = rack.run("--limit", "spark1")
    assert done.exit_code == 1
    assert f"spark1: {reason}" in done.output
    assert rack.restarted() == []


def test_a_node_that_refuses_without_a_word_is_reported_by_its_exit_code(rack: Rack) -> None:
    (rack.folder / "bin/systemctl").write_text("#!/bin/sh\nexit 4\n")
    done = rack.run("--limit", "spark2")
    assert "spark2: does not restart: exit 4" in done.output


@pytest.mark.parametrize(
    ("outcomes", "said", "code"),
    [
        ([], "is back, and nothing could be proven", 1),
        ([("memory", "test_swap", False, True)], "is back, and nothing could be proven", 1),
        ([("serving", "test_each_rank_is_in_its_slice[node=spark2]", False, False)], "nothing could be proven", 1),
        ([("serving", "test_other", False, False)], "is back, and is not as declared", 1),
        ([("memory", "test_each_rank_is_in_its_slice", False, False)], "is back, and is not as declared", 1),
        (
            [("memory", "test_swap", True, False), ("serving", "test_each_rank_is_in_its_slice", False, False)],
            "1 checks passed",
            0,
        ),
        ([("memory", "test_swap", True, False), ("docker", "test_x", False, False)], "is not as declared", 1),
    ],
)
def test_a_node_is_proven_by_checks_that_apply_right_after_a_boot(
    rack: Rack,
    monkeypatch: pytest.MonkeyPatch,
    outcomes: list[tuple[str, str, bool, bool]],
    said: str,
    code: int,
) -> None:
    found = [
        Outcome("spark2", role, f"roles/{role}/verify.py::{check}", passed=passed, why="x", skipped=skipped)
        for role, check, passed, skipped in outcomes
    ]
    monkeypatch.setattr(restart, "run_checks", lambda *_, **__: found)
    done = rack.run("--limit", "spark2")
    assert done.exit_code == code
    assert said in done.output
    wrong = [one for one in found if not one.passed and not one.skipped and one.role != "serving"]
    assert done.output.count("spark2: failed ") == len(wrong) + (
        said == "is back, and is not as declared" and not wrong
    )


def test_without_a_terminal_it_restarts_nothing_unless_it_may(rack: Rack) -> None:
    done = CliRunner().invoke(sparkrack, ["reboot", "--rack", str(rack.folder / "rack.yaml")])
    assert done.exit_code == 1
    assert "there is no terminal for a prompt; -y restarts them without a question" in done.output
    assert not rack.restarted()


def test_a_node_is_not_restarted_once_the_lock_is_lost(rack: Rack, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the head node, whose restart ends the lock: up to that it must be ours."""
    held: list[RackLock] = []

    @contextmanager
    def hold(*words: object) -> Iterator[RackLock]:
        with hold_lock(*words) as lock:  # type: ignore[arg-type]
            held.append(lock)
            yield lock

    def lose(_shell: object) -> None:
        rack.lock.write_text(OTHER.text)
        assert eventually(lambda: bool(held[0].lost()))

    class Shell(RootShell):
        def run(self, script: str) -> object:  # type: ignore[override]
            answer = super().run(script)
            if script == CONTAINERS:
                lose(self)
            return answer

    monkeypatch.setattr(RackLock.renewing, "__defaults__", (0.01,))
    monkeypatch.setattr(rolling_reboot, "hold_lock", hold)
    monkeypatch.setattr(node_shells, "RootShell", Shell)
    done = rack.run()
    assert done.exit_code == 1
    assert f"spark1: the lock is now that of {OTHER}; " in done.output
    assert "nothing more is changed" in done.output
    assert rack.restarted() == []
    assert rack.lock.read_text() == OTHER.text


def test_journal_and_log_are_kept_without_secrets(rack: Rack, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANARY", "canary-of-the-node")
    SecretRef(env="CANARY").resolve()
    (rack.folder / "spark2/stubborn").touch()
    assert rack.run().exit_code == 1
    (path,) = (rack.folder / "state").rglob("*.ndjson")
    listed = CliRunner().invoke(sparkrack, ["runs", "--rack", str(rack.folder / "rack.yaml"), "--json"])
    (one,) = json.loads(listed.stdout)["runs"]
    assert (one["run"], one["result"], one["scope"]) == (path.stem, "failed", "restart of spark1, spark2")
    detail = CliRunner().invoke(sparkrack, ["runs", "--rack", str(rack.folder / "rack.yaml"), path.stem]).stdout
    assert "spark2: reboot: Restart the node: did not end\n  error: does not restart: Access denied" in detail
    log = path.with_suffix(".log")
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    text = log.read_text()
    assert "spark1: ssh: systemctl reboot: exit 0" in text
    assert "printed: spark1: restarts" in text
    assert "Access denied to ***" in text
    assert "canary-of-the-node" not in text + path.read_text()


def test_without_a_journal_nothing_is_restarted(rack: Rack) -> None:
    (rack.folder / "state").touch()
    done = rack.run()
    assert done.exit_code == 1
    assert "no journal can be kept: Not a directory; nothing was changed" in done.output
    assert rack.restarted() == []


def test_a_terminal_shows_the_node_that_is_away(rack: Rack) -> None:
    """As a process of its own, on a terminal; the node never comes back."""
    (rack.folder / "spark2/dies").touch()
    words = ["reboot", "--rack", str(rack.folder / "rack.yaml"), "-y", "--limit", "spark2"]
    with on_terminal(words, settings(rack.folder)) as screen:
        screen.until(r"restart node 1 of 1, \d+ s: 0 of 1 hosts done")
        screen.until("spark2  wait until it answers again, at most 1800 s")
        screen.until_later("restart node 1 of 1")
        screen.process.send_signal(signal.SIGINT)
        assert screen.finish() == 1
    assert screen.shown.rindex(ERASED) > screen.shown.rindex("wait until it answers")
    assert "restart node" not in screen.out


def this_machine(rack: Rack, name: str) -> None:
    """Have a node show the boot ID of this machine; the machine ID is that of this machine already."""
    (rack.folder / name / "boot").write_text(Path("/proc/sys/kernel/random/boot_id").read_text())


def test_the_node_that_is_this_machine_restarts_last_without_the_lock_and_ends_the_command(
    rack: Rack, monkeypatch: pytest.MonkeyPatch
) -> None:
    this_machine(rack, "spark1")
    noted: list[tuple[float, bool]] = []
    monkeypatch.setattr(
        "sparkrack.rebuild.restart.time.sleep", lambda seconds: noted.append((seconds, rack.lock.exists()))
    )
    done = rack.run()
    assert done.exit_code == 1, "it has not ended"
    assert rack.restarted() == ["spark2", "spark1"]
    assert noted[-1] == (restart.OWN_SECONDS, False)
    lines = done.output.splitlines()
    said = next(at for at, line in enumerate(lines) if line.startswith("spark1 is this machine: it is the last"))
    assert said < lines.index("spark2: restarts") < lines.index("spark1: restarts")
    assert "spark1: this machine has not gone down within 600 s" in done.output
    assert not rack.lock.exists()


def test_this_machine_is_not_restarted_under_its_containers(rack: Rack) -> None:
    this_machine(rack, "spark1")
    (rack.folder / "spark1/containers").write_text("/sys/fs/cgroup/system.slice/docker-1.scope\n")
    done = rack.run()
    assert (done.exit_code, rack.restarted()) == (1, ["spark2"])
    assert "1 of 2 nodes restarted and proven; not touched: none" in done.output


@pytest.mark.parametrize("same", ["boot", "machine-id"])
def test_one_of_the_two_ids_alone_is_not_this_machine(rack: Rack, same: str) -> None:
    """A clone has the same machine ID, a container the same boot ID."""
    if same == "boot":
        this_machine(rack, "spark1")
        cat = rack.folder / "bin/cat"
        cat.write_text(cat.read_text().replace("*)", "/etc/machine-id) echo other;; *)"))
    with node_shells.open_shells(loaded(SWITCH), ["spark1", "spark2"], 60) as shells:
        assert own_node(shells) is None
