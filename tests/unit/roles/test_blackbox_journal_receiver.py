"""The receiver of journals with the real systemd-journal-upload and systemd-journal-remote, on loopback."""

from __future__ import annotations

import os
import signal
import socket
import ssl
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

import roles.blackbox
from roles.blackbox.certificate_authority import RackAuthority
from tests.unit.roles.test_blackbox_certificates import key

LIMIT = 60
"""Seconds to wait: the machine may be busy."""
HERE = "127.0.0.1"
REMOTE, UPLOAD = (f"/usr/lib/systemd/systemd-journal-{name}" for name in ("remote", "upload"))
PROGRAM = str(Path(roles.blackbox.__file__).parent / "files/journal_receiver.py")
pytestmark = pytest.mark.skipif(not Path(REMOTE).exists(), reason="systemd-journal-remote is not installed")


def wait(done: Callable[[], object], what: str) -> None:
    """Wait until something is true."""
    end = time.monotonic() + LIMIT
    while not done():
        assert time.monotonic() < end, what
        time.sleep(0.1)


def end_group(leader: int) -> None:
    """End a program and those that it started, as systemd does; a writer that waits for input takes no other signal."""
    with suppress(ProcessLookupError):
        os.killpg(leader, signal.SIGKILL)


@dataclass
class Source:
    """The journal of a node in a folder: one writer appends to it."""

    folder: Path
    writer: subprocess.Popen[str]
    count: int = 0

    def write(self, message: str) -> None:
        """Append an entry."""
        self.count += 1
        fields = {
            "__REALTIME_TIMESTAMP": 1_790_000_000_000_000 + self.count,
            "__MONOTONIC_TIMESTAMP": self.count,
            "_BOOT_ID": "0" * 31 + "1",
            "_MACHINE_ID": "0" * 31 + "2",
            "MESSAGE": message,
        }
        assert self.writer.stdin
        self.writer.stdin.write("".join(f"{name}={value}\n" for name, value in fields.items()) + "\n")
        self.writer.stdin.flush()


