#!/usr/bin/python3
"""Stand-in for the engines of a served unit over several nodes, which fails as vLLM 0.32 was measured to fail.

    vllm serve MODEL [--nnodes N --node-rank R --master-addr A --master-port P] [--headless] [--port PORT] ...
    vllm serve MODEL --distributed-executor-backend ray [--tensor-parallel-size T --pipeline-parallel-size P] ...
    sglang --model-path MODEL [--nnodes N --node-rank R --dist-init-addr A:P] [--config FILE] [--port PORT] ...

It is the program `vllm`, and the module `sglang.launch_server`, in the lab's images of served units. A MODEL that is a
folder must have a config.json, and what an option names below /models, in JSON too, must be there, as must the template
of chats: it is printed with a digest. An image has the table of engine options beside it: an option that the release of
the image does not take ends it with 2. The other options of the real ones have no effect. Each answer names the folder
of its model as `system_fingerprint`.

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

A file in STANDIN_FAULTS injects a fault: `livelock` (completions hang, nothing moves), `busy` (completions hang behind
long generations), `prefill` (completions hang behind a long prompt), `completions` (/v1/completions hangs,
/v1/chat/completions does not), `wrong` (another answer), `slow` (a stream stops after its first part), `status`
(completions get the HTTP status in the file), `old` (metrics of SGLang 0.5.4), `garbage` (its content is the text of
each answer), `pooled` (its content is what is wrong with embeddings and scores: nan, null, constant, zero, far,
dimension, short or text), `no-template` (the model has no chat template), `sockets` (NCCL does not use RDMA).

STANDIN_TUNED is what a setting of the unit does: seconds that each request takes, or `garbage` (each answer is one),
and after some requests `hangs` (no further answer), `ends` (the engine ends) or `eats` (MemAvailable of the node is
2 GiB until the engine ends, in the file STANDIN_MEMINFO). The key
of the API, VLLM_API_KEY or `api-key` in SGLang's file of options, guards /v1, as in the real engines. Standard library
only.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import zlib
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

RELEASE = Path(__file__).resolve().parent
"""Folder of an image with the release of its engine, and what judges command lines by it."""
sys.path.insert(0, str(RELEASE if (RELEASE / "lab").is_dir() else RELEASE.parent))
from lab import rdma_standin  # noqa: E402

EXECUTE_SECONDS = float(os.environ.get("STANDIN_EXECUTE_SECONDS", "300"))
GRACE_SECONDS = float(os.environ.get("STANDIN_GRACE_SECONDS", "12"))
STOP_SECONDS = float(os.environ.get("STANDIN_STOP_SECONDS", "6"))
FAULTS = Path(os.environ.get("STANDIN_FAULTS", "/nonexistent"))
CHECK_MODEL = "STANDIN_NO_MODEL" not in os.environ
"""Outside of a container the path of the model names no folder."""
RAY = Path(os.environ.get("RAY_TMPDIR", "/tmp"), "ray/ray_current_cluster")  # noqa: S108 - as in Ray
"""The file in which the head of Ray has its address."""
TUNED = os.environ.get("STANDIN_TUNED", "")
TUNED_REQUESTS = 8
"""Requests after which `hangs`, `ends` and `eats` are so: a start is proven by fewer."""
CHAT_ANSWER = "A stand-in for an engine, in a virtual rack."
ANSWERS = {"2+2=": "4, as is 1+3=", "Who are you?": CHAT_ANSWER}
DIMENSION = 64
"""Numbers of an embedding where the model has no configuration."""
NOT_EMBEDDING = (
    "This model does not appear to be an embedding model by default. Please add `--is-embedding` when launching the "
    "server or try another model."
)
"""SGLang's words (managers/tokenizer_manager.py), with HTTP status 400."""
NO_TEMPLATE = (
    "As of transformers v4.44, default chat template is no longer allowed, so you must provide a chat template if the "
    "tokenizer does not define one."
)
"""vLLM's words (entrypoints/chat_utils.py), with HTTP status 400."""
REQUEST_COUNTERS = {
    "vllm": ("num_requests_running", "num_requests_waiting"),
    "sglang": ("num_running_reqs", "num_queue_reqs"),
}
"""Requests that run and that wait, by engine."""


