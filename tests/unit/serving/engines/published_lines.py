"""Command lines that owners of GB10 racks, NVIDIA and vLLM publish, with the version of the engine that each names."""

from __future__ import annotations

import shlex
from dataclasses import dataclass

from serving.engines.option_table import Engine


@dataclass(frozen=True)
class PublishedLine:
    """A command line as it is published, without the name of the program."""

    engine: Engine
    version: str
    argv: tuple[str, ...]


def _published_line(engine: Engine, version: str, text: str) -> PublishedLine:
    return PublishedLine(engine, version, tuple(shlex.split(text)))


EIGHT_NODES_NEMOTRON = _published_line(
    "sglang",
    "0.5.12",
    "--model-path nvidia/nemotron --tp-size 8 --pp-size 1 --quantization modelopt_fp4 --kv-cache-dtype fp8_e4m3"
    " --mem-fraction-static 0.85 --attention-backend flashinfer --moe-runner-backend flashinfer_cutlass"
    " --max-mamba-cache-size 96 --cuda-graph-max-bs 8 --disable-piecewise-cuda-graph --nnodes 8 --node-rank 0"
    " --dist-init-addr 10.10.0.1:25000 --host 0.0.0.0 --port 30000",
)
EIGHT_NODES_NEMOTRON_MTP = PublishedLine(
    "sglang",
    "0.5.12",
    (
        *EIGHT_NODES_NEMOTRON.argv,
        *("--speculative-algorithm", "NEXTN", "--speculative-num-steps", "3"),
        *("--speculative-num-draft-tokens", "4", "--disable-radix-cache"),
    ),
)
THREE_NODES_QWEN_397B = _published_line(
    "vllm",
    "0.22.1",
    "qwen -tp 1 -pp 3 --gpu-memory-utilization 0.7 --max-model-len 262144 --distributed-executor-backend ray",
)
TWO_NODES_GPT_OSS = _published_line(
    "vllm", "0.19.0", "openai/gpt-oss-120b --tensor-parallel-size 2 --host 0.0.0.0 --port 8000"
)
TWO_NODES_LLAMA_405B = _published_line(
    "vllm",
    "0.19.0",
    "llama --tensor-parallel-size 2 --max-model-len 4096 --gpu-memory-utilization 0.92 --kv-cache-dtype fp8",
)
TWO_NODES_QWEN_235B = _published_line(
    "vllm",
    "0.19.0",
    "qwen --attention-backend=TRITON_ATTN --quantization=gptq_marlin --kv-cache-dtype=fp8"
    " --gpu-memory-utilization=0.87 --tensor-parallel-size 2 --enable-expert-parallel"
    " --distributed-executor-backend ray",
)
TWO_NODES_DEEPSEEK = _published_line(
    "vllm",
    "0.21.1rc1",
    "deepseek --served-model-name deepseek-v4-flash --max-model-len 200000 --max-num-seqs 2"
    " --max-num-batched-tokens 8192 --gpu-memory-utilization 0.78 --kv-cache-dtype fp8 --block-size 256"
    ' --prefix-caching --enable-expert-parallel --compilation-config \'{"cudagraph_mode":"PIECEWISE"}\''
    ' --speculative-config \'{"method":"deepseek_mtp","num_speculative_tokens":2}\' --disable-custom-all-reduce'
    " --trust-remote-code --host 0.0.0.0 --port 8000 --load-format safetensors --tokenizer-mode deepseek_v4"
    " --tool-call-parser deepseek_v4 --enable-auto-tool-choice --reasoning-parser deepseek_v4"
    " --tensor-parallel-size 2 --nnodes 2 --node-rank 1 --master-addr 10.10.0.1 --master-port 29501 --headless",
)
"""Its `--prefix-caching` is not an option."""

TWO_NODES_DEEPSEEK_RIGHT = PublishedLine(
    "vllm",
    "0.21.1rc1",
    tuple(argument.replace("--prefix", "--enable-prefix") for argument in TWO_NODES_DEEPSEEK.argv),
)
ACCEPTED = {
    "eight nodes, Nemotron 3 Ultra": EIGHT_NODES_NEMOTRON,
    "eight nodes, Nemotron 3 Ultra, MTP": EIGHT_NODES_NEMOTRON_MTP,
    "three nodes, Qwen3.5 397B": THREE_NODES_QWEN_397B,
    "two nodes, gpt-oss 120B": TWO_NODES_GPT_OSS,
    "two nodes, Llama 405B": TWO_NODES_LLAMA_405B,
    "two nodes, Qwen3 235B": TWO_NODES_QWEN_235B,
    "two nodes, DeepSeek V4 Flash, corrected": TWO_NODES_DEEPSEEK_RIGHT,
}
