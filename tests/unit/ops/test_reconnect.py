"""A script over a connection of its own: what it prints, and why it could not be made; nothing of it stays open."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import gevent
import pytest
from paramiko import SSHClient, SSHException
from pyinfra.api.exceptions import ConnectError

from core.ops import reconnect


@dataclass
class Host:
    """A host whose new connection fails with `raises` or takes `sleeps` seconds; what was done with it."""

    name: str = "spark1"
    raises: Exception | None = None
    sleeps: float = 0
    done: list[str] = field(default_factory=list)
    state: Any = field(default_factory=lambda: SimpleNamespace(print_input=False))
    connector: Any = None

    def __post_init__(self) -> None:
        self.connector = Connector(self.state, self)


class Connector:
    """A connector of pyinfra; `client`: the connection that it leaves open."""

    def __init__(self, _: object, host: Host) -> None:
        self.host = host
        self.client: Any = SimpleNamespace(close=lambda: host.done.append("closed"))

    def connect(self) -> None:
        self.host.done.append("connected")
        gevent.sleep(self.host.sleeps)
        if self.host.raises:
            raise self.host.raises

    def run_shell_command(self, command: Any, **options: Any) -> tuple[bool, SimpleNamespace]:
        assert (options["_sudo"], options["print_output"], options["print_input"]) == (True, False, False)
        self.host.done.append(command.get_raw_value())
        return False, SimpleNamespace(stdout_lines=["out"], stderr_lines=["err"])

    def disconnect(self) -> None:
        self.host.done.append("disconnected")


def test_a_script_runs_as_root_on_a_new_connection_which_is_closed() -> None:
    host: Any = Host()
    assert reconnect.run_on_new_connection(host, "true", 60) == (False, ["out", "err"])
    assert host.done == ["connected", "true", "disconnected", "closed"]


@pytest.mark.parametrize(
    ("raised", "why"),
    [
        (ConnectError("refused"), "refused"),
        (SSHException("banner"), "banner"),
        (EOFError("gone"), "gone"),
        (OSError("no route"), "no route"),
    ],
)
def test_a_connection_that_cannot_be_made_is_one_error_and_is_closed(raised: Exception, why: str) -> None:
    host: Any = Host(raises=raised)
    with pytest.raises(OSError, match=r"^a new connection") as caught:
        reconnect.run_on_new_connection(host, "true", 60)
    assert str(caught.value) == f"a new connection to spark1 fails: {why}"
    assert host.done == ["connected", "disconnected", "closed"]


def test_a_node_that_does_not_answer_in_time_is_one_error() -> None:
    host: Any = Host(sleeps=60)
    with pytest.raises(OSError, match=r"^a new connection to spark1 fails: no answer within 0\.01 s$"):
        reconnect.run_on_new_connection(host, "true", 0.01)
    assert host.done == ["connected", "disconnected", "closed"]


class Ssh(SSHClient):
    """A client whose connection is between these two addresses."""

    def __init__(self, here: str, there: str) -> None:
        super().__init__()
        sock = SimpleNamespace(getsockname=lambda: (here, 40000), getpeername=lambda: (there, 22))
        self.ends: Any = SimpleNamespace(sock=sock)

    def get_transport(self) -> Any:
        return self.ends


class Serving(Connector):
    """A connector whose script ends well."""

    def run_shell_command(self, command: Any, **options: Any) -> tuple[bool, SimpleNamespace]:
        super().run_shell_command(command, **options)
        return True, SimpleNamespace(stdout_lines=["out"], stderr_lines=[])


@pytest.mark.parametrize("listens", [True, False])
@pytest.mark.parametrize("there", ["10.77.0.11", "10.77.0.12"])
def test_a_connection_of_a_machine_to_itself_counts_only_with_a_peer_that_answers(listens: bool, there: str) -> None:
    class Own(Serving):
        def __init__(self, state: object, host: Host) -> None:
            super().__init__(state, host)
            self.client: Any = Ssh("10.77.0.11", there)

    host: Any = Host()
    host.connector = Own(None, host)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        if not listens:
            server.close()
        fine, output = reconnect.run_on_new_connection(host, "true", 60, [("127.0.0.1", port)])
    assert fine == (listens or there == "10.77.0.12")
    if not fine:
        assert output == ["this machine is spark1, and reaches none of 127.0.0.1"]
    assert reconnect.run_on_new_connection(host, "true", 60) == (True, ["out"]), "the only node has no peer"
