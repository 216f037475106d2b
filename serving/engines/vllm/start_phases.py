"""What vLLM prints when a phase of its start begins and ends: 0.10.2 to 0.33.0. Pure.

Sources, in 0.32.0: distributed/parallel_state.py, v1/worker/gpu_model_runner.py, v1/worker/gpu/model_runner.py,
compilation/monitor.py, compilation/decorators.py. Up to 0.17 torch.compile `takes`, later it `took`. Graphs that were
compiled before are loaded from the cache and announce no begin, so their seconds tell it. Uvicorn prints that the
application is there in each release.
"""

from __future__ import annotations

from serving.engines.start_phases import SECONDS, PhaseLines

# claim: serving.start-phases
PHASES: PhaseLines = {
    "rendezvous": {
        "begin": r"world_size=\d+ rank=\d+ .*distributed_init_method=",
        "end": r"rank \d+ in world size \d+ is assigned as ",
    },
    "weights": {"begin": r"Starting to load model ", "end": rf"Model loading took .* and {SECONDS} seconds"},
    "compile": {
        "begin": r"Starting torch\.compile",
        "end": rf"torch\.compile (?:and initial profiling/warmup run together )?(?:takes|took) {SECONDS} s in total",
    },
    "graphs": {"end": rf"Graph capturing finished in {SECONDS} secs"},
    "answer": {"begin": r"Application startup complete"},
}
RAY_PHASES: PhaseLines = {
    **PHASES,
    "rendezvous": {
        "begin": r"Connecting to existing Ray cluster at address|world_size=\d+ rank=\d+ .*distributed_init_method=",
        "end": PHASES["rendezvous"]["end"],
    },
}
"""With Ray the head has the lines of all ranks."""
