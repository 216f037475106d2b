"""Quality of service in the switch chip: what makes a fabric lossless for RoCE.

Source: MikroTik manual, 'Quality of Service' (CRS8xx: PFC, ECN and `automap` from 7.23 on). The command tree
of a virtual machine does not have these menus; that 7.23.0 itself has them all as documented is *unproven*.
"""

from __future__ import annotations

from switch.values import Kind

from .menu import FLAG, Field, Menu

_ROOT = "/interface/ethernet/switch/qos"
_CLASS = Field(Kind.COUNT, default="0")

SETTINGS = Menu(
    f"{_ROOT}/settings",
    key=(),
    fixed=True,
    fields={"lossless-traffic-class": Field(Kind.LIST, default="auto"), "lossless-buffers": Field(default="auto")},
)
PROFILE = Menu(
    f"{_ROOT}/profile",
    key=("name",),
    hidden=("dynamic", "yes"),
    fields={
        "name": Field(),
        "dscp": Field(Kind.COUNT),
        "traffic-class": _CLASS,
        "automap": Field(Kind.FLAG),  # makes the DSCP and PCP maps by itself; its default is told differently
        "dynamic": Field(Kind.FLAG, default="no", read_only=True),
    },
)
QUEUE = Menu(
    f"{_ROOT}/tx-manager/queue",
    key=("tx-manager", "traffic-class"),
    fixed=True,
    fields={
        "tx-manager": Field(read_only=True),
        "traffic-class": Field(Kind.COUNT, read_only=True),
        "schedule": Field(),
        "weight": Field(Kind.COUNT, default="0"),
        "ecn": FLAG,
    },
)
PFC = Menu(
    f"{_ROOT}/priority-flow-control",
    key=("name",),
    fields={"name": Field(), "traffic-class": Field(Kind.LIST), "rx": FLAG, "tx": FLAG},
)
QOS_PORT = Menu(
    f"{_ROOT}/port",
    key=("name",),
    fixed=True,
    fields={
        "name": Field(read_only=True),
        "trust-l3": Field(default="ignore"),
        "pfc": Field(default="disabled"),
        "egress-rate-queue3": Field(Kind.RATE, default="0"),
    },
)
