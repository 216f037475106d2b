"""A node that loses its power takes its link along: its leg alone goes down, and the switch keeps the time."""

from __future__ import annotations

import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from lab import namespace as ns
from lab.routeros_emulator.config import CableTail, EmulatedCable, SwitchConfig
from lab.routeros_emulator.link_wiring import BridgeWiring, NoWiring
from tests.emulator.emulator_process import REPOSITORY, reference_cables
from tests.emulator.in_process_device import Bench
from tests.emulator.wait import until

ETHERNET = "/interface/ethernet"
MASTERS = tuple(f"qsfp56-dd-1-{lane}" for lane in (1, 3, 5, 7))
GOOD = ("=auto-negotiation=no", "=speed=100G-baseCR2", "=fec-mode=fec91")


class Power(NoWiring):
    """Wires of nodes of which some are off, by their taps."""

    off: set[str]

    def powered(self, taps: Sequence[str]) -> bool:
        return self.off.isdisjoint(taps)


@pytest.fixture
def bench(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    """A switch with four legs in one cage, all with a link."""
    Power.off = set()
    monkeypatch.setattr("tests.emulator.in_process_device.NoWiring", Power)
    made = Bench(tmp_path, settle=1.0, cables=reference_cables(tmp_path)[:1])
    made.ask(f"{ETHERNET}/set", f"=numbers={','.join(MASTERS)}", *GOOD)
    made.pass_time(2)
    made.device.log.clear()
    assert up(made) == set(MASTERS)
    return made


def up(bench: Bench) -> set[str]:
    return {name for name in MASTERS if bench.device.links.status(name).running}


def change(bench: Bench, *off: str) -> None:
    """Let these taps, and no others, be without power, and the kernel tell it."""
    Power.off = set(off)
    bench.device.links.look()


def interface(bench: Bench, name: str) -> dict[str, str]:
    return bench.one("/interface", f"?name={name}")


def test_the_leg_of_a_dead_node_goes_down_and_no_other(bench: Bench, tmp_path: Path) -> None:
    before = {name: interface(bench, name) for name in MASTERS}
    stamp = bench.device.clock.stamp()
    change(bench, "n2a")
    assert up(bench) == set(MASTERS) - {"qsfp56-dd-1-3"}
    assert bench.device.links.status("qsfp56-dd-1-3").why == "no signal from the peer"
    assert set(bench.device.links.attached) == {f"n{number}{half}" for number in (1, 3, 4) for half in "ab"}
    assert bench.log("interface") == ["qsfp56-dd-1-3 link down"]
    now = interface(bench, "qsfp56-dd-1-3")
    assert int(now["link-downs"]) == int(before["qsfp56-dd-1-3"]["link-downs"]) + 1
    assert stamp <= now["last-link-down-time"] <= bench.device.clock.stamp()
    assert now["running"] == "false"
    for other in set(MASTERS) - {"qsfp56-dd-1-3"}:
        assert interface(bench, other) == before[other]
    assert json.loads((tmp_path / "spark2.json").read_text())["links"]["1"]["carrier"] is False
    bench.device.log.clear()
    assert interface(bench, "qsfp56-dd-1-3") == now, "the time is not read from the log, which forgets"


def test_it_comes_up_again_after_the_settle_time(bench: Bench) -> None:
    change(bench, "n2a", "n2b")
    change(bench)
    assert up(bench) == set(MASTERS) - {"qsfp56-dd-1-3"}
    bench.pass_time(2)
    assert up(bench) == set(MASTERS)
    assert bench.log("interface") == ["qsfp56-dd-1-3 link down", "qsfp56-dd-1-3 link up"]


def test_power_that_goes_again_before_the_link_is_up(bench: Bench) -> None:
    change(bench, "n2a")
    for _ in range(2):
        change(bench)
    bench.pass_time(0.6)
    change(bench, "n2a")
    bench.pass_time(0.1)
    change(bench)
    bench.pass_time(0.6)
    assert up(bench) == set(MASTERS) - {"qsfp56-dd-1-3"}, "the settle time begins again"
    change(bench, "n2a")
    bench.pass_time(2)
    assert up(bench) == set(MASTERS) - {"qsfp56-dd-1-3"}
    change(bench)
    bench.pass_time(2)
    assert up(bench) == set(MASTERS)


def test_events_that_change_nothing_change_nothing(bench: Bench) -> None:
    for _ in range(3):
        bench.device.links.look()
    bench.pass_time(2)
    assert (up(bench), bench.log("interface")) == (set(MASTERS), [])


def test_a_switch_that_starts_beside_a_dead_node(bench: Bench) -> None:
    Power.off = {"n1a"}
    bench.device.reset()
    bench.ask(f"{ETHERNET}/set", f"=numbers={','.join(MASTERS)}", *GOOD)
    bench.pass_time(2)
    assert up(bench) == set(MASTERS) - {"qsfp56-dd-1-1"}
    change(bench)
    bench.pass_time(2)
    assert up(bench) == set(MASTERS)


def test_a_dead_node_behind_another_leg(bench: Bench) -> None:
    """Its cable is swapped with that of a node which lives."""
    change(bench, "n2a")
    links = bench.device.links
    links.plant.swap(links.plant.find("qsfp56-dd-1", 1), links.plant.find("qsfp56-dd-1", 3))
    links.restart(["qsfp56-dd-1"])
    bench.pass_time(2)
    assert up(bench) == set(MASTERS) - {"qsfp56-dd-1-1"}


def test_a_cage_without_any_signal(bench: Bench) -> None:
    (monitored,) = bench.ask(f"{ETHERNET}/monitor", "=numbers=qsfp56-dd-1-1", "=once=").rows
    assert (monitored["status"], monitored["sfp-rx-loss"]) == ("link-ok", "false")
    change(bench, "n1a", "n2a", "n3a", "n4a")
    (monitored,) = bench.ask(f"{ETHERNET}/monitor", "=numbers=qsfp56-dd-1-1", "=once=").rows
    assert (monitored["status"], monitored["sfp-rx-loss"]) == ("no-link", "true")


def test_the_carrier_of_each_tap_counts(tmp_path: Path) -> None:
    for tap, text in (("a", "1\n"), ("b", "0\n")):
        (tmp_path / tap).mkdir()
        (tmp_path / tap / "carrier").write_text(text)
    wires = BridgeWiring("fabric", tmp_path)
    given = {taps: wires.powered(taps) for taps in (("a",), ("b",), ("a", "b"), ("absent",), ("a", "absent"), ())}
    assert [taps for taps, powered in given.items() if powered] == [("a",), ()]


# --- On real taps

HOLD = """
import fcntl, os, signal, struct, sys
for name in sys.argv[1:]:
    tap = os.open("/dev/net/tun", os.O_RDWR)
    fcntl.ioctl(tap, 0x400454CA, struct.pack("16sH22x", name.encode(), 0x1002))
print("held", flush=True)
signal.pause()
"""
"""Opens taps (TUNSETIFF with IFF_TAP and IFF_NO_PI) and keeps them open, as the kernel of a node does."""
TAPS, LEG = ("n1a", "n1b"), "sfp56-1"


@pytest.fixture
def space() -> Iterator[str]:
    """A namespace with two taps, a bridge for the fabric, and a link for the switch."""
    if os.geteuid() != 0:
        pytest.skip("a namespace needs root")
    name = f"power-{secrets.token_hex(4)}"
    ns.create(name)
    try:
        ns.ip("link", "add", "fabric", "type", "bridge", namespace=name)
        for tap in TAPS:
            ns.ip("tuntap", "add", tap, "mode", "tap", namespace=name)
            ns.ip("link", "set", tap, "up", namespace=name)
        yield name
    finally:
        ns.delete(name)


def inside(space: str, *words: str) -> subprocess.Popen[str]:
    command = ["ip", "netns", "exec", space, sys.executable, *words]
    return subprocess.Popen(command, cwd=REPOSITORY, stdout=subprocess.PIPE, text=True)


def link(control: Path) -> dict[str, Any]:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(60)
        connection.connect(str(control))
        connection.sendall(b'{"op": "state"}\n')
        state = json.loads(connection.makefile().readline())
    return {**state["links"][LEG], "attached": set(state["attached"])}


def test_a_process_that_holds_the_taps_is_a_node_with_power(space: str, tmp_path: Path) -> None:
    tail = CableTail(lane=1, lanes=1, gbps=50, node="spark1", port=1, taps=TAPS)
    config = SwitchConfig(
        address="127.0.0.1",
        state=tmp_path / "state.json",
        log=tmp_path / "log",
        control=tmp_path / "control",
        bridge="fabric",
        settle=0.05,
        cables=(EmulatedCable(cage=LEG, tails=(tail,)),),
    )
    (tmp_path / "config.json").write_text(config.model_dump_json())
    switch = inside(space, "-m", "lab.routeros_emulator", "--config", str(tmp_path / "config.json"))
    assert switch.stdout is not None
    assert json.loads(switch.stdout.readline())["ready"]
    until(lambda: link(tmp_path / "control")["status"] == "no-link")
    assert link(tmp_path / "control")["why"] == "no signal from the peer"
    for round_ in range(2):
        node = inside(space, "-c", HOLD, *TAPS)
        assert node.stdout is not None
        assert node.stdout.readline() == "held\n"
        until(lambda: link(tmp_path / "control")["attached"] == set(TAPS))
        node.send_signal(signal.SIGSTOP)
        ns.ip("link", "set", "fabric", "mtu", str(1400 + round_), namespace=space)  # the switch looks after any event
        time.sleep(0.2)
        assert link(tmp_path / "control")["status"] == "link-ok", "a node that stands still keeps its link"
        node.kill()
        node.wait()
        until(lambda: link(tmp_path / "control")["attached"] == set())
        assert link(tmp_path / "control")["downs"] == round_ + 1
    switch.terminate()
    assert switch.wait(60) == 0
