"""The section `serving` of a rack file: inference engines that run as units of one or more nodes."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
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
    ValidationInfo,
    ValidatorFunctionWrapHandler,
    WrapValidator,
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
    mebibytes,
    size,
)
from core.model.secrets import SecretRef
from core.util.command_error import CommandError
from serving.engines.memory_fit import HIGHEST_SHARE, MEMORY_GIB
from serving.engines.option_table import Engine
from serving.engines.registry import ENGINES

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


NO_CACHE = "none"
USUAL_CACHE = "10G"
"""Room on the disk that a start needs for what an engine in Python compiles, where rack.yaml says nothing else."""


def _no_cache_or_size(value: object, check: ValidatorFunctionWrapHandler) -> object:
    return value if value == NO_CACHE else check(value)


CacheSize = Annotated[DiskSize, WrapValidator(_no_cache_or_size)]
"""An amount of disk, or `none`."""

LOWEST_SHARE = 0.02
"""2.4 GiB. The smallest units that are published have 0.05."""


def _check_memory_share(value: object) -> object:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise invalid("{value} is not a share", "write a number, like 0.80")
    if value < LOWEST_SHARE:
        given = max(0.0, value * MEMORY_GIB)
        raise invalid(
            f"{{value}} is {given:.1f} GiB, in which no engine is known to run", f"write at least {LOWEST_SHARE}"
        )
    if value > HIGHEST_SHARE:
        left = max(0.0, (1 - value) * MEMORY_GIB)
        raise invalid(f"{{value}} leaves {left:.1f} GiB for the host", f"write at most {HIGHEST_SHARE:.2f}")
    return float(value)


BodySize = Annotated[str, size(1, 1024, "the size of a request", "is not a fit size for a request", "64M")]
MemoryShare = Annotated[float, Field(ge=LOWEST_SHARE, le=HIGHEST_SHARE), BeforeValidator(_check_memory_share)]
"""A share of the memory of a node."""


def _check_nodes(value: object) -> object:
    if value == "all" or (isinstance(value, list | tuple) and value and all(isinstance(one, str) for one in value)):
        return tuple(value) if isinstance(value, list) else value
    raise invalid("is not a list of nodes", "write their names in rank order, like [spark1, spark2], or all")


def frozen_argument(value: object) -> object:
    """Return a value of `args` that does not change: lists as tuples, mappings as FrozenDict."""
    if value is None:
        raise invalid("is empty", "give it a value, true for a flag, or remove the key")
    if isinstance(value, Mapping):
        return FrozenDict({str(key): _freeze_argument(inner) for key, inner in value.items()})
    return tuple(map(_freeze_argument, value)) if isinstance(value, list | tuple) else value


def _freeze_argument(value: object) -> object:
    return None if value is None else frozen_argument(value)


def plain_argument(value: object) -> Any:
    """Return a value of `args` as JSON has it: lists and dicts."""
    if isinstance(value, Mapping):
        return {key: plain_argument(inner) for key, inner in value.items()}
    return [plain_argument(inner) for inner in value] if isinstance(value, tuple) else value


ArgumentValue = Annotated[Any, BeforeValidator(frozen_argument), WithJsonSchema({})]


def _check_one_line(value: object) -> object:
    if isinstance(value, bool | int | float):
        raise invalid("{value} is not a text to YAML", f'write it in quotes: "{str(value).lower()}"')
    if not isinstance(value, str) or not value.isprintable() or len(value) > 4096:
        raise invalid("{value} is not a text of one line", "write one line of at most 4096 characters")
    return value


LineOfText = Annotated[str, BeforeValidator(_check_one_line)]


def _check_nonblank(value: str) -> str:
    if not value.strip():
        raise invalid("is blank", "write a text")
    return value


Phrase = Annotated[LineOfText, AfterValidator(_check_nonblank)]
ContainerPath = Annotated[
    StrictStr,
    matching(
        r"(/(?!\.{1,2}(/|$))[A-Za-z0-9._+@=~-]+)+",
        "is not the path of a file or a folder in a container",
        "write it from / on, of letters, digits and . _ + @ = ~ -, like /workspace/fix",
    ),
]


AcceptedName = Annotated[
    StrictStr,
    matching(
        r"[A-Za-z_][A-Za-z0-9_.-]{0,127}",
        "is not the name of an option, a variable or a key",
        "write it as in args or env, or parallel.tensor",
    ),
]


def _resolve_beside_rack_file(value: object, info: ValidationInfo) -> object:
    """Return the full path of what lies in the folder of the rack file. Links in the path of that folder count not."""
    if not isinstance(value, str | Path):
        return value  # the type's own check reports the problem
    text = str(value)
    if not text.strip() or not text.isprintable():
        raise invalid("{value} is not the name of a file", "write a path, like patches/glm")
    folder = Path((info.context or {}).get("folder", Path.cwd())).resolve()
    found = Path(os.path.normpath(folder / text))
    if folder not in found.parents:
        what = "is the folder of the rack file" if found == folder else "is outside the folder of the rack file"
        raise invalid(f"{{value}} {what}", "write the path of a file or a folder in it, like patches/glm")
    return found


BesidePath = Annotated[Path, BeforeValidator(_resolve_beside_rack_file)]
"""A file or a folder in the folder of the rack file, which goes into version control with it."""


def _has_words(value: Sequence[str]) -> Sequence[str]:
    if not value:
        raise invalid("is an empty list", "write a program and its arguments, like [bash, /workspace/fix/run.sh]")
    return value


REFUSED_ENGINES: Mapping[str, tuple[str, str]] = {
    "tensorrt-llm": (
        "TensorRT-LLM starts its ranks by mpirun over a remote shell, and a lost one leaves a head that answers 503",
        "write vllm or sglang, which serve the same models",
    ),
    "ollama": (
        "Ollama loads and unloads models by request and locks no weights, so no start of it can be proven",
        "write llama.cpp, which serves the same GGUF files",
    ),
    "llama.cpp-rpc": (
        "llama.cpp over RPC has no key and no time limit: a worker that is frozen hangs the head without an end",
        "write llama.cpp on one node, or vllm on several",
    ),
}
"""Engines that are asked for and not served: why, and what to write instead."""
_OTHER_NAMES = {
    **dict.fromkeys(("trt-llm", "trtllm", "tensorrt_llm"), "tensorrt-llm"),
    **dict.fromkeys(("llama-cpp-rpc", "llamacpp-rpc"), "llama.cpp-rpc"),
}


def _refused_engine(value: object) -> object:
    name = _OTHER_NAMES.get(str(value).lower(), str(value).lower())
    if known := REFUSED_ENGINES.get(name):
        raise invalid(*known)
    return value


if TYPE_CHECKING:
    EngineName = str
else:
    EngineName = Annotated[Literal[tuple(ENGINES)], BeforeValidator(_refused_engine)]


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
    """How it is found out that a unit answers: a request of its `kind` `every` so often, unless tokens flow anyway.

    `limit`: time for one request. `misses`: this many in a row are a failure. `ready`: time for a start, up to the
    first right answer. `answer`: of a completion; false where none is known, then any clean text that is not empty
    proves it. `tool`: after each start also a tool call must come.
    """

    every: Duration = "60s"
    limit: Duration = "60s"
    misses: Annotated[StrictInt, Field(ge=1, le=10)] = 2
    ready: Duration = "90m"
    answer: Annotated[
        Annotated[ServingAnswer, Tag("known")] | Annotated[Literal[False], Tag("unknown")],
        Discriminator(lambda value: "unknown" if value is False else "known"),
    ] = Field(default=ServingAnswer(ask="2+2=", say="4"), examples=['{ask: "2+2=", say: "4"}'])
    tool: StrictBool = False


class ServingFit(Section):
    """`override`: the reason for which a unit that does not fit by the computed sum is accepted."""

    override: Phrase = Field(examples=["runs at 0.89, seen 2026-10-01"])


def _check_metric_name(value: str) -> str:
    if not re.fullmatch(r"[a-zA-Z_:][a-zA-Z0-9_:]{0,199}", value):
        raise invalid("{value} is not the name of a metric", "write it as /metrics has it, without labels")
    return value


def _long_option(value: str) -> str:
    if not re.fullmatch(r"--?[A-Za-z0-9][A-Za-z0-9._-]{0,63}", value):
        raise invalid("{value} is not the name of an option", "write it with its dashes, like --api-key-file")
    return value


def _check_gguf_path(value: str) -> str:
    parts = value.split("/")
    if not re.fullmatch(r"[A-Za-z0-9._/+-]{1,512}\.gguf", value) or not all(part.strip(".") for part in parts):
        raise invalid("{value} is not the path of a GGUF file in the model", "write it without a / at its beginning")
    return value


GgufPath = Annotated[StrictStr, AfterValidator(_check_gguf_path)]
MetricName = Annotated[StrictStr, AfterValidator(_check_metric_name)]


def _two_gauges(value: tuple[str, ...]) -> tuple[str, ...]:
    if len(value) not in (0, 2):
        raise invalid("is not two gauges", "write that of the requests that run, and that of those that wait")
    return value


class ServingKeyForm(Section):
    """How a custom engine gets the key of its API: `option` names a file with the key, `variable` has the key."""

    option: Annotated[Annotated[StrictStr, AfterValidator(_long_option)] | None, NotEmpty] = Field(
        default=None, examples=["--api-key-file"]
    )
    variable: Annotated[Environment | None, NotEmpty] = Field(default=None, examples=["ENGINE_API_KEY"])

    @model_validator(mode="after")
    def _one_of_both(self) -> ServingKeyForm:
        if (self.option is None) == (self.variable is None):
            raise invalid("does not say how the engine gets its key", "write option or variable, one of them")
        return self


class ServingCustom(Section):
    """An engine that no table knows: `command` of each rank, or of the head alone where the others have
    `worker_command`. In its words {model} {name} {rank} {nodes} {head} {meeting} {host} {port} {context} {sequences}
    stand for values of the unit; {meeting} is the port of the head by which ranks find each other.

    `key`: how it gets the key of its API. `progress`: counters of its /metrics that rise while it computes. `requests`:
    two gauges, of requests that run and that wait. `weights`: what each node loads.
    """

    command: Annotated[tuple[Phrase, ...], NonEmptyList] = Field(
        examples=["[serve, '{model}', --host, '{host}', --port, '{port}']"]
    )
    worker_command: Annotated[Annotated[tuple[Phrase, ...], NonEmptyList] | None, NotEmpty] = Field(
        default=None, examples=["[work, --head, '{head}']"]
    )
    key: Annotated[ServingKeyForm | None, NotEmpty] = Field(default=None, examples=["{option: --api-key-file}"])
    progress: tuple[MetricName, ...] = Field(default=(), examples=["[engine:steps_total]"])
    requests: Annotated[tuple[MetricName, ...], AfterValidator(_two_gauges)] = Field(
        default=(), examples=["[engine:running, engine:waiting]"]
    )
    weights: Annotated[MemorySize | None, NotEmpty] = Field(default=None, examples=["80G"])

    @property
    def weights_bytes(self) -> int | None:
        """The bytes that each node loads; None where they are not declared."""
        return mebibytes(self.weights) * 2**20 if self.weights else None


class ServedUnit(Section):
    """One model, served by one engine on one or more nodes: one rank on each, the first of them is the head.

    `kind`: what clients ask for, and so what proves it: `chat` a completion and a chat completion, `completion` a
    completion alone, `embedding` three embeddings of which the near pair is nearer, `score` a ranking with the right
    document first.
    `also`: further models, such as a draft, at /models/NAME in the container of each rank. `files`: read-only in the
    container, at the path on the left, from the file or folder in the folder of the rack file on the right. `before`:
    a program that runs in the container of each rank before the engine, and must end with 0. `accept`: the reason for
    which an option, a variable or parallel.tensor is accepted though no table or mount has it.
    `slot`: units of one slot are alternatives: one of them is up at a time, and `sparkrack serve use UNIT` changes it.
    """

    name: UnitName
    engine: EngineName = Field(examples=["vllm"])
    version: StrictStr = Field(examples=["0.19.1"])
    image: StrictStr = Field(examples=["nvcr.io/nvidia/vllm:26.04-py3"])
    kind: Literal["chat", "completion", "embedding", "score"] = "chat"
    model: Name = Field(examples=["qwen3-235b-gptq"])
    also: tuple[Name, ...] = Field(default=(), examples=["[qwen3-draft]"])
    files: Frozen[ContainerPath, BesidePath] = Field(
        default=FrozenDict({}), examples=["{/workspace/fix: patches/qwen}"]
    )
    before: Annotated[Annotated[tuple[Phrase, ...], AfterValidator(_has_words)] | None, NotEmpty] = Field(
        default=None, examples=["[bash, /workspace/fix/run.sh]"]
    )
    accept: Frozen[AcceptedName, Phrase] = Field(
        default=FrozenDict({}), examples=['{gdn-decode-kernel: "the fork of the image has it"}']
    )
    nodes: Annotated[tuple[HostName, ...] | Literal["all"], BeforeValidator(_check_nodes)] = Field(
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
    cache: Annotated[CacheSize | None, NotEmpty] = Field(default=None, examples=["20G"])
    shm: SharedMemorySize = "16G"
    overhead: Annotated[OverheadSize | None, NotEmpty] = Field(default=None, examples=["8G"])
    fit: Annotated[ServingFit | None, NotEmpty] = Field(
        default=None, examples=['{override: "runs at 0.89, seen 2026-10-01"}']
    )
    drain: Duration = "30s"
    gguf: Annotated[GgufPath | None, NotEmpty] = Field(default=None, examples=["Q4_K_M/model-00001-of-00003.gguf"])
    custom: Annotated[ServingCustom | None, NotEmpty] = Field(
        default=None, examples=["{command: [serve, '{model}', --host, '{host}', --port, '{port}'], weights: 80G}"]
    )

    @model_validator(mode="after")
    def _custom_engine(self) -> ServedUnit:
        if self.engine == "custom" and self.custom is None:
            right = "write custom: {command: [PROGRAM, --host, '{host}', --port, '{port}']}"
            raise invalid("has a custom engine, and no command for it", right)
        if self.gguf and self.engine != "llama.cpp":
            raise invalid("has gguf, which llama.cpp alone reads", "write engine: llama.cpp, or remove gguf")
        if self.custom and self.engine != "custom":
            raise invalid("has custom, and an engine that is known", "write engine: custom, or remove custom")
        return self

    @model_validator(mode="after")
    def _one_amount_of_memory(self) -> ServedUnit:
        if self.custom and self.custom.weights and self.kv is None:
            return self  # its sizes are declared, of which the cache may be a part
        if (self.memory is None) == (self.kv is None):
            raise invalid(
                "has neither memory nor kv" if self.kv is None else "has both memory and kv",
                "write one: memory for the share of a node that the engine takes, kv for the size of its cache",
            )
        return self

    @property
    def family(self) -> Engine:
        """The engine by whose options the unit is judged."""
        return ENGINES[self.engine].family

    @property
    def kept_cache(self) -> str | None:
        """The disk for what is compiled, which is kept between starts; None where nothing is kept."""
        if self.cache is None:
            return USUAL_CACHE if ENGINES[self.engine].package else None
        return None if self.cache == NO_CACHE else self.cache

    @property
    def has_open_metrics(self) -> bool:
        """Whether the engine has metrics that can be read without the key of its API."""
        engine = ENGINES[self.engine]
        found = engine.progress(self)
        return bool(found.counters or found.requests) and not (engine.guards_metrics and self.api.key)

    @property
    def served_names(self) -> tuple[str, ...]:
        """The names by which clients may ask for the model."""
        given = self.args.get("served-model-name", self.model) if ENGINES[self.engine].package else self.model
        return tuple(map(str, given)) if isinstance(given, tuple) and given else (str(given),)

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
    """One address for clients: nginx on `node` with TLS, which hands /v1 to the head of the unit that serves the model
    of a request, and /UNIT/v1 to the head of that unit.

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
