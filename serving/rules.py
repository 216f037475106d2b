"""Rules for the units of a rack file: what would fail, or harm a node, only after minutes of loading weights."""

from __future__ import annotations

import math
import pathlib
import re
from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches

from core.advisories.advisories import known_against
from core.model.cabling import Cabling, Leg
from core.model.errors import Path, RuleViolation, counted, printable_line, truncate
from core.model.fields import PLAIN_API_PORT, TLS_API_PORT, mebibytes
from core.model.image_lock import Pin
from core.model.image_names import image_name
from core.model.model_lock import ModelRecord
from core.model.partial_rack import PartialRack
from core.model.role import reserved_gib
from core.model.schema import Rack
from core.model.written_secrets import written_secret
from serving import declared_fit, nccl_notes, topology_notes
from serving.accepted import accepted_options, engine_arguments, idle_entries
from serving.calibration import Calibration
from serving.container_paths import mounted_models, unservable
from serving.engines.command_line import EngineArgumentsError
from serving.engines.engine import RAY_PORT
from serving.engines.json_option import structured_value
from serving.engines.memory_fit import GIB, HIGHEST_SHARE, MEMORY_GIB, Fit, default_parallel, unknown_reason
from serving.engines.model_shape import ModelConfigError
from serving.engines.option_table import TITLES, table, version_key
from serving.engines.registry import ENGINES
from serving.fit import (
    PADDED,
    KnownUnit,
    UnitFit,
    counted_calibration,
    fitting_counts,
    found_fit,
    host_memory_of,
    known_unit,
    model_type,
    needed_share,
    padded,
    padding,
    parallel_of,
    record_shape,
    unit_fit,
    weight_size,
)
from serving.options import (
    LOWEST_SHARE,
    ServedUnit,
    ServingOptions,
    gateway_of,
    plain_argument,
    served_units,
)
from serving.shared_nodes import check_shared_nodes, shared_node_notes
from serving.unit_files import faults
from serving.unit_kinds import unfit_model, unfit_probe, unprovable
from serving.unit_ports import MASTER_PORT

LOCAL_PORTS = range(32768, 61000)
"""Ports that the kernel gives to outgoing connections (net.ipv4.ip_local_port_range): one may be in use at a start."""
BANDWIDTH_PORTS = range(18600, 18700)
"""The ports of `sparkrack verify --bandwidth`."""
RENDEZVOUS_SINCE = "0.11.2"
"""The first release of vLLM whose ranks find each other without Ray (--nnodes)."""
VLLM_RAY = "vllm-ray"
"""The feature of advisories against images without Ray."""

HOST_CACHES = ("hicache-ratio", "enable-hierarchical-cache", "enable-hicache", "enable-weights-cpu-backup")
"""Options of SGLang for what is as large as something on the GPU, the one that gives its size first."""
MEASURE = "start it, and record what it takes with `sparkrack serve calibrate {unit}`"
_OWNED_ENVIRONMENT = {
    "VLLM_HOST_IP": "the address of each node",
    "SGLANG_HOST_IP": "the address of each node",
    "HOST_IP": "the address of each node",
    "MASTER_ADDR": "the address of the first node",
    "MASTER_PORT": "the port of the first node",
}
_RDMA_OFF = re.compile(r"[ \t\v\f\r]*[+-]?(?:[1-9]|0+[1-7]|0[xX]0*[1-9a-fA-F])")
"""A value that NCCL takes as true: strtoll with base 0 (src/misc/param.cc)."""
_OWN_INTERFACE = (
    "names the interface of each node, which the launcher does: another one, or none, ends or slows the ranks"
)
_OWNED_NCCL: Mapping[str, tuple[Callable[[str], object], str]] = {
    "NCCL_NET": (lambda value: value.strip().upper() != "IB", "takes RDMA away, so that the ranks talk over TCP"),
    "NCCL_IB_DISABLE": (_RDMA_OFF.match, "turns RDMA off, so that the ranks talk over TCP"),
    "NCCL_IB_HCA": (
        bool,
        "names the RDMA devices, which the launcher does by the cable of each node: others are slow, or do not start",
    ),
    "NCCL_IB_GID_INDEX": (bool, "pins the GID index: one that is wrong on one node breaks every connection"),
    "NCCL_SOCKET_IFNAME": (bool, _OWN_INTERFACE),
    "GLOO_SOCKET_IFNAME": (bool, _OWN_INTERFACE),
    "TP_SOCKET_IFNAME": (bool, _OWN_INTERFACE),
    "UCX_NET_DEVICES": (bool, "names the devices of UCX, which the launcher does by the cable of each node"),
    "NCCL_CONF_FILE": (bool, "has NCCL read a file that may take RDMA away, and is not one of the launcher's"),
    "NCCL_DEBUG": (
        lambda value: value.strip().upper() not in ("INFO", "TRACE"),
        "hides the line in which NCCL says what network it uses, which a start reads",
    ),
    "NCCL_DEBUG_SUBSYS": (
        lambda value: not {"ALL"} & _split_words(value) and not {"INIT", "NET"} <= _split_words(value),
        "hides the line in which NCCL says what network it uses, which a start reads",
    ),
    "NCCL_DEBUG_FILE": (bool, "takes the line in which NCCL says what network it uses out of the journal"),
}
"""Variables that the launcher sets or leaves unset on purpose: which values harm, and what they would do."""


