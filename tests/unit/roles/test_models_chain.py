"""A chain of nodes: each passes on the bytes of a file while they come; killed, and with wrong bytes, over real ssh."""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from benchmarks.unpacked_sshd import start_sshd, write_configuration
from tests.own_mounts import refused
from tests.unit.ops.shells import calls, stand_in
from tests.unit.roles.models_hub import LocalStore, LoopbackHub, hub_source, model, node_source, serving, sha256

FILES = model()
SENDER = Path(__file__).parents[3] / "roles/models/files/send_files.py"
BIG = "model-00002-of-00004.safetensors"
SIZE = sum(map(len, FILES.values()))
HALF = 100_000
"""Bytes of each answer of the hub before it pauses."""
PASSED_ON = HALF
"""Bytes of them that the last node of a chain has: no node keeps any back."""


@pytest.fixture
def hub() -> Iterator[LoopbackHub]:
    """A hub that stops in the middle of each file of weights until `pause` is set."""
    with serving(LoopbackHub(FILES)) as found:
        found.pause, found.pause_after = threading.Event(), HALF
        yield found


def until(true: Callable[[], bool]) -> None:
    for _ in range(6000):
        if true():
            return
        time.sleep(0.01)
    raise AssertionError("it did not become so within 60 s")


@dataclass(frozen=True)
class RunningFetch:
    """The program on one node, as systemd would run it: the receivers ask for its process by number."""

    store: LocalStore
    process: subprocess.Popen[str]

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.communicate()

    def log(self) -> list[str]:
        output, _ = self.process.communicate(timeout=60)
        assert "Traceback" not in output, output
        return output.splitlines()


def answer_for(node: LocalStore, fetch: RunningFetch) -> None:
    """Let the commands that `node` runs on the other one find the unit of `fetch` there."""
    pid = fetch.process.pid
    active = f'[ "$(cut -d" " -f3 /proc/{pid}/stat 2>/dev/null || echo Z)" != Z ]'
    stand_in(node.root, "systemctl", f'if [ "$1" = show ]; then echo {pid}; else {active}; fi')


def source(fetch: RunningFetch, ssh: list[str]) -> dict[str, Any]:
    return node_source(fetch.store, tuple(ssh))


def received(log: list[str]) -> int:
    return int([line for line in log if line.startswith("sparkrack: at ")][-1].split()[-1])


def part_of(store: LocalStore, path: str = BIG) -> Path:
    return store.folder / f".sparkrack/parts/{sha256(path.encode())[:12]}-{sha256(FILES[path])}"


def begin(store: LocalStore, files: dict[str, bytes], taken_from: Any, small: int = 1000) -> RunningFetch:
    """Start the program. `small`: bytes of a file that comes with others over one connection, one after the other."""
    return RunningFetch(store, store.start(store.job(files, taken_from), BLOCK=10_000, PIECE=10_000, SMALL=small))


def chain(
    tmp_path: Path, hub: LoopbackHub, receivers: int, ssh: Callable[[LocalStore], list[str]], small: int = 1000
) -> list[RunningFetch]:
    """Start a node that fetches from the hub, and receivers of which each takes from the one before it."""
    fetches = [begin(LocalStore(tmp_path / "n0"), FILES, hub_source(hub))]
    for number in range(1, receivers + 1):
        store = LocalStore(tmp_path / f"n{number}")
        answer_for(store, fetches[-1])
        fetches.append(begin(store, FILES, source(fetches[-1], ssh(store)), small))
    return fetches


def stand_in_ssh(_: LocalStore) -> list[str]:
    return ["ssh", "192.168.100.1"]


@contextmanager
def ended(fetches: list[RunningFetch]) -> Iterator[None]:
    """End what a failed test has left running."""
    try:
        yield
    finally:
        for fetch in fetches:
            if fetch.process.poll() is None:
                fetch.kill()


def test_a_node_passes_on_what_it_has_of_a_file_that_is_not_complete(tmp_path: Path, hub: LoopbackHub) -> None:
    assert hub.pause is not None
    fetches = chain(tmp_path, hub, 3, stand_in_ssh)
    with ended(fetches):
        until(lambda: all(sum(fetch.store.parts()) >= 4 * PASSED_ON for fetch in fetches))
        assert all(BIG not in fetch.store.contents() for fetch in fetches), "no file is complete anywhere"
        hub.pause.set()
        logs = [fetch.log() for fetch in fetches]
    assert [log[-1] for log in logs] == ["sparkrack: ended 0"] * 4, logs
    assert all(fetch.store.contents() == FILES and fetch.store.recorded() == set(FILES) for fetch in fetches)
    assert [received(log) for log in logs] == [SIZE] * 4
    assert len(hub.requests) == len(FILES)


