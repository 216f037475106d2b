"""Units of the project are sandboxed: `systemd-analyze security` gives each an exposure below its limit."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from core.model import load
from roles.blackbox import boot_evidence, clock_cap, journal_stream, netconsole, recorder
from roles.blackbox.options import BlackboxOptions, RecorderOptions
from roles.lossless import boot_unit
from roles.memory import memory_guard
from roles.watch import node_metrics, switch_reader
from sparkrack.drift import systemd_timer
from tests.unit.drift import plans
from tests.unit.model.racks import SWITCH, changed, loaded
from tests.unit.roles import serving_units
from tests.unit.test_project import PACKAGES, TOP

RACK = load(TOP / "examples/rack.yaml")
ANALYZE = pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed")


@dataclass(frozen=True)
class UnitLimit:
    """The largest exposure of a unit, from 0 to 10. `reason`: what of its work needs the rest."""

    text: Callable[[], str]
    at_most: float
    reason: str


def served(name: str) -> str:
    """The text of a service of a unit of the rack, on its head."""
    file = next(file for file in serving_units.head_files() if file.path.endswith(f"/{name}"))
    return file.content.decode()


def stream_unit(name: str) -> str:
    """The text of a unit of the first node of a rack whose nodes send all that they can to it, and it to another."""
    options = BlackboxOptions(remote="tls", netconsole="plain")
    rack = RACK.model_copy(update={"blackbox": options})
    first, second, *_ = rack.nodes.values()
    files = [
        *journal_stream.receiver_files(rack, first),
        *netconsole.receiver_files(rack, first),
        *netconsole.sender_files(rack, first, second),
    ]
    return next(file for file in files if file.path.endswith(f"/{name}")).content.decode()


def recorder_text(name: str) -> str:
    """The text of a unit of the flight recorder whose samples leave the node."""
    rack = loaded(changed(SWITCH, ("rack: two", "rack: two\nblackbox: {recorder: {}}")))
    one, other = rack.nodes.values()
    stream = recorder.SampleStream("tls", str(other.address), other.name)
    if name == recorder.RECEIVER:
        return recorder.receive_unit(rack, other, RecorderOptions(), {one.name: stream}).content.decode()
    return recorder.unit(rack, one, RecorderOptions(), stream).content.decode()


def evidence_unit(name: str) -> str:
    """The text of a unit of the boot evidence."""
    return next(file for file in boot_evidence.files(RACK) if file.path.endswith(f"/{name}")).content.decode()


def watch_unit(name: str) -> str:
    """The text of a unit of the watch."""
    rack = loaded(changed(SWITCH, ("rack: two", "rack: two\nwatch: {}")))
    return next(file for file in switch_reader.files(rack) if file.path.endswith(f"/{name}")).content.decode()


LIMITS = {
    "roles/blackbox/templates/sparkrack-boot-evidence.service": UnitLimit(
        lambda: evidence_unit(boot_evidence.COLLECT),
        2.5,
        # claim: blackbox.boot-evidence
        "root with CAP_SYS_ADMIN and the disks: reads journal, records of panics and counters of disks",
    ),
    "roles/blackbox/templates/sparkrack-clean-stop.service": UnitLimit(
        lambda: evidence_unit(boot_evidence.MARK), 2.0, "root: asks systemd, writes one file"
    ),
    "roles/blackbox/templates/sparkrack-clock-cap.service": UnitLimit(
        lambda: clock_cap.unit(RACK, 2200).content.decode(),
        2.5,
        # claim: blackbox.clock-cap
        "root with CAP_SYS_ADMIN and the devices of the GPU: sets the range of its clock",
    ),
    "roles/blackbox/templates/sparkrack-journal-receive.service": UnitLimit(
        lambda: stream_unit("sparkrack-journal-receive.service"),
        2.0,
        # claim: blackbox.remote-journal
        "a user of its own in the network namespace of the host: opens a port, writes received journals",
    ),
    "roles/blackbox/templates/sparkrack-netconsole-receive.service": UnitLimit(
        lambda: stream_unit("sparkrack-netconsole-receive.service"),
        2.0,
        "root in the network namespace of the host: opens a port, writes received messages",
    ),
    "roles/blackbox/templates/sparkrack-netconsole.service": UnitLimit(
        lambda: stream_unit("sparkrack-netconsole.service"),
        3.9,
        # claim: blackbox.netconsole
        "root with CAP_SYS_ADMIN: configures netconsole below /sys, sets the level of the console, writes to /dev/kmsg",
    ),
    "roles/blackbox/templates/sparkrack-recorder.service": UnitLimit(
        lambda: recorder_text(recorder.NAME),
        3.0,
        # claim: blackbox.recorder-gpu
        "root with CAP_SYSLOG, the devices of the GPU and the network: follows the kernel's log, and sends samples",
    ),
    "roles/blackbox/templates/sparkrack-recorder-receive.service": UnitLimit(
        lambda: recorder_text(recorder.RECEIVER),
        2.0,
        "root in the network namespace of the host: opens a port, and reads the key of the node",
    ),
    "roles/lossless/templates/sparkrack-lossless@.service": UnitLimit(
        lambda: boot_unit.unit("two").decode(),
        2.5,
        # claim: lossless.sysfs-capability
        "root in the network namespace of the host, with CAP_NET_ADMIN: sets an interface and files below /sys",
    ),
    "roles/memory/templates/sparkrack-memory-guard.service": UnitLimit(
        lambda: memory_guard.unit(RACK).content.decode(),
        2.0,
        "root: writes cgroup.kill and /dev/kmsg, reads /proc/meminfo",
    ),
    "serving/templates/sparkrack-gateway.service": UnitLimit(
        lambda: serving_units.gateway_file("sparkrack-gateway.service"),
        3.0,
        # claim: serving.gateway
        "root in the network namespace of the host: opens a port, reads keys, and becomes www-data",
    ),
    "serving/templates/sparkrack-gateway-router.service": UnitLimit(
        lambda: serving_units.gateway_file("sparkrack-gateway-router.service"),
        1.0,
        # claim: serving.gateway-router
        "a user of its own without a network: answers nginx at a socket",
    ),
    "serving/templates/sparkrack-serve-coordinator.service": UnitLimit(
        lambda: served("sparkrack-serve-deepseek_v4_flash-coordinator.service"),
        2.0,
        "root in the network namespace of the host: reads a secret, answers agents, asks the engine",
    ),
    "serving/templates/sparkrack-serve-agent.service": UnitLimit(
        lambda: served("sparkrack-serve-deepseek_v4_flash-agent.service"),
        3.8,
        # claim: serving.hang-evidence, serving.kernel-stop
        "root with CAP_NET_RAW, CAP_SYS_PTRACE, CAP_SYS_ADMIN, the devices of the GPU and the control groups: runs the "
        "gate and systemctl, ends a container through the kernel, reads the stacks of an engine that hangs",
    ),
    "serving/templates/sparkrack-serve.service": UnitLimit(
        lambda: served("sparkrack-serve-deepseek_v4_flash.service"),
        3.0,
        "root with CAP_NET_RAW and the devices of the GPU: runs the gate, and the client of docker",
    ),
    "roles/watch/templates/sparkrack-switch-reader.service": UnitLimit(
        lambda: watch_unit(switch_reader.SERVICE),
        2.0,
        "a user of its own in the network namespace of the host: asks the switches",
    ),
    "roles/watch/templates/sparkrack-node-metrics.service": UnitLimit(
        lambda: node_metrics.files(RACK)[1].content.decode(),
        2.5,
        # claim: watch.node-metrics
        "root with CAP_DAC_READ_SEARCH in the network namespace of the host: reads /sys and all journals, asks systemd",
    ),
    "sparkrack/drift/templates/sparkrack-drift.service": UnitLimit(
        lambda: next(text for name, text in systemd_timer.units(plans.TIMER).items() if name.endswith(".service")),
        2.5,
        "the network and the home folder of its user: logs in to the nodes by ssh",
    ),
}
"""Each service of the project, by its template."""


def exposure(folder: Path, template: str, text: str) -> float:
    """The exposure of a unit, as systemd-analyze calculates it from the file alone."""
    file = folder / Path(template).name.replace("@.", "@x.")
    file.write_text(text)
    command = ["systemd-analyze", "security", "--offline=true", "--no-pager", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    found = re.search(r"Overall exposure level for \S+: ([0-9.]+) ", done.stdout)
    assert found, done.stdout[-500:] + done.stderr
    return float(found[1])


def test_every_service_has_a_limit() -> None:
    files = {str(path.relative_to(TOP)) for top in PACKAGES for path in (TOP / top).rglob("*.service")}
    assert {path for path in files if not path.startswith("lab/")} == set(LIMITS)
    assert all(limit.at_most < 4 for limit in LIMITS.values())


@ANALYZE
@pytest.mark.parametrize("template", sorted(LIMITS))
def test_a_service_stays_below_its_limit(tmp_path: Path, template: str) -> None:
    limit = LIMITS[template]
    found = exposure(tmp_path, template, limit.text())
    assert found <= limit.at_most, f"{template}: exposure {found}, wanted {limit.at_most} ({limit.reason})"


@ANALYZE
@pytest.mark.parametrize("template", sorted(LIMITS))
def test_a_removed_option_is_found(tmp_path: Path, template: str) -> None:
    limit = LIMITS[template]
    lines = limit.text().splitlines(keepends=True)
    weaker = [line for line in lines if not line.startswith("CapabilityBoundingSet=")]
    assert weaker != lines
    assert exposure(tmp_path, template, "".join(weaker)) > limit.at_most


@pytest.mark.parametrize(
    ("template", "option"),
    [
        # With each of these the guard starts, reports nothing and ends nothing.
        ("roles/memory/templates/sparkrack-memory-guard.service", "ProtectControlGroups"),
        ("roles/memory/templates/sparkrack-memory-guard.service", "ProtectKernelLogs"),
        ("roles/memory/templates/sparkrack-memory-guard.service", "PrivateDevices"),
        ("roles/memory/templates/sparkrack-memory-guard.service", "ProcSubset"),
        ("roles/memory/templates/sparkrack-memory-guard.service", "PrivateUsers"),
        ("roles/lossless/templates/sparkrack-lossless@.service", "ProtectKernelTunables"),
        ("roles/lossless/templates/sparkrack-lossless@.service", "PrivateNetwork"),
        ("roles/lossless/templates/sparkrack-lossless@.service", "PrivateUsers"),
        # With each of these nvidia-smi finds no GPU.
        ("roles/blackbox/templates/sparkrack-clock-cap.service", "PrivateDevices"),
        ("roles/blackbox/templates/sparkrack-clock-cap.service", "ProtectClock"),
        # With each of these the recorder sees no GPU, no line of the kernel, no memory, or no interface of the node.
        ("roles/blackbox/templates/sparkrack-recorder.service", "PrivateDevices"),
        ("roles/blackbox/templates/sparkrack-recorder.service", "ProtectClock"),
        ("roles/blackbox/templates/sparkrack-recorder.service", "ProtectKernelLogs"),
        ("roles/blackbox/templates/sparkrack-recorder.service", "ProcSubset"),
        ("roles/blackbox/templates/sparkrack-recorder.service", "PrivateNetwork"),
        ("roles/blackbox/templates/sparkrack-recorder-receive.service", "PrivateNetwork"),
        # With each of these the gate refuses permanently: it drops cached files, sends echoes and asks the driver.
        ("serving/templates/sparkrack-serve.service", "ProtectKernelTunables"),
        ("serving/templates/sparkrack-serve.service", "PrivateDevices"),
        ("serving/templates/sparkrack-serve.service", "ProtectClock"),
        ("serving/templates/sparkrack-serve.service", "PrivateNetwork"),
        ("serving/templates/sparkrack-serve-agent.service", "ProtectKernelTunables"),
        ("serving/templates/sparkrack-serve-agent.service", "PrivateDevices"),
        ("serving/templates/sparkrack-serve-agent.service", "ProtectClock"),
        ("serving/templates/sparkrack-serve-agent.service", "PrivateNetwork"),
        # With this it cannot end what docker has left of its rank.
        ("serving/templates/sparkrack-serve-agent.service", "ProtectControlGroups"),
        ("serving/templates/sparkrack-serve-coordinator.service", "PrivateNetwork"),
        # With this no switch is reached.
        ("roles/watch/templates/sparkrack-switch-reader.service", "PrivateNetwork"),
        # With each of these it finds no change of a carrier, or no setting of the kernel, or systemd refuses to answer.
        ("roles/watch/templates/sparkrack-node-metrics.service", "PrivateNetwork"),
        ("roles/watch/templates/sparkrack-node-metrics.service", "ProcSubset"),
        ("roles/watch/templates/sparkrack-node-metrics.service", "PrivateUsers"),
    ],
)
def test_no_option_that_its_work_does_not_survive(template: str, option: str) -> None:
    assert f"\n{option}=" not in LIMITS[template].text()
