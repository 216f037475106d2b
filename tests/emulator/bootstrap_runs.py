"""A switch in factory state, and the folder of an operator who runs `sparkrack bootstrap`."""

from __future__ import annotations

import json
import os
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from click.testing import CliRunner

from core.model import load
from lab.routeros_emulator.config import User
from sparkrack.cli.main import sparkrack
from switch.bootstrap.first_contact import offered_services
from tests.emulator.emulator_process import Crs812Process
from tests.emulator.fork_server import ForkedProgram
from tests.emulator.raw_client import RawClient

REFERENCE = Path(__file__).parents[2] / "examples" / "rack.yaml"
PROGRAM = Path(sys.executable).with_name("sparkrack")
HERE, THERE = "127.0.0.1", "127.0.0.2"
"""Address of the emulator, and a second address that can be added to it."""

NO_PIN = "0" * 64


class Way:
    """A way to the switch's TLS port at another address, as a cable to its new network is: it leads there while
    the switch has that address. `leads` names another port that is led to in any case."""

    def __init__(self, switch: Crs812Process, leads: int = 0) -> None:
        self._switch, self._leads = switch, leads
        self._listening = socket.create_server((THERE, switch.tls_port))
        threading.Thread(target=self._accept_connections, daemon=True).start()

    def _accept_connections(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._listening.accept()
                if not (self._leads or self._has_address()):
                    near.close()
                    continue
                far = socket.create_connection((HERE, self._leads or self._switch.tls_port))
                for one, other in ((near, far), (far, near)):
                    # Nagle's algorithm would hold back every short piece: 90 ms a sentence.
                    one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    threading.Thread(target=_copy_stream, args=(one, other), daemon=True).start()

    def _has_address(self) -> bool:
        rows = self._switch.state()["tables"]["/ip/address"]
        return any(row["address"].startswith(f"{THERE}/") for row in rows)

    def close(self) -> None:
        # `shutdown` wakes the thread that waits in accept.
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()


def _copy_stream(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65536):
            target.sendall(data)
    for end in (source, target):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)


