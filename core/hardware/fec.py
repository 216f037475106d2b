"""Forward error correction (FEC) of a leg: the values of `fec-mode` that its link mode takes, and the one it needs.

Sources: MikroTik manual, 'Ethernet', fec-mode (fec74: 25G, 40G and 50G; fec91: 25G, 50G, 100G, 200G and 400G; auto is
the same as off; both ends need the same mode). IEEE 802.3: each mode with 50 Gb/s a lane requires RS-FEC, and so do
25GBASE-SR, 25GBASE-LR, 100GBASE-CR4 and 100GBASE-SR4; 40GBASE-SR4, 40GBASE-LR4, 100GBASE-LR4 and all of 10G and 1G
have none.
"""

from __future__ import annotations

from typing import Literal

from core.hardware.switch_model import Breakout

FecMode = Literal["auto", "off", "fec74", "fec91"]
"""The values of RouterOS's `fec-mode` (command tree of 7.23)."""

_PAM4_LANE_GBPS = 50
_NRZ_LANE_GBPS = 25


def allowed_fec(split: Breakout) -> tuple[FecMode, ...]:
    """The values with which a leg of `split` can have a link.

    That a lane of 50 Gb/s links with auto is a field report: the monitor of a CRS812 shows fec91 then.
    """
    if split.lane_gbps == _PAM4_LANE_GBPS:
        # claim: switch.fec.lanes-50g, switch.fec.auto
        return ("auto", "fec91")
    if split.lane_gbps == _NRZ_LANE_GBPS:
        return ("auto", "off", "fec91") if split.gbps == 100 else ("auto", "off", "fec74", "fec91")
    return ("auto", "off", "fec74") if split.gbps == 40 else ("auto", "off")


def default_fec(split: Breakout, medium: str) -> FecMode:
    """The value for a leg of `split` on copper or optic cables for which rack.yaml has none.

    One link mode stands for all optical modules of its speed, with a standard FEC and without: 100G-baseSR4-LR4 is
    100GBASE-SR4 as well as 100GBASE-LR4, 40G-baseSR4-LR4 has no module with FEC, and no standard has 50G-baseSR2-LR2.
    These legs are left on auto.
    """
    if split.lane_gbps == _PAM4_LANE_GBPS:
        return "fec91"
    # claim: switch.fec.optics
    if medium == "optic" and split.lanes_per_leg > 1:
        return "auto"
    if split.lane_gbps == _NRZ_LANE_GBPS:
        return "fec91"
    return "fec74" if split.gbps == 40 else "auto"
