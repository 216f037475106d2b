"""What SGLang prints when a phase of its start begins and ends: 0.5.4 to 0.5.23. Pure.

Sources, in 0.5.23: srt/distributed/bootstrap.py (`Init torch distributed` before), srt/model_executor/model_runner.py,
srt/model_executor/model_runner_components/cuda_graph_setup.py (`Capture cuda graph` before),
srt/entrypoints/http_server.py. It prints nothing of what it compiles.
"""

from __future__ import annotations

from serving.engines.start_phases import PhaseLines

PHASES: PhaseLines = {
    "rendezvous": {
        "begin": r"Init (?:parallel|torch distributed) begin",
        "end": r"Init (?:parallel|torch distributed) ends",
    },
    "weights": {"begin": r"Load weight begin", "end": r"Load weight end"},
    "graphs": {"begin": r"Capture .*(?:CUDA|cuda) graph begin", "end": r"Capture .*(?:CUDA|cuda) graph end"},
    "answer": {"begin": r"Uvicorn running on|Application startup complete"},
}
