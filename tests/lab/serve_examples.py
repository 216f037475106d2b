"""The racks of examples/ with a served unit, each in a virtual rack: from factory state to the first completion and on.

    python -m tests.lab.serve_examples [--quick] [NAME...]    runs these, or all, and writes docs/serving-examples.md

--quick leaves the medians of `plan` away.

The programs of the nodes, docker, systemd, the switch and the command lines are those of a real rack. The engine is a
stand-in that takes the command line by the options of the release, and the model has the configuration of the published
one, but no weights. What else the lab changes of an example is in `lab_text`. Needs root.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shlex
import shutil
import statistics
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from ruamel.yaml import YAML

from core.model import Rack, load
from core.model.selection import ROLES
from lab.engine.model_files import content_digest
from lab.images import ENGINE, target
from serving.container_paths import INSIDE_MODELS
from serving.engines.engine import RAY_PORT
from serving.launch import api_address
from serving.options import ServedUnit, served_units
from serving.unit_ports import MASTER_PORT
from tests.lab.virtual import REPOSITORY, VirtualRack

CONFIGS = REPOSITORY / "tests/unit/serving/engines/model_configs"
RECORD = REPOSITORY / "docs/serving-examples.json"
PAGE = REPOSITORY / "docs/serving-examples.md"
MEMORY = 0.16
"""Share of a node's memory that a unit gets: a virtual node has 8 GiB, of which the guard keeps 3."""
OVERHEAD = {"memory": "4G", "kv": "1G"}
"""Of the sum that must fit in that share, and in the node beside `kv`; the stand-in of the engine has none."""
WEIGHTS = 1 << 20
COST_ROUNDS = 5
KEY = "sk-quiet-horse-1234567890"
BEGIN, END = "<!-- recorded: tests/lab/serve_examples.py -->\n", "<!-- end -->\n"
IN_SYNC = re.compile(r"\b0 changes, 0 unknown")
CLIENT = """\
import json, os, sys, urllib.request
body = json.dumps({"model": sys.argv[2], "prompt": "2+2=", "max_tokens": 8, "temperature": 0}).encode()
headers = {"Content-Type": "application/json", "Authorization": "Bearer " + os.environ["LAB_CLIENT_KEY"]}
with urllib.request.urlopen(urllib.request.Request(sys.argv[1], body, headers), timeout=60) as answer:
    print(json.load(answer)["choices"][0]["text"])
"""
DIGEST = f"""\
import sys
sys.path.insert(0, "/{ENGINE}")
from lab.engine.model_files import content_digest
print(content_digest(sys.argv[1]))
"""
"""Prints in a container the digest of a file or a folder there."""


@dataclass(frozen=True)
class ServedExample:
    """A file of examples/, its unit that is up, and the published configuration of its model."""

    file: str
    unit: str
    config: str

    @property
    def path(self) -> Path:
        return REPOSITORY / f"examples/{self.file}.yaml"


EXAMPLES = {
    example.file: example
    for example in (
        ServedExample("nemotron-ultra-8-nodes", "nemotron_ultra", "NVIDIA-Nemotron-3-Ultra-550B-A55B-NVFP4"),
        ServedExample("llama-405b-3-nodes-ray", "llama_405b", "Meta-Llama-3.1-405B"),
        ServedExample("gpt-oss-120b-2-nodes-ray", "gpt_oss", "gpt-oss-120b"),
        ServedExample("deepseek-v4-flash-2-nodes", "deepseek_v4_flash", "DeepSeek-V4-Flash"),
        ServedExample("qwen3-235b-2-nodes-ray", "qwen3_235b", "Qwen3-235B-A22B"),
        ServedExample("gemma-4-26b-2-nodes-ray", "gemma_4_26b", "gemma-4-26B-A4B"),
        ServedExample("deepseek-v4.1-flash-4-nodes", "deepseek_v41_flash", "DeepSeek-V4.1-Flash"),
        ServedExample("deepseek-v4.1-flash-3-nodes", "deepseek_v41_flash", "DeepSeek-V4.1-Flash"),
    )
}


