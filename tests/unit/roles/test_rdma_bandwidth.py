"""Measuring: who sends to whom, and both ends run by a real shell with the lab's stand-in for the tool."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given, settings

from core.model import Address, Leg, Rack, reachable
from core.model.rdma_flows import Flow
from core.ssh.client import NodeConnections
from core.verify.reporter import CheckReporter
from roles.rdma import bandwidth, verify
from roles.rdma.bandwidth import client, measured, server
from roles.rdma.bandwidth import tests as runs_of
from roles.rdma.bandwidth_verdict import MeasuredFlow, judge
from tests.unit.model.racks import DIRECT, RING, SWITCH, changed, loaded
from tests.unit.model.random_racks import any_rack
from tests.unit.ops.shells import rooted, stand_in

FAST = changed(SWITCH, ("4x100G", "2x200G"), ("qsfp56-dd-1-3", "qsfp56-dd-1-5"))


def printed(text: str, node: str) -> list[str]:
    return [bandwidth.about(flows) for flows in runs_of(loaded(text), node)]


@pytest.mark.parametrize(
    ("text", "node", "wanted"),
    [
        (SWITCH, "spark1", ["spark1/enp1s0f1np1 -> spark2", "spark1/enP2p1s0f1np1 -> spark2"]),
        (
            FAST,
            "spark2",
            [
                "spark2/enp1s0f1np1 -> spark1",
                "spark2/enP2p1s0f1np1 -> spark1",
                "spark2/enp1s0f1np1+enP2p1s0f1np1 -> spark1",
            ],
        ),
        (
            RING,
            "spark1",
            [
                "spark1/enp1s0f0np0 -> spark2",
                "spark1/enP2p1s0f0np0 -> spark2",
                "spark1/enp1s0f1np1 -> spark3",
                "spark1/enP2p1s0f1np1 -> spark3",
                "spark1/enp1s0f0np0+enP2p1s0f0np0 -> spark2",
                "spark1/enp1s0f1np1+enP2p1s0f1np1 -> spark3",
            ],
        ),
    ],
    ids=["100G", "200G", "ring"],
)
def test_who_sends_to_whom(text: str, node: str, wanted: list[str]) -> None:
    assert printed(text, node) == wanted


@settings(max_examples=12, deadline=None)
@given(any_rack)
def test_every_half_once_and_no_two_meet(text: str) -> None:
    rack = loaded(text)
    singles: list[Flow] = []
    ports: Counter[int] = Counter()
    for node in rack.nodes:
        for flows in runs_of(rack, node):
            ports.update(flow.port for flow in flows)
            assert all((flow.here, flow.there) in reachable(rack) for flow in flows)
            if len(flows) == 1:
                singles += flows
            else:
                # The node's own other test of that half is over by then.
                assert len({flow.there.half.node for flow in flows}) == 1
    halves = Counter(flow.here for flow in singles)
    assert halves == Counter(a for a in rack.addresses if a in {here for here, _ in reachable(rack)})
    assert Counter(flow.there for flow in singles).most_common(1)[0][1] == 1, "one sender for each receiver"
    assert max(ports.values()) == 1
    assert all(18515 < port < 32768 for port in ports)


TOOL = """\
#!{python} -IS
import socket, sys
words = sys.argv[1:]
own = {figures}[words[words.index("-d") + 1]]
port = int(words[words.index("-p") + 1])
if words[-2] == "-s":
    with socket.create_server(("127.0.0.1", port)) as server:
        server.settimeout(30)
        other, _ = server.accept()
else:
    other = socket.create_connection((words[-1], port), timeout=120)
