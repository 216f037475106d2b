"""The samples of a flight recorder on their way to another node: recorder and receiver as processes on loopback."""

from __future__ import annotations

import signal
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path

import pytest

from tests.unit.roles.recorder_runs import (
    BOOT,
    LIMIT,
    PROGRAM,
    Authority,
    dumped,
    free_port,
    node,
    program,
    recorder,
    recording,
    until,
)

BODY = {"time": 1.5, "node": "spark1", "zones": {}, "carrier": {}, "gpu": {"state": "absent"}, "log": None}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with the node in `root`."""
    node(tmp_path / "root")
    return tmp_path


@pytest.fixture(scope="module")
def rack(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("rack"))


@contextmanager
def receiving(
    place: Path, port: int, *tls: object, peers: tuple[str, ...] = ("spark1=127.0.0.1",)
) -> Iterator[subprocess.Popen[bytes]]:
    """A receiver on a port of loopback, which listens."""
    given = [word for peer in peers for word in ("--peer", peer)]
    secure = ["--tls", *tls] if tls else []
    listen = ("--listen", f"127.0.0.1:{port}", "--folder", place / "peers", "--rate", 4)
    with program("receive", *listen, *given, *secure, errors=place / "received") as started:
        until(lambda: "samples are received at" in logged(place, "received") or started.poll() is not None)
        yield started


def logged(place: Path, name: str = "log") -> str:
    """What the recorder, or the receiver (`received`), has logged."""
    return (place / name).read_text() if (place / name).exists() else ""


def arrived(place: Path, name: str = "spark1") -> list[int]:
    """The sequences of the samples of a node that were received."""
    ring = place / f"peers/{name}.ring"
    return [record.sequence for record in recorder.read_ring(ring)[0]] if ring.exists() else []


def sender(port: int, *tls: object, to: str = "spark2") -> list[object]:
    """The arguments with which a recorder sends."""
    return ["--send", f"{to}=127.0.0.1:{port}", *(["--tls", *tls] if tls else [])]


@pytest.mark.parametrize("mode", ["tls", "plain"])
def test_samples_arrive(place: Path, rack: Authority, mode: str) -> None:
    """The same records as in the ring of the node."""
    port = free_port()
    there, here = (rack.node("spark2"), rack.node("spark1")) if mode == "tls" else ((), ())
    with receiving(place, port, *there), recording(place, *sender(port, *here)) as started:
        until(lambda: len(arrived(place)) >= 4, "the fourth sample")
        started.send_signal(signal.SIGTERM)
        started.wait(LIMIT)
    own = {one["sequence"]: one for one in dumped(place / "ring")}
    received = dumped(place / "peers/spark1.ring")
    assert len(received) >= 4
    assert all(own[one["sequence"]] == one for one in received)
    assert (place / "peers").stat().st_mode & 0o777 == 0o750


def test_what_is_sent_with_tls_cannot_be_read(place: Path, rack: Authority) -> None:
    """A relay between both sees TLS records and no sample."""
    behind, seen = free_port(), bytearray()
    with socket.create_server(("127.0.0.1", 0)) as relay:

        def pass_on(source: socket.socket, target: socket.socket) -> None:
            while chunk := source.recv(65536):
                seen.extend(chunk)
                target.sendall(chunk)

        def serve() -> None:
            client, _ = relay.accept()
            server = socket.create_connection(("127.0.0.1", behind))
            threading.Thread(target=pass_on, args=(server, client), daemon=True).start()
            pass_on(client, server)

        with receiving(place, behind, *rack.node("spark2")):
            threading.Thread(target=serve, daemon=True).start()
            with recording(place, *sender(relay.getsockname()[1], *rack.node("spark1"))):
                until(lambda: len(arrived(place)) >= 2)
    assert len(seen) > recorder.SIZE
    assert b"spark1" not in seen
    assert b"memory" not in seen


def test_a_receiver_that_restarts_misses_nothing(place: Path, rack: Authority) -> None:
    port, there = free_port(), rack.node("spark2")
    with recording(place, *sender(port, *rack.node("spark1"))):
        with receiving(place, port, *there):
            until(lambda: len(arrived(place)) >= 2)
        before = arrived(place)
        until(lambda: dumped(place / "ring")[-1]["sequence"] > before[-1] + 4, "samples while there is no receiver")
        with receiving(place, port, *there):
            until(lambda: arrived(place)[-1] > before[-1] + 4, "the samples of the meantime")
            found = arrived(place)
    assert found == list(range(found[0], found[-1] + 1))
    assert found[0] == before[0]


@contextmanager
def in_thread(serve: Callable[[], None], server: socket.socket) -> Iterator[None]:
    """Serve in a thread, which ends before its socket is closed: a later socket may have the same number, and an accept
    that the kernel restarts would take that one's connections.
    """
    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield
    finally:
        with suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)
        thread.join(LIMIT)
        assert not thread.is_alive()


def test_a_receiver_that_hangs_holds_up_no_sample(place: Path) -> None:
    """It accepts and says nothing; later it says that it takes samples, and reads none."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        held: list[socket.socket] = []

        def serve() -> None:
            with suppress(OSError):  # until the test ends
                while True:
                    client, _ = server.accept()
                    held.append(client)
                    if len(held) > 1:
                        client.sendall(b"sparkrack-recorder 1 0\n")

        with in_thread(serve, server), recording(place, *sender(server.getsockname()[1])):
            until(lambda: len(held) > 1, "the second connection")
            sequence = dumped(place / "ring")[-1]["sequence"]
            until(lambda: dumped(place / "ring")[-1]["sequence"] > sequence + 4, "more samples")
        found = dumped(place / "ring")
        late = [after["uptime"] - one["uptime"] for one, after in pairwise(found)]
    assert sorted(late)[len(late) // 2] < 1, "samples wait for the network"


def test_the_backlog_is_bounded() -> None:
    peer = recorder.Peer("spark2", ("127.0.0.1", 1), None)
    for sequence in range(3 * recorder.BACKLOG):
        peer.put(sequence, bytes(recorder.SIZE))
    assert len(peer._records) == recorder.BACKLOG
    assert peer._records[-1][0] == 3 * recorder.BACKLOG - 1


def test_a_receiver_that_does_not_answer_is_tried_again_after_a_pause_that_doubles_to_half_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pauses: list[float] = []
    attempts = iter([ConnectionRefusedError("Connection refused")] * 7 + [EOFError("the test has seen enough")])

    def refused_connection() -> None:
        raise next(attempts)

    peer = recorder.Peer("spark2", ("127.0.0.1", 1), None)
    monkeypatch.setattr(peer, "_stream_samples", refused_connection)
    monkeypatch.setattr(time, "sleep", pauses.append)
    with pytest.raises(EOFError):
        peer.run()
    assert pauses == [2, 4, 8, 16, 30, 30, 30]


# Who is refused


def refused(place: Path, port: int, here: tuple[object, ...], reason: str, *, by_sender: str = "") -> None:
    """A recorder sends with these certificates; nothing arrives, and the log of the receiver says why."""
    with recording(place, *sender(port, *here)):
        if reason:
            until(lambda: reason in logged(place, "received"), reason)
        if by_sender:
            until(lambda: by_sender in logged(place), by_sender)
        until(lambda: len(dumped(place / "ring")) >= 8)
    assert arrived(place) == []
    assert "Traceback" not in logged(place) + logged(place, "received")


def test_a_node_that_is_not_declared(place: Path, rack: Authority) -> None:
    port = free_port()
    with receiving(place, port, *rack.node("spark2"), peers=("spark3=127.0.0.1",)):
        refused(
            place,
            port,
            rack.node("spark1"),
            "its certificate names 'spark1', which sends no samples here",
            by_sender="it refuses this node",
        )


def test_a_certificate_with_two_names(place: Path, rack: Authority) -> None:
    port = free_port()
    with receiving(place, port, *rack.node("spark2")):
        refused(place, port, rack.node("spark1", "spark3"), "its certificate names ''")


def test_a_certificate_of_another_rack(place: Path, rack: Authority, tmp_path: Path) -> None:
    """Its receiver's authority did not sign it."""
    port = free_port()
    _, certificate, key = Authority(tmp_path / "other").node("spark1")
    with receiving(place, port, *rack.node("spark2")):
        refused(place, port, (rack.file, certificate, key), "certificate verify failed")


def test_a_client_without_a_certificate(place: Path, rack: Authority) -> None:
    port = free_port()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(rack.file)
    context.check_hostname = False
    with receiving(place, port, *rack.node("spark2")):
        with (
            socket.create_connection(("127.0.0.1", port), timeout=LIMIT) as connection,
            pytest.raises(OSError, match="certificate required"),
            context.wrap_socket(connection) as secure,
        ):
            secure.recv(64)
        until(lambda: "peer did not return a certificate" in logged(place, "received"))


def test_a_receiver_of_another_name(place: Path, rack: Authority) -> None:
    """The sender checks it too: samples go to the declared node only."""
    port = free_port()
    with receiving(place, port, *rack.node("spark3")):
        refused(place, port, rack.node("spark1"), "", by_sender="its certificate names 'spark3'")


def test_a_receiver_of_another_rack(place: Path, rack: Authority, tmp_path: Path) -> None:
    port = free_port()
    with receiving(place, port, *Authority(tmp_path / "other").node("spark2")):
        refused(place, port, rack.node("spark1"), "", by_sender="certificate verify failed")


def test_plain_and_tls_do_not_mix(place: Path, rack: Authority) -> None:
    port = free_port()
    with receiving(place, port, *rack.node("spark2")):
        refused(place, port, (), "", by_sender="samples do not reach spark2")
    port = free_port()
    with receiving(place, port):
        refused(place, port, rack.node("spark1"), "", by_sender="samples do not reach spark2")


def test_plain_from_another_address(place: Path) -> None:
    port = free_port()
    with receiving(place, port, peers=("spark1=127.0.0.2",)):
        refused(place, port, (), "it is not an address of a node", by_sender="it refuses this node")


def greeted(port: int, address: str = "127.0.0.1") -> socket.socket:
    """A plain connection that the receiver has accepted."""
    connection = socket.create_connection(("127.0.0.1", port), timeout=LIMIT, source_address=(address, 0))
    assert connection.recv(64).startswith(b"sparkrack-recorder 1 ")
    return connection


def ended(connection: socket.socket) -> bool:
    """Whether the other end has closed it."""
    try:
        return connection.recv(1) == b""
    except (ConnectionResetError, BrokenPipeError):
        return True


@pytest.mark.parametrize(
    "bad",
    [
        recorder.encode(7, BOOT, {**BODY, "node": "spark3"}),
        recorder.encode(7, BOOT, dict(BODY))[:-1] + b"x",
        b"GET / HTTP/1.1\r\n".ljust(recorder.SIZE, b"\n"),
    ],
    ids=["of another node", "torn", "anything"],
)
def test_records_that_are_none_of_the_node(place: Path, bad: bytes) -> None:
    """The connection ends, what was sent before stays, and the next connection is served."""
    port = free_port()
    with receiving(place, port, peers=("spark1=127.0.0.1", "spark3=127.0.0.3")):
        with greeted(port) as connection:
            connection.sendall(recorder.encode(5, BOOT, dict(BODY)) + bad)
            assert ended(connection)
        with greeted(port) as connection:
            connection.sendall(recorder.encode(8, BOOT, dict(BODY)))
            until(lambda: arrived(place) == [5, 8])
        assert "spark1 sends what is not a sample of it" in logged(place, "received")
    assert not arrived(place, "spark3")


def test_a_node_writes_only_its_ring_and_no_more_than_it_holds(place: Path) -> None:
    """Each record has its place by its sequence, so any number of them takes no more room."""
    port = free_port()
    with receiving(place, port):
        with greeted(port) as connection:
            for sequence in (0, 1, 2**40, 2**63, 2**64 - 1):
                connection.sendall(recorder.encode(sequence, BOOT, dict(BODY)))
            until(lambda: 2**64 - 1 in arrived(place))
        assert (place / "peers/spark1.ring").stat().st_size == 4 * 600 * recorder.SIZE
        assert [path.name for path in (place / "peers").iterdir()] == ["spark1.ring"]


def test_the_receiver_keeps_when_the_last_sample_of_each_boot_came(place: Path) -> None:
    """The clock of the sender was wrong in a boot: what came last of it has a time of the receiver's clock, too."""
    port, other, third = free_port(), "cd" * 16, "ef" * 16
    with receiving(place, port):
        began = time.time()
        with greeted(port) as connection:
            for sequence, boot, at in ((1, BOOT, 1.5), (2, BOOT, 2.5), (3, other, "x\n"), (4, third, 9.5)):
                connection.sendall(recorder.encode(sequence, boot, {**BODY, "time": at}))
            until(lambda: arrived(place) == [1, 2, 3, 4])
    (line,) = (place / "peers/spark1.ends").read_text().splitlines()
    boot, sent, received = line.split()
    assert (boot, sent) == (BOOT, "2.5")
    assert began - 1 < float(received) < time.time() + 1


def test_a_flood_is_ended(place: Path) -> None:
    port = free_port()
    record = recorder.encode(7, BOOT, dict(BODY))
    with receiving(place, port), greeted(port) as connection:
        with suppress(OSError):
            connection.sendall(4 * recorder.BURST * record)
        assert ended(connection)
        until(lambda: "spark1 sends more than 8 samples a second" in logged(place, "received"))


def test_connections_are_bounded(place: Path) -> None:
    """A client that opens many connections and says nothing keeps others from nothing."""
    port = free_port()
    with receiving(place, port, peers=("spark1=127.0.0.1", "spark3=127.0.0.3")):
        held = [greeted(port) for _ in range(recorder.CONNECTIONS_PER_ADDRESS)]
        with socket.create_connection(("127.0.0.1", port), timeout=LIMIT) as more:
            assert ended(more)
        with greeted(port, "127.0.0.3") as other:
            other.sendall(recorder.encode(7, BOOT, {**BODY, "node": "spark3"}))
            until(lambda: arrived(place, "spark3") == [7])
        for connection in held:
            connection.close()
        until(lambda: "it has too many connections" in logged(place, "received"))

        def free() -> bool:
            try:
                greeted(port).close()
            except (AssertionError, OSError):
                return False
            return True

        until(free, "a free place")


def test_a_certificate_that_is_not_there(place: Path, rack: Authority) -> None:
    """The receiver ends, since its unit starts it again; the recorder records, and tries again."""
    missing = (rack.file, place / "node.pem", place / "node.key")
    with program(
        *("receive", "--listen", "127.0.0.1:0", "--folder", place / "peers", "--peer", "spark1=127.0.0.1"),
        *("--tls", *missing),
        errors=place / "received",
    ) as started:
        assert started.wait(LIMIT) == 1
    assert logged(place, "received").startswith("recorder: certificates (")
    port = free_port()
    with receiving(place, port, *rack.node("spark2")), recording(place, *sender(port, *missing)):
        until(lambda: "samples do not reach spark2 (127.0.0.1): certificates (" in logged(place))
        _, certificate, key = rack.node("spark1")
        (place / "node.pem").write_bytes(certificate.read_bytes())
        (place / "node.key").write_bytes(key.read_bytes())
        until(lambda: arrived(place), "a sample after the certificate was made")


def test_only_the_given_address_listens(place: Path) -> None:
    port = free_port()
    with receiving(place, port):
        greeted(port).close()
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.2", port), timeout=LIMIT)


def test_an_address_that_the_node_does_not_have(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            "-B",
            PROGRAM,
            "receive",
            "--folder",
            tmp_path,
            "--listen",
            "192.0.2.1:0",
            "--peer",
            "a=192.0.2.2",
        ],
        capture_output=True,
        text=True,
        timeout=LIMIT,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr.startswith("recorder: [Errno 99] Cannot assign requested address")
    assert len(done.stderr.splitlines()) == 1


def test_a_clock_that_went_back_loses_no_sample() -> None:
    """A node that was installed again with a wrong clock begins below what its receiver has: all is sent again."""
    received: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            client, _ = server.accept()
            client.sendall(b"sparkrack-recorder 1 1000\n")
            rest = b""
            while chunk := client.recv(65536):
                rest += chunk
                while len(rest) >= recorder.SIZE:
                    received.append(recorder.decode(rest[: recorder.SIZE]).sequence)  # type: ignore[union-attr]
                    rest = rest[recorder.SIZE :]

        threading.Thread(target=serve, daemon=True).start()
        peer = recorder.Peer("spark2", server.getsockname()[:2], None)
        peer.put(10, recorder.encode(10, BOOT, dict(BODY)))
        peer.start()
        time.sleep(0)
        peer.put(11, recorder.encode(11, BOOT, dict(BODY)))
        until(lambda: received == [10, 11])