def arguments(words: list[str]) -> argparse.Namespace:
    """Read a command line. The fields are those of vLLM, whichever engine it is."""
    engine = "sglang" if words[0] == "sglang" else "vllm"
    parser = argparse.ArgumentParser(prog=engine, allow_abbrev=False)
    parser.add_argument("verb", choices=["serve", "sglang"])
    parser.add_argument("--served-model-name")
    parser.add_argument("--nnodes", type=int, default=1)
    parser.add_argument("--node-rank", type=int, default=0)
    parser.add_argument("--tool-call-parser")
    if engine == "sglang":
        parser.add_argument("--model-path", dest="model", required=True)
        parser.add_argument("--dist-init-addr", default="127.0.0.1:29501")
        parser.add_argument("--dist-timeout", type=float, default=1800, dest="distributed_timeout_seconds")
        parser.add_argument("--config")
        parser.add_argument("--enable-metrics", action="store_true")
        parser.add_argument("--is-embedding", action="store_true", dest="pools")
        parser.add_argument("--host", default="127.0.0.1")
        parser.add_argument("--port", type=int, default=30000)
    else:
        parser.add_argument("model")
        parser.add_argument("--master-addr", default="127.0.0.1")
        parser.add_argument("--master-port", type=int, default=29501)
        parser.add_argument("--headless", action="store_true")
        parser.add_argument("--runner", default="auto")
        parser.add_argument("--distributed-executor-backend")
        parser.add_argument("--tensor-parallel-size", type=int, default=1)
        parser.add_argument("--pipeline-parallel-size", type=int, default=1)
        parser.add_argument("--host", default="0.0.0.0")  # noqa: S104
        parser.add_argument("--port", type=int, default=8000)
        parser.add_argument("--distributed-timeout-seconds", type=float, default=1800)
    given, _ = parser.parse_known_args(words)
    given.engine = engine
    given.pools = given.pools if engine == "sglang" else given.runner == "pooling"
    if engine == "sglang":
        given.headless = given.node_rank > 0
        given.master_addr, _, port = given.dist_init_addr.rpartition(":")
        given.master_port = int(port)
        given.distributed_executor_backend = None
    elif given.headless != (given.node_rank > 0):
        parser.error("every rank but the first is headless")
    if CHECK_MODEL and given.model.startswith("/") and not Path(given.model, "config.json").is_file():
        parser.error(f"{given.model} has no config.json")
    given.named = named_paths(words[1:]) if CHECK_MODEL else []
    if absent := [path for path in given.named if not Path(path).exists()]:
        parser.error(f"{', '.join(absent)}: no such file or folder")
    if problems := unknown_options(engine, words[1:]):
        parser.error("; ".join(problems))
    given.served_model_name = given.served_model_name or given.model
    return given


def named_paths(words: list[str]) -> list[str]:
    """Return the files and folders of models that a command line names, in JSON too, and its template of chats."""
    found = set()
    for number, word in enumerate(words):
        option, equals, value = word.partition("=")
        option, value = (option, value) if equals and option.startswith("--") else (words[number - 1], word)
        try:
            read = json.loads(value)
        except ValueError:
            read = value
        texts = [read]
        while texts:
            text = texts.pop()
            if isinstance(text, (dict, list)):
                texts += text.values() if isinstance(text, dict) else text
            elif isinstance(text, str) and (text.startswith("/models/") or option == "--chat-template"):
                found.add(text)
    return sorted(found)


def content_digest(path: str) -> str:
    """Return a digest of a file, or of the names and contents of all files of a folder; hidden ones do not count."""
    root = Path(path)
    files = sorted(one for one in root.rglob("*") if one.is_file()) if root.is_dir() else [root]
    digest = hashlib.sha256()
    for file in files:
        place = file.relative_to(root)
        if not any(part.startswith(".") for part in place.parts):
            digest.update(f"{place} {hashlib.sha256(file.read_bytes()).hexdigest()}\n".encode())
    return digest.hexdigest()


def unknown_options(engine: str, words: list[str]) -> list[str]:
    """Return what the release of the image does not take of a command line; nothing outside of an image."""
    release = RELEASE / "release.json"
    if not release.exists():
        return []
    known = json.loads(release.read_text())
    if known["engine"] != engine:
        return [f"the image has {known['engine']}, not {engine}"]
    sys.path.insert(0, str(RELEASE))
    from serving.engines.command_line import judge

    return [problem.message for problem in judge(known["engine"], known["version"], words).problems]


