"""What each node of a unit runs: the command of its rank, the arguments of docker, and the environment. Pure.

No secret is in any of them. The key of the API is in a file of the head, in the form that the engine reads.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import PurePosixPath

from core.model.fields import mebibytes, seconds
from core.model.models import MODEL_STORE
from core.model.reachability import first_address
from core.model.schema import Rack
from serving import unit_files
from serving.accepted import engine_arguments
from serving.container_paths import INSIDE_CACHE, INSIDE_MODELS, mounted_models
from serving.engines.engine import RankPlace
from serving.engines.option_table import table
from serving.engines.registry import ENGINES
from serving.options import ServedUnit, served_units
from serving.unit_kinds import engine_options
from serving.unit_ports import master_port

FABRIC_ENVIRONMENT = "/etc/sparkrack/fabric.env"
UNIT_FILES = PurePosixPath("/etc/sparkrack/serve")
"""Folder of a node with the files of its units."""
UNIT_PROGRAMS = PurePosixPath("/usr/local/lib/sparkrack/serve")
"""Folder of a node with the programs that keep its units."""
CACHES = PurePosixPath("/var/cache/sparkrack/serve")
"""Folder of a node with the compile caches of its units: one for each unit and image."""
INSIDE_RAY_TOKEN = "/run/sparkrack/ray-token"  # noqa: S105 - a path
RAY_VARIABLES = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": INSIDE_RAY_TOKEN}
"""Ray since 2.52 asks each connection for the token in this file. An older one reads neither variable, and runs the
code of any machine that reaches its port: the slice of the unit closes that."""
BEFORE = (
    '{program} || {{ code=$?; echo "sparkrack: the program of before ended with $code" >&2; exit "$code"; }}; exec "$@"'
)
"""Runs a program and then the engine, which is the first process of its container as without it. files/serve_causes.py
knows the line."""


@dataclass(frozen=True)
class RankLaunch:
    """What one node runs for a unit.

    `argv`: the program and its arguments, in the container. `docker`: the arguments of `docker run` up to the image.
    `environment`: variables of the unit, beside those of the fabric.
    """

    node: str
    rank: int
    argv: tuple[str, ...]
    docker: tuple[str, ...]
    image: str
    environment: Mapping[str, str]

    @property
    def command(self) -> tuple[str, ...]:
        """The whole command of the node."""
        return ("docker", "run", *self.docker, self.image, *self.argv[1:])


def launches(
    rack: Rack, unit: ServedUnit, addresses: Mapping[str, IPv4Address], memory: str, image_id: str | None
) -> tuple[RankLaunch, ...]:
    """Return what each node of a unit runs, in rank order.

    Args:
        rack: the rack, whose rules hold.
        unit: one of its units.
        addresses: the address of each node for traffic beside RDMA.
        memory: the ceiling of the container, as `docker.memory` has it.
        image_id: the ID of the image from the lock file; None if it has none, then the image is named.

    Raises:
        ValueError: a file of the unit cannot be read.
    """
    names = unit.ranks(rack.nodes)
    return tuple(
        RankLaunch(
            node=name,
            rank=rank,
            argv=(argv := _after_program(unit, rank_argv(rack, unit, rank, addresses))),
            docker=(
                *_list_docker_arguments(unit, rank, argv[0], memory, image_id, joins_by_ray(unit, len(names))),
                *(("--volume", NO_NCCL_CONF) if covers_nccl_conf(unit, len(names)) else ()),
            ),
            image=image_id or unit.image,
            environment=_list_environment(_make_rank_place(rack, unit, rank, addresses)),
        )
        for rank, name in enumerate(names)
    )


def _after_program(unit: ServedUnit, argv: tuple[str, ...]) -> tuple[str, ...]:
    """Return the arguments with which a container runs the program `before` of a unit, and then becomes the engine."""
    if unit.before is None:
        return argv
    return ("sh", "-c", BEFORE.format(program=shlex.join(unit.before)), "before", *argv)


# claim: serving.start
def rank_argv(rack: Rack, unit: ServedUnit, rank: int, addresses: Mapping[str, IPv4Address]) -> tuple[str, ...]:
    """Return the program of a rank and its arguments.

    Args:
        rack: the rack, whose rules hold.
        unit: one of its units.
        rank: the place of the node in the unit, from 0, the head.
        addresses: the address of each node for traffic beside RDMA.
    """
    key = ENGINES[unit.engine].key(unit).argv if unit.api.key and rank == 0 else ()
    return (*ENGINES[unit.engine].argv(_make_rank_place(rack, unit, rank, addresses)), *key)


def _make_rank_place(rack: Rack, unit: ServedUnit, rank: int, addresses: Mapping[str, IPv4Address]) -> RankPlace:
    names = unit.ranks(rack.nodes)
    known: frozenset[str] = frozenset()
    if ENGINES[unit.engine].table:
        options = table(unit.family)
        known = frozenset(options.of(options.judging(unit.version) or ""))
    return RankPlace(
        unit=unit,
        model=f"{INSIDE_MODELS}/{unit.model}",
        names=() if "served-model-name" in unit.args else ("--served-model-name", unit.model),
        args=(*engine_options(unit), *engine_arguments(unit)),
        known=known,
        kv=mebibytes(unit.kv) * 2**20 if unit.kv else None,
        drain=seconds(unit.drain),
        rank=rank,
        ranks=len(names),
        head=addresses[names[0]],
        own=addresses[names[rank]],
        meeting=master_port(served_units(rack), rack.nodes, unit),
        api=api_address(rack, unit),
    )


def api_address(rack: Rack, unit: ServedUnit) -> IPv4Address:
    """Return the address at which the head of a unit answers clients. Raises ValueError when it has none."""
    head = unit.ranks(rack.nodes)[0]
    if unit.api.listen == "local":
        return IPv4Address("127.0.0.1")
    if unit.api.listen == "management":
        return rack.nodes[head].address
    fabric = first_address(rack, head)
    if fabric is None:
        raise ValueError(f"serving.units.{unit.name}.api.listen: {head} has no fabric address")
    return fabric.interface.ip


def joins_by_ray(unit: ServedUnit, count: int) -> bool:
    """Return whether Ray joins the nodes of a unit, of which there are so many."""
    return ENGINES[unit.engine].ray and count > 1


def _list_docker_arguments(
    unit: ServedUnit, rank: int, program: str, memory: str, image_id: str | None, ray: bool
) -> tuple[str, ...]:
    ceiling = memory.lower()
    found = [
        *("--rm", "--pull", "never", "--name", f"sparkrack-{unit.name}", "--entrypoint", program),
        *("--network", "host", "--gpus", "all", "--device", "/dev/infiniband", "--cap-add", "IPC_LOCK"),
        *("--ulimit", "memlock=-1", "--ulimit", "stack=67108864"),
        *("--shm-size", unit.shm.lower(), "--memory", ceiling, "--memory-swap", ceiling),
        *("--cgroup-parent", f"sparkrack-{unit.name}.slice"),
        *("--env-file", FABRIC_ENVIRONMENT, "--env-file", f"{UNIT_FILES / unit.name}.env"),
    ]
    if unit.api.key and rank == 0:
        found += ENGINES[unit.engine].key(unit).docker(f"{UNIT_FILES / unit.name}.key")
    if ray:
        # claim: serving.ray-token
        found += [word for name, value in RAY_VARIABLES.items() for word in ("--env", f"{name}={value}")]
        found += ["--volume", f"{UNIT_FILES / unit.name}.ray:{INSIDE_RAY_TOKEN}:ro"]
    for name in mounted_models(unit):
        found += ["--volume", f"{MODEL_STORE / name}:{INSIDE_MODELS}/{name}:ro"]
    for mount in unit_files.mounts(unit):
        found += ["--volume", f"{mount_folder(unit, mount) / mount.name}:{mount.inside}:ro"]
    if unit.kept_cache:
        found += ["--volume", f"{cache_folder(unit, image_id)}:{INSIDE_CACHE}"]
    return tuple(found)


UNKEPT_EXTENSIONS = "/tmp/torch_extensions"  # noqa: S108 - of the container, which is new at each start
"""Folder for extensions that PyTorch builds, by itself below XDG_CACHE_HOME. A build that is killed leaves a lock file
for which each later start waits without end (https://github.com/pytorch/pytorch/issues/189245), so it is not kept."""

NCCL_CONF = "/etc/nccl.conf"
NO_NCCL_CONF = f"/dev/null:{NCCL_CONF}:ro"
"""An empty file in place of the one of the image: NCCL reads it for each variable that the environment does not have,
and settings of an image froze the first collective of its ranks (reported)."""


def covers_nccl_conf(unit: ServedUnit, ranks: int) -> bool:
    """Return whether the ranks of a unit get no /etc/nccl.conf of their image; `files` may give them one."""
    return ranks > 1 and NCCL_CONF not in (unit.files or {})


def mount_folder(unit: ServedUnit, mount: unit_files.UnitMount) -> PurePosixPath:
    """Return the folder of a node with the files of a mount. Other content is in another folder."""
    return UNIT_FILES / f"{unit.name}.files" / mount.digest


def cache_folder(unit: ServedUnit, image_id: str | None) -> PurePosixPath:
    """Return the folder of a node for what a unit compiles with this image."""
    return CACHES / unit.name / (image_id or "unpinned").removeprefix("sha256:")[:12]


def _list_environment(place: RankPlace) -> dict[str, str]:
    unit = place.unit
    found = {"HF_HUB_OFFLINE": "1", "MASTER_ADDR": str(place.head)}
    if place.ranks > 1:
        # NCCL then says once which network it uses: `Using network IB`, or `Socket`.
        found |= {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET"}
    if unit.kept_cache:
        found |= {
            "XDG_CACHE_HOME": INSIDE_CACHE,
            "TORCHINDUCTOR_CACHE_DIR": f"{INSIDE_CACHE}/inductor",
            "TRITON_CACHE_DIR": f"{INSIDE_CACHE}/triton",
            "FLASHINFER_WORKSPACE_BASE": f"{INSIDE_CACHE}/flashinfer",
            "TORCH_EXTENSIONS_DIR": UNKEPT_EXTENSIONS,
        }
    return dict(sorted({**found, **ENGINES[unit.engine].environment(place), **unit.env}.items()))
