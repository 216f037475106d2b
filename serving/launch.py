"""What each node of a unit runs: the command of its rank, the arguments of docker, and the environment. Pure.

No secret is in any of them. The key of the API is in a file of the head: vLLM reads VLLM_API_KEY, SGLang a file of more
options.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address
from pathlib import PurePosixPath

from core.model.addressing import first_address
from core.model.fields import mebibytes, seconds
from core.model.models import MODEL_STORE
from core.model.schema import Rack
from serving.container_paths import INSIDE_CACHE, INSIDE_MODELS
from serving.engines.command_line import render
from serving.engines.option_table import table
from serving.options import ServedUnit, plain_argument, served_units
from serving.unit_ports import RAY_PORT, master_port

FABRIC_ENVIRONMENT = "/etc/sparkrack/fabric.env"
UNIT_FILES = PurePosixPath("/etc/sparkrack/serve")
"""Folder of a node with the files of its units."""
UNIT_PROGRAMS = PurePosixPath("/usr/local/lib/sparkrack/serve")
"""Folder of a node with the programs that keep its units."""
CACHES = PurePosixPath("/var/cache/sparkrack/serve")
"""Folder of a node with the compile caches of its units: one for each unit and image."""
INSIDE_KEY = "/run/sparkrack/key.yaml"
"""Place in the container of the file by which SGLang gets its key."""
INSIDE_RAY_TOKEN = "/run/sparkrack/ray-token"  # noqa: S105 - a path
RAY_VARIABLES = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": INSIDE_RAY_TOKEN}
"""Ray since 2.52 asks each connection for the token in this file. An older one reads neither variable, and runs the
code of any machine that reaches its port: the slice of the unit closes that."""
INSIDE_AUTOTUNE = "/tmp/flashinfer-autotune"  # noqa: S108 - in a container of its own
"""Place in the container for what FlashInfer has tuned, where a unit has several ranks. It ends with the container.

vLLM saves it on rank 0 only, under the number of that rank: at a second start rank 0 finds its figures, and the others
wait for it in a collective for 30 minutes (vllm-project/vllm issue 57423; reported of releases from 0.28)."""
KV_SHARE = 0.5
"""Share that vLLM is given beside the size of its cache: it then only checks at its start that so much is free."""
RAY_HEAD = (
    'ray start --head --node-ip-address="$1" --port="$2" --include-dashboard=false --disable-usage-stats'
    ' && shift 2 && exec "$@"'
)
"""Starts Ray on the head and then the engine, which waits for the other nodes."""


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
    """
    names = unit.ranks(rack.nodes)
    return tuple(
        RankLaunch(
            node=name,
            rank=rank,
            argv=(argv := rank_argv(rack, unit, rank, addresses)),
            docker=_docker(unit, rank, argv[0], memory, image_id, joins_by_ray(unit, len(names))),
            image=image_id or unit.image,
            environment=_environment(unit, addresses[names[0]], addresses[name], len(names)),
        )
        for rank, name in enumerate(names)
    )


# claim: serving.start
def rank_argv(rack: Rack, unit: ServedUnit, rank: int, addresses: Mapping[str, IPv4Address]) -> tuple[str, ...]:
    """Return the program of a rank and its arguments.

    Args:
        rack: the rack, whose rules hold.
        unit: one of its units.
        rank: the place of the node in the unit, from 0, the head.
        addresses: the address of each node for traffic beside RDMA.
    """
    names = unit.ranks(rack.nodes)
    head, own = addresses[names[0]], addresses[names[rank]]
    options, meeting = _options(unit), master_port(served_units(rack), rack.nodes, unit)
    if unit.kind == "sglang":
        argv = ["python3", "-m", "sglang.launch_server", "--model-path", f"{INSIDE_MODELS}/{unit.model}", *options]
        if len(names) > 1:
            argv += ["--nnodes", str(len(names)), "--node-rank", str(rank), "--dist-init-addr", f"{head}:{meeting}"]
        if rank == 0:
            argv += _listen(rack, unit)
            # claim: serving.sglang-api-key
            argv += ["--config", INSIDE_KEY] if unit.api.key else []
        return tuple(argv)
    if unit.engine == "vllm-ray" and rank:
        return (
            *("ray", "start", "--block", f"--address={head}:{RAY_PORT}", f"--node-ip-address={own}"),
            "--disable-usage-stats",
        )
    argv = ["vllm", "serve", f"{INSIDE_MODELS}/{unit.model}", *options]
    if unit.engine == "vllm-ray" and len(names) > 1:
        argv += ["--distributed-executor-backend", "ray"]
        argv = ["bash", "-c", RAY_HEAD, "ray-head", str(head), str(RAY_PORT), *argv]
    elif len(names) > 1:
        argv += ["--nnodes", str(len(names)), "--node-rank", str(rank), "--master-addr", str(head)]
        argv += ["--master-port", str(meeting), *(["--headless"] if rank else [])]
    return (*argv, *(_listen(rack, unit) if rank == 0 else []))


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


