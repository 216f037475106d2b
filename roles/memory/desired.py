"""Desired state of a node's memory. Pure: from rack.yaml and the facts of a node."""

from __future__ import annotations

from dataclasses import dataclass

from core.model import Rack
from core.model.role import reserved_gib
from core.probes import dropin_overriders
from core.util.managed_file import header
from roles.memory.options import MemoryOptions

FSTAB = "/etc/fstab"
DROPIN = "/etc/sysctl.d/zz-sparkrack-memory.conf"
"""Drop-ins apply in the order of their names, regardless of their folder: the last one wins."""
CRASH_SIZE = "/sys/kernel/kexec_crash_size"
SWAP_TARGET = "swap.target"
OFF = b"#sparkrack: swap off# "
"""Put before a swap line of fstab; the rest of the file keeps every byte."""
LARGEST_SHARE = 0.5
"""More than this share of the memory kept free would make the node useless; above 5 % is unusual."""


@dataclass(frozen=True)
class SwapUnit:
    """A unit file on a node: its name, and whether it is masked (a link to /dev/null in /etc)."""

    name: str
    masked: bool


# claim: memory.swap-off
def sysctls(rack: Rack) -> dict[str, int]:
    """Return the kernel settings by name."""
    return {
        "vm.min_free_kbytes": rack.options(MemoryOptions).min_free_kbytes,
        "vm.overcommit_memory": rack.options(MemoryOptions).overcommit_memory,
    }


def live_path(key: str) -> str:
    """Return the path of a setting in /proc/sys."""
    return "/proc/sys/" + key.replace(".", "/")


def dropin(rack: Rack) -> bytes:
    """The drop-in file that sets them at boot."""
    lines = [header(rack.rack)]
    lines += [f"{key} = {value}" for key, value in sorted(sysctls(rack).items())]
    return ("\n".join(lines) + "\n").encode()


def too_much_free(rack: Rack, total_kb: int) -> str | None:
    """Return why this node cannot reserve that much, or None. `total_kb` is its MemTotal (KiB)."""
    wanted = rack.options(MemoryOptions).min_free_kbytes
    most = int(total_kb * LARGEST_SHARE)
    if wanted <= most:
        return None
    return (
        f"memory.min_free_kbytes: {wanted} is more than half of this node's {total_kb} KiB and would stall it; "
        f"at most {most} is right here"
    )


def without_swap(fstab: bytes) -> bytes:
    """The same file with its swap entries commented out, every other byte kept."""
    lines = fstab.splitlines(keepends=True)
    return b"".join(OFF + line if is_swap(line) else line for line in lines)


def is_swap(line: bytes) -> bool:
    """Return whether a line of fstab is an active swap entry: its third field is the type."""
    fields = line.split()
    return len(fields) >= 3 and not fields[0].startswith(b"#") and fields[2] == b"swap"


def units(listing: str) -> list[SwapUnit]:
    """The units in a listing of `path target` lines, as the probe makes it; target is empty for a plain file.

    Raises ValueError for any other line.
    """
    found: dict[str, SwapUnit] = {}
    for line in listing.splitlines():
        path, space, target = line.partition(" ")
        if not space or not path.startswith("/"):
            raise ValueError(f"swap units: unexpected probe output {line[:80]!r}")
        name = path.rsplit("/", 1)[-1]
        masked = path.startswith("/etc/systemd/system/") and target == "/dev/null"
        found[name] = SwapUnit(name, masked or (name in found and found[name].masked))
    return sorted(found.values(), key=lambda unit: unit.name)


def to_mask(listing: str, fstab: bytes) -> list[str]:
    """Return the units that could enable swap again: every swap unit, every creator of zram, and the target that starts
    them.

    A line of fstab that was written since the last daemon-reload has no unit yet. It gets one at the next reload, which
    an earlier operation of the run can cause, so its unit is masked as well.
    """
    present = {unit.name: unit.masked for unit in units(listing)}
    for line in fstab.splitlines():
        if is_swap(line):
            present.setdefault(swap_unit(line.split()[0].decode(errors="surrogateescape")), False)
    present.setdefault(SWAP_TARGET, False)
    return sorted(name for name, masked in present.items() if not masked)


