"""Flow control of the fabric: plain pause on both ends, or RoCE's own classes.

The RoCE recipe is MikroTik's ('Quality of Service', CRS8xx, 7.23): RDMA is marked DSCP 26 and uses traffic class 3,
which is the only lossless one (PFC) and marks congestion (ECN); congestion notifications are marked DSCP 48 and have
priority. The nodes must use the same values; both render them from these constants.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from core.model import lossless_classes
from core.routeros.diff import DesiredRow, RowChange
from core.routeros.menus import DISCOVERY, PFC, PROFILE, QOS_PORT, QUEUE, SETTINGS
from switch.cages import masters_of, split_of
from switch.desired.menu_rows import ChangeGroup, DeviceContext, MenuDesired

if TYPE_CHECKING:
    from core.model import Switch

PFC_NAME = f"pfc-tc{lossless_classes.ROCE_CLASS}"


def parts(switch: Switch, seen: DeviceContext) -> Iterator[ChangeGroup]:
    """The tables of the chip, and the ports that use them. Pause frames belong to the cages' lanes."""
    if not switch.cages:
        return
    if switch.lossless == "roce":
        yield ChangeGroup("traffic classes", tuple(_classes()), _halts)
        yield ChangeGroup(
            "priority flow control announced to the nodes",
            # claim: lossless.dcbx
            (MenuDesired(DISCOVERY, (DesiredRow((), {"lldp-dcbx": "yes"}),)),),
        )
    roce = switch.lossless == "roce"
    yield ChangeGroup("traffic classes of the legs", (_ports(switch, seen, roce=roce),), _applies)


def _classes() -> Iterator[MenuDesired]:
    roce, cnp = str(lossless_classes.ROCE_CLASS), str(lossless_classes.CNP_CLASS)
    yield MenuDesired(
        PROFILE,
        (
            DesiredRow(("roce",), {"dscp": str(lossless_classes.ROCE_DSCP), "traffic-class": roce, "automap": "yes"}),
            DesiredRow(("cnp",), {"dscp": str(lossless_classes.CNP_DSCP), "traffic-class": cnp, "automap": "yes"}),
        ),
    )
    yield MenuDesired(
        QUEUE,
        (
            DesiredRow(("default", "1"), {"schedule": "high-priority-group", "weight": "1"}),
            DesiredRow(("default", roce), {"schedule": "high-priority-group", "weight": "1", "ecn": "yes"}),
            DesiredRow(("default", cnp), {"schedule": "strict-priority"}),
        ),
    )
    yield MenuDesired(PFC, (DesiredRow((PFC_NAME,), {"traffic-class": roce, "rx": "yes", "tx": "yes"}),))
    yield MenuDesired(SETTINGS, (DesiredRow((), {"lossless-traffic-class": roce, "lossless-buffers": "auto"}),))


def _ports(switch: Switch, seen: DeviceContext, *, roce: bool) -> MenuDesired:
    """Without RoCE the legs are taken out of it, where the switch has such tables at all."""
    wanted = []
    for cage in switch.cages:
        for interface in masters_of(switch, cage):
            # A rate of 0 means no limit; one below the leg's own would silently halve it.
            rate = f"{split_of(switch, cage).gbps}G"
            fields = (
                {"trust-l3": "keep", "pfc": PFC_NAME, "egress-rate-queue3": rate}
                if roce
                else {"trust-l3": "ignore", "pfc": "disabled", "egress-rate-queue3": "0"}
            )
            wanted.append(DesiredRow((seen.name(interface),), fields))
    return MenuDesired(QOS_PORT, tuple(wanted), optional=not roce)


def _halts(changes: tuple[RowChange, ...]) -> str:
    stops = any(change.menu in (QUEUE, SETTINGS) for change in changes)
    return "halts traffic of all ports for a moment" if stops else "disturbs nothing"


def _applies(changes: tuple[RowChange, ...]) -> str:
    return f"changes how {len(changes)} port{'s' if len(changes) != 1 else ''} queue"
