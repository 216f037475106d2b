"""/interface/ethernet/switch/qos: settings, profiles, flow-control profiles, and monitor.

Fields: MikroTik manual, 'Quality of Service' and its command reference; builtin rows and defaults also as
printed by other switches of the family on 7.23.2. That the arguments of PFC, ECN, lossless classes and automap
are unknown before 7.23 follows MikroTik's release note for that version; owners report that 7.20 to 7.22 took
``pfc`` and ``ecn`` without effect. How a refusal is worded is inferred throughout.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from lab.routeros_emulator.argument_types import Bool, Enum, Integer, Reference, Text
from lab.routeros_emulator.device import EmulatedDevice
from lab.routeros_emulator.errors import failure, unknown_parameter
from lab.routeros_emulator.menu import EDIT, FULL, EmulatedField, EmulatedMenu, EmulatedRow, Values
from lab.routeros_emulator.monitor import SHAPING, watch
from lab.routeros_emulator.numbers import Amount, Ranges
from lab.routeros_emulator.request import Call, Reply, Stream

QOS = "/interface/ethernet/switch/qos"
PROFILE, MAP, PFC, TX_MANAGER = f"{QOS}/profile", f"{QOS}/map", f"{QOS}/priority-flow-control", f"{QOS}/tx-manager"
#: The version that brought PFC, ECN, lossless traffic classes and automap to this chip.
LOSSLESS = (7, 23)
NAMED = ((("name",), "already have such entry"),)
ROWS = FULL | {"unset"}

SETTINGS_FIELDS = (
    EmulatedField("multicast-buffers", Amount(), "auto"),
    EmulatedField("mirror-profile", Reference((PROFILE,)), "default"),
    EmulatedField("shared-buffers", Amount(), "auto"),
    EmulatedField("lossless-buffers", Amount(), "auto", since=LOSSLESS),
    EmulatedField("lossless-traffic-class", Ranges(0, 7, ("auto",), joined=False), "auto", since=LOSSLESS),
    EmulatedField("wred-threshold", Enum(("low", "medium", "high")), "medium"),
)
PROFILE_FIELDS = (
    EmulatedField("name", Text(), required=True),
    EmulatedField("comment", Text(), clears=True),
    EmulatedField("disabled", Bool(), "false"),
    EmulatedField("pcp", Integer(0, 7), "0"),
    EmulatedField("dscp", Integer(0, 63), "0"),
    EmulatedField("traffic-class", Integer(0, 7), "0"),
    EmulatedField("automap", Bool(), "true", since=LOSSLESS),
)
PFC_FIELDS = (
    EmulatedField("name", Text(), required=True),
    EmulatedField("comment", Text(), clears=True),
    EmulatedField("disabled", Bool(), "false"),
    EmulatedField("traffic-class", Ranges(0, 7, joined=False), required=True),
    EmulatedField("rx", Bool(), "false"),
    EmulatedField("tx", Bool(), "false"),
    EmulatedField("pause-threshold", Amount(), clears=True),
    EmulatedField("resume-threshold", Amount(), clears=True),
)


def defaults(fields: tuple[EmulatedField, ...]) -> Values:
    """Return the initial values of a new row."""
    return {item.name: item.default for item in fields if item.default is not None}


def state(builtin: int, *, numbered: bool = True) -> Callable[[EmulatedDevice, EmulatedRow], Values]:
    """The flags of a row, of which the first ``builtin`` come with the chip; ``numbered`` rows have a place in it."""

    def show(_device: EmulatedDevice, row: EmulatedRow) -> Values:
        off = row.values.get("disabled", "false")
        flags = {"default": "true" if row.id < builtin else "false", "inactive": off}
        flags["hw-offloaded"] = "false" if off == "true" else "true"
        return flags | ({"hw-id": str(row.id)} if numbered else {})

    return show


def stays(builtin: int) -> Callable[[EmulatedDevice, EmulatedRow], None]:
    """Refuse that a builtin row is removed."""

    def keep(_device: EmulatedDevice, row: EmulatedRow) -> None:
        if row.id < builtin:
            raise failure("can not remove default entry")

    return keep


def switched_on(builtin: int) -> Callable[[EmulatedDevice, EmulatedRow, EmulatedRow | None], None]:
    """Refuse that a builtin row is disabled."""

    def check(_device: EmulatedDevice, row: EmulatedRow, old: EmulatedRow | None) -> None:
        if old is not None and row.id < builtin and row.values.get("disabled") == "true":
            raise failure("can not disable default entry")

    return check


def _show_profile(device: EmulatedDevice, row: EmulatedRow) -> Values:
    """The builtin profile also prints as dynamic, as seen on 7.23.2."""
    return state(1)(device, row) | {"dynamic": "true" if row.id == 0 else "false"}


def _check_pfc(_device: EmulatedDevice, row: EmulatedRow, old: EmulatedRow | None) -> None:
    if old is not None and row.id == 0:
        raise failure("can not change default entry")


def _factory_profiles(_device: EmulatedDevice) -> Iterator[Values]:
    yield defaults(PROFILE_FIELDS) | {"name": "default", "traffic-class": "1"}


#: Bytes of packet memory; the chip's real size is not known here.
_MEMORY = 64 * 2**20


def _monitor_memory(call: Call) -> Reply | Stream:
    """Answer qos/monitor: fill levels of the packet memory. No packet ever waits here."""
    given = call.sentence.attributes
    for name in given:
        if name not in SHAPING:
            raise unknown_parameter(name)
    caps = {"total": 1, "multicast": 10, "lossy-pool": 2}
    if call.device.version >= LOSSLESS:
        caps["lossless-pool"] = 2
    row = {f"{name}-byte-cap": str(_MEMORY // part) for name, part in caps.items()}
    row |= {f"{name}-byte-use": "0" for name in caps if name != "multicast"}
    return watch(given, lambda: [row])


MONITOR = EmulatedMenu(QOS, verbs=frozenset(), rows=lambda _device: (), actions={"monitor": _monitor_memory})
SETTINGS = EmulatedMenu(
    f"{QOS}/settings",
    SETTINGS_FIELDS,
    verbs=EDIT,
    singleton=True,
    factory=lambda _device: [defaults(SETTINGS_FIELDS)],
)
QOS_PROFILE = EmulatedMenu(
    PROFILE,
    PROFILE_FIELDS,
    verbs=ROWS,
    named_by="name",
    unique=NAMED,
    first_id=0,
    factory=_factory_profiles,
    show=_show_profile,
    check=switched_on(1),
    keep=stays(1),
)
PRIORITY_FLOW_CONTROL = EmulatedMenu(
    PFC,
    PFC_FIELDS,
    verbs=ROWS,
    named_by="name",
    unique=NAMED,
    first_id=0,
    factory=lambda _device: [{"name": "disabled", "disabled": "false", "rx": "false", "tx": "false"}],
    show=state(1),
    check=_check_pfc,
    keep=stays(1),
    since=LOSSLESS,
)