@dataclass
class Site:
    """A receiver, senders, and their certificates."""

    root: Path
    stack: ExitStack
    port: int
    authority: RackAuthority

    def certificate(self, name: str, authority: RackAuthority | None = None, address: str = HERE) -> Path:
        """A folder with the key and certificates of a node."""
        folder = self.root / f"certificates-{uuid.uuid4()}"
        (folder / "etc").mkdir(parents=True)
        public = key(folder)
        signer = authority or self.authority
        made = folder / "etc/sparkrack/blackbox"
        (made / "node.pem").write_bytes(signer.sign(public, name, address))
        (made / "ca.pem").write_bytes(signer.pem or b"")
        return made

    def started(self, *command: str | Path, stdin: int | None = None) -> subprocess.Popen[str]:
        """A program that is ended with the test."""
        log = self.stack.enter_context((self.root / "log").open("a"))
        process = subprocess.Popen(
            [*map(str, command)], stdin=stdin, stdout=log, stderr=log, text=True, start_new_session=True
        )
        self.stack.callback(process.wait, LIMIT)
        self.stack.callback(end_group, process.pid)
        return process

    def receiver(self, *senders: str, tls: Path | None = None) -> subprocess.Popen[str]:
        """A receiver that accepts connections."""
        before = self.log.count(f"at {HERE}:{self.port}")
        (self.root / "run").mkdir(exist_ok=True)
        (self.root / "remote").mkdir(exist_ok=True)
        process = self.started(
            sys.executable,
            "-I",
            PROGRAM,
            f"--listen={HERE}:{self.port}",
            f"--folder={self.root}/remote",
            f"--run={self.root}/run",
            "--limit=64",
            *(f"--sender={one}" for one in senders),
            *([f"--tls={tls}"] if tls else []),
        )
        line = f"at {HERE}:{self.port}"
        wait(lambda: self.log.count(line) > before or process.poll() is not None, "the receiver does not start")
        return process

    def source(self, name: str) -> Source:
        """The journal of a node."""
        folder = self.root / f"source-{name}"
        folder.mkdir()
        command = (REMOTE, f"--output={folder}/system.journal", "--split-mode=none", "-")
        return Source(folder, self.started(*command, stdin=subprocess.PIPE))

    def sender(self, source: Source, tls: Path | None = None) -> subprocess.Popen[str]:
        """What sends such a journal."""
        words = [f"--key={tls}/node.key", f"--cert={tls}/node.pem", f"--trust={tls}/ca.pem"] if tls else []
        return self.started(
            UPLOAD,
            f"--url=http{'s' if tls else ''}://{HERE}:{self.port}",
            f"--directory={source.folder}",
            f"--save-state={source.folder}/state",
            *words,
        )

    def messages(self, name: str) -> list[str]:
        """What was received from a node."""
        files = [str(path) for path in (self.root / "remote").glob(f"remote-{name}*.journal*")]
        command = ["journalctl", "--output=cat", "--no-pager", "--quiet", *(f"--file={path}" for path in files)]
        if not files:
            return []
        return subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False).stdout.splitlines()

    @property
    def log(self) -> str:
        """The output of all programs."""
        file = self.root / "log"
        return file.read_text() if file.exists() else ""


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A rack with a CA, on loopback."""
    with socket.create_server((HERE, 0)) as free:
        port = free.getsockname()[1]
    RackAuthority(tmp_path, "two").make()
    with ExitStack() as stack:
        yield Site(tmp_path, stack, port, RackAuthority(tmp_path, "two"))


def arrived(site: Site, name: str, message: str) -> None:
    """Wait until a message of a node was received."""
    wait(lambda: message in site.messages(name), f"{message} is not received from {name}: {site.log}")


def logged(site: Site, line: str) -> None:
    """Wait until a program has logged a line."""
    wait(lambda: line in site.log, f"no {line}: {site.log}")


def test_journals_arrive_encrypted_each_in_its_own_file(site: Site) -> None:
    site.receiver("spark1=10.77.0.11", "spark2=10.77.0.12", tls=site.certificate("spark9"))
    for name in ("spark1", "spark2"):
        source = site.source(name)
        source.write(f"first of {name}")
        site.sender(source, site.certificate(name))
        arrived(site, name, f"first of {name}")
        source.write(f"later of {name}")
        arrived(site, name, f"later of {name}")
    assert site.messages("spark1") == ["first of spark1", "later of spark1"]
    assert site.messages("spark2") == ["first of spark2", "later of spark2"]
    folder = site.root / "remote"
    command = ["journalctl", f"--directory={folder}", "--output=cat", "--no-pager", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert len(done.stdout.splitlines()) == 4


def test_it_listens_at_its_address_only(site: Site) -> None:
    site.receiver("spark1=10.77.0.11", tls=site.certificate("spark9"))
    with pytest.raises(ConnectionRefusedError), socket.create_connection(("127.0.0.2", site.port), 5):
        pass


def test_a_sender_without_a_good_certificate_is_refused(site: Site) -> None:
    site.receiver("spark1=10.77.0.11", tls=site.certificate("spark9"))
    foreign = site.root / "foreign"
    foreign.mkdir()
    RackAuthority(foreign, "two").make()
    strange = site.certificate("spark1", RackAuthority(foreign, "two"))
    (strange / "ca.pem").write_bytes(site.authority.pem or b"")
    source = site.source("spark1")
    source.write("forged")
    for tls, reported in (
        (strange, "CERTIFICATE_VERIFY_FAILED"),
        (site.certificate("spark7"), f"{HERE}: is not a declared sender; closed"),
    ):
        process = site.sender(source, tls)
        assert process.wait(LIMIT) != 0
        logged(site, reported)
    context = ssl.create_default_context(cadata=(site.authority.pem or b"").decode())
    with socket.create_connection((HERE, site.port), LIMIT) as plain:
        stream = context.wrap_socket(plain, server_hostname=HERE)
        with pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED"):
            stream.recv(1)
    assert site.messages("spark1") == []


def test_a_sender_refuses_another_receiver(site: Site) -> None:
    """The certificate of the receiver is for another address, so something else has taken its address."""
    site.receiver("spark1=10.77.0.11", tls=site.certificate("spark9", address="10.77.0.19"))
    source = site.source("spark1")
    source.write("secret")
    assert site.sender(source, site.certificate("spark1")).wait(LIMIT) != 0
    assert site.messages("spark1") == []


def test_without_tls_the_address_is_the_sender(site: Site) -> None:
    site.receiver(f"spark1={HERE}", "spark2=10.77.0.12")
    source = site.source("spark1")
    source.write("readable")
    site.sender(source)
    arrived(site, "spark1", "readable")


def test_without_tls_a_stranger_is_refused(site: Site) -> None:
    site.receiver("spark2=10.77.0.12")
    source = site.source("spark1")
    source.write("forged")
    assert site.sender(source).wait(LIMIT) != 0
    logged(site, f"{HERE}: is not a declared sender; closed")
    assert site.messages("spark2") == []


def test_nothing_is_lost_while_the_receiver_is_away(site: Site) -> None:
    """Its process is killed; the sender ends, is started again as its unit does it, and goes on where it was."""
    tls, own = site.certificate("spark9"), site.certificate("spark1")
    receiver = site.receiver("spark1=10.77.0.11", tls=tls)
    source = site.source("spark1")
    source.write("before")
    sender = site.sender(source, own)
    arrived(site, "spark1", "before")
    receiver.terminate()
    receiver.wait(LIMIT)
    source.write("meanwhile")
    assert sender.wait(LIMIT) != 0
    site.receiver("spark1=10.77.0.11", tls=tls)
    source.write("after")
    sender = site.sender(source, own)
    arrived(site, "spark1", "after")
    assert {"before", "meanwhile", "after"} <= set(site.messages("spark1"))


def test_the_receiver_ends_when_a_writer_ends(site: Site) -> None:
    """systemd starts it again; half a receiver would look like a whole one."""
    receiver = site.receiver("spark1=10.77.0.11", tls=site.certificate("spark9"))
    children = Path(f"/proc/{receiver.pid}/task/{receiver.pid}/children").read_text().split()
    assert len(children) == 1
    os.kill(int(children[0]), signal.SIGKILL)
    assert receiver.wait(LIMIT) == 1
    assert "systemd-journal-remote for spark1 has ended with -9" in site.log


@pytest.mark.parametrize(
    ("listen", "certificates", "reported"),
    [
        ("192.0.2.1:19532", False, "192.0.2.1:19532: Cannot assign requested address\n"),
        ("127.0.0.1:0", True, "certificates in {folder}: No such file or directory\n"),
    ],
)
def test_what_prevents_a_start_is_one_line(tmp_path: Path, listen: str, certificates: bool, reported: str) -> None:
    command = [sys.executable, "-I", PROGRAM, f"--listen={listen}", "--sender=spark1=127.0.0.1", "--limit=64"]
    command += [f"--folder={tmp_path}", f"--run={tmp_path}", *([f"--tls={tmp_path}"] if certificates else [])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT, check=False)
    assert (done.returncode, done.stderr) == (1, reported.format(folder=tmp_path))


def test_one_address_cannot_take_all_connections(site: Site) -> None:
    """Connections that say nothing are held until their handshake fails; those of other addresses are served."""
    site.receiver("spark1=10.77.0.11", tls=site.certificate("spark9"))
    for _ in range(80):
        silent = site.stack.enter_context(socket.socket())
        silent.bind(("127.0.0.2", 0))
        silent.connect((HERE, site.port))
    logged(site, "127.0.0.2: has 8 connections; one more is closed")
    source = site.source("spark1")
    source.write("in time")
    site.sender(source, site.certificate("spark1"))
    arrived(site, "spark1", "in time")
    assert "timed out" not in site.log, "the sender waited for the handshakes of the others"


RECEIVE = """
import runpy, socket, sys
from pathlib import Path
program, run = sys.argv[1:]
module = runpy.run_path(program)
server = socket.create_server(("127.0.0.1", 0), backlog=64)
print(server.getsockname()[1], flush=True)
names = {f"127.0.0.{number}": "spark1" for number in range(2, 12)}
module["Receiver"](None, names, Path(run)).serve(server)
"""
"""The receiver without its writers."""


def test_sixty_four_connections_are_held_and_the_next_one_waits_for_an_end(tmp_path: Path) -> None:
    with ExitStack() as stack:
        writer = stack.enter_context(socket.socket(socket.AF_UNIX))
        writer.bind(str(tmp_path / "spark1.sock"))
        writer.listen(128)
        writer.settimeout(LIMIT)
        words = [sys.executable, "-I", "-c", RECEIVE, PROGRAM, str(tmp_path)]
        with (tmp_path / "log").open("w") as log:
            receiver = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=log, text=True)
        stack.callback(receiver.wait, LIMIT)
        stack.callback(receiver.kill)
        assert receiver.stdout
        port = int(receiver.stdout.readline())
        senders = [stack.enter_context(socket.socket()) for _ in range(65)]
        for number, sender in enumerate(senders):
            sender.bind((f"127.0.0.{2 + number // 8}", 0))
            sender.connect((HERE, port))
        held = [stack.enter_context(writer.accept()[0]) for _ in range(64)]
        writer.settimeout(0)
        with pytest.raises(BlockingIOError):
            writer.accept()
        senders[0].close()
        writer.settimeout(LIMIT)
        stack.enter_context(writer.accept()[0])
        assert len(held) == 64


def test_the_oldest_files_of_a_sender_are_removed(tmp_path: Path) -> None:
    names: dict[str, object] = {"__name__": "journal_receiver"}
    exec(compile(Path(PROGRAM).read_text(), PROGRAM, "exec"), names)  # noqa: S102
    for number, name in enumerate(("spark1@a.journal", "spark1@b.journal~", "spark1@c.journal", "spark1.journal")):
        for sender in ("", "0"):
            file = tmp_path / f"remote-{name.replace('spark1', f'spark1{sender}')}"
            file.write_bytes(b"x" * 65536)
            os.utime(file, (1000 + number, 1000 + number))
    remove = names["remove_oldest"]
    assert callable(remove)
    remove(tmp_path, "spark1", 2 * 65536)
    found = sorted(path.name for path in tmp_path.iterdir() if "spark10" not in path.name)
    assert found == ["remote-spark1.journal", "remote-spark1@c.journal"]
    assert len([path for path in tmp_path.iterdir() if "spark10" in path.name]) == 4
    remove(tmp_path, "spark1", 0)
    assert (tmp_path / "remote-spark1.journal").exists(), "the file that is written to"
