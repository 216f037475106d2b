"""The types of the values in rack.yaml, and the base class of its sections."""

from __future__ import annotations

import re
import socket
from collections.abc import Mapping
from ipaddress import IPv4Address, IPv4Network
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    StrictInt,
    StrictStr,
    TypeAdapter,
    ValidationError,
    ValidationInfo,
)
from pydantic_core import PydanticCustomError

from core.hardware import gb10, registry
from core.model.errors import printable_line, truncate

Key = TypeVar("Key")
Value = TypeVar("Value")


class FrozenDict(dict[Key, Value]):
    """A dict (so it copies, pickles and becomes JSON like one) whose changing methods raise TypeError."""

    def __init__(self, entries: Mapping[Key, Value]) -> None:
        super().__init__(entries)

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self.items()))

    def __reduce__(self) -> tuple[type[FrozenDict[Key, Value]], tuple[dict[Key, Value]]]:
        return type(self), (dict(self),)

    def _refuse_change(self, *_args: object, **_kwargs: object) -> NoReturn:
        raise TypeError("a rack does not change once it is loaded")

    __setitem__ = __delitem__ = __ior__ = _refuse_change
    clear = pop = popitem = setdefault = update = _refuse_change


REFUSED = "refused"
"""The type of the pydantic errors raised here; their context holds `what` and `right`."""


def invalid(what: str, right: str) -> PydanticCustomError:
    """An error saying what is wrong (`{value}` stands for the value as written) and what would be right."""
    return PydanticCustomError(REFUSED, "{what}; {right}", {"what": what, "right": right})


def unfit(kind: Any, value: object) -> str:
    """Return why a value cannot be of one of the kinds below, and what would be right; empty if it can."""
    try:
        TypeAdapter(kind).validate_python(value)
    except ValidationError as error:
        detail = error.errors(include_url=False)[0]
        context = {"what": detail["msg"], "right": "write another value", **detail.get("ctx", {})}
        return f"{context['what']}; {context['right']}".replace("{value}", truncate(value))
    return ""


def _require_given(value: object) -> object:
    if value is None:
        raise invalid("is empty", "give it a value or remove the key")
    return value


NotEmpty = BeforeValidator(_require_given)
"""Validator for a key that may be omitted but not left empty, which is usually an accident."""


def matching(pattern: str, what: str, right: str) -> AfterValidator:
    """A text that `pattern` matches as a whole."""
    compiled = re.compile(pattern)

    def check(text: str) -> str:
        if not compiled.fullmatch(text):
            raise invalid(what, right)
        return text

    return AfterValidator(check)


Name = Annotated[
    StrictStr,
    matching(
        r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}",
        "{value} cannot be a name",
        "a name is 1 to 63 letters, digits, '-', '_' or '.', and begins with a letter or digit",
    ),
]
"""A name that is safe as a file name and a word of a command: of a rack, and of what is on a switch."""


def _user_name(value: object) -> object:
    # A number is refused here: in quotes, as YAML's own complaint has it, it would be refused as well.
    if isinstance(value, bool | int | float) or (isinstance(value, str) and not _USER.fullmatch(value)):
        right = "write 1 to 32 lower-case letters, digits, '-' or '_' that begin with a letter or '_', like ops"
        raise invalid("{value} cannot be a user name", right)
    return value


_USER = re.compile(r"[a-z_][a-z0-9_-]{0,31}")
UserName = Annotated[StrictStr, BeforeValidator(_user_name)]
"""A user of a node. Some systems' useradd takes more; but sudoers reads a word in capitals as an alias, and ALL as any
user; chown and systemd read digits as the number of a user."""

_LABEL = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?")
_LONGEST_NAME = 63
"""Linux takes a host name of at most 64 bytes."""
GROUPS = frozenset({"all", "inventory", "nodes", "switches"})
"""Groups of pyinfra's inventory: everything, the file inventory.py, and the two that it defines."""
_LOOPBACK = re.compile(r"localhost(\..+)?|.+\.localhost|ip6-.+")
"""Names that /etc/hosts of Debian and Ubuntu gives loopback and multicast addresses, and what RFC 6761 reserves."""


def _host_name(text: str) -> str:
    labels = text.split(".")
    if len(text) > _LONGEST_NAME or not all(_LABEL.fullmatch(label) for label in labels):
        raise invalid(
            "{value} cannot be the name of a machine",
            "write 1 to 63 letters, digits and '-', a letter or digit first and last, "
            "like spark1 or spark1.example.org",
        )
    if labels[-1].isdigit() or _read_as_address(text):
        raise invalid("{value} is read as an IPv4 address by programs", "write a name like spark1")
    if _LOOPBACK.fullmatch(text.lower()):
        raise invalid("{value} is a loopback name", "write another name, like spark1")
    if text.lower() in GROUPS:
        raise invalid("{value} is a group of pyinfra's inventory", "write another name, like spark1")
    return text


