"""Nodes whose login shell is sick, greets, or speaks another language: a run names them and waits for none."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from core.ops.run_lock import Holder
from tests.contact.nodes import Node, Seed, free_port, start
from tests.generated import REPOSITORY

FINE = ("fine1", "fine2")
SICK = {
    "sleeps": "sleep 1000",
    "babbles": "head -c 20000000 /dev/zero | tr '\\0' x",
    "half": "printf '\\303'; printf '\\303' >&2; head -c 3000000 /dev/zero | tr '\\0' x",
    "endless": "while :; do printf '\\303\\n'; printf '\\303\\n' >&2; sleep 0.01; done",
    "closes-late": "sleep 1000 &",
    "greets": "echo Welcome to spark; echo Welcome >&2; printf 'no end of line'",
}
CAUSES = {
    "sleeps": "no answer within 15 s",
    "babbles": "its output exceeds 8 MiB",
    "endless": "no answer within 15 s",
    "closes-late": "no answer within 15 s",
}
"""The message about each node that cannot be read; the others can be read."""
PLAN = """\
import sparkrack.engine.gevent_patch
from core.ops import host_facts
host_facts.ANSWER_SECONDS = 15
from sparkrack.cli.main import main
main()
"""
"""`sparkrack` with a shorter wait for an answer than the 40 s of a rack."""

OTHER = Holder("20260314T091500-3fa2", "ben@desk", "2026-03-14T09:15:00+00:00", "spark2: memory")


class Ward:
    """One sshd that is all nodes, each under an address of its own: what a login shell does depends on that."""

    def __init__(self, folder: Path, node: Node, port: int) -> None:
        self.folder, self.node, self.port = folder, node, port
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "id"], check=True)
        self.addresses = {name: f"127.0.77.{number}" for number, name in enumerate([*FINE, *SICK], start=101)}
        cases = "".join(f'*" {self.addresses[name]} "*) {what};;\n' for name, what in SICK.items())
        key = (folder / "id.pub").read_text().strip()
        node.ask(
            "useradd --create-home --shell /bin/bash ops; mkdir -m 700 /home/ops/.ssh; "
            f"echo '{key}' > /home/ops/.ssh/authorized_keys; cat > /home/ops/.bashrc <<'END'\n"
            f'case "$SSH_CONNECTION" in\n{cases}esac\nEND\n'
            "chown -R ops: /home/ops; echo 'ops ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/ops; "
            "/usr/sbin/sshd -o MaxStartups=100 -o PerSourcePenalties=no -o PidFile=/run/ward.pid "
            f"{' '.join(f'-o ListenAddress={one}' for one in self.addresses.values())} -p {port}"
        )
        host = node.keys["ssh-ed25519"]
        (folder / "known_hosts").write_text(
            "".join(f"[{one}]:{port} {host.kind} {host.blob}\n" for one in self.addresses.values())
        )

    def rack(self, *names: str) -> Path:
        """A ring of these nodes, or one alone."""
        after = (*names[1:], names[0])
        ports = ["" if len(names) == 1 else f"1: {other}/0" for other in after]
        nodes = "".join(
            f"  {name}: {{address: {self.addresses[name]}, vendor: nvidia, ports: {{{port}}}}}\n"
            for name, port in zip(names, ports, strict=True)
        )
        file = self.folder / "rack.yaml"
        file.write_text(
            f"rack: ward\naccess: {{user: ops, key: {self.folder}/id, known_hosts: known_hosts, port: {self.port}}}\n"
            f"nodes:\n{nodes}fabric: {{pool: 10.100.0.0/16}}\n"
        )
        return file

    def lock(self) -> None:
        """Another run holds the rack."""
        self.node.ask(f"mkdir -p /run/sparkrack; cat > /run/sparkrack/run.lock <<'END'\n{OTHER.text}END")

    def unlock(self) -> None:
        self.node.ask("rm /run/sparkrack/run.lock")

    def run(self, *words: str | Path) -> subprocess.CompletedProcess[str]:
        """A command about the rack. Raises TimeoutExpired: one that waits for a sick node does not end by itself."""
        environment = {**os.environ, "HOME": str(self.folder), "COLUMNS": "300", "RACK": str(self.folder / "rack.yaml")}
        return subprocess.run(
            [Path(sys.executable).parent / words[0], *words[1:]],
            cwd=REPOSITORY,
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=300,
        )


@pytest.fixture(scope="module")
def ward(image: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ward]:
    folder = tmp_path_factory.mktemp("ward")
    port = free_port()
    node = start(image, folder, "spark1", "127.0.77.100", port, Seed())
    try:
        yield Ward(folder, node, port)
    finally:
        node.end()


def test_a_plan_waits_for_no_sick_node_and_names_it(ward: Ward) -> None:
    ward.rack(*FINE, *SICK)
    done = ward.run("python", "-c", PLAN, "plan", "--full")
    assert done.returncode == 1
    assert re.sub(r"^\d+ s: .*\n", "", done.stderr, flags=re.MULTILINE) == ""  # nothing but progress
    reported = _by_machine(done.stdout)
    assert reported.keys() == {*FINE, *SICK}
    for name, text in reported.items():
        if name in CAUSES:
            assert CAUSES[name] in text, name
        else:
            assert "state of the node" not in text, name


@pytest.mark.parametrize("name", ["half", "greets"])
def test_plain_pyinfra_reads_whatever_bytes(ward: Ward, name: str) -> None:
    ward.rack(name)
    done = ward.run("pyinfra", "inventory.py", "deploy.py", "--dry")
    assert "Traceback" not in done.stderr, done.stderr
    assert "state of the node" not in done.stderr


def test_a_shell_that_greets_hides_no_lock(ward: Ward) -> None:
    ward.rack("greets", "fine1")
    ward.lock()
    refused = ward.run("sparkrack", "apply", "-y")
    assert (refused.returncode, refused.stderr) == (1, f"Error: {OTHER.busy}\n")
    wrong = ward.run("sparkrack", "unlock", "20260314T091500-0000")
    assert wrong.stderr == f"Error: {OTHER} holds the rack, not 20260314T091500-0000\n"
    status = json.loads(ward.run("sparkrack", "status", "--json").stdout)
    assert status["lock"]["holder"]["id"] == OTHER.id
    done = ward.run("sparkrack", "unlock", OTHER.id)
    assert (done.returncode, done.stdout) == (0, f"ended the lock of {OTHER}\n")


def test_plain_pyinfra_without_the_head_looks_at_its_lock(ward: Ward) -> None:
    ward.rack("fine1", "fine2")
    words = ("pyinfra", "inventory.py", "deploy.py", "--dry", "--limit", "fine2")
    ward.lock()
    try:
        assert OTHER.busy in ward.run(*words).stderr
    finally:
        ward.unlock()
    free = ward.run(*words).stderr
    assert "the rack is locked by" not in free
    assert "was not looked at" not in free


def _by_machine(shown: str) -> dict[str, str]:
    """What the details of a whole plan say of each machine; the summary before them names alike machines together."""
    reported: dict[str, str] = {}
    for line in shown.partition("\n\n")[2].splitlines()[:-1]:
        if not line.startswith(" "):
            name = line.partition(":")[0]
        reported[name] = reported.get(name, "") + line + "\n"
    return reported
