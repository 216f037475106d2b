"""The command line of the stand-in: that of vLLM or SGLang, judged by the release of the image."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path

from lab.engine.model_files import named_paths

RELEASE = Path(__file__).resolve().parents[2]
"""Folder of an image with the release of its engine, and what judges command lines by it."""
CHECK_MODEL = "STANDIN_NO_MODEL" not in os.environ
"""Outside of a container the path of the model names no folder."""


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


def unknown_options(engine: str, words: list[str]) -> list[str]:
    """Return what the release of the image does not take of a command line; nothing outside of an image."""
    release = RELEASE / "release.json"
    if not release.exists():
        return []
    known = json.loads(release.read_text())
    if known["engine"] != engine:
        return [f"the image has {known['engine']}, not {engine}"]
    from serving.engines.command_line import judge

    return [problem.message for problem in judge(known["engine"], known["version"], words).problems]


def api_key(given: argparse.Namespace) -> str | None:
    """Return the key of the API, None when it has none."""
    if given.engine == "vllm":
        return os.environ.get("VLLM_API_KEY")
    lines = Path(given.config).read_text().splitlines() if given.config else []
    keys = [json.loads(line.partition(":")[2]) for line in lines if line.startswith("api-key:")]
    return str(keys[0]) if keys else None
