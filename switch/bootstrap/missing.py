"""Missing prerequisites of a switch after a reading. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

from core.routeros.diff import DesiredRow, RowChange, diff, surplus
from core.routeros.errors import RefusedError, UnreadableError
from core.routeros.menus import BRIDGE, GROUP, SERVICE, USER, Row
from core.routeros.reading import SwitchReading
from core.routeros.values import ValueKind, canonical
from switch.bootstrap.certificates import Choice, choose
from switch.bootstrap.menus import ADDRESS, CLOCK, FACTORY_ADDRESS, FACTORY_USER, OWNER_GROUP, OWNER_POLICY

if TYPE_CHECKING:
    from core.model import Switch


@dataclass(frozen=True)
class Missing:
    """What is missing, in the order of its creation; an empty part exists already."""

    clock: str
    certificate: Choice
    service: tuple[RowChange, ...]
    pin: str
    people: tuple[RowChange, ...]
    address: tuple[RowChange, ...]
    old: tuple[RowChange, ...]
    logins: tuple[RowChange, ...]

    @property
    def lines(self) -> tuple[str, ...]:
        """Each as one line; () when nothing is missing."""
        # claim: switch.certificate.self-signed
        made = f"+ /certificate {self.certificate.name}: made on the switch"
        changes = (*self.service, *self.people, *self.address, *self.old, *self.logins)
        return (
            *([f"~ /system/clock: {self.clock}, which is not today"] if self.clock else []),
            *([] if self.certificate.fingerprint else [made]),
            *([f"~ rack.yaml tls.sha256 {self.pin}"] if self.pin else []),
            *map(str, changes),
        )


@dataclass(frozen=True)
class Situation:
    """Circumstances besides the switch itself. `host`: the address that it answers at. `given`: the address that the
    user named. `stay`: the old address is kept. `disable`: whether the factory's user is disabled.
    """

    host: str
    given: str
    prefix: int
    today: date
    stay: bool = False
    disable: bool = True


def missing(switch: Switch, reading: SwitchReading, situation: Situation) -> Missing:
    """Return what is missing. Raises UnreadableError, and RefusedError when no interface for the address is known."""
    pinned = switch.tls.sha256 if switch.tls else ""
    choice = choose(reading, pinned)
    service: dict[str, str] = {"port": str(switch.port), "certificate": choice.name, "disabled": "no"}
    return Missing(
        clock=_wrong_clock(reading, situation.today),
        certificate=choice,
        service=diff(SERVICE, [DesiredRow(("api-ssl",), service)], reading.rows(SERVICE)),
        pin="" if choice.fingerprint == pinned else f"{pinned} -> {choice.fingerprint or '(what is made)'}",
        people=(
            *diff(GROUP, [DesiredRow((OWNER_GROUP,), {"policy": OWNER_POLICY})], reading.rows(GROUP)),
            *diff(USER, [_user_row(switch)], reading.rows(USER)),
        ),
        address=_address_changes(switch, reading, situation),
        old=_old_address_changes(switch, reading, situation),
        logins=_login_changes(reading, situation.disable),
    )


def _wrong_clock(reading: SwitchReading, today: date) -> str:
    """The date of the switch when it is days off. A unit without a battery may begin in 1970 (inferred); its
    certificate would have expired as soon as the time is right."""
    found = reading.only(CLOCK).get("date", "")
    try:
        days = abs((date.fromisoformat(found) - today).days)
    except ValueError:
        raise UnreadableError(f"{CLOCK.path} date: {found!r} is not a date") from None
    return found if days > 1 else ""


def _user_row(switch: Switch) -> DesiredRow:
    return DesiredRow((switch.user,), {"group": OWNER_GROUP, "password": switch.password, "disabled": "no"})


def _address_changes(switch: Switch, reading: SwitchReading, situation: Situation) -> tuple[RowChange, ...]:
    wanted = str(switch.address)
    if situation.host == wanted:
        return ()  # it answers there, regardless of its table
    rows = reading.rows(ADDRESS)
    for row in rows:
        if _address_of(row) == wanted:
            return diff(ADDRESS, [DesiredRow((row["address"],), {"disabled": "no"})], rows)
    fields = {"interface": _find_management_interface(switch, reading, situation.host), "disabled": "no"}
    return diff(ADDRESS, [DesiredRow((f"{wanted}/{situation.prefix}",), fields)], rows)


def _find_management_interface(switch: Switch, reading: SwitchReading, host: str) -> str:
    """Return the interface for the address: that of the address it answers at, else its bridge."""
    beside = next((row.get("interface") for row in reading.rows(ADDRESS) if _address_of(row) == host), None)
    if beside:
        return beside
    if (switch.bridge,) in reading.by_key(BRIDGE):
        return switch.bridge
    raise RefusedError((f"no interface has {host}, and there is no bridge {switch.bridge} to give an address to",))


def _old_address_changes(switch: Switch, reading: SwitchReading, situation: Situation) -> tuple[RowChange, ...]:
    """The address that the user named and the factory's, once the right one is there."""
    rows = reading.rows(ADDRESS)
    right = str(switch.address)
    if situation.stay or not any(_address_of(row) == right and not _is_disabled(row) for row in rows):
        return ()
    gone = {situation.given, FACTORY_ADDRESS} - {right}
    return surplus(ADDRESS, [(row["address"],) for row in rows if _address_of(row) not in gone], rows)


def _login_changes(reading: SwitchReading, disable: bool) -> tuple[RowChange, ...]:
    # claim: switch.users.policies
    admin = [DesiredRow((FACTORY_USER,), {"disabled": "yes"})]
    there = (FACTORY_USER,) in reading.by_key(USER)
    return (
        *(diff(USER, admin, reading.rows(USER)) if disable and there else ()),
        *diff(SERVICE, [DesiredRow(("api",), {"disabled": "yes"})], reading.rows(SERVICE)),
    )


def _address_of(row: Row) -> str:
    return row.get("address", "").partition("/")[0]


def _is_disabled(row: Row) -> bool:
    return canonical(ValueKind.FLAG, row.get("disabled", "no")) == "yes"
