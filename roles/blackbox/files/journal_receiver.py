#!/usr/bin/python3
"""The receiver of the journals of other nodes: each sender has its own file in a folder, and a limit of its own.

    journal_receiver.py --listen ADDRESS:PORT --sender NAME=ADDRESS [--sender ...] --folder FOLDER --limit MIB
                        [--tls FOLDER]

systemd-journal-upload of a sender connects to it. It runs one systemd-journal-remote for each sender, which writes
FOLDER/remote-NAME.journal, and passes bytes on to that of the sender. Debian and Ubuntu build systemd-journal-remote
without gnutls, so it cannot verify the certificate of a sender itself.

With --tls FOLDER, which has ca.pem, node.pem and node.key, the certificate of a sender must be signed by the CA, and
has the name of the sender. Without it the address stands for the sender, and nothing is encrypted. The connection of a
sender that is not declared is closed and logged.
"""

from __future__ import annotations

import argparse
import os
import selectors
import signal
import socket
import ssl
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import Any

WRITER = "/usr/lib/systemd/systemd-journal-remote"
FIRST_SOCKET = 3
"""The number of the first socket that systemd, here this program, hands to a service."""
HANDSHAKE_SECONDS = 10.0
SEND_SECONDS = 60.0
"""Seconds that one end of a connection may take to accept data."""
MOST_CONNECTIONS, MOST_OF_ONE_ADDRESS = 64, 8
"""A sender has one connection, and for two minutes those that a loss of its power left open."""
VACUUM_SECONDS = 60.0
CHUNK = 65536


def main() -> None:
    """Receive until a writer ends or a signal comes."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--listen", required=True, help="address and port, like 10.77.0.11:19532")
    parser.add_argument("--sender", action="append", required=True, help="name and address, like spark2=10.77.0.12")
    parser.add_argument("--folder", required=True, type=Path, help="of the received journals")
    parser.add_argument("--limit", required=True, type=int, help="MiB for each sender")
    parser.add_argument("--tls", type=Path, help="folder with ca.pem, node.pem and node.key")
    parser.add_argument("--run", type=Path, default=Path(os.environ.get("RUNTIME_DIRECTORY", "/run")))
    parser.add_argument("--writer", default=WRITER, help=argparse.SUPPRESS)
    options = parser.parse_args()
    senders = dict(one.split("=", 1) for one in options.sender)
    try:
        context = tls_context(options.tls) if options.tls else None
    except OSError as error:  # ssl.SSLError is an OSError
        sys.exit(f"certificates in {options.tls}: {error.strerror or error}")
    address, _, port = options.listen.rpartition(":")
    try:
        server = socket.create_server((address, int(port)), backlog=MOST_CONNECTIONS)
    except OSError as error:
        # Not strerror: create_server adds the address to it.
        sys.exit(f"{options.listen}: {os.strerror(error.errno or 0)}")
    # Before any thread: each writer is a fork of this process.
    writers = {start_writer(options.writer, name, options.folder, options.run): name for name in senders}

    def end(*_: object) -> None:
        for process in writers:
            os.kill(process, signal.SIGTERM)
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    receiver = Receiver(context, {place: name for name, place in senders.items()}, options.run)
    threading.Thread(target=receiver.serve, args=(server,), daemon=True).start()
    threading.Thread(target=vacuum, args=(options.folder, list(senders), options.limit << 20), daemon=True).start()
    log(f"receives the journals of {', '.join(senders)} at {options.listen}, {'TLS' if context else 'not encrypted'}")
    process, status = os.wait()
    log(f"systemd-journal-remote for {writers.pop(process)} has ended with {os.waitstatus_to_exitcode(status)}")
    for other in writers:
        os.kill(other, signal.SIGTERM)
    sys.exit(1)


def tls_context(folder: Path) -> ssl.SSLContext:
    """Return a context that accepts only connections with a certificate that the CA has signed."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(folder / "node.pem", folder / "node.key")
    context.load_verify_locations(folder / "ca.pem")
    context.verify_mode = ssl.CERT_REQUIRED
    return context


def start_writer(program: str, name: str, folder: Path, run: Path) -> int:
    """Start the writer of one sender, which listens at a socket of this program's folder; return its process."""
    path = run / f"{name}.sock"
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(path))
    path.chmod(0o600)
    listener.listen(8)
    process = os.fork()
    if process:
        listener.close()
        return process
    try:
        os.dup2(listener.fileno(), FIRST_SOCKET)
        os.set_inheritable(FIRST_SOCKET, True)
        environment = {"PATH": "/usr/bin:/bin", "LISTEN_FDS": "1", "LISTEN_PID": str(os.getpid())}
        output = f"--output={folder}/remote-{name}.journal"
        os.execve(program, [program, f"--listen-http=-{FIRST_SOCKET}", "--split-mode=none", output], environment)  # noqa: S606
    except OSError as error:
        log(f"{program} cannot be started: {error}")
    os._exit(1)