def api_key(given: argparse.Namespace) -> str | None:
    """Return the key of the API, None when it has none."""
    if given.engine == "vllm":
        return os.environ.get("VLLM_API_KEY")
    lines = Path(given.config).read_text().splitlines() if given.config else []
    keys = [json.loads(line.partition(":")[2]) for line in lines if line.startswith("api-key:")]
    return str(keys[0]) if keys else None


# What an engine that pools computes


def fault_of_numbers() -> str:
    """Return what is to be wrong with embeddings and scores; nothing when they are right."""
    file = FAULTS / "pooled"
    return file.read_text().strip() if file.exists() else ""


def words_of(text: str) -> list[str]:
    return "".join(mark.lower() if mark.isalnum() else " " for mark in text).split()


def embedding(given: argparse.Namespace, place: int, text: str) -> Any:
    """Return the embedding of a text, the one at this place of a request: how often it has which words."""
    config = Path(given.model, "config.json")
    size = json.loads(config.read_text()).get("hidden_size", DIMENSION) if config.is_file() else DIMENSION
    fault = fault_of_numbers()
    size += fault == "dimension"
    vector: list[Any] = [0.0] * size
    for word in words_of(text):
        vector[zlib.crc32(word.encode()) % size] += 1.0
    match fault:
        case "nan" | "null":
            vector[0] = float("nan") if fault == "nan" else None
        case "constant":
            return [0.5] * size
        case "zero":
            return [0.0] * size
        case "far":
            return [float(index == place % 2) for index in range(size)]
        case "short":
            return vector[: size - place]
        case "text":
            return "AACAPwAAAEA="
    return vector


def ranking(given: argparse.Namespace, query: str, documents: list[str]) -> Any:
    """Return the answer of a ranking in the form of the engine: vLLM's results in an object, SGLang's list."""
    fault, asked = fault_of_numbers(), set(words_of(query))
    scores: list[Any] = [len(asked & set(words_of(one))) / len(asked) for one in documents]
    match fault:
        case "nan" | "null":
            scores = [float("nan") if fault == "nan" else None for _ in scores]
        case "constant" | "zero":
            scores = [0.5 if fault == "constant" else 0.0 for _ in scores]
        case "far":
            scores = [-score for score in scores]
        case "short":
            scores = scores[:1]
        case "text":
            scores = ["high" for _ in scores]
    order = (
        range(len(scores))
        if fault in ("nan", "null", "text")
        else sorted(range(len(scores)), key=lambda one: -scores[one])
    )
    if given.engine == "sglang":
        return [{"score": scores[one], "document": documents[one], "index": one, "meta_info": {}} for one in order]
    results = [{"index": one, "document": {"text": documents[one]}, "relevance_score": scores[one]} for one in order]
    return {"id": "score-0", "model": given.served_model_name, "usage": {"total_tokens": 9}, "results": results}


# The worker process: the rank itself


def head_worker(given: argparse.Namespace) -> None:
    """Meet all ranks, then take `step` from standard input: one round trip to every rank, then `ok` or `error`."""
    ranks: list[socket.socket] = []
    with socket.create_server((given.master_addr, given.master_port)) as listener:
        until = time.monotonic() + given.distributed_timeout_seconds
        while len(ranks) < given.nnodes - 1:
            listener.settimeout(max(0.01, until - time.monotonic()))
            ranks.append(listener.accept()[0])
    print("ready", flush=True)
    take_steps(ranks)


def ray_worker(given: argparse.Namespace) -> None:
    """Ask Ray for a node for each rank, and then take steps by way of its head, which asks all nodes."""
    address, _, port = RAY.read_text().rpartition(":")
    head = socket.create_connection((address, int(port)))
    nodes = given.tensor_parallel_size * given.pipeline_parallel_size
    head.sendall(f"driver {nodes}\n".encode())
    head.settimeout(given.distributed_timeout_seconds)
    if head.recv(1) != b"r":
        sys.exit(1)
    print("ready", flush=True)
    take_steps([head])


