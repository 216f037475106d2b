"""Prove what a node would leave behind: what the kernel, systemd, journald and nvidia-smi report, not the files that
were written. No check causes a panic or stops feeding the watchdog.
"""

from __future__ import annotations

import json
import re
import shlex
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from core.model import Node, Rack
from core.model.fields import seconds
from core.ssh.client import Machine, NodeConnections
from core.verify.node_answers import output, unit_faults, unit_properties
from core.verify.reporter import CheckReporter
from roles.blackbox import (
    boot_evidence,
    boot_parameters,
    clock_cap,
    desired,
    journal_stream,
    kdump,
    netconsole,
    recorder,
    stream_routes,
    watchdog,
)
from roles.blackbox.options import BlackboxOptions

ARRIVAL_SECONDS = 60
"""Seconds for a line to arrive at another node. A sender tries again every 10 s."""
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


pytestmark = pytest.mark.usefixtures("declared")


@pytest.fixture
def pstore(declared: BlackboxOptions) -> None:
    """Skip where pstore is left alone."""
    if not declared.pstore:
        pytest.skip("rack.yaml leaves pstore alone")


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


# claim: blackbox.watchdog-panics
def test_the_watchdog_panics_before_it_resets(node: Node, machine: Machine, rack: Rack, report: CheckReporter) -> None:
    """The driver has logged the action with which it runs, and its next start has the same."""
    if not watchdog.panics(rack):
        pytest.skip("rack.yaml leaves the watchdog, or its first stage, alone")
    names = output(node, machine, f"sh -c 'cat {watchdog.SYSFS}/watchdog*/identity 2> /dev/null || true'").splitlines()
    if watchdog.SBSA not in names:
        pytest.skip(f"only the {watchdog.SBSA} panics first; this node has {', '.join(names) or 'none'}")
    ask = "journalctl --boot --dmesg --quiet --no-pager --output=cat | grep sbsa-gwdt || true"
    log = output(node, machine, f"sh -c {shlex.quote(ask)}")
    logged = re.findall(r"Initialized with .* action=(\d+)\.", log)
    faults = []
    if not logged:
        faults.append("the kernel's log of this boot has no line of sbsa-gwdt with its action")
    elif logged[-1] != "1":
        faults.append(f"the driver runs with action={logged[-1]}, wanted 1; a reboot brings what is configured")
    by_modprobe = machine.run("modprobe --showconfig")
    options = re.findall(r"^options sbsa_gwdt (.*)$", str(by_modprobe.stdout), re.MULTILINE)
    by_modprobe_last = re.findall(r"\baction=(\S+)", " ".join(options))
    by_grub = _next_values(machine, watchdog.PARAMETER)
    following = {*by_modprobe_last[-1:], *by_grub[-1:]}
    if following != {"1"}:
        faults.append(f"the next boot has action={', '.join(sorted(following)) or 'none'}, wanted 1")
    report.judge(f"{node.name}: {fault}" for fault in faults)


def _next_values(machine: Machine, name: str) -> list[str]:
    """The values of a parameter in the first entry of GRUB; none without GRUB."""
    entry = str(machine.run(f"grep -m 1 -E '^[[:space:]]*linux[[:space:]]' {boot_parameters.CONFIG}").stdout)
    return [word.partition("=")[2] for word in entry.split() if word.startswith(f"{name}=")]


