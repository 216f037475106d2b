"""What the gate of a node asks for before its rank may start. Pure: from rack.yaml and its lock file."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping

from core.advisories.advisories import NCCL, PAGE, PIP_WHEEL, RING, advisory_table
from core.hardware import gb10
from core.model import Rack
from core.model.addressing import Address
from core.model.fields import mebibytes
from core.model.model_lock import ModelRecord
from core.model.models import MODEL_STORE
from core.model.rdma_flows import (
    STALE,
    STALE_REMEDY,
    TOOL_OPTIONS,
    Flow,
    enough_for_half,
    leg_gbps,
    unit_flows,
)
from core.model.reachability import reachable
from roles.memory.options import MemoryOptions
from roles.time.options import TimeOptions
from serving import unit_files
from serving.container_paths import container_files
from serving.engines.memory_fit import GIB
from serving.engines.model_shape import ModelConfigError
from serving.engines.registry import ENGINES
from serving.fit import (
    demand_of,
    found_fit,
    host_memory_of,
    parallel_of,
    record_shape,
    unit_fit,
    weight_size,
)
from serving.launch import NCCL_CONF, NO_NCCL_CONF, UNIT_FILES, RankLaunch, covers_nccl_conf, mount_folder
from serving.options import ServedUnit, rdma_is_measured, served_units
from serving.unit_ports import meeting_port

GUARD = "sparkrack-memory-guard.service"


def guard(rack: Rack) -> str | None:
    """Return the unit of the memory guard; None where rack.yaml wants none, or leaves memory to its owner."""
    return GUARD if rack.options(MemoryOptions).floor and "memory" not in rack.leave else None


def container(unit: ServedUnit, launch: RankLaunch, ranks: int, apart: bool = False) -> dict[str, object]:
    """Return the container that proves, before a start, that the container of the rank can start: the same arguments of
    docker, but for its name, its network and its program, and without the key of the API.

    Args:
        unit: the unit.
        launch: of the rank on the node.
        ranks: the number of its ranks.
        apart: whether they are in a ring, and no cable joins some of them.
    """
    name = f"sparkrack-{unit.name}-gate"
    engine = ENGINES[unit.engine]
    # Of an image whose engine is not a package of Python, it is not known whether it has Python.
    other = {"--name": name, "--entrypoint": "python3" if engine.package else "sh", "--network": "none"}
    key = f"{UNIT_FILES / unit.name}.key"
    words: list[str] = []
    for place, word in enumerate(launch.docker):
        before = launch.docker[place - 1] if place else ""
        if word.partition(":")[0] == key or word == NO_NCCL_CONF:
            words.pop()
        else:
            words.append(other.get(before, word))
    looks = list(engine.looks(unit, launch.rank, ranks))
    looks += [f"program:{unit.before[0]}"] if unit.before else []
    looks += [f"file:{path}" for path in container_files(unit)]
    looks += [f"settings:{NCCL_CONF}"] if covers_nccl_conf(unit, ranks) else []
    if not engine.package:
        return {"name": name, "docker": words, "image": launch.image, "looks": looks, "shell": True}
    if ranks < 2:
        return {"name": name, "docker": words, "image": launch.image, "looks": looks}
    return {
        "name": name,
        "docker": words,
        "image": launch.image,
        "looks": [*looks, "nccl"],
        "nccl": known_of_nccl(apart),
    }


def known_of_nccl(apart: bool) -> list[dict[str, object]]:
    """Return what is known against versions of NCCL, in the form of files/serve_start.py. `apart`: the ranks are in a
    ring, and no cable joins some of them.
    """
    return [
        {
            "versions": [
                [numbers_of(part.since), numbers_of(part.fixed) if part.fixed else None] for part in row.versions
            ],
            "build": "wheel" if row.feature == PIP_WHEEL else None,
            "words": "; ".join(filter(None, (row.effect, row.remedy, f"({row.id}, {PAGE})"))),
        }
        for row in advisory_table().advisories
        if row.subject == NCCL and (row.feature != RING or apart)
    ]


def numbers_of(version: str) -> list[int]:
    """Return the three numbers of a version of NCCL."""
    numbers = [int(number) for number in version.split(".")]
    return [*numbers, *[0] * (3 - len(numbers))]


def model(name: str, record: ModelRecord) -> dict[str, object]:
    """Return the folder of a model, and its files with their sizes in bytes. By `digest` other bytes of the same size
    are another version of the unit."""
    files = sorted(record.files, key=lambda file: file.path)
    return {
        "name": name,
        "folder": str(MODEL_STORE / name),
        "files": {file.path: file.size for file in files},
        "digest": hashlib.sha256(json.dumps([(file.path, file.sha256) for file in files]).encode()).hexdigest()[:16],
    }


def files(unit: ServedUnit) -> dict[str, dict[str, str]]:
    """Return the folders of the unit's own files, each with the sha256 of its files."""
    return {
        str(mount_folder(unit, mount)): {
            path: hashlib.sha256(file.content).hexdigest() for path, file in sorted(mount.files.items())
        }
        for mount in unit_files.mounts(unit)
    }


