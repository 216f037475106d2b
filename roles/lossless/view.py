"""What a node says of loss on its interfaces, and whether that is what the rack wants."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from roles.lossless import boot, state
from sparkrack.fleet import Node, Rack
from sparkrack.ops import probe

OURS = "lossless-units"
MODES = "lossless-modes"
LIVE = "lossless-settings"

# Every answer with how it was come by: a tool that is not there matters only where there is a policy.
_ASK = r"""ask() {
q=$1; shift; o=$("$@" 2>&1); s=$?
printf '%s %s %s %s\n' "$i" "$q" "$s" "$(printf '%s' "$o" | tr '\n\t' '  ')"
}
look() { if [ -e "$2" ]; then ask "$1" cat "$2"; else echo "$i $1 absent"; fi; }
for d in /sys/class/net/enp1s0f[01]np[01] /sys/class/net/enP2p1s0f[01]np[01]; do
[ -e "$d" ] || continue; i=${d##*/}
ask pause ethtool -a "$i"; ask pfc dcb pfc show dev "$i" prio-pfc; ask dscp dcb -N app show dev "$i" dscp-prio
for f in FILES; do look "$f" "$d/$f"; done
for c in "$d"/device/infiniband/*/tc/1/traffic_class; do look class "$c"; done
done""".replace("FILES", f"{state.NOTICE} {state.REACT} {state.CNP}")

probe.register(
    "lossless",
    probe.Probe(
        files=(state.SCRIPT, state.UNIT),
        commands={
            OURS: f"for l in /etc/systemd/system/*.device.wants/{boot.instance('*')}; do "
            '[ ! -L "$l" ] || echo "${l##*/}"; done',
            MODES: f'for f in {state.SCRIPT} {state.UNIT}; do [ ! -e "$f" ] || stat -c %n:%a:%U:%G "$f"; done',
            LIVE: _ASK,
        },
    ),
)


@dataclass(frozen=True)
class View:
    """Loss on a node as it was read. Raises UnknownError or ValueError where it cannot be told."""

    rack: Rack
    node: Node
    reading: probe.Reading

    @cached_property
    def policies(self) -> Mapping[str, state.Policy]:
        """The interfaces that shall have a policy."""
        return state.policies(self.rack, self.node)

    @cached_property
    def ours(self) -> list[str]:
        """The interfaces that have a unit of ours."""
        return re.findall(r"@(\w+)\.service$", self.reading.text(OURS), re.MULTILINE)

    @cached_property
    def gone(self) -> list[str]:
        """Those of them that shall have none."""
        return [name for name in self.ours if name not in self.policies]

    @property
    def new(self) -> bool:
        """Whether an interface has no unit yet."""
        return any(name not in self.ours for name in self.policies)

    @cached_property
    def now(self) -> Mapping[str, state.Live | None]:
        """The interfaces that matter, live."""
        listing = self.reading.text(LIVE)
        return {name: state.live(listing, name) for name in (*self.policies, *self.gone)}

    @cached_property
    def files(self) -> Mapping[str, tuple[bytes | None, bytes | None]]:
        """What each file of ours holds and what it shall hold; None for not there."""
        some = bool(self.policies)
        return {
            state.SCRIPT: (
                self.reading.content(state.SCRIPT),
                boot.script(self.rack.rack, self.policies) if some else None,
            ),
            state.UNIT: (self.reading.content(state.UNIT), boot.unit(self.rack.rack) if some else None),
        }

    @cached_property
    def stale(self) -> list[str]:
        """The files that differ: in what they hold, in who owns them or in who may write them."""
        modes = self.reading.text(MODES).splitlines()
        right = {state.SCRIPT: f"{state.SCRIPT}:755:root:root", state.UNIT: f"{state.UNIT}:644:root:root"}
        return [
            path
            for path, (before, after) in self.files.items()
            if before != after or (after is not None and right[path] not in modes)
        ]

    @cached_property
    def wrong(self) -> Mapping[str, list[str]]:
        """What differs live, for each interface where anything does."""
        found = {}
        for name, now in self.now.items():
            if now and (lines := state.faults(name, self.policies.get(name), now)):
                found[name] = lines
        return found

    @property
    def right(self) -> bool:
        """Whether there is nothing to do. Looks at everything, so that what is unknown shows before any change."""
        return not any((self.wrong, self.stale, self.gone, self.new))

    @property
    def obstacles(self) -> list[str]:
        """Why the role may not touch this node."""
        lines = []
        for name, policy in self.policies.items():
            now = self.now[name]
            if now is None:
                lines.append(f"{name}: is not there; is its cable in, and its driver loaded?")
            else:
                lines += state.obstacles(name, policy, now)
        return lines