other.sendall(b"%.2f\\n" % own)
theirs = float(other.makefile().readline())
print(" 1048576    5000             0.00              %.2f              0.01" % min(own, theirs))
"""
"""Meets its peer as the real one does; the slower end says how fast."""


def node(root: Path, **figures: float) -> Path:
    """A folder like a node's, with such a tool."""
    stand_in(root, "lspci", "echo '\t\tLnkSta:\tSpeed 32GT/s, Width x4'")
    stand_in(root, "ethtool", "echo '\tSpeed: 200000Mb/s'")
    stand_in(root, "ib_write_bw")
    (root / "bin/ib_write_bw").write_text(TOOL.format(python=sys.executable, figures=figures))
    return root


def on(root: Path, script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["/bin/sh", "-c", rooted(script, root)],
        capture_output=True,
        text=True,
        env={"PATH": f"{root}/bin:{os.environ['PATH']}", "LC_ALL": "C"},
        stdin=subprocess.DEVNULL,
        timeout=60,
    )


def local(flows: Sequence[Flow], port: int) -> tuple[Flow, ...]:
    """The same, over the loopback, on ports of its own."""

    def here(address: Address) -> Address:
        return Address(address.half, type(address.interface)("127.0.0.1/8"))

    return tuple(Flow(flow.here, here(flow.there), port + tag) for tag, flow in enumerate(flows))


def free_port() -> int:
    """Somewhere in a range that differs between processes."""
    return 20000 + os.getpid() % 5000 * 2


@pytest.mark.parametrize(
    ("which", "first", "second", "reported"),
    [(0, 109.0, 13.2, "stale ConnectX-7"), (2, 98.0, 51.0, "too low")],
)
def test_both_ends(tmp_path: Path, which: int, first: float, second: float, reported: str) -> None:
    rack = loaded(DIRECT)
    flows = local(runs_of(rack, "left")[which], free_port())
    sender = node(tmp_path / "left", rocep1s0f1=first, roceP2p1s0f1=second)
    receiver = node(tmp_path / "right", rocep1s0f1=first if which else second, roceP2p1s0f1=109.0)
    there = on(receiver, server(flows))
    assert (there.returncode, there.stderr) == (0, "")
    here = on(sender, client(flows))
    assert here.returncode == 0, here.stderr
    found = measured(rack, flows, here.stdout, there.stdout)
    assert (found.link, found.lanes, found.leg, found.switched, found.moved) == (200.0, 4, 200, False, None)
    assert found.figures == ((min(first, second),) if not which else (first, second))
    assert judge(found).name == reported


def test_a_node_without_the_tool(tmp_path: Path) -> None:
    flows = runs_of(loaded(DIRECT), "left")[0]
    for script in (server(flows), client(flows)):
        hidden = script.replace("type ib_write_bw", "type no_such_tool")
        done = on(tmp_path, hidden)
        assert (done.returncode, done.stderr) == (1, "ib_write_bw is not there (package perftest)\n")


def test_a_tool_that_fails(tmp_path: Path) -> None:
    rack = loaded(DIRECT)
    flows = local(runs_of(rack, "left")[0], free_port())
    stand_in(tmp_path, "ib_write_bw", "echo ' Unable to init the socket connection' >&2; exit 1")
    there = on(tmp_path, server(flows))
    assert there.returncode == 1
    assert "Unable to init" in there.stderr
    here = on(tmp_path, client(flows))
    assert here.returncode == 0
    with pytest.raises(ValueError, match="Unable to init the socket connection"):
        measured(rack, flows, here.stdout, "")


PERFTEST = """\
0 link 200000
0 lanes 4
0 sent 1000 17031251000
0 exit 0
0 said ---------------------------------------------------------------------------------------
0 said                     RDMA_Write BW Test
0 said  Dual-port       : OFF          Device         : rocep1s0f1
0 said  Number of qps   : 4            Transport type : IB
0 said  GID index       : 3
0 said ---------------------------------------------------------------------------------------
0 said  #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
0 said  1048576    64973            0.00               109.01               0.012995
0 said ---------------------------------------------------------------------------------------
"""
"""As perftest prints with -D (reported): no peak, and one row."""


def rack_and_flow() -> tuple[Rack, tuple[Flow, ...]]:
    rack = loaded(SWITCH)
    return rack, runs_of(rack, "spark1")[0]