def _split_words(value: str) -> set[str]:
    return {word.strip().upper() for word in value.split(",")}


def check(partial: PartialRack, serving: ServingOptions, cabling: Cabling) -> Iterator[RuleViolation]:
    """Yield every broken rule of the units."""
    fits = {}
    for unit in serving.units.values():
        fits[unit.name] = _found_fit(partial, unit)
    yield from check_shared_nodes(partial, serving, fits)
    yield from _coordinator_port(partial, serving)
    for unit in serving.units.values():
        for problem in _check_unit(partial, serving, unit, cabling, fits[unit.name]):
            yield RuleViolation(("serving", "units", unit.name, *problem.path), problem.what, problem.right)


def _check_unit(
    partial: PartialRack,
    serving: ServingOptions,
    unit: ServedUnit,
    cabling: Cabling,
    found: UnitFit | None,
) -> Iterator[RuleViolation]:
    yield from _check_names(partial, unit)
    yield from _check_split(partial, unit)
    options = list(_check_options(unit))
    yield from options
    yield from faults(unit, _secret_files(serving))
    yield from idle_entries(unit, partial.records.get(unit.model))
    refused = [*_check_environment(unit), *unprovable(unit, len(unit.ranks(partial.nodes)))]
    yield from refused
    paths = {problem.path for problem in (*options, *refused)}
    present = {name: partial.records[name] for name in mounted_models(unit) if name in partial.records}
    yield from (problem for problem in unservable(unit, partial.models, present) if problem.path not in paths)
    yield from unfit_probe(unit)
    yield from _check_api_port(partial, serving, unit)
    yield from _check_direct_access(unit)
    yield from _secret_arguments(unit)
    yield from _check_tool_calls(unit)
    yield from ENGINES[unit.engine].rules(unit, len(unit.ranks(partial.nodes)))
    if unit.kv and unit.family == "sglang":
        yield RuleViolation(("kv",), "SGLang takes no size of its cache", "write memory, the share of a node")
    yield from _check_reachability(partial, unit, cabling)
    record = partial.records.get(unit.model)
    yield from _host_memory(partial, unit, found)
    if record:
        yield from _next_token(unit, record)
        yield from unfit_model(unit, record)
    if ENGINES[unit.engine].weights:
        yield from declared_fit.rules(unit, present.get(unit.model), found)
    elif record and found:
        yield from _check_fit(partial, unit, record, found)


def _secret_files(serving: ServingOptions) -> set[pathlib.Path]:
    """Return the files in which secrets of units and of the gateway are kept."""
    found = [unit.api.key for unit in serving.units.values()]
    if serving.gateway:
        found += serving.gateway.keys.values()
        found += [serving.gateway.certificate.key] if serving.gateway.certificate else []
    return {ref.file.resolve() for ref in found if ref and ref.file}


def _suggest_near_word(word: str, known: Mapping[str, object] | tuple[str, ...], otherwise: str) -> str:
    near = get_close_matches(word, list(known), 1)
    return f"did you mean {near[0]}?" if near else otherwise


