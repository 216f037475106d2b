"""What is known against the release that a switch runs, and what a break-in left on it. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from core.advisories.advisories import ROUTEROS, Advisory, advisory_line, known_against, version_key
from core.routeros.menus import DEVICE_MODE, RESOURCE, USER, Row
from core.routeros.reading import SwitchReading
from core.routeros.versions import release
from switch.flags import read_flag

if TYPE_CHECKING:
    from core.model import Switch

RUNBOOK = "docs/runbooks/switch-compromised.md"
# claim: switch.device-mode
COMPROMISED = (
    "RouterOS has marked this switch as compromised (flagged in /system/device-mode): at a start it found settings "
    f"that an intruder may have made; do not clear the mark, see {RUNBOOK}"
)
LOSSLESS, BREAKOUT = "lossless roce", "QSFP-DD breakout"
"""Features that rows of advisories name and rack.yaml declares."""


def used_features(switch: Switch) -> frozenset[str]:
    """Return the features of advisories that the declaration of a switch uses."""
    split = any(
        cage.startswith("qsfp56-dd-") and not spec.split.startswith("1x") for cage, spec in switch.cages.items()
    )
    return frozenset(({LOSSLESS} if switch.lossless == "roce" else set()) | ({BREAKOUT} if split else set()))


def known_against_release(switch: Switch, version: str) -> tuple[Advisory, ...]:
    """Return what is known against a release on this switch, the worst first; () for text that is not a release."""
    return known_against(ROUTEROS, version, used_features(switch)) if release(version) else ()


def release_faults(switch: Switch, version: str) -> tuple[str, ...]:
    """Return a line for each weakness of a release by which the switch can be taken over, and for a release that
    rack.yaml does not declare."""
    lines = [advisory_line(row, version) for row in known_against_release(switch, version) if row.fault]
    if switch.release is not None and version_key(version) != version_key(switch.release):
        lines.append(
            f"it runs RouterOS {version}, rack.yaml declares release {switch.release}: sparkrack upgrade switch "
            "--packages FOLDER"
        )
    return tuple(lines)


def release_notes(switch: Switch, version: str) -> tuple[str, ...]:
    """Return a line for each other thing that is known against a release."""
    return tuple(advisory_line(row, version) for row in known_against_release(switch, version) if not row.fault)


def exposure(switch: Switch, reading: SwitchReading) -> Iterator[str]:
    """Yield what makes a weakness of the release that a switch runs worse, on it and in rack.yaml."""
    version = reading.only(RESOURCE).get("version", "")
    if not any(row.fault for row in known_against_release(switch, version)):
        return
    if switch.management is None:
        yield "rack.yaml does not declare `management`, so it does not limit ssh, www and the bandwidth-test server"
    yield from undeclared_full_users(switch, reading)


def marked_as_compromised(rows: Iterable[Row]) -> bool:
    """Return whether /system/device-mode has the mark. Raises UnreadableError."""
    return any(read_flag(DEVICE_MODE, row, "flagged") for row in rows)


def compromised(switch: Switch, reading: SwitchReading) -> Iterator[str]:
    """Yield that RouterOS has marked the switch as compromised, and the users to look at. Raises UnreadableError."""
    if marked_as_compromised(reading.tables.get(DEVICE_MODE.path, ())):
        yield COMPROMISED
        yield from undeclared_full_users(switch, reading)


def undeclared_full_users(switch: Switch, reading: SwitchReading) -> Iterator[str]:
    """Yield the enabled users of the group full that rack.yaml does not name, in one line. A break-in leaves one
    (CERT Polska saw `ops`)."""
    rows = (row for row in reading.tables.get(USER.path, ()) if row.get("group") == "full")
    names = [row.get("name", "") for row in rows if row.get("disabled", "no") in ("no", "false")]
    if others := [name for name in names if name != switch.user]:
        yield f"users of the group full that rack.yaml does not name: {', '.join(others)}; look at who made them"
