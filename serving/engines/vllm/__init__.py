"""vLLM, whose ranks find each other by themselves (`vllm`), or are joined by Ray (`vllm-ray`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from serving.engines.engine import (
    RANK_OPTIONS,
    RAY_PORT,
    KeyForm,
    OptionSyntax,
    Progress,
    RankPlace,
    ServingEngine,
)
from serving.engines.vllm.bench import BENCH
from serving.engines.vllm.host import host_memory
from serving.engines.vllm.start_log import LOG, RAY_LOG
from serving.engines.vllm.start_phases import PHASES, RAY_PHASES

if TYPE_CHECKING:
    from serving.options import ServedUnit

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
PLUGINS: Mapping[str, str] = {
    "--tool-call-parser": "--tool-parser-plugin",
    "--reasoning-parser": "--reasoning-parser-plugin",
}
PROGRESS = Progress(
    # They rise with each step that has an output, which a part of a long prompt has not (0.32, v1/engine/async_llm.py).
    counters=("vllm:iteration_tokens_total_count", "vllm:generation_tokens_total", "vllm:prompt_tokens_total"),
    # The tokens in its cache, which change also within a long prompt.
    gauges=("vllm:kv_cache_usage_perc",),
    requests=("vllm:num_requests_running", "vllm:num_requests_waiting"),
)


def serve(place: RankPlace) -> list[str]:
    """Return the command without what joins ranks, and without the address of the API."""
    unit = place.unit
    split = unit.parallel
    pairs = {
        "--tensor-parallel-size": split.tensor,
        "--pipeline-parallel-size": split.pipeline,
        "--max-model-len": unit.context,
        "--max-num-seqs": unit.sequences,
        "--gpu-memory-utilization": unit.memory or KV_SHARE,
        **({"--kv-cache-memory-bytes": place.kv} if place.kv is not None else {}),
        **({"--shutdown-timeout": place.drain} if "--shutdown-timeout" in place.known else {}),
    }
    given = [word for name, value in pairs.items() for word in (name, str(value))]
    expert = ["--enable-expert-parallel"] if split.expert else []
    return ["vllm", "serve", place.model, *place.names, *given, *expert, *place.args]


def argv(place: RankPlace) -> list[str]:
    """Return the command of a rank."""
    words = serve(place)
    if place.ranks > 1:
        words += ["--nnodes", str(place.ranks), "--node-rank", str(place.rank), "--master-addr", str(place.head)]
        words += ["--master-port", str(place.meeting), *(["--headless"] if place.rank else [])]
    return [*words, *place.listen]


def argv_on_ray(place: RankPlace) -> list[str]:
    """Return the command of a rank: Ray, and on the head the engine, too."""
    if place.rank:
        return [
            *("ray", "start", "--block", f"--address={place.head}:{RAY_PORT}", f"--node-ip-address={place.own}"),
            "--disable-usage-stats",
        ]
    words = serve(place)
    if place.ranks > 1:
        words = ["bash", "-c", RAY_HEAD, "ray-head", str(place.head), str(RAY_PORT), *words]
        words += ["--distributed-executor-backend", "ray"]
    return [*words, *place.listen]


def environment(place: RankPlace) -> dict[str, str]:
    """Return the variables of a rank."""
    found = {"VLLM_HOST_IP": str(place.own), "VLLM_NO_USAGE_STATS": "1"}
    if place.unit.kept_cache and place.ranks > 1:
        found["VLLM_FLASHINFER_AUTOTUNE_CACHE_DIR"] = INSIDE_AUTOTUNE
    return found


def environment_on_ray(place: RankPlace) -> dict[str, str]:
    """The same with Ray, which drains for 30 s before it obeys SIGTERM, also when its head is gone (measured, 2.60)."""
    ray = {"RAY_memory_monitor_refresh_ms": "0", "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0"}
    return environment(place) | ray


def looks_with_ray(_: ServedUnit, rank: int, ranks: int) -> Sequence[str]:
    """Return what the gate looks for in the image."""
    if ranks == 1:
        return ("program:vllm",)
    return ("program:vllm", "program:ray", *(() if rank else ("program:bash",)))


VLLM = ServingEngine(
    name="vllm",
    family="vllm",
    title="vLLM",
    package="vllm",
    argv=argv,
    environment=environment,
    key=lambda _: KeyForm(variable="VLLM_API_KEY"),
    progress=lambda _: PROGRESS,
    looks=lambda _unit, _rank, _ranks: ("program:vllm",),
    owned=RANK_OPTIONS,
    table=Path(__file__).with_name("options.json"),
    syntax=OptionSyntax(model_first=True, paths=True, plugins=PLUGINS, by_minor=True),
    own_address="VLLM_HOST_IP",
    bench=BENCH,
    host=host_memory,
    log=LOG,
    phases=PHASES,
)
ENGINES = (
    VLLM,
    replace(
        VLLM,
        name="vllm-ray",
        argv=argv_on_ray,
        environment=environment_on_ray,
        looks=looks_with_ray,
        ray=True,
        log=RAY_LOG,
        phases=RAY_PHASES,
    ),
)