def _check_names(partial: PartialRack, unit: ServedUnit) -> Iterator[RuleViolation]:
    if partial.sound and unit.image not in partial.images:
        right = _suggest_near_word(unit.image, partial.images, "add it there, so that every node has it")
        yield RuleViolation(("image",), f"{truncate(unit.image)} is not one of images", right)
    if partial.sound and unit.model not in partial.models:
        right = _suggest_near_word(unit.model, partial.models, "add it there, so that every node has it")
        yield RuleViolation(("model",), f"{unit.model} is not one of models", right)
    for place, name in enumerate(unit.also):
        if name == unit.model or name in unit.also[:place]:
            what = f"{name} is the model of the unit" if name == unit.model else f"{name} is listed twice"
            yield RuleViolation(("also", place), what, "list every further model once")
        elif partial.sound and name not in partial.models:
            right = _suggest_near_word(name, partial.models, "add it there, so that every node has it")
            yield RuleViolation(("also", place), f"{name} is not one of models", right)
    if unit.nodes == "all":
        return
    for place, name in enumerate(unit.nodes):
        if name in unit.nodes[:place]:
            yield RuleViolation(("nodes", place), f"{name} is listed twice", "list every node once")
        elif partial.complete and name not in partial.nodes:
            right = _suggest_near_word(name, partial.nodes, "write the name of a node in this file")
            yield RuleViolation(("nodes", place), f"there is no node called {name}", right)


def _check_split(partial: PartialRack, unit: ServedUnit) -> Iterator[RuleViolation]:
    if unit.nodes == "all" and not partial.complete:
        return
    count, split = len(unit.ranks(partial.nodes)), parallel_of(unit)
    if split.nodes != count:
        usual = default_parallel(count)
        yield RuleViolation(
            ("parallel",),
            f"tensor {split.tensor} x pipeline {split.pipeline} is {counted(split.nodes, 'rank')} "
            f"for {counted(count, 'node')}",
            f"write a product of {count}, like {{tensor: {usual.tensor}, pipeline: {usual.pipeline}}}",
        )

    if split.expert and not ENGINES[unit.engine].package:
        what = f"{TITLES[unit.family]} gets no option for it"
        yield RuleViolation(("parallel", "expert"), what, "remove it")


def _check_options(unit: ServedUnit) -> Iterator[RuleViolation]:
    args = {key: plain_argument(value) for key, value in unit.args.items()}
    try:
        engine_arguments(unit)
    except EngineArgumentsError as refused:
        for problem in refused.problems:
            key = problem.option.removeprefix("--")
            path: Path = ("args", key) if key in args else ("args",) if key else ("version",)
            end = ". " if not key and ". " in problem.message else "; "
            what, mark, right = problem.message.rpartition(end)
            right = right[:1].lower() + right[1:] if mark else "write another value"
            if what.startswith(f"--{key} is not an option of ") and key not in unit.accept and _is_new(unit, key):
                right += f"{'' if right.endswith('?') else ','} or give the reason why the image has it at accept.{key}"
            yield RuleViolation(path, what if mark else problem.message, right)
        if any(not problem.option for problem in refused.problems):
            return
    if unit.engine == "vllm" and parallel_of(unit).nodes > 1:
        try:
            old = version_key(unit.version) < version_key(RENDEZVOUS_SINCE)
        except ValueError:
            return  # reported above
        if old:
            yield RuleViolation(
                ("engine",),
                f"vLLM {unit.version} joins nodes with Ray only; --nnodes is known since {RENDEZVOUS_SINCE}",
                f"write vllm-ray, or a version from {RENDEZVOUS_SINCE}",
            )


def _is_new(unit: ServedUnit, key: str) -> bool:
    """Return whether no release of an engine has an option."""
    return f"--{key}" not in table(unit.family).options


def _check_tool_calls(unit: ServedUnit) -> Iterator[RuleViolation]:
    """Tool calls need a parser, and vLLM besides that they are turned on; it ends at its start with half of that."""
    parser = unit.args.get("tool-call-parser")
    automatic = unit.args.get("enable-auto-tool-choice") is True
    if unit.family == "vllm" and automatic and not parser:
        yield RuleViolation(
            ("args", "enable-auto-tool-choice"),
            "vLLM ends at its start without tool-call-parser",
            "add tool-call-parser, the one of this model, to args",
        )
    elif unit.family == "vllm" and parser and not automatic:
        yield RuleViolation(
            ("args", "tool-call-parser"),
            "vLLM gives tool calls as text without enable-auto-tool-choice",
            "add enable-auto-tool-choice: true to args",
        )
    if unit.probe.tool and unit.kind == "chat" and not parser and ENGINES[unit.engine].package:
        yield RuleViolation(
            ("probe", "tool"),
            f"{TITLES[unit.family]} gives tool calls as text without tool-call-parser",
            "add tool-call-parser, the one of this model, to args",
        )


