"""Bring a node's memory to the state in `desired`."""

from __future__ import annotations

from pyinfra.api.deploy import deploy

from core.model import CONTAINER_SLICE, Node, Rack
from core.ops import remote_files
from core.ops.announce import file_diff
from core.ops.managed_service import ServiceChanges
from core.ops.operation import Changeset, managed_operation
from core.ops.shell import quick_script, quote, sudo_script
from core.util import managed_file
from core.util.event import Action, Event, EventKind, acted, value_change
from roles.memory import (
    ROLE,
    container_slice,
    daemon_protection,
    desired,
    memory_gate,
    memory_guard,
    services,
)
from roles.memory.cgroups import CGROUPS, GUARD, SYSTEM
from roles.memory.facts import OTHERS, UNITS, ZRAM, MemoryFacts
from roles.memory.options import MemoryOptions


@deploy(ROLE.title)
def apply(rack: Rack, node: Node) -> None:  # noqa: ARG001 - every role is called alike
    """Turn swap off permanently (`swap: true` in rack.yaml: not managed), set kernel settings live and at boot, a limit
    for all containers, a guard for memory that no limit counts, and protect daemons from a shortage.

    No limit counts memory that CUDA takes; the guard reads four times a second, and a faster allocation is too fast for
    it.
    """
    if not rack.options(MemoryOptions).swap:
        swap_off(name="Turn swap off, now and after a reboot", rack=rack)
    keep_free(name="Keep memory free for the kernel, live and at boot", rack=rack)
    limit_containers(name="Bound all containers together", rack=rack)
    protect_daemons(name="Protect sshd, the network and logins", rack=rack)
    # Last: it checks the results of the limit and the protection.
    run_memory_guard(name="Watch how much memory is available", rack=rack)
    install_memory_gate(name="Install the step that makes room before a launch", rack=rack)


@managed_operation("memory", MemoryFacts)
def swap_off(facts: MemoryFacts) -> Changeset:
    """End swapping: fstab entries commented out, swap units masked, swap areas and zram devices released."""
    fstab = facts.reading.content(desired.FSTAB) or b""
    units = desired.to_mask(facts.reading.text(UNITS), fstab)
    swapped = desired.active(facts.reading.text("/proc/swaps"))
    zram = desired.configured_zram(facts.reading.text(ZRAM))
    wanted = desired.without_swap(fstab)
    if wanted == fstab and not units and not swapped and not zram:
        return Changeset(in_sync_reason="swap is off, and nothing brings it back")
    events = [file_diff(desired.FSTAB, fstab, wanted)] if wanted != fstab else []
    events += [*acted(Action.MASK, *units), *acted(Action.SWAPOFF, *swapped), *acted(Action.RELEASE, *zram)]
    commands = []
    if wanted != fstab:
        # A last check that the file was not written in between.
        unchanged = f"base64 -w0 {desired.FSTAB} | grep -qxF {quote(remote_files.encoded(fstab))}"
        commands.append(remote_files.put(desired.FSTAB, wanted, mode="644", before=fstab, check=unchanged))
    if units:
        commands.append(sudo_script(f"systemctl mask --quiet {quote(*units)}"))
    if swapped or units:
        commands.append(sudo_script("swapoff -a"))
    commands += [sudo_script(zram_reset_script(device)) for device in zram]
    return Changeset(events=tuple(events), commands=tuple(commands))


def zram_reset_script(device: str) -> str:
    """Return the shell text that frees a zram device's memory.

    The kernel refuses while the device is open, and udev opens it for a moment after every use, so this retries for ten
    seconds. A device that no longer exists by then, as zram-generator's, is the desired result.
    """
    reset = quote(f"/sys/block/{device}/reset")
    busy = quote(f"{device} is still in use; lsof /dev/{device} tells by whom")
    return (
        f"n=0; while [ -e {reset} ]; do if echo 1 > {reset} 2>/dev/null; then break; fi; "
        f"n=$((n + 1)); [ $n -lt 50 ] || {{ echo {busy} >&2; exit 1; }}; sleep 0.2; done"
    )


