#!/usr/bin/python3
"""The gate of a rank: whether this node can run it now.

    serve_start_gate.py /etc/sparkrack/serve/NAME.gate.json [--together] [--anyway]

It prints "NODE: ready", with remarks behind a `;`, and ends with 0, or it prints one reason, with the figure and the
remedy, and ends with 1. A question that is not answered is such a reason. It changes nothing but the cache of files,
which memory-gate drops, and the records of serve_rdma_check.py. The agents run it on all nodes at the same time
(--together) before any rank starts, and each rank's service runs it again. What serve_start.py asks is asked together
only; with --anyway a fault of the driver that lasts until the next boot does not count.

Standard library only, Python 3.10 or later. Fields of the file; each check runs only where its field is not null:

    node, unit   names, for the messages
    slot         of the unit: no other one of it runs on this node
    guard        unit of systemd that ends containers when memory runs short
    image        {"name", "id"}
    container    {"name", "docker", "image", "looks"}: the container that serve_start.py runs; "shell"
                 where it is not known whether its image has Python
    model        {"name", "folder", "files": {path: bytes}}
    also         [further models, in the form of model]
    files        {folder: {path: sha256}}: files that the container mounts; the folder has these and no other
    ports        {port: what listens there}: no process may listen there yet
    cache        {"folder", "bytes"}: so much of the disk is free, or is used by the folder
    gids         file with the environment of the fabric, whose NCCL_IB_HCA names the RDMA devices
    echoes       [{"peer", "device", "address", "mtu"}, ...]: packets of full size reach the peer
    proof        what serve_rdma_check.py reads: RDMA over each half was measured since its last change of carrier
    time         true: the clock is synchronized
    memory       {"share", "add"}: share of all memory, and bytes beside it; or {"bytes"}: what the unit takes;
                 "floor": bytes that must be left

The gates of several units of a node measure it one after the other, and count what the others that load have not taken
yet: serve_other_units.py.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import stat
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from serve_gate_command import GateCommand, GateError, answer, remedy, run
from serve_other_units import OtherUnits
from serve_rdma_check import RdmaProof
from serve_start import StartChecks
from serve_unit import line

MEMORY_WAIT = 60
"""Seconds that memory-gate waits: memory of a stopped CUDA program was freed within 60 s (reported)."""
SYNC_LIMIT = 60.0
"""Seconds for writing cached files back, before memory-gate begins to wait."""
TIME_WAIT = 30.0
"""Seconds that the clock may take to be synchronized."""
ECHOES = 3
HEADERS = 28
"""Bytes of the headers of IPv4 and ICMP."""
LOWEST_CLOCK = 1000
"""MHz. Some GB10 stay between 500 and 850 MHz under load until their power supply is disconnected (reported)."""
GIB = 1 << 30


class Gate:
    """The checks of one node. `folder`: of the files of all its gates. `root`: the folder that stands for /, in
    tests."""

    def __init__(self, wanted: dict[str, Any], folder: Path, root: str) -> None:
        self.wanted, self.root = wanted, root.rstrip("/")
        self.others = OtherUnits(str(wanted["unit"]), wanted["slot"], folder, self.place)
        self.unit = str(wanted["unit"])
        self.environment: list[str] = []
        """Of the image."""

    def check(self, together: bool = False, anyway: bool = False) -> list[str]:
        """Run all checks: those that only read come first. Raises GateError for the first that fails.

        Args:
            together: the gates of all nodes of the unit run now, and measure RDMA where it is not proven.
            anyway: what a failure of the driver since the boot has left is not a reason to refuse.

        Returns remarks: what could not be asked, or does not refuse the rank.
        """
        start = StartChecks(self.place)
        self.leftover_container()
        self.others.check_slot()
        checks: dict[str, Callable[[Any], None]] = {
            "guard": self.guard,
            "image": self.image,
            "model": self.model,
            "also": self.also,
            "files": self.files,
            "ports": self.ports,
            "cache": self.cache,
            "gids": self.gids,
        }
        for name, one in checks.items():
            if self.wanted[name] is not None:
                one(self.wanted[name])
        if together and not anyway:
            start.check_kernel_log()
        self.echoes(self.wanted["echoes"])
        if self.wanted["proof"] is not None:
            names = str(self.wanted["node"]), self.unit
            alone = self.others.one_gate_at_a_time
            RdmaProof(names, self.wanted["proof"], self.place, self.listening, alone).check(together)
        if self.wanted["time"]:
            self.time()
        with self.others.one_gate_at_a_time():
            # Here, since the look of another unit's gate at CUDA is a process that uses the GPU, too.
            self.gpu()
            if together:
                start.check_container(self.wanted["container"])
            wanted = self.memory(self.wanted["memory"])
            if together:
                start.check_cuda(self.environment, anyway)
                self.others.note_start(self.available(), wanted)
        return start.remarks

    def place(self, path: str) -> str:
        """Return a path of the node, below the folder that stands for /."""
        return self.root + path

    def read(self, path: str) -> str:
        """Return the text of a file. Raises GateError when it cannot be read."""
        try:
            return Path(self.place(path)).read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise GateError(f"{path} cannot be read: {error.strerror}; run `sparkrack apply`") from None

    def leftover_container(self) -> None:
        """No container of the unit is left."""
        name = f"sparkrack-{self.unit}"
        found = answer("docker", "ps", "--all", f"--filter=name=^/?{name}$", "--format={{.State}}")
        if found:
            raise GateError(f"container {name} is left ({line(found, 40)}); remove it: `docker rm -f {name}`")

    def guard(self, unit: str) -> None:
        """The guard of memory runs."""
        _, state, errors = run("systemctl", "is-active", unit)
        if state != "active":
            shown = line(state or errors or "unknown", 80)
            raise GateError(f"{unit} does not run ({shown}); start it: `systemctl start {unit}`")

    def image(self, image: dict[str, str]) -> None:
        """Docker has the image, by its ID."""
        words = ("docker", "image", "inspect", "--format={{.Id}} {{json .Config.Env}}", image["id"])
        code, answered, errors = run(*words)
        found, _, environment = answered.partition(" ")
        if code and "no such image" not in errors.lower():
            raise GateError(f"`docker image` ends with {code}: {line(errors, 160)}; {remedy('docker')}")
        if code or found != image["id"]:
            short = image["id"].removeprefix("sha256:")[:12]
            raise GateError(f"image {short} of {image['name']} is missing; run `sparkrack apply --only images`")
        self.environment = json.loads(environment or "null") or []

    def model(self, model: dict[str, Any]) -> None:
        """Each file of the model has its size. Their contents are the business of the role models."""
        wrong = []
        for path, size in model["files"].items():
            full = f"{model['folder']}/{path}"
            try:
                found = os.lstat(self.place(full))
            except OSError as error:
                wrong.append(f"{full}: {error.strerror}")
                continue
            if not stat.S_ISREG(found.st_mode):
                wrong.append(f"{full}: not a regular file")
            elif found.st_size != size:
                wrong.append(f"{full} has {found.st_size} of {size} bytes")
        if wrong:
            raise GateError(
                f"{len(wrong)} of {len(model['files'])} files of model {model['name']} are wrong: {line(wrong[0], 120)}"
                "; run `sparkrack apply --only models`"
            )

    def also(self, models: list[dict[str, Any]]) -> None:
        """The same of each further model."""
        for one in models:
            self.model(one)

    def files(self, folders: dict[str, dict[str, str]]) -> None:
        """The files that the container mounts are those of rack.yaml, by their content, and no other is among them."""
        for folder, wanted in folders.items():
            top, found = Path(self.place(folder)), dict[str, str]()
            for path in top.rglob("*"):
                if path.is_symlink() or not path.is_dir():
                    found[str(path.relative_to(top))] = _hash_file(path)
            differing = sorted(name for name in {*found, *wanted} if found.get(name) != wanted.get(name))
            if differing:
                first = differing[0]
                what = "is not one of the unit's" if first not in wanted else "is not the one beside rack.yaml"
                what = what if first in found else "is missing"
                raise GateError(f"{line(f'{folder}/{first}', 160)} {what}; run `sparkrack apply --only serving`")

    def listening(self) -> set[int]:
        """Return the TCP ports on which a process listens. Raises GateError when the kernel does not report them."""
        listening = set()
        for table in ("/proc/net/tcp", "/proc/net/tcp6"):
            if table.endswith("6") and not Path(self.place(table)).exists():
                continue  # a kernel without IPv6
            for row in self.read(table).splitlines()[1:]:
                fields = row.split()
                if len(fields) < 4 or not re.fullmatch(r"[0-9A-F]+:[0-9A-F]{4}", fields[1]):
                    raise GateError(f"{table}: unexpected line {line(repr(row), 60)}; look at `ss -ltn`")
                if fields[3] == "0A":
                    listening.add(int(fields[1].rpartition(":")[2], 16))
        return listening

    def ports(self, ports: dict[str, str]) -> None:
        """No process listens on a port of the unit."""
        listening = self.listening()
        for port, use in ports.items():
            if int(port) in listening:
                raise GateError(
                    f"a process listens on port {port}, which is {use}; end it: `ss -ltnp 'sport = :{port}'` names it"
                )

    def cache(self, cache: dict[str, Any]) -> None:
        """The disk has room for the compile cache."""
        folder = Path(self.place(cache["folder"]))
        there = next(one for one in (folder, *folder.parents) if one.exists())
        try:
            disk = os.statvfs(there)
            used = sum(
                os.lstat(f"{path}/{name}").st_blocks * 512 for path, _, names in os.walk(folder) for name in names
            )
        except OSError as error:
            raise GateError(f"{cache['folder']} cannot be read: {error.strerror}; look at `df`") from None
        room = disk.f_bavail * disk.f_frsize + used
        if room < cache["bytes"]:
            raise GateError(
                f"the disk of {cache['folder']} has room for {room / GIB:.1f} GiB, cache is {cache['bytes'] / GIB:.1f}"
                f"; remove files, such as caches of previous images in {Path(cache['folder']).parent}, or write a "
                "smaller cache, or cache: none"
            )

    def gids(self, environment: str) -> None:
        """Each RDMA device that NCCL uses has the GID of its address."""
        values = re.findall(r"^NCCL_IB_HCA==?(.*)$", self.read(environment), re.MULTILINE)
        devices = [name.partition(":")[0] for value in values for name in value.split(",") if name]
        if not devices:
            raise GateError(f"{environment} names no RDMA device; run `sparkrack apply --only rdma`")
        for device in devices:
            code, found, errors = run(self.place("/usr/local/lib/sparkrack/gid-index"), device)
            if code or not found.isdigit():
                shown = line(errors or found or "no answer", 160)
                raise GateError(f"{device} has no usable GID: {shown}; run `sparkrack verify` for this node")

    def gpu(self) -> None:
        """No process but those of other units computes on the GPU, and its clock is not stuck."""
        found = answer("nvidia-smi", "--query-compute-apps=pid,process_name", "--format=csv,noheader")
        if found:
            known = {str(pid) for pid in self.others.processes()}
            processes = [row for row in found.splitlines() if row.partition(",")[0].strip() not in known]
            if processes:
                count = len(processes)
                raise GateError(
                    f"{count} {'process uses' if count == 1 else 'processes use'} the GPU: "
                    f"{line(processes[0], 80)}; end it"
                )
        fields = "--query-gpu=pstate,clocks.sm,clocks_event_reasons.gpu_idle"
        rows = answer("nvidia-smi", fields, "--format=csv,noheader,nounits").splitlines()
        if not rows:
            raise GateError("nvidia-smi shows no GPU; restart the node")
        for row in rows:
            state, clock, idle = [*(part.strip() for part in row.split(",")), "", ""][:3]
            # An idle GPU lowers its clock, and not always its state: an H200 (580.159.04) idles at 345 MHz in P0.
            if state == "P0" and clock.isdigit() and int(clock) < LOWEST_CLOCK and idle != "Active":
                raise GateError(
                    f"the GPU runs at {clock} MHz in state P0 and is not idle, at least {LOWEST_CLOCK} are expected; "
                    "shut the node down and disconnect its power supply for 5 minutes"
                )
            if not re.fullmatch(r"P\d+", state) and "N/A" not in state and "Not Supported" not in state:
                raise GateError(f"nvidia-smi shows {line(repr(row), 60)} for state and clock; restart the node")

    def echoes(self, echoes: list[dict[str, Any]]) -> None:
        """Packets of full size, which nothing may fragment, reach each peer over each half. All are sent at once."""
        running: list[tuple[dict[str, Any], GateCommand]] = []
        try:
            for one in echoes:
                words = ["ping", "-4", "-n", "-q", "-c", str(ECHOES), "-i", "0.3", "-W", "2", "-M", "do"]
                words += ["-s", str(one["mtu"] - HEADERS), "-I", one["device"], one["address"]]
                running.append((one, GateCommand(*words)))
            for one, question in running:
                code, _, errors = question.answer()
                if code:
                    shown = f": {line(errors, 80)}" if errors else ""
                    raise GateError(
                        f"no echo of {one['mtu']} bytes over {one['device']} to {one['peer']} ({one['address']}){shown}"
                        "; `sparkrack verify` names the cause: cable, MTU of the switch, or a node that does not run"
                    )
        finally:
            for _, question in running:
                question.end()

    def time(self) -> None:
        """The clock is synchronized. After a boot that takes some seconds."""
        words = ("timedatectl", "show", "--property=NTPSynchronized", "--value")
        until = time.monotonic() + TIME_WAIT
        while (state := answer(*words)) != "yes":
            if time.monotonic() >= until:
                raise GateError(
                    f"the clock is not synchronized (NTPSynchronized is {line(repr(state), 20)}) after {TIME_WAIT:g} s"
                    "; `timedatectl timesync-status` or `chronyc sources` names the cause"
                )
            time.sleep(1)

    def memory(self, memory: dict[str, Any]) -> int:
        """So much memory is available, once cached files are dropped, and less what units that load have not taken
        yet. Returns the bytes that the unit takes."""
        wanted = int(memory.get("bytes", 0))
        if "share" in memory:
            wanted = int(memory["share"] * self.meminfo("MemTotal")) + memory["add"]
        pending, loading = self.others.not_taken_yet(self.available())
        needed = wanted + memory["floor"] + pending
        amount = f"{-(-needed // (1 << 20))}M"
        program = self.place("/usr/local/lib/sparkrack/memory-gate")
        code, found, errors = run(program, amount, "--seconds", str(MEMORY_WAIT), limit=MEMORY_WAIT + SYNC_LIMIT)
        if code:
            shown = line(errors or found or f"memory-gate ends with {code}", 160)
            if loading:
                shown += f", of which {', '.join(loading)}, which load here, have not taken {pending / GIB:.1f} GiB yet"
            raise GateError(
                f"{shown}; end what holds memory (`docker ps`, `ps -e --sort=-rss`), or lower the memory of unit "
                f"{self.unit} in rack.yaml"
            )
        return wanted

    def available(self) -> int:
        """Return the bytes that are available."""
        return self.meminfo("MemAvailable")

    def meminfo(self, name: str) -> int:
        """Return the bytes of a row of /proc/meminfo. Raises GateError without it."""
        found = re.search(rf"^{name}: +(\d+) kB$", self.read("/proc/meminfo"), re.MULTILINE)
        if not found:
            raise GateError(f"/proc/meminfo has no {name}; look at `free`")
        return int(found[1]) * 1024


def load(path: str) -> dict[str, Any]:
    """Read the file of the gate. Raises GateError when it is missing or wrong."""
    try:
        with Path(path).open(encoding="utf-8") as file:
            found = json.load(file)
    except OSError as error:
        raise GateError(f"{path} cannot be read: {error.strerror}; run `sparkrack apply`") from None
    except ValueError:
        raise GateError(f"{path} is not JSON; run `sparkrack apply`") from None
    fields = {"node", "unit", "guard", "image", "container", "model", "ports", "cache", "gids", "echoes", "proof"}
    fields |= {"time", "memory", "also", "files", "slot"}
    if not isinstance(found, dict) or found.keys() != fields:
        raise GateError(f"{path} is not what this program reads; run `sparkrack apply`")
    return found


def _hash_file(path: Path) -> str:
    """Return the hash of a regular file; of anything else, and of one that cannot be read, a text that is none."""
    try:
        if stat.S_ISREG(os.lstat(path).st_mode):
            return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError as error:
        return str(error.strerror)
    return "not a regular file"


def check_whole(mark: Path) -> None:
    """Raise GateError when a change of the unit's files was interrupted, on this node or on another one of the unit."""
    if mark.exists():
        raise GateError(f"{mark} is there: a change of its files was not finished; run `sparkrack apply`")


def main(words: Sequence[str]) -> int:
    """Run the program. Returns its exit code."""
    parser = argparse.ArgumentParser(prog="serve-gate", description="Whether this node can run its rank of a unit now.")
    parser.add_argument("file", metavar="FILE")
    parser.add_argument("--root", metavar="FOLDER", default="/", help="stands for / in tests; default: %(default)s")
    parser.add_argument("--together", action="store_true", help="all gates of the unit run now: measure RDMA if needed")
    parser.add_argument("--anyway", action="store_true", help="also where the driver failed since the boot")
    given = parser.parse_args(words)
    node = f"{os.uname().nodename}: "
    try:
        wanted = load(given.file)
        node = f"{wanted['node']}: "
        check_whole(Path(given.file).with_name(f"{wanted['unit']}.pending"))
        remarks = Gate(wanted, Path(given.file).parent, given.root).check(given.together, given.anyway)
    except GateError as refusal:
        print(line(f"{node}{refusal}"))
        return 1
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        print(line(f"{node}{given.file} is not what this program reads ({error!r}); run `sparkrack apply`"))
        return 1
    print(line("; ".join((f"{node}ready", *remarks))))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