def judged_by(unit: ServedUnit) -> str:
    """Return the release whose options a unit is judged by, where it is not the declared version; else nothing."""
    try:
        release = table(unit.family).judging(unit.version)
    except ValueError:
        return ""
    return release if release and release != unit.version else ""


def known_ports(partial: PartialRack) -> dict[int, str]:
    """Return the ports that other parts of a rack use, each with what uses it."""
    known = {
        MASTER_PORT: "the port by which the ranks of a unit find each other",
        RAY_PORT: "the port of Ray",
        PLAIN_API_PORT: "the port of the API of a switch",
        TLS_API_PORT: "the port of the API of a switch",
        **dict.fromkeys(BANDWIDTH_PORTS, "a port of `sparkrack verify --bandwidth`"),
    }
    if partial.access:
        known[partial.access.port] = "the port of sshd"
    return known


def port_problem(port: int, known: Mapping[int, str], example: int) -> tuple[str, str] | None:
    """Return what is wrong with a port, and what would be right."""
    right = f"write another, like {example}"
    if port in known:
        return f"{port} is already {known[port]}", right
    if port in LOCAL_PORTS:
        what = f"{port} is one of {LOCAL_PORTS[0]} to {LOCAL_PORTS[-1]}, which the kernel gives to outgoing connections"
        return what, right
    return None


def _coordinator_port(partial: PartialRack, serving: ServingOptions) -> Iterator[RuleViolation]:
    if found := port_problem(serving.port, known_ports(partial), 29400):
        yield RuleViolation(("serving", "port"), *found)


def _check_api_port(partial: PartialRack, serving: ServingOptions, unit: ServedUnit) -> Iterator[RuleViolation]:
    known = {**known_ports(partial), serving.port: "serving.port, that of the coordinators"}
    if found := port_problem(unit.api.port, known, 8000):
        yield RuleViolation(("api", "port"), *found)


def _check_direct_access(unit: ServedUnit) -> Iterator[RuleViolation]:
    """A control group knows addresses and no ports: who reaches the engine reaches whatever else the unit has open."""
    if unit.api.direct is None:
        return
    if unit.api.listen == "local":
        what = "names machines that reach the engine, and it listens on loopback"
        yield RuleViolation(("api", "direct"), what, "write listen: management, or remove it")
    elif unit.engine == "vllm-ray" and parallel_of(unit).nodes > 1:
        what = "opens the ports of Ray to these machines, and by them a Ray without tokens runs their code as root"
        yield RuleViolation(("api", "direct"), what, "remove it, and write serving.gateway for clients")


def _secret_arguments(unit: ServedUnit) -> Iterator[RuleViolation]:
    for name, value in unit.args.items():
        # `api-key` is refused as an option that the launcher sets.
        if name == "api-key" or (place := written_secret(name, plain_argument(value))) is None:
            continue
        right = "write a reference at models.NAME.token" if name == "hf-token" else "remove it"
        yield RuleViolation(("args", name), _secret_fault(place), right)


def _secret_fault(place: str) -> str:
    where = f" (at {printable_line(place)[:80]})" if place else ""
    return f"a secret does not belong in this file{where}"


def _check_environment(unit: ServedUnit) -> Iterator[RuleViolation]:
    for name, value in unit.env.items():
        path: Path = ("env", name)
        if (place := written_secret(name, value, variable=True)) is not None:
            key = name in ("VLLM_API_KEY", "SGLANG_API_KEY")
            right = "write a reference at api.key, like {file: qwen.key}" if key else "remove it"
            yield RuleViolation(path, _secret_fault(place), right)
        elif name in _OWNED_ENVIRONMENT:
            yield RuleViolation(path, f"is {_OWNED_ENVIRONMENT[name]}, which the launcher sets", "remove it")
        elif name in _OWNED_NCCL and _OWNED_NCCL[name][0](value):
            yield RuleViolation(path, _OWNED_NCCL[name][1], "remove it")


