"""A unit that follows /ip/address: it is where its addresses say, and nowhere else."""

from __future__ import annotations

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from core.model import load
from lab.routeros_emulator.own_addresses import AddressError, LinkAddresses
from switch.bootstrap.first_contact import offered_services
from tests.emulator.bootstrap_runs import HERE, THERE, MakeBox, Workdir, admin
from tests.emulator.emulator_process import Crs812Process
from tests.emulator.raw_client import RawClient, attributes
from tests.emulator.switch_runs import waits_for


@pytest.fixture
def moving(make_box: MakeBox) -> Workdir:
    """A switch from its box that moves as a real one does, and a rack.yaml with its right address."""
    return make_box(THERE, follow=True)


def takes(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), 5).close()
    except OSError:
        return False
    return True


def test_first_contact_moves_it_to_its_right_address(moving: Workdir) -> None:
    ports = (moving.emulator.plain_port, moving.emulator.tls_port)
    assert [takes(HERE, port) for port in ports] == [True, True]
    assert [takes(THERE, port) for port in ports] == [False, False]
    code, text = moving.run()
    assert code == 0, text
    assert [takes(HERE, port) for port in ports] == [False, False]
    assert [takes(THERE, port) for port in ports] == [False, True]  # the plain API is shut by then
    tls = load(moving.rack).switches["crs812"].tls
    assert tls
    assert offered_services(THERE, ports[1]) == tls.sha256
    assert moving.run()[0] == 0


def test_it_is_there_again_after_a_restart(moving: Workdir) -> None:
    assert moving.run()[0] == 0
    moving.emulator.stop()
    moving.emulator.start()
    assert not takes(HERE, moving.emulator.tls_port)
    assert takes(THERE, moving.emulator.tls_port)


def test_a_reset_brings_it_back_to_where_it_began(moving: Workdir) -> None:
    assert moving.run()[0] == 0
    moving.emulator.control({"op": "reset"})
    assert takes(HERE, moving.emulator.plain_port)
    assert not takes(THERE, moving.emulator.tls_port)


def test_a_session_over_an_address_that_goes_ends_and_safe_mode_brings_it_back(moving: Workdir) -> None:
    """Who saws off the branch he sits on gets it back, as his session is lost with it."""
    client = admin(moving)
    client.ask("/safe-mode/take")
    (row,) = moving.table("/ip/address")
    client.send("/ip/address/remove", f"=.id={row['.id']}")
    waits_for(lambda: [row["address"] for row in moving.table("/ip/address")] == [f"{HERE}/24"])
    waits_for(lambda: takes(HERE, moving.emulator.plain_port))
    assert moving.emulator.state()["safe_mode"] == {"holder": None, "pending": 0}


def test_an_address_of_no_ones_is_reported_and_harms_no_other(moving: Workdir) -> None:
    client = admin(moving)
    client.ask("/ip/address/add", "=address=192.0.2.1/24", "=interface=bridge")
    messages = [row["message"] for row in map(attributes, client.ask("/log/print")) if "message" in row]
    assert "api at 192.0.2.1: Cannot assign requested address" in messages
    assert takes(HERE, moving.emulator.plain_port)


def test_without_it_addresses_do_nothing(crs812: Crs812Process) -> None:
    client = RawClient(crs812.plain_port)
    client.login("sparkrack", crs812.password)
    client.ask("/ip/address/add", f"=address={THERE}/24", "=interface=bridge")
    assert takes(HERE, crs812.plain_port)
    assert not takes(THERE, crs812.plain_port)


IP = """#!/bin/sh
echo "ip $*" >> "$CALLS"
cat >> "$CALLS"
[ -z "$FAIL" ] || { echo "RTNETLINK answers: $FAIL" >&2; exit 1; }
"""


@pytest.fixture
def calls(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """A stand-in for ``ip`` that notes what it is reported; gives that since the last time."""
    (tmp_path / "ip").write_text(IP)
    (tmp_path / "ip").chmod(0o755)
    file = tmp_path / "calls"
    monkeypatch.setenv("CALLS", str(file))
    monkeypatch.setenv("FAIL", "")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")

    def since() -> list[str]:
        lines = file.read_text().splitlines() if file.exists() else []
        file.unlink(missing_ok=True)
        return lines

    return since


def test_the_link_has_what_is_wanted_and_nothing_of_a_killed_process(calls: Callable[[], list[str]]) -> None:
    homes = LinkAddresses("sw1")
    homes.keep(["192.168.88.1"])
    assert calls() == ["ip -force -batch -", "address flush dev sw1", "address replace 192.168.88.1/32 dev sw1"]
    homes.keep(["192.168.88.1"])
    assert calls() == []
    homes.keep(["192.168.88.1", "10.77.0.2"])
    assert calls()[1:] == ["address replace 10.77.0.2/32 dev sw1"]
    homes.keep([])
    assert calls()[1:] == ["address del 10.77.0.2/32 dev sw1", "address del 192.168.88.1/32 dev sw1"]


def test_what_the_kernel_says_is_passed_on(calls: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAIL", "No such device")
    with pytest.raises(AddressError, match="No such device"):
        LinkAddresses("sw9").keep(["10.0.0.1"])
