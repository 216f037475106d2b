"""Prove what a node would leave behind: what the kernel, systemd, journald and nvidia-smi report, not the files that
were written. No check causes a panic or stops feeding the watchdog.
"""

from __future__ import annotations

import json
import re
import shlex

import pytest

from core.model import Node, Rack
from core.model.fields import seconds
from core.ssh.client import Machine
from core.verify.reporter import CheckReporter
from roles.blackbox import boot_evidence, clock_cap, desired, watchdog
from roles.blackbox.options import BlackboxOptions

SETTINGS = (
    "kernel.panic",
    "kernel.panic_on_oops",
    "kernel.softlockup_panic",
    "kernel.panic_on_rcu_stall",
    "kernel.max_rcu_stall_to_panic",
    "kernel.hung_task_panic",
    "vm.panic_on_oom",
)


@pytest.fixture
def declared(rack: Rack) -> BlackboxOptions:
    """The declared section."""
    found = rack.declared(BlackboxOptions)
    if found is None:
        pytest.skip("rack.yaml declares no blackbox")
    return found


@pytest.fixture
def pstore(declared: BlackboxOptions) -> None:
    """Skip where pstore is left alone."""
    if not declared.pstore:
        pytest.skip("rack.yaml leaves pstore alone")


def output(node: Node, machine: Machine, command: str) -> str:
    """Return the output of a command on the node."""
    done = machine.run(f"LC_ALL=C {command}")
    assert done.rc == 0, f"{node.name}: {command}: {(done.stderr or done.stdout).strip() or f'exit {done.rc}'}"
    return str(done.stdout)


def shown(node: Node, machine: Machine, unit: str, *properties: str) -> dict[str, str]:
    """Return systemd's properties of a unit; of systemd itself for an empty name."""
    found = output(node, machine, f"systemctl show --property={','.join(properties)} {unit}".rstrip())
    return dict(line.partition("=")[::2] for line in found.splitlines())


def configured(node: Node, machine: Machine, file: str, key: str) -> str:
    """Return the last value of a key in a configuration file and its drop-ins, in the order in which they apply."""
    text = output(node, machine, f"systemd-analyze cat-config {file} --no-pager")
    values = re.findall(rf"^[ \t]*-?{re.escape(key)}[ \t]*=[ \t]*(.*?)[ \t]*$", text, re.MULTILINE)
    return values[-1] if values else ""


def test_systemd_feeds_the_watchdog(
    node: Node, machine: Machine, declared: BlackboxOptions, report: CheckReporter
) -> None:
    """systemd has the limit, and a watchdog in /sys is active with this timeout."""
    if not declared.watchdog:
        pytest.skip("rack.yaml leaves the watchdog alone")
    wanted = seconds(declared.watchdog)
    now = watchdog.manager(output(node, machine, "systemctl show --property=RuntimeWatchdogUSec,RebootWatchdogUSec"))
    faults = []
    if now.runtime != wanted:
        faults.append(f"RuntimeWatchdogUSec of systemd is {now.runtime} s, wanted {wanted} s")
    if now.reboot != watchdog.REBOOT_SECONDS:
        faults.append(f"RebootWatchdogUSec of systemd is {now.reboot} s, wanted {watchdog.REBOOT_SECONDS} s")
    states = output(
        node,
        machine,
        f"sh -c 'for d in {watchdog.SYSFS}/watchdog*; do [ ! -e $d/state ] || echo $(cat $d/state $d/timeout); done'",
    ).splitlines()
    if f"active {wanted}" not in states:
        faults.append(f"no watchdog is active with {wanted} s: {', '.join(states) or 'there is none'}")
    report.judge(f"{node.name}: {fault}" for fault in faults)


