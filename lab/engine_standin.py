#!/usr/bin/python3
"""Stand-in for the engines of a served unit over several nodes, which fails as vLLM 0.32 was measured to fail.

    vllm serve MODEL [--nnodes N --node-rank R --master-addr A --master-port P] [--headless] [--port PORT] ...
    vllm serve MODEL --distributed-executor-backend ray [--tensor-parallel-size T --pipeline-parallel-size P] ...
    vllm bench serve --base-url URL ...
    sglang --model-path MODEL [--nnodes N --node-rank R --dist-init-addr A:P] [--config FILE] [--port PORT] ...

It is the program `vllm`, and the module `sglang.launch_server`, in the lab's images of served units; its parts are in
lab/engine. A MODEL that is a folder must have a config.json, and what an option names below /models, in JSON too, must
be there, as must the template of chats: it is printed with a digest. An image has the table of engine options beside
it: an option that the release of the image does not take ends it with 2. The other options of the real ones have no
effect. Each answer names the folder of its model as `system_fingerprint`.

The ranks meet over TCP, or in Ray (ray_standin.py), and each completion is one round trip to every rank. What was
measured with vLLM:

- whatever ends it, its exit code is 0; only a failure to start gives 1;
- /health answers 200 beside a dead, frozen or cut-off rank;
- a request waits for a rank that does not answer until STANDIN_EXECUTE_SECONDS (300), then fails, and the head ends;
  a rank whose connection was closed fails the next request at once;
- a headless rank outlives its head; when a worker process dies, its own node ends STANDIN_GRACE_SECONDS (12) later;
- a missing rank is waited for until --distributed-timeout-seconds (1800), then the head ends with 1;
- SIGTERM ends a rank STANDIN_STOP_SECONDS (6) later;
- SIGKILL leaves its shared memory behind, a file in STANDIN_SHM.
  So does SIGTERM on a head while a rank does not answer.

- while one long prompt is computed in parts, no counter rises and no other request is answered; the share of the cache
  that is in use changes with each part.

What differs by SGLang's source, and was not measured: the other ranks answer /health with 200, too; an engine that
fails is killed (137); /metrics exists with --enable-metrics only; any name of a model is taken; tokens are counted when
their request has finished, but for realtime_tokens_total, which 0.5.4 does not have; a prompt is counted before it is
computed, and its request is not one of the running ones (managers/tokenizer_manager.py, scheduler_metrics_mixin.py).

With `--runner pooling`, or `--is-embedding`, it computes numbers: /v1/embeddings and /v1/rerank answer, in the form of
the engine, and the paths of text are not there (404, measured with vLLM 0.32; SGLang completes no text by its source).
An embedding counts the words of a text, so that texts with the same words are near; a score counts the words that
query and document share. Without it, SGLang's /v1/embeddings has 400, and /v1/rerank ranks by the next token.

A file in STANDIN_FAULTS injects a fault (lab/engine/faults.py). STANDIN_TUNED is what a setting of the unit does to its
speed and its answers (lab/engine/tuned_setting.py). The key of the API, VLLM_API_KEY or `api-key` in SGLang's file of
options, guards /v1, as in the real engines. Standard library only.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from http.server import ThreadingHTTPServer
from pathlib import Path

FOLDER = Path(__file__).resolve().parent
# In an image the packages stand beside this program, in the repository above it.
sys.path.insert(0, str(FOLDER if (FOLDER / "lab").is_dir() else FOLDER.parent))
from lab import rdma_standin  # noqa: E402
from lab.engine import measuring_tool  # noqa: E402
from lab.engine.api import DummyApi, StandInApi  # noqa: E402
from lab.engine.arguments import api_key, arguments  # noqa: E402
from lab.engine.engine_process import GRACE_SECONDS, StandInEngine  # noqa: E402
from lab.engine.model_files import content_digest  # noqa: E402
from lab.engine.ranks import head_worker, other_worker, ray_worker  # noqa: E402
from lab.engine.start_lines import print_phase  # noqa: E402


def main(words: list[str]) -> None:
    if words[:2] == ["bench", "serve"]:
        sys.exit(measuring_tool.measure(words[2:]))
    if words[0] == "worker":
        given = arguments(words[1:])
        if given.distributed_executor_backend == "ray":
            ray_worker(given)
        else:
            (other_worker if given.headless else head_worker)(given)
        return
    given = arguments(words)
    begun = time.monotonic()
    engine = StandInEngine(given, api_key(given), [sys.executable, __file__, "worker", *words])
    signal.signal(signal.SIGTERM, lambda *_: engine.stop())
    for path in given.named:
        print(f"reads {path}, sha256 {content_digest(path)}", flush=True)
    print_phase(given.engine, "rendezvous", begins=True)
    engine.wait_until_ready()
    print_phase(given.engine, "rendezvous", begins=False)
    if given.nnodes > 1 or given.distributed_executor_backend == "ray":
        rdma_standin.announce()
    print(f"the ranks have met after {time.monotonic() - begun:.1f} s", flush=True)
    threading.Thread(target=engine.watch_worker, daemon=True).start()
    for phase in ("weights", "compile", "graphs"):
        for begins in (True, False):
            print_phase(given.engine, phase, begins=begins)
    ThreadingHTTPServer.daemon_threads = True
    if given.headless:
        if given.engine == "sglang":
            dummy = ThreadingHTTPServer((given.host, given.port), DummyApi)
            threading.Thread(target=dummy.serve_forever, daemon=True).start()
        engine.worker.wait()
        time.sleep(GRACE_SECONDS * 2)
        return
    threading.Thread(target=engine.load, daemon=True).start()
    StandInApi.engine = engine
    server = ThreadingHTTPServer((given.host, given.port), StandInApi)
    print("INFO:     Application startup complete.", flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main(sys.argv[1:])
