"""A rack that is as its file says is described by the same file: whatever its topology, splits and addresses."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from core.model import Rack, load
from roles.docker.options import DockerOptions
from roles.driver.options import DriverOptions
from roles.memory.options import MemoryOptions
from tests.unit.discovery.worlds import world
from tests.unit.model.racks import KEPT, RING, SWITCH, TAGGED, changed, loaded
from tests.unit.model.random_racks import any_rack

REPOSITORY = Path(__file__).parents[3]
HOSTS = changed(
    SWITCH, ("vendor: asus", "vendor: asus\n    host: 10"), ("vendor: lenovo", "vendor: lenovo\n    host: 11")
)


def same(one: Rack, other: Rack) -> None:
    """Two files mean the same rack: machines, cables, addresses and how the switch is set."""
    assert [(name, node.address, node.vendor) for name, node in one.nodes.items()] == [
        (name, node.address, node.vendor) for name, node in other.nodes.items()
    ]
    assert one.cabling == other.cabling
    assert one.addresses == other.addresses
    assert one.fabric.mtu == other.fabric.mtu
    for name, switch in other.switches.items():
        ignored = {"serial", "release", "identity", "snmp", "purge", "backups", "reader", "syslog", "lldp"}
        assert one.switches[name].model_dump(exclude=ignored) == switch.model_dump(exclude=ignored)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(any_rack)
def test_any_rack_is_described_as_it_is(text: str) -> None:
    rack = loaded(text)
    found = world(rack)
    same(found.adopted(), rack)
    assert found.residue() == ()
    assert found.sheet().missing == []


@pytest.mark.parametrize("text", [SWITCH, TAGGED, HOSTS, RING], ids=["switch", "vlans", "hosts", "ring"])
def test_named_racks_are_described_without_a_rest(text: str) -> None:
    rack = loaded(text)
    found = world(rack)
    same(found.adopted(), rack)
    assert found.residue() == ()
    assert [str(gap) for gap in found.sheet().unrepresentable] == []


def test_the_reference_rack_is_described_with_all_that_it_keeps() -> None:
    rack = load(REPOSITORY / "examples/rack.yaml")
    adopted = world(rack).adopted()
    same(adopted, rack)
    assert adopted.options(DriverOptions).model_dump(exclude_defaults=True) == {
        "version": "580.159.03",
        "kernel": "6.17.0-1021-nvidia",
    }
    assert adopted.options(MemoryOptions) == rack.options(MemoryOptions)
    assert adopted.options(DockerOptions) == rack.options(DockerOptions)
    assert adopted.images == rack.images
    assert adopted.access.hardening


def test_every_key_of_a_switch_that_can_be_read_is_described() -> None:
    text = changed(
        KEPT,
        ("    snmp: {user: monitor, authentication: {env: SNMP_A}, encryption: {env: SNMP_E}}\n", ""),
        ("[bridge-ports, bridge-vlans, users, scripts]", "[bridge-ports, bridge-vlans]"),
        ("    serial: HXXXXXXXXXX\n", ""),
        ("    bridge: fabric\n", ""),
    )
    rack = loaded(text)
    found = world(rack)
    adopted, wanted = found.adopted().switches["crs812"], rack.switches["crs812"]
    for key in ("cages", "lossless", "management", "time_zone", "ntp", "dns", "lldp", "identity", "bridge"):
        assert getattr(adopted, key) == getattr(wanted, key), key
    assert adopted.syslog == rack.nodes["spark1"].address
    assert adopted.reader
    assert adopted.reader.model_dump(exclude={"password"}) == {"user": "watcher", "port": 8443}
    assert found.residue() == ()
