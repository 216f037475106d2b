"""What a node that dies leaves behind: the section `blackbox` of rack.yaml, and its rules."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Literal, get_args

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    StrictBool,
    StrictInt,
    Tag,
    TypeAdapter,
    ValidationError,
)

from core.model.cabling import Cabling
from core.model.errors import RuleViolation
from core.model.fields import (
    Duration,
    Frozen,
    FrozenDict,
    HostName,
    NotEmpty,
    Section,
    Vendor,
    invalid,
    mebibytes,
    seconds,
    size,
)
from core.model.partial_rack import PartialRack
from core.model.sections import Node

VENDORS = get_args(Vendor)
MOST_STALLS = 100


def _limit_duration(smallest: int, largest: int) -> AfterValidator:
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
        raise invalid("{value} is not a number of stalls", f"write 1 to {MOST_STALLS}, or false")
    return value


def _check_journal_remote(value: object) -> object:
    if value is not False and value not in ("tls", "plain"):
        raise invalid(
            "{value} is not a way for a journal to leave a node",
            "write tls (encrypted, both ends have certificates), plain (readable on the management network), or false",
        )
    return value


def _check_netconsole(value: object) -> object:
    if value is not False and value != "plain":
        raise invalid(
            "{value} is not a way for messages of a kernel to leave a node",
            "write plain (netconsole cannot be encrypted: readable on the management network), or false",
        )
    return value


_LIMIT: TypeAdapter[str] = TypeAdapter(Annotated[Duration, _limit_duration(10, 180)])
WatchdogLimit = Annotated[Literal[False] | str, BeforeValidator(_unless_false)]
"""Time without a sign of life of systemd after which the hardware resets the node; False leaves the watchdog alone."""
RebootDelay = Annotated[Duration, _limit_duration(1, 300)]
SyncInterval = Annotated[Duration, _limit_duration(1, 300)]
RingLength = Annotated[Duration, _limit_duration(60, 3600)]
SampleRate = Annotated[StrictInt, Field(ge=1, le=4)]
JournalSize = Annotated[str, size(64, 64 * 1024, "the size of a journal", "is not a fit size for the journal", "2G")]
Reserve = Annotated[
    str, size(256, 4 * 1024, "an amount of memory", "is not a fit amount of memory for a crash kernel", "512M")
]
RcuStalls = Annotated[
    Literal[False] | Annotated[StrictInt, Field(ge=1, le=MOST_STALLS)], BeforeValidator(_count_or_false)
]
RemoteKind = Annotated[Literal[False, "tls", "plain"], BeforeValidator(_check_journal_remote)]
"""How the journal leaves a node; False: it does not."""
NetconsoleKind = Annotated[Literal[False, "plain"], BeforeValidator(_check_netconsole)]
"""How the messages of the kernel leave a node; False: they do not."""
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


class RecorderOptions(Section):
    """The flight recorder of a node: `rate` samples a second, of which the last `keep` are on its disk."""

    rate: SampleRate = 2
    keep: RingLength = Field(default="10m", examples=["10m"])


class KdumpOptions(Section):
    """The crash kernel of a node: `reserve` of its memory is always kept for it. `vmcore`: at a panic it writes an
    image of the memory to the disk, and not the kernel's log alone.
    """

    reserve: Reserve = Field(default="512M", examples=["512M"])
    vmcore: StrictBool = False


class BlackboxOptions(Section):
    """What a node that dies leaves behind. `clock_cap`: MHz by vendor or node; a node without an entry has no cap.

    `server`: the node that receives what the others send; None: roles.blackbox.stream_routes chooses one. `remote`: how
    a node's journal leaves it. `netconsole`: the same for the messages of its kernel. `recorder`, `kdump`: False for
    none. `watchdog_panics`: the watchdog causes a panic first, and a reset when that does not help.
    """

    watchdog: WatchdogLimit = Field(default="60s", examples=["60s"])
    watchdog_panics: StrictBool = True
    panic: PanicOptions = PanicOptions()
    pstore: StrictBool = True
    journal: JournalOptions = JournalOptions()
    clock_cap: Frozen[HostName, ClockMhz] = Field(default=FrozenDict({}), examples=["{asus: 2200}"])
    boot_evidence: StrictBool = True
    server: Annotated[HostName | None, NotEmpty] = Field(default=None, examples=["spark5"])
    remote: RemoteKind = Field(default=False, examples=["tls"])
    netconsole: NetconsoleKind = Field(default=False, examples=["plain"])
    recorder: Annotated[
        Annotated[RecorderOptions, Tag("on")] | Annotated[Literal[False], Tag("off")],
        Discriminator(lambda value: "off" if value is False else "on"),
    ] = Field(default=False, examples=["{rate: 2, keep: 10m}"])
    kdump: Annotated[
        Annotated[KdumpOptions, Tag("on")] | Annotated[Literal[False], Tag("off")],
        Discriminator(lambda value: "off" if value is False else "on"),
    ] = Field(default=False, examples=["{reserve: 512M, vmcore: false}"])


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
        elif name in VENDORS:
            # The units of a node follow from the file before the node is asked, so its vendor must stand there.
            for node in partial.nodes.values():
                if node.vendor is None and node.name not in blackbox.clock_cap:
                    what = f"is for the nodes of {name}, and nodes.{node.name} does not name its vendor"
                    yield RuleViolation(where, what, f"write vendor at nodes.{node.name}, or a cap for the node itself")


def cap_of(caps: Mapping[str, int], node: Node) -> int | None:
    """Return the cap of a node in MHz: its own, else that of its vendor; None for none."""
    return caps.get(node.name, caps.get(node.vendor or ""))


def check_server(partial: PartialRack, blackbox: BlackboxOptions, _cabling: Cabling) -> Iterator[RuleViolation]:
    """The server is a node of the rack."""
    if blackbox.server is not None and blackbox.server not in partial.nodes and partial.complete:
        what = f"{blackbox.server} is not a node"
        yield RuleViolation(("blackbox", "server"), what, f"write one of {', '.join(partial.nodes)}")


def unencrypted(blackbox: BlackboxOptions | None) -> Iterator[RuleViolation]:
    """What leaves the nodes unencrypted, which is allowed and worth knowing; nothing without the section."""
    if blackbox is None:
        return
    exposed = "any host on the management network can read and forge it"
    if blackbox.remote == "plain":
        what = f"the journal and the samples of each node go to another one unencrypted: {exposed}"
        yield RuleViolation(("blackbox", "remote"), what, "tls encrypts it")
    if blackbox.netconsole == "plain":
        what = f"what the kernel of each node logs goes to another one unencrypted: {exposed}"
        yield RuleViolation(("blackbox", "netconsole"), what, "false keeps it on the node")


def check_options(partial: PartialRack, blackbox: BlackboxOptions, cabling: Cabling) -> Iterator[RuleViolation]:
    """All rules of the section."""
    yield from check_clock_cap(partial, blackbox, cabling)
    yield from check_server(partial, blackbox, cabling)


def reserved_gib(blackbox: BlackboxOptions) -> float:
    """Return the GiB of a node that the crash kernel takes away from all programs."""
    return mebibytes(blackbox.kdump.reserve) / 1024 if blackbox.kdump else 0.0