def swap_unit(what: str) -> str:
    """Return the name of the unit that systemd makes of the first field of a swap line in fstab."""
    tag, equals, value = what.partition("=")
    folder = _BY_TAG.get(tag) if equals else None
    path = f"/dev/disk/{folder}/{_encoded_name(value.strip(chr(34)))}" if folder else what
    return f"{_escaped_path(path)}.swap"


_BY_TAG = {"UUID": "by-uuid", "LABEL": "by-label", "PARTUUID": "by-partuuid", "PARTLABEL": "by-partlabel"}


def _encoded_name(value: str) -> str:
    """Return a label as udev has it in the name of a link, where signs beyond ASCII stay."""
    return "".join(
        sign if not sign.isascii() or sign.isalnum() or sign in "#+-.:=@_" else _escape_as_hexadecimal(sign)
        for sign in value
    )


def _escaped_path(path: str) -> str:
    """Return a path as systemd-escape --path has it."""
    words = "/".join(word for word in path.split("/") if word)
    if not words:
        return "-"
    escaped = "".join(
        "-"
        if sign == "/"
        else sign
        if sign.isascii() and (sign.isalnum() or sign in ":_.")
        else _escape_as_hexadecimal(sign)
        for sign in words
    )
    return _escape_as_hexadecimal(".") + escaped[1:] if escaped.startswith(".") else escaped


def _escape_as_hexadecimal(sign: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in sign.encode(errors="surrogateescape"))


def active(proc_swaps: str) -> list[str]:
    """Return the active swap devices, from /proc/swaps. Raises ValueError without the kernel's header line."""
    titles, *lines = proc_swaps.splitlines() or [""]
    if titles.split()[:2] != ["Filename", "Type"]:
        raise ValueError(f"/proc/swaps: unexpected probe output {titles[:80]!r}")
    return [line.split()[0] for line in lines if line.strip()]


def configured_zram(listing: str) -> list[str]:
    """The zram devices that are set up, from lines `name size`. Raises ValueError when a line is anything else."""
    devices = []
    for line in listing.splitlines():
        name, _, size = line.partition(" ")
        if not (name.startswith("zram") and size.isdigit()):
            raise ValueError(f"zram devices: unexpected probe output {line!r}")
        if size != "0":
            devices.append(name)
    return devices


def reserved_kb(rack: Rack) -> int:
    """Return the KiB of a node that rack.yaml keeps from all programs."""
    return round(reserved_gib(lambda key: getattr(rack, key)) * 1024**2)


def crash_kb(text: bytes | None) -> int:
    """Return the KiB that this boot keeps for a crash kernel, from CRASH_SIZE; None for a kernel without one.

    Raises ValueError for anything but a number.
    """
    found = b"0" if text is None else text.strip()
    if not found.isdigit():
        raise ValueError(f"{CRASH_SIZE}: is not a number: {found[:40]!r}")
    return int(found) // 1024


def total_kb(meminfo: str) -> int:
    """Return the node's MemTotal (KiB). Raises ValueError when /proc/meminfo lacks it."""
    return _meminfo_figure(meminfo, "MemTotal")


def available_kb(meminfo: str) -> int:
    """Return the node's MemAvailable (KiB). Raises ValueError when /proc/meminfo lacks it."""
    return _meminfo_figure(meminfo, "MemAvailable")


def _meminfo_figure(meminfo: str, name: str) -> int:
    for line in meminfo.splitlines():
        key, _, value = line.partition(":")
        if key == name and value.split():
            return int(value.split()[0])
    raise ValueError(f"/proc/meminfo: has no {name}")


def conflicting_settings(listing: str, rack: Rack) -> list[str]:
    """Settings of others that would win over ours at boot, from `path:line` matches of the sysctl folders."""
    return dropin_overriders.overriders(listing, {key: str(value) for key, value in sysctls(rack).items()}, DROPIN)