def _read_as_address(text: str) -> bool:
    """Return whether the C library reads a name as an address, as it does with 10.77 and 0x7f000001."""
    try:
        socket.inet_aton(text)
    except OSError:
        return False
    return True


HostName = Annotated[StrictStr, AfterValidator(_host_name)]
"""The name of a node or switch: a host name (RFC 1123), alone or with its domain."""

Model = Annotated[
    StrictStr,
    matching(
        r"[A-Za-z0-9][A-Za-z0-9 ._+-]{0,62}",
        "{value} cannot be a model",
        "write what /system/routerboard prints as model, like CRS812-8DS-2DQ-2DDQ",
    ),
]
Serial = Annotated[
    StrictStr,
    matching(
        r"[A-Za-z0-9/_-]{1,63}",
        "{value} cannot be a serial number",
        "write letters and digits, like HXXXXXXXXXX",
    ),
]
RouterOsRelease = Annotated[
    StrictStr,
    matching(r"7\.[0-9]{1,3}(\.[0-9]{1,3})?", "{value} is not a release of RouterOS", "write its number, like 7.24.6"),
]
DRIVER = re.compile(r"(?P<major>[0-9]{3,})(\.[0-9A-Za-z.+~-]{0,59})?")
"""A version of the driver. The major version is part of package names."""
KERNEL = re.compile(r"[0-9][a-z0-9+.-]{0,61}[a-z0-9+]")
"""A kernel, as the names of its packages hold it: Debian and Ubuntu have no capital letters there."""
DriverVersion = Annotated[
    StrictStr,
    matching(
        DRIVER.pattern,
        "{value} is not a version of the driver",
        "write its major version, of at least three digits, and as much of the rest as is to be held, like 580.159",
    ),
]
Kernel = Annotated[
    StrictStr,
    matching(
        KERNEL.pattern,
        "{value} is not a kernel as packages name it",
        "write what uname -r prints, like 6.17.0-1021-nvidia",
    ),
]
Version = Annotated[
    StrictStr,
    matching(
        r"(?=[^0-9]*[0-9])[0-9A-Za-z][0-9A-Za-z.+~_-]{0,62}",
        "{value} is not a version",
        "write one as the machine shows it, like 0104",
    ),
]

End = Annotated[
    StrictStr,
    matching(
        r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}/[A-Za-z0-9][A-Za-z0-9-]{0,62}",
        "{value} is not the end of a cable",
        "write a leg like crs812/qsfp56-dd-1-1, or a port of a node like spark2/1",
    ),
]
"""End of a cable: a leg of a switch, or a port of another node."""

_ADDRESS = "10.77.0.11"


def _parse_host_address(value: object) -> IPv4Address:
    if isinstance(value, IPv4Address):
        return value
    try:
        address = IPv4Address(value if isinstance(value, str) else "")
    except ValueError:
        raise invalid("{value} is not an IPv4 address", f"write one like {_ADDRESS}") from None
    if not int(address) >> 24 or address.is_multicast or address.is_reserved:
        raise invalid("{value} is not the address of one machine", f"write one like {_ADDRESS}")
    if address.is_link_local:
        raise invalid(
            "{value} is link-local, which no machine keeps", f"write the address it is given, like {_ADDRESS}"
        )
    return address


Address = Annotated[IPv4Address, BeforeValidator(_parse_host_address)]
"""The management address of one machine; loopback is allowed, a machine under test may answer there."""


def network(example: str, smallest: int, loopback: bool = False) -> BeforeValidator:
    """An IPv4 network of prefix length 8 to `smallest`, written without host bits."""

    def check(value: object) -> IPv4Network:
        if isinstance(value, IPv4Network):
            return value
        if not isinstance(value, str) or not re.fullmatch(r"[0-9.]+/[0-9]{1,2}", value):
            raise invalid("{value} is not an IPv4 network", f"write one like {example}")
        try:
            found = IPv4Network(value, strict=False)
        except ValueError:
            raise invalid("{value} is not an IPv4 network", f"write one like {example}") from None
        if not 8 <= found.prefixlen <= smallest:
            raise invalid("{value} has an unfit size", f"use a prefix length from /8 to /{smallest}, like {example}")
        if str(found) != value:
            raise invalid("{value} is an address inside a network", f"write the network itself, {found}")
        if found.is_link_local:
            raise invalid(
                "{value} is link-local, where no node can determine which half of a port an address is behind",
                f"write a private network like {example}",
            )
        special = (found.network_address, found.broadcast_address)
        unfit = (end.is_loopback > loopback or end.is_multicast or end.is_reserved for end in special)
        if any(unfit) or not int(special[0]) >> 24:
            raise invalid("{value} cannot be used between machines", f"write a private network like {example}")
        return found

    return BeforeValidator(check)


