"""The targets: N sshds, each in namespaces of its own above one common root file system, joined by a bridge.

Runs inside the namespaces of the run (see `runner`): when they end, the kernel ends the processes and removes links and
mounts.
"""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from benchmarks import BenchError
from benchmarks.desired_state import GATEWAY, PREFIX

SCRIPT = Path(__file__).parent / "target.sh"
PATIENCE = 60.0
"""Seconds until all targets answer."""
ANSWER = "/var/tmp/answer"  # noqa: S108 - of a target, which one run has for itself
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Target:
    """One running target."""

    name: str
    address: str
    folder: Path
    outer: subprocess.Popen[bytes]
    pid: int
    """Its process 1, sshd, as the hall numbers it."""

    @property
    def cpu(self) -> float:
        """Seconds that it has used so far: sshd and every process of it that has ended."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / TICKS

    @property
    def sessions(self) -> int:
        """Return the number of commands, or transfers, that were started over ssh so far."""
        return (self.folder / "upper/var/log/sshd.log").read_bytes().count(b"Starting session:")

    def ask(self, script: str) -> str:
        """Return the output of a shell text inside. Raises BenchError when it fails."""
        inside = ["nsenter", f"--target={self.pid}", "--mount", "--net", "--uts", "--pid", "--root", "--wd"]
        done = subprocess.run([*inside, "/bin/sh", "-c", script], capture_output=True, text=True)
        if done.returncode:
            raise BenchError(f"{self.name}: {done.stderr.strip()}")
        return done.stdout


def bridge() -> None:
    """The wire between the operator and the targets. Once in a hall."""
    _run_ip(
        "link set lo up",
        "link add bench0 type bridge",
        f"address add {GATEWAY}/{PREFIX} dev bench0",
        "link set bench0 up",
    )


def start(folder: Path, root: Path, addresses: Mapping[str, str], seed: Callable[[str, Path], None]) -> list[Target]:
    """Factory-fresh targets by name, answering. `seed(name, tree)` puts into `tree` what is a target's own."""
    started = []
    for name, address in addresses.items():
        place = folder / name
        (place / "seed").mkdir(parents=True)
        seed(name, place / "seed")
        names = ["--mount", "--net", "--uts", "--ipc", "--pid", "--fork", "--kill-child"]
        script = ["sh", str(SCRIPT), str(root), str(place), name, f"{address}/{PREFIX}"]
        with (place / "log").open("wb") as log:
            outer = subprocess.Popen(["unshare", *names, *script], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        started.append((name, address, place, outer))
    here = Path("/proc/self/ns/net").stat().st_ino
    until = time.monotonic() + PATIENCE
    for _, _, place, outer in started:
        while Path(f"/proc/{outer.pid}/ns/net").stat().st_ino == here:
            _require_start(place, outer, until)
    _run_ip(
        *(
            line
            for number, (_, _, _, outer) in enumerate(started)
            for line in (
                f"link add port{number} type veth peer name mgmt0 netns {outer.pid}",
                f"link set port{number} master bench0 up",
            )
        )
    )
    for _, address, place, outer in started:
        while not _answers_ssh(address):
            _require_start(place, outer, until)
    inner = _list_children()
    return [Target(name, address, place, outer, inner[outer.pid]) for name, address, place, outer in started]


def record(targets: list[Target]) -> None:
    """Have each target keep what its sudo prints in the next run."""
    for target in targets:
        target.ask("mv /usr/bin/sudo /usr/bin/sudo.real")
        _replace_sudo(target, f'/usr/bin/sudo.real "$@" | tee {ANSWER}')


def answer_from_record(targets: list[Target], seconds: float) -> None:
    """Have sudo of each target print what was kept, after so many seconds in which it uses no CPU. Raises BenchError
    when nothing was kept.
    """
    for target in targets:
        target.ask(f"test -s {ANSWER}")
        _replace_sudo(target, f"sleep {seconds:g}; exec cat {ANSWER}")


def answer_live(targets: list[Target]) -> None:
    """Have the real sudo answer again."""
    for target in targets:
        target.ask("mv /usr/bin/sudo.real /usr/bin/sudo")


def _replace_sudo(target: Target, script: str) -> None:
    target.ask(f"printf '%s\\n' '#!/bin/sh' {shlex.quote(script)} > /usr/bin/sudo; chmod 755 /usr/bin/sudo")


def end(targets: list[Target]) -> None:
    """End them and forget what they wrote."""
    _run_ip(*(f"link delete port{number}" for number in range(len(targets))))
    for target in targets:
        target.outer.kill()  # --kill-child: the kernel ends the rest
    for target in targets:
        target.outer.wait()
        shutil.rmtree(target.folder)


def idle(targets: list[Target]) -> None:
    """Wait until no session is left: only then is all that it used accounted for. Raises BenchError when one stays."""
    until = time.monotonic() + 20
    while busy := {target.pid for target in targets} & _list_children().keys():
        if time.monotonic() > until:
            raise BenchError(f"{len(busy)} targets still have a session")
        time.sleep(0.05)


def _require_start(place: Path, outer: subprocess.Popen[bytes], until: float) -> None:
    if outer.poll() is not None or time.monotonic() > until:
        output = (place / "log").read_text(errors="replace").strip()
        raise BenchError(f"target {place.name} does not start: {output or 'no output'}")
    time.sleep(0.01)


def _answers_ssh(address: str) -> bool:
    try:
        with socket.create_connection((address, 22), timeout=1) as connection:
            return bool(connection.recv(4))
    except OSError:
        return False


def _list_children() -> dict[int, int]:
    """A child of each process that has one."""
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                text = (folder / "stat").read_text()
            except OSError:
                continue  # it has ended
            found[int(text.rpartition(")")[2].split()[1])] = int(folder.name)
    return found


def _run_ip(*lines: str) -> None:
    done = subprocess.run(["ip", "-batch", "-"], input="\n".join(lines), capture_output=True, text=True)
    if done.returncode:
        raise BenchError(f"ip: {done.stderr.strip()}")
