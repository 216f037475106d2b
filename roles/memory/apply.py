"""Make a node's memory what `state` says."""

from __future__ import annotations

from collections.abc import Generator

from pyinfra.api.command import PyinfraCommand
from pyinfra.api.deploy import deploy
from pyinfra.api.host import Host
from pyinfra.api.operation import operation
from pyinfra.context import ctx_host

from roles.memory import state
from roles.memory.arm import arm, install
from roles.memory.bound import bound
from roles.memory.shield import shield
from roles.memory.view import OTHERS, UNITS, ZRAM
from sparkrack.fleet import Node, Rack
from sparkrack.ops import files, probe, refusal, report
from sparkrack.ops.shell import quote, root


@deploy("Memory")
def apply(rack: Rack, node: Node) -> None:  # noqa: ARG001 - every role is called alike
    """Swap off for good (unless rack.yaml says `swap: true`: then it is left alone), kernel settings live and at boot,
    a ceiling for all containers, a guard for what no ceiling counts, and daemons that outlive a shortage.

    No ceiling counts memory that CUDA takes; the guard looks four times a second, and what is faster outruns it.
    """
    if not rack.memory.swap:
        swap_off(name="Turn swap off, now and after a reboot")
    keep_free(name="Keep memory free for the kernel, live and at boot", rack=rack)
    bound(name="Bound all containers together", rack=rack)
    shield(name="Protect sshd, the network and logins", rack=rack)
    # Last: it looks at what the ceiling and the protection have made.
    arm(name="Watch how much memory is available", rack=rack)
    install(name="Install the step that makes room before a launch", rack=rack)


@operation()
def swap_off() -> Generator[PyinfraCommand, None, None]:
    """End swapping: fstab entries commented out, swap units masked, swap areas and zram devices released."""
    host: Host = ctx_host.get()  # type: ignore[no-untyped-call]
    try:
        reading = probe.read(host, "memory")
        fstab = reading.content(state.FSTAB) or b""
        units = state.to_mask(reading.text(UNITS))
        swapped = state.active(reading.text("/proc/swaps"))
        zram = state.set_up(reading.text(ZRAM))
    except (probe.UnknownError, ValueError) as unknown:
        yield refusal.unknown(host, f"{unknown}; nothing was changed")
        return
    wanted = state.without_swap(fstab)
    if wanted == fstab and not units and not swapped and not zram:
        host.noop("swap is off, and nothing brings it back")
        return
    probe.forget(host)
    if wanted != fstab:
        report.show(host, state.FSTAB, fstab, wanted)
    report.tell(host, [f"mask {unit}" for unit in units])
    report.tell(host, [f"swapoff {area}" for area in swapped])
    report.tell(host, [f"release {device}" for device in zram])
    if wanted != fstab:
        # A last look that nobody else has written in between.
        unchanged = f"base64 -w0 {state.FSTAB} | grep -qxF {quote(files.encoded(fstab))}"
        yield files.put(state.FSTAB, wanted, mode="644", before=fstab, check=unchanged)
    if units:
        yield root(f"systemctl mask --quiet {quote(*units)}")
    if swapped or units:
        yield root("swapoff -a")
    for device in zram:
        yield root(released(device))


def released(device: str) -> str:
    """The shell that gives a zram device's memory back.

    The kernel refuses while anybody has the device open, and udev opens it for a moment after every use, so this
    asks again for ten seconds. A device that is gone by then, as zram-generator's are, is what was wanted.
    """
    reset = quote(f"/sys/block/{device}/reset")
    busy = quote(f"{device} is still in use; lsof /dev/{device} tells by whom")
    return (
        f"n=0; while [ -e {reset} ]; do if echo 1 > {reset} 2>/dev/null; then break; fi; "
        f"n=$((n + 1)); [ $n -lt 50 ] || {{ echo {busy} >&2; exit 1; }}; sleep 0.2; done"
    )


@operation()
def keep_free(rack: Rack) -> Generator[PyinfraCommand, None, None]:
    """Set the kernel's memory settings now and in a drop-in that is read last.

    + rack: whose `memory` section says the values
    """
    host: Host = ctx_host.get()  # type: ignore[no-untyped-call]
    try:
        reading = probe.read(host, "memory")
        before = reading.content(state.DROPIN)
        total = state.total_kb(reading.text("/proc/meminfo"))
        live = {key: reading.number(state.live_path(key)) for key in state.sysctls(rack)}
        overriders = state.overriders(reading.text(OTHERS), rack)
    except (probe.UnknownError, ValueError) as unknown:
        yield refusal.unknown(host, f"{unknown}; nothing was changed")
        return
    too_much = state.too_much_free(rack, total)
    if too_much or overriders:
        yield refusal.refuse(host, *([too_much] if too_much else []), *overriders)
        return
    after = state.dropin(rack)
    wrong = {key: value for key, value in state.sysctls(rack).items() if live[key] != value}
    if before == after and not wrong:
        host.noop("the kernel keeps what it shall, live and at boot")
        return
    probe.forget(host)
    if before != after:
        report.show(host, state.DROPIN, before, after)
    report.tell(host, [f"{key}: {live[key]} -> {value}" for key, value in wrong.items()])
    if before != after:
        yield files.put(state.DROPIN, after, mode="644")
    if wrong:
        yield root(f"sysctl -qw {quote(*(f'{key}={value}' for key, value in wrong.items()))}")
