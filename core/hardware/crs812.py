"""MikroTik CRS812-8DS-2DQ-2DDQ."""

from __future__ import annotations

from core.hardware.cage_kinds import QSFP56, QSFP56_DD, SFP56
from core.hardware.switch_model import SwitchModel

CRS812 = SwitchModel(
    name="crs812",
    board="CRS812-8DS-2DQ-2DDQ",
    article="CRS812-8DS-2DQ-2DDQ-RM",
    # MikroTik manual, "Wired interface compatibility".
    cages={
        **{f"sfp56-{number}": SFP56 for number in range(1, 9)},
        **{f"qsfp56-{number}": QSFP56 for number in (1, 2)},
        **{f"qsfp56-dd-{number}": QSFP56_DD for number in (1, 2)},
    },
    management_ports=("ether1", "ether2"),
    # MikroTik manual, "MTU in RouterOS"; ether1 and ether2 take 9586.
    max_l2mtu=9570,
    # MikroTik manual, "Marvell Prestera switch chip features".
    chip="Marvell-98DX7335",
    architecture="arm64",
    # MikroTik manual, "Packages". That the cages do nothing without it is inferred.
    driver_package="switch-marvell",
)
