"""Which link modes a cage can be split into, by the words of ``speed``.

Source: MikroTik manual, 'Wired interface compatibility' (breakout and FEC tables) and 'Ethernet' (the list of words).
This table is the emulator's own; it is not shared with the code that configures switches.
"""

from __future__ import annotations

from dataclasses import dataclass

#: Lanes of each kind of cage.
LANES = {"qsfp56-dd": 8, "qsfp56": 4, "sfp56": 1, "ether": 1}


@dataclass(frozen=True)
class Mode:
    """A link mode: its word, how many lanes it takes, Mb/s of the link, and the cabling and FEC it runs with.

    ``fec`` are the values of ``fec-mode`` under which the link comes up. PAM4 (50G a lane) requires fec91;
    ``auto`` gives fec91 there, as monitors of real units show. What a mode does under a FEC
    that its table does not name is inferred: no link.
    """

    word: str
    lanes: int
    mbps: int
    medium: str
    fec: frozenset[str]

    @property
    def pam4(self) -> bool:
        """Whether its lanes carry 50G each, which needs RS-FEC."""
        return self.mbps // self.lanes == 50_000

    def fec_shown(self, setting: str) -> str:
        """The FEC that monitor shows on a running link."""
        if setting != "auto":
            return setting
        return "fec91" if self.pam4 else "off"


_FEC = {
    50: frozenset({"auto", "fec91"}),
    25: frozenset({"auto", "off", "fec74", "fec91"}),
    10: frozenset({"auto", "off"}),
    1: frozenset({"auto", "off"}),
}


def _make_modes() -> dict[str, Mode]:
    modes: dict[str, Mode] = {}
    for gbps, lanes, copper, optic in (
        (400, 8, "400G-baseCR8", "400G-baseSR8-LR8"),
        (200, 4, "200G-baseCR4", "200G-baseSR4-LR4"),
        (100, 2, "100G-baseCR2", "100G-baseSR2-LR2"),
        (50, 1, "50G-baseCR", "50G-baseSR-LR"),
        (100, 4, "100G-baseCR4", "100G-baseSR4-LR4"),
        (50, 2, "50G-baseCR2", "50G-baseSR2-LR2"),
        (25, 1, "25G-baseCR", "25G-baseSR-LR"),
        (40, 4, "40G-baseCR4", "40G-baseSR4-LR4"),
        (10, 1, "10G-baseCR", "10G-baseSR-LR"),
    ):
        fec = _FEC[gbps // lanes]
        if (gbps, lanes) == (100, 4):
            fec = frozenset({"auto", "off", "fec91"})
        if gbps == 40:
            fec = frozenset({"auto", "off", "fec74"})
        modes[copper] = Mode(copper, lanes, gbps * 1000, "copper", fec)
        modes[optic] = Mode(optic, lanes, gbps * 1000, "optic", fec)
    modes["1G-baseX"] = Mode("1G-baseX", 1, 1000, "any", _FEC[1])
    modes["2.5G-baseX"] = Mode("2.5G-baseX", 1, 2500, "any", _FEC[1])
    return modes


#: Every word that a cage can run; the words for twisted pair are not among them.
MODES = _make_modes()

_ALL8, _ALL4 = tuple(range(1, 9)), (1, 2, 3, 4)
#: (cage kind, Gb/s, lanes) -> lanes where such a link may start.
_STARTS: dict[tuple[str, int, int], tuple[int, ...]] = {
    ("qsfp56-dd", 400, 8): (1,),
    ("qsfp56-dd", 200, 4): (1, 5),
    ("qsfp56-dd", 100, 2): (1, 3, 5, 7),
    # Not in the manual: an owner's configuration of a CRS804 (7.23), and eight nodes on a CRS812 (7.20.8).
    ("qsfp56-dd", 100, 4): (1,),
    ("qsfp56-dd", 50, 2): (1, 3, 5, 7),
    ("qsfp56-dd", 50, 1): _ALL8,
    ("qsfp56-dd", 25, 1): _ALL8,
    ("qsfp56-dd", 40, 4): (1, 5),
    ("qsfp56-dd", 10, 1): _ALL8,
    ("qsfp56-dd", 1, 1): _ALL8,
    ("qsfp56", 200, 4): (1,),
    ("qsfp56", 100, 2): (1, 3),
    ("qsfp56", 50, 1): _ALL4,
    ("qsfp56", 100, 4): (1,),
    ("qsfp56", 50, 2): (1, 3),
    ("qsfp56", 40, 4): (1,),
    ("qsfp56", 25, 1): _ALL4,
    ("qsfp56", 10, 1): _ALL4,
    ("qsfp56", 1, 1): _ALL4,
    ("sfp56", 50, 1): (1,),
    ("sfp56", 25, 1): (1,),
    ("sfp56", 10, 1): (1,),
    ("sfp56", 2, 1): (1,),
    ("sfp56", 1, 1): (1,),
}

#: The mode a whole cage tries while it negotiates by itself, by kind and medium.
NEGOTIATED = {
    ("qsfp56-dd", "copper"): "400G-baseCR8",
    ("qsfp56-dd", "optic"): "400G-baseSR8-LR8",
    ("qsfp56", "copper"): "200G-baseCR4",
    ("qsfp56", "optic"): "200G-baseSR4-LR4",
    ("sfp56", "copper"): "50G-baseCR",
    ("sfp56", "optic"): "50G-baseSR-LR",
}

#: Modes of the two RJ45 ports (MikroTik's product data).
_TWISTED = (
    *("10M-baseT-half", "10M-baseT-full", "100M-baseT-half", "100M-baseT-full"),
    *("1G-baseT-full", "2.5G-baseT", "5G-baseT", "10G-baseT"),
)


def may_start(kind: str, mode: Mode, lane: int) -> bool:
    """Say whether a cage of that kind offers the mode on a leg that starts at that lane."""
    return lane in _STARTS.get((kind, mode.mbps // 1000, mode.lanes), ())


def rate(mbps: int) -> str:
    """Print Mb/s as monitor's ``rate`` does."""
    if mbps < 1000:
        return f"{mbps}Mbps"
    return f"{mbps // 1000}Gbps" if mbps % 1000 == 0 else f"{mbps / 1000:g}Gbps"


def supported(kind: str) -> tuple[str, ...]:
    """The words a lane of such a cage can be given."""
    if kind == "ether":
        return _TWISTED
    return tuple(word for word, mode in MODES.items() if any(may_start(kind, mode, n) for n in _ALL8))
