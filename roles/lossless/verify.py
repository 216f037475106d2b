"""Prove what a node does about loss: what ethtool, dcb and the driver show, against the switch's policy in the rack."""

from __future__ import annotations

import re

import pytest

from core.model import Leg, Node, Port, Rack, lossless_classes
from core.ssh.client import Machine
from roles.lossless.desired import SCRIPT, UNIT

HALF = (0, 1)


@pytest.fixture
def policy(rack: Rack, leg: tuple[Leg, Port]) -> str:
    """Policy of the switch at the other end of the cable."""
    policy = rack.switches[leg[0].switch].lossless
    if policy not in ("pause", "roce"):
        pytest.skip(f"{policy} sets nothing on nodes")
    return policy


@pytest.fixture
def roce(policy: str) -> None:
    """Skip unless the policy has priorities."""
    if policy != "roce":
        pytest.skip("only RoCE has priorities")


def command_output(machine: Machine, command: str) -> str:
    """Return the output of a command on the node."""
    done = machine.run(command)
    assert done.rc == 0, f"{command}: {(done.stderr or done.stdout).strip() or f'exit {done.rc}'}"
    return str(done.stdout)


@pytest.mark.parametrize("half", HALF)
def test_pause_is_as_on_the_switch(leg: tuple[Leg, Port], policy: str, machine: Machine, half: int) -> None:
    """Link pause in both directions, on with `pause` and off with `roce`, where it would stop every priority."""
    name = leg[1].halves[half].interface
    output = dict(re.findall(r"^(RX|TX):\s+(on|off)$", command_output(machine, f"ethtool -a {name}"), re.MULTILINE))
    on = "on" if policy == "pause" else "off"
    assert output == {"RX": on, "TX": on}, (
        f"{leg[1].node}/{name}: pause is {output}, its switch has {policy}: wanted {on}"
    )


@pytest.mark.parametrize("half", HALF)
def test_one_priority_is_lossless_or_none(leg: tuple[Leg, Port], policy: str, machine: Machine, half: int) -> None:
    """Flow control of priorities: the one of RoCE, and none with `pause`."""
    name = leg[1].halves[half].interface
    (line,) = re.findall(r"^.*prio-pfc.*$", command_output(machine, f"dcb pfc show dev {name}"), re.MULTILINE)
    on = [int(priority) for priority in re.findall(r"(\d):on", line)]
    right = [lossless_classes.ROCE_CLASS] if policy == "roce" else []
    assert on == right, f"{leg[1].node}/{name}: lossless are priorities {on}, wanted {right}"


@pytest.mark.usefixtures("roce")
@pytest.mark.parametrize("half", HALF)
def test_marks_go_where_the_switch_sends_them(leg: tuple[Leg, Port], machine: Machine, half: int) -> None:
    """RDMA and its notifications have the same classes as on the switch."""
    name = leg[1].halves[half].interface
    output = command_output(machine, f"dcb -N app show dev {name}")
    for dscp, wanted in (
        (lossless_classes.ROCE_DSCP, lossless_classes.ROCE_CLASS),
        (lossless_classes.CNP_DSCP, lossless_classes.CNP_CLASS),
    ):
        found = re.findall(rf"(?:^|\s){dscp}:(\d)(?=\s|$)", output)
        assert found == [str(wanted)], f"{leg[1].node}/{name}: DSCP {dscp} has priority {found}, wanted {wanted}"


@pytest.mark.usefixtures("roce")
@pytest.mark.parametrize("half", HALF)
def test_congestion_is_reported_and_heard(leg: tuple[Leg, Port], machine: Machine, half: int) -> None:
    """The driver notices marks, reacts to notifications, and sends them with the mark that the switch prioritizes."""
    name = leg[1].halves[half].interface
    files = {
        f"roce_np/enable/{lossless_classes.ROCE_CLASS}": 1,
        f"roce_rp/enable/{lossless_classes.ROCE_CLASS}": 1,
        "roce_np/cnp_dscp": lossless_classes.CNP_DSCP,
    }
    for file, wanted in files.items():
        output = command_output(machine, f"cat /sys/class/net/{name}/ecn/{file}").strip()
        assert output == str(wanted), f"{leg[1].node}/{name}: {file} is {output}, wanted {wanted}"


@pytest.mark.usefixtures("roce")
@pytest.mark.parametrize("half", HALF)
def test_rdma_is_marked(leg: tuple[Leg, Port], machine: Machine, half: int) -> None:
    """All RDMA of the device behind the interface carries the mark, regardless of its program's choice."""
    name = leg[1].halves[half].interface
    output = command_output(
        machine,
        f"for d in /sys/class/infiniband/*; do [ ! -e $d/device/net/{name} ] || cat $d/tc/*/traffic_class; done",
    )
    wanted = lossless_classes.ROCE_TRAFFIC_CLASS
    assert output.splitlines()[:1] == [f"Global tclass={wanted}"], (
        f"{leg[1].node}/{name}: RDMA is marked {output.strip() or 'by its programs'}, wanted {wanted}"
    )


@pytest.mark.parametrize("half", HALF)
def test_it_comes_back_with_the_interface(leg: tuple[Leg, Port], policy: str, machine: Machine, half: int) -> None:
    """systemd itself reports that the interface starts our unit, and that it did not fail."""
    name = leg[1].halves[half].interface
    unit = f"sparkrack-lossless@{name}.service"
    wants = command_output(
        machine, f"systemctl show --property=Wants --value sys-subsystem-net-devices-{name}.device"
    ).split()
    assert unit in wants, f"{leg[1].node}/{name}: nothing brings {policy} back when the interface appears"
    state = command_output(machine, f"systemctl show --property=ActiveState --value {unit}").strip()
    assert state == "active", f"{leg[1].node}/{name}: {unit} is {state}"
    done = machine.run(f"sh -n {SCRIPT}")
    assert done.rc == 0, f"{leg[1].node}: {SCRIPT}: {done.stderr.strip()}"


def test_nothing_is_left_where_loss_is_left_alone(rack: Rack, node: Node, machine: Machine) -> None:
    """No file of ours where no switch of the node has a policy."""
    legs = [rack.cabling.leg_of(port) for port in rack.cabling.ports_of(node.name)]
    if any(leg and rack.switches[leg.switch].lossless in ("pause", "roce", "leave") for leg in legs):
        return
    left = [path for path in (SCRIPT, UNIT) if machine.file(path).exists]
    assert not left, f"{node.name}: {', '.join(left)} is left, though no switch of the node has a policy"
