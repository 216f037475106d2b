"""A rack on which `serve tune` tries values of a variable: real coordinators, agents and engine stand-ins.

`apply` is a stand-in: it writes the variable of the rack file that it is given into the environment of the container,
as test_recreate.py describes. The measuring tool in the container is that of the lab's images (lab/engine).
"""

from __future__ import annotations

import os
import re
import stat
import subprocess
import sys

import pytest
from click.testing import CliRunner, Result

from core.model import load
from serving.options import served_units
from serving.programs import FOLDER
from sparkrack.cli.main import sparkrack
from sparkrack.serving.tune_ledger import TuneLedger, last_ledger
from tests.generated import REPOSITORY
from tests.serving.serving_rack import PATIENCE, ServingRack
from tests.serving.test_recreate import RecreateRack
from tests.unit.model.serving_racks import put, text, unit

KEY = "env.STANDIN_TUNED"
DECLARED, BETTER, WORSE = "0.5", "0.05", "1"
"""Seconds that the engine takes for each request."""
SSH = """\
#!/bin/sh
export NODE="$NODES/$3" PATH="$NODES/tools:$PATH"
if [ -e "$NODE/silent" ]; then
    touch "$NODE/refused"
    exit 255
fi
echo $$ >> "$NODE/connections"
sed -u "s#/etc/sparkrack/serve#$NODE/etc#g; s#/etc/systemd/system#$NODE/etc#g; s#{folder}#$NODES/programs#g
s#/var/lib/sparkrack/serve#$NODE/state#g; s#/run/sparkrack#$NODE/run#g; s#/tmp/sparkrack-bench#$NODE/bench#g
s#/proc/meminfo#$NODE/meminfo#g" |
    exec ip netns exec "$PREFIX$(cat "$NODE/rank")" sh
"""
DOCKER = """\
#!/bin/sh
case $1 in
inspect) echo "$(cat "$NODE/service/pid") sha256:{id}" ;;
exec)
    VLLM_API_KEY=$(cat "$NODE/etc/unit.key")
    export VLLM_API_KEY
    shift 2
    exec "$@" ;;
esac
""".replace("{id}", "ab" * 32)
TOOL = """\
import sys
sys.path.insert(0, {repository!r})
from lab.engine.measuring_tool import measure
sys.exit(measure(sys.argv[3:]))
"""
PYTHON = """\
#!/bin/sh
case $2 in "import importlib.metadata"*) echo 0.19.1 ;; *) exec {python} "$@" ;; esac
"""
APPLY = """\
import os, pathlib, signal, subprocess, sys, time
from core.model import load
from serving.options import served_units
top, prefix, words = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
environment = served_units(load(words[words.index("--rack") + 1]))["toy"].env
print("the plan: 2 hosts, 4 changes", flush=True)
if environment["STANDIN_TUNED"] == "unapplied":
    sys.exit("spark2: no space left on device")
if environment["STANDIN_TUNED"] == "silent" and not (top / "spark2/refused").exists():
    (top / "spark2/silent").touch()
    for shell in (top / "spark2/connections").read_text().split():
        listed = pathlib.Path("/proc", shell, "task", shell, "children")
        for process in listed.read_text().split() if listed.exists() else ():
            os.kill(int(process), signal.SIGKILL)
    for _ in range(600):
        if (top / "spark2/refused").exists():
            break
        time.sleep(0.1)
    (top / "spark2/silent").unlink()
    sys.exit("spark2: no answer")
for number, node in enumerate(("spark1", "spark2")):
    etc = top / node / "etc"
    (etc / "toy.pending").touch()
    lines = [f"export {name}={value}" for name, value in environment.items()]
    lines.append(f"export STANDIN_MEMINFO={top / node}/meminfo")
    (etc / "toy.env").write_text("".join(f"{line}\\n" for line in lines))
    (etc / "toy.previous").unlink(missing_ok=True)
    for kind in ("agent", "coordinator")[:2 - number]:
        call = ["ip", "netns", "exec", f"{prefix}{number}", str(top / "tools/systemctl"), "restart", f"-{kind}.service"]
        subprocess.run(call, check=True, env={**os.environ, "NODE": str(top / node)})
    (etc / "toy.pending").unlink()
"""
RUN = """\
import os, signal, sys
from core.model.yaml_editor import FileSnapshot
from sparkrack.cli.main import sparkrack
from sparkrack.engine import subcommands
from sparkrack.serving import unit_run, unit_tune
from sparkrack.serving.coordinator import UnitCoordinator
from sparkrack.serving.previous_version import PreviousVersion
from sparkrack.serving.tune_ledger import TuneLedger
unit_run.POLL_SECONDS = 0.5
subcommands.CALL = tuple(sys.argv[1:6])
at, done = sys.argv[6], []
def passed(step):
    done.append(step)
    if f"{step}, {done.count(step)}" == at.removeprefix("interrupted "):
        os.kill(os.getpid(), signal.SIGKILL if at[:1] != "i" else signal.SIGINT)
def around(owner, name, step):
    call = getattr(owner, name)
    def killed(self, *words, **options):
        called = step(self, *words)
        called and passed(f"before {called}")
        found = call(self, *words, **options)
        called and passed(f"after {called}")
        return found
    setattr(owner, name, killed)
around(UnitCoordinator, "_run_question", lambda self, *words: "" if words[0] == "status" else words[0])
around(PreviousVersion, "_run_on_node", lambda self, node, verb, *words: f"{verb} on {node}")
around(subcommands.CommandRunner, "call", lambda self, words: words[0])
around(FileSnapshot, "write", lambda self, changed: "rack.yaml")
around(TuneLedger, "write", lambda self, line: f"ledger {line.event}")
sparkrack(sys.argv[7:])
"""


