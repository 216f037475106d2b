#!/usr/bin/env python3
"""Run the checkers of other projects on a converged virtual rack, and explain what they report.

scripts/foreign_checkers.py --eugr FOLDER --nvidia FOLDER --sparkrun FOLDER --epappas FOLDER

Each FOLDER is a clone of that project, or its unpacked source package; those that are not given are not run. Exit 1 for
a failure without an explanation in EXPLAINED, or a checker that did not run. `--page` writes the results to
docs/evidence/foreign-checkers.md, `--keep` leaves the virtual rack running.

A checker uses the tools of the nodes and stand-ins for nc, avahi-browse and RDMA devices. Needs root or sudo, as the
virtual rack does, and a package index for sparkrun and ansible-core, which go to virtual environments in a temporary
folder.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from core.model import Rack, addresses_of, load
from lab.image.build import recipe_hash
from lab.layout import Layout
from lab.paths import LabPaths, cache

REPOSITORY = Path(__file__).resolve().parents[1]
FOLDER = REPOSITORY / ".lab-foreign"
PAGE = REPOSITORY / "docs/evidence/foreign-checkers.md"
BEGIN, END = "<!-- recorded: scripts/foreign_checkers.py -->\n", "<!-- end -->\n"
PROGRAM = REPOSITORY / ".venv/bin/sparkrack"
ON_NODE = "/lab/foreign"
"""Where a node sees what stands in `shared/foreign` of its folder of the lab."""

NC = """\
#!/bin/sh
# nc -z -w SECONDS HOST PORT: whether the port accepts a connection. Waits 10 s: a virtual node needs more than 1 s.
exec timeout 10 bash -c ': < "/dev/tcp/$0/$1"' "$4" "$5"
"""
"""Stand-in for netcat, which the nodes of the lab do not have."""
RDMA_DEVICES = REPOSITORY / "scripts/rdma_devices_stand_in"
"""Stand-in for the RDMA devices of a node in /sys, of which the lab has none."""


@dataclass(frozen=True)
class Result:
    """One answer of a checker: `outcome` is ok, failed, warning or skipped."""

    checker: str
    check: str
    node: str
    outcome: str
    detail: str = ""


@dataclass(frozen=True)
class Explanation:
    """Cause of a failure: `lab` (a limit of the virtual rack), `choice` (sparkrack does it in another way, with the
    page that gives the reason) or `scope` (nothing that the rack file declares).
    """

    cause: str
    text: str


class CheckerError(Exception):
    """A checker that did not run as expected, so that it says nothing about the rack."""


INSTALLS = Explanation("scope", "software or a file that the project of the checker installs, and sparkrack does not")
UNDECLARED = Explanation("scope", "the rack file of this run does not declare it")
NO_EARLYOOM = Explanation("choice", "the guard of the role memory ends containers instead; decision 0010")
NO_SOCKET = Explanation("lab", "the nodes run Debian: sshd is started by ssh.service, not by ssh.socket; docs/lab.md")
NO_RUNTIME = Explanation(
    "choice", "the nvidia runtime is registered, docker's default runtime stays; docs/roles/docker.md"
)
NO_SWAPPINESS = Explanation(
    "choice",
    "swap is off instead, vm.swappiness stays; docs/roles/memory.md. In the lab the check does not find sysctl either, "
    "since PATH of a login has no /usr/sbin; docs/lab.md",
)
EXPLAINED: Mapping[tuple[str, str, str], Explanation] = {
    ("sparkrun", "earlyoom", "warning"): NO_EARLYOOM,
    ("sparkrun", "sudoers", "warning"): INSTALLS,
    ("epappas", "CUDA toolkit", "failed"): INSTALLS,
    ("epappas", "docker nvidia runtime", "failed"): NO_RUNTIME,
    ("epappas", "NCCL installed", "failed"): INSTALLS,
    ("epappas", "lockfile applied", "failed"): INSTALLS,
    ("epappas", "torch sees GB10", "failed"): INSTALLS,
    ("epappas", "torch kernel launch", "failed"): INSTALLS,
    ("epappas", "sshd listening", "failed"): NO_SOCKET,
    ("epappas", "mesh vpn", "failed"): INSTALLS,
    ("epappas", "swappiness", "failed"): NO_SWAPPINESS,
    ("epappas", "shell env", "failed"): INSTALLS,
    ("epappas", "vLLM image", "failed"): UNDECLARED,
    ("epappas", "vllm-serve", "failed"): INSTALLS,
    ("epappas", "gx10-status", "failed"): INSTALLS,
    ("epappas", "gx10-interconnect", "failed"): INSTALLS,
    ("epappas", "gx10-top", "failed"): INSTALLS,
    ("epappas", "history sampler", "failed"): INSTALLS,
    ("epappas", "metrics exporter", "failed"): INSTALLS,
    ("epappas", "models cached", "failed"): UNDECLARED,
}
"""Explanation of each failure, warning and skipped check, by checker, check and outcome."""
LAB_HARDWARE = "stand-in: nvidia-smi and uname of the lab"
WEAK: Mapping[tuple[str, str], str] = {
    ("eugr", "RDMA devices"): "stand-in: ibdev2netdev of the lab",
    ("sparkrun", "hardware"): LAB_HARDWARE,
    ("sparkrun", "nvidia_ctk"): "stand-in: package of the lab",
    ("sparkrun", "cx7"): "stand-in: RDMA devices; link, addresses and netplan file are real",
    ("sparkrun", "rdma"): "stand-in: RDMA devices",
    ("epappas", "GPU"): LAB_HARDWARE,
    ("epappas", "RDMA link active"): "stand-in: RDMA devices",
    ("epappas", "RoCE fabric"): "stand-in: RDMA devices",
    ("epappas", "same driver"): LAB_HARDWARE,
    ("epappas", "same kernel"): LAB_HARDWARE,
    ("epappas", "same torch"): "neither node has torch: nothing is compared",
    ("nvidia", "address found"): "stand-in: avahi-browse",
}
"""Checks whose ok says nothing, or only a part of what it would say on hardware, with the reason."""


def call(
    command: list[str], environment: Mapping[str, str] | None = None, seconds: float = 900
) -> subprocess.CompletedProcess[str]:
    """Run a command in the repository; stdout and stderr together. Raises CheckerError when it takes too long."""
    try:
        return subprocess.run(
            command,
            cwd=REPOSITORY,
            env={**os.environ, "SPARKRACK_LAB": str(FOLDER), "NO_COLOR": "1", **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as fault:
        raise CheckerError(f"{shlex.join(command)}: no end after {seconds:.0f} s") from fault


def needed(command: list[str], environment: Mapping[str, str] | None = None, seconds: float = 1800) -> str:
    """Run a command that must succeed; return its output. Raises CheckerError."""
    done = call(command, environment, seconds)
    if done.returncode:
        raise CheckerError(f"{shlex.join(command)}: exit {done.returncode}\n{done.stdout}")
    return done.stdout


@dataclass(frozen=True)
class Bench:
    """The converged virtual rack, and a temporary folder of this run."""

    work: Path
    python: str

    @cached_property
    def rack(self) -> Rack:
        """The rack as its file declares it."""
        return load(self.rack_file)

    @property
    def rack_file(self) -> Path:
        """The lab's rack file, with the section time in addition."""
        return FOLDER / "rack-foreign.yaml"

    @cached_property
    def fabric(self) -> dict[str, list[str]]:
        """The fabric addresses of each node."""
        return {
            name: [str(address.interface.ip) for address in addresses_of(self.rack, name)] for name in self.rack.nodes
        }

    def up(self) -> None:
        """Build the rack, start a time server in its network, and apply. Raises CheckerError."""
        needed([str(PROGRAM), "lab", "down"])
        needed([str(PROGRAM), "lab", "up", "--nodes", "2"])
        text = LabPaths(FOLDER).rack.read_text()
        operator = Layout(load(LabPaths(FOLDER).rack)).operator.ip
        self.rack_file.write_text(f"{text}\ntime: {{ntp: [{operator}], time_zone: Europe/Berlin}}\n")
        self._time_server()
        self.inside([str(PROGRAM), "apply", "-y"])
        drift = call([str(PROGRAM), "lab", "run", "--", str(PROGRAM), "drift"], {"RACK": str(self.rack_file)})
        if drift.returncode:
            raise CheckerError(f"the rack is not converged:\n{drift.stdout}")

    def _time_server(self) -> None:
        """Start chronyd in the lab's network, with the clock of this machine left alone; `lab down` ends it."""
        folder = self.work / "chrony"
        folder.mkdir()
        configuration = folder / "chrony.conf"
        configuration.write_text(f"local stratum 8\nallow\ncmdport 0\nbindcmdaddress /\npidfile {folder / 'pid'}\n")
        chronyd = cache() / "lab" / f"image-{recipe_hash()}" / "tools/usr/sbin/chronyd"
        sudo = [] if os.geteuid() == 0 else ["sudo"]
        enter = [*sudo, "ip", "netns", "exec", LabPaths(FOLDER).namespace]
        with (folder / "output").open("wb") as output:
            subprocess.Popen(
                [*enter, str(chronyd), "-d", "-x", "-u", "root", "-f", str(configuration)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        end = time.monotonic() + 30
        while not (folder / "pid").exists():
            if time.monotonic() > end:
                raise CheckerError(f"the time server did not start:\n{(folder / 'output').read_text()}")
            time.sleep(0.1)

    def inside(self, command: list[str], environment: Mapping[str, str] | None = None) -> str:
        """Run a command of this machine in the lab's network, with RACK; return its output. Raises CheckerError."""
        whole = [str(PROGRAM), "lab", "run", "--", *command]
        return needed(whole, {"RACK": str(self.rack_file), **(environment or {})})

    def on(self, node: str, script: str) -> subprocess.CompletedProcess[str]:
        """Run shell text on a node as its user, with the stand-ins first in PATH."""
        text = f"export PATH={ON_NODE}/bin:$PATH; {script}"
        return call([str(PROGRAM), "lab", "ssh", node, f"bash -c {shlex.quote(text)}"])

    def put(self, node: str, name: str, content: str | Path, *, executable: bool = False) -> None:
        """Put a file, or a copy of a folder, where the node sees it as /lab/foreign/NAME."""
        target = FOLDER / "nodes" / node / "shared/foreign" / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if isinstance(content, str):
            target.write_text(content)
            target.chmod(0o755 if executable else 0o644)
        else:
            copy_tree(content, target)

    @contextmanager
    def rdma_devices(self) -> Iterator[None]:
        """Give the nodes the stand-in for RDMA devices. Raises CheckerError."""
        try:
            for node in self.rack.nodes:
                self.put(node, "bin/rdma-devices", RDMA_DEVICES.read_text(), executable=True)
                done = self.on(node, "sudo env PATH=$PATH:/usr/sbin rdma-devices")
                if done.returncode:
                    raise CheckerError(f"{node} has no stand-in for RDMA devices:\n{done.stdout}")
            yield
        finally:
            for node in self.rack.nodes:
                self.on(node, "sudo umount -R /sys/class; sudo umount -R /run/foreign-class")

    @cached_property
    def ssh(self) -> Path:
        """A folder with an `ssh` that reads a configuration with the lab's key, known hosts and user."""
        access = self.rack.access
        (self.work / "ssh_config").write_text(
            f"Host *\n  User {access.user}\n  IdentityFile {LabPaths(FOLDER).key}\n  IdentitiesOnly yes\n"
            f"  UserKnownHostsFile {LabPaths(FOLDER).known_hosts}\n  StrictHostKeyChecking yes\n"
        )
        folder = self.work / "bin"
        folder.mkdir()
        (folder / "ssh").write_text(f'#!/bin/sh\nexec /usr/bin/ssh -F {self.work / "ssh_config"} "$@"\n')
        (folder / "ssh").chmod(0o755)
        return folder

    def environment(self, name: str, *requirements: str) -> Path:
        """Make a virtual environment with these requirements; return its folder of programs. Raises CheckerError."""
        folder = self.work / name
        needed([self.python, "-m", "venv", str(folder)])
        pretended = {"SETUPTOOLS_SCM_PRETEND_VERSION": "0"}  # a copied tree has no history
        needed([str(folder / "bin/python"), "-m", "pip", "install", "--quiet", *requirements], pretended)
        return folder / "bin"

    def operator_environment(self, programs: Path) -> dict[str, str]:
        """Variables for a checker that runs on the operator's machine: its programs, our ssh, a home of its own."""
        home = self.work / "home"
        home.mkdir(exist_ok=True)
        return {"PATH": f"{programs}:{self.ssh}:{os.environ['PATH']}", "HOME": str(home), "USER": self.rack.access.user}


def copy_tree(source: Path, target: Path) -> None:
    """Copy a clone without its history, so that a checker writes nothing into it."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns(".git"), dirs_exist_ok=True)


def fact(checker: str, check: str, node: str, good: bool, detail: str) -> Result:
    """One result of a check that is either ok or failed."""
    return Result(checker, check, node, "ok" if good else "failed", detail)


def eugr(bench: Bench, clone: Path) -> Iterator[Result]:
    """spark-vllm-docker: `launch-cluster.sh --check-config` on each node."""
    for node in bench.rack.nodes:
        for name in ("launch-cluster.sh", "autodiscover.sh"):
            bench.put(node, f"eugr/{name}", (clone / name).read_text())
        bench.put(node, "bin/nc", NC, executable=True)
        done = bench.on(node, f"bash {ON_NODE}/eugr/launch-cluster.sh --check-config")
        peers = [addresses[0] for name, addresses in bench.fabric.items() if name != node]
        yield from read_eugr(done.stdout, done.returncode, node, bench.fabric[node][0], peers)


def read_eugr(output: str, code: int, node: str, own: str, peers: list[str]) -> Iterator[Result]:
    """Read the output of `--check-config`: what it detected, and whether it is what the rack file declares."""

    def detected(pattern: str) -> list[str]:
        return re.findall(pattern, output, re.MULTILINE)

    devices = detected(r"Detected IB_IF: (\S+)$")
    yield fact("eugr", "RDMA devices", node, [len(found.split(",")) for found in devices] == [2], " ".join(devices))
    interfaces = detected(r"Detected ETH_IF: (\S+)$")
    yield fact("eugr", "Ethernet interface", node, len(interfaces) == 1, " ".join(interfaces))
    addresses = detected(r"Detected Local IP: (\S+)")
    yield fact("eugr", "own address", node, addresses == [own], " ".join(addresses))
    found = detected(r"Found peer: (\S+)$")
    yield fact("eugr", "peers", node, sorted(found) == sorted(peers), " ".join(found))
    logins = detected(r"SSH to (\S+): OK$")
    yield fact("eugr", "login to peers", node, sorted(logins) == sorted(peers), " ".join(logins))
    yield fact("eugr", "exit code", node, code == 0, str(code))


def nvidia(bench: Bench, clone: Path) -> Iterator[Result]:
    """dgx-spark-playbooks: `discover-sparks` on the first node. It adds a shared key to all nodes: run it last."""
    head = next(iter(bench.rack.nodes))
    script = clone / "nvidia/connect-two-sparks/assets/discover-sparks"
    bench.put(head, "nvidia/discover-sparks", script.read_text())
    bench.put(head, "bin/avahi-browse", avahi_browse(bench.rack), executable=True)
    done = bench.on(head, f"bash {ON_NODE}/nvidia/discover-sparks")
    yield from read_nvidia(done.stdout, done.returncode, bench.fabric)
    for node, addresses in bench.fabric.items():
        if node != head:
            words = f"ssh -o BatchMode=yes -o IdentitiesOnly=yes -i ~/.ssh/id_ed25519_shared {addresses[0]} true"
            login = bench.on(head, words)
            yield fact("nvidia", "login with its key", node, login.returncode == 0, login.stdout.strip()[:80])
    drift = call([str(PROGRAM), "lab", "run", "--", str(PROGRAM), "drift"], {"RACK": str(bench.rack_file)})
    listed = drift.stdout.count("(shared-cluster-key)")
    good = drift.returncode == 0 and listed == len(bench.rack.nodes)
    yield fact("nvidia", "drift lists its key", head, good, f"exit {drift.returncode}, {listed} keys")


def avahi_browse(rack: Rack) -> str:
    """Stand-in for avahi-browse, which the nodes of the lab do not have: the ssh services in the fabric."""
    lines = [
        f"=;{address.device};IPv4;{name};_ssh._tcp;local;{name}.local;{address.interface.ip};22;"
        for name in rack.nodes
        for address in addresses_of(rack, name)
    ]
    return "#!/bin/sh\ncat << 'END'\n" + "\n".join(lines) + "\nEND\n"


def read_nvidia(output: str, code: int, fabric: Mapping[str, Iterable[str]]) -> Iterator[Result]:
    """Read the output of discover-sparks: which addresses it found, and on which it set its key up."""
    for node, addresses in fabric.items():
        for check, pattern in (("address found", "Found: {} "), ("key set up", "Successfully configured {} ")):
            missing = [address for address in addresses if pattern.format(address) not in output]
            yield fact("nvidia", check, node, not missing, f"missing: {' '.join(missing)}" if missing else "")
    yield fact("nvidia", "exit code", next(iter(fabric)), code == 0, str(code))


def sparkrun(bench: Bench, clone: Path) -> Iterator[Result]:
    """sparkrun: `setup check` from the operator's machine. Its tree is installed into an environment of its own."""
    tree = bench.work / "sparkrun-tree"
    copy_tree(clone, tree)
    programs = bench.environment("sparkrun", str(tree))
    variables = bench.operator_environment(programs)
    program = str(programs / "sparkrun")
    hosts = ",".join(str(node.address) for node in bench.rack.nodes.values())
    make = ["cluster", "create", "rack", "--hosts", hosts, "--user", bench.rack.access.user, "--default"]
    if call([program, "setup", "check", "--help"], variables).returncode:
        raise CheckerError("this version of sparkrun has no command `setup check`; release 0.4.2 has it")
    bench.inside([program, *make], variables)
    command = [str(PROGRAM), "lab", "run", "--", program, "setup", "check", "--json"]
    with bench.rdma_devices():
        done = call(command, {**variables, "RACK": str(bench.rack_file)})
    names = {str(node.address): name for name, node in bench.rack.nodes.items()}
    yield from read_sparkrun(done.stdout, names)


def read_sparkrun(output: str, names: Mapping[str, str]) -> Iterator[Result]:
    """Read `setup check --json`. Raises CheckerError without a document about each node."""
    begin = output.find("{")
    try:
        answers = json.loads(output[begin:])["results"] if begin >= 0 else {}
    except (ValueError, KeyError) as fault:
        raise CheckerError(f"setup check gave no document:\n{output}") from fault
    words = {"warn": "warning", "fail": "failed", "skip": "skipped", "ok": "ok"}
    for address, name in names.items():
        checks = answers.get(address, {}).get("checks")
        if not checks:
            raise CheckerError(f"setup check says nothing about {name} ({address}):\n{output}")
        for check in checks:
            yield Result("sparkrun", check["key"], name, words.get(check["status"], "failed"), check["detail"])


def epappas(bench: Bench, clone: Path) -> Iterator[Result]:
    """gx10-cluster: verify.yml.

    It compares only the nodes that pass all checks of single nodes, so it runs once more without those.
    """
    tree = bench.work / "epappas"
    copy_tree(clone, tree)
    variables = {
        **bench.operator_environment(bench.environment("ansible", "ansible-core")),
        "ANSIBLE_CONFIG": str(bench.work / "ansible.cfg"),
        "ANSIBLE_NOCOLOR": "1",
    }
    (bench.work / "ansible.cfg").write_text("[defaults]\ninterpreter_python = /usr/bin/python3\nresult_format = json\n")
    hosts = {
        name: {"ansible_host": str(node.address), "ansible_user": bench.rack.access.user, "cluster_rank": rank}
        | {"cluster_index": rank + 1}
        for rank, (name, node) in enumerate(bench.rack.nodes.items())
    }
    inventory = bench.work / "inventory.json"
    inventory.write_text(json.dumps({"gx10": {"hosts": hosts}}))
    command = [str(PROGRAM), "lab", "run", "--", "ansible-playbook", "-i", str(inventory), str(tree / "verify.yml")]
    with bench.rdma_devices():
        done = call(command, variables)
    checks = re.findall(r'^  - name: "(.+)"$', (tree / "vars/verify_checks.yml").read_text(), re.MULTILINE)
    yield from read_epappas(done.stdout, list(bench.rack.nodes), checks)
    compared = call([*command, "--extra-vars", '{"verify_checks": []}'], variables)
    yield from read_comparison(compared.stdout, next(iter(bench.rack.nodes)))


def read_epappas(output: str, nodes: list[str], checks: list[str]) -> Iterator[Result]:
    """Read what the task Report prints for each check. Raises CheckerError if a check of a node is missing."""
    for node in nodes:
        for check in checks:
            name = re.escape(check)
            answer = re.search(
                rf'^ok: \[{node}\] => \(item={name}\) => \{{\s*"msg": "{name} +(ok|FAILED) ?(.*)"$',
                output,
                re.MULTILINE,
            )
            if not answer:
                raise CheckerError(f"verify.yml says nothing about {check} of {node}:\n{output}")
            yield fact("epappas", check, node, answer[1] == "ok", answer[2].strip()[:80])


def read_comparison(output: str, head: str) -> Iterator[Result]:
    """Read the comparison of the nodes, which the first one makes. Raises CheckerError if it did not take place."""
    found = re.findall(rf"^(ok|failed): \[{head}\] => \(item=(driver|kernel|torch)\)", output, re.MULTILINE)
    if len(found) != 3:
        raise CheckerError(f"verify.yml did not compare the nodes:\n{output}")
    for outcome, item in found:
        yield Result("epappas", f"same {item}", head, outcome)


CHECKERS: Mapping[str, Callable[[Bench, Path], Iterator[Result]]] = {
    "eugr": eugr,
    "sparkrun": sparkrun,
    "epappas": epappas,
    "nvidia": nvidia,
}
"""The checkers in the order of a run: the last one changes the nodes."""


def explanation(result: Result) -> Explanation | None:
    """The explanation of a result that is not ok; None where there is none."""
    return EXPLAINED.get((result.checker, result.check, result.outcome))


def rows(results: Iterable[Result]) -> Iterator[tuple[str, str, str, str]]:
    """Table rows: checker, check, result of the nodes, explanation (`known: `, `NEW: `, or what weakens an ok)."""
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        groups.setdefault((result.checker, result.check), []).append(result)
    for (checker, check), found in groups.items():
        alike = len({result.outcome for result in found}) == 1
        shown = found[0].outcome if alike else ", ".join(f"{result.node} {result.outcome}" for result in found)
        new = unexplained(found)
        known = [text for result in found if (text := explanation(result))]
        if new:
            yield checker, check, shown, f"NEW: {new[0].detail or 'no detail'}"
        elif known:
            yield checker, check, shown, f"known: {known[0].cause}: {known[0].text}"
        else:
            yield checker, check, shown, WEAK.get((checker, check), "")


def unexplained(results: Iterable[Result]) -> list[Result]:
    """Each result that is not ok and has no explanation."""
    return [result for result in results if result.outcome != "ok" and not explanation(result)]


def outdated(results: Iterable[Result]) -> list[tuple[str, str, str]]:
    """Each explanation that stands for no result of the checkers that ran."""
    found = {(result.checker, result.check, result.outcome) for result in results}
    ran = {checker for checker, _, _ in found}
    return [key for key in EXPLAINED if key[0] in ran and key not in found]


def counts(results: Iterable[Result]) -> str:
    """Return how many results have each outcome, such as `12 ok, 2 failed`."""
    outcomes = [result.outcome for result in results]
    words = ("ok", "failed", "warning", "skipped")
    return ", ".join(f"{outcomes.count(word)} {word}" for word in words if word in outcomes)


def revision(clone: Path) -> str:
    """The commit of a clone, or the version of an unpacked source package."""
    if (clone / ".git").exists():
        return needed(["git", "-C", str(clone), "rev-parse", "--short=12", "HEAD"]).strip()
    version = re.search(r"^Version: (\S+)$", (clone / "PKG-INFO").read_text(), re.MULTILINE)
    return f"release {version[1]}" if version else "unknown"


def write_page(results: list[Result], clones: Mapping[str, Path]) -> None:
    """Write the recorded part of the page."""
    lines = [
        f"Recorded on {datetime.now(UTC):%Y-%m-%d}.",
        "",
        "| checker | revision | results |",
        "| --- | --- | --- |",
    ]
    for name, clone in clones.items():
        lines.append(f"| {name} | {revision(clone)} | {counts(r for r in results if r.checker == name)} |")
    lines += ["", "| checker | check | result | explanation |", "| --- | --- | --- | --- |"]
    lines += [f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |" for row in rows(results)]
    before, _, after = PAGE.read_text().partition(BEGIN)
    PAGE.write_text("\n".join([f"{before}{BEGIN}", *lines, "", f"{END}{after.partition(END)[2]}"]))


def main() -> None:
    """Run the checkers that are given, and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    for name, checker in CHECKERS.items():
        parser.add_argument(f"--{name}", type=Path, metavar="FOLDER", help=(checker.__doc__ or "").split(".")[0])
    parser.add_argument(
        "--python", default=sys.executable, help="interpreter for sparkrun and ansible-core, 3.12 or later"
    )
    parser.add_argument("--page", action="store_true", help=f"write {PAGE.relative_to(REPOSITORY)}")
    parser.add_argument("--keep", action="store_true", help="leave the virtual rack running")
    options = parser.parse_args()
    clones = {name: getattr(options, name).absolute() for name in CHECKERS if getattr(options, name)}
    if not clones:
        parser.error("no checker is given")
    results: list[Result] = []
    broken: list[str] = []
    with tempfile.TemporaryDirectory() as work:
        bench = Bench(Path(work), options.python)
        try:
            bench.up()
            for name, clone in clones.items():
                print(f"foreign_checkers: {name}", file=sys.stderr)
                try:
                    results += CHECKERS[name](bench, clone)
                except (CheckerError, OSError) as fault:
                    broken.append(f"{name}: {fault}")
        except CheckerError as fault:
            broken.append(str(fault))
        finally:
            if not options.keep:
                call([str(PROGRAM), "lab", "down"])
    for row in rows(results):
        print("\t".join(row))
    for name in clones:
        print(f"{name}: {counts(result for result in results if result.checker == name)}")
    for key in outdated(results):
        print(f"foreign_checkers: {' '.join(key)}: explained, but no longer found: remove it", file=sys.stderr)
    for line in broken:
        print(f"foreign_checkers: {line}", file=sys.stderr)
    if options.page and not broken:
        write_page(results, clones)
    sys.exit(1 if broken or unexplained(results) else 0)


if __name__ == "__main__":
    main()