def test_wrong_bytes_that_were_passed_on_are_found_on_each_node(tmp_path: Path, hub: LoopbackHub) -> None:
    """The second attempt takes what the other node has checked."""
    assert hub.pause is not None
    first = LocalStore(tmp_path / "n0")
    first.fetch(first.job({BIG: FILES[BIG]}, None))
    part_of(first).write_bytes(bytes([FILES[BIG][0] ^ 1]) + FILES[BIG][1:5000])
    fetches = chain(tmp_path, hub, 2, stand_in_ssh)
    with ended(fetches):
        until(lambda: part_of(fetches[2].store).exists() and part_of(fetches[2].store).stat().st_size > 5000)
        assert part_of(fetches[2].store).read_bytes()[0] == FILES[BIG][0] ^ 1, "it came here as well"
        hub.pause.set()
        logs = [fetch.log() for fetch in fetches]
    assert [log[-1] for log in logs] == ["sparkrack: ended 0"] * 3, logs
    assert all(fetch.store.contents() == FILES for fetch in fetches)


def test_a_node_that_never_has_the_right_bytes_gives_none(tmp_path: Path, hub: LoopbackHub) -> None:
    assert hub.pause is not None
    hub.sends[BIG] = b"x" * len(FILES[BIG])
    fetches = chain(tmp_path, hub, 2, stand_in_ssh)
    with ended(fetches):
        hub.pause.set()
        logs = [fetch.log() for fetch in fetches]
    assert [log[-1] for log in logs] == ["sparkrack: ended 1"] * 3
    assert all(BIG not in fetch.store.contents() for fetch in fetches)
    assert all(
        not part_of(fetch.store).exists() or part_of(fetch.store).stat().st_size < len(FILES[BIG]) for fetch in fetches
    )


def test_a_part_that_is_removed_while_it_is_sent_goes_on_with_the_next_one(tmp_path: Path) -> None:
    """The node that gives a file has dropped what had come, and has fetched it again."""
    store = LocalStore(tmp_path / "n0")
    stand_in(store.root, "systemctl", f'[ "$1" != show ] || echo {os.getpid()}')
    part = store.folder / ".sparkrack/parts/one"
    part.parent.mkdir(parents=True)
    part.write_bytes(b"01234")
    files = [["one", 10, "0" * 64, "one", 0]]
    request = {"folder": str(store.folder), "unit": "sparkrack-model-x.service", "follows": True, "files": files}
    asked = tmp_path / "request"
    asked.write_text(json.dumps(request))
    with (
        asked.open() as stdin,
        subprocess.Popen(
            [sys.executable, "-I", "-S", "-B", SENDER],
            stdin=stdin,
            stdout=subprocess.PIPE,
            env={"PATH": f"{store.root}/bin:{os.environ['PATH']}"},
        ) as process,
    ):
        try:
            assert process.stdout
            assert process.stdout.read(5) == b"01234"
            part.unlink()
            part.write_bytes(b"0123456789")
            assert process.communicate(timeout=60)[0] == b"56789"
            assert process.returncode == 0
        finally:
            process.kill()


def test_a_part_that_is_longer_here_than_there_waits_for_the_other_node(tmp_path: Path, hub: LoopbackHub) -> None:
    assert hub.pause is not None
    first = begin(LocalStore(tmp_path / "n0"), {BIG: FILES[BIG]}, hub_source(hub))
    second = LocalStore(tmp_path / "n1")
    answer_for(second, first)
    second.fetch(second.job({BIG: FILES[BIG]}, None))
    part_of(second).write_bytes(FILES[BIG][: HALF + 50_000])
    fetches = [first, begin(second, {BIG: FILES[BIG]}, source(first, stand_in_ssh(second)))]
    with ended(fetches):
        until(lambda: sum(first.store.parts()) == HALF)
        until(lambda: any(call.startswith("systemctl ") for call in calls(second.root)))
        hub.pause.set()
        logs = [fetch.log() for fetch in fetches]
    assert [log[-1] for log in logs] == ["sparkrack: ended 0"] * 2, logs
    assert received(logs[1]) == len(FILES[BIG]) - HALF - 50_000, "each byte came once"


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@pytest.fixture
def sshd(tmp_path: Path) -> Iterator[Callable[[LocalStore], list[str]]]:
    """The command line up to the address for a real server on loopback, with keys of its own."""
    if os.geteuid() or refused():
        pytest.skip(refused() or "sshd needs root")
    keys, port = tmp_path / "keys", free_port()
    keys.mkdir(mode=0o700)
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", keys / name], check=True)
    (keys / "known").write_text(f"[127.0.0.1]:{port} {(keys / 'host.pub').read_text()}")
    write_configuration(
        keys / "config",
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {keys}/host\nAuthorizedKeysFile {keys}/user.pub\n"
        "StrictModes no\nUsePAM no\nPasswordAuthentication no\nPidFile none\nMaxStartups 100\n",
    )
    with start_sshd(keys / "config") as server:
        try:
            until(lambda: socket.socket().connect_ex(("127.0.0.1", port)) == 0)
            yield lambda store: through_sshd(store, keys, port)
        finally:
            server.terminate()