def test_what_perftest_prints() -> None:
    found = measured(*rack_and_flow(), PERFTEST, "0 link 100000\n0 lanes 2\n")
    assert (found.figures, found.moved, found.switched, found.leg) == ((109.01,), True, True, 100)
    assert (found.link, found.lanes) == (100.0, 2), "the worse of both ends"


def test_counters_that_stand_still() -> None:
    found = measured(*rack_and_flow(), PERFTEST.replace("17031251000", "1200"), "")
    assert found.moved is False
    assert judge(found).name == "TCP fallback"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "ib_write_bw says nothing"),
        (PERFTEST.replace("exit 0", "exit 124"), "-----"),
        (PERFTEST.replace("109.01", "nan"), "-----"),
        (
            "0 exit 1\n0 said Couldn't connect to 192.168.100.2:18600\n0 said \n",
            "Couldn't connect to 192.168.100.2:18600",
        ),
    ],
)
def test_no_figure_is_not_a_measurement(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        measured(*rack_and_flow(), text, "")


def test_the_live_gid_is_used(tmp_path: Path) -> None:
    stand_in(tmp_path, "ib_write_bw")
    program = tmp_path / "usr/local/lib/sparkrack/gid-index"
    program.parent.mkdir(parents=True)
    program.write_text("#!/bin/sh\n[ $1 = mlx5_1 ] && echo 5\n")
    program.chmod(0o755)
    (tmp_path / "sys/class/net/enp1s0f1np1/device/infiniband/mlx5_1").mkdir(parents=True)
    flows = runs_of(loaded(SWITCH), "spark1")[0]
    assert on(tmp_path, client(flows)).returncode == 0
    assert (tmp_path / "calls").read_text() == (
        "ib_write_bw -d mlx5_1 -x 5 -p 18600 -D 5 -q 4 --report_gbits -s 1048576 192.168.100.2\n"
    )


@pytest.mark.parametrize(
    ("figure", "by_cpu", "verdict", "measurements"),
    [
        (6.7, True, "CPU-forwarded", 2),
        (6.7, False, "slow by the chip", 2),
        (6.7, None, "perhaps CPU-forwarded", 2),
        (98.0, True, "", 1),
        (13.2, True, "stale ConnectX-7", 1),
    ],
)
def test_the_switch_is_blamed_only_for_what_its_counters_show(
    monkeypatch: pytest.MonkeyPatch, figure: float, by_cpu: bool | None, verdict: str, measurements: int
) -> None:
    """A suspicious figure is measured a second time, while the counters of the sender's leg are watched."""
    rack = loaded(SWITCH)
    happened: list[str] = []
    legs: list[str] = []

    def measure(*_: object) -> MeasuredFlow:
        happened.append("measured")
        return MeasuredFlow((figure,), 100, link=100.0, lanes=4, moved=True)

    def watch(_rack: Rack, watched: Sequence[Leg]) -> Callable[[], bool | None]:
        happened.append("watched")
        legs.extend(leg.interface for leg in watched)

        def ended() -> bool | None:
            happened.append("ended")
            return by_cpu

        return ended

    monkeypatch.setattr(verify, "_measure_flow", measure)
    first = runs_of(rack, "spark1")[:1]
    monkeypatch.setattr(bandwidth, "tests", lambda *_: first)
    properties: list[tuple[str, object]] = []
    report = CheckReporter(properties)
    check = partial(verify.test_bandwidth, rack.nodes["spark1"], rack, cast("NodeConnections", {}), True, frozenset())
    with contextlib.suppress(pytest.fail.Exception, AssertionError):
        check(watch, report)
    assert happened == (["measured", "watched", "measured", "ended"] if measurements == 2 else ["measured"])
    assert legs == (["qsfp56-dd-1-1"] if measurements == 2 else [])
    if verdict:
        assert f", {verdict}: " in str(properties)