def echoes(rack: Rack, node: str, members: tuple[str, ...]) -> list[dict[str, object]]:
    """Return the peers that each half must reach with packets of full size: nodes of the unit in its subnet."""
    return [
        {
            "peer": there.half.node,
            "device": here.device,
            "address": str(there.interface.ip),
            "mtu": rack.fabric.mtu,
        }
        for here, there in reachable(rack, node)
        if there.half.node in members
    ]


def proof(rack: Rack, unit: ServedUnit, node: str, secret_file: str) -> dict[str, object] | None:
    """Return what a node measures and has measured of RDMA, in the form of files/serve_rdma_check.py: each half that
    NCCL uses sends to the next node of the unit. None where rack.yaml wants no proof, or no node shares a subnet.
    """
    if not rdma_is_measured(rack):
        return None
    flows = unit_flows(rack, unit.ranks(rack.nodes))
    sends = [_describe_sent_flow(rack, flow) for flow in flows if flow.here.half.node == node]
    receives = [
        {"peer": flow.here.half.node, **_describe_flow_end(flow.there, flow)}
        for flow in flows
        if flow.there.half.node == node
    ]
    if not sends and not receives:
        return None
    return {
        "secret_file": secret_file,
        "meeting_port": meeting_port(served_units(rack), rack.nodes, unit),
        "options": list(TOOL_OPTIONS),
        "stale_remedy": STALE_REMEDY,
        "sends": sends,
        "receives": receives,
    }


def _describe_sent_flow(rack: Rack, flow: Flow) -> dict[str, object]:
    leg = leg_gbps(rack, flow.here)
    return {
        "peer": flow.there.half.node,
        **_describe_flow_end(flow.here, flow),
        "peer_address": str(flow.there.interface.ip),
        "least": enough_for_half(leg),
        "stale": list(STALE) if leg >= gb10.HALF_GBPS else None,
    }


def _describe_flow_end(address: Address, flow: Flow) -> dict[str, object]:
    half = address.half
    return {
        "half": half.interface,
        "device": gb10.half_device(half.port, half.index),
        "address": str(address.interface.ip),
        "port": flow.port,
    }


def time(rack: Rack) -> bool:
    """Return whether the clock must be synchronized: rack.yaml declares servers."""
    return rack.declared(TimeOptions) is not None and rack.keeps("time")


def memory(
    rack: Rack, unit: ServedUnit, record: ModelRecord, ranks: int, further: Mapping[str, ModelRecord]
) -> dict[str, object]:
    """Return the memory that must be available: that of the engine, also of the host, and the floor below which the
    guard ends it."""
    given = rack.options(MemoryOptions).floor
    add, floor = int(_host_gib(unit, record, ranks) * 2**30), mebibytes(given) * 2**20 if given else 0
    if unit.memory is not None:
        return {"share": unit.memory, "add": add, "floor": floor}
    if ENGINES[unit.engine].weights:
        found = found_fit(unit, record, further, None, None, 0.0)
        if found and "weights" not in found.fit.unknown:
            return {"bytes": int(found.fit.total * GIB) + add, "floor": floor}
    demand, _ = demand_of(unit)
    weights = sum(one.size if (known := weight_size(one)) is None else known for one in (record, *further.values()))
    cache = mebibytes(unit.kv) * 2**20 if unit.kv else 0
    return {"bytes": int(weights / ranks + cache + demand.overhead_gib * 2**30) + add, "floor": floor}


def _host_gib(unit: ServedUnit, record: ModelRecord, ranks: int) -> float:
    if ENGINES[unit.engine].weights:
        return 0.0
    try:
        shape = record_shape(unit.model, record)
    except ModelConfigError:
        return host_memory_of(unit, ranks).gib
    return unit_fit(unit, shape, weight_size(record), parallel_of(unit)).fit.host