def _check_reachability(partial: PartialRack, unit: ServedUnit, cabling: Cabling) -> Iterator[RuleViolation]:
    """The fabric gives a node one address that all others reach only behind a switch, or with one other node."""
    if not partial.complete:
        return
    head = unit.ranks(partial.nodes)[0]
    if unit.api.listen == "fabric" and (what := fabric_address_fault(partial, head, cabling)):
        yield RuleViolation(("api", "listen"), what, "write management")
    if _has_switch(cabling) or len(partial.nodes) <= 2:
        return
    for place, name in enumerate(unit.ranks(partial.nodes)[1:], 1):
        before = unit.ranks(partial.nodes)[place - 1]
        if not {before, name} <= set(partial.nodes) or _are_cabled(cabling, before, name):
            continue
        yield RuleViolation(
            ("nodes",),
            f"no cable joins {before} and {name}, which follow each other in rank, and there is no switch",
            "list nodes in the order in which they are cabled",
        )
        return


def fabric_address_fault(partial: PartialRack, node: str, cabling: Cabling) -> str:
    """Return why a node has no address on the fabric that all others reach; empty where it has, or is unknown."""
    if node not in partial.nodes:
        return ""
    if not cabling.ports_of(node):
        return f"{node} has no cable, so it has no fabric address"
    if len(partial.nodes) > 2 and not _has_switch(cabling):
        return f"{node} has an address for each of its cables, and none that all nodes reach"
    return ""


def _has_switch(cabling: Cabling) -> bool:
    """Return whether a cable leads to a switch."""
    return any(isinstance(cable.b, Leg) for cable in cabling.cables)


def _are_cabled(cabling: Cabling, one: str, other: str) -> bool:
    return any({one, other} == {port.node for port in cable.ports} for cable in cabling.cables)


def _next_token(unit: ServedUnit, record: ModelRecord) -> Iterator[RuleViolation]:
    """SGLang's multi-token prediction keeps state that the radix cache of a Mamba model overwrites (reported)."""
    algorithm = str(unit.args.get("speculative-algorithm", "")).upper()
    if (
        unit.family == "sglang"
        and algorithm == "NEXTN"
        and model_type(record) == "nemotron_h"
        and unit.args.get("disable-radix-cache") is not True
    ):
        yield RuleViolation(
            ("args", "speculative-algorithm"),
            f"{algorithm} does not work with the radix cache of a Nemotron-H model",
            "add disable-radix-cache: true to args",
        )


def _found_fit(partial: PartialRack, unit: ServedUnit) -> UnitFit | None:
    """Return the memory of a unit; None without its model, which `notes` reports, and with a split that is refused."""
    if parallel_of(unit).nodes != len(unit.ranks(partial.nodes)) and not ENGINES[unit.engine].weights:
        return None
    image, measured = partial.image_ids.get(unit.image), partial.locked.get("serving", {}).get(unit.name)
    return found_fit(unit, known_unit(unit, partial.records, image, measured, reserved_gib(partial.options.get)))


def _host_memory(partial: PartialRack, unit: ServedUnit, found: UnitFit | None) -> Iterator[RuleViolation]:
    """The memory that an engine takes as the host's is the memory that its share is of."""
    if not unit.memory or unit.fit:
        return
    memory = MEMORY_GIB - reserved_gib(partial.options.get)
    beside = host_memory_of(unit, parallel_of(unit).nodes)
    host = found.fit.host if found else beside.gib
    taken = unit.memory * memory + host
    if not host or taken <= HIGHEST_SHARE * memory:
        return
    name = next((name for name in (*beside.parts, *HOST_CACHES) if name in unit.args), "")
    most = int((HIGHEST_SHARE - host / memory) * 100) / 100
    right = f"write at most {most:.2f} at memory, or remove it" if most >= LOWEST_SHARE else "remove it"
    yield RuleViolation(
        ("args", name) if name else ("memory",),
        f"takes {host:.1f} GiB of the host's memory on each node, which is that of the GPU: with {unit.memory:.2f} of "
        f"{memory:.2f} GiB the engine takes {taken:.1f}, and a node gives it at most {HIGHEST_SHARE * memory:.1f}",
        f"{right}; or give the reason why it fits at fit.override",
    )


