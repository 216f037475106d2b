"""Stand-in for `vllm bench serve`: it asks a running unit over HTTP, and writes the figures that the tool writes.

    vllm bench serve --base-url URL --served-model-name NAME --num-prompts N --max-concurrency N
        --random-output-len N --result-dir FOLDER --result-filename NAME ...

The other options have no effect. The key of the API is OPENAI_API_KEY, as for the tool. An answer of the stand-in has
no tokens, and comes at once: it counts as long as it was requested, and the time to its first token is that of all of
it. Exit 1 when no request is answered.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path


def measure(words: list[str]) -> int:
    """Send the requests of a command line, and write the result; return the exit code."""
    parser = argparse.ArgumentParser(prog="vllm bench serve", allow_abbrev=False)
    for option in ("--base-url", "--served-model-name", "--result-dir", "--result-filename"):
        parser.add_argument(option, required=True)
    for option in ("--num-prompts", "--max-concurrency", "--random-output-len"):
        parser.add_argument(option, type=int, required=True)
    given, _ = parser.parse_known_args(words)
    begun = time.monotonic()
    with ThreadPoolExecutor(given.max_concurrency) as requests:
        answers = [requests.submit(request_seconds, given) for _ in range(given.num_prompts)]
    took = time.monotonic() - begun
    faults = [fault for one in answers if (fault := one.exception())]
    seconds = [one.result() for one in answers if one.exception() is None]
    if not seconds:
        print(f"no request was answered: {faults[0]}", file=sys.stderr)
        return 1
    tokens = len(seconds) * given.random_output_len
    first, further = (1000 * statistics.median(seconds), 1000 * statistics.median(seconds) / given.random_output_len)
    found = {"completed": len(seconds), "failed": len(faults), "total_output_tokens": tokens}
    figures = {"output_throughput": tokens / took, "median_ttft_ms": first, "p99_ttft_ms": 1000 * max(seconds)}
    figures |= {"median_tpot_ms": further, "p99_tpot_ms": 1000 * max(seconds) / given.random_output_len}
    Path(given.result_dir, given.result_filename).write_text(json.dumps({**found, **figures}))
    return 0


def request_seconds(given: argparse.Namespace) -> float:
    """Return the seconds of one completion. Raises OSError."""
    body = {"model": given.served_model_name, "prompt": "2+2=", "max_tokens": given.random_output_len}
    request = urllib.request.Request(f"{given.base_url}/v1/completions", json.dumps(body).encode())  # noqa: S310
    request.add_header("Authorization", f"Bearer {os.environ.get('OPENAI_API_KEY', '')}")
    begun = time.monotonic()
    with urllib.request.urlopen(request) as answer:  # noqa: S310 - of the unit
        answer.read()
    return time.monotonic() - begun
