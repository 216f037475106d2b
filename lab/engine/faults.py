"""The faults that are injected into the stand-in, a file each in the folder STANDIN_FAULTS; some have a content.

`livelock` (completions hang, nothing moves), `busy` (completions hang behind long generations), `prefill` (completions
hang behind a long prompt), `completions` (/v1/completions hangs, /v1/chat/completions does not), `wrong` (another
answer), `slow` (a stream stops after its first part), `status` (completions get the HTTP status in the file), `old`
(metrics of SGLang 0.5.4), `garbage` (its content is the text of each answer), `pooled` (its content is what is wrong
with embeddings and scores: nan, null, constant, zero, far, dimension, short or text), `no-template` (the model has no
chat template), `sockets` (NCCL does not use RDMA; rdma_standin.py reads it).
"""

from __future__ import annotations

import os
from pathlib import Path

FOLDER = Path(os.environ.get("STANDIN_FAULTS", "/nonexistent"))


def is_injected(*names: str) -> bool:
    """Return whether one of these faults is injected now."""
    return any((FOLDER / name).exists() for name in names)


def fault_content(name: str) -> str:
    """Return the content of a fault; empty when it is not injected."""
    file = FOLDER / name
    return file.read_text() if file.exists() else ""