def lab_text(example: ServedExample, folder: Path) -> tuple[str, list[str]]:
    """Return the rack file of an example for the lab, and what was changed in it.

    Args:
        example: the example.
        folder: an empty folder, which gets the model.
    """
    yaml = YAML()
    yaml.preserve_quotes = True
    yaml.width = 200
    data = yaml.load(example.path.read_text())
    changes = []
    for place, image in enumerate(data["images"]):
        repository, tag = target(image)
        name = f"{repository.removeprefix('library/')}:{tag}"
        if name != image:
            data["images"][place] = name
            changes.append(f"images: {image} is {name}: a node of the lab reaches no other registry")
            for unit in data["serving"]["units"].values():
                unit["image"] = name if unit["image"] == image else unit["image"]
    for name, model in data["models"].items():
        changes.append(f"models.{name}: a folder with the published config.json and {WEIGHTS} bytes of weights")
        model.clear()
        model["path"] = str(folder / name)
        (folder / name).mkdir(parents=True)
        shutil.copy(CONFIGS / example.config / "config.json", folder / name)
        (folder / name / "model.safetensors").write_bytes(bytes(WEIGHTS))
    for name, unit in data["serving"]["units"].items():
        if "memory" in unit:
            changes.append(
                f"serving.units.{name}.memory: {MEMORY} instead of {unit['memory']}: a node of the lab has 8 GiB"
            )
            unit["memory"] = MEMORY
        overhead, why = OVERHEAD["memory"], "keys and values of the whole context are counted"
        if "memory" not in unit:
            overhead, why = OVERHEAD["kv"], "a node of the lab has 8 GiB"
        changes.append(f"serving.units.{name}.overhead: {overhead}: {why}")
        unit["overhead"] = overhead
    out = StringIO()
    yaml.dump(data, out)
    return out.getvalue(), changes