def through_sshd(store: LocalStore, keys: Path, port: int) -> list[str]:
    """Return the command line; sshd gives the login shell a PATH without the stand-ins of this node."""
    options = ["BatchMode=yes", "ConnectTimeout=10", "Compression=no", f"UserKnownHostsFile={keys}/known"]
    options += ["StrictHostKeyChecking=yes", "Ciphers=^aes128-gcm@openssh.com"]
    words = ["/usr/bin/ssh", "-F", "none", "-p", str(port), "-i", f"{keys}/user"]
    words += [word for option in options for word in ("-o", option)]
    script = f'for last in "$@"; do :; done; exec {shlex.join(words)} 127.0.0.1 "PATH={store.root}/bin:$PATH; $last"'
    stand_in(store.root, "ssh", script)
    return ["ssh", "127.0.0.1"]


@pytest.mark.parametrize(("small", "files_at_a_time"), [(1000, 4), (1 << 20, 1)])
def test_eight_nodes_over_ssh(
    tmp_path: Path, hub: LoopbackHub, sshd: Callable[[LocalStore], list[str]], small: int, files_at_a_time: int
) -> None:
    """Each file over a connection of its own, and all over one."""
    assert hub.pause is not None
    fetches = chain(tmp_path, hub, 7, sshd, small)
    with ended(fetches):
        until(lambda: all(sum(fetch.store.parts()) >= files_at_a_time * PASSED_ON for fetch in fetches))
        hub.pause.set()
        logs = [fetch.log() for fetch in fetches]
    assert [log[-1] for log in logs] == ["sparkrack: ended 0"] * 8, logs
    assert all(fetch.store.contents() == FILES for fetch in fetches)
    assert len(hub.requests) == len(FILES), "each file left the hub once"


def test_the_sender_is_killed_in_the_middle_of_a_file(
    tmp_path: Path, hub: LoopbackHub, sshd: Callable[[LocalStore], list[str]]
) -> None:
    """The receiver ends and says why; with another source it goes on from its last byte."""
    assert hub.pause is not None
    fetches = chain(tmp_path, hub, 1, sshd)
    first, second = fetches
    with ended(fetches):
        until(lambda: sum(second.store.parts()) >= 4 * PASSED_ON)
        first.kill()
        log = second.log()
    assert log[-2:] == ["the transfer of the other node ended before it had the model", "sparkrack: ended 1"]
    came = sum(second.store.parts())
    hub.pause.set()
    small = sum(len(content) for content in FILES.values() if len(content) < 1000)
    log = begin(second.store, FILES, hub_source(hub)).log()
    assert (log[-1], second.store.contents()) == ("sparkrack: ended 0", FILES)
    assert received(log) <= SIZE - came + small


def test_the_receiver_is_killed_in_the_middle_of_a_file(
    tmp_path: Path, hub: LoopbackHub, sshd: Callable[[LocalStore], list[str]]
) -> None:
    """The sender does not notice it; the receiver goes on from its last byte."""
    assert hub.pause is not None
    fetches = chain(tmp_path, hub, 1, sshd)
    first, second = fetches
    with ended(fetches):
        until(lambda: sum(second.store.parts()) >= 4 * PASSED_ON)
        second.kill()
        came = sum(second.store.parts())
        fetches.append(begin(second.store, FILES, source(first, ["ssh", "127.0.0.1"])))
        hub.pause.set()
        logs = [first.log(), fetches[-1].log()]
    assert [log[-1] for log in logs] == ["sparkrack: ended 0"] * 2, logs
    assert second.store.contents() == FILES
    small = sum(len(content) for content in FILES.values() if len(content) < 1000)
    assert received(logs[1]) <= SIZE - came + small


def test_a_server_with_another_host_key_gives_nothing(
    tmp_path: Path, hub: LoopbackHub, sshd: Callable[[LocalStore], list[str]]
) -> None:
    assert hub.pause is not None
    hub.pause.set()
    first = begin(LocalStore(tmp_path / "n0"), FILES, hub_source(hub))
    assert first.log()[-1] == "sparkrack: ended 0"
    second = LocalStore(tmp_path / "n1")
    ssh = sshd(second)
    known = tmp_path / "keys/known"
    known.write_text(known.read_text().split()[0] + " " + (tmp_path / "keys/user.pub").read_text())
    log = begin(second, FILES, source(first, ssh)).log()
    assert (log[-1], second.contents()) == ("sparkrack: ended 1", {})
    assert any("Host key verification failed" in line for line in log)