class Receiver:
    """Takes connections and passes their bytes to the writer of their sender."""

    def __init__(self, context: ssl.SSLContext | None, names: dict[str, str], run: Path) -> None:
        self.context = context
        self.names = names
        self.run = run
        self.free = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self.lock = threading.Lock()
        self.open: Counter[str] = Counter()

    def serve(self, server: socket.socket) -> None:
        """Take connections for ever, each in a thread."""
        while True:
            self.free.acquire()
            try:
                connection, (address, *_) = server.accept()
            except OSError as error:
                log(f"accept: {error}")
                self.free.release()
                time.sleep(1)
                continue
            with self.lock:
                full = self.open[address] >= MOST_OF_ONE_ADDRESS
                self.open[address] += not full
            if full:
                log(f"{address}: has {MOST_OF_ONE_ADDRESS} connections; one more is closed")
                connection.close()
                self.free.release()
                continue
            threading.Thread(target=self.take, args=(connection, address), daemon=True).start()

    def take(self, connection: socket.socket, address: str) -> None:
        """Identify the sender of a connection, and pass its bytes on until one end closes it."""
        name = ""
        try:
            with connection:
                keep_alive(connection)
                if self.context is None:
                    stream, name = connection, self.names.get(address, "")
                else:
                    connection.settimeout(HANDSHAKE_SECONDS)
                    stream = self.context.wrap_socket(connection, server_side=True)
                    found = common_name(stream)
                    name = found if found in self.names.values() else ""
                with stream:
                    if not name:
                        log(f"{address}: is not a declared sender; closed")
                        return
                    with socket.socket(socket.AF_UNIX) as writer:
                        writer.connect(str(self.run / f"{name}.sock"))
                        log(f"{name}: connected from {address}")
                        relay(stream, writer)
            log(f"{name}: the connection from {address} has ended")
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            log(f"{name or address}: {' '.join(str(error).split())[:200]}; closed")
        finally:
            with self.lock:
                self.open[address] -= 1
                if not self.open[address]:
                    del self.open[address]
            self.free.release()


def common_name(stream: ssl.SSLSocket) -> str:
    """Return the common name in the verified certificate of the other end."""
    certificate = stream.getpeercert() or {}
    subject: Any = certificate.get("subject", ())
    names = [str(value) for group in subject for key, value in group if key == "commonName"]
    return names[0] if len(names) == 1 else ""


def keep_alive(connection: socket.socket) -> None:
    """Notice within two minutes that a sender has lost its power."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in ((socket.TCP_KEEPIDLE, 60), (socket.TCP_KEEPINTVL, 15), (socket.TCP_KEEPCNT, 4)):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


def relay(stream: socket.socket, writer: socket.socket) -> None:
    """Pass bytes in both directions until one end closes."""
    with selectors.DefaultSelector() as selector:
        for one, other in ((stream, writer), (writer, stream)):
            one.settimeout(0)
            selector.register(one, selectors.EVENT_READ, (one, other))
        while True:
            for key, _ in selector.select():
                source, target = key.data
                if not drain(source, target):
                    return


def drain(source: socket.socket, target: socket.socket) -> bool:
    """Pass on what can be read now; return whether the source is still open."""
    while True:
        try:
            data = source.recv(CHUNK)
        except (BlockingIOError, ssl.SSLWantReadError):
            return True
        if not data:
            return False
        target.settimeout(SEND_SECONDS)
        target.sendall(data)
        target.settimeout(0)
        # TLS may hold decrypted bytes that the selector does not see, so it is read until it has none.


def vacuum(folder: Path, names: list[str], limit: int) -> None:
    """Remove the oldest archived files of each sender that has more than the limit, for ever."""
    while True:
        for name in names:
            try:
                remove_oldest(folder, name, limit)
            except OSError as error:
                log(f"{name}: old files cannot be removed: {error}")
        time.sleep(VACUUM_SECONDS)


def remove_oldest(folder: Path, name: str, limit: int) -> None:
    """Remove the oldest archived files of one sender until what it has on the disk is within the limit in bytes."""
    files = [*folder.glob(f"remote-{name}.journal"), *folder.glob(f"remote-{name}@*.journal*")]
    sizes = {file: (found := file.stat()) and (found.st_mtime, found.st_blocks * 512) for file in files}
    used = sum(size for _, size in sizes.values())
    for file, (_, size) in sorted(sizes.items(), key=lambda item: item[1][0]):
        if used <= limit:
            return
        if "@" in file.name:
            file.unlink()
            used -= size


def log(text: str) -> None:
    """Write one line to the journal of this node."""
    print(text, flush=True)


if __name__ == "__main__":
    main()