def _listen(rack: Rack, unit: ServedUnit) -> list[str]:
    return ["--host", str(api_address(rack, unit)), "--port", str(unit.api.port)]


def _options(unit: ServedUnit) -> list[str]:
    """Return the options that are the same on all ranks: from the keys of the unit, then `args`."""
    split = unit.parallel
    args = {key: plain_argument(value) for key, value in unit.args.items()}
    named = [] if "served-model-name" in args else ["--served-model-name", unit.model]
    if unit.kind == "sglang":
        pairs = {
            "--tp-size": split.tensor,
            "--pp-size": split.pipeline,
            **({"--ep-size": split.tensor} if split.expert else {}),
            "--context-length": unit.context,
            "--max-running-requests": unit.sequences,
            "--mem-fraction-static": unit.memory,
        }
    else:
        pairs = {
            "--tensor-parallel-size": split.tensor,
            "--pipeline-parallel-size": split.pipeline,
            "--max-model-len": unit.context,
            "--max-num-seqs": unit.sequences,
            "--gpu-memory-utilization": unit.memory or KV_SHARE,
            **({"--kv-cache-memory-bytes": mebibytes(unit.kv) * 2**20} if unit.kv else {}),
            **({"--shutdown-timeout": seconds(unit.drain)} if _has(unit, "--shutdown-timeout") else {}),
        }
    expert = ["--enable-expert-parallel"] if split.expert and unit.kind == "vllm" else []
    # Without it SGLang has no /metrics, by which the coordinator tells an engine that computes from one that hangs.
    metrics = ["--enable-metrics"] if unit.kind == "sglang" else []
    given = [word for name, value in pairs.items() for word in (name, str(value))]
    return [*named, *given, *expert, *metrics, *render(unit.kind, unit.version, args)]


def _has(unit: ServedUnit, option: str) -> bool:
    known = table(unit.kind)
    release = known.judging(unit.version)
    return release is not None and option in known.of(release)


def joins_by_ray(unit: ServedUnit, count: int) -> bool:
    """Return whether Ray joins the nodes of a unit, of which there are so many."""
    return unit.engine == "vllm-ray" and count > 1


def _docker(unit: ServedUnit, rank: int, program: str, memory: str, image_id: str | None, ray: bool) -> tuple[str, ...]:
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
        key = f"{UNIT_FILES / unit.name}.key"
        found += ["--volume", f"{key}:{INSIDE_KEY}:ro"] if unit.kind == "sglang" else ["--env-file", key]
    if ray:
        # claim: serving.ray-token
        found += [word for name, value in RAY_VARIABLES.items() for word in ("--env", f"{name}={value}")]
        found += ["--volume", f"{UNIT_FILES / unit.name}.ray:{INSIDE_RAY_TOKEN}:ro"]
    found += ["--volume", f"{MODEL_STORE / unit.model}:{INSIDE_MODELS}/{unit.model}:ro"]
    if unit.cache:
        found += ["--volume", f"{cache_folder(unit, image_id)}:{INSIDE_CACHE}"]
    return tuple(found)


def cache_folder(unit: ServedUnit, image_id: str | None) -> PurePosixPath:
    """Return the folder of a node for what a unit compiles with this image."""
    return CACHES / unit.name / (image_id or "unpinned").removeprefix("sha256:")[:12]


def _environment(unit: ServedUnit, head: IPv4Address, own: IPv4Address, ranks: int) -> dict[str, str]:
    found = {"HF_HUB_OFFLINE": "1", "MASTER_ADDR": str(head)}
    if ranks > 1:
        # NCCL then says once which network it uses: `Using network IB`, or `Socket`.
        found |= {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET"}
    if unit.kind == "sglang":
        found["SGLANG_HOST_IP"] = str(own)
    else:
        found |= {"VLLM_HOST_IP": str(own), "VLLM_NO_USAGE_STATS": "1"}
    if unit.engine == "vllm-ray":
        found["RAY_memory_monitor_refresh_ms"] = "0"
        # Ray drains for 30 s before it obeys SIGTERM, also when its head is gone (measured, Ray 2.60).
        found["RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S"] = "0"
    if unit.cache:
        found |= {
            "XDG_CACHE_HOME": INSIDE_CACHE,
            "TORCHINDUCTOR_CACHE_DIR": f"{INSIDE_CACHE}/inductor",
            "TRITON_CACHE_DIR": f"{INSIDE_CACHE}/triton",
            "FLASHINFER_WORKSPACE_BASE": f"{INSIDE_CACHE}/flashinfer",
        }
        if unit.kind == "vllm" and ranks > 1:
            found["VLLM_FLASHINFER_AUTOTUNE_CACHE_DIR"] = INSIDE_AUTOTUNE
    return dict(sorted({**found, **unit.env}.items()))
