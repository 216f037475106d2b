"""A served unit on nodes that are network namespaces: coordinator, agents and engine stand-ins, with links between
them."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from lab import namespace
from serving.container_paths import INSIDE_MODELS
from serving.engines.engine import INSIDE_KEY
from serving.launch import RAY_VARIABLES, RankLaunch, launches
from serving.options import served_units
from serving.programs import programs
from tests.serving.control_groups import container, mounted
from tests.serving.engines import STAND_IN, EngineOfTests, engine_metrics
from tests.unit.model.serving_racks import VLLM, loaded, machines, text, unit

HERE = Path(__file__).parent
UNIT_FILES = HERE.parents[1] / "serving/templates"
PATIENCE = 120.0
"""Seconds until a test gives up waiting; no test passes or fails by how long something takes."""
KEY = f"sk-quiet-horse-{uuid.uuid4().hex}"
"""Differs between processes: a test looks for it in the arguments of all processes, those of other workers too."""
SECRET = "0f" * 32
RAY_TOKEN = "4c" * 32
COORDINATOR_PORT, API_PORT = 29400, 8000
RDMA_DEVICE = "rocep1s0f1"
QUESTION_EVERY = 0.2
"""Interval in seconds of checks that start processes: more checks would slow down what they check."""


class ServingNode:
    """One node: a namespace, its folder, and what runs there."""

    def __init__(self, rack: ServingRack, rank: int) -> None:
        self.rack, self.rank = rack, rank
        self.name, self.address = f"spark{rank + 1}", f"10.77.0.{rank + 11}"
        self.namespace = f"{rack.prefix}n{rank}"
        self.folder = rack.folder / self.name
        self.link = f"l{rank}"
        self.coordinator: subprocess.Popen[bytes] | None = None
        self.agent: subprocess.Popen[bytes] | None = None
        for name in ("service", "state", "faults", "shm", "etc", "run", "cgroups/sparkrack.slice"):
            (self.folder / name).mkdir(parents=True)
        self.boot_file = self.folder / "boot_id"
        self.gate_reason = self.folder / "gate-reason"
        self.log = self.folder / "log"
        self.kernel_log = self.folder / "kernel.log"
        self.fabric, self.devices = self.folder / "fabric.env", self.folder / "infiniband"
        self.counters = self.devices / RDMA_DEVICE / "ports/1/counters"
        self.counters.mkdir(parents=True)
        for name in ("port_xmit_data", "port_rcv_data"):
            (self.counters / name).write_text("0\n")
        self.fabric.write_text(f"NCCL_IB_HCA=={RDMA_DEVICE}\n")
        self.clock_error: Path | None = None
        """The file with the seconds by which the clock of coordinator and agent is wrong; None for a right clock."""
        self.cgroups: Path | None = None
        """The control group below which docker runs the rank; None where no docker does."""
        self.docker: subprocess.Popen[bytes] | None = None

    def configure(self, **changes: Any) -> None:
        """Write unit file, secret, key, gate and the script of the service."""
        secret, key, gate = (self.folder / "etc" / name for name in ("unit.secret", "unit.key", "gate.sh"))
        for file, content in ((secret, SECRET), (key, KEY)):
            file.write_text(f"{content}\n")
            file.chmod(0o600)
        gate.write_text(f"[ ! -e {self.gate_reason} ] || {{ cat {self.gate_reason}; exit 1; }}\n")
        self._write_service(self._write_script(key))
        (self.folder / "service/patience").write_text(f"{self.rack.engine.stop}\n")
        values: dict[str, Any] = {
            "name": "toy",
            "model": "toy",
            "metrics": engine_metrics("vllm"),
            "ranks": [{"node": node.name, "address": node.address} for node in self.rack.nodes],
            "head": {"address": self.rack.nodes[0].address, "port": COORDINATOR_PORT},
            "api": {"address": self.rack.nodes[0].address, "port": API_PORT, "key_file": str(key)},
            "secret_file": str(secret),
            "gate": ["sh", str(gate)],
            "systemctl": ["sh", str(HERE / "systemctl_standin.sh"), str(self.folder / "service")],
            "journalctl": [
                "sh",
                str(HERE / "journalctl_standin.sh"),
                str(self.kernel_log),
                str(self.folder / "service/log"),
            ],
            "times": {**self.rack.engine.times, **changes.pop("times", {})},
            "restart": {"times": 1, "within": 21600, "uptime": 0, **changes.pop("restart", {})},
        }
        self.unit_file.write_text(json.dumps({**values, **changes}))

    def _write_service(self, script: str) -> None:
        """Write what the service runs: the script, or the client of docker that has docker run it."""
        folder = self.folder / "service"
        if self.cgroups is None:
            (folder / "command").write_text(script)
            return
        (folder / "container").write_text(script)
        client = shlex.join([sys.executable, str(HERE / "docker_standin.py")])
        (folder / "command").write_text(f"exec {client} run {folder} {folder}/container\n")
        (folder / "stop-command").write_text(f"exec {client} stop {folder} {self.rack.engine.stop}\n")

    def start_docker(self) -> None:
        assert self.cgroups
        group = container(self.cgroups, "toy")
        words = [str(HERE / "docker_standin.py"), "daemon", str(self.folder / "service"), str(group)]
        self.docker = self.spawn(*words)

    def _write_script(self, key: Path) -> str:
        """The service: the launcher's line, with a /dev/shm of the node."""
        engine, launch = self.rack.engine, self.rack.launches[self.rank]
        temporary = self.folder / "tmp"
        for name, words in engine.programs.items():
            program = temporary / "bin" / name
            program.parent.mkdir(parents=True, exist_ok=True)
            program.write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
            program.chmod(0o755)
        inside_model, places = f"{INSIDE_MODELS}/toy", {INSIDE_KEY: str(key)}
        line = [places.get(word, re.sub(f"^{inside_model}(?=/|$)", engine.model, word)) for word in launch.argv]
        environment = {
            **launch.environment,
            **engine.environment,
            "XDG_CACHE_HOME": str(self.rack.compiled),
            "TORCHINDUCTOR_CACHE_DIR": f"{self.rack.compiled}/inductor",
            "STANDIN_FAULTS": str(self.folder / "faults"),
            "STANDIN_RDMA": str(self.devices),
            "NCCL_IB_HCA": f"={RDMA_DEVICE}",
        }
        inside = "/tmp" if engine.contained else temporary  # noqa: S108
        if engine.kind == "vllm-ray":
            (temporary / "ray-token").write_text(RAY_TOKEN)
            environment |= {**RAY_VARIABLES, "RAY_AUTH_TOKEN_PATH": f"{inside}/ray-token"}
        own = "--mount --pid --fork --kill-child --mount-proc" if engine.contained else "--mount"
        lines = [
            f'[ "${{1-}}" = inside ] || exec unshare {own} sh "$0" inside',
            f"mount -t tmpfs {self.shared_memory} /dev/shm"
            if self.rack.as_installed
            else f"mount --bind {self.folder / 'shm'} /dev/shm",
            *(f"export {name}={shlex.quote(value)}" for name, value in environment.items()),
            *([] if self.rank else [f"export VLLM_API_KEY=$(cat {key})"]),
            f"export PATH={inside}/bin:$PATH",
            *([f"mount --bind {temporary} {inside}"] if engine.contained else []),
            f"exec {shlex.join(line)}",
        ]
        return "".join(f"{one}\n" for one in lines)

    @property
    def unit_file(self) -> Path:
        return self.folder / "etc/toy.json"

    @property
    def shared_memory(self) -> str:
        """The name of the ranks' /dev/shm where each has one of its own, as a container has."""
        return f"shm-{self.namespace}"

    def program(self, name: str, *words: str) -> list[str]:
        """The words of one of the role's programs."""
        clock = [HERE / "clock_standin.py", self.clock_error] if self.clock_error else []
        given = [*clock, self.rack.programs / name, self.unit_file, *words, "--state", self.folder / "state"]
        return [str(word) for word in given]

    def systemctl(self, *words: str) -> None:
        """Control the node's service, as an administrator does."""
        inside = ["ip", "netns", "exec", self.namespace, "sh", str(HERE / "systemctl_standin.sh")]
        subprocess.run([*inside, str(self.folder / "service"), *words], check=True)

    def spawn(self, *words: str) -> subprocess.Popen[bytes]:
        """Start a Python program on the node; it ends with the node."""
        with self.log.open("ab") as log:
            return subprocess.Popen(
                ["ip", "netns", "exec", self.namespace, sys.executable, *words],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
                start_new_session=True,
            )

    def start_coordinator(self) -> None:
        self.coordinator = self._start_program(
            "sparkrack-serve-coordinator", self.program("serve_coordinator.py", "run")
        )

    def start_agent(self) -> None:
        stop = ["sh", str(HERE / "systemctl_standin.sh"), str(self.folder / "service"), "stop"]
        bound = str(UNIT_FILES / "sparkrack-serve.service")
        self.agent = self._start_program("sparkrack-serve-agent", self.agent_program(), bound, *stop)

    def agent_program(self) -> list[str]:
        """The words of the agent."""
        words = [*self.program("serve_agent.py", str(self.rank)), "--boot-id", str(self.boot_file)]
        words += ["--fabric", str(self.fabric), "--devices", str(self.devices)]
        # `ip netns exec` hides the control groups of the machine. Without docker the slice of the unit is never made.
        cgroups = self.cgroups or self.folder / "cgroups"
        return [*words, "--cgroups", str(cgroups), "--runtime", str(self.folder / "run")]

    def _start_program(self, unit: str, program: list[str], *bound: str) -> subprocess.Popen[bytes]:
        if not self.rack.as_installed:
            return self.spawn(*program)
        systemd = [HERE / "service_standin.py", UNIT_FILES / f"{unit}.service", self.folder / "service", self.rack.pace]
        return self.spawn(*map(str, systemd), *(bound or ["-"]), "--", sys.executable, *program)

    def main_process(self, unit: str) -> int:
        """The process of the coordinator or the agent, below the stand-in of systemd that restarts it."""
        return int((self.folder / f"service/sparkrack-serve-{unit}.pid").read_text())

    def boot(self) -> None:
        """Start the node: another boot ID, nothing of the service is left."""
        self.boot_file.write_text(f"{uuid.uuid4()}\n")
        for name in ("pid", "status", "stopping", "system"):
            (self.folder / "service" / name).unlink(missing_ok=True)
        if self.cgroups:
            self.start_docker()
        if not self.rank:
            self.start_coordinator()
        self.start_agent()

    def kill(self) -> None:
        """End all that runs on the node at once, as when its power fails."""
        self.plug(False)
        namespace.end(namespace.processes(self.namespace))
        self.reap()

    def shut_down(self) -> None:
        """End the node in order: systemd first reports that it stops, then ends the services."""
        (self.folder / "service/system").write_text("stopping\n")
        subprocess.run(
            ["sh", str(HERE / "systemctl_standin.sh"), str(self.folder / "service"), "stop", "x"], check=True
        )
        for process in (self.agent, self.coordinator):
            if process:
                process.terminate()
                process.wait(PATIENCE)
        self.kill()

    def reap(self) -> None:
        for process in (self.agent, self.coordinator, self.docker):
            if process:
                process.wait(PATIENCE)
        self.agent = self.coordinator = self.docker = None

    def plug(self, connected: bool) -> None:
        """Connect or cut the node's link, at the switch: the node itself sees no closed connection."""
        namespace.ip("link", "set", self.link, "up" if connected else "down", namespace=self.rack.switch)

    def processes(self, beginning: str = "") -> list[int]:
        """The processes of the engine here, of which an argument begins with this text."""
        found = []
        for pid in namespace.processes(self.namespace):
            arguments = namespace._read_arguments(pid)
            ours = any(mark in one for one in arguments for mark in self.rack.engine.mark)
            if ours and any(one.startswith(beginning) for one in arguments):
                found.append(pid)
        return [pid for pid in found if namespace.alive(pid)]

    def programs(self, name: str) -> list[int]:
        """The processes of the engine whose program has this name."""
        return [pid for pid in self.processes() if Path(namespace._read_arguments(pid)[0]).name == name]

    def workers(self) -> list[int]:
        """The processes of the rank itself, without those of API and engine."""
        return self.processes(self.rack.engine.worker)

    def strangers(self) -> list[list[str]]:
        """The arguments of all processes here but coordinator, agent, and the questions that these ask systemctl."""
        found = [namespace._read_arguments(pid) for pid in namespace.processes(self.namespace) if namespace.alive(pid)]
        known = ("serve_coordinator.py", "serve_agent.py", "systemctl_standin.sh", "gate.sh")
        own = [one for one in found if any(one) and not any(word.endswith(known) for word in one)]
        return [one for one in own if not {str(HERE / "docker_standin.py"), "daemon"} <= set(one)]

    def listening(self) -> set[int]:
        """The TCP ports at which something listens here."""
        words = ["ip", "netns", "exec", self.namespace, "ss", "--no-header", "--listening", "--tcp", "--numeric"]
        found = subprocess.run(words, capture_output=True, text=True, check=True).stdout
        return {int(row.split()[3].rpartition(":")[2]) for row in found.splitlines()}

    @property
    def starts(self) -> int:
        """How often the service was started."""
        file = self.folder / "service/starts"
        return len(file.read_text().split()) if file.exists() else 0

    def fault(self, name: str, present: bool = True) -> None:
        file = self.folder / "faults" / name
        file.touch() if present else file.unlink()