@pytest.mark.parametrize("key", SETTINGS)
def test_kernel_setting_is_live(node: Node, machine: Machine, rack: Rack, declared: BlackboxOptions, key: str) -> None:  # noqa: ARG001
    """`sysctl` shows the value in the kernel."""
    wanted = desired.sysctls(rack).get(key)
    if wanted is None:
        pytest.skip(f"rack.yaml declares nothing that sets {key}")
    done = machine.run(f"sysctl -n {key}")
    if done.rc != 0:
        path = shlex.quote("/proc/sys/" + key.replace(".", "/"))
        there = machine.run(f"test -e {path}").rc == 0
        assert not there, f"{node.name}: sysctl -n {key}: {done.stderr.strip() or f'exit {done.rc}'}"
        if not wanted:
            pytest.skip(f"this kernel has no {key}, and rack.yaml declares it off")
        pytest.fail(f"{node.name}: this kernel has no {key} ({desired.SYMBOLS.get(key, 'unknown option')})")
    live = str(done.stdout).strip()
    assert live == str(wanted), f"{node.name}: {key} is {live}, wanted {wanted}"


@pytest.mark.parametrize("key", SETTINGS)
def test_kernel_setting_comes_back_at_boot(
    node: Node,
    machine: Machine,
    rack: Rack,
    declared: BlackboxOptions,  # noqa: ARG001
    key: str,
) -> None:
    """The last value in all drop-ins, in the order in which systemd reads them."""
    wanted = desired.sysctls(rack).get(key)
    if wanted is None:
        pytest.skip(f"rack.yaml declares nothing that sets {key}")
    found = configured(node, machine, "sysctl.d", key)
    assert found == str(wanted), f"{node.name}: {key} will be {found or 'unset'} after a boot, wanted {wanted}"


@pytest.mark.usefixtures("pstore")
def test_the_kernel_can_store_a_panic(node: Node, machine: Machine) -> None:
    """A backend is registered, and the file system with its records is mounted."""
    backend = output(node, machine, "cat /sys/module/pstore/parameters/backend").strip()
    assert backend not in ("", "(null)"), f"{node.name}: pstore has no backend"
    mounted = machine.run("findmnt --noheadings --output FSTYPE /sys/fs/pstore")
    assert str(mounted.stdout).strip() == "pstore", f"{node.name}: /sys/fs/pstore is not mounted"


@pytest.mark.usefixtures("pstore")
def test_records_are_archived(node: Node, machine: Machine, report: CheckReporter) -> None:
    """The unit is enabled and archives outside of the journal, nothing deletes the archive, and no record waits."""
    faults = []
    state = shown(node, machine, desired.PSTORE_UNIT, "UnitFileState")["UnitFileState"]
    if state != "enabled":
        faults.append(f"{desired.PSTORE_UNIT} is {state or 'unknown'}, wanted enabled")
    if (storage := configured(node, machine, "systemd/pstore.conf", "Storage")) != "external":
        faults.append(f"Storage of systemd-pstore is {storage or 'unset'}, wanted external")
    kept = output(node, machine, "systemd-tmpfiles --cat-config --no-pager").splitlines()
    if f"x {desired.ARCHIVE}/*" not in kept:
        faults.append(f"systemd-tmpfiles deletes records in {desired.ARCHIVE} by age")
    if waiting := output(node, machine, "ls /sys/fs/pstore").split():
        faults.append(
            f"{len(waiting)} records in /sys/fs/pstore are not archived; `systemctl start {desired.PSTORE_UNIT}`"
        )
    report.judge(f"{node.name}: {fault}" for fault in faults)


def test_the_journal_is_on_the_disk(node: Node, machine: Machine, declared: BlackboxOptions) -> None:  # noqa: ARG001
    """journalctl reads entries of this boot from /var/log/journal, and the flush at boot is not masked."""
    command = "journalctl --directory=/var/log/journal --boot --lines=1 --quiet --no-pager --output=short-unix"
    assert output(node, machine, command).strip(), f"{node.name}: /var/log/journal has no entry of this boot"
    state = shown(node, machine, desired.FLUSH_UNIT, "UnitFileState")["UnitFileState"]
    assert not state.startswith("masked"), f"{node.name}: {desired.FLUSH_UNIT} is masked: a boot's journal is lost"


