"""What a switch still lacks of what first contact is to bring. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING

from switch.diff import Change, Wanted, diff, surplus
from switch.errors import RefusedError, UnreadableError
from switch.menus import BRIDGE, GROUP, SERVICE, USER, Row
from switch.reading import Reading
from switch.values import Kind, canonical

from .certificates import Choice, choose
from .tables import ADDRESS, CLOCK, FACTORY_ADDRESS, FACTORY_USER, OWNER_GROUP, OWNER_POLICY

if TYPE_CHECKING:
    from sparkrack.fleet import Switch


@dataclass(frozen=True)
class Needs:
    """What is missing, in the order it is brought; an empty part is there already."""

    clock: str
    certificate: Choice
    service: tuple[Change, ...]
    pin: str
    people: tuple[Change, ...]
    address: tuple[Change, ...]
    old: tuple[Change, ...]
    doors: tuple[Change, ...]

    @property
    def lines(self) -> tuple[str, ...]:
        """Each as one line; () when nothing is missing."""
        made = f"+ /certificate {self.certificate.name}: made on the switch"
        changes = (*self.service, *self.people, *self.address, *self.old, *self.doors)
        return (
            *([f"~ /system/clock: {self.clock}, which is not today"] if self.clock else []),
            *([] if self.certificate.fingerprint else [made]),
            *([f"~ rack.yaml tls.sha256 {self.pin}"] if self.pin else []),
            *map(str, changes),
        )


@dataclass(frozen=True)
class Situation:
    """What needs are judged by, besides the switch itself. `host`: the address that it answers at. `given`: the
    address that the user named. `stay`: the old address is kept. `disable`: what becomes of the factory's user."""

    host: str
    given: str
    prefix: int
    today: date
    stay: bool = False
    disable: bool = True


def needs(switch: Switch, reading: Reading, situation: Situation) -> Needs:
    """What is missing. Raises UnreadableError, and RefusedError when no interface for the address is known."""
    pinned = switch.tls.sha256 if switch.tls else ""
    choice = choose(reading, pinned)
    service: dict[str, str] = {"port": str(switch.port), "certificate": choice.name, "disabled": "no"}
    return Needs(
        clock=_clock(reading, situation.today),
        certificate=choice,
        service=diff(SERVICE, [Wanted(("api-ssl",), service)], reading.rows(SERVICE)),
        pin="" if choice.fingerprint == pinned else f"{pinned} -> {choice.fingerprint or '(what is made)'}",
        people=(
            *diff(GROUP, [Wanted((OWNER_GROUP,), {"policy": OWNER_POLICY})], reading.rows(GROUP)),
            *diff(USER, [_user(switch)], reading.rows(USER)),
        ),
        address=_address(switch, reading, situation),
        old=_old(switch, reading, situation),
        doors=_doors(reading, situation.disable),
    )


def _clock(reading: Reading, today: date) -> str:
    """The date of the switch when it is days off. A unit without a battery may begin in 1970 (inferred); its
    certificate would have expired as soon as the time is right."""
    found = reading.only(CLOCK).get("date", "")
    try:
        days = abs((date.fromisoformat(found) - today).days)
    except ValueError:
        raise UnreadableError(f"{CLOCK.path} date: {found!r} is no date") from None
    return found if days > 1 else ""


def _user(switch: Switch) -> Wanted:
    return Wanted((switch.user,), {"group": OWNER_GROUP, "password": switch.password, "disabled": "no"})


def _address(switch: Switch, reading: Reading, situation: Situation) -> tuple[Change, ...]:
    wanted = str(switch.address)
    if situation.host == wanted:
        return ()  # it answers there, whatever its table says
    rows = reading.rows(ADDRESS)
    for row in rows:
        if _ip(row) == wanted:
            return diff(ADDRESS, [Wanted((row["address"],), {"disabled": "no"})], rows)
    fields = {"interface": _interface(switch, reading, situation.host), "disabled": "no"}
    return diff(ADDRESS, [Wanted((f"{wanted}/{situation.prefix}",), fields)], rows)


def _interface(switch: Switch, reading: Reading, host: str) -> str:
    """Where the address goes: beside the one that the switch answers at, else on its bridge."""
    beside = next((row.get("interface") for row in reading.rows(ADDRESS) if _ip(row) == host), None)
    if beside:
        return beside
    if (switch.bridge,) in reading.by_key(BRIDGE):
        return switch.bridge
    raise RefusedError((f"no interface has {host}, and there is no bridge {switch.bridge} to give an address to",))


def _old(switch: Switch, reading: Reading, situation: Situation) -> tuple[Change, ...]:
    """The address that the user named and the factory's, once the right one is there."""
    rows = reading.rows(ADDRESS)
    right = str(switch.address)
    if situation.stay or not any(_ip(row) == right and not _off(row) for row in rows):
        return ()
    gone = {situation.given, FACTORY_ADDRESS} - {right}
    return surplus(ADDRESS, [(row["address"],) for row in rows if _ip(row) not in gone], rows)


def _doors(reading: Reading, disable: bool) -> tuple[Change, ...]:
    admin = [Wanted((FACTORY_USER,), {"disabled": "yes"})]
    there = (FACTORY_USER,) in reading.by_key(USER)
    return (
        *(diff(USER, admin, reading.rows(USER)) if disable and there else ()),
        *diff(SERVICE, [Wanted(("api",), {"disabled": "yes"})], reading.rows(SERVICE)),
    )


def _ip(row: Row) -> str:
    return row.get("address", "").partition("/")[0]


def _off(row: Row) -> bool:
    return canonical(Kind.FLAG, row.get("disabled", "no")) == "yes"