Subnet = Annotated[IPv4Network, network("192.168.100.0/24", 30)]
Pool = Annotated[IPv4Network, network("10.100.0.0/20", 24)]
Management = Annotated[IPv4Network, network("10.77.0.0/24", 32, loopback=True)]
"""Machines that may reach a switch, or a served unit, one alone as a /32; loopback as for the address of a machine."""


def _require_entries(entries: tuple[object, ...]) -> tuple[object, ...]:
    if not entries:
        raise invalid("is an empty list", "write at least one entry, or remove the key")
    return entries


NonEmptyList = AfterValidator(_require_entries)


def _syslog_target(value: object) -> object:
    try:
        return value if value == "head" else _parse_host_address(value)
    except PydanticCustomError:
        right = "write head for the first node, or an address like 10.77.0.1"
        raise invalid("{value} is not the address of one machine", right) from None


Syslog = Annotated[Literal["head"] | IPv4Address, BeforeValidator(_syslog_target)]
"""Log host: the first node of the rack ("head"), or the machine with this address."""


def _parse_fingerprint(text: str) -> str:
    digits = text.replace(":", "").lower()
    paired = re.fullmatch(r"[0-9a-f]{64}|[0-9a-f]{2}(:[0-9a-f]{2}){31}", text.lower())
    if not paired:
        raise invalid(
            "{value} is not the SHA-256 fingerprint of a certificate",
            "write its 64 hex digits, colons allowed",
        )
    return digits


Fingerprint = Annotated[StrictStr, AfterValidator(_parse_fingerprint)]
"""A SHA-256 fingerprint, held as 64 lower-case hex digits."""

_SIZE = re.compile(r"([1-9][0-9]{0,6})([MG])")


def size(smallest: int, largest: int, what: str, unfit: str, example: str) -> BeforeValidator:
    """An amount in binary M or G, as a text; `smallest` and `largest` are in MiB."""

    def check(value: object) -> str:
        # a bare number has no unit, so it is refused like any other text
        text = value if isinstance(value, str) else ""
        found = _SIZE.fullmatch(text)
        if not found:
            raise invalid(f"{{value}} is not {what}", f"write a whole number of M or G, like {example}")
        if not smallest <= mebibytes(text) <= largest:
            raise invalid(f"{{value}} {unfit}", f"write {_format_mebibytes(smallest)} to {_format_mebibytes(largest)}")
        return text

    return BeforeValidator(check)


def mebibytes(text: str) -> int:
    """Convert a size like 100G to MiB."""
    found = _SIZE.fullmatch(text)
    if not found:
        raise ValueError(f"{text} is not a size")
    return int(found[1]) * (1024 if found[2] == "G" else 1)


def _format_mebibytes(mebibytes: int) -> str:
    return f"{mebibytes // 1024}G" if mebibytes % 1024 == 0 else f"{mebibytes}M"


_DURATION = re.compile(r"([1-9][0-9]{0,5})([smh])")


def _parse_duration(value: object) -> str:
    text = value if isinstance(value, str) else ""
    if not _DURATION.fullmatch(text):
        raise invalid("{value} is not a duration", "write a whole number of s, m or h, like 30s")
    if seconds(text) > _DAY:
        raise invalid("{value} is too long", "write at most 24h")
    return text


_DAY = 24 * 3600


def seconds(text: str) -> int:
    """Convert a duration like 30m to seconds."""
    found = _DURATION.fullmatch(text)
    if not found:
        raise ValueError(f"{text} is not a duration")
    return int(found[1]) * {"s": 1, "m": 60, "h": 3600}[found[2]]


Duration = Annotated[str, BeforeValidator(_parse_duration)]
"""A time of 1 s to 24 h, as a text with its unit: s, m or h."""

MemorySize = Annotated[str, size(1024, gb10.MEMORY_MIB, "an amount of memory", "does not fit a GB10 node", "100G")]
DiskSize = Annotated[str, size(512, 4096 * 1024, "an amount of disk", "does not fit the disk of a GB10 node", "10G")]
LogSize = Annotated[str, size(1, 10 * 1024, "the size of a log file", "is not a fit size for a log file", "50M")]
_FLOOR = size(256, 64 * 1024, "an amount of memory", "is not a fit floor for a GB10 node", "3G")


