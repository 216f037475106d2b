"""A node that is an ssh server of this process, on loopback: what the command does over a real connection."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import paramiko

from core.ops import host_facts
from tests.unit.engine.fake_rack import spoken
from tests.unit.model.racks import SWITCH, changed
from tests.unit.sshserver import AnyKey, SshServer

ADDRESS = "127.77.0.11"
Speak = Callable[[str], tuple[int, str, str] | None]
"""The server's answer to a command: exit code, output, errors; None: it never answers."""


def answering(node: Mapping[str, Any]) -> Speak:
    """A node with these answers, whose management network is loopback."""
    lines = spoken(
        {key: text.replace("10.77.0.", "127.77.0.") if isinstance(text, str) else text for key, text in node.items()}
    )
    return lambda _: (0, "\n".join(lines) + "\n", "")


class SshNode(SshServer):
    """The server. `commands`: received commands besides the probe; `begun`: set when a command has arrived."""

    def __init__(self, speak: Speak, port: int = 0, greets: bool = True) -> None:
        """`greets`: whether it sends anything to a client."""
        self.speak = speak
        self.greets = greets
        self.begun = threading.Event()
        self.gone = threading.Event()
        super().__init__(ADDRESS, port)

    def close(self) -> None:
        self.gone.set()
        super().close()

    def left(self, seconds: float = 60) -> bool:
        """Whether every client has gone within that time."""
        end = time.monotonic() + seconds
        while any(transport.is_active() for transport in self.transports):
            if time.monotonic() > end:
                return False
            time.sleep(0.02)
        return True

    def welcomes(self, connection: socket.socket) -> bool:
        if not self.greets:
            self._kept = connection  # open, and silent
            self.begun.set()
        return self.greets

    def behind(self, transport: paramiko.Transport) -> AnyKey:
        server = _Server(self)
        _tell_of_replies(transport, server.replied)
        return server


def _tell_of_replies(transport: paramiko.Transport, replied: threading.Semaphore) -> None:
    """Release the semaphore for each granted request: an answer before that would be lost."""
    send = transport._send_user_message  # type: ignore[attr-defined]

    def sent(message: paramiko.Message) -> None:
        send(message)
        if message.asbytes()[:1] == paramiko.common.cMSG_CHANNEL_SUCCESS:
            replied.release()

    transport._send_user_message = sent  # type: ignore[attr-defined]


class _Server(AnyKey):
    def __init__(self, node: SshNode) -> None:
        self.node = node
        self.replied = threading.Semaphore(0)

    def check_channel_exec_request(self, channel: paramiko.Channel, command: bytes) -> bool:
        threading.Thread(target=self._answer_command, args=(channel, command.decode()), daemon=True).start()
        return True

    def _answer_command(self, channel: paramiko.Channel, command: str) -> None:
        if host_facts.READ in command:
            command = channel.makefile("rb").read().decode()
        if "echo complete" not in command:
            self.node.commands.append(command)
        self.node.begun.set()
        reported = self.node.speak(command)
        self.replied.acquire(timeout=60)
        if reported is None:
            self.node.gone.wait()
            return
        code, output, complaints = reported
        channel.sendall(output.encode())
        channel.sendall_stderr(complaints.encode())
        channel.send_exit_status(code)
        channel.close()


def rack_file(folder: Path, node: SshNode | None, port: int | None = None, known: bool = True) -> Path:
    """Write a rack whose first node is that server; the other hosts have unused addresses."""
    at = node.port if node else port
    key = folder / "key"
    if not key.exists():
        paramiko.ECDSAKey.generate().write_private_key_file(str(key))
    line = f"[{ADDRESS}]:{at} {node.key.get_name()} {node.key.get_base64()}\n" if node and known else ""
    (folder / "known_hosts").write_text(line)
    text = changed(
        SWITCH,
        ("known_hosts: known_hosts\n", f"known_hosts: known_hosts\n  port: {at}\n"),
        ("~/.ssh/id_ed25519", str(key)),
        ("    user: sparkrack", f"    port: {at}\n    user: sparkrack"),
    )
    file = folder / "rack.yaml"
    file.write_text(text.replace("10.77.0.", "127.77.0."))
    return file
