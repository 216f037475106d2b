"""`vllm bench serve`, in the container of the head."""

from __future__ import annotations

from serving.engines.bench_tool import BenchTarget, BenchTool
from serving.engines.version import version_key

_TOKENIZER_MODE_SINCE = "0.11.2"


def words(target: BenchTarget, result: str, common: tuple[str, ...]) -> tuple[str, ...]:
    """Return the command of the tool."""
    args = target.args
    mode = "tokenizer-mode" in args and version_key(target.version) >= version_key(_TOKENIZER_MODE_SINCE)
    folder, _, name = result.rpartition("/")
    return (
        *("vllm", "bench", "serve", "--backend", "openai", "--endpoint", "/v1/completions", *common),
        *(("--tokenizer-mode", str(args["tokenizer-mode"])) if mode else ()),
        *(("--trust-remote-code",) if args.get("trust-remote-code") is True else ()),
        *("--served-model-name", target.served_name, "--dataset-name", "random", "--random-range-ratio", "0"),
        *("--ignore-eos", "--temperature", "0", "--ready-check-timeout-sec", "0"),
        *("--percentile-metrics", "ttft,tpot", "--metric-percentiles", "99"),
        *("--save-result", "--result-dir", folder, "--result-filename", name),
    )


# `vllm bench serve` of 0.10.2 always sends the first prompt twice.
BENCH = BenchTool(title="vLLM", since="0.11.0", words=words)