def _check_fit(partial: PartialRack, unit: ServedUnit, record: ModelRecord, found: UnitFit) -> Iterator[RuleViolation]:
    shape, weights = record_shape(unit.model, record), weight_size(record)
    unknown = bool(found.fit.unknown)
    reserved, further = reserved_gib(partial.options.get), known_unit(unit, partial.records).further
    counts = [] if unknown else fitting_counts(unit, shape, weights, reserved=reserved, further=further)
    for blocker in found.fit.blockers:
        right = "write another split" + _fits_on(counts, unknown=unknown)
        if blocker in padded(found.fit.blockers)[0]:
            right += f"; or give the reason why the image takes it, as by padding, at accept.{PADDED}"
        yield RuleViolation(("parallel",), blocker, right)
    needed = found.fit.token_bytes * unit.context / GIB
    if unit.kv and mebibytes(unit.kv) / 1024 < needed:
        yield RuleViolation(
            ("kv",),
            f"{unit.kv} has no room for one sequence of {unit.context} tokens, which takes {needed:.1f} GiB",
            f"write at least {math.ceil(needed)}G, or a shorter context",
        )
    if found.fit.blockers or found.verdict != "no" or found.overfills or unit.fit:
        return
    path, what = _too_large(unit, found)
    if unit.memory and (share := needed_share(found)) <= HIGHEST_SHARE:
        right = f"write at least {share:.2f}, or a shorter context"
    else:
        right = "write a shorter context, or fewer sequences" + _fits_on(counts, unknown=unknown)
    yield RuleViolation((path,), what, right + "; or give the reason why it does at fit.override")


def _fits_on(counts: list[int], *, unknown: bool) -> str:
    if unknown:
        return ""
    if not counts:
        return "; it fits on no number of nodes up to 8"
    return f"; it fits on {', '.join(map(str, counts))} {'node' if counts == [1] else 'nodes'}"


def _too_large(unit: ServedUnit, found: UnitFit) -> tuple[str, str]:
    """Return the key to blame, and the sum in words."""
    one: Fit = found.fit
    more = "more than " if one.unknown else ""
    needs = f"{unit.model} needs {more}{one.total:.1f} GiB a node ({found.sum})"
    if unit.memory:
        kept = MEMORY_GIB - found.memory
        beside = f" (of {MEMORY_GIB}, blackbox.kdump reserves {kept:.2f})" if kept else ""
        return "memory", f"{needs}, and {unit.memory:.2f} of {found.memory:.2f} GiB{beside} is {found.allowed:.1f}"
    return "kv", f"{needs}, and a node gives an engine at most {found.allowed:.1f}"


def notes(
    rack: Rack,
    records: Mapping[str, ModelRecord],
    calibrations: Mapping[str, Calibration],
    pins: Mapping[str, Pin],
) -> Iterator[RuleViolation]:
    """Yield what is not a mistake and still worth a warning: what cannot be known yet, and what was decided by hand.

    Args:
        rack: a rack whose rules hold.
        records: the models of the lock file, by name.
        calibrations: what the last good start of each unit measured, by unit.
        pins: the images of the lock file, by name.
    """
    gateways = gateway_of(rack) is not None
    yield from shared_node_notes(rack)
    for unit in served_units(rack).values():
        reserved = reserved_gib(lambda key: getattr(rack, key))
        pin = pins.get(unit.image)
        image, nccl = (pin.id, pin.nccl) if pin else (None, None)
        for note in (
            *_warn_of_unknown_memory(unit, known_unit(unit, records, image, calibrations.get(unit.name), reserved)),
            *_list_accepted(unit, records.get(unit.model)),
            *_list_advice(unit, gateways),
            *nccl_notes.notes(rack, unit, pin),
            *topology_notes.notes(rack, unit, nccl.version if nccl else None),
        ):
            yield RuleViolation(("serving", "units", unit.name, *note.path), note.what, note.right)


