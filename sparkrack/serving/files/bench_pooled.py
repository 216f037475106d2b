"""The text of `python3 -c`: asks an engine that pools for embeddings or rankings, and writes what it took as JSON.

Arguments: what to ask, as JSON, and the path of a new file for the result. Each text is made of other words, in
another order, so that no prefix is one that was asked before. The standard library only, of any Python 3.9 and later.
"""

from __future__ import annotations

import json
import math
import os
import pathlib
import random
import statistics
import sys
import time
import urllib.error
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import Any

WORDS = """
time year people way day man thing woman life child world school state family student group country problem
hand part place case week company system program question work government number night point home water room
mother area money story fact month lot right study book eye job word business issue side kind head house
service friend father power hour game
"""
"""Words that are one token to most tokenizers."""
QUESTION_WORDS = 16
"""Words of the query of a ranking, which stands before each document."""
TIMEOUT = 600.0


def text(chance: random.Random, words: int) -> str:
    """Return a text of so many words."""
    return " ".join(chance.choices(WORDS.split(), k=max(1, words)))


def body(given: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """Return what one request asks for."""
    words = given["input_tokens"]
    if given["kind"] == "embedding":
        return {"model": given["model"], "input": [text(chance, words) for _ in range(given["items"])]}
    query = min(QUESTION_WORDS, max(1, words // 4))
    documents = [text(chance, words - query) for _ in range(given["items"])]
    return {"model": given["model"], "query": text(chance, query), "documents": documents}


def ask(given: dict[str, Any], opener: urllib.request.OpenerDirector, content: dict[str, Any]) -> tuple[float, int]:
    """Send one request; return its seconds and the tokens that the engine counted. Exits when it is not answered."""
    headers = {"Content-Type": "application/json"}
    if os.environ.get("OPENAI_API_KEY"):
        headers["Authorization"] = "Bearer " + os.environ["OPENAI_API_KEY"]
    path = "/v1/embeddings" if given["kind"] == "embedding" else "/v1/rerank"
    request = urllib.request.Request(given["base_url"] + path, json.dumps(content).encode(), headers)  # noqa: S310
    began = time.monotonic()
    try:
        with opener.open(request, timeout=TIMEOUT) as answer:
            found = json.load(answer)
    except urllib.error.HTTPError as error:
        what = error.read(300).decode("utf-8", "replace")
        raise SystemExit(f"HTTP status {error.code}: {' '.join(what.split())}") from None
    except (OSError, ValueError) as error:
        raise SystemExit(f"no answer: {error}") from None
    took = time.monotonic() - began
    rows = found.get("data", found.get("results")) if isinstance(found, dict) else found
    if not isinstance(rows, list) or len(rows) != given["items"]:
        raise SystemExit(f"the answer has not one result for each of {given['items']} texts")
    usage = found.get("usage") if isinstance(found, dict) else None
    usage = usage if isinstance(usage, dict) else {}
    return took, usage.get("prompt_tokens") or usage.get("total_tokens") or 0


def main() -> None:
    """Measure once."""
    given, result = json.loads(sys.argv[1]), sys.argv[2]
    chance = random.Random(given["seed"])  # noqa: S311 - texts, not secrets
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    contents = [body(given, chance) for _ in range(given["requests"])]
    began = time.monotonic()
    with ThreadPoolExecutor(given["concurrency"]) as pool:
        answers = list(pool.map(lambda content: ask(given, opener, content), contents))
    duration = time.monotonic() - began
    seconds = sorted(took for took, _ in answers)
    tokens = [count for _, count in answers]
    found = {
        "completed": len(answers),
        "item_throughput": len(answers) * given["items"] / duration,
        "input_throughput": sum(tokens) / duration if all(tokens) else None,
        "latency_median_ms": statistics.median(seconds) * 1000,
        "latency_p99_ms": seconds[math.ceil(len(seconds) * 0.99) - 1] * 1000,
    }
    pathlib.Path(result).write_text(json.dumps(found))


main()