# claim: blackbox.kdump
def test_a_crash_kernel_waits(node: Node, machine: Machine, rack: Rack, report: CheckReporter) -> None:
    """The kernel has the memory and a crash kernel in it, so has the next boot; a shell reads the settings as declared.

    Without a declaration our fragment is gone.
    """
    wanted = kdump.options(rack)
    if wanted is None:
        gone = machine.run(f"test ! -e {kdump.FRAGMENT}").rc == 0
        assert gone, f"{node.name}: {kdump.FRAGMENT} is there, and no crash kernel is declared"
        return
    size, loaded = (output(node, machine, f"cat /sys/kernel/kexec_crash_{name}").strip() for name in ("size", "loaded"))
    faults = []
    if not size.isdigit() or int(size) == 0:
        faults.append(f"the kernel has reserved {size or 'nothing'} bytes, wanted {wanted.reserve}")
    if loaded != "1":
        faults.append(f"no crash kernel is loaded; journalctl --boot --unit={kdump.UNIT}")
    if _next_values(machine, kdump.PARAMETER)[-1:] != [kdump.parameter(wanted)]:
        faults.append(f"the next boot does not have {kdump.PARAMETER}={kdump.parameter(wanted)}")
    if (state := unit_properties(node, machine, kdump.UNIT, "UnitFileState")["UnitFileState"]) != "enabled":
        faults.append(f"{kdump.UNIT} is {state or 'unknown'}, wanted enabled")
    settings = {**kdump.settings(wanted), **({"KDUMP_SKIP_VMCORE": "0"} if wanted.vmcore else {})}
    words = " ".join(f'"${{{key}:-0}}"' for key in settings)
    read = f". {kdump.SETTINGS}; echo {words}"
    found = output(node, machine, f"sh -c {shlex.quote(read)}").split()
    if found != list(settings.values()):
        faults.append(f"{', '.join(settings)} are {' '.join(found) or 'unset'}, wanted {' '.join(settings.values())}")
    runs = unit_properties(node, machine, "kdump-tools-dump.service", "ExecStart")["ExecStart"]
    if (kdump.PROGRAM in runs) == wanted.vmcore:
        wrong = "the log alone" if wanted.vmcore else "the memory as well"
        faults.append(f"the crash kernel would write {wrong}: kdump-tools-dump.service runs {runs or 'nothing'}")
    report.judge(f"{node.name}: {fault}" for fault in faults)


@pytest.mark.parametrize("key", SETTINGS)
def test_kernel_setting_is_live(node: Node, machine: Machine, rack: Rack, key: str) -> None:
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
def test_kernel_setting_comes_back_at_boot(node: Node, machine: Machine, rack: Rack, key: str) -> None:
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
    state = unit_properties(node, machine, desired.PSTORE_UNIT, "UnitFileState")["UnitFileState"]
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


def test_the_journal_is_on_the_disk(node: Node, machine: Machine) -> None:
    """journalctl reads entries of this boot from /var/log/journal, and the flush at boot is not masked."""
    command = "journalctl --directory=/var/log/journal --boot --lines=1 --quiet --no-pager --output=short-unix"
    assert output(node, machine, command).strip(), f"{node.name}: /var/log/journal has no entry of this boot"
    state = unit_properties(node, machine, desired.FLUSH_UNIT, "UnitFileState")["UnitFileState"]
    assert not state.startswith("masked"), f"{node.name}: {desired.FLUSH_UNIT} is masked: a boot's journal is lost"


def test_the_journal_is_synchronized(node: Node, machine: Machine, rack: Rack, report: CheckReporter) -> None:
    """The settings in the order in which journald reads them, and journald started after they were written."""
    faults = [
        f"{key} of journald is {found or 'unset'}, wanted {wanted}"
        for key, wanted in desired.journal_settings(rack).items()
        if (found := configured(node, machine, "systemd/journald.conf", key)) != wanted
    ]
    written = output(node, machine, f"stat --format=%Y {desired.JOURNAL}").strip()
    process = unit_properties(node, machine, desired.JOURNAL_UNIT, "MainPID")["MainPID"]
    age = output(node, machine, f"ps -o etimes= -p {shlex.quote(process)}").strip()
    now = output(node, machine, "date +%s").strip()
    assert all(re.fullmatch("[0-9]+", word) for word in (written, age, now)), f"{node.name}: age of journald: {age!r}"
    if int(now) - int(age) + 2 < int(written):  # ps and stat cut off fractions of a second
        faults.append(f"journald started before {desired.JOURNAL} was written and has not read it")
    report.judge(f"{node.name}: {fault}" for fault in faults)


