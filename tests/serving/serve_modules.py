"""The modules of the node's programs, imported as their programs do: from their own folder."""

from __future__ import annotations

import sys
from pathlib import Path

FOLDER = Path(__file__).parents[2] / "serving/files"
_before = sys.dont_write_bytecode
sys.dont_write_bytecode = True
sys.path.append(str(FOLDER))
import serve_answers  # noqa: E402
import serve_causes  # noqa: E402
import serve_cuda  # noqa: E402
import serve_gate  # noqa: E402
import serve_hang  # noqa: E402
import serve_keeper  # noqa: E402
import serve_lifecycle  # noqa: E402
import serve_probe  # noqa: E402
import serve_proof  # noqa: E402
import serve_question  # noqa: E402
import serve_rdma  # noqa: E402
import serve_slice  # noqa: E402
import serve_start  # noqa: E402
import serve_tether  # noqa: E402
import serve_unit  # noqa: E402

sys.path.remove(str(FOLDER))
sys.dont_write_bytecode = _before

__all__ = [
    "serve_answers",
    "serve_causes",
    "serve_cuda",
    "serve_gate",
    "serve_hang",
    "serve_keeper",
    "serve_lifecycle",
    "serve_probe",
    "serve_proof",
    "serve_question",
    "serve_rdma",
    "serve_slice",
    "serve_start",
    "serve_tether",
    "serve_unit",
]
