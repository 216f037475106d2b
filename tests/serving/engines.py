"""The engines that run on the nodes of the tests: the stand-in, vLLM itself on CPUs, and Ray itself."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from serving.engines.registry import FAMILIES

HERE = Path(__file__).parent
ENGINE = HERE.parents[1] / "lab/engine_standin.py"
INSTALLER = HERE.parents[1] / "scripts/conformance_engine.py"


@dataclass(frozen=True)
class EngineOfTests:
    """How an engine is started, and how its processes are found.

    `programs`: what runs in the place of a program, by its name. `model`: its folder. `mark`: a text in the arguments
    of each process. `worker`: how an argument of the process of a rank begins. `times`: what the unit file has.
    `patience`: seconds until a test gives up. `stop`: seconds from TERM to KILL. `arguments`: options of the unit, as
    `args` of a rack file. `environment`: variables. `context`: tokens of a request. `kind`: vllm, vllm-ray, llama.cpp
    or custom. `declared`: keys of the unit that differ from those of vLLM.
    `contained`: its processes leave their process group, so they have a process namespace and a /tmp of their own, as
    in a container.
    """

    name: str
    programs: Mapping[str, tuple[str, ...]]
    model: str
    mark: tuple[str, ...]
    worker: str
    times: Mapping[str, float]
    patience: float
    stop: int
    arguments: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    context: int = 512
    kind: str = "vllm"
    declared: Mapping[str, Any] = field(default_factory=dict)
    contained: bool = False

    def __str__(self) -> str:
        return self.name


STAND_IN = EngineOfTests(
    name="stand-in",
    programs={"vllm": (sys.executable, str(ENGINE))},
    model="/models/toy",
    mark=("engine_standin",),
    worker="worker",
    # A lease is ten questions long: no busy machine delays so many, and a test that waits for its end is soon over.
    times={
        "ask": 0.3,
        "lease": 3.0,
        "gate_limit": 60.0,
        "stop_limit": 20.0,
        "ready_limit": 120.0,
        "first_limit": 20.0,
        "probe_interval": 1.0,
        "probe_limit": 2.0,
        "probe_misses": 2,
        "evidence": 0.5,
    },
    patience=120.0,
    stop=3,
    environment={"STANDIN_GRACE_SECONDS": "1", "STANDIN_STOP_SECONDS": "0.5", "STANDIN_NO_MODEL": "1"},
)


def engine_metrics(kind: str) -> dict[str, list[str]]:
    """The section `metrics` of a unit file of an engine."""
    unit: Any = None  # those of both engines do not depend on it
    return {name: list(names) for name, names in asdict(FAMILIES[kind].progress(unit)).items()}


def installed(*only: Literal["ray"]) -> Path | None:
    """Return the folder with vLLM and Ray, or with Ray at least, None where it is not installed."""
    found = subprocess.run([sys.executable, INSTALLER, "fetched", *only], capture_output=True, text=True)
    return Path(found.stdout.strip()) if found.returncode == 0 else None


def real_vllm(folder: Path) -> EngineOfTests:
    """Return vLLM on CPUs."""
    return EngineOfTests(
        name="vllm",
        programs={"vllm": (sys.executable, "-S", "-m", "vllm.entrypoints.cli.main")},
        model=str(folder / "model"),
        mark=("vllm.entrypoints", "VLLM::", "multiprocessing"),
        worker="VLLM::Worker",
        # Shorter than those of a unit, and long enough for a machine with two cores that is busy.
        times={
            "ask": 1.0,
            "lease": 10.0,
            "gate_limit": 60.0,
            "stop_limit": 90.0,
            "ready_limit": 900.0,
            "first_limit": 300.0,
            "probe_interval": 5.0,
            "probe_limit": 20.0,
            "probe_misses": 2,
        },
        patience=900.0,
        stop=60,
        arguments={"dtype": "bfloat16", "enforce-eager": True},
        environment={
            "PYTHONPATH": str(folder / "packages"),
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "OMP_NUM_THREADS": "1",
            "GLOO_SOCKET_IFNAME": "eth0",
        },
    )


def long_vllm(engine: EngineOfTests, folder: Path, context: int) -> EngineOfTests:
    """Return vLLM with requests of so many tokens, of which a step computes 512. `folder`: where its model is put."""
    model = folder / "long_model"
    shutil.copytree(engine.model, model)
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"max_position_embeddings": context}))
    arguments = {**engine.arguments, "max-num-batched-tokens": 512}
    return replace(engine, model=str(model), context=context, arguments=arguments)


def real_ray(folder: Path) -> EngineOfTests:
    """Return Ray, on which a stand-in for vLLM runs: vLLM on Ray refuses CPUs."""
    python = (sys.executable, "-S")
    return EngineOfTests(
        name="ray",
        kind="vllm-ray",
        programs={"ray": (*python, "-m", "ray.scripts.scripts"), "vllm": (*python, str(HERE / "ray_driver.py"))},
        model="/models/toy",
        mark=(str(folder), "ray.scripts", "ray_driver", "ray::", "raylet", "gcs_server"),
        worker="ray::Rank",
        times={
            "ask": 1.0,
            "lease": 10.0,
            "gate_limit": 60.0,
            "stop_limit": 60.0,
            "ready_limit": 300.0,
            "first_limit": 120.0,
            "probe_interval": 5.0,
            "probe_limit": 20.0,
            "probe_misses": 2,
        },
        patience=300.0,
        stop=30,
        environment={"PYTHONPATH": str(folder / "packages")},
        contained=True,
    )
