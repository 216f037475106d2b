"""The one network namespace that holds a lab, and what runs in it. Deleting it takes every link along."""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

from lab.errors import LabError

CLONE_NEWNET = 0x40000000


def ip(*arguments: str, namespace: str | None = None, check: bool = True) -> str:
    """Run one `ip` command, inside `namespace` when given. Raises LabError with its error message."""
    command = ["ip", *(["-n", namespace] if namespace else []), *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if check and done.returncode:
        raise LabError(f"{' '.join(command)}: {done.stderr.strip() or f'exit {done.returncode}'}")
    return done.stdout


def exists(namespace: str) -> bool:
    """Return whether the namespace exists."""
    return Path("/run/netns", namespace).exists()


def create(namespace: str) -> None:
    """Make the namespace if it is not there, with its loopback up."""
    if not exists(namespace):
        ip("netns", "add", namespace)
    ip("link", "set", "lo", "up", namespace=namespace)


def links(namespace: str) -> set[str]:
    """The names of the links in the namespace."""
    names = (line.split(":")[1].strip() for line in ip("-o", "link", namespace=namespace).splitlines())
    return {name.split("@")[0] for name in names}


def processes(namespace: str) -> list[int]:
    """The processes that run in the namespace: the lab's own, since it made the namespace."""
    if not exists(namespace):
        return []
    found = ip("netns", "pids", namespace, check=False).split()
    return [int(pid) for pid in found if int(pid) != os.getpid()]


def answers(namespace: str, address: str, port: int, greeting: bool) -> bool:
    """Return whether a server in the namespace accepts a connection there, and with `greeting` also sends first."""
    connection = connected(namespace, address, port)
    if connection is None:
        return False
    with connection:
        try:
            return not greeting or bool(connection.recv(1))
        except OSError:
            return False


def connected(namespace: str, address: str, port: int) -> socket.socket | None:
    """A connection to something in the namespace; None when nothing accepts it within 2 s, which is its timeout."""
    found: list[socket.socket] = []

    def ask() -> None:
        with Path("/run/netns", namespace).open("rb") as handle:
            # Moves this thread only, and the thread ends here. (os.setns exists from Python 3.12 on.)
            if ctypes.CDLL(None, use_errno=True).setns(handle.fileno(), CLONE_NEWNET):
                raise LabError(f"cannot enter the namespace {namespace}: {os.strerror(ctypes.get_errno())}")
        try:
            found.append(socket.create_connection((address, port), timeout=2))
        except OSError:
            return

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    return found[0] if found else None


def matching(namespace: str, argument: str) -> list[int]:
    """The processes in the namespace that were started with exactly this argument."""
    return [pid for pid in processes(namespace) if argument in _read_arguments(pid)]


def end(pids: list[int], grace: float = 0.0) -> None:
    """End processes: SIGTERM first when `grace` seconds are given, then kill, then wait until they are gone."""
    for number, seconds in ((signal.SIGTERM, grace), (signal.SIGKILL, 10.0)):
        if number == signal.SIGTERM and not grace:
            continue
        for pid in pids:
            try:
                os.kill(pid, number)
            except ProcessLookupError:
                continue
        until = time.monotonic() + seconds
        while (pids := [pid for pid in pids if alive(pid)]) and time.monotonic() < until:
            time.sleep(0.05)
    if pids:
        raise LabError(f"processes {', '.join(map(str, pids))} do not end")


def delete(namespace: str) -> None:
    """End all that runs in the namespace and delete it; its links go with it. Nothing there is fine."""
    for _ in range(5):  # a process may have been about to fork
        pids = processes(namespace)
        if not pids:
            break
        end(pids)
    if exists(namespace):
        ip("netns", "delete", namespace)


def alive(pid: int) -> bool:
    """Return whether a process runs. A zombie does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in ("Z", "X")


def _read_arguments(pid: int) -> list[str]:
    try:
        return os.fsdecode(Path(f"/proc/{pid}/cmdline").read_bytes()).split("\0")
    except (FileNotFoundError, ProcessLookupError):
        return []
