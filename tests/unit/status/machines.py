"""Hosts of the reference rack with answers as declared, until a test changes them."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from core.model import Half, Port, Rack, load
from core.ops import run_lock
from core.ops.run_lock import Holder
from sparkrack.status.build import build_status
from sparkrack.status.collect_answers import Answer, NoAnswer
from sparkrack.status.model import Status
from sparkrack.status.probe_script import halves
from sparkrack.status.switch import SwitchAnswers
from switch.offload import Forwarding
from tests.unit.probe_output import probe_output

EXAMPLE = Path(__file__).parents[3] / "examples/rack.yaml"
REFERENCE = EXAMPLE.read_text().partition("# The weights of models")[0]
"""The reference rack without models and serving, of which status shows nothing."""
IMAGE = "scitrera/dgx-spark-sglang:0.5.12"
ID, OTHER, DIGEST = (f"sha256:{sign * 64}" for sign in "abd")
NOW = datetime(2026, 11, 22, 9, 30, tzinfo=UTC)
CONTAINER = f"/sys/fs/cgroup/sparkrack.slice/docker-{'1' * 64}.scope 1073741824 0"
MEMINFO = ["MemTotal:       125480824 kB", "MemFree:         3000000 kB", "MemAvailable:   102760448 kB"]
SWAPS = "Filename\t\t\t\tType\t\tSize\t\tUsed\t\tPriority"

Answers = dict[str, tuple[int, list[str]]]
"""Exit and lines of each question."""


def reference(folder: Path, text: str = "", pinned: str | None = None) -> Rack:
    """The reference rack, or another text of it, with a lock file beside it."""
    path = folder / "rack.yaml"
    path.write_text(text or REFERENCE)
    pins = {"images": {IMAGE: {"digest": DIGEST, "id": ID}}}
    (folder / "rack.lock.json").write_text(json.dumps(pins) if pinned is None else pinned)
    return load(path)


@dataclass
class Machines:
    """Answers of the hosts. `nodes`: the answers by question; `links`: the monitor of the switch by leg; `raw`: a whole
    output, in place of a node's answers; `silent`: why a host does not answer.
    """

    rack: Rack
    nodes: dict[str, Answers] = field(default_factory=dict)
    links: dict[str, dict[str, str]] = field(default_factory=dict)
    resource: dict[str, str] = field(default_factory=dict)
    identity: dict[str, str] = field(default_factory=dict)
    health: list[dict[str, str]] | None = field(default_factory=list)
    armed: list[str] = field(default_factory=list)
    safe_mode: bool = False
    frames: Forwarding = field(default_factory=Forwarding)
    device_mode: list[dict[str, str]] | None = field(default_factory=lambda: [{"mode": "advanced", "flagged": "false"}])
    raw: dict[str, str] = field(default_factory=dict)
    silent: dict[str, str] = field(default_factory=dict)

    def output(self, node: str) -> str:
        """Return the output of a node."""
        if node in self.raw:
            return self.raw[node]
        answers = self.nodes[node].items()
        return probe_output(
            {key: (code, "".join(f"{line}\n" for line in reported)) for key, (code, reported) in answers}
        )

    def answers(self) -> dict[str, Answer]:
        """Return the answers of all hosts."""
        found: dict[str, Answer] = {name: self.output(name) for name in self.nodes}
        found["crs812"] = SwitchAnswers(
            *(self.resource, self.identity, self.links, self.health, self.armed, self.safe_mode, self.frames),
            device_mode=self.device_mode,
        )
        return found | {name: NoAnswer(why) for name, why in self.silent.items()}

    def status(self, state: Path | None = None) -> Status:
        """The status of all of them."""
        return build_status(
            self.rack, [*self.rack.nodes, *self.rack.switches], self.answers(), state or Path("/none"), NOW
        )


Change = Callable[[Machines], object]


def machines(rack: Rack) -> Machines:
    """Everything as declared: node N has been up for N hours and 7 minutes."""
    made = Machines(rack)
    for number, name in enumerate(rack.nodes, 1):
        made.nodes[name] = {
            "uptime": (0, [f"{number * 3600 + 420}.25 {number * 20000}.50"]),
            "kernel": (0, ["6.17.0-1021-nvidia"]),
            "driver": (0, ["580.159.03"]),
            "memory": (0, MEMINFO),
            "swap": (0, [SWAPS]),
            "reboot": (0, ["none"]),
            "containers": (0, [CONTAINER]),
            **{half.interface: (0, ethtool(_speed_of_half(rack, half))) for half in halves(rack, name)},
            "images": (0, [f"{ID} scitrera/dgx-spark-sglang 0.5.12 {DIGEST} 22.4GB"]),
        }
    made.nodes["spark1"]["lock"] = (run_lock.GONE, [])
    for leg, _ in rack.cabling.legs("crs812"):
        made.links[leg.interface] = {"status": "link-ok", "rate": "100Gbps", "fec": "fec91"}
    made.resource = {"version": "7.25.2 (stable)", "uptime": "1w3d4h5m6s", "board-name": "CRS812-8DS-2DQ-2DDQ"}
    made.identity = {"name": "crs812"}
    made.health = [
        {"name": "cpu-temperature", "value": "47"},
        {"name": "switch-temperature", "value": "52"},
        {"name": "fan1-speed", "value": "4380"},
        {"name": "psu1-state", "value": "ok"},
    ]
    return made


def _speed_of_half(rack: Rack, half: Half) -> str:
    """The speed of a half's cable as ethtool prints it."""
    cable = rack.cabling.cable_of(Port(half.node, half.port))
    assert cable
    return f"{cable.gbps}000Mb/s"


def ethtool(speed: str, link: str = "yes") -> list[str]:
    """Return ethtool's output for a half, shortened."""
    return ["Settings for x:", "\tSupported ports: [ Backplane ]", f"\tSpeed: {speed}", f"\tLink detected: {link}"]


def answers(node: str, question: str, code: int = 0, *lines: str) -> Change:
    """Change one answer of a node."""
    return lambda made: made.nodes[node].update({question: (code, list(lines))})


def held(holder: Holder | str, silence: int | None = None) -> tuple[int, list[str]]:
    """The head node's answer while a run holds the rack, or while this is in the lock file. `silence`: seconds since
    the lock was renewed."""
    text = holder if isinstance(holder, str) else holder.text
    age = [] if silence is None else [f"age:{silence}"]
    return 0, [*base64.encodebytes(text.encode()).decode().splitlines(), *age]
