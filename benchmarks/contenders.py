"""The compared tools: their commands, and their reported changes."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks import BenchError
from benchmarks.fixture import BenchmarkFixture

HERE = Path(__file__).parent
BIN = Path(sys.executable).parent
FORKS = 40
"""Hosts at a time, for all: what pyinfra takes on two cores."""


@dataclass(frozen=True)
class Tool:
    """One tool that reaches the desired state, or a part of the work.

    `changed` parses the number of changed hosts from the output of the command, None where it does not report it.
    `brings`: it can begin with a factory-fresh target; otherwise it is measured after the tool that it names. `ends`:
    its exit codes where it did its work. `asks_alike`: without changes it asks a host nothing, or what others of them
    ask.
    """

    name: str
    title: str
    command: Callable[[BenchmarkFixture], list[str]]
    changed: Callable[[str], int | None]
    brings: bool = True
    after: str = "sparkrack"
    ends: frozenset[int] = frozenset({0})
    asks_alike: bool = False


def environment(place: BenchmarkFixture) -> dict[str, str]:
    """Return the environment of every command, without the user's own."""
    return {
        "PATH": f"{BIN}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": str(place.folder / "home"),
        "LC_ALL": "C.UTF-8",
        "COLUMNS": "200",
        "RACK": str(place.folder / "rack.yaml"),
        "BENCH_SWITCH": "not used: no switch is asked",
        "BENCH_WORK": str(place.folder),
        "ANSIBLE_CONFIG": str(HERE / "ansible/ansible.cfg"),
        "ANSIBLE_FORKS": str(min(FORKS, place.count)),
        "ANSIBLE_HOME": str(place.folder / "home/.ansible"),
        "ANSIBLE_SSH_CONTROL_PATH_DIR": str(place.folder / "control"),
        "ANSIBLE_NOCOLOR": "1",
    }


def _pyinfra_command(inventory: str, deploy: str, *words: str) -> Callable[[BenchmarkFixture], list[str]]:
    return lambda _: [str(BIN / "pyinfra"), inventory, deploy, "-y", *words]


def _sparkrack_command(*words: str) -> Callable[[BenchmarkFixture], list[str]]:
    def command(place: BenchmarkFixture) -> list[str]:
        left_out = [f"--exclude={name}" for name in place.rack.switches]
        return [sys.executable, str(HERE / "run_sparkrack.py"), *words, *left_out]

    return command


def _ansible_command(place: BenchmarkFixture) -> list[str]:
    program = str(place.others / "ansible-playbook")
    return [program, "-i", str(place.folder / "inventory.json"), str(HERE / "ansible/playbook.yml")]


def _mitogen_command(place: BenchmarkFixture) -> list[str]:
    plugins = next(place.others.parent.glob("lib/python*/site-packages/ansible_mitogen/plugins/strategy"))
    settings = ["ANSIBLE_STRATEGY=mitogen_linear", f"ANSIBLE_STRATEGY_PLUGINS={plugins}"]
    return ["env", *settings, *_ansible_command(place)]


def _ssh_command(place: BenchmarkFixture) -> list[str]:
    ssh = f"ssh -F {place.folder}/ssh_config"
    return ["xargs", f"-P{FORKS}", "-n1", "-a", str(place.folder / "addresses"), "sh", "-c", f'exec {ssh} "$0" true']


def recap(output: str) -> int:
    """Parse the number of hosts that Ansible changed. Raises BenchError when one failed or there is no recap."""
    lines = re.findall(r"^(\S+)\s+: ok=\d+ +changed=(\d+) +unreachable=(\d+) +failed=(\d+)", output, re.MULTILINE)
    if not lines or any(unreachable != "0" or failed != "0" for _, _, unreachable, failed in lines):
        raise BenchError(f"Ansible failed:\n{output[-1500:]}")
    return sum(changed != "0" for _, changed, _, _ in lines)


def results(output: str) -> int:
    """Parse the number of operations that pyinfra executed on a host, from its table of results. Raises BenchError
    without one.
    """
    found = re.search(r"^ +Grand total +\d+ +(\d+|-) +(\d+|-) +(\d+|-) *$", output, re.MULTILINE)
    if not found or found[2] != "-":
        raise BenchError(f"pyinfra failed:\n{output[-1500:]}")
    return 0 if found[1] == "-" else int(found[1])


def applied(output: str) -> int:
    """Parse the number of hosts that `sparkrack apply` changed. Raises BenchError when it is missing."""
    if re.search(r"^nothing to do$", output, re.MULTILINE):
        return 0
    found = re.findall(r"^\S+: (?:(\d+) operations? changed it|nothing was changed)$", output, re.MULTILINE)
    if not found or not re.search(r"^done; ", output, re.MULTILINE):
        raise BenchError(f"sparkrack apply failed:\n{output[-1500:]}")
    return sum(bool(count) for count in found)


def nothing(output: str) -> None:
    """Parse the output of a command that changes nothing and reports no number."""


STOCK = str(HERE / "stock")
VERIFIED = ("--only", "access", "--only", "memory", "--only", "rdma")
"""The roles of the bench's deploy file."""
TOOLS = (
    Tool(
        "sparkrack",
        "sparkrack, by pyinfra deploy.py",
        _pyinfra_command("inventory.py", "benchmarks/deploy.py", "--limit", "nodes"),
        results,
        asks_alike=True,
    ),
    Tool("apply", "sparkrack apply -y", _sparkrack_command("apply", "-y"), applied),
    Tool("plan", "sparkrack plan", _sparkrack_command("plan"), nothing, brings=False, asks_alike=True),
    Tool("drift", "sparkrack drift", _sparkrack_command("drift"), nothing, brings=False, asks_alike=True),
    # A target has no fabric, systemd or GPU, so that both find faults, which they report as on any node.
    Tool("status", "sparkrack status", _sparkrack_command("status"), nothing, brings=False, ends=frozenset({0, 1, 2})),
    Tool(
        "verify",
        "sparkrack verify",
        _sparkrack_command("verify", *VERIFIED),
        nothing,
        brings=False,
        ends=frozenset({2}),
    ),
    Tool("stock", "stock pyinfra operations", _pyinfra_command(f"{STOCK}/inventory.py", f"{STOCK}/deploy.py"), results),
    Tool("mitogen", "Ansible with mitogen", _mitogen_command, recap),
    Tool("ansible", "Ansible with pipelining", _ansible_command, recap),
    Tool(
        "connect",
        "pyinfra, connect only",
        _pyinfra_command("inventory.py", "benchmarks/connect.py", "--limit", "nodes"),
        nothing,
        brings=False,
        asks_alike=True,
    ),
    Tool("ssh", "ssh true, in parallel", _ssh_command, nothing, brings=False),
)
