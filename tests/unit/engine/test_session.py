"""A session is about the rack that the command has loaded."""

from __future__ import annotations

from pathlib import Path

from core.model import load
from core.model.fields import GROUPS
from core.model.selection import select
from sparkrack.engine.session import RunSession, machine
from tests.unit.model.racks import DIRECT, SWITCH


def test_a_file_that_is_edited_meanwhile_is_not_read_again(tmp_path: Path) -> None:
    file = tmp_path / "rack.yaml"
    file.write_text(DIRECT)
    rack = load(file)
    file.write_text(DIRECT.replace("left", "west"))
    session = RunSession(rack, file, select(rack))
    try:
        assert list(session.hosts) == ["left", "right"]
        assert all(host.data.rack is not None and machine(host) == name for name, host in session.hosts.items())
        assert session.hosts["left"].data.rack == rack
    finally:
        session.close()


def test_no_machine_can_have_the_name_of_a_group(tmp_path: Path) -> None:
    """`pyinfra --limit NAME` takes a group before a host."""
    file = tmp_path / "rack.yaml"
    file.write_text(SWITCH)
    rack = load(file)
    session = RunSession(rack, file, select(rack))
    try:
        # those of connectors, like @routeros, are no names of machines
        groups = {group for group in session.state.inventory.groups if not group.startswith("@")}
        assert {*groups, "all"} == GROUPS
    finally:
        session.close()


def test_a_host_that_was_connected_for_its_lock_only_is_disconnected(tmp_path: Path) -> None:
    """pyinfra itself disconnects only from the hosts of the run."""
    file = tmp_path / "rack.yaml"
    file.write_text(DIRECT)
    rack = load(file)
    session = RunSession(rack, file, select(rack))
    ended: list[str] = []

    class Connector:
        def disconnect(self) -> None:
            ended.append("left")

    host = session.hosts["left"]
    host.connector = Connector()
    host.connected = True
    session.close()
    assert ended == ["left"]
