"""What a node says of its fabric, and whether that is what the rack wants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from roles.fabric import adopt, state
from sparkrack.fleet import VLAN_DEVICES, Node, Rack
from sparkrack.ops import probe
from sparkrack.ops.trial import Trial

TRIAL = Trial(name="fabric", revert="", seconds=90)
"""What every trial of this role has in common; each has a revert of its own."""
LINKS = "fabric-links"
OTHERS = "netplan-interfaces"
CONTENT = "netplan-content"
RENDERERS = "netplan-renderers"
MODE = "netplan-mode"
SIGNALS = "fabric-signals"

probe.register(
    "fabric",
    probe.Probe(
        files=(state.KEPT, state.TRIED, TRIAL.script, state.HOTPLUG),
        commands={
            LINKS: "ip -d -j address",
            # A line `NAME SPEED LINK` for each that is not switched off; nothing where ethtool does not tell.
            SIGNALS: f"""for i in {" ".join(sorted(adopt.FABRIC))}; do
[ -e "/sys/class/net/$i" ] || continue
read -r s < "/sys/class/net/$i/operstate" && [ "$s" != down ] && o=$(ethtool "$i" 2>/dev/null) || continue
s=- l=-
while read -r k v; do case "$k $v" in Speed:*) s=${{v%% *}} ;; "Link detected:"*) l=${{v#* }} ;; esac; done <<END
$o
END
echo "$i $s $l"
done""",
            OTHERS: adopt.NAMING,
            CONTENT: adopt.WHOLE,
            RENDERERS: adopt.RENDERING,
            MODE: f"[ ! -e {state.KEPT} ] || stat -c %a:%U:%G {state.KEPT}",
        },
    ),
)


@dataclass(frozen=True)
class View:
    """A node's fabric as it was read. Raises UnknownError or ValueError where it cannot be told."""

    rack: Rack
    node: Node
    reading: probe.Reading

    @cached_property
    def _live(self) -> Mapping[str, state.Live]:
        names = [*sorted(adopt.FABRIC), *VLAN_DEVICES]
        try:
            return state.live(self.reading.text(LINKS), names)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{LINKS}: not what `ip` prints ({error!r})") from None

    @cached_property
    def now(self) -> Mapping[str, state.Live]:
        """The cabled interfaces and the VLANs on them, live."""
        return state.concerned(self.rack, self.node, self.before, self._live)

    @cached_property
    def dead(self) -> list[str]:
        """What is wrong with the links, as ethtool tells it: no run mends it."""
        return state.dead(self.rack, self.node, state.signals(self.reading.text(SIGNALS)))

    @cached_property
    def before(self) -> bytes | None:
        """Our netplan file as it is."""
        return self.reading.content(state.KEPT)

    @cached_property
    def wanted(self) -> bytes | None:
        """Our netplan file as it shall be."""
        return state.netplan(self.rack, self.node)

    @cached_property
    def faults(self) -> list[str]:
        """What differs live."""
        return state.faults(self.rack, self.node, self.now)

    @cached_property
    def _foreign(self) -> Mapping[str, list[str]]:
        return state.foreign(self.reading.text(OTHERS), list(state.wanted(self.rack, self.node)))

    @cached_property
    def adopted(self) -> Mapping[str, bytes]:
        """The files of others that are taken over, with what they hold."""
        if not self.rack.fabric.adopt:
            return {}
        content, renderers = self._content, adopt.renderers(self.reading.text(RENDERERS))
        return {
            path: content[path]
            for path in self._foreign
            if adopt.hindrance(path, content.get(path), renderers) is None and path in content
        }

    @cached_property
    def _content(self) -> dict[str, bytes]:
        return adopt.contents(self.reading.text(CONTENT))

    @cached_property
    def _refused(self) -> list[str]:
        """Files of others that stay and must not."""
        lines, content = [], self._content
        renderers = adopt.renderers(self.reading.text(RENDERERS))
        for path, names in self._foreign.items():
            hindrance = adopt.hindrance(path, content.get(path), renderers)
            if path in self.adopted:
                continue
            how = "; fabric.adopt: true takes the file over" if hindrance is None else ""
            if self.rack.fabric.adopt and hindrance:
                how = f"; it cannot be taken over, {hindrance}"
            lines += [f"{path} defines {name}, which this rack manages; remove it there{how}" for name in names]
        return lines

    @cached_property
    def _said_by_others(self) -> bool:
        """Whether files of others, which may be taken over, already say all that ours would: nobody needs ours then."""
        if self.before is not None or not self.adopted or self.adopted.keys() != self._foreign.keys():
            return False
        return adopt.same(self.adopted.values(), state.wanted(self.rack, self.node))

    @property
    def private(self) -> bool:
        """Whether our file, if there is to be one, is root's alone."""
        return self.wanted is None or self.reading.text(MODE).strip() == "600:root:root"

    @property
    def right(self) -> bool:
        """Whether there is nothing to do."""
        said_by_us = self.before == self.wanted and self.private and not self.adopted
        on_trial = self.reading.content(state.TRIED) is not None
        return (said_by_us or self._said_by_others) and not self.faults and not on_trial

    @property
    def obstacles(self) -> list[str]:
        """Why the role may not touch this node."""
        missing = state.missing(self.rack, self.node, self.now)
        occupied = state.occupied(self.rack, self.node, self.now)
        return [
            *([TRIAL.busy] if self.reading.content(TRIAL.script) is not None else []),
            *(f"{name}: is not there; is its cable in, and its driver loaded?" for name in missing),
            *(f"{name}: is there and is no VLAN of the fabric; rename or remove it" for name in occupied),
            *self._refused,
        ]
