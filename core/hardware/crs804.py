"""MikroTik CRS804-4DDQ-hRM ("CRS804 DDQ")."""

from __future__ import annotations

from core.hardware.cage_kinds import QSFP56_DD
from core.hardware.switch_model import SwitchModel

CRS804 = SwitchModel(
    name="crs804",
    # claim: crs804.model
    board="CRS804-4DDQ",
    article="CRS804-4DDQ-hRM",
    # MikroTik's product page: four 400G QSFP56-DD, two 10G RJ45.
    # claim: crs804.breakouts
    cages={f"qsfp56-dd-{number}": QSFP56_DD for number in (1, 2, 3, 4)},
    # claim: crs804.ports
    management_ports=("ether1", "ether2"),
    # claim: crs804.l2mtu
    max_l2mtu=9570,
    # MikroTik manual, "Quality of Service" and "L3 hardware offloading": one chip for CRS812 and CRS804.
    chip="Marvell-98DX7335",
    architecture="arm64",
    # claim: crs804.package
    driver_package="switch-marvell",
    unproven=(
        "the board reports the model CRS804-4DDQ: one field report (RouterOS 7.23.1)",
        "the lanes are qsfp56-dd-1-1 to qsfp56-dd-4-8, the RJ45 ports ether1 and ether2: two published configurations",
        "the breakouts are those of the CRS812's QSFP56-DD cages: published for 2x200G and 4x100G, else inferred",
        "the largest l2mtu is 9570: inferred from the CRS812 (same switch chip); 9216 and 9500 are published",
        "the package switch-marvell drives the switch chip: inferred from the CRS812",
    ),
)
