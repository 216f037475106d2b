"""What a node that dies leaves behind: the section `blackbox` of rack.yaml, and its rule."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, BeforeValidator, Field, StrictBool, StrictInt, TypeAdapter, ValidationError

from core.model.cabling import Cabling
from core.model.errors import RuleViolation
from core.model.fields import Duration, Frozen, FrozenDict, HostName, Section, Vendor, invalid, seconds, size
from core.model.partial_rack import PartialRack

VENDORS = get_args(Vendor)
MOST_STALLS = 100


def _limited(smallest: int, largest: int) -> AfterValidator:
    """A duration from `smallest` to `largest` seconds."""

    def check(text: str) -> str:
        if not smallest <= seconds(text) <= largest:
            raise invalid("{value} is out of range", f"write {smallest}s to {largest}s")
        return text

    return AfterValidator(check)


def _unless_false(value: object) -> object:
    if value is False:
        return value
    try:
        return _LIMIT.validate_python(value)
    except ValidationError as error:
        context = error.errors(include_url=False)[0]["ctx"]
        raise invalid(context["what"], f"{context['right']}, or false") from None


def _count_or_false(value: object) -> object:
    if value is not False and not (type(value) is int and 1 <= value <= MOST_STALLS):
        raise invalid("{value} is no number of stalls", f"write 1 to {MOST_STALLS}, or false")
    return value


_LIMIT: TypeAdapter[str] = TypeAdapter(Annotated[Duration, _limited(10, 180)])
WatchdogLimit = Annotated[Literal[False] | str, BeforeValidator(_unless_false)]
"""Time without a sign of life of systemd after which the hardware resets the node; False leaves the watchdog alone."""
RebootDelay = Annotated[Duration, _limited(1, 300)]
SyncInterval = Annotated[Duration, _limited(1, 300)]
JournalSize = Annotated[str, size(64, 64 * 1024, "the size of a journal", "is no fit size for the journal", "2G")]
RcuStalls = Annotated[
    Literal[False] | Annotated[StrictInt, Field(ge=1, le=MOST_STALLS)], BeforeValidator(_count_or_false)
]
ClockMhz = Annotated[StrictInt, Field(ge=1000, le=2600)]


class PanicOptions(Section):
    """What the kernel does about its own faults: `after` a panic it reboots.

    `rcu_stalls`: how many RCU stalls are a panic; False: none. `hung_task` is off: threads that load a model are
    uninterruptible for minutes.
    """

    after: RebootDelay = Field(default="10s", examples=["10s"])
    oops: StrictBool = True
    softlockup: StrictBool = True
    rcu_stalls: RcuStalls = 3
    hung_task: StrictBool = False


class JournalOptions(Section):
    """How the journal of a node is stored: synchronized to the disk every `sync`, at most `keep` large."""

    sync: SyncInterval = Field(default="1s", examples=["1s"])
    keep: JournalSize = Field(default="2G", examples=["2G"])


class BlackboxOptions(Section):
    """What a node that dies leaves behind. `clock_cap`: MHz by vendor or node; a node without an entry has no cap."""

    watchdog: WatchdogLimit = Field(default="60s", examples=["60s"])
    panic: PanicOptions = PanicOptions()
    pstore: StrictBool = True
    journal: JournalOptions = JournalOptions()
    clock_cap: Frozen[HostName, ClockMhz] = Field(default=FrozenDict({}), examples=["{asus: 2200}"])
    boot_evidence: StrictBool = True


def check_clock_cap(partial: PartialRack, blackbox: BlackboxOptions, _cabling: Cabling) -> Iterator[RuleViolation]:
    """A cap is for a vendor or for a node of the rack, and it is clear which."""
    for name in blackbox.clock_cap:
        where = ("blackbox", "clock_cap", name)
        if name in VENDORS and name in partial.nodes:
            yield RuleViolation(where, f"{name} is a vendor and a node", "rename the node")
        elif name not in VENDORS and name not in partial.nodes and partial.complete:
            yield RuleViolation(
                where,
                f"{name} is neither a vendor nor a node",
                f"write one of {', '.join(VENDORS)} or the name of a node",
            )