JOURNALCTL = """\
#!/bin/sh
# A cursor is the number of a line of the kernel's log. Each line is shown with who wrote it.
log=$NODE/kernel.log
for word do case $word in --cursor=*|--after-cursor=*) number=${word#*=} ;; esac; done
case $* in
*--after-cursor=*)
    tail -n "+$((number + 1))" "$log" | sed -E '/^sparkrack-memory-guard: /!s/^/kernel: /; s/^/1.5 /' ;;
*) echo "__CURSOR=${number:-$(wc -l < "$log")}" ;;
esac
"""


class TuneRack(RecreateRack):
    """The rack of `recreate`, whose unit has a variable that decides how fast and how right its engine is."""

    def __init__(self, rack: ServingRack, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(rack, monkeypatch)
        (rack.folder / "bin/ssh").write_text(SSH.format(folder=FOLDER))
        programs = {
            "docker": DOCKER,
            "python3": PYTHON.format(python=sys.executable),
            "vllm": f'#!/bin/sh\nexec {sys.executable} "$NODE/../tool.py" "$@"\n',
            "journalctl": JOURNALCTL,
        }
        for name, content in programs.items():
            (rack.folder / "tools" / name).write_text(content)
            (rack.folder / "tools" / name).chmod(stat.S_IRWXU)
        (rack.folder / "tool.py").write_text(TOOL.format(repository=str(REPOSITORY)))
        for node in rack.nodes:
            node.kernel_log.write_text("Linux version 7.0.0\n")
            (node.folder / "meminfo").write_text(f"MemAvailable: {100 * 1024**2} kB\n")
        nodes, args = [node.name for node in rack.nodes], {"served-model-name": "toy"}
        declared = unit(nodes=nodes, api={"listen": "management"}, args=args)
        self.units = {"toy": {**declared, "env": {"STANDIN_TUNED": DECLARED}}}
        self.file = put(rack.folder, text(self.units, self.hosts))

    def tune(self, *words: str, at: str = "") -> subprocess.Popen[str]:
        """Run `serve tune` as a process of its own, killed `at` a step, such as `after up, 2`: the second time. With
        `interrupted ` before the step it gets Ctrl-C there.
        """
        return self._start_verb("tune", *words, "-y", at=at)

    def declare_again(self) -> subprocess.Popen[str]:
        """Run `serve recreate`."""
        return self._start_verb("recreate")

    def _start_verb(self, verb: str, *words: str, at: str = "") -> subprocess.Popen[str]:
        apply = (sys.executable, "-c", APPLY, str(self.rack.folder), f"{self.rack.prefix}n")
        call = [sys.executable, "-c", RUN, *apply, at, "serve", verb, "toy", *words, "--rack", str(self.file)]
        return subprocess.Popen(call, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=dict(os.environ))

    def dry(self, *words: str) -> Result:
        return CliRunner().invoke(sparkrack, ["serve", "tune", "toy", "--dry", *words, "--rack", str(self.file)])

    def ledger(self) -> TuneLedger:
        found = last_ledger(load(self.file).rack, "toy")
        assert found
        return found

    def verdicts(self) -> dict[str, tuple[str, str]]:
        """How each value was judged, and the cause of a failure, by the ledger."""
        return {str(one.value): (one.verdict, one.cause) for one in self.ledger().judged}

    def declared(self) -> str:
        """The value that rack.yaml has."""
        return served_units(load(self.file))["toy"].env["STANDIN_TUNED"]

    def whole_with(self, value: str) -> None:
        """The unit serves, proven, with this value on each node, which rack.yaml has; nothing else is left."""
        assert self.declared() == value
        for content in self.environments():
            assert re.findall("STANDIN_TUNED=(.*)", content) == [value]
        assert self.pending() == [False, False]
        assert not any((node.folder / "etc/toy.previous").exists() for node in self.rack.nodes)
        # A measurement that has just ended may still be the latest that the coordinator knows of.
        self.rack.wait(lambda: self.state()[:2] == ("ready", ["running", "running"]), "the unit is ready")
        record = self.rack.record()
        assert record["proven"] > record["started"]
        assert not (self.rack.nodes[0].folder / "run/run.lock").exists()
        kept = self.left()
        assert kept["spark1"] == kept["spark2"] == [f"toy.{record['generation']}.tar"], kept


def finished(process: subprocess.Popen[str], patience: float = 10 * PATIENCE) -> tuple[int, str]:
    """Return the exit code and all output of a process."""
    output, complaint = process.communicate(timeout=patience)
    return process.returncode, output + complaint