@dataclass
class ExampleWalk:
    """One example in its virtual rack, and the seconds of each phase."""

    example: ServedExample
    folder: Path
    seconds: dict[str, float] = field(default_factory=dict)
    roles: dict[str, float] = field(default_factory=dict)
    """Seconds of each role in the first `apply`, from the start of its first operation on any node to its last end."""
    begun: float = field(default_factory=time.monotonic)
    checked: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rack = VirtualRack(self.folder, tuple(load(self.example.path).nodes))
        keys = re.findall(r"key: \{env: (\w+)\}", self.example.path.read_text())
        self.rack.environment |= dict.fromkeys(keys, KEY)

    @property
    def declared(self) -> Rack:
        """The rack file of the lab."""
        return load(self.rack.paths.rack)

    @property
    def unit(self) -> ServedUnit:
        return served_units(self.declared)[self.example.unit]

    @property
    def head(self) -> str:
        return self.unit.ranks(self.declared.nodes)[0]

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Measure a phase."""
        begun = time.monotonic()
        print(f"  {name} ...", end=" ", flush=True)
        yield
        self.seconds[name] = round(time.monotonic() - begun, 1)
        print(f"{self.seconds[name]} s", flush=True)

    def sparkrack(self, *words: str, code: int = 0) -> str:
        """Run a command of the operator in the lab; raises AssertionError for another exit code."""
        done = self.rack.command(*words)
        text = done.stdout + done.stderr
        assert done.returncode == code, f"sparkrack {' '.join(words)}: exit {done.returncode}, wanted {code}\n{text}"
        return text

    def to_first_completion(self, rack_file: Path) -> None:
        """From factory state until a client has its answer."""
        self.begun = time.monotonic()
        with self.phase("boot"):
            self.rack.lab("up", "--factory", "--rack", str(rack_file))
        secrets = ["--node-password-file", str(self.rack.paths.password), "--host-keys", str(self.rack.paths.host_keys)]
        for name in self.declared.switches:
            secrets += ["--switch-password-file", str(self.rack.paths.switch(name) / "sticker")]
        with self.phase("bootstrap"):
            self.sparkrack("bootstrap", "--as", "nvidia", *secrets)
        for node in self.rack.nodes:
            # A clone of the lab gets its machine-id after the start of journald.
            self.rack.ssh(node, "systemctl --quiet enable --now lab-rdma; systemctl restart systemd-journald")
        with self.phase("plan"):
            self.sparkrack("plan", code=2)
        with self.phase("apply"):
            self.sparkrack("apply", "-y")
        self.roles = self.role_seconds()
        applied = time.monotonic()
        with self.phase("wait for ready"):
            self.sparkrack("serve", "start", self.unit.name)
        with self.phase("first completion"):
            assert "4" in self.complete()
        self.checked.append("a client has the known answer")
        self.reads_its_models()
        self.seconds["apply to completion"] = round(time.monotonic() - applied, 1)
        self.seconds["factory to completion"] = round(time.monotonic() - self.begun, 1)
        figures = self.figures()
        self.seconds |= {"gates": figures["gates_s"], "start to proven": figures["ready_s"]}
        self.seconds["rendezvous"] = self.rendezvous()

    def complete(self) -> str:
        """The answer to a client on the head: the examples have no gateway, and nothing else reaches the unit."""
        address = f"http://{api_address(self.declared, self.unit)}:{self.unit.api.port}/v1/completions"
        words = shlex.join(["python3", "-c", CLIENT, address, self.unit.model])
        key = f"$(cat /etc/sparkrack/serve/{self.unit.name}.token)"
        return self.rack.ssh(self.head, f'LAB_CLIENT_KEY="{key}" {words}')

    def reads_its_models(self) -> None:
        """Each rank has the models that the operator has, a draft too, and the head has read those that it names."""
        said = self.rack.ssh(self.head, f"journalctl -q -o cat -u sparkrack-serve-{self.unit.name}")
        for name in (self.unit.model, *self.unit.also):
            place, source = f"{INSIDE_MODELS}/{name}", self.declared.models[name].path
            assert source
            wanted = content_digest(str(source))
            words = ["docker", "exec", f"sparkrack-{self.unit.name}", "python3", "-c", DIGEST, place]
            ranks = self.unit.ranks(self.declared.nodes)
            found = [self.rack.ssh(node, shlex.join(words)).strip() for node in ranks]
            assert found == [wanted] * len(ranks), f"{name}: {found}, wanted {wanted}"
            assert f"reads {place}, sha256 {wanted}" in said, said
        drafts = f", and the engine reads {', '.join(self.unit.also)}" if self.unit.also else ""
        self.checked.append(f"all ranks have the same models{drafts}")

    def figures(self) -> dict[str, float]:
        """What the coordinator measured of the latest start."""
        record = json.loads(self.rack.ssh(self.head, f"cat /var/lib/sparkrack/serve/{self.unit.name}.json"))
        found: dict[str, float] = record["figures"]
        return found

    def rendezvous(self) -> float:
        """Seconds from the start of the engine on the head until all ranks had met."""
        text = self.rack.ssh(self.head, f"journalctl -q -o cat -u sparkrack-serve-{self.unit.name}")
        return float(re.findall(r"the ranks have met after (\S+) s", text)[-1])

    def role_seconds(self) -> dict[str, float]:
        """The roles of the newest `apply`, from its journal."""
        folder = self.folder / "state/sparkrack" / self.declared.rack / "runs"
        spans: dict[str, tuple[float, float]] = {}
        for line in sorted(folder.glob("*.ndjson"))[-1].read_text().splitlines():
            entry = json.loads(line)
            if entry["event"] == "operation_finished":
                end = datetime.fromisoformat(entry["at"]).timestamp()
                first, last = spans.get(entry["role"], (end - entry["seconds"], end))
                spans[entry["role"]] = min(first, end - entry["seconds"]), max(last, end)
        return {role: round(last - first, 1) for role, (first, last) in spans.items()}

    def containers(self) -> list[str]:
        return [self.rack.ssh(node, "docker ps --all --quiet --no-trunc").strip() for node in self.rack.nodes]

    def runs_undisturbed(self) -> None:
        """A second run changes nothing, there is no drift, and verify agrees."""
        containers, etc = self.containers(), self.rack.etc()
        with self.phase("second apply"):
            again = self.sparkrack("apply", "-y")
        assert self.rack.etc() == etc, f"the second run changed /etc\n{again}"
        with self.phase("plan without changes"):
            assert IN_SYNC.search(self.sparkrack("plan"))
        with self.phase("drift"):
            self.sparkrack("drift", "--no-history")
        with self.phase("verify of serving"):
            verified = self.sparkrack("verify", "--only", "serving")
        assert re.search(r"[1-9]\d* passed, 0 failed$", verified, re.MULTILINE), verified
        assert self.containers() == containers
        self.checked += ["a second apply changes nothing", "drift 0", "verify passes"]

    def costs(self) -> None:
        """What the role costs a run without changes: `plan` of all roles, and of all others, in turns."""
        others = [word for role in ROLES if role != "serving" for word in ("--only", role)]
        seconds: dict[str, list[float]] = {"plan, median": [], "plan of the other roles, median": []}
        for _ in range(COST_ROUNDS):
            for name, words in zip(seconds, ([], others), strict=True):
                begun = time.monotonic()
                assert IN_SYNC.search(self.sparkrack("plan", *words))
                seconds[name].append(time.monotonic() - begun)
        self.seconds |= {name: round(statistics.median(values), 2) for name, values in seconds.items()}

    def switch_waits(self) -> None:
        """A change of the switch that bounces all ports is refused while the unit runs, by its nodes' own answer."""
        file = self.rack.paths.rack
        text, before = file.read_text(), self.containers()
        for name in self.declared.switches:
            file.write_text(re.sub(rf"^  {name}:\n", r"\g<0>    l2mtu: 9400\n", text, count=1, flags=re.MULTILINE))
            refused = self.sparkrack("apply", "-y", code=1)
            nodes = ", ".join(self.rack.nodes)
            assert f"runs, and {nodes} would be cut off from {name}; run `sparkrack serve stop" in refused, refused
            file.write_text(text)
            assert self.containers() == before
            self.checked.append("a change of the switch below the unit is refused")

    def restarts(self) -> None:
        """`restart`, then `recreate` with a rack file that asks for one more sequence."""
        before = self.containers()
        with self.phase("restart"):
            self.sparkrack("serve", "restart", self.unit.name)
        between = self.containers()
        assert not set(before) & set(between), "a container was not replaced"
        file = self.rack.paths.rack
        wanted = self.unit.sequences + 1
        yaml = YAML()
        yaml.preserve_quotes, yaml.width = True, 200
        data = yaml.load(file.read_text())
        data["serving"]["units"][self.unit.name]["sequences"] = wanted  # an example may leave it to the default
        with file.open("w") as out:
            yaml.dump(data, out)
        refused = self.sparkrack("apply", "-y", code=1)
        assert f"run `sparkrack serve recreate {self.unit.name}`" in refused, refused
        assert self.containers() == between, "a refused run touched the unit"
        with self.phase("recreate"):
            self.sparkrack("serve", "recreate", self.unit.name)
        inspect = f"docker inspect -f '{{{{json .Args}}}}' sparkrack-{self.unit.name}"
        assert f'"{wanted}"' in self.rack.ssh(self.head, inspect)
        assert "4" in self.complete()
        self.sparkrack("verify", "--only", "serving")
        self.checked += ["a changed unit is refused by apply, and recreated"]

    def stops(self) -> None:
        """`stop` leaves nothing on any node."""
        with self.phase("stop"):
            self.sparkrack("serve", "stop", self.unit.name)
        ports = " or ".join(f"sport = :{port}" for port in (self.unit.api.port, MASTER_PORT, RAY_PORT))
        script = (
            f"docker ps --all --quiet; ss -Hltn '{ports}'; ls -A /dev/shm; "
            f"find /sys/fs/cgroup/sparkrack.slice -name 'docker-*'; docker volume ls --quiet"
        )
        for node in self.rack.nodes:
            left = self.rack.ssh(node, script)
            assert left == "", f"{node}: {left}"
        self.checked += ["stop leaves no container, port, shared memory, control group or volume"]