@managed_operation("memory", MemoryFacts)
def keep_free(facts: MemoryFacts) -> Changeset:
    """Set the kernel's memory settings now and in a drop-in that is read last."""
    wanted, before = desired.sysctls(facts.rack), facts.reading.content(desired.DROPIN)
    total = facts.total_kb
    live = {key: facts.reading.number(desired.live_path(key)) for key in wanted}
    overriders = desired.conflicting_settings(facts.reading.text(OTHERS), facts.rack)
    too_much = desired.too_much_free(facts.rack, total)
    if too_much or overriders:
        return Changeset(blockers=(*([too_much] if too_much else []), *overriders))
    after = desired.dropin(facts.rack)
    wrong = {key: value for key, value in wanted.items() if live[key] != value}
    if before == after and not wrong:
        return Changeset(in_sync_reason="the kernel keeps the declared memory free, live and at boot")
    events = [file_diff(desired.DROPIN, before, after)] if before != after else []
    events += [value_change(key, live[key], value) for key, value in wrong.items()]
    commands = [remote_files.put(desired.DROPIN, after, mode="644")] if before != after else []
    if wrong:
        commands.append(sudo_script(f"sysctl -qw {quote(*(f'{key}={value}' for key, value in wrong.items()))}"))
    return Changeset(events=tuple(events), commands=tuple(commands))


@managed_operation("memory", MemoryFacts)
def limit_containers(facts: MemoryFacts) -> Changeset:
    """Keep the slice of all containers: its unit, started from boot on, and its limits live."""
    rack, now = facts.rack, facts.live.group(CONTAINER_SLICE)
    wrong = container_slice.wrong(rack, now)
    warnings = tuple(Event(EventKind.NOTE, detail=line) for line in container_slice.notes(rack, facts.total_kb))
    reasons = {} if now.there else {CONTAINER_SLICE: container_slice.settings(rack)}
    changes = services.CEILING.differences(facts.state(services.CEILING, [container_slice.unit(rack)]), reasons)
    # systemd knows the new value by now but leaves the control group as it is until it next looks (measured).
    live = [f"echo {wanted} > {CGROUPS}/{CONTAINER_SLICE}/{file}" for file, wanted in wrong.items()]
    live += [] if now.there else [f"cat {CGROUPS}/{CONTAINER_SLICE}/memory.max > /dev/null"]
    if live:
        events = tuple(container_slice.changes(rack, now))
        changes += ServiceChanges(events, tuple(map(quick_script, live)))
    return changes.changeset("all containers together are bounded, live and at boot", warnings)


@managed_operation("memory", MemoryFacts)
def protect_daemons(facts: MemoryFacts) -> Changeset:
    """Reserve memory for sshd, the network and logins, and protect them from the OOM killer; restarts nothing."""
    live = facts.live
    kept = daemon_protection.drifted_reservations(live)
    exposed = daemon_protection.unprotected_daemons(live)
    dropins = daemon_protection.dropins(facts.rack)
    changes = services.PROTECTION.differences(facts.state(services.PROTECTION, dropins))
    commands = []
    for unit, wanted in kept.items():
        group = unit if unit == SYSTEM else f"{SYSTEM}/{unit}"
        commands.append(quick_script(f"echo {wanted} > {CGROUPS}/{group}/memory.min"))
    for daemon in exposed:
        # A running process keeps its score regardless of its unit, and sshd is not restarted for it.
        main = f"$(systemctl show --property=MainPID --value {daemon.unit})"
        commands.append(quick_script(f'p={main}; [ "$p" -gt 0 ]; echo {daemon.score} > "/proc/$p/oom_score_adj"'))
    changes += ServiceChanges(tuple(daemon_protection.changes(live)), tuple(commands))
    return changes.changeset("sshd, the network and logins are protected")


@managed_operation("memory", MemoryFacts)
def run_memory_guard(facts: MemoryFacts) -> Changeset:
    """Keep the guard running with the rack's floor, or no guard at all without a floor."""
    rack, state = facts.rack, facts.state(services.GUARD, memory_guard.files(facts.rack))
    if not rack.options(MemoryOptions).floor:
        return services.GUARD.removal(state, "memory.floor is false").changeset("there is no guard")
    reason = memory_guard.restart_reason(rack, facts.live.group(GUARD))
    changes = services.GUARD.differences(state, {} if reason is None else {GUARD: reason})
    restart = any(event.kind is EventKind.RESTART for event in changes.events)
    if restart and (blocker := memory_guard.start_blocker(rack, facts.live, facts.total_kb, facts.available_kb)):
        return Changeset(blockers=(blocker,))
    return changes.changeset("the guard is armed")


@managed_operation("memory", MemoryFacts)
def install_memory_gate(facts: MemoryFacts) -> Changeset:
    """Install the program that frees memory before a launch. It is not run."""
    stale = facts.stale([memory_gate.script(facts.rack)])
    if not stale:
        return Changeset(in_sync_reason="the launch step is there")
    events = tuple(managed_file.changes(stale, facts.reported))
    return Changeset(events=events, commands=tuple(remote_files.put_files(stale)))
