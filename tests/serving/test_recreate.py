"""`serve recreate` with real coordinator, agents and scripts of the nodes: a bad image goes back, and so after kill -9.

`apply` is a stand-in: on one node after the other it writes the mark of a change, the environment of the container and
the unit file, restarts agent and coordinator and removes the mark, as the role does. The engine reads that environment,
so a bad one is an image that ends, or one that never becomes ready.
"""

from __future__ import annotations

import json
import re
import signal
import stat
import subprocess
import sys
from dataclasses import dataclass
from shlex import join

import pytest
from click.testing import CliRunner

from core.model import image_lock, model_lock
from serving.programs import FOLDER
from sparkrack.cli.main import sparkrack
from tests.serving.serving_rack import PATIENCE, ServingNode, ServingRack
from tests.serving.test_serve_verbs import VerbRack
from tests.unit.roles.serving_units import PINS, RECORDS

SSH = """\
#!/bin/sh
export NODE="$NODES/$3" PATH="$NODES/tools:$PATH"
sed -u "s#/etc/sparkrack/serve#$NODE/etc#g; s#/etc/systemd/system#$NODE/etc#g; s#{folder}#$NODES/programs#g
s#/var/lib/sparkrack/serve#$NODE/state#g; s#/run/sparkrack#$NODE/run#g" |
    exec ip netns exec "$PREFIX$(cat "$NODE/rank")" sh
"""
SYSTEMCTL = """\
#!/bin/sh
[ "$1" = restart ] || exit 0
kind=${2%.service}; kind=${kind##*-}
[ ! -e "$NODE/$kind.pid" ] || kill "$(cat "$NODE/$kind.pid")"
while kill -0 "$(cat "$NODE/$kind.pid")" 2> /dev/null && ! grep -q ") Z" "/proc/$(cat "$NODE/$kind.pid")/stat"; do
    sleep 0.05
done
setsid sh "$NODE/$kind.sh" >> "$NODE/log" 2>&1 < /dev/null &
echo $! > "$NODE/$kind.pid"
"""
APPLY = """\
import json, os, pathlib, signal, subprocess, sys, time
top, prefix, content, limit, at = pathlib.Path(sys.argv[1]), *sys.argv[2:6]
def passed(point):
    if point == at:
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(60)  # the kernel ends this process with its parent
for number, node in enumerate(("spark1", "spark2")):
    etc = top / node / "etc"
    (etc / "toy.pending").touch()
    (etc / "toy.env").write_text(content)
    passed(f"apply, files written on {node}")
    unit = json.loads((etc / "toy.json").read_text())
    unit["times"]["ready_limit"] = float(limit)
    (etc / "toy.json").write_text(json.dumps(unit))
    (etc / "toy.previous").unlink(missing_ok=True)
    for kind in ("agent", "coordinator")[:2 - number]:
        words = ["ip", "netns", "exec", f"{prefix}{number}", str(top / "tools/systemctl")]
        subprocess.run([*words, "restart", f"-{kind}.service"], check=True, env={**os.environ, "NODE": str(top / node)})
    (etc / "toy.pending").unlink()
    passed(f"apply, {node} is whole")
"""
RUN = """\
import os, signal, sys
from sparkrack.serving import recreation, unit_run
from sparkrack.cli.main import sparkrack
from sparkrack.engine import subcommands
from sparkrack.serving.previous_version import PreviousVersion
from sparkrack.serving.coordinator import UnitCoordinator
unit_run.POLL_SECONDS = 0.5
subcommands.CALL = tuple(sys.argv[1:9])
at, done = sys.argv[9], []
run, call, ask = PreviousVersion._run_on_node, subcommands.CommandRunner.call, UnitCoordinator._run_question
def passed(step):
    done.append(step)
    if f"{step}, {done.count(step)}" == at:
        os.kill(os.getpid(), signal.SIGKILL)
def killed_before_a_script(self, node, verb, *words):
    passed(f"before {verb} on {node}")
    return run(self, node, verb, *words)
def killed_around_apply(self, words, **options):
    passed("before apply")
    result = call(self, words, **options)
    passed("after apply")
    return result
def killed_around_a_desired_state(self, *words):
    if words[0] == "status":
        return ask(self, *words)
    passed(f"before {words[0]}")
    answer = ask(self, *words)
    passed(f"after {words[0]}")
    return answer
UnitCoordinator._run_question = killed_around_a_desired_state
PreviousVersion._run_on_node = killed_before_a_script
subcommands.CommandRunner.call = killed_around_apply
sparkrack(sys.argv[10:])
"""
GATE = """\
import pathlib, sys
sys.path.insert(0, sys.argv[1])
import serve_start_gate
try:
    serve_start_gate.check_whole(pathlib.Path(sys.argv[2]))
except serve_start_gate.GateError as refusal:
    sys.exit(print(refusal) or 1)
"""
GOOD, NEW, ENDS, NEVER = "# good\n", "# new\n", "# bad\nexit 1\n", "# never ready\nexec sleep 1000\n"