@contextmanager
def walk(example: ServedExample, folder: Path) -> Iterator[tuple[ExampleWalk, Path, list[str]]]:
    """An example, its rack file for the lab and what was changed in it. The lab is gone afterwards."""
    found = ExampleWalk(example, folder)
    with TemporaryDirectory() as models:
        text, changes = lab_text(example, Path(models))
        file = Path(models) / "rack.yaml"
        file.write_text(text)
        found.rack.lab("down")
        try:
            yield found, file, changes
        finally:
            if "KEEP" not in os.environ:
                found.rack.lab("down")


def run(example: ServedExample, quick: bool) -> Iterator[dict[str, Any]]:
    """Run an example, and yield its record after each part: what was reached, should a later one fail."""
    with walk(example, REPOSITORY / ".lab-examples") as (found, file, changes):
        print(f"{example.file}:", *(f"  {line}" for line in changes), sep="\n", flush=True)
        loads = [os.getloadavg()[0]]
        found.to_first_completion(file)
        costs = () if quick else (found.costs,)
        for part in (found.runs_undisturbed, *costs, found.switch_waits, found.restarts, found.stops, None):
            loads.append(os.getloadavg()[0])
            yield {
                "date": datetime.now(UTC).date().isoformat(),
                "nodes": len(found.rack.nodes),
                "engine": f"{found.unit.engine} {found.unit.version}",
                "seconds": found.seconds,
                "roles": found.roles,
                "checked": found.checked,
                "changes": changes,
                "cores": os.cpu_count(),
                "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
                "machine": platform.machine(),
                "load": [round(min(loads), 1), round(max(loads), 1)],
            }
            if part:
                part()


