"""llama-server, from its wheel: the words of its command become the parameters of the server, which is a library there.

Arguments: those of llama-server, `--port 0` for any free one. Prints where it listens, and serves until it is ended.
"""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import xllamacpp


def main(words: list[str]) -> None:
    """Serve as the words say. A switch has no value."""
    given = {
        word: words[place + 1] if place + 1 < len(words) and not words[place + 1].startswith("--") else ""
        for place, word in enumerate(words)
        if word.startswith("--")
    }
    made = xllamacpp.CommonParams()
    made.model.path, made.model_alias = given["--model"], {given["--alias"]}
    made.n_ctx, made.n_parallel = int(given["--ctx-size"]), int(given["--parallel"])
    made.fit_params, made.cache_ram_mib = given["--fit"] == "on", int(given["--cache-ram"])
    made.load_mode = getattr(xllamacpp.llama_load_mode, "LLAMA_LOAD_MODE_" + given["--load-mode"].upper())
    made.endpoint_metrics, made.hostnames, made.port = "--metrics" in given, [given["--host"]], int(given["--port"])
    made.api_keys = Path(given["--api-key-file"]).read_text().split()
    made.cpuparams.n_threads = made.cpuparams_batch.n_threads = made.n_threads_http = 1
    server = xllamacpp.Server(made)
    print(server.listening_address, flush=True)
    signal.sigwait({signal.SIGTERM, signal.SIGINT})


if __name__ == "__main__":
    main(sys.argv[1:])
