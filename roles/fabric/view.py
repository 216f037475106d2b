"""What a node says of its fabric, and whether that is what the rack wants."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from roles.fabric import state
from sparkrack.fleet import VLAN_DEVICES, Node, Rack
from sparkrack.ops import probe
from sparkrack.ops.trial import Trial

TRIAL = Trial(name="fabric", revert="", seconds=90)
"""What every trial of this role has in common; each has a revert of its own."""
LINKS = "fabric-links"
OTHERS = "netplan-interfaces"
MODE = "netplan-mode"

probe.register(
    "fabric",
    probe.Probe(
        files=(state.KEPT, state.TRIED, TRIAL.script),
        commands={
            LINKS: "ip -d -j address",
            # Only lines that name an interface of the fabric: the files of others may hold secrets (Wi-Fi).
            OTHERS: 'for f in /etc/netplan/*.yaml /run/netplan/*.yaml /usr/lib/netplan/*.yaml; do [ ! -e "$f" ] || '
            "grep -HE '^[^#]*(en(p1|P2p1|[*?[])|fabric[01])' \"$f\" || [ $? -eq 1 ] || exit 9; done",
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
        names = [*state.interfaces(self.rack, self.node), *VLAN_DEVICES]
        try:
            return state.live(self.reading.text(LINKS), names)
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{LINKS}: not what `ip` prints ({error!r})") from None

    @cached_property
    def now(self) -> Mapping[str, state.Live]:
        """The cabled interfaces and the VLANs on them, live."""
        return state.concerned(self.rack, self.node, self.before, self._live)

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

    @property
    def right(self) -> bool:
        """Whether there is nothing to do."""
        private = self.wanted is None or self.reading.text(MODE).strip() == "600:root:root"
        on_trial = self.reading.content(state.TRIED) is not None
        return self.before == self.wanted and private and not self.faults and not on_trial

    @property
    def obstacles(self) -> list[str]:
        """Why the role may not touch this node."""
        missing = state.missing(self.rack, self.node, self.now)
        occupied = state.occupied(self.rack, self.node, self.now)
        names = list(state.wanted(self.rack, self.node))
        return [
            *([TRIAL.busy] if self.reading.content(TRIAL.script) is not None else []),
            *(f"{name}: is not there; is its cable in, and its driver loaded?" for name in missing),
            *(f"{name}: is there and is no VLAN of the fabric; rename or remove it" for name in occupied),
            *state.foreign(self.reading.text(OTHERS), names),
        ]
