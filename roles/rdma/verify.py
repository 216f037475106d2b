"""Verify that RDMA is used and works: from a login, a service and the kernel, and by measurement on request."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace

import pytest

from core.model import Node, Port, Rack
from core.model.rdma_flows import Flow, used
from core.ssh.client import Machine, NodeConnections
from core.ssh.root_shell import UnreachableError
from core.verify.fabric_use import FabricUse
from core.verify.measurements import Bandwidth
from core.verify.plugin import WatchForwarding
from core.verify.reporter import CheckReporter
from roles.rdma import bandwidth as measuring
from roles.rdma.bandwidth_verdict import SUSPECTED, BandwidthVerdict, MeasuredFlow, enough, judge, line
from roles.rdma.desired import NCCL_CONF, sysctls, users
from roles.rdma.environment import ENV, GID_INDEX, variables


@pytest.fixture
def wanted(rack: Rack, node: Node, machine: Machine) -> dict[str, str]:
    """The desired environment of this node, with its own interface data."""
    asked = f"ip -j -4 address show to {node.address}; echo; rdma link show 2>/dev/null || true"
    shown, _, links = machine.run(asked).stdout.partition("\n")
    names = [link["ifname"] for link in json.loads(shown or "[]") if link.get("addr_info")]
    assert len(names) == 1, f"{node.name}: {len(names)} interfaces hold {node.address}, wanted one"
    devices = {netdev: device for device, netdev in re.findall(r"^link (\S+)/1 .*netdev (\S+)", links, re.MULTILINE)}
    return variables(rack, node, names[0], devices)


@pytest.fixture(autouse=True)
def _beside_no_collective(bandwidth: bool, fabric_use: FabricUse) -> Iterator[None]:
    """Measure while no all-reduce of another session has the fabric."""
    if not bandwidth:
        yield
        return
    with fabric_use.shared():
        yield


def _list_differences(wanted: dict[str, str], printed: str) -> list[str]:
    """Return the differences between an environment and the desired one."""
    found = dict(entry.split("=", 1) for entry in printed.splitlines() if "=" in entry)
    lines = [
        f"{key} is {found.get(key, 'not set')}, wanted {value}"
        for key, value in wanted.items()
        if found.get(key) != value
    ]
    if "NCCL_IB_GID_INDEX" in found:
        lines.append(f"NCCL_IB_GID_INDEX is pinned to {found['NCCL_IB_GID_INDEX']}, wanted none")
    return lines


def test_a_login_has_the_environment_and_may_pin_memory(
    node: Node, machine: Machine, rack: Rack, wanted: dict[str, str], report: CheckReporter
) -> None:
    """A new login of each user, by PAM and its own shell start-up."""
    faults = []
    for user in users(rack):
        # From a low limit, as a daemon's that has not been restarted: so it is PAM that lifts it.
        done = machine.run(f"prlimit --memlock=65536 su -l {shlex.quote(user)} -s /bin/sh -c 'ulimit -l; env'")
        limit, _, environment = done.stdout.partition("\n")
        if done.rc != 0:
            faults.append(f"{node.name}: {user} cannot log in: {done.stderr.strip()}")
            continue
        if limit != "unlimited":
            faults.append(f"{node.name}: {user} may pin {limit} KiB, wanted unlimited")
        faults += [f"{node.name}: in a login of {user} {text}" for text in _list_differences(wanted, environment)]
    report.judge(faults)


def test_a_service_has_the_environment_and_may_pin_memory(
    node: Node, machine: Machine, wanted: dict[str, str], report: CheckReporter
) -> None:
    """systemd reads the file, and gives a new unit no limit."""
    done = machine.run(f"systemd-run --wait --pipe --quiet -p EnvironmentFile={ENV} /bin/sh -c 'ulimit -l; env'")
    assert done.rc == 0, f"{node.name}: a service with EnvironmentFile={ENV} does not start: {done.stderr.strip()}"
    limit, _, environment = done.stdout.partition("\n")
    faults = [f"{node.name}: in a service {text}" for text in _list_differences(wanted, environment)]
    if limit != "unlimited":
        faults.append(f"{node.name}: a service may pin {limit} KiB, wanted unlimited")
    report.judge(faults)


def test_nccl_conf_does_not_turn_rdma_off(node: Node, machine: Machine) -> None:
    """The values that NCCL would read there; anything but a zero turns RDMA off."""
    done = machine.run(f"[ ! -e {NCCL_CONF} ] || awk -F= '$1 == \"NCCL_IB_DISABLE\" {{ print $2 }}' {NCCL_CONF}")
    assert done.rc == 0, f"{node.name}: {NCCL_CONF} cannot be read: {done.stderr.strip()}"
    values = [value.strip() for value in done.stdout.splitlines()]
    bad = [value for value in values if re.match(r"[+-]?(0x0*[1-9a-f]|0*[1-7]|[1-9])", value, re.IGNORECASE)]
    assert not bad, f"{node.name}: {NCCL_CONF} turns RDMA off (NCCL_IB_DISABLE={bad[0]})"


def test_each_half_answers_for_itself(node: Node, machine: Machine, rack: Rack, report: CheckReporter) -> None:
    """The kernel's values, by `sysctl`; it takes the larger one of `all` and the interface's own."""
    keys = sysctls(rack, node)
    shown = machine.run(f"sysctl {shlex.join(keys)}")
    live = dict(re.findall(r"^(\S+) = (\d+)$", shown.stdout, re.MULTILINE))
    faults = []
    for key, wanted in keys.items():
        shared = f"net.ipv4.conf.all.{key.rsplit('.', 1)[1]}"
        value = live.get(key)
        if value is None:
            faults.append(f"{node.name}: {key} is not there")
        elif value != wanted if ".default." in key else max(int(value), int(live.get(shared, 0))) != int(wanted):
            faults.append(f"{node.name}: {key} is {value}, wanted {wanted}")
    report.judge(faults)


def test_each_half_answers_for_itself_after_a_boot(
    node: Node, machine: Machine, rack: Rack, report: CheckReporter
) -> None:
    """The last word in all drop-ins, in the order that systemd reads them."""
    config = machine.run("systemd-analyze cat-config sysctl.d --no-pager")
    assert config.rc == 0, f"{node.name}: systemd-analyze: {config.stderr.strip()}"
    faults = []
    for key, wanted in sysctls(rack, node).items():
        pattern = re.escape(key).replace(r"\.", "[./]")
        values = re.findall(rf"^\s*-?{pattern}\s*=\s*(\S+)", config.stdout, re.MULTILINE)
        if values[-1:] != [wanted]:
            faults.append(f"{node.name}: {key} will be {values[-1] if values else 'unset'} after a boot, not {wanted}")
    report.judge(faults)


def test_gids_are_found(node: Node, machine: Machine, rack: Rack, report: CheckReporter) -> None:
    """The program that launchers call finds every fabric address among the GIDs."""
    if not used(rack, node.name):
        pytest.skip("the node has no cable")
    if not machine.file("/sys/class/infiniband").exists:
        pytest.skip("the node has no RDMA devices (a virtual one never has)")
    done = machine.run(GID_INDEX)
    report.note(f"{node.name}: {(done.stdout or done.stderr).strip()}")
    assert done.rc == 0, f"{node.name}: {done.stderr.strip()}"


def test_bandwidth(
    node: Node,
    rack: Rack,
    machines: NodeConnections,
    bandwidth: bool,
    excluded: frozenset[str],
    watch_forwarding: WatchForwarding,
    report: CheckReporter,
) -> None:
    """Each half alone, and both at once where the cable needs both, to the next node; every figure gets a verdict."""
    if not bandwidth:
        pytest.skip("bandwidth is measured with --bandwidth: it fills the fabric for some seconds")
    runs = measuring.tests(rack, node.name)
    if not runs:
        pytest.skip("no other node shares a subnet")
    runs = [flows for flows in runs if flows[0].there.half.node not in excluded]
    if not runs:
        pytest.skip("every neighbour to measure with is excluded")
    faults, dark = [], []
    for flows in runs:
        where = measuring.about(flows)
        try:
            found = _measure_flow(rack, flows, machines)
            if judge(found) is SUSPECTED:
                found = _measure_watched(rack, flows, machines, watch_forwarding)
        except (UnreachableError, ValueError) as error:
            dark.append(f"{where}: {error}")
            report.measured(_bandwidth_value(flows, str(error)))
            continue
        verdict = judge(found)
        report.measured(_bandwidth_value(flows, verdict.step, found, verdict))
        if verdict.good:
            report.note(line(where, found, verdict))
        else:
            faults.append(line(where, found, verdict))
    report.judge(faults, dark)


def _measure_flow(rack: Rack, flows: Sequence[Flow], machines: NodeConnections) -> MeasuredFlow:
    """Let both ends run their tools. Raises ValueError or UnreachableError when that gives no figure."""
    there = machines[flows[0].there.half.node].run(measuring.server(flows))
    if there.rc != 0:
        raise ValueError(f"the other end cannot receive: {_last_line(there.stderr)}")
    here = machines[flows[0].here.half.node].run(measuring.client(flows))
    try:
        return measuring.measured(rack, flows, here.stdout, there.stdout)
    except ValueError as error:
        raise ValueError(f"not measured: {_last_line(here.stderr) or error}") from None


def _measure_watched(
    rack: Rack, flows: Sequence[Flow], machines: NodeConnections, watch: WatchForwarding
) -> MeasuredFlow:
    """Measure again while the switch's counters are watched: the rate alone does not prove what forwards."""
    halves = dict.fromkeys(flow.here.half for flow in flows)
    legs = [leg for half in halves if (leg := rack.cabling.leg_of(Port(half.node, half.port)))]
    ended = watch(rack, legs)
    try:
        found = _measure_flow(rack, flows, machines)
    finally:
        by_cpu = ended()
    return replace(found, by_cpu=by_cpu)


def _bandwidth_value(
    flows: Sequence[Flow],
    reason: str,
    found: MeasuredFlow | None = None,
    verdict: BandwidthVerdict | None = None,
) -> Bandwidth:
    """One measurement as a report shows it."""
    return Bandwidth(
        halves=tuple(flow.here.half.index for flow in flows),
        sender=flows[0].here.half.node,
        sender_devices=tuple(flow.here.half.interface for flow in flows),
        receiver=flows[0].there.half.node,
        gbps=found.figures if found else (),
        least=enough(found) if found else None,
        verdict=verdict.name if verdict else "not measured",
        good=verdict.good if verdict else None,
        reason=reason,
    )


def _last_line(text: str) -> str:
    lines = [entry.strip() for entry in text.splitlines() if entry.strip()]
    return lines[-1] if lines else ""
