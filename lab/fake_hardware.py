"""Hardware data of a healthy GB10 node, from which a virtual node's stand-in commands answer. Pure.

Figures are those reported for healthy machines: two ConnectX-7 functions on PCIe Gen5 x4, about 109 Gb/s each by
`ib_write_bw`; driver and GPU name as on DGX OS 7. Results that depend on them are not verified on hardware.
"""

from __future__ import annotations

from typing import Any

from core.hardware import gb10
from core.model import Node, Rack

BOARDS = {
    "nvidia": ("NVIDIA", "NVIDIA_DGX_Spark"),
    "asus": ("ASUSTeK COMPUTER INC.", "GX10"),
    "lenovo": ("LENOVO", "30KLS02X00"),
    "dell": ("Dell  Inc.", "Dell Pro Max with GB10 FCM1253"),
    "gigabyte": ("GIGABYTE", "AI TOP ATOM"),
    "hp": ("HP", "HP ZGX Nano G1n AI Station"),
}
"""Maker and product by vendor, as public outputs of real units have them; tests/cases/public/gb10-dmi.yaml has the
sources. The others are made up."""
HALF_GBPS = 109.0
"""Rate of one half (Gb/s), limited by its PCIe Gen5 x4."""


def state(rack: Rack, node: Node) -> dict[str, Any]:
    """Return the state file of one node. The emulated switch keeps `links` of cables to a switch.

    The driver is the one that was installed when the node booted; `driver_version` beside the GPU's name overrides it.
    """
    made = node.vendor or "nvidia"
    maker, product = BOARDS.get(made, (made.capitalize(), "GB10"))
    ports = rack.cabling.ports_of(node.name)
    return {
        "machine": "aarch64",
        "dmi": {
            "system-manufacturer": maker,
            "system-product-name": product,
            "baseboard-manufacturer": maker,
            "baseboard-product-name": product,
            "bios-version": "GX10DGX.0105.2026" if node.vendor == "asus" else "5.36",
            "system-serial-number": f"LAB{list(rack.nodes).index(node.name) + 1:04d}",
        },
        "gpu": {
            "name": "NVIDIA GB10",
            "compute_cap": "12.1",
            "pstate": "P8",
            "clocks.sm": "208 MHz",
            "clocks_event_reasons.gpu_idle": "Active",
        },
        "nic": {"firmware": "28.45.4028 (NVD0000000087)"},
        "pci": {
            gb10.half_function(half.port, half.index): {
                "id": "15b3:1021",
                "name": "Ethernet controller: Mellanox Technologies MT2910 Family [ConnectX-7]",
                "speed": "32GT/s",
                "width": "x4",
            }
            for port in ports
            for half in port.halves
        },
        "rdma": {f"roce{prefix}s0f{port.number}": {"gbps": HALF_GBPS} for port in ports for prefix in ("p1", "P2p1")},
        "links": {
            str(port.number): {"carrier": False, "speed": None, "lanes": 0, "fec": None, "leg": None}
            if rack.cabling.leg_of(port)
            else {"carrier": True, "speed": 200000, "lanes": 4, "fec": "RS", "leg": None}
            for port in ports
        },
    }
