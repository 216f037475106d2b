"""Result files in the shape in which the measuring tools of the engines write them.

vLLM: vllm/benchmarks/serve.py of 0.19.1 and 0.33.0 (of 0.11.0 without `failed`), one object without a line break.
SGLang: sglang/bench_serving.py of 0.5.4 and sglang/benchmark/serving.py of 0.5.23, a line appended to the file.
"""

from __future__ import annotations

import json

from serving.engines.bench_tool import BenchCase

FIGURES = {
    "output_throughput": 16.98,
    "median_ttft_ms": 8123.4,
    "p99_ttft_ms": 8311.9,
    "median_tpot_ms": 58.1,
    "p99_tpot_ms": 61.7,
}


def vllm_result(case: BenchCase, *, counts_failed: bool = True, **changes: object) -> str:
    """What `vllm bench serve --save-result` writes. `counts_failed`: whether the release counts failed requests."""
    found = {
        "date": "20261123-201500",
        "endpoint_type": "openai",
        "backend": "openai",
        "label": None,
        "model_id": "/models/qwen",
        "tokenizer_id": "/models/qwen",
        "num_prompts": case.requests,
        "request_rate": "inf",
        "burstiness": 1.0,
        "max_concurrency": case.concurrency,
        "duration": 60.3,
        "completed": case.requests,
        **({"failed": 0} if counts_failed else {}),
        "total_input_tokens": case.requests * case.input_tokens,
        "total_output_tokens": case.requests * case.output_tokens,
        "request_throughput": 0.066,
        "request_goodput": None,
        "total_token_throughput": 560.0,
        "max_output_tokens_per_s": 19.0,
        "max_concurrent_requests": case.concurrency,
        "mean_ttft_ms": 8150.0,
        "std_ttft_ms": 80.2,
        "mean_tpot_ms": 58.4,
        "std_tpot_ms": 1.4,
        **FIGURES,
    }
    return json.dumps({**found, **changes})


def sglang_result(case: BenchCase, **changes: object) -> str:
    """What `sglang.bench_serving --output-file` appends."""
    found = {
        "backend": "sglang",
        "dataset_name": "random-ids",
        "request_rate": float("inf"),
        "max_concurrency": case.concurrency,
        "random_input_len": case.input_tokens,
        "random_output_len": case.output_tokens,
        "random_range_ratio": 1.0,
        "server_info": {"api_key": "sk-quiet-horse-1234567890"},
        "duration": 60.3,
        "completed": case.requests,
        "total_input_tokens": case.requests * case.input_tokens,
        "total_output_tokens": case.requests * case.output_tokens,
        "total_output_tokens_retokenized": case.requests * case.output_tokens - 3,
        "mean_ttft_ms": 8150.0,
        "std_ttft_ms": 80.2,
        "mean_tpot_ms": 58.4,
        "std_tpot_ms": 1.4,
        "concurrency": 0.99,
        "accept_length": None,
        **FIGURES,
    }
    return json.dumps({**found, **changes}) + "\n"
