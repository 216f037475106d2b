"""Whether a machine is at the address of a switch that shows no certificate."""

from __future__ import annotations

import socket

import pytest

from switch.bootstrap.first_contact import answers
from tests.unit.cli.cli_fixtures import closed_port


def test_an_address_at_which_nothing_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    def silent(*_: object) -> socket.socket:
        raise TimeoutError

    monkeypatch.setattr(socket, "create_connection", silent)
    assert not answers("10.77.0.2", 8729)


@pytest.mark.parametrize("listens", [True, False])
def test_a_machine_that_takes_or_refuses_a_connection_answers(*, listens: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert answers("127.0.0.1", server.getsockname()[1] if listens else closed_port())
