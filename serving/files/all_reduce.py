"""All-reduce over the ranks of a unit, in a container of its image: how fast NCCL is there, and by which network.

    python3 -c TEXT '{"rank", "ranks", "head", "port", "bytes", "limit", "hold", "backend"}'

Each rank prints one line of JSON: rank, ranks, bytes, seconds (the median of the repetitions), gbytes
(bus bandwidth in GB/s: 2(n-1)/n of the bytes in that time, as nccl-tests counts it), nccl (its version), networks (what
NCCL says it uses). A rank that is not done after `limit` seconds ends with 1. With `hold`, a rank that has its result,
or an error, prints the line "ended" after it and goes on for so many seconds: docker removes its container with what it
printed when it ends.

It needs torch of the image, and nothing of the host. `backend`: "nccl", or "gloo" on processors, where it is tried out.
"""

from __future__ import annotations

import faulthandler
import json
import os
import re
import statistics
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

UNTIMED, TIMED = 5, 20
"""Repetitions. NCCL connects the ranks during the first ones."""


def measure(wanted: dict[str, Any]) -> list[float]:
    """Return the seconds of each timed repetition. Raises ValueError when a sum is wrong."""
    import torch
    from torch import distributed

    rank, ranks = wanted["rank"], wanted["ranks"]
    on_gpu = wanted["backend"] == "nccl"
    device = torch.device("cuda", wanted.get("device", 0)) if on_gpu else torch.device("cpu")
    if on_gpu:
        torch.cuda.set_device(device)
    distributed.init_process_group(
        wanted["backend"], init_method="tcp://{head}:{port}".format(**wanted), rank=rank, world_size=ranks
    )
    values = torch.full((wanted["bytes"] // 4,), float(rank + 1), dtype=torch.float32, device=device)
    found = []
    for number in range(UNTIMED + TIMED):
        begun = time.perf_counter()
        distributed.all_reduce(values)
        if on_gpu:
            torch.cuda.synchronize(device)
        if number >= UNTIMED:
            found.append(time.perf_counter() - begun)
        if not number and not bool((values == ranks * (ranks + 1) / 2).all()):
            raise ValueError("the all-reduce gives a wrong sum")
        values.fill_(1.0)
        if on_gpu:
            torch.cuda.synchronize(device)
    distributed.destroy_process_group()
    return found


def read_log(text: str) -> tuple[str | None, list[str]]:
    """Return the version of NCCL and the networks that its log names."""
    versions = re.findall(r"NCCL version (\S+)", text)
    return versions[0] if versions else None, list(dict.fromkeys(re.findall(r"NCCL INFO Using network (\S+)", text)))


def print_result(wanted: dict[str, Any]) -> None:
    """Measure, and print the result."""
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder, "nccl.log")
        os.environ.update(NCCL_DEBUG="INFO", NCCL_DEBUG_SUBSYS="INIT,NET", NCCL_DEBUG_FILE=str(log))
        seconds = statistics.median(measure(wanted))
        text = log.read_text(errors="replace") if log.exists() else ""
    version, networks = read_log(text)
    ranks = wanted["ranks"]
    result = {
        "rank": wanted["rank"],
        "ranks": ranks,
        "bytes": wanted["bytes"],
        "seconds": seconds,
        "gbytes": 2 * (ranks - 1) / ranks * wanted["bytes"] / seconds / 1e9,
        "nccl": version,
        "networks": networks,
    }
    print(json.dumps(result), flush=True)


def main() -> None:
    """Measure within the limit, and hold the result."""
    wanted = json.loads(sys.argv[1])
    # By a thread of its own: a collective that hangs does not come back to Python.
    faulthandler.dump_traceback_later(wanted["limit"], exit=True)
    failed = False
    try:
        print_result(wanted)
    except Exception:
        traceback.print_exc(file=sys.stdout)
        failed = True
    if wanted["hold"]:
        faulthandler.dump_traceback_later(wanted["hold"], exit=True)
        print("ended", flush=True)
        time.sleep(wanted["hold"])
    sys.exit(failed)


if __name__ == "__main__":
    main()
