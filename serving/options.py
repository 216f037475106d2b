"""The section `serving` of a rack file: inference engines that run as units of one or more nodes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    Tag,
    model_validator,
)
from pydantic.json_schema import WithJsonSchema

from core.model.errors import printable_line
from core.model.fields import (
    DiskSize,
    Duration,
    Environment,
    FilePath,
    Frozen,
    FrozenDict,
    HostName,
    Management,
    MemorySize,
    Name,
    NonEmptyList,
    NotEmpty,
    Section,
    TcpPort,
    invalid,
    matching,
    size,
)
from core.model.secrets import SecretRef
from core.util.command_error import CommandError
from serving.engines.memory_fit import HIGHEST_SHARE, MEMORY_GIB
from serving.engines.option_table import Engine

if TYPE_CHECKING:
    from core.model.partial_rack import PartialRack
    from core.model.schema import Rack

UnitName = Annotated[
    StrictStr,
    matching(
        r"[a-z0-9][a-z0-9_]{0,30}",
        "{value} cannot be the name of a unit",
        "write 1 to 31 lower-case letters, digits or '_': systemd reads a '-' in the name of a slice as a slice inside "
        "another",
    ),
]
OverheadSize = Annotated[str, size(1024, 64 * 1024, "an amount of memory", "is not a fit overhead of an engine", "8G")]
SharedMemorySize = Annotated[
    str, size(64, 64 * 1024, "an amount of shared memory", "is not a fit size for shared memory", "16G")
]


def _share(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise invalid("{value} is not a share", "write a number, like 0.80")
    if value > HIGHEST_SHARE:
        left = max(0.0, (1 - value) * MEMORY_GIB)
        raise invalid(f"{{value}} leaves {left:.1f} GiB for the host", f"write at most {HIGHEST_SHARE:.2f}")
    return float(value)


BodySize = Annotated[str, size(1, 1024, "the size of a request", "is not a fit size for a request", "64M")]
MemoryShare = Annotated[float, Field(ge=0.1, le=HIGHEST_SHARE), BeforeValidator(_share)]
"""A share of the memory of a node."""


def _nodes(value: object) -> object:
    if value == "all" or (isinstance(value, list | tuple) and value and all(isinstance(one, str) for one in value)):
        return tuple(value) if isinstance(value, list) else value
    raise invalid("is not a list of nodes", "write their names in rank order, like [spark1, spark2], or all")


def frozen_argument(value: object) -> object:
    """Return a value of `args` that does not change: lists as tuples, mappings as FrozenDict."""
    if value is None:
        raise invalid("is empty", "give it a value, true for a flag, or remove the key")
    if isinstance(value, Mapping):
        return FrozenDict({str(key): _inner(inner) for key, inner in value.items()})
    return tuple(map(_inner, value)) if isinstance(value, list | tuple) else value


def _inner(value: object) -> object:
    return None if value is None else frozen_argument(value)


def plain_argument(value: object) -> Any:
    """Return a value of `args` as JSON has it: lists and dicts."""
    if isinstance(value, Mapping):
        return {key: plain_argument(inner) for key, inner in value.items()}
    return [plain_argument(inner) for inner in value] if isinstance(value, tuple) else value


ArgumentValue = Annotated[Any, BeforeValidator(frozen_argument), WithJsonSchema({})]


def _text(value: object) -> object:
    if isinstance(value, bool | int | float):
        raise invalid("{value} is not a text to YAML", f'write it in quotes: "{str(value).lower()}"')
    if not isinstance(value, str) or not value.isprintable() or len(value) > 4096:
        raise invalid("{value} is not a text of one line", "write one line of at most 4096 characters")
    return value


LineOfText = Annotated[str, BeforeValidator(_text)]


def _nonblank(value: str) -> str:
    if not value.strip():
        raise invalid("is blank", "write a text")
    return value


Phrase = Annotated[LineOfText, AfterValidator(_nonblank)]


class ServingParallel(Section):
    """How the model is split: `tensor` slices of each layer, times `pipeline` stages of layers, one rank a node.

    `expert`: the experts of a layer are spread over the ranks instead of cut into slices.
    """

    tensor: Annotated[StrictInt, Field(ge=1, le=8)] = 1
    pipeline: Annotated[StrictInt, Field(ge=1, le=8)] = 1
    expert: StrictBool = False


class ServingApi(Section):
    """Where the first node of a unit answers: `local` on loopback, `management` or `fabric` on its address there.

    The node itself closes it to all but the nodes of the unit, that of the gateway, and that of the watch. `direct`:
    other machines that reach the engine past the gateway, on each path and each port that the unit has on this node.
    `key`: the bearer token that clients send.
    """

    port: TcpPort = 8000
    listen: Literal["local", "management", "fabric"] = "local"
    key: Annotated[SecretRef | None, NotEmpty] = Field(default=None, examples=["{file: qwen.key}"])
    direct: Annotated[Annotated[tuple[Management, ...], NonEmptyList] | None, NotEmpty] = Field(
        default=None, examples=["[192.168.1.0/24]"]
    )


class ServingRestart(Section):
    """How often a unit is started again after a failure, and within what time; after that it is held."""

    times: Annotated[StrictInt, Field(ge=0, le=10)] = 1
    within: Duration = "6h"


class ServingAnswer(Section):
    """A prompt, and the word with which the completion of it begins."""

    ask: Phrase = Field(examples=["2+2="])
    say: Phrase = Field(examples=["4"])


class ServingProbe(Section):
    """How it is found out that a unit generates: a completion `every` so often, unless tokens flow anyway.

    `limit`: time for one completion. `misses`: this many in a row are a failure. `ready`: time for a start, up to the
    first completion. `answer`: false where none is known, then any clean text that is not empty proves it.
    After each start, `chat`: also a chat completion must come; `tool`: also a tool call.
    """

    every: Duration = "60s"
    limit: Duration = "60s"
    misses: Annotated[StrictInt, Field(ge=1, le=10)] = 2
    ready: Duration = "90m"
    answer: Annotated[
        Annotated[ServingAnswer, Tag("known")] | Annotated[Literal[False], Tag("unknown")],
        Discriminator(lambda value: "unknown" if value is False else "known"),
    ] = Field(default=ServingAnswer(ask="2+2=", say="4"), examples=['{ask: "2+2=", say: "4"}'])
    chat: StrictBool = True
    tool: StrictBool = False


class ServingFit(Section):
    """`override`: the reason for which a unit that does not fit by the computed sum is accepted."""

    override: Phrase = Field(examples=["runs at 0.89, seen 2026-10-01"])


class ServedUnit(Section):
    """One model, served by one engine on one or more nodes: one rank on each, the first of them is the head.

    `slot`: units of one slot are alternatives: one of them is up at a time, and `sparkrack serve use UNIT` changes it.
    """

    name: UnitName
    engine: Literal["vllm", "vllm-ray", "sglang"] = Field(examples=["vllm"])
    version: StrictStr = Field(examples=["0.19.1"])
    image: StrictStr = Field(examples=["nvcr.io/nvidia/vllm:26.04-py3"])
    model: Name = Field(examples=["qwen3-235b-gptq"])
    nodes: Annotated[tuple[HostName, ...] | Literal["all"], BeforeValidator(_nodes)] = Field(
        examples=["[spark1, spark2]"]
    )
    parallel: ServingParallel = ServingParallel()
    context: Annotated[StrictInt, Field(ge=1, le=2**24)] = Field(examples=[65536])
    sequences: Annotated[StrictInt, Field(ge=1, le=4096)] = 8
    memory: Annotated[MemoryShare | None, NotEmpty] = Field(default=None, examples=["0.80"])
    kv: Annotated[MemorySize | None, NotEmpty] = Field(default=None, examples=["20G"])
    args: Frozen[str, ArgumentValue] = Field(default=FrozenDict({}), examples=["{kv-cache-dtype: fp8}"])
    env: Frozen[Environment, LineOfText] = Field(default=FrozenDict({}), examples=["{NCCL_NET_PLUGIN: none}"])
    api: ServingApi = ServingApi()
    state: Literal["up", "down"] = "up"
    slot: Annotated[Name | None, NotEmpty] = Field(default=None, examples=["main"])
    boot: Literal["hold", "start"] = "hold"
    restart: ServingRestart = ServingRestart()
    probe: ServingProbe = ServingProbe()
    cache: Annotated[DiskSize | None, NotEmpty] = Field(default=None, examples=["20G"])
    shm: SharedMemorySize = "16G"
    overhead: Annotated[OverheadSize | None, NotEmpty] = Field(default=None, examples=["8G"])
    fit: Annotated[ServingFit | None, NotEmpty] = Field(
        default=None, examples=['{override: "runs at 0.89, seen 2026-10-01"}']
    )
    drain: Duration = "30s"

    @model_validator(mode="after")
    def _one_amount_of_memory(self) -> ServedUnit:
        if (self.memory is None) == (self.kv is None):
            raise invalid(
                "has neither memory nor kv" if self.kv is None else "has both memory and kv",
                "write one: memory for the share of a node that the engine takes, kv for the size of its cache",
            )
        return self

    @property
    def kind(self) -> Engine:
        """The engine by whose options the unit is judged."""
        return "sglang" if self.engine == "sglang" else "vllm"

    def ranks(self, nodes: Sequence[str] | Mapping[str, object]) -> tuple[str, ...]:
        """Return the names of its nodes in rank order; `nodes`: all nodes of the rack."""
        return tuple(nodes) if self.nodes == "all" else tuple(self.nodes)


class ServingCertificate(Section):
    """The certificate of the gateway, with those of its issuers, and its private key; both in PEM."""

    chain: FilePath = Field(examples=["gateway.pem"])
    key: SecretRef = Field(examples=["{file: gateway.key}"])


def _some_keys(value: Mapping[str, SecretRef]) -> Mapping[str, SecretRef]:
    if not value:
        raise invalid(
            "has no key, so no client could use a unit", "write one by its name, like alice: {file: alice.key}"
        )
    return value


class ServingGateway(Section):
    """One address for clients: nginx on `node`, which hands /UNIT/v1 to the head of each unit over TLS.

    `keys`: bearer tokens of clients, by a name that stands in the log. `body`: the largest request. Without
    `certificate` a self-signed one is made.
    """

    node: HostName = Field(examples=["spark1"])
    port: TcpPort = 443
    listen: Literal["local", "management", "fabric"] = "management"
    certificate: Annotated[ServingCertificate | None, NotEmpty] = Field(
        default=None, examples=["{chain: gateway.pem, key: {file: gateway.key}}"]
    )
    keys: Annotated[Frozen[Name, SecretRef], AfterValidator(_some_keys)] = Field(
        examples=["{alice: {file: alice.key}}"]
    )
    body: BodySize = "64M"


class ServingOptions(Section):
    """The units of a rack, the gateway by which clients reach them, and the port of the coordinators, by which the
    ranks of a unit stay together.

    `rdma_proof`: with `measured` a unit of several nodes starts only where RDMA was measured since the last boot and
    the last change of carrier, and is ready only when its ranks use it; with `none` it may talk over sockets, which is
    a remark.
    """

    port: TcpPort = 29400
    gateway: Annotated[ServingGateway | None, NotEmpty] = Field(
        default=None, examples=["{node: spark1, keys: {alice: {file: alice.key}}}"]
    )
    rdma_proof: Literal["measured", "none"] = "measured"
    units: Frozen[str, ServedUnit] = Field(
        examples=["{qwen: {engine: vllm, version: 0.19.1, image: ..., model: ..., nodes: all, context: 65536}}"]
    )


def serving_of(rack: Rack) -> ServingOptions | None:
    """Return the section `serving` of a rack, None when its file has none."""
    return rack.declared(ServingOptions)


def gateway_of(rack: Rack) -> ServingGateway | None:
    """Return the gateway of a rack, None when its file has none."""
    serving = serving_of(rack)
    return serving.gateway if serving else None


def served_units(rack: Rack) -> Mapping[str, ServedUnit]:
    """Return the units of a rack by name, in the order of its file; none without a section `serving`."""
    serving = serving_of(rack)
    return serving.units if serving else {}


def select_unit(rack: Rack, name: str) -> ServedUnit:
    """Return a unit of a rack by its name. Raises CommandError, which names the nearest one."""
    units = served_units(rack)
    if name in units:
        return units[name]
    near = get_close_matches(name.lower(), units, 1)
    known = f"its units are {', '.join(units)}" if units else "it has no serving section"
    hint = f"; did you mean {near[0]}?" if near else ""
    raise CommandError(f"{rack.source} has no unit {printable_line(name)}; {known}{hint}")


def rdma_is_measured(rack: Rack) -> bool:
    """Return whether units of several nodes start only where RDMA was measured."""
    serving = serving_of(rack)
    return serving is not None and serving.rdma_proof == "measured"


def served_units_of_part(partial: PartialRack) -> Mapping[str, ServedUnit]:
    """Return the units of a rack file with faults by name; none where its section `serving` cannot be read."""
    serving = partial.options.get("serving")
    return serving.units if isinstance(serving, ServingOptions) else {}
