"""What guards a unit costs: CPU seconds of coordinator, agents and gate, and requests to the engine.

    python -m tests.serving.guard_cost                     the stand-in for the engine: about 8 minutes (root)
    python -m tests.serving.guard_cost --engine vllm       vLLM itself on CPUs

Two nodes in network namespaces, with the times that a unit has by default, and RDMA counters to be read. Idle: only
the coordinator asks the engine. Busy: a client asks it five times a second. The table goes to standard output, for
docs/reference/serving.md.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from lab import namespace
from tests.serving.engines import STAND_IN, installed, real_vllm
from tests.serving.failure_run import clients, machine_load
from tests.serving.running_systemd import RunningSystemd, lacking
from tests.serving.serve_modules import serve_unit
from tests.serving.serving_rack import API_PORT, ServingRack
from tests.serving.test_gate import WANTED, GateNode

PERIODS = ("ask", "lease", "gate_limit", "ready_limit", "first_limit", "probe_interval", "probe_limit", "evidence")
HEADS = ("engine", "unit", "coordinator, CPU s", "an agent, CPU s", "completions", "looks at the metrics", "load")
ANSWERED = re.compile(r'"(?:GET|POST) (/\S*) HTTP/1\.1"')
"""A request in the log of the engine, that of vLLM or of the stand-in."""
GATES = 5
QUESTIONS = 30
"""An agent asks systemd every 2 s, so this often in a minute."""
GATE = """
import sys
folder, programs = sys.argv[1:]
sys.path.insert(0, programs)
import serve_start_gate, serve_gate_command
serve_gate_command.ENVIRONMENT["PATH"] = f"{folder}/bin:/usr/bin:/bin"
sys.exit(serve_start_gate.main(["--together", f"{folder}/gate.json", "--root", folder]))
"""


def cpu_seconds(pid: int) -> float:
    """Return what a process has used, with its children that have ended: an agent asks systemd by such ones."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def children_seconds() -> float:
    """Return what the children of this process that have ended have used."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def cost(rack: ServingRack, minutes: float, busy: bool) -> tuple[str, ...]:
    """Return the row of a unit that is ready, each figure for a minute."""
    coordinator = rack.nodes[0].coordinator
    agents = [node.agent for node in rack.nodes]
    assert coordinator
    pids = [coordinator.pid, *(agent.pid for agent in agents if agent)]
    log = rack.nodes[0].folder / "service/log"
    with clients(rack, busy):
        size, before, begun = log.stat().st_size, [cpu_seconds(pid) for pid in pids], time.monotonic()
        time.sleep(minutes * 60)
        took = (time.monotonic() - begun) / 60
        used = [(cpu_seconds(pid) - earlier) / took for pid, earlier in zip(pids, before, strict=True)]
        paths = ANSWERED.findall(log.read_bytes()[size:].decode(errors="replace"))
    assert rack.record()["generation"] == 1, "the unit was started again meanwhile"
    counts = [paths.count(path) / took for path in ("/v1/completions", "/metrics")]
    agent = sum(used[1:]) / len(used[1:])
    figures = (f"{used[0]:.2f}", f"{agent:.2f}", *(f"{count:.1f}" for count in counts), f"{machine_load():g}")
    return rack.engine.name, "busy" if busy else "idle", *figures


def gate_seconds(rack: ServingRack, folder: Path) -> float:
    """Return the CPU seconds of the gate of one node at a start that measures no RDMA. Docker and the other commands of
    a node are shell scripts.
    """
    node = GateNode(folder)
    node.file("gate.json", json.dumps(WANTED | {"proof": None}))
    begun = children_seconds()
    for _ in range(GATES):
        done = subprocess.run(
            [sys.executable, "-c", GATE, str(folder), str(rack.programs)], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
    return (children_seconds() - begun) / GATES


def systemd_seconds(folder: Path) -> float:
    """Return the CPU seconds for which an agent keeps systemd itself and its client busy in a minute."""
    systemd = RunningSystemd(folder, f"gc{os.getpid()}")
    namespace.create(systemd.namespace)
    try:
        server = f"{sys.executable} -m http.server {API_PORT}"
        systemd.write("rank.service", f"[Unit]\n\n[Service]\nExecStart={server}\n")
        systemd.start("rank.service")
        systemd.wait_for({API_PORT})
        words = ("systemctl", "show", "--property=ActiveState,Result,ExecMainStatus,InvocationID,MainPID", "rank")
        manager = systemd.group / "init.scope/cpu.stat"
        own = [children_seconds(), _cpu_seconds(manager)]
        for _ in range(QUESTIONS):
            assert "ActiveState=active" in systemd.run(*words).stdout
        return children_seconds() - own[0] + _cpu_seconds(manager) - own[1]
    finally:
        systemd.end()
        namespace.delete(systemd.namespace)


def _cpu_seconds(file: Path) -> float:
    return int(file.read_text().split()[1]) / 1e6


def main(words: Sequence[str]) -> int:
    """Run the program. Returns its exit code."""
    parser = argparse.ArgumentParser(prog="guard_cost", description="Measure what guards a served unit costs.")
    parser.add_argument("--engine", choices=[STAND_IN.name, "vllm"], default=STAND_IN.name)
    parser.add_argument("--minutes", type=float, default=3.0, help="of each row; default: %(default)s")
    given = parser.parse_args(words)
    if os.geteuid():
        parser.error("needs root, for network namespaces")
    engine = STAND_IN
    if given.engine == "vllm":
        packages = installed()
        if packages is None:
            parser.error("vLLM is not installed: .venv/bin/python scripts/conformance_engine.py fetch")
        engine = real_vllm(packages)
    rows = [HEADS, ("---",) * len(HEADS)]
    with tempfile.TemporaryDirectory(prefix="sparkrack-guards-") as work:
        (Path(work) / "rack").mkdir()
        rack = ServingRack(Path(work) / "rack", engine=engine)
        try:
            times = serve_unit.ServeTimes()
            rack.up(times={name: getattr(times, name) for name in PERIODS}, rdma="remark")
            rack.start()
            rows += [cost(rack, given.minutes, busy) for busy in (False, True)]
            gate = gate_seconds(rack, Path(work) / "gate")
        finally:
            rack.down()
        asked = "unknown: " + lacking() if lacking() else f"{systemd_seconds(Path(work) / 'systemd'):.2f} CPU s"
    print("\n".join(f"| {' | '.join(row)} |" for row in rows))
    print(f"the gate of a node, at a start: {gate:.2f} CPU s, without what docker and the measurement of RDMA cost")
    print(f"systemd and its client, for the questions of an agent: {asked} a minute")
    return 0


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: its namespaces are removed
    sys.exit(main(sys.argv[1:]))