def take_steps(ranks: list[socket.socket]) -> None:
    """Answer each line of standard input when every rank has answered."""
    for _ in sys.stdin:
        try:
            for rank in ranks:
                rank.settimeout(EXECUTE_SECONDS)
                rank.sendall(b"s")
            for rank in ranks:
                if rank.recv(1) != b"d":
                    raise ConnectionResetError
            rdma_standin.move()
        except OSError:
            print("error", flush=True)
        else:
            print("ok", flush=True)


def other_worker(given: argparse.Namespace) -> None:
    """Meet the head, answer its steps, and stay when it is gone."""
    until = time.monotonic() + given.distributed_timeout_seconds
    while True:
        try:
            head = socket.create_connection((given.master_addr, given.master_port), timeout=2)
            break
        except OSError:
            if time.monotonic() > until:
                sys.exit(1)
            time.sleep(0.1)
    print("ready", flush=True)
    head.settimeout(None)
    with contextlib.suppress(OSError):
        while head.recv(1):
            rdma_standin.move()
            head.sendall(b"d")
    while True:
        time.sleep(3600)


# The parent process: API and engine


def available_memory(gib: int) -> None:
    """Have /proc/meminfo of the node say how much memory is available."""
    Path(os.environ["STANDIN_MEMINFO"]).write_text(f"MemAvailable: {gib * 1024**2} kB\n")