def launcher_lines(count: int, engine: EngineOfTests, kind: str = "chat") -> tuple[RankLaunch, ...]:
    """What the launcher has each node run for a unit over so many nodes."""
    names = [f"n{number}" for number in range(count)]
    keys: dict[str, Any] = {
        "engine": engine.kind,
        "kind": kind,
        "version": "0.32.0",
        "model": "toy",
        "nodes": names,
        "parallel": {"tensor": count},
        "context": engine.context,
        "sequences": 4,
        "args": dict(engine.arguments),
        "api": {"port": API_PORT, "listen": "management", "key": {"env": "KEY"}},
        "drain": "5s",
    }
    declared = unit(**{**keys, **engine.declared})
    models = {"toy": {"source": "owner/toy"}}
    rack = loaded(text({"toy": declared}, machines(max(2, count)), images=[VLLM], models=models))
    addresses = {name: node.address for name, node in rack.nodes.items()}
    return launches(rack, served_units(rack)["toy"], addresses, "100G", None)


class ServingRack:
    """Nodes on one switch, a bridge in a namespace of its own."""

    def __init__(
        self,
        folder: Path,
        count: int = 2,
        engine: EngineOfTests = STAND_IN,
        as_installed: bool = False,
        pace: float = 1.0,
        kind: str = "chat",
    ) -> None:
        """With `as_installed`, the unit files of the role decide what restarts coordinator and agents; `pace` is the
        factor of the seconds that they have. `kind`: of the unit, as the launcher has it.
        """
        self.folder, self.engine, self.as_installed, self.pace = folder, engine, as_installed, pace
        self.compiled = folder.parent / "compiled"
        self.launches = launcher_lines(count, engine, kind)
        self.prefix = f"sv{os.getpid()}"
        self.switch = f"{self.prefix}sw"
        self.programs = folder / "programs"
        self.programs.mkdir()
        for file in programs():
            (self.programs / Path(file.path).name).write_bytes(file.content)
        self.nodes = [ServingNode(self, rank) for rank in range(count)]
        self._mounts = ExitStack()

    def with_docker(self) -> None:
        """Have docker run the ranks, in control groups of their own. Before the nodes boot."""
        root = self._mounts.enter_context(mounted(self.folder / "cgroups"))
        for node in self.nodes:
            node.cgroups = root / node.name
            node.cgroups.mkdir()

    def up(self, **changes: Any) -> None:
        """Connect and boot the nodes."""
        ip = namespace.ip
        namespace.create(self.switch)
        ip("link", "add", "br0", "type", "bridge", namespace=self.switch)
        ip("link", "set", "br0", "up", namespace=self.switch)
        for node in self.nodes:
            namespace.create(node.namespace)
            ip(
                "link",
                "add",
                node.link,
                "type",
                "veth",
                "peer",
                "name",
                "eth0",
                "netns",
                node.namespace,
                namespace=self.switch,
            )
            ip("link", "set", node.link, "master", "br0", "up", namespace=self.switch)
            ip("address", "add", f"{node.address}/24", "dev", "eth0", namespace=node.namespace)
            ip("link", "set", "eth0", "up", namespace=node.namespace)
            node.configure(**dict(changes))
            node.boot()

    def down(self) -> None:
        """End all of it."""
        for node in self.nodes:
            namespace.delete(node.namespace)
            node.reap()
        namespace.delete(self.switch)
        self._mounts.close()

    # The operator

    def ask_coordinator(self, *words: str) -> subprocess.CompletedProcess[str]:
        head = self.nodes[0]
        inside = ["ip", "netns", "exec", head.namespace, sys.executable, *head.program("serve_coordinator.py", *words)]
        return subprocess.run(inside, capture_output=True, text=True, timeout=PATIENCE)

    def status(self) -> dict[str, Any]:
        """The unit's status, as soon as the coordinator answers."""
        answers: list[str] = []

        def answered() -> bool:
            done = self.ask_coordinator("status")
            answers.append(done.stdout)
            return done.returncode == 0

        self.wait(answered, "the coordinator answers", every=QUESTION_EVERY)
        found: dict[str, Any] = json.loads(answers[-1])
        return found

    def record(self) -> dict[str, Any]:
        """The unit's state file, empty before the first change."""
        file = self.nodes[0].folder / "state/toy.json"
        found: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {}
        return found

    def wait(self, reached: Callable[[], object], what: str, every: float = 0.05) -> None:
        """Wait until something is so, with a look every so many seconds. Raises AssertionError with all nodes' logs."""
        patience = self.engine.patience
        until = time.monotonic() + patience
        while not reached():
            if time.monotonic() > until:
                logs = "".join(f"--- {node.name}\n{node.log.read_text()}" for node in self.nodes)
                raise AssertionError(f"not in {patience:g} s: {what}\n{json.dumps(self.record(), indent=1)}\n{logs}")
            time.sleep(every)

    def wait_for(self, state: str, generation: int | None = None) -> dict[str, Any]:
        """Wait for a state of the unit and return its record."""

        def reached() -> bool:
            record = self.record()
            return record.get("state") == state and generation in (None, record["generation"])

        self.wait(reached, f"state {state}, generation {generation}")
        return self.record()

    def start(self) -> None:
        """DesiredState the unit up and wait until it is ready."""
        self.wait(
            lambda: self.ask_coordinator("up").returncode == 0,
            "the coordinator takes the desired state",
            every=QUESTION_EVERY,
        )
        self.wait_for("ready")

    def wait_until_gone(self, *nodes: ServingNode) -> None:
        """Wait until no process of the engine is left on the nodes."""
        self.wait(
            lambda: not any(node.processes() for node in nodes or self.nodes), "no engine is left", every=QUESTION_EVERY
        )

    def states(self) -> list[tuple[str, int]]:
        """The states that the unit went through, with their generations, without changes between ready and busy."""
        found = [(state, generation) for _, state, generation, _ in self.record()["transitions"] if state != "busy"]
        return [one for number, one in enumerate(found) if not number or one != found[number - 1]]

    def requests(self, path: str) -> int:
        """How many requests to a path the head's API has answered or begun to, in its present generation."""
        return (self.nodes[0].folder / "service/log").read_text().count(f" {path} ")

    def health(self) -> int:
        """The status of the head's /health."""
        url = f"http://{self.nodes[0].address}:{API_PORT}/health"
        code = f"import urllib.request; print(urllib.request.urlopen({url!r}, timeout=30).status)"
        words = ["ip", "netns", "exec", self.nodes[0].namespace, sys.executable, "-c", code]
        return int(subprocess.run(words, capture_output=True, text=True, check=True).stdout)

    def reason(self, state: str) -> str:
        """The reason of the latest transition to a state."""
        return str([reason for _, one, _, reason in self.record()["transitions"] if one == state][-1])

    def connect(self, rank: int) -> socket.socket:
        """A connection to the coordinator from a node."""
        connection = namespace.connected(self.nodes[rank].namespace, self.nodes[0].address, COORDINATOR_PORT)
        assert connection
        return connection


def freeze(*pids: int, thaw: bool = False) -> None:
    for pid in pids:
        os.kill(pid, signal.SIGCONT if thaw else signal.SIGSTOP)