def test_the_journal_is_synchronized(
    node: Node,
    machine: Machine,
    rack: Rack,
    declared: BlackboxOptions,  # noqa: ARG001
    report: CheckReporter,
) -> None:
    """The settings in the order in which journald reads them, and journald started after they were written."""
    faults = [
        f"{key} of journald is {found or 'unset'}, wanted {wanted}"
        for key, wanted in desired.journal_settings(rack).items()
        if (found := configured(node, machine, "systemd/journald.conf", key)) != wanted
    ]
    written = output(node, machine, f"stat --format=%Y {desired.JOURNAL}").strip()
    process = shown(node, machine, desired.JOURNAL_UNIT, "MainPID")["MainPID"]
    age = output(node, machine, f"ps -o etimes= -p {shlex.quote(process)}").strip()
    now = output(node, machine, "date +%s").strip()
    assert all(re.fullmatch("[0-9]+", word) for word in (written, age, now)), f"{node.name}: age of journald: {age!r}"
    if int(now) - int(age) + 2 < int(written):  # ps and stat cut off fractions of a second
        faults.append(f"journald started before {desired.JOURNAL} was written and has not read it")
    report.judge(f"{node.name}: {fault}" for fault in faults)


def test_the_clock_is_capped(
    node: Node,
    machine: Machine,
    rack: Rack,
    declared: BlackboxOptions,  # noqa: ARG001
    report: CheckReporter,
) -> None:
    """The unit is enabled and has set the cap in this boot, and the clock is not above it now; or there is no unit."""
    wanted = clock_cap.cap(rack, node)
    state = shown(node, machine, clock_cap.NAME, "LoadState", "ActiveState", "UnitFileState")
    if wanted is None:
        assert state["LoadState"] == "not-found", f"{node.name}: {clock_cap.NAME} is there, and no cap is declared"
        return
    faults = [
        f"{clock_cap.NAME} is {state[key] or 'unknown'}, wanted {value}"
        for key, value in (("ActiveState", "active"), ("UnitFileState", "enabled"))
        if state[key] != value
    ]
    # claim: blackbox.clock-cap
    text = output(node, machine, f"journalctl --boot --unit={clock_cap.NAME} --no-pager --quiet --output=cat")
    limits = re.findall(r"gpuClkMin (\d+), gpuClkMax (\d+)", text)
    if not limits or limits[-1] != (str(clock_cap.FLOOR), str(wanted)):
        last = " to ".join(limits[-1]) if limits else "no range"
        faults.append(f"nvidia-smi has set {last} in this boot, wanted {clock_cap.FLOOR} to {wanted} MHz")
    query = "nvidia-smi --query-gpu=clocks.sm --format=csv,noheader,nounits"
    clocks = output(node, machine, query).split()
    if not clocks or not all(clock.isdigit() for clock in clocks):
        faults.append(f"clock of the GPU is unknown: {' '.join(clocks)[:40]!r}")
    elif max(map(int, clocks)) > wanted + clock_cap.TOLERANCE:
        faults.append(f"the clock of the GPU is {max(map(int, clocks))} MHz, wanted at most {wanted} MHz")
    report.judge(f"{node.name}: {fault}" for fault in faults)


def test_the_boot_has_its_evidence(
    node: Node, machine: Machine, declared: BlackboxOptions, report: CheckReporter
) -> None:
    """Both units are active and enabled, and this boot has its evidence; or no unit is there."""
    if not declared.boot_evidence:
        for name in boot_evidence.NAMES:
            load = shown(node, machine, name, "LoadState")["LoadState"]
            assert load == "not-found", f"{node.name}: {name} is there, and boot_evidence is false"
        return
    faults = []
    for name in boot_evidence.NAMES:
        state = shown(node, machine, name, "ActiveState", "UnitFileState")
        faults += [
            f"{name} is {state[key] or 'unknown'}, wanted {value}"
            for key, value in (("ActiveState", "active"), ("UnitFileState", "enabled"))
            if state[key] != value
        ]
    boot = output(node, machine, "cat /proc/sys/kernel/random/boot_id").strip().replace("-", "")
    path = f"{boot_evidence.BOOTS}/{boot}/evidence.json"
    done = machine.run(f"cat {shlex.quote(path)}")
    if done.rc != 0:
        faults.append(f"{path} is not there; journalctl --boot --unit={boot_evidence.COLLECT}")
    else:
        try:
            found = json.loads(done.stdout)
            if found["boot"] != boot:
                faults.append(f"{path} is about boot {found['boot']}")
        except (ValueError, TypeError, KeyError):
            faults.append(f"{path} is no evidence: {done.stdout[:40]!r}")
    report.judge(f"{node.name}: {fault}" for fault in faults)