class StandInEngine:
    """The worker process of this node and, on the head, the requests to it."""

    def __init__(self, given: argparse.Namespace, words: list[str]) -> None:
        self.given, self.key = given, api_key(given)
        self.shm = Path(os.environ.get("STANDIN_SHM", "/dev/shm")) / f"standin_{os.getpid()}"  # noqa: S108
        self.shm.write_bytes(bytes(65536))
        self.worker = subprocess.Popen(
            [sys.executable, __file__, "worker", *words], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.lock, self.counting = threading.Lock(), threading.Lock()
        self.tokens = self.requests = 0
        self.asked = 0
        self.steps = self.used = 0
        """Tokens of SGLang's realtime counter, and those in the cache."""

    def end(self, code: int) -> None:
        """End in order: the shared memory goes."""
        if TUNED == "eats":
            available_memory(100)
        self.worker.kill()
        self.shm.unlink(missing_ok=True)
        os._exit(code)

    def stop(self) -> None:
        """Obey SIGTERM."""
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        waits = self.lock.locked()  # its worker is killed, and does not remove the shared memory
        time.sleep(STOP_SECONDS)
        if waits:
            self.worker.kill()
            os._exit(0)
        self.end(0)

    def wait_until_ready(self) -> None:
        assert self.worker.stdout  # noqa: S101 - a pipe
        if self.worker.stdout.readline() != "ready\n":
            self.end(1)

    def watch_worker(self) -> None:
        self.worker.wait()
        time.sleep(GRACE_SECONDS)
        self.end(0)

    def load(self) -> None:
        """Requests of others, as long as the fault `busy` or `prefill` is injected."""
        while True:
            if (FAULTS / "busy").exists():
                self.tokens += 7 if self.given.engine == "vllm" else 0
                self.steps, self.used = self.steps + 7, self.used + 7
            if (FAULTS / "prefill").exists():
                self.steps, self.used = self.steps + 512, self.used + 512
            time.sleep(0.05)

    def metrics(self) -> dict[str, float]:
        """Return counters and gauges by their names."""
        # An engine that pools generates nothing, and counts the tokens of its prompts (measured with vLLM 0.32).
        counted = "prompt_tokens_total" if self.given.pools else "generation_tokens_total"
        found: dict[str, float] = {"prompt_tokens_total": 0, "generation_tokens_total": 0, counted: self.tokens}
        running, waiting = REQUEST_COUNTERS[self.given.engine]
        prefill = (FAULTS / "prefill").exists()
        if self.given.engine == "vllm":
            return found | {
                "kv_cache_usage_perc": self.used / 2**20,
                running: self.requests + prefill,
                waiting: 0,
            }
        if not (FAULTS / "old").exists():
            found["realtime_tokens_total"] = self.steps
        requests = {running: 0, waiting: self.requests} if prefill else {running: self.requests, waiting: 0}
        return found | {"num_used_tokens": self.used} | requests

    def take_setting(self) -> None:
        """Be as slow, or as bad, as the setting that is tried makes it."""
        with self.counting:
            self.asked += 1
        if TUNED.replace(".", "").isdigit():
            time.sleep(float(TUNED))
        if self.asked <= TUNED_REQUESTS:
            return
        if TUNED == "ends":
            self.end(1)
        if TUNED == "eats":
            available_memory(2)
        while TUNED == "hangs":
            time.sleep(0.05)

    def step(self) -> bool:
        self.take_setting()
        assert self.worker.stdin  # noqa: S101 - a pipe
        assert self.worker.stdout  # noqa: S101 - a pipe
        if self.given.engine == "sglang" and self.requests == 1:  # its loop takes no other one before this is computed
            self.steps, self.used = self.steps + 4, self.used + 4
        while any((FAULTS / fault).exists() for fault in ("livelock", "busy", "prefill")):
            time.sleep(0.05)
        with self.lock:
            try:
                self.worker.stdin.write("step\n")
                self.worker.stdin.flush()
                done = self.worker.stdout.readline() == "ok\n"
            except OSError:
                done = False
            self.tokens, self.steps = self.tokens + done, self.steps + done
        if not done:
            code = 137 if self.given.engine == "sglang" else 0
            threading.Timer(0.5, self.end, [code]).start()  # the engine is dead
        return done


class StandInApi(BaseHTTPRequestHandler):
    """The OpenAI API of the head, as far as a probe needs it."""

    engine: StandInEngine

    def do_GET(self) -> None:
        if self.path == "/health":
            self._answer(200, {})
        elif self.path == "/metrics":
            engine = self.engine.given.engine
            there = engine == "vllm" or self.engine.given.enable_metrics
            found = self.engine.metrics().items()
            lines = (f'{engine}:{name}{{engine="0"}} {float(value)}\n' for name, value in found)
            text = "# TYPE x counter\n" + "".join(lines)
            self._answer(200 if there else 404, text if there else {"detail": "Not Found"})
        elif self._allowed():
            self._answer(200, {"object": "list", "data": [{"id": self.engine.given.served_model_name}]})

    def do_POST(self) -> None:
        self.log_message(" %s ", self.path)  # when it begins
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self._allowed():
            return
        if self.engine.given.engine == "vllm" and body["model"] != self.engine.given.served_model_name:
            self._answer(404, {"error": "no such model"})
            return
        if (FAULTS / "status").exists():
            self._answer(int((FAULTS / "status").read_text()), {"error": "the fault `status`"})
            return
        while self.path == "/v1/completions" and (FAULTS / "completions").exists():
            time.sleep(0.05)
        if self.path in ("/v1/embeddings", "/v1/rerank"):
            self._pool(body)
            return
        if self.engine.given.pools:
            self._answer(404, {"detail": "Not Found"})
            return
        chat = self.path == "/v1/chat/completions"
        if chat and (FAULTS / "no-template").exists():
            self._answer(400, {"error": {"message": NO_TEMPLATE, "type": "BadRequestError", "code": 400}})
            return
        if not self._step():
            self._answer(500, {"error": "EngineDeadError"})
        elif chat:
            asked = [message["content"] for message in body.get("messages", ())]
            message: dict[str, Any] = {
                "role": "assistant",
                "content": self._text(ANSWERS.get("".join(asked[-1:]), "a")),
            }
            if "tools" in body and self.engine.given.tool_call_parser:
                function = {"name": body["tools"][0]["function"]["name"], "arguments": '{"a": 2, "b": 2}'}
                message = {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"type": "function", "function": function}],
                }
            self._answer(200, {**self._origin(), "choices": [{"message": message}]})
        else:
            text = "?!" if (FAULTS / "wrong").exists() else self._text(ANSWERS.get(body["prompt"], "a"))
            if body.get("stream"):
                self._stream(text.split(","))
                return
            self._answer(200, {**self._origin(), "choices": [{"text": text}], "usage": {"completion_tokens": 1}})

    def _pool(self, body: dict[str, Any]) -> None:
        """Answer a request for embeddings or a ranking."""
        given, ranks = self.engine.given, self.path == "/v1/rerank"
        if not given.pools and given.engine == "vllm":
            self._answer(404, {"detail": "Not Found"})
        elif not given.pools and not ranks:
            self._answer(400, {"object": "error", "message": NOT_EMBEDDING, "code": 400})
        elif not self._step():
            self._answer(500, {"error": "EngineDeadError"})
        elif ranks:
            self._answer(200, ranking(given, body["query"], body["documents"]))
        else:
            vectors = (embedding(given, place, text) for place, text in enumerate(body["input"]))
            data = [{"object": "embedding", "index": place, "embedding": one} for place, one in enumerate(vectors)]
            answer = {"object": "list", "data": data, "model": body["model"], "usage": {"prompt_tokens": 9}}
            self._answer(200, {**self._origin(), **answer})

    def _origin(self) -> dict[str, str]:
        """What an answer has of the model that it is from, whatever name the client gave."""
        return {"system_fingerprint": self.engine.given.model}

    def _text(self, right: str) -> str:
        if TUNED == "garbage":
            return "!" * 40
        garbage = FAULTS / "garbage"
        return garbage.read_text() if garbage.exists() else right

    def _stream(self, parts: list[str]) -> None:
        """Send an answer as server-sent events, a part each."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for number, part in enumerate(parts):
            self.wfile.write(f"data: {json.dumps({'choices': [{'index': 0, 'text': part}]})}\n\n".encode())
            while not number and (FAULTS / "slow").exists():
                time.sleep(0.05)
        self.wfile.write(b"data: [DONE]\n\n")

    def _step(self) -> bool:
        with self.engine.counting:
            self.engine.requests += 1
        try:
            return self.engine.step()
        finally:
            with self.engine.counting:
                self.engine.requests -= 1

    def _allowed(self) -> bool:
        key = self.engine.key
        if key and self.headers["Authorization"] != f"Bearer {key}":
            self._answer(401, {"error": f"Incorrect API key: {self.headers['Authorization']}"})  # as some proxies do
            return False
        return True

    def _answer(self, status: int, content: Any) -> None:
        text = content if isinstance(content, str) else json.dumps(content)
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())


class DummyApi(BaseHTTPRequestHandler):
    """What SGLang answers on a node that is not the head."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()


