"""The parent process of a node: its worker process and, on the head, the requests to it."""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import threading
import time
from pathlib import Path

from lab.engine import faults, tuned_setting

GRACE_SECONDS = float(os.environ.get("STANDIN_GRACE_SECONDS", "12"))
STOP_SECONDS = float(os.environ.get("STANDIN_STOP_SECONDS", "6"))
REQUEST_COUNTERS = {
    "vllm": ("num_requests_running", "num_requests_waiting"),
    "sglang": ("num_running_reqs", "num_queue_reqs"),
}
"""Requests that run and that wait, by engine."""


class StandInEngine:
    """The worker process of this node and, on the head, the requests to it."""

    def __init__(self, given: argparse.Namespace, key: str | None, call: list[str]) -> None:
        """`key`: of the API. `call`: the command of the worker."""
        self.given, self.key = given, key
        self.shm = Path(os.environ.get("STANDIN_SHM", "/dev/shm")) / f"standin_{os.getpid()}"  # noqa: S108
        self.shm.write_bytes(bytes(65536))
        self.worker = subprocess.Popen(call, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.lock, self.counting = threading.Lock(), threading.Lock()
        self.tokens = self.requests = 0
        self.steps = self.used = 0
        """Tokens of SGLang's realtime counter, and those in the cache."""

    def end(self, code: int) -> None:
        """End in order: the shared memory goes."""
        tuned_setting.end_setting()
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
            if faults.is_injected("busy"):
                self.tokens += 7 if self.given.engine == "vllm" else 0
                self.steps, self.used = self.steps + 7, self.used + 7
            if faults.is_injected("prefill"):
                self.steps, self.used = self.steps + 512, self.used + 512
            time.sleep(0.05)

    def metrics(self) -> dict[str, float]:
        """Return counters and gauges by their names."""
        # An engine that pools generates nothing, and counts the tokens of its prompts (measured with vLLM 0.32).
        counted = "prompt_tokens_total" if self.given.pools else "generation_tokens_total"
        found: dict[str, float] = {"prompt_tokens_total": 0, "generation_tokens_total": 0, counted: self.tokens}
        running, waiting = REQUEST_COUNTERS[self.given.engine]
        prefill = faults.is_injected("prefill")
        if self.given.engine == "vllm":
            return found | {
                "kv_cache_usage_perc": self.used / 2**20,
                running: self.requests + prefill,
                waiting: 0,
            }
        if not faults.is_injected("old"):
            found["realtime_tokens_total"] = self.steps
        requests = {running: 0, waiting: self.requests} if prefill else {running: self.requests, waiting: 0}
        return found | {"num_used_tokens": self.used} | requests

    def step(self) -> bool:
        tuned_setting.take_setting(self.end)
        assert self.worker.stdin  # noqa: S101 - a pipe
        assert self.worker.stdout  # noqa: S101 - a pipe
        if self.given.engine == "sglang" and self.requests == 1:  # its loop takes no other one before this is computed
            self.steps, self.used = self.steps + 4, self.used + 4
        while faults.is_injected("livelock", "busy", "prefill"):
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