@dataclass
class Workdir:
    """A folder with rack.yaml, the reference one but for the switch's address, port and password."""

    folder: Path
    emulator: Crs812Process
    address: str = HERE
    edits: tuple[tuple[str, str], ...] = ()
    before: str = field(default="", init=False)

    def __post_init__(self) -> None:
        self.folder.mkdir(exist_ok=True)
        self.sticker = self.emulator.config.users[0].password_file
        text = REFERENCE.read_text()
        own = (
            ("    address: 10.77.0.2\n", f"    address: {self.address}\n"),
            ("port: 8729 ", f"port: {self.emulator.tls_port} "),
            ("password: {env: CRS812_PASSWORD} ", "password: {file: own} "),
        )
        for old, new in (*own, *self.edits):
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        self.before = text
        self.rack.write_text(text)

    @property
    def rack(self) -> Path:
        return self.folder / "rack.yaml"

    @property
    def own(self) -> Path:
        return self.folder / "own"

    def words(self, *more: str, password: bool = True) -> list[str]:
        """The command's words; a later option wins over an earlier one."""
        port = str(self.emulator.plain_port)
        given = ["--rack", str(self.rack), "--address", HERE, "--api-port", port, "--timeout", "5"]
        sticker = ["--password-file", str(self.sticker)] if password else []
        return ["bootstrap", "switch", *given, *sticker, *more]

    def run(self, *more: str, password: bool = True, **environment: str) -> tuple[int, str]:
        """Run it in this process: exit code, and all output."""
        environment = {"XDG_STATE_HOME": f"{self.folder}.state", **environment}
        ended = CliRunner().invoke(sparkrack, self.words(*more, password=password), env=environment)
        assert ended.exception is None or isinstance(ended.exception, SystemExit), repr(ended.exception)
        self.keeps_quiet(ended.output)
        return ended.exit_code, ended.output

    def start(self, *more: str) -> ForkedProgram:
        """Start it in a separate process."""
        environment = os.environ | {"XDG_STATE_HOME": f"{self.folder}.state"}
        return ForkedProgram("sparkrack", self.words(*more), env=environment)

    def begin_again(self) -> None:
        """Restore the initial state of folder and switch."""
        self.emulator.control({"op": "reset"})
        os.truncate(self.emulator.config.log, 0)
        self.rack.write_text(self.before)
        self.own.unlink(missing_ok=True)

    def keeps_quiet(self, text: str) -> None:
        """No password is in `text`, nor in what the switch was seen to be sent."""
        known = [path.read_text().strip() for path in (self.sticker, self.own) if path.exists()]
        log = self.emulator.config.log.read_text()
        assert not [secret for secret in known if secret and (secret in text or secret in log)]

    def table(self, path: str) -> list[dict[str, str]]:
        """The rows of a menu on the switch."""
        found: list[dict[str, str]] = self.emulator.state()["tables"][path]
        return found

    def log(self) -> list[dict[str, Any]]:
        """Every sentence so far; one that is being written down in this moment is left out."""
        text, _, _ = self.emulator.config.log.read_text().rpartition("\n")
        return [json.loads(line) for line in text.splitlines()]

    def writes(self) -> list[str]:
        """The commands that were meant to change the switch so far."""
        return [line["command"] for line in self.log() if line.get("kind") == "write"]

    def failed_logins(self) -> int:
        return sum(line["result"].startswith("trap") for line in self.log() if line.get("command") == "/login")

    def until(self, true: Callable[[], bool], process: ForkedProgram) -> None:
        """Wait until it is so; a process that ends before is a failure with its output."""
        end = time.monotonic() + 60
        while not true():
            assert process.poll() is None, process.communicate()[0]
            assert time.monotonic() < end, "waited in vain"
            time.sleep(0.05)

    def is_ready(self) -> None:
        """The switch is what first contact is to make of it, once each, and rack.yaml knows it."""
        (certificate,) = self.table("/certificate")
        pin = certificate["fingerprint"]
        assert pin == offered_services(HERE, self.emulator.tls_port)
        assert self.rack.read_text() == self.before.replace(NO_PIN, pin)
        tls = load(self.rack).switches["crs812"].tls
        assert tls
        assert tls.sha256 == pin
        assert {row["name"]: row["disabled"] for row in self.table("/user")} == {"admin": "true", "sparkrack": "false"}
        assert [row["name"] for row in self.table("/user/group")] == ["read", "write", "full", "sparkrack"]
        services = {row["name"]: row["disabled"] for row in self.table("/ip/service")}
        assert (services["api"], services["api-ssl"]) == ("true", "false")
        assert [row["address"].partition("/")[0] for row in self.table("/ip/address")] == [self.address]
        assert self.emulator.state()["safe_mode"] == {"holder": None, "pending": 0}
        assert self.own.stat().st_mode & 0o777 == 0o600
        assert len(self.own.read_text().strip()) >= 43
        assert {path.name for path in self.folder.iterdir()} == {"rack.yaml", "own"}
        client = RawClient(self.emulator.tls_port, secure=True)
        client.login("sparkrack", self.own.read_text().strip())
        client.close()


def boxed(folder: Path, **more: Any) -> dict[str, Any]:
    """Return the configuration of an emulated switch in factory state, with its sticker in `folder`."""
    sticker = folder / "sticker"
    sticker.write_text(secrets.token_hex(5).upper() + "\n")
    sticker.chmod(0o600)
    users = (User(name="admin", password_file=sticker),)
    return {"boxed": True, "users": users, "tls_cert": None, "tls_key": None, "management": f"{HERE}/24", **more}


def admin(workdir: Workdir) -> RawClient:
    """A session of the user that came with it."""
    client = RawClient(workdir.emulator.plain_port)
    client.login("admin", workdir.sticker.read_text().strip())
    return client


MakeBox = Callable[..., Workdir]