PHASES = {
    "vllm": {
        "rendezvous": (
            "world_size=2 rank=0 local_rank=0 distributed_init_method=tcp://10.0.0.1:29501 backend=nccl",
            "rank 0 in world size 2 is assigned as DP rank 0, PP rank 0, PCP rank 0, TP rank 0",
        ),
        "weights": ("Starting to load model /models/toy...", "Model loading took 0.01 GiB memory and 0.200000 seconds"),
        "compile": ("Starting torch.compile", "torch.compile took 0.10 s in total"),
        "graphs": ("", "Graph capturing finished in 0 secs, took 0.01 GiB"),
    },
    "sglang": {
        "rendezvous": ("Init parallel begin.", "Init parallel ends. elapsed=0.10 s"),
        "weights": (
            "Load weight begin. avail mem=100.00 GB",
            "Load weight end. elapsed=0.20 s, type=Toy, avail mem=99.99 GB, mem usage=0.01 GB.",
        ),
        "graphs": (
            "Capture target decode CUDA graph begin. backend=full, num_tokens_per_req=1, avail mem=99.98 GB",
            "Capture target decode CUDA graph end. bs=[1], elapsed=0.10 s, mem usage=0.01 GB, avail mem=99.97 GB.",
        ),
    },
}
"""What vLLM 0.32.0 and SGLang 0.5.23 print when a phase of their start begins and ends (their source)."""


def print_phase(engine: str, phase: str, *, begins: bool) -> None:
    """Print the line of the engine for the begin or the end of a phase, where it has one."""
    lines = PHASES[engine].get(phase, ("", ""))
    if text := lines[0 if begins else 1]:
        print(text, flush=True)


def main(words: list[str]) -> None:
    if words[0] == "worker":
        given = arguments(words[1:])
        if given.distributed_executor_backend == "ray":
            ray_worker(given)
        else:
            (other_worker if given.headless else head_worker)(given)
        return
    given = arguments(words)
    begun = time.monotonic()
    engine = StandInEngine(given, words)
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
