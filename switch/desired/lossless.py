"""Flow control of the fabric: plain pause on both ends, marks of congestion, or RoCE's own lossless class.

The RoCE recipe is MikroTik's ('Quality of Service', CRS8xx, 7.23): RDMA is marked DSCP 26 and uses traffic class 3,
which is the only lossless one (PFC) and marks congestion (ECN); congestion notifications are marked DSCP 48 and have
priority. The nodes must use the same values; both render them from these constants. `ecn` is the same without PFC, as
an owner of a CRS812 has it (7.24.4): RDMA has a class that marks congestion, notifications go first, nothing is paused.
A row with the fields of the policy serves it whatever its name is.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Literal

from core.model import lossless_classes
from core.routeros.diff import DesiredRow, RowChange
from core.routeros.menus import DISCOVERY, PFC, PROFILE, QOS_PORT, QUEUE, SETTINGS
from switch.cages import masters_of, split_of
from switch.desired.menu_rows import ChangeGroup, DeviceContext, MenuDesired

if TYPE_CHECKING:
    from core.model import Switch

Policy = Literal["none", "pause", "ecn", "roce", "leave"]


def parts(switch: Switch, seen: DeviceContext) -> Iterator[ChangeGroup]:
    """The tables of the chip, and the ports that use them. Pause frames belong to the cages' lanes."""
    if switch.cages:
        legs = {
            seen.name(interface): split_of(switch, cage).gbps
            for cage in switch.cages
            for interface in masters_of(switch, cage)
        }
        yield from policy_parts(switch.lossless, legs, seen)


def policy_parts(policy: Policy, legs: Mapping[str, int], seen: DeviceContext) -> Iterator[ChangeGroup]:
    """A policy on legs, by their present names with their Gb/s. `leave` has no part: what is there stays."""
    if policy == "leave":
        return
    if policy in ("ecn", "roce"):
        yield ChangeGroup(
            "traffic classes", tuple(_traffic_classes(seen, lossless=policy == "roce")), _effect_on_traffic
        )
    if policy == "roce":
        yield ChangeGroup(
            "priority flow control announced to the nodes",
            # claim: lossless.dcbx
            (MenuDesired(DISCOVERY, (DesiredRow((), {"lldp-dcbx": "yes"}),)),),
        )
    yield ChangeGroup("traffic classes of the legs", (_port_menus(policy, legs, seen),), _effect_text)


# claim: switch.qos.ecn-only
def _traffic_classes(seen: DeviceContext, *, lossless: bool) -> Iterator[MenuDesired]:
    """The class of RDMA, which marks congestion, and that of notifications. lossless: RDMA has PFC, too, and all other
    traffic has the same share of the bandwidth."""
    roce, cnp = str(lossless_classes.ROCE_CLASS), str(lossless_classes.CNP_CLASS)
    roce_dscp, cnp_dscp = str(lossless_classes.ROCE_DSCP), str(lossless_classes.CNP_DSCP)
    yield MenuDesired(
        PROFILE,
        (
            DesiredRow((seen.qos.roce,), {"dscp": roce_dscp, "traffic-class": roce, "automap": "yes"}),
            DesiredRow((seen.qos.cnp,), {"dscp": cnp_dscp, "traffic-class": cnp, "automap": "yes"}),
        ),
    )
    others = [DesiredRow(("default", "1"), {"schedule": "high-priority-group", "weight": "1"})] if lossless else []
    yield MenuDesired(
        QUEUE,
        (
            *others,
            DesiredRow(("default", roce), {"schedule": "high-priority-group", "weight": "1", "ecn": "yes"}),
            DesiredRow(("default", cnp), {"schedule": "strict-priority"}),
        ),
    )
    if lossless:
        yield MenuDesired(PFC, (DesiredRow((seen.qos.pfc,), {"traffic-class": roce, "rx": "yes", "tx": "yes"}),))
        yield MenuDesired(SETTINGS, (DesiredRow((), {"lossless-traffic-class": roce, "lossless-buffers": "auto"}),))


def _port_menus(policy: Policy, legs: Mapping[str, int], seen: DeviceContext) -> MenuDesired:
    """Without a policy the legs are taken out of it, where the switch has such tables at all."""
    classed = policy in ("ecn", "roce")
    wanted = []
    for name, gbps in legs.items():
        fields = {"trust-l3": "keep" if classed else "ignore", "pfc": "disabled", "egress-rate-queue3": "0"}
        if policy == "roce":
            # A rate of 0 means no limit; one below the leg's own would silently halve it.
            fields |= {"pfc": seen.qos.pfc, "egress-rate-queue3": f"{gbps}G"}
        wanted.append(DesiredRow((name,), fields))
    return MenuDesired(QOS_PORT, tuple(wanted), optional=not classed)


def _effect_on_traffic(changes: tuple[RowChange, ...]) -> str:
    stops = any(change.menu in (QUEUE, SETTINGS) for change in changes)
    return "halts traffic of all ports for a moment" if stops else "disturbs nothing"


def _effect_text(changes: tuple[RowChange, ...]) -> str:
    return f"changes how {len(changes)} port{'s' if len(changes) != 1 else ''} queue"