def page(record: dict[str, Any]) -> str:
    """Return what the page shows of the record: a table with a column for each example, then the conditions."""
    rows = {"nodes": "nodes", "engine": "engine"}
    phases = list(dict.fromkeys(phase for one in record.values() for phase in one["seconds"]))
    roles = list(dict.fromkeys(role for one in record.values() for role in one["roles"]))
    lines = ["", f"| | {' | '.join(record)} |", f"| --- |{' --: |' * len(record)}"]
    lines += [f"| {title} | {' | '.join(str(one[key]) for one in record.values())} |" for key, title in rows.items()]
    for title, kind, names in (("", "seconds", phases), ("role ", "roles", roles)):
        for name in names:
            cells = (one[kind].get(name) for one in record.values())
            lines.append(f"| {title}{name} | {' | '.join('-' if cell is None else f'{cell:.1f}' for cell in cells)} |")
    for name, one in record.items():
        low, high = one["load"]
        lines += ["", f"## {name}", ""]
        lines.append(
            f"{one['date']}, {one['cores']} cores ({one['machine']}), {one['memory_gib']} GiB, shared with other work: "
            f"load {low} to {high}. Checked: {', '.join(one['checked'])}."
        )
        lines += ["", "Changed for the lab:", "", *(f"- {change}" for change in one["changes"])]
    return "\n".join([*lines, "", ""])


def write(name: str, reached: dict[str, Any]) -> None:
    """Replace an example in the record, and write the page."""
    record = {**(json.loads(RECORD.read_text()) if RECORD.exists() else {}), name: reached}
    record = {key: record[key] for key in EXAMPLES if key in record}
    RECORD.write_text(json.dumps(record, indent=1) + "\n")
    before, _, after = PAGE.read_text().partition(BEGIN)
    PAGE.write_text(f"{before}{BEGIN}{page(record)}{END}{after.partition(END)[2]}")


def main(words: Sequence[str]) -> None:
    """Run the examples, and write the record and the page."""
    quick = "--quick" in words
    for name in [word for word in words if word != "--quick"] or EXAMPLES:
        for reached in run(EXAMPLES[name], quick):
            write(name, reached)


if __name__ == "__main__":
    main(sys.argv[1:])
