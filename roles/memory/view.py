"""What the role asks of a node, and what the node said of the parts that it holds as groups and files of ours."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from roles.memory import ceiling, gate, guard, live, owned, protect, state
from sparkrack.fleet import Rack
from sparkrack.ops import dropins, probe, unitfiles

UNITS = "swap-units"
OTHERS = "sysctl-settings"
ZRAM = "zram-devices"
LIVE = "memory-live"
FILES = "memory-files"
PATHS = (
    ceiling.PATH,
    guard.SCRIPT,
    guard.UNIT,
    gate.SCRIPT,
    *(f"{owned.UNITS}/{unit}.d/{protect.DROPIN}" for unit in (live.SYSTEM, *live.PROTECTED)),
)
"""Every file that is wholly ours."""

probe.register(
    "memory",
    probe.Probe(
        files=(
            "/proc/swaps",
            "/proc/meminfo",
            state.FSTAB,
            state.DROPIN,
            state.live_path("vm.min_free_kbytes"),
            state.live_path("vm.overcommit_memory"),
        ),
        commands={
            UNITS: unitfiles.listed(
                ("*.swap", state.SWAP_TARGET, "*zram*.service"),
                ("/etc/systemd/system", "/run/systemd/generator", "/run/systemd/system", "/usr/lib/systemd/system"),
            ),
            OTHERS: dropins.settings(dropins.SYSCTL, "vm[./](min_free_kbytes|overcommit_memory)"),
            ZRAM: 'for d in /sys/block/zram*; do [ ! -e "$d" ] || '
            '{ size=$(cat "$d/disksize") && echo "${d##*/} $size"; } || exit 9; done',
            LIVE: live.question(),
            FILES: owned.question(PATHS),
        },
    ),
)


@dataclass(frozen=True)
class View:
    """The groups and files of ours as they were read. Raises UnknownError or ValueError where it cannot be told."""

    rack: Rack
    reading: probe.Reading

    @cached_property
    def live(self) -> live.Live:
        """The groups. Raises ValueError on a node without the unified hierarchy, where none of this holds."""
        found = live.live(self.reading.text(LIVE))
        if not found.unified:
            raise ValueError(f"{live.CGROUPS}: this node has no unified control groups (cgroup v2)")
        return found

    @cached_property
    def said(self) -> dict[str, str]:
        """What is there of our files."""
        return owned.shown(self.reading.text(FILES))

    @cached_property
    def total_kb(self) -> int:
        """MemTotal (KiB)."""
        return state.total_kb(self.reading.text("/proc/meminfo"))

    @cached_property
    def available_kb(self) -> int:
        """MemAvailable (KiB)."""
        return state.available_kb(self.reading.text("/proc/meminfo"))

    def stale(self, files: list[owned.Owned]) -> list[owned.Owned]:
        """Those of our files that are not as they shall be."""
        return owned.stale(files, self.said)

    def there(self, *paths: str) -> bool:
        """Whether any of these files of ours is there."""
        return any(path in self.said for path in paths)