def _version_floor(value: object) -> object:
    return value if value is False else _FLOOR.func(value)  # type: ignore[call-arg]


Floor = Annotated[Literal[False] | str, BeforeValidator(_version_floor)]
"""Minimum of available memory before containers are ended; False disables the guard."""

Vendor = Literal["nvidia", "asus", "lenovo", "acer", "dell", "gigabyte", "hp", "msi"]

_IMAGE = re.compile(
    r"(?:[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?/)?"  # registry, perhaps with a port
    r"[a-z0-9]+(?:[._-]+[a-z0-9]+)*(?:/[a-z0-9]+(?:[._-]+[a-z0-9]+)*)*"
    r"(?::(?P<tag>[A-Za-z0-9_][A-Za-z0-9._-]{0,127}))?"
    r"(?P<digest>@sha256:[0-9a-f]{64})?"
)
_PINNED = "name a version, like scitrera/dgx-spark-sglang:0.5.12, or a digest (@sha256:...)"


def _check_image_name(text: str) -> str:
    found = _IMAGE.fullmatch(text) if len(text) <= 512 else None
    if not found:
        raise invalid("{value} is not a container image", _PINNED)
    tag = found["tag"]
    if found["digest"]:
        return text
    if tag is None:
        raise invalid("{value} is not pinned", _PINNED)
    if "latest" in re.split(r"[._-]", tag.lower()):
        raise invalid("{value} is not pinned, the tag moves", _PINNED)
    return text


Image = Annotated[StrictStr, AfterValidator(_check_image_name)]
"""A container image that means the same bytes tomorrow, as far as its publisher keeps his tags."""

Environment = Annotated[
    StrictStr,
    matching(
        r"[A-Za-z_][A-Za-z0-9_]{0,127}",
        "is not the name of an environment variable",
        "write letters, digits and '_', like CRS812_PASSWORD",
    ),
]


def _place_beside_rack(value: object, info: ValidationInfo) -> object:
    if isinstance(value, Path):
        value = str(value)
    if not isinstance(value, str):
        return value  # the type's own check reports the problem
    if not value.strip() or any(ord(character) < 32 for character in value):
        raise invalid("{value} is not the name of a file", "write a path")
    try:
        path = Path(value).expanduser()
    except RuntimeError:
        raise invalid("the home folder in {value} is not known", "write the path in full") from None
    folder = (info.context or {}).get("folder", Path.cwd())
    return Path(folder) / path


FilePath = Annotated[Path, BeforeValidator(_place_beside_rack)]
"""A file: `~` is the home folder, a relative path starts in the folder of the rack file."""

SSH_WORD = 'without quotation marks, backslashes, "${" and control characters'
"""Paths that OpenSSH reads from a configuration unchanged; its versions differ in how they read other paths."""


_NO_UTF8 = re.compile("[\udc80-\udcff]")


def is_ssh_word(path: Path) -> bool:
    """Return whether a path can be quoted in an OpenSSH configuration, with each `%` in it doubled."""
    # Bytes that are not UTF-8 (U+DC80 to U+DCFF here) are not characters to OpenSSH, which takes them as they are.
    text = _NO_UTF8.sub("x", str(path))
    return text.isprintable() and not any(part in text for part in ('"', "\\", "${"))


def _ssh_path(path: Path) -> Path:
    if not is_ssh_word(path):
        raise invalid(f"{printable_line(str(path))} cannot stand in an OpenSSH configuration", f"use a path {SSH_WORD}")
    return path


SshPath = Annotated[FilePath, AfterValidator(_ssh_path)]
"""A file that is passed to OpenSSH; validated together with the folder of the rack file."""


Frozen = Annotated[Mapping[Key, Value], AfterValidator(FrozenDict)]

MAX_L2MTU = max(model.max_l2mtu for model in registry.MODELS)
"""The largest l2mtu that any model of switch takes, in bytes; each switch is judged by its own model besides."""

Mtu = Annotated[StrictInt, Field(ge=1280, le=MAX_L2MTU, examples=[9000])]
SSH_PORT = 22
"""The port of sshd. known_hosts has a host at this port by its bare name."""
PLAIN_API_PORT, TLS_API_PORT = 8728, 8729
"""The ports of RouterOS's API: without TLS, and with it."""

TcpPort = Annotated[StrictInt, Field(ge=1, le=65535)]


class Section(BaseModel):
    """A section of the file: no unknown keys, no change after loading."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    def to_json(self) -> dict[str, object]:
        """Convert to plain data; pyinfra calls this when it shows host data."""
        return self.model_dump(mode="json")