def test_the_clock_is_capped(node: Node, machine: Machine, rack: Rack, report: CheckReporter) -> None:
    """The unit is enabled and has set the cap in this boot, and the clock is not above it now; or there is no unit."""
    wanted = clock_cap.cap(rack, node)
    if wanted is None:
        state = unit_properties(node, machine, clock_cap.NAME, "LoadState")
        assert state["LoadState"] == "not-found", f"{node.name}: {clock_cap.NAME} is there, and no cap is declared"
        return
    faults = unit_faults(node, machine, clock_cap.NAME)
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


def _receiver_faults(node: Node, machine: Machine, what: str, listing: str, port: int, service: str) -> Iterator[str]:
    """Yield what is wrong with a receiver: its unit runs, and it listens at the management address and nowhere else.

    what: it receives. listing: the command that lists sockets. service: its unit; empty where no node sends here.
    """
    places = [line.split()[3] for line in output(node, machine, listing).splitlines()]
    found = sorted(place for place in places if place.endswith(f":{port}"))
    wanted = [f"{stream_routes.address(node)}:{port}"] if service else []
    yield from unit_faults(node, machine, service) if service else ()
    if found != wanted:
        shown, right = (", ".join(some) or "no address" for some in (found, wanted))
        yield f"{what} are received at {shown}, wanted {right}"


def test_journals_are_received_at_the_management_address(
    node: Node, machine: Machine, rack: Rack, declared: BlackboxOptions, report: CheckReporter
) -> None:
    """The receiver runs and listens there and nowhere else; nothing listens where no journal is received."""
    if not declared.remote:
        pytest.skip("rack.yaml has the journal stay on its node")
    service = journal_stream.RECEIVE if journal_stream.senders(rack, node) else ""
    faults = _receiver_faults(node, machine, "journals", "ss -Hltn", stream_routes.JOURNAL_PORT, service)
    report.judge(f"{node.name}: {fault}" for fault in faults)


def test_the_node_has_its_own_certificate(node: Node, machine: Machine, rack: Rack, report: CheckReporter) -> None:
    """openssl accepts it for both ends, its key belongs to it and only root reads that, and it is not about to end."""
    if not (journal_stream.encrypted(rack) and journal_stream.receiver(rack, node)):
        pytest.skip("rack.yaml declares nothing that is encrypted")
    faults = []
    key, certificate, authority = journal_stream.KEY, journal_stream.CERTIFICATE, journal_stream.AUTHORITY
    mode = output(node, machine, f"stat --format='%a %U:%G' {key}").strip()
    if mode != "600 root:root":
        faults.append(f"{key} is {mode}, wanted 600 root:root")
    for purpose in ("sslserver", "sslclient"):
        names = f"-verify_ip {stream_routes.address(node)} -verify_hostname {shlex.quote(node.name)}"
        done = machine.run(f"openssl verify -CAfile {authority} -purpose {purpose} {names} {certificate}")
        if done.rc != 0:
            why = " ".join(str(done.stderr or done.stdout).split())[:200]
            faults.append(f"openssl refuses {certificate} as {purpose}: {why}")
    public = [
        output(node, machine, f"openssl {words}")
        for words in (f"pkey -in {key} -pubout", f"x509 -in {certificate} -noout -pubkey")
    ]
    if public[0] != public[1]:
        faults.append(f"{certificate} is not of {key}")
    if machine.run(f"openssl x509 -in {certificate} -noout -checkend {30 * 86400}").rc != 0:
        faults.append(f"{certificate} ends within 30 days; run sparkrack apply --only blackbox")
    report.judge(f"{node.name}: {fault}" for fault in faults)


def test_the_journal_arrives_at_another_node(
    node: Node, machine: Machine, rack: Rack, machines: NodeConnections, excluded: frozenset[str]
) -> None:
    """A line that is written here is read there, in the file of this node."""
    to = journal_stream.receiver(rack, node)
    if to is None:
        pytest.skip("rack.yaml has the journal stay on its node")
    what, units = "the journal", (journal_stream.UPLOAD, journal_stream.UPLOAD, journal_stream.RECEIVE)
    route = _Route(node, to, what, "a line of its journal", *units)
    file = shlex.quote(f"{journal_stream.RECEIVED}/remote-{node.name}.journal")
    only = "SYSLOG_IDENTIFIER=sparkrack-verify"
    read = f"journalctl --quiet --no-pager --output=cat --lines=500 --file={file} {only}"
    route.check(machine, machines, excluded, lambda marker: f"logger --tag sparkrack-verify {marker}", read)


