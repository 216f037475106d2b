"""The emulated switch as a real process on loopback, for any test that needs a RouterOS peer."""

from __future__ import annotations

import json
import secrets
import signal
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import Any, cast

from lab import certificate
from lab.routeros_emulator.config import CableTail, EmulatedCable, SwitchConfig, User
from tests.emulator.fork_server import Forked, fork_server

REPOSITORY = Path(__file__).resolve().parents[2]
USER = "sparkrack"
STARTS_WITHIN = 60.0


def reference_cables(folder: Path | None = None) -> tuple[EmulatedCable, ...]:
    """The reference rack: two 400G copper cables that each break out to four nodes at 100G (port 1)."""
    return tuple(
        EmulatedCable(
            cage=f"qsfp56-dd-{cage}",
            tails=tuple(
                CableTail(
                    lane=lane,
                    lanes=2,
                    gbps=100,
                    node=f"spark{number}",
                    port=1,
                    taps=(f"n{number}a", f"n{number}b"),
                    state_file=folder / f"spark{number}.json" if folder else None,
                )
                for number, lane in enumerate((1, 3, 5, 7), start=4 * cage - 3)
            ),
        )
        for cage in (1, 2)
    )


class Crs812Process:
    """One emulated switch in a folder of its own.

    Its user is ``sparkrack`` with a random ``password``. Keyword arguments are fields of SwitchConfig.
    Restarting after ``stop()`` or ``kill()`` keeps the saved state.
    """

    def __init__(self, folder: Path, **overrides: Any) -> None:
        self.folder = folder
        self.password = secrets.token_urlsafe(12)
        self.plain_port = self.tls_port = 0
        self.www_port: int | None = None
        self.rest_port: int | None = None
        self._process: Forked | None = None
        folder.mkdir(parents=True, exist_ok=True)
        password_file = folder / "password"
        password_file.write_text(self.password + "\n")
        password_file.chmod(0o600)
        self.fingerprint = _make_certificate(folder / "cert.pem", folder / "key.pem")
        fields: dict[str, Any] = {
            "address": "127.0.0.1",
            "api_port": 0,
            "tls_port": 0,
            "www_port": 0,
            "www_ssl_port": 0,
            "tls_cert": folder / "cert.pem",
            "tls_key": folder / "key.pem",
            "state": folder / "state.json",
            "log": folder / "log.ndjson",
            "control": folder / "control",
            "users": (User(name=USER, password_file=password_file),),
            "settle": 0.05,
            "first_run": 0.0,
            "cables": reference_cables(folder),
        }
        self.config = SwitchConfig(**(fields | overrides))
        self._file = folder / "config.json"

    def start(self, *arguments: str) -> Crs812Process:
        """Start the process and wait for its ready line. Raises RuntimeError with its stderr when it ends
        instead."""
        self._file.write_text(self.config.model_dump_json())
        self._process = fork_server("emulator").emulator("--config", str(self._file), *arguments)
        line = self._process.readline(STARTS_WITHIN)
        if not line:
            _, reported = self._process.end(signal.SIGKILL)
            raise RuntimeError(f"the emulator did not start: {reported}")
        ready = json.loads(line)
        self.plain_port, self.tls_port = ready["plain_port"], ready["tls_port"]
        self.www_port, self.rest_port = ready["www_port"], ready["rest_port"]
        return self

    def stop(self) -> int:
        """End it as a service manager would and give its exit code; what it wrote to stderr fails the
        test."""
        assert self._process is not None
        code, reported = self._process.end(signal.SIGTERM)
        self._process = None
        assert reported == "", f"the emulator complained: {reported}"
        return code

    def kill(self) -> None:
        """Kill it."""
        assert self._process is not None
        self._process.end(signal.SIGKILL)
        self._process = None

    @property
    def running(self) -> bool:
        """Whether the process was started and not yet stopped."""
        return self._process is not None

    def control(self, request: dict[str, Any]) -> dict[str, Any]:
        """Send a request to the control socket. Raises RuntimeError when it is refused."""
        assert self.config.control is not None
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(60)
            connection.connect(str(self.config.control))
            connection.sendall(json.dumps(request).encode() + b"\n")
            with connection.makefile() as file:
                answer = cast("dict[str, Any]", json.loads(file.readline()))
        if not answer.pop("ok"):
            raise RuntimeError(answer["error"])
        return answer

    def stats(self) -> dict[str, dict[str, int]]:
        """Commands per menu since the start: ``reads``, ``writes``, ``refused``."""
        return self.control({"op": "stats"})

    def writes(self) -> int:
        """Return the number of writes that took effect since the start."""
        return sum(self.stats()["writes"].values())

    def state(self) -> dict[str, Any]:
        """Tables, links, wires and safe mode as they are now."""
        return self.control({"op": "state"})

    def links(self) -> dict[str, str]:
        """The status of each interface."""
        return {name: link["status"] for name, link in self.state()["links"].items()}

    def log(self) -> list[dict[str, Any]]:
        """Every sentence so far; one that is being written is not there yet."""
        whole, _, _ = self.config.log.read_text().rpartition("\n")
        return [json.loads(line) for line in whole.splitlines()]


def stop_all(switches: Iterable[Crs812Process]) -> None:
    """Stop those that are running."""
    for switch in switches:
        if switch.running:
            switch.stop()


def _make_certificate(cert: Path, key_file: Path) -> str:
    """Make a self-signed certificate and give its SHA-256 fingerprint in hexadecimal."""
    certificate.make("crs812", cert, key_file)
    return certificate.fingerprint(cert)