def _warn_of_unknown_memory(unit: ServedUnit, known: KnownUnit) -> Iterator[RuleViolation]:
    record, split = known.record, parallel_of(unit)
    if ENGINES[unit.engine].weights:
        if found := found_fit(unit, known):
            yield from declared_fit.notes(unit, record, found)
        return
    if record is None:
        yield RuleViolation(
            ("model",),
            f"whether {unit.model} fits, and divides by the split, is unknown: the lock file has no record of it",
            "`sparkrack apply` fetches the model and records it",
        )
        return
    try:
        shape = record_shape(unit.model, record)
    except ModelConfigError as error:
        what, _, right = str(error).rpartition("; ")
        what = f"whether {unit.model} fits, and divides by the split, is unknown: {what}"
        yield RuleViolation(("model",), what, right)
        return
    counted, reason = counted_calibration(unit, known, split)
    if reason:
        yield RuleViolation(
            (),
            f"the calibration in the lock file does not count: {reason}",
            f"`sparkrack serve calibrate {unit.name}` measures it again",
        )
    found = unit_fit(unit, shape, weight_size(record), split, counted, known.reserved, known.further)
    if found.verdict == "unknown":
        right = f"accepted by fit.override: {unit.fit.override}" if unit.fit else MEASURE.format(unit=unit.name)
        what = f"whether {unit.model} fits is unknown: {unknown_reason(found.fit.unknown)}"
        yield RuleViolation(("model",), what, right)
    elif unit.fit and not found.fits:
        path, what = _too_large(unit, found)
        yield RuleViolation((path,), what, f"accepted by fit.override: {unit.fit.override}")


def _list_accepted(unit: ServedUnit, record: ModelRecord | None) -> Iterator[RuleViolation]:
    for key, message in accepted_options(unit).items():
        yield RuleViolation(("args", key), message.partition("; ")[0], f"accepted: {unit.accept[key]}")
    for what in (padding(unit, record) or ()) if PADDED in unit.accept else ():
        yield RuleViolation(
            ("parallel",), f"{what}, and the sum has no memory for padding", f"accepted: {unit.accept[PADDED]}"
        )


def _list_advice(unit: ServedUnit, gateways: bool) -> Iterator[RuleViolation]:
    if release := judged_by(unit):
        what = f"{TITLES[unit.family]} {unit.version} is not in the table of options, {release} judges args"
        yield RuleViolation(("version",), what, "what the image takes can differ")
    if unit.engine == "vllm-ray" and parallel_of(unit).nodes > 1 and _has_no_ray(unit.image):
        what = f"{truncate(unit.image)} has no Ray, by which vllm-ray joins nodes: the gate will refuse each start"
        yield RuleViolation(("image",), what, "write engine: vllm, which needs none, or an image that has it")
    yield from ENGINES[unit.engine].advice(unit, parallel_of(unit).nodes)
    yield from _way_in(unit, gateways)
    if unit.family == "vllm" and unit.kept_cache is None and _compiles_all(unit):
        yield RuleViolation(
            ("args", "compilation-config"),
            "compiles all custom operations at each start, when the weights leave little memory for it",
            "remove cache: none, so that what was compiled is kept",
        )


def _has_no_ray(image: str) -> bool:
    """Return whether an image is known to lack Ray. Of most images nothing is known before the gate looks into them."""
    name = image_name(image)
    return bool(known_against(name.repository, name.tag.removeprefix("v"), (VLLM_RAY,)))


def _way_in(unit: ServedUnit, gateways: bool) -> Iterator[RuleViolation]:
    """What clients reach: by the gateway alone, or past it."""
    direct = ", ".join(map(str, unit.api.direct or ()))
    if direct and unit.api.key is None:
        what = f"each machine of {direct} can use the model, as there is no key"
        yield RuleViolation(("api",), what, "write a reference at api.key, like {file: qwen.key}")
    if direct:
        # Measured with vLLM 0.32.0; only /v1 asks for the key there.
        beside = (
            "/invocations, /tokenize and more answer without the key"
            if unit.family == "vllm"
            else "the key is its only guard"
        )
        what = f"{direct} reaches each path and port of the unit on its head, past the gateway: {beside}"
        yield RuleViolation(("api", "direct"), what, "serving.gateway lets through what clients need")
    elif unit.api.listen != "local" and not gateways:
        what = "no machine but the nodes of the unit reaches it: there is no gateway, and api.direct names none"
        yield RuleViolation(("api",), what, "write serving.gateway, or the networks of clients at api.direct")


def _compiles_all(unit: ServedUnit) -> bool:
    config = structured_value(plain_argument(unit.args.get("compilation-config")))
    operations = config.get("custom_ops") if isinstance(config, dict) else None
    return isinstance(operations, list) and "all" in operations