class RecreateRack(VerbRack):
    """The rack of the verbs, whose unit has files that `recreate` keeps and puts back."""

    def __init__(self, rack: ServingRack, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(rack, monkeypatch)
        (rack.folder / "bin/ssh").write_text(SSH.format(folder=FOLDER))
        image_lock.write(rack.folder / "rack.lock.json", PINS)
        model_lock.write(rack.folder / "rack.lock.json", RECORDS)
        (rack.folder / "tools").mkdir()
        for name, content in {"systemctl": SYSTEMCTL, "docker": "#!/bin/sh\nexit 0\n"}.items():
            (rack.folder / "tools" / name).write_text(content)
            (rack.folder / "tools" / name).chmod(stat.S_IRWXU)
        for node in rack.nodes:
            self._write_files(node)

    def _write_files(self, node: ServingNode) -> None:
        etc = node.folder / "etc"
        (etc / "toy.args").write_text(f"sha256:{'a' * 64}\n")
        (etc / "toy.env").write_text(GOOD)
        (etc / "gate.sh").write_text(
            f"exec {join([sys.executable, '-c', GATE, str(self.rack.programs), str(etc / 'toy.pending')])}\n"
        )
        # What a rank starts with, and in which generation of the unit.
        generation = f"tr -d ' ' < {self.rack.nodes[0].folder}/state/toy.json | grep -o '\"generation\":[0-9]*'"
        noted = f'echo "$({generation}) $(head -n 1 {etc}/toy.env)" >> {node.folder}/started'
        command = node.folder / "service/command"
        command.write_text(f'[ "${{1-}}" = inside ] || {noted}\n. {etc}/toy.env\n{command.read_text()}')
        kinds = {"agent": (node.agent, node.agent_program())}
        if node.coordinator:
            kinds["coordinator"] = (node.coordinator, node.program("serve_coordinator.py", "run"))
            (etc / "sparkrack-serve-toy-coordinator.service").touch()
        for kind, (process, words) in kinds.items():
            assert process
            (node.folder / f"{kind}.pid").write_text(f"{process.pid}\n")
            (node.folder / f"{kind}.sh").write_text(f"exec {sys.executable} {' '.join(words)}\n")

    def recreate(self, content: str, at: str = "") -> subprocess.Popen[str]:
        """Run `serve recreate` as a process of its own, with an `apply` that writes this environment.

        It is killed `at` a step, such as "before keep on spark2, 1": the first time that this comes.
        """
        limit = "3" if content == NEVER else "120"
        apply = (sys.executable, "-c", APPLY, str(self.rack.folder), f"{self.rack.prefix}n", content, limit, at)
        words = [sys.executable, "-c", RUN, *apply, at]
        words += ["serve", "recreate", "toy", "--rack", str(self.file)]
        return subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def unlock(self) -> None:
        """End the lock of a killed run, as the message of a refused one says."""
        refused = self.run("start")
        found = re.search(r"sparkrack unlock (\S+)", refused.output)
        assert refused.exit_code == 1, refused.output
        assert found, refused.output
        done = CliRunner().invoke(sparkrack, ["unlock", found[1], "--rack", str(self.file)])
        assert done.exit_code == 0, done.output

    def started(self) -> list[list[str]]:
        """With what each node has started its rank: the generation of the unit, and the first line of the file."""
        return [(node.folder / "started").read_text().splitlines() for node in self.rack.nodes]

    def left(self) -> dict[str, list[str]]:
        """The files that each node has in the folder of previous versions."""
        return {
            node.name: sorted(path.name for path in (node.folder / "state/previous").iterdir())
            for node in self.rack.nodes
        }

    def environments(self) -> list[str]:
        return [(node.folder / "etc/toy.env").read_text() for node in self.rack.nodes]

    def pending(self) -> list[bool]:
        return [(node.folder / "etc/toy.pending").exists() for node in self.rack.nodes]


def brought_up(rack: ServingRack, monkeypatch: pytest.MonkeyPatch) -> RecreateRack:
    rack.up(times={"probe_interval": 3600.0})
    verbs = RecreateRack(rack, monkeypatch)
    rack.start()
    return verbs


def back(verbs: RecreateRack, process: subprocess.Popen[str]) -> None:
    """The previous version serves again, proven by a completion, and the exit code and one line say so."""
    output, complaint = process.communicate(timeout=500)
    assert process.returncode == 1, output + complaint
    found = re.search(r"; its previous version, that of generation (\d+), serves again", complaint)
    assert found, output + complaint
    whole(verbs, GOOD)
    shown = verbs.run("status").stdout
    assert f"toy: serves its previous version, the files of generation {found[1]}: `serve recreate` went back" in shown


def forth(verbs: RecreateRack, process: subprocess.Popen[str]) -> None:
    """The new version serves, proven by a completion."""
    output, complaint = process.communicate(timeout=500)
    assert process.returncode == 0, output + complaint
    whole(verbs, NEW)
    assert "previous" not in verbs.run("status").stdout


def whole(verbs: RecreateRack, content: str) -> None:
    """The unit serves with these files on each node, and nothing is left of what was on the way."""
    record = verbs.rack.record()
    assert verbs.environments() == [content, content]
    assert verbs.pending() == [False, False]
    assert verbs.state()[:2] == ("ready", ["running", "running"])
    assert record["proven"] > record["started"]
    assert not (verbs.rack.nodes[0].folder / "run/run.lock").exists()
    kept = verbs.left()
    assert kept["spark1"] == kept["spark2"], kept
    assert len(kept["spark1"]) == 1, kept
    same_files(verbs)


def same_files(verbs: RecreateRack) -> None:
    """No rank was ever started with files that differ from those of the other node."""
    first, second = (dict(line.split(" ", 1) for line in lines) for lines in verbs.started())
    assert not {one for one in first.keys() & second.keys() if first[one] != second[one]}, (first, second)
    assert first.keys() & second.keys(), "what ranks start with is not noted"


REST = pytest.mark.soak(sampled=False)
"""Each of these starts the unit three to five times: in CPU time, a part with two of them would cost as much as a
virtual rack that starts."""


def test_a_bad_image_goes_back_by_itself(rack: ServingRack, monkeypatch: pytest.MonkeyPatch) -> None:
    verbs = brought_up(rack, monkeypatch)
    back(verbs, verbs.recreate(ENDS))


def test_an_image_that_never_becomes_ready_goes_back_by_itself(
    rack: ServingRack, monkeypatch: pytest.MonkeyPatch
) -> None:
    verbs = brought_up(rack, monkeypatch)
    back(verbs, verbs.recreate(NEVER))
    limits = [json.loads(node.unit_file.read_text())["times"]["ready_limit"] for node in rack.nodes]
    assert limits == [120.0, 120.0], "the unit file is not put back"


@dataclass(frozen=True)
class Kill:
    """A kill -9 of `recreate` at a step. `mixed`: nodes have different files then, so that the unit must not start."""

    at: str
    content: str = NEW
    mixed: bool = False

    def __str__(self) -> str:
        return self.at.replace(", ", "-").replace(" ", "-")


KILLS = (
    Kill("before keep on spark1, 1"),
    Kill("before keep on spark2, 1"),
    Kill("before forget on spark1, 1"),
    Kill("before forget on spark2, 1"),
    Kill("before down, 1"),
    Kill("after down, 1"),
    Kill("before begin on spark1, 1"),
    Kill("before begin on spark2, 1"),
    Kill("before apply, 1"),
    Kill("apply, files written on spark1", mixed=True),
    Kill("apply, spark1 is whole", mixed=True),
    Kill("apply, files written on spark2", mixed=True),
    Kill("after apply, 1"),
    Kill("before up, 1"),
    Kill("after up, 1"),
    Kill("before keep on spark1, 2"),
    Kill("before keep on spark2, 2"),
    Kill("before forget on spark1, 2"),
    Kill("before forget on spark2, 2"),
    Kill("before list on spark1, 1", ENDS),
    Kill("before list on spark2, 1", ENDS),
    Kill("before begin on spark1, 2", ENDS),
    Kill("before begin on spark2, 2", ENDS),
    Kill("before restore on spark1, 1", ENDS),
    Kill("before restore on spark2, 1", ENDS, mixed=True),
    Kill("before end on spark1, 1", ENDS),
    Kill("before end on spark2, 1", ENDS),
    Kill("before up, 2", ENDS),
    Kill("after up, 2", ENDS),
)
FIRST = ("apply, spark1 is whole", "before restore on spark2, 1")
"""One on the way forth and one on the way back; the others are in `make soak` alone."""


@pytest.mark.parametrize(
    "kill", [pytest.param(one, id=str(one), marks=() if one.at in FIRST else REST) for one in KILLS]
)
def test_a_killed_run_is_repeated(rack: ServingRack, monkeypatch: pytest.MonkeyPatch, kill: Kill) -> None:
    verbs = brought_up(rack, monkeypatch)
    killed(verbs, verbs.recreate(kill.content, kill.at))
    if kill.mixed:
        started = verbs.started()
        rack.wait(lambda: "does not answer" not in verbs.run("start").stderr, "its coordinator runs again")
        done = verbs.run("start")
        assert done.exit_code == 1, done.output
        assert ".pending is there: a change of its files was not finished" in done.stderr, done.output
        assert verbs.started() == started
    (back if kill.content == ENDS else forth)(verbs, verbs.recreate(kill.content))


def killed(verbs: RecreateRack, process: subprocess.Popen[str]) -> None:
    output, complaint = process.communicate(timeout=PATIENCE)
    assert process.returncode == -signal.SIGKILL, output + complaint
    verbs.unlock()


@REST
@pytest.mark.parametrize("content", [NEW, NEVER, ENDS], ids=["new", "never", "ends"])
def test_a_run_that_is_killed_while_it_waits_is_repeated(
    rack: ServingRack, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    """`ends`: during the wait for the previous version."""
    verbs = brought_up(rack, monkeypatch)
    process = verbs.recreate(content)
    generation = rack.record()["generation"] + (2 if content == ENDS else 1)
    rack.wait(lambda: (rack.record()["state"], rack.record()["generation"]) == ("starting", generation), "it starts")
    process.kill()
    killed(verbs, process)
    (forth if content == NEW else back)(verbs, verbs.recreate(content))


@REST
def test_a_run_that_is_killed_with_a_closed_gateway_is_repeated_and_opens_it(
    rack: ServingRack, monkeypatch: pytest.MonkeyPatch
) -> None:
    verbs = brought_up(rack, monkeypatch)
    verbs.with_gateway("exit 0")
    killed(verbs, verbs.recreate(NEW, "after down, 1"))
    assert [call.split()[0] for call in verbs.gateway_calls()] == ["close"]
    forth(verbs, verbs.recreate(NEW))
    assert [call.split()[0] for call in verbs.gateway_calls()] == ["close", "close", "open"]
