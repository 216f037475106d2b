"""What engines print when a phase of their start begins and ends."""

from __future__ import annotations

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
