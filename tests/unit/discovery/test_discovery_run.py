"""What discovery says of a switch that shows no certificate."""

from __future__ import annotations

import socket

import pytest

from sparkrack.discovery.discovery_run import _no_tls
from tests.unit.cli.cli_fixtures import closed_port


def test_an_address_at_which_nothing_answers_leads_to_the_address_of_a_new_switch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def silent(*_: object) -> socket.socket:
        raise TimeoutError

    monkeypatch.setattr(socket, "create_connection", silent)
    assert _no_tls("10.77.0.2", 8729) == (
        "nothing answers at 10.77.0.2:8729; a new switch is at 192.168.88.1, where bootstrap finds it"
    )


@pytest.mark.parametrize("listens", [True, False])
def test_a_switch_that_answers_without_tls_leads_to_the_plain_api(*, listens: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1] if listens else closed_port()
        assert _no_tls("127.0.0.1", port) == (
            f"no TLS at 127.0.0.1:{port}; with --plain the password would go in the clear"
        )
