"""What llama.cpp's server prints when a phase of its start begins and ends. Pure.

Source: tools/server/server.cpp and src/llama-model-loader.cpp. One process has no rendezvous, and captures its graphs
while it answers.
"""

from __future__ import annotations

from serving.engines.start_phases import PhaseLines

PHASES: PhaseLines = {
    "weights": {
        "begin": r"load_model: loading model|llama_model_loader: loaded meta data",
        "end": r"main: model loaded",
    },
    "answer": {"begin": r"main: server is listening on"},
}
