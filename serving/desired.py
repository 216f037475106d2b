"""What a node has of a served unit: its files and units of systemd. Pure: from rack.yaml and its lock file.

Two files hold secrets, which are fetched when they are written: see `private_files`.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from ipaddress import IPv4Address

from pydantic import SecretBytes

from core.model import Rack
from core.model.fields import mebibytes, seconds
from core.model.image_lock import Pin
from core.model.model_lock import ModelRecord
from core.util import resources
from core.util.managed_file import ManagedFile, header, validate_unit
from roles.rdma.options import socket_addresses
from serving import allowed_addresses, unit_files, unit_ports
from serving import gate_config as gate
from serving.engines.registry import ENGINES
from serving.launch import (
    FABRIC_ENVIRONMENT,
    UNIT_FILES,
    RankLaunch,
    api_address,
    cache_folder,
    joins_by_ray,
    launches,
    mount_folder,
)
from serving.options import ServedUnit, rdma_is_measured, served_units, serving_of
from serving.programs import AGENT, COORDINATOR, GATE, RUN, programs
from serving.shared_nodes import container_ceiling, declared_mebibytes
from serving.topology_notes import ranks_apart
from serving.unit_kinds import dimension
from serving.unit_ports import master_port

UNITS = "/etc/systemd/system"
GATE_LIMIT = 1140
"""Seconds that the gate may take: it waits for the gates of the other nodes, for measurements with them, for the clock,
for a container, for files that are written back, for memory, and for CUDA; and twice for the gate of another unit."""
FIRST_LIMIT = 300
"""Seconds that the first completion after a start may take at least: it compiles."""
STOP_GRACE = 15
"""Seconds that an engine may take to end beside `drain`, and docker to remove its container beside that."""
KEY_FAULT = (
    "the key must have printable ASCII characters only, without spaces; `openssl rand -hex 24` prints one that has"
)
_SERVICES = {
    "": "templates/sparkrack-serve.service",
    "-agent": "templates/sparkrack-serve-agent.service",
    "-coordinator": "templates/sparkrack-serve-coordinator.service",
}
"""Templates by the suffix of the service: of the rank itself, its agent, and the coordinator of its unit."""


@dataclass(frozen=True)
class PrivateFile:
    """A file that only root reads. Its content is a secret, which is not shown."""

    path: str
    content: SecretBytes
    mode: str = "600"

    @property
    def managed(self) -> ManagedFile:
        """The same as a file to write, with the secret in it."""
        return ManagedFile(self.path, self.content.get_secret_value(), self.mode)


@dataclass(frozen=True)
class LockedUnit:
    """A unit with what the lock file has of it: the ID of its image, the files of its model, and those of each further
    model, by name."""

    rack: Rack
    unit: ServedUnit
    image_id: str
    record: ModelRecord
    further: Mapping[str, ModelRecord] = field(default_factory=dict)

    @property
    def nodes(self) -> tuple[str, ...]:
        """Its nodes in rank order; the first is the head."""
        return self.unit.ranks(self.rack.nodes)

    @property
    def addresses(self) -> dict[str, IPv4Address]:
        """The address of each of its nodes for traffic beside RDMA."""
        known = socket_addresses(self.rack)
        return {name: known[name] for name in self.nodes}


def locked_unit(
    rack: Rack, unit: ServedUnit, pins: Mapping[str, Pin], records: Mapping[str, ModelRecord]
) -> LockedUnit:
    """Return a unit with what the lock file has of it. Raises ValueError with all blockers."""
    if lines := blockers(rack, unit, pins, records):
        raise ValueError("; ".join(lines))
    further = {name: records[name] for name in unit.also}
    return LockedUnit(rack, unit, pins[unit.image].id, records[unit.model], further)


def blockers(rack: Rack, unit: ServedUnit, pins: Mapping[str, Pin], records: Mapping[str, ModelRecord]) -> list[str]:
    """Return why the files of a unit cannot be made.

    Args:
        rack: the rack, whose rules hold.
        unit: one of its units.
        pins: the images of the lock file.
        records: the models of the lock file.
    """
    place = f"{rack.source}: serving.units.{unit.name}"
    lines = unlocked(rack, unit, pins, records)
    known = socket_addresses(rack)
    lines += [
        f"{place}.nodes: {name} has no cable, so it has no address on the fabric; write rdma.sockets: management"
        for name in unit.ranks(rack.nodes)
        if name not in known
    ]
    try:
        unit_files.mounts(unit)
    except ValueError as unreadable:
        lines.append(f"{place}.files: {unreadable}")
    if not lines:
        lines += _list_unwritable_arguments(rack, unit, pins[unit.image].id, place)
    return lines


def unlocked(rack: Rack, unit: ServedUnit, pins: Mapping[str, Pin], records: Mapping[str, ModelRecord]) -> list[str]:
    """Return what the lock file does not have of a unit: the roles images and models record it. Same arguments."""
    place = f"{rack.source}: serving.units.{unit.name}"
    lines = []
    if unit.image not in pins:
        lines.append(f"{place}.image: the lock file has no ID of {unit.image}; run `sparkrack apply --only images`")
    for key, name in (("model", unit.model), *((f"also.{number}", name) for number, name in enumerate(unit.also))):
        if name not in records or not records[name].files:
            lines.append(f"{place}.{key}: the lock file has no files of {name}; run `sparkrack apply --only models`")
    return lines


def _list_unwritable_arguments(rack: Rack, unit: ServedUnit, image_id: str, place: str) -> list[str]:
    """Arguments of a container are written one a line."""
    for launch in launches(rack, unit, socket_addresses(rack), container_ceiling(rack, unit), image_id):
        for word in _docker_arguments(launch):
            if any(mark in word for mark in "\n\0") or not _is_encodable(word):
                return [f"{place}.args: an argument has a line break, or a character that is not a text; remove it"]
    return []


def _is_encodable(word: str) -> bool:
    try:
        word.encode()
    except UnicodeEncodeError:
        return False
    return True


def coordinator_port(rack: Rack, unit: ServedUnit) -> int:
    """Return the port of the coordinator: units with the same head have each their own."""
    serving = serving_of(rack)
    if serving is None:
        raise ValueError("the rack has no serving section")
    return unit_ports.coordinator_port(serving.port, serving.units, rack.nodes, unit)


def _docker_arguments(launch: RankLaunch) -> tuple[str, ...]:
    """Return what follows `docker run`."""
    return launch.command[2:]


def files(locked: LockedUnit, node: str) -> tuple[ManagedFile, ...]:
    """Return what a node has of a unit, without secrets and programs, in the order in which it is written.

    Args:
        locked: the unit.
        node: one of its nodes.
    """
    launch = next(one for one in _launches_of_unit(locked) if one.node == node)
    arguments, environment, gate_file, *services = _beside_configuration(locked, launch)
    configured = ManagedFile(path(locked.unit, "json"), _encode_json(configuration(locked)))
    return (*mounted_files(locked.unit), arguments, environment, configured, gate_file, *services)


def mounted_files(unit: ServedUnit) -> tuple[ManagedFile, ...]:
    """Return what each node of a unit mounts into its container of the files beside rack.yaml. The digest of each mount
    is in the arguments of docker, and by them in the version of the unit."""
    return tuple(
        ManagedFile(str(mount_folder(unit, mount) / relative), file.content, "755" if file.program else "644")
        for mount in unit_files.mounts(unit)
        for relative, file in mount.files.items()
    )


def _launches_of_unit(locked: LockedUnit) -> tuple[RankLaunch, ...]:
    rack = locked.rack
    return launches(rack, locked.unit, locked.addresses, container_ceiling(rack, locked.unit), locked.image_id)


def _beside_configuration(locked: LockedUnit, launch: RankLaunch) -> list[ManagedFile]:
    """Return the files of the node of a rank, but for the one that coordinator and agents read."""
    rack, unit = locked.rack, locked.unit
    environment = [f"{name}={value}\n" for name, value in launch.environment.items()]
    made = [
        ManagedFile(path(unit, "args"), "".join(f"{word}\n" for word in _docker_arguments(launch)).encode()),
        ManagedFile(path(unit, "env"), f"{header(rack.rack)}\n{''.join(environment)}".encode()),
        ManagedFile(path(unit, "gate.json"), _encode_json(gate_configuration(locked, launch.node))),
        _render_slice(rack, unit, launch.node),
        _render_service(rack, unit, "-agent", command=f"{AGENT} {path(unit, 'json')} {launch.rank}"),
    ]
    if launch.rank == 0:
        made.append(_render_service(rack, unit, "-coordinator", command=f"{COORDINATOR} {path(unit, 'json')} run"))
    drain = seconds(unit.drain) + STOP_GRACE
    made.append(
        _render_service(
            rack,
            unit,
            "",
            agent=service_name(unit, "-agent"),
            slice=slice_name(unit),
            guard=gate.GUARD,
            gate=f"{GATE} {path(unit, 'gate.json')}",
            run=f"{RUN} {path(unit, 'args')}",
            container=f"sparkrack-{unit.name}",
            drain=drain,
            start=GATE_LIMIT + STOP_GRACE,
            stop=drain + STOP_GRACE,
        )
    )
    return made


def path(unit: ServedUnit, ending: str) -> str:
    """Return the path of a file of a unit, by its ending."""
    return f"{UNIT_FILES / unit.name}.{ending}"


def service_name(unit: ServedUnit, suffix: str = "") -> str:
    """Return the name of a service of a unit: of its rank, or with a suffix of its agent or coordinator."""
    return unit_service(unit.name, suffix)


def unit_service(name: str, suffix: str = "") -> str:
    """The same by the name of the unit, which rack.yaml may no longer have."""
    return f"sparkrack-serve-{name}{suffix}.service"


def slice_name(unit: ServedUnit) -> str:
    """Return the slice of the container. By its name alone systemd puts it below the slice of all containers."""
    return f"sparkrack-{unit.name}.slice"


def _render_slice(rack: Rack, unit: ServedUnit, node: str) -> ManagedFile:
    text = resources.file_text(
        "serving",
        "templates/unit.slice",
        header=header(rack.rack),
        unit=unit.name,
        most=container_ceiling(rack, unit),
        takes=declared_mebibytes(rack, unit) * 2**20,
        sources=allowed_addresses.setting(allowed_addresses.rank_sources(rack, unit, node)),
    )
    return ManagedFile(f"{UNITS}/{slice_name(unit)}", text.encode(), validate=validate_unit(slice_name(unit)))


def _render_service(rack: Rack, unit: ServedUnit, suffix: str, **values: object) -> ManagedFile:
    name = service_name(unit, suffix)
    sources = allowed_addresses.setting(allowed_addresses.unit_addresses(rack, unit))
    text = resources.file_text(
        "serving", _SERVICES[suffix], header=header(rack.rack), unit=unit.name, sources=sources, **values
    )
    return ManagedFile(f"{UNITS}/{name}", text.encode(), validate=validate_unit(name))


def _encode_json(value: object) -> bytes:
    return f"{json.dumps(value, indent=1)}\n".encode()


def configuration(locked: LockedUnit) -> dict[str, object]:
    """Return what coordinator and agents read, in the form of files/serve_unit.py. It is the same on each node."""
    rack, unit, probe = locked.rack, locked.unit, locked.unit.probe
    addresses = locked.addresses
    api: dict[str, object] = {"address": str(api_address(rack, unit)), "port": unit.api.port}
    if unit.api.key:
        api["key_file"] = path(unit, "token")
    answer = {"prompt": probe.answer.ask, "answer": probe.answer.say} if probe.answer else {"answer": ""}
    rdma = "required" if rdma_is_measured(rack) else "remark"
    found = {
        "name": unit.name,
        "engine": unit.engine,
        "model": served_name(unit),
        "metrics": {name: list(names) for name, names in asdict(ENGINES[unit.engine].progress(unit)).items()},
        "ranks": [{"node": name, "address": str(addresses[name])} for name in locked.nodes],
        "head": {"address": str(addresses[locked.nodes[0]]), "port": coordinator_port(rack, unit)},
        "api": api,
        "secret_file": path(unit, "secret"),
        "gate": [GATE, path(unit, "gate.json"), "--together"],
        "service": service_name(unit),
        "probe": {
            **answer,
            "kind": unit.kind,
            "tool": probe.tool,
            "dimension": dimension(unit, locked.record),
            **({"named": True} if ENGINES[unit.engine].serves_any_name else {}),
        },
        "phases": {phase: dict(lines) for phase, lines in ENGINES[unit.engine].phases.items()},
        "rdma": rdma if len(locked.nodes) > 1 else "ignored",
        "times": {
            "gate_limit": GATE_LIMIT,
            "drain": seconds(unit.drain),
            "stop_limit": seconds(unit.drain) + 4 * STOP_GRACE,
            "ready_limit": seconds(probe.ready),
            "first_limit": max(FIRST_LIMIT, seconds(probe.limit)),
            "probe_interval": seconds(probe.every),
            "probe_limit": seconds(probe.limit),
            "probe_misses": probe.misses,
        },
        "restart": {"times": unit.restart.times, "within": seconds(unit.restart.within)},
        "boot": unit.boot,
    }
    return {**found, "version": _hash_version(locked, found)}


def declared_version(locked: LockedUnit) -> str:
    """Return the version of the files of a unit, which its coordinator reports."""
    return str(configuration(locked)["version"])


def _hash_version(locked: LockedUnit, configured: Mapping[str, object]) -> str:
    """Return a hash of what all nodes have of the unit, but for its secrets: its files and the programs. It tells two
    versions apart, which a run of `apply` that ended between two nodes leaves.
    """
    found = hashlib.sha256(_encode_json(configured))
    for launch in _launches_of_unit(locked):
        for file in _beside_configuration(locked, launch):
            found.update(f"{launch.node} {file.path} {len(file.content)}\n".encode() + file.content)
    for program in programs():
        found.update(f"{program.path} {len(program.content)}\n".encode() + program.content)
    return found.hexdigest()[:16]


def served_name(unit: ServedUnit) -> str:
    """Return the name by which clients ask for the model: the first of several."""
    return unit.served_names[0]


def gate_configuration(locked: LockedUnit, node: str) -> dict[str, object]:
    """Return what the gate of a node reads, in the form of files/serve_start_gate.py."""
    rack, unit = locked.rack, locked.unit
    launch = next(one for one in _launches_of_unit(locked) if one.node == node)
    ports = {}
    if node == locked.nodes[0]:
        ports[str(unit.api.port)] = f"the API of unit {unit.name}"
        meeting = master_port(served_units(rack), rack.nodes, unit)
        ports |= {str(port): what for port, what in ENGINES[unit.engine].ports(len(locked.nodes), meeting).items()}
    cache = None
    if unit.kept_cache:
        cache = {"folder": str(cache_folder(unit, locked.image_id)), "bytes": mebibytes(unit.kept_cache) * 2**20}
    return {
        "node": node,
        "unit": unit.name,
        "slot": unit.slot,
        "guard": gate.guard(rack),
        "image": {"name": unit.image, "id": locked.image_id},
        "container": gate.container(unit, launch, len(locked.nodes), bool(ranks_apart(rack, unit))),
        "model": gate.model(unit.model, locked.record),
        "also": [gate.model(name, record) for name, record in locked.further.items()],
        "files": gate.files(unit),
        "ports": ports,
        "cache": cache,
        "gids": FABRIC_ENVIRONMENT if len(locked.nodes) > 1 else None,
        "echoes": gate.echoes(rack, node, locked.nodes),
        "proof": gate.proof(rack, unit, node, path(unit, "secret")),
        "time": gate.time(rack),
        "memory": gate.memory(rack, unit, locked.record, len(locked.nodes), locked.further),
    }


def private_files(locked: LockedUnit, node: str, key: str | None, lease: str) -> tuple[PrivateFile, ...]:
    """Return the files of a node that hold secrets.

    Args:
        locked: the unit.
        node: one of its nodes.
        key: the API key, from the reference in rack.yaml; None where the unit has none. Only the head gets it.
        lease: what coordinator and agents of the unit share: 32 characters or more, the same on each node.

    Raises:
        ValueError: a secret cannot be written; the message does not have it.
    """
    unit = locked.unit
    place = f"{locked.rack.source}: serving.units.{unit.name}.api.key"
    if len(lease) < 32 or not plain(lease):
        raise ValueError(f"the lease secret of unit {unit.name} has not 32 printable ASCII characters")
    found = [PrivateFile(path(unit, "secret"), SecretBytes(f"{lease}\n".encode()))]
    if joins_by_ray(unit, len(locked.nodes)):
        token = hmac.new(lease.encode(), b"the token of Ray", hashlib.sha256).hexdigest()
        found.append(PrivateFile(path(unit, "ray"), SecretBytes(token.encode())))
    if (key is None) != (unit.api.key is None):
        raise ValueError(f"{place}: the key is {'missing' if key is None else 'not declared'}")
    if key is None or node != locked.nodes[0]:
        return tuple(found)
    if not key or not plain(key):
        raise ValueError(f"{place}: {KEY_FAULT}")
    text = ENGINES[unit.engine].key(unit).text(key)
    found += [
        PrivateFile(path(unit, "key"), SecretBytes(text.encode())),
        PrivateFile(path(unit, "token"), SecretBytes(f"{key}\n".encode())),
    ]
    return tuple(found)


def shared_secrets(unit: ServedUnit, count: int) -> tuple[str, ...]:
    """Return the paths of what all nodes of a unit have alike, and no other machine: the lease secret, and what is made
    of it. `count`: of its nodes."""
    return (path(unit, "secret"), *((path(unit, "ray"),) if joins_by_ray(unit, count) else ()))


def plain(text: str) -> bool:
    """Return whether a key has printable ASCII characters only, without spaces."""
    return all("!" <= mark <= "~" for mark in text)
