"""Bonds of the emulated switch: a slave is a port of a bridge through its bond only."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.routeros_emulator.config import CableTail, EmulatedCable
from lab.routeros_emulator.errors import TrapError
from tests.emulator.in_process_device import Bench

BOND, PORT, VLAN = "/interface/bonding", "/interface/bridge/port", "/interface/bridge/vlan"
SLAVES = ("qsfp56-dd-2-1", "qsfp56-dd-2-5")
MAC = "02:00:00:00:00:01"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    tail = CableTail.model_validate({"lane": 1, "lanes": 4, "gbps": 200, "node": "x", "port": 0, "macs": [MAC]})
    made = Bench(tmp_path, cables=(EmulatedCable(cage="qsfp56-dd-2", tails=(tail,)),))
    for name in SLAVES:
        forced = ("=auto-negotiation=no", "=speed=200G-baseCR4", "=fec-mode=fec91")
        made.ask("/interface/ethernet/set", f"=numbers={name}", *forced)
    made.pass_time(60)
    return made


def free(bench: Bench, *names: str) -> None:
    for name in names:
        bench.ask(f"{PORT}/remove", f"=.id={bench.one(PORT, f'?interface={name}')['.id']}")


def bonded(bench: Bench, *names: str) -> None:
    free(bench, *names)
    bench.ask(f"{BOND}/add", "=name=isl", f"=slaves={','.join(names)}", "=mode=802.3ad")


def test_a_bond_prints_what_the_command_tree_has(bench: Bench) -> None:
    bonded(bench, *SLAVES)
    row = bench.one(BOND)
    assert (row["name"], row["slaves"], row["mode"], row["running"]) == ("isl", ",".join(SLAVES), "802.3ad", "true")
    assert "mlag-id" not in row
    assert bench.one("/interface", "?name=isl")["type"] == "bond"


def test_a_bridge_port_is_not_taken_as_a_slave(bench: Bench) -> None:
    with pytest.raises(TrapError, match="is a bridge port"):
        bench.ask(f"{BOND}/add", "=name=isl", f"=slaves={','.join(SLAVES)}")
    assert bench.rows(BOND) == []


def test_a_slave_is_not_taken_as_a_bridge_port(bench: Bench) -> None:
    bonded(bench, *SLAVES)
    with pytest.raises(TrapError, match="is slave of isl"):
        bench.ask(f"{PORT}/add", "=bridge=bridge", f"=interface={SLAVES[0]}")


def test_an_interface_is_slave_of_one_bond_unless_that_is_off(bench: Bench) -> None:
    bonded(bench, *SLAVES)
    with pytest.raises(TrapError, match="already slave of isl"):
        bench.ask(f"{BOND}/add", "=name=other", f"=slaves={SLAVES[0]}")
    bench.ask(f"{BOND}/disable", "=numbers=isl")
    bench.ask(f"{BOND}/add", "=name=other", f"=slaves={SLAVES[0]}")


def test_addresses_behind_a_slave_are_heard_behind_its_bond(bench: Bench) -> None:
    bonded(bench, *SLAVES)
    assert bench.rows("/interface/bridge/host", f"?mac-address={MAC}") == []
    bench.ask(f"{PORT}/add", "=bridge=bridge", "=interface=isl")
    assert bench.one("/interface/bridge/host", f"?mac-address={MAC}")["on-interface"] == "isl"
    assert bench.one(PORT, "?interface=isl")["status"] == "in-bridge"


def test_a_bond_is_a_member_of_a_vlan(bench: Bench) -> None:
    bonded(bench, *SLAVES)
    bench.ask(f"{PORT}/add", "=bridge=bridge", "=interface=isl")
    bench.ask(f"{VLAN}/add", "=bridge=bridge", "=vlan-ids=1100", "=tagged=isl")
    bench.ask("/interface/bridge/set", "=numbers=bridge", "=vlan-filtering=yes")
    assert bench.one(VLAN, "?vlan-ids=1100")["current-tagged"] == "isl"


def test_a_renamed_slave_keeps_its_bond(bench: Bench) -> None:
    bonded(bench, *SLAVES)
    bench.ask("/interface/ethernet/set", f"=numbers={SLAVES[0]}", "=name=to the other")
    assert bench.one(BOND)["slaves"] == f"to the other,{SLAVES[1]}"


def test_mlag_is_off_until_a_bridge_has_a_peer_port(bench: Bench) -> None:
    row = bench.one("/interface/bridge")
    assert (row["mlag-peer-port"], row["mlag-priority"], row["mlag-heartbeat"]) == ("none", "128", "5s")
