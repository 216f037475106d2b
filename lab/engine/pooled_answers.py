"""What an engine that pools computes: embeddings and rankings."""

from __future__ import annotations

import argparse
import json
import zlib
from pathlib import Path
from typing import Any

from lab.engine import faults

DIMENSION = 64
"""Numbers of an embedding where the model has no configuration."""


def words_of(text: str) -> list[str]:
    return "".join(mark.lower() if mark.isalnum() else " " for mark in text).split()


def embedding(given: argparse.Namespace, place: int, text: str) -> Any:
    """Return the embedding of a text, the one at this place of a request: how often it has which words."""
    config = Path(given.model, "config.json")
    size = json.loads(config.read_text()).get("hidden_size", DIMENSION) if config.is_file() else DIMENSION
    fault = faults.fault_content("pooled").strip()
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
    fault, asked = faults.fault_content("pooled").strip(), set(words_of(query))
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