@dataclass(frozen=True)
class _Route:
    """The way of messages to another node. what, one: all of them, and one, in words. runs: the unit that has to run;
    sends, receives: those whose journals say why a message did not arrive."""

    node: Node
    to: Node
    what: str
    one: str
    runs: str
    sends: str
    receives: str

    def check(
        self,
        machine: Machine,
        machines: NodeConnections,
        excluded: frozenset[str],
        write: Callable[[str], str],
        read: str,
    ) -> None:
        """Write a marker here, and find it there. write: the command that writes it; read: the one that prints it."""
        name, to = self.node.name, self.to.name
        faults = unit_faults(self.node, machine, self.runs)
        assert not faults, f"{name}: {'; '.join(faults)}"
        if to in excluded:
            pytest.skip(f"{to}, which receives {self.what}, is excluded")
        marker = f"sparkrack-verify-{uuid.uuid4()}"
        output(self.node, machine, write(marker))
        assert _arrives_in_time(machines[to], read, marker), (
            f"{name}: {self.one} did not reach {to} within {ARRIVAL_SECONDS} s; see "
            f"`journalctl --unit={self.sends}` on {name} and `journalctl --unit={self.receives}` on {to}"
        )


def _arrives_in_time(receiver: Machine, read: str, marker: str) -> bool:
    """Whether a command at the receiver prints the marker in time."""
    end = time.monotonic() + ARRIVAL_SECONDS
    while marker not in str(receiver.run(read).stdout):
        if time.monotonic() > end:
            return False
        time.sleep(1)
    return True


def test_kernel_messages_are_received_at_the_management_address(
    node: Node, machine: Machine, rack: Rack, declared: BlackboxOptions, report: CheckReporter
) -> None:
    """The receiver runs and is bound to that address and to no other; none is where no kernel sends to."""
    if not declared.netconsole:
        pytest.skip("rack.yaml has the messages of the kernel stay on its node")
    service = netconsole.RECEIVE if netconsole.senders(rack, node) else ""
    port = stream_routes.NETCONSOLE_PORT
    faults = _receiver_faults(node, machine, "messages of kernels", "ss -Hlun", port, service)
    report.judge(f"{node.name}: {fault}" for fault in faults)


# claim: blackbox.netconsole
def test_the_kernel_messages_arrive_at_another_node(
    node: Node, machine: Machine, rack: Rack, machines: NodeConnections, excluded: frozenset[str]
) -> None:
    """A message of this kernel with the priority of a warning is read there, in the file of this node."""
    to = netconsole.receiver(rack, node)
    if to is None:
        pytest.skip("rack.yaml has the messages of the kernel stay on its node")
    what, units = "the messages of the kernel", (netconsole.TIMER, netconsole.SERVICE, netconsole.RECEIVE)
    route = _Route(node, to, what, "a message of its kernel", *units)
    read = f"tail --lines=500 {shlex.quote(f'{netconsole.RECEIVED}/{node.name}.log')}"
    write = "echo '<4>{}' > /dev/kmsg"
    route.check(machine, machines, excluded, lambda marker: f"sh -c {shlex.quote(write.format(marker))}", read)


def test_samples_are_recorded(node: Node, machine: Machine, rack: Rack, report: CheckReporter) -> None:
    """The newest record of the ring is of this boot, a few periods old and knows the GPU; or there is no recorder."""
    wanted = recorder.options(rack)
    if wanted is None:
        state = unit_properties(node, machine, recorder.NAME, "LoadState")
        assert state["LoadState"] == "not-found", f"{node.name}: {recorder.NAME} is there, and no recorder is declared"
        return
    faults = unit_faults(node, machine, recorder.NAME)
    newest, now = newest_record(node, machine, recorder.RING)
    limit = max(5, 10 / wanted.rate)
    boot = output(node, machine, "cat /proc/sys/kernel/random/boot_id").strip().replace("-", "")
    if newest is None:
        faults.append(f"{recorder.RING} has no record")
    elif newest["boot"] != boot or abs(now - newest["time"]) > limit:
        age = recorder.age_text(now - newest["time"])
        faults.append(f"the newest record is {age}, wanted at most {limit:g} s old")
    # claim: blackbox.recorder-gpu
    elif newest["gpu"]["state"] != "ok":
        faults.append(f"values of the GPU are {newest['gpu']['state']}; journalctl --unit={recorder.NAME}")
    report.judge(f"{node.name}: {fault}" for fault in faults)


