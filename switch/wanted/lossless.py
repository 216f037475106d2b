"""Whether the fabric may drop packets: plain pause on both ends, or RoCE's own classes.

The RoCE recipe is MikroTik's ('Quality of Service', CRS8xx, 7.23): RDMA is marked DSCP 26 and goes to
traffic class 3, which alone is lossless (PFC) and marks congestion (ECN); congestion notifications are
marked DSCP 48 and go first. What the nodes are told must be the same; the constants here are what both
render from.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from sparkrack.fleet import lossless
from switch.cages import masters_of, split_of
from switch.diff import Change, Wanted
from switch.menus import DISCOVERY, PFC, PROFILE, QOS_PORT, QUEUE, SETTINGS

from .share import Part, Seen, Share

if TYPE_CHECKING:
    from sparkrack.fleet import Switch

PFC_NAME = f"pfc-tc{lossless.ROCE_CLASS}"


def parts(switch: Switch, seen: Seen) -> Iterator[Part]:
    """The tables of the chip, and the ports that use them. Pause frames belong to the cages' lanes."""
    if not switch.cages:
        return
    if switch.lossless == "roce":
        yield Part("traffic classes", tuple(_classes()), _halts)
        yield Part("priority flow control told to the nodes", (Share(DISCOVERY, (Wanted((), {"lldp-dcbx": "yes"}),)),))
    roce = switch.lossless == "roce"
    yield Part("traffic classes of the legs", (_ports(switch, seen, roce=roce),), _applies)


def _classes() -> Iterator[Share]:
    roce, cnp = str(lossless.ROCE_CLASS), str(lossless.CNP_CLASS)
    yield Share(
        PROFILE,
        (
            Wanted(("roce",), {"dscp": str(lossless.ROCE_DSCP), "traffic-class": roce, "automap": "yes"}),
            Wanted(("cnp",), {"dscp": str(lossless.CNP_DSCP), "traffic-class": cnp, "automap": "yes"}),
        ),
    )
    yield Share(
        QUEUE,
        (
            Wanted(("default", "1"), {"schedule": "high-priority-group", "weight": "1"}),
            Wanted(("default", roce), {"schedule": "high-priority-group", "weight": "1", "ecn": "yes"}),
            Wanted(("default", cnp), {"schedule": "strict-priority"}),
        ),
    )
    yield Share(PFC, (Wanted((PFC_NAME,), {"traffic-class": roce, "rx": "yes", "tx": "yes"}),))
    yield Share(SETTINGS, (Wanted((), {"lossless-traffic-class": roce, "lossless-buffers": "auto"}),))


def _ports(switch: Switch, seen: Seen, *, roce: bool) -> Share:
    """Without RoCE the legs are taken out of it, where the switch has such tables at all."""
    wanted = []
    for cage in switch.cages:
        for interface in masters_of(switch, cage):
            # A rate of 0 is none; one below the leg's own would quietly halve it.
            rate = f"{split_of(switch, cage).gbps}G"
            fields = (
                {"trust-l3": "keep", "pfc": PFC_NAME, "egress-rate-queue3": rate}
                if roce
                else {"trust-l3": "ignore", "pfc": "disabled", "egress-rate-queue3": "0"}
            )
            wanted.append(Wanted((seen.name(interface),), fields))
    return Share(QOS_PORT, tuple(wanted), optional=not roce)


def _halts(changes: tuple[Change, ...]) -> str:
    stops = any(change.menu in (QUEUE, SETTINGS) for change in changes)
    return "halts traffic of all ports for a moment" if stops else "disturbs nothing"


def _applies(changes: tuple[Change, ...]) -> str:
    return f"changes how {len(changes)} port{'s' if len(changes) != 1 else ''} queue"
