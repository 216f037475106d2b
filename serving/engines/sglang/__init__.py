"""SGLang."""

from __future__ import annotations

from pathlib import Path

from serving.engines.engine import INSIDE_KEY, RANK_OPTIONS, KeyForm, Progress, RankPlace, ServingEngine
from serving.engines.sglang.bench import BENCH
from serving.engines.sglang.host import host_memory
from serving.engines.sglang.start_log import LOG
from serving.engines.sglang.start_phases import PHASES

KEY_PATH = f"{INSIDE_KEY}.yaml"
"""Place in the container of the file by which SGLang gets its key."""
PROGRESS = Progress(
    # The first rises with the steps (0.5.9 and later), the others when a request has finished
    # (managers/tokenizer_manager.py).
    counters=("sglang:realtime_tokens_total", "sglang:generation_tokens_total", "sglang:prompt_tokens_total"),
    # Set with each part of a prompt and every 40 steps of decoding; 0.5.4 and 0.5.6 have nothing else that moves.
    gauges=("sglang:num_used_tokens",),
    requests=("sglang:num_running_reqs", "sglang:num_queue_reqs"),
)


def argv(place: RankPlace) -> list[str]:
    """Return the command of a rank."""
    unit = place.unit
    split = unit.parallel
    pairs = {
        "--tp-size": split.tensor,
        "--pp-size": split.pipeline,
        **({"--ep-size": split.tensor} if split.expert else {}),
        "--context-length": unit.context,
        "--max-running-requests": unit.sequences,
        "--mem-fraction-static": unit.memory,
    }
    given = [word for name, value in pairs.items() for word in (name, str(value))]
    words = ["python3", "-m", "sglang.launch_server", "--model-path", place.model, *place.names, *given]
    # Without it SGLang has no /metrics, by which the coordinator tells an engine that computes from one that hangs.
    words += ["--enable-metrics", *place.args]
    if place.ranks > 1:
        words += ["--nnodes", str(place.ranks), "--node-rank", str(place.rank)]
        words += ["--dist-init-addr", f"{place.head}:{place.meeting}"]
    return [*words, *place.listen]


ENGINES = (
    ServingEngine(
        name="sglang",
        family="sglang",
        title="SGLang",
        package="sglang",
        argv=argv,
        environment=lambda place: {"SGLANG_HOST_IP": str(place.own)},
        # claim: serving.sglang-api-key
        key=lambda _: KeyForm(option="--config", path=KEY_PATH, yaml=True),
        progress=lambda _: PROGRESS,
        looks=lambda _unit, _rank, _ranks: ("module:sglang",),
        owned=RANK_OPTIONS,
        table=Path(__file__).with_name("options.json"),
        own_address="SGLANG_HOST_IP",
        bench=BENCH,
        host=host_memory,
        log=LOG,
        phases=PHASES,
    ),
)
