"""Prove the switch and both ends of every leg: what it says of itself, what its port sees, and what the node
sees.

A forced port calls itself up whatever hangs on it, so a leg is good only when the node says the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from sparkrack.fleet import Leg, Port, Rack, Switch
from sparkrack.proof.machines import Machine

from .api import Session, SwitchError

Rows = dict[str, dict[str, str]]


@pytest.fixture(scope="session")
def sessions(rack: Rack) -> Iterator[Mapping[str, Session | str]]:
    """An API session with each switch, or why there is none."""
    opened: dict[str, Session | str] = {}
    for name, switch in rack.switches.items():
        try:
            opened[name] = Session(
                str(switch.address),
                switch.port,
                tls=switch.tls.sha256 if switch.tls else None,
                user=switch.user,
                password=switch.password.resolve(),
            )
        except SwitchError as fault:
            opened[name] = str(fault)
    yield opened
    for session in opened.values():
        if isinstance(session, Session):
            session.close()


@pytest.fixture
def talk(sessions: Mapping[str, Session | str], request: pytest.FixtureRequest) -> Session:
    """The session with the switch that the test is about."""
    parameters = request.node.callspec.params
    name = parameters["switch"].name if "switch" in parameters else parameters["leg"][0].switch
    session = sessions[name]
    if isinstance(session, str):
        pytest.fail(f"{name}: {session}", pytrace=False)
    return session


def test_is_the_declared_unit(switch: Switch, talk: Session) -> None:
    """Model, serial number and identity are those of rack.yaml."""
    (board,) = talk.talk("/system/routerboard/print")
    assert board.get("model") == switch.model, f"{switch.name}: model {board.get('model')}, wanted {switch.model}"
    if switch.serial:
        serial = board.get("serial-number")
        assert serial == switch.serial, f"{switch.name}: serial {serial}, wanted {switch.serial}"
    if switch.identity:
        (identity,) = talk.talk("/system/identity/print")
        assert identity["name"] == switch.identity, f"{switch.name}: identity {identity['name']}"


def test_nobody_holds_safe_mode(switch: Switch, talk: Session) -> None:
    """No change is half done: what is in safe mode now may be gone in a minute."""
    (mode,) = talk.talk("/safe-mode/print")
    assert mode.get("enabled") != "true", f"{switch.name}: {mode.get('user', 'somebody')} holds safe mode"


def test_leg_is_up_on_the_switch(leg: tuple[Leg, Port], talk: Session) -> None:
    """The port is linked at the leg's speed, with the FEC that lanes of 50 Gb/s need."""
    here, _ = leg
    seen = _one(talk.talk("/interface/ethernet/monitor", f"=numbers={here.interface}", "=once="))
    wanted = {"status": "link-ok", "rate": f"{here.gbps}Gbps", "fec": "fec91"}
    wrong = [
        f"{key} {seen.get(key, 'unknown')}, wanted {value}" for key, value in wanted.items() if seen.get(key) != value
    ]
    assert not wrong, f"{_named(leg)}: the switch says {'; '.join(wrong)}"


def test_leg_carries_full_frames(leg: tuple[Leg, Port], talk: Session, rack: Rack) -> None:
    """MTU and L2MTU of the leg are those of rack.yaml."""
    here, _ = leg
    switch = rack.switches[here.switch]
    row = _one(talk.talk("/interface/ethernet/print", "=.proplist=mtu,l2mtu", f"?default-name={here.interface}"))
    for key, wanted in (("mtu", switch.mtu), ("l2mtu", switch.l2mtu)):
        assert row.get(key) == str(wanted), f"{_named(leg)}: {key} {row.get(key)}, wanted {wanted}"


def test_leg_is_bridged_in_hardware(leg: tuple[Leg, Port], talk: Session, rack: Rack) -> None:
    """The leg is a member of the declared bridge and the chip forwards for it: `hw=yes` is only a wish."""
    here, _ = leg
    wanted = rack.switches[here.switch].bridge
    row = _one(talk.talk("/interface/bridge/port/print", f"?interface={here.interface}"))
    assert row.get("bridge") == wanted, f"{_named(leg)}: in bridge {row.get('bridge', '(none)')}, wanted {wanted}"
    assert row.get("hw-offload") == "true", f"{_named(leg)}: the chip does not forward for it (hw-offload is not true)"


def test_leg_is_up_on_the_node(leg: tuple[Leg, Port], machine: Machine) -> None:
    """Both halves of the port see a link at the leg's speed."""
    here, port = leg
    for half in port.halves:
        said = machine.run(f"ethtool {half.interface}")
        assert said.rc == 0, f"{_named(leg)}: ethtool {half.interface}: {said.stderr.strip()}"
        fields = dict(line.strip().split(": ", 1) for line in said.stdout.splitlines() if ": " in line)
        assert fields.get("Link detected") == "yes", f"{_named(leg)}: {half.interface} sees no link"
        speed, wanted = fields.get("Speed"), f"{here.gbps * 1000}Mb/s"
        assert speed == wanted, f"{_named(leg)}: {half.interface} runs at {speed}, wanted {wanted}"


def _one(rows: list[dict[str, str]]) -> dict[str, str]:
    """The one row that was asked for; none at all is an answer too, in which every field is missing."""
    return rows[0] if rows else {}


def _named(leg: tuple[Leg, Port]) -> str:
    here, port = leg
    return f"{port.node} on leg {here}, lanes {here.lanes[0]}-{here.lanes[-1]}"
