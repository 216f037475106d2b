"""The modules of the node's programs, imported as their programs do: from their own folder."""

from __future__ import annotations

import sys
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "serving/files"
_before = sys.dont_write_bytecode
sys.dont_write_bytecode = True
sys.path.append(str(FOLDER))
import serve_agent  # noqa: E402
import serve_answers  # noqa: E402
import serve_causes  # noqa: E402
import serve_coordinator  # noqa: E402
import serve_cuda  # noqa: E402
import serve_gate_command  # noqa: E402
import serve_hang  # noqa: E402
import serve_lifecycle  # noqa: E402
import serve_other_units  # noqa: E402
import serve_phases  # noqa: E402
import serve_probe  # noqa: E402
import serve_rdma  # noqa: E402
import serve_rdma_check  # noqa: E402
import serve_slice  # noqa: E402
import serve_start  # noqa: E402
import serve_start_gate  # noqa: E402
import serve_unit  # noqa: E402

sys.path.remove(str(FOLDER))
sys.dont_write_bytecode = _before

__all__ = [
    "serve_agent",
    "serve_answers",
    "serve_causes",
    "serve_coordinator",
    "serve_cuda",
    "serve_gate_command",
    "serve_hang",
    "serve_lifecycle",
    "serve_other_units",
    "serve_phases",
    "serve_probe",
    "serve_rdma",
    "serve_rdma_check",
    "serve_slice",
    "serve_start",
    "serve_start_gate",
    "serve_unit",
]
