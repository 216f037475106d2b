"""Stand-in for `vllm serve --distributed-executor-backend ray`, which refuses CPUs: it uses Ray as vLLM does.

It waits until Ray has a node for each rank, places one actor on each, and answers a completion when every actor has
answered. A failed actor fails the request with 500, and the driver ends.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar

import ray
from ray.util.placement_group import placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy


@ray.remote(num_cpus=1)
class Rank:
    """The worker of one node."""

    def step(self) -> int:
        """Take part in a completion."""
        return os.getpid()


class Api(BaseHTTPRequestHandler):
    """The part of the OpenAI API that a probe needs."""

    ranks: ClassVar[list[Any]] = []

    def do_GET(self) -> None:
        self._send_answer(200, {})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.headers["Authorization"] != f"Bearer {os.environ['VLLM_API_KEY']}":
            self._send_answer(401, {"error": "Incorrect API key"})
            return
        try:
            ray.get([rank.step.remote() for rank in self.ranks], timeout=300)
        except Exception as error:  # of Ray: an actor that died, a node that is gone, a timeout
            print(f"{type(error).__name__}: {error}", flush=True)
            self._send_answer(500, {"error": "EngineDeadError"})
            threading.Timer(0.5, os._exit, [0]).start()
            return
        choice = {"text": "4"} if self.path == "/v1/completions" else {"message": {"role": "assistant", "content": "4"}}
        self._send_answer(200, {"choices": [choice], "usage": {"completion_tokens": 1}})

    def _send_answer(self, status: int, content: Any) -> None:
        text = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


def main(words: list[str]) -> None:
    """Serve until the process is ended."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("--tensor-parallel-size", type=int, required=True)
    parser.add_argument("--distributed-executor-backend", choices=["ray"], required=True)
    parser.add_argument("--host", required=True)
    parser.add_argument("--port", type=int, required=True)
    given, _ = parser.parse_known_args(words)
    ray.init(address="auto")
    while sum(node["Alive"] for node in ray.nodes()) < given.tensor_parallel_size:
        time.sleep(0.5)
    group = placement_group([{"CPU": 1}] * given.tensor_parallel_size, strategy="STRICT_SPREAD")
    ray.get(group.ready())
    remote: Any = Rank
    for place in range(given.tensor_parallel_size):
        where = PlacementGroupSchedulingStrategy(group, placement_group_bundle_index=place)
        Api.ranks.append(remote.options(scheduling_strategy=where).remote())
    ray.get([rank.step.remote() for rank in Api.ranks])
    print("ready", flush=True)
    ThreadingHTTPServer((given.host, given.port), Api).serve_forever()


if __name__ == "__main__":
    main(sys.argv[1:])
