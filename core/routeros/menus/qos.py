"""Quality of service in the switch chip: what makes a fabric lossless for RoCE.

Source: MikroTik manual, 'Quality of Service' (CRS8xx: PFC, ECN and `automap` from 7.23 on). The command tree
of a virtual machine does not have these menus; that 7.23.0 itself has them all as documented is *unproven*.
"""

from __future__ import annotations

from core.routeros.menus.menu import FLAG, Menu, MenuField
from core.routeros.values import ValueKind

# claim: switch.qos.menus
_ROOT = "/interface/ethernet/switch/qos"
_CLASS = MenuField(ValueKind.COUNT, default="0")

SETTINGS = Menu(
    f"{_ROOT}/settings",
    key=(),
    fixed=True,
    fields={
        "lossless-traffic-class": MenuField(ValueKind.LIST, default="auto"),
        "lossless-buffers": MenuField(default="auto"),
    },
)
PROFILE = Menu(
    f"{_ROOT}/profile",
    key=("name",),
    hidden=("dynamic", "yes"),
    fields={
        "name": MenuField(),
        "dscp": MenuField(ValueKind.COUNT),
        "traffic-class": _CLASS,
        "automap": MenuField(ValueKind.FLAG),  # makes the DSCP and PCP maps by itself; sources differ about its default
        "dynamic": MenuField(ValueKind.FLAG, default="no", read_only=True),
    },
)
QUEUE = Menu(
    f"{_ROOT}/tx-manager/queue",
    key=("tx-manager", "traffic-class"),
    fixed=True,
    fields={
        "tx-manager": MenuField(read_only=True),
        "traffic-class": MenuField(ValueKind.COUNT, read_only=True),
        "schedule": MenuField(),
        "weight": MenuField(ValueKind.COUNT, default="0"),
        "ecn": FLAG,
    },
)
PFC = Menu(
    f"{_ROOT}/priority-flow-control",
    key=("name",),
    fields={"name": MenuField(), "traffic-class": MenuField(ValueKind.LIST), "rx": FLAG, "tx": FLAG},
)
QOS_PORT = Menu(
    f"{_ROOT}/port",
    key=("name",),
    fixed=True,
    fields={
        "name": MenuField(read_only=True),
        "trust-l3": MenuField(default="ignore"),
        "pfc": MenuField(default="disabled"),
        # claim: switch.qos.egress-rate
        "egress-rate-queue3": MenuField(ValueKind.RATE, default="0"),
    },
)