def test_metrics_of_the_recorder_are_new(node: Node, machine: Machine, rack: Rack) -> None:
    """The file for the textfile collector has the time of a sample that is not older than a few intervals."""
    if recorder.options(rack) is None:
        pytest.skip("rack.yaml declares no recorder")
    name = "sparkrack_recorder_last_sample_timestamp_seconds"
    found = re.search(rf"^{name} ([0-9.]+)$", output(node, machine, f"cat {recorder.METRICS}"), re.MULTILINE)
    assert found, f"{node.name}: {recorder.METRICS} has no {name}"
    age = int(output(node, machine, "date +%s").strip()) - float(found[1])
    reported = f"the sample of {recorder.METRICS} is {recorder.age_text(age)}, wanted at most 60 s old"
    assert abs(age) <= 60, f"{node.name}: {reported}"


def test_samples_are_received_at_the_management_address(
    node: Node, machine: Machine, rack: Rack, declared: BlackboxOptions, report: CheckReporter
) -> None:
    """The receiver runs and listens there and nowhere else; nothing listens where no sample is received."""
    if not (declared.remote and recorder.options(rack)):
        pytest.skip("rack.yaml has the samples stay on their node")
    service = recorder.RECEIVER if recorder.senders(rack, node) else ""
    faults = _receiver_faults(node, machine, "samples", "ss -Hltn", recorder.PORT, service)
    report.judge(f"{node.name}: {fault}" for fault in faults)


def test_samples_of_other_nodes_arrive(node: Node, machine: Machine, rack: Rack, report: CheckReporter) -> None:
    """The newest record that a node has received of each node that sends to it is not older than a minute."""
    sending = recorder.senders(rack, node) if recorder.options(rack) else {}
    if not sending:
        pytest.skip("no node sends samples to this one")
    faults = []
    for other in sending:
        newest, now = newest_record(node, machine, f"{recorder.PEERS}/{other}.ring")
        if newest is None:
            faults.append(f"no sample of {other} has arrived")
        elif abs(now - newest["time"]) > recorder.SILENT:
            age = recorder.age_text(now - newest["time"])
            faults.append(f"the newest sample of {other} is {age}, wanted at most {recorder.SILENT} s old")
    report.judge(f"{node.name}: {fault}" for fault in faults)


def newest_record(node: Node, machine: Machine, ring: str) -> tuple[dict[str, Any] | None, float]:
    """Return the newest record of a ring, None without one, and the time of the node in seconds."""
    if machine.run(f"test -e {ring}").rc != 0:
        return None, 0.0
    lines = output(node, machine, f"{recorder.PROGRAM} dump --last 1 {ring}").splitlines()
    now = float(output(node, machine, "date +%s.%N").strip())
    return (json.loads(lines[0]) if lines else None), now


def test_the_boot_has_its_evidence(
    node: Node, machine: Machine, declared: BlackboxOptions, report: CheckReporter
) -> None:
    """Both units are active and enabled, and this boot has its evidence; or no unit is there."""
    if not declared.boot_evidence:
        for name in boot_evidence.NAMES:
            load = unit_properties(node, machine, name, "LoadState")["LoadState"]
            assert load == "not-found", f"{node.name}: {name} is there, and boot_evidence is false"
        return
    faults = [fault for name in boot_evidence.NAMES for fault in unit_faults(node, machine, name)]
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
            faults.append(f"{path} is not evidence: {done.stdout[:40]!r}")
    report.judge(f"{node.name}: {fault}" for fault in faults)
