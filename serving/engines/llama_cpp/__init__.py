"""llama.cpp: `llama-server` on one node, with the weights of a GGUF file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from serving.engines.engine import INSIDE_KEY, KeyForm, OptionSyntax, Progress, RankPlace, ServingEngine
from serving.engines.llama_cpp.rules import advice, parts, rules
from serving.engines.llama_cpp.start_phases import PHASES

if TYPE_CHECKING:
    from serving.options import ServedUnit

START = 'PATH="$PATH:/app"; exec llama-server "$@"'
"""Starts the server, which llama.cpp's own images have in /app, and others in a folder of PATH."""
_MEMORY = "decides by free memory, or takes memory that no sum counts"
_ELSEWHERE = "names a model that is not the one of the unit"
OWNED: Mapping[str, str] = {
    **dict.fromkeys(("host", "port", "reuse-port"), "follows from where the unit listens"),
    **dict.fromkeys(("api-key", "hf-token"), "is a secret, which no command line holds"),
    "api-key-file": "follows from the key api.key of the unit",
    "model": "follows from the key gguf of the unit",
    **dict.fromkeys(
        ("model-url", "hf-repo", "hf-file", "docker-repo", "models-dir", "models-preset", "hf-repo-v", "hf-file-v"),
        _ELSEWHERE,
    ),
    "alias": "follows from the model of the unit",
    "ctx-size": "follows from the keys context and sequences of the unit",
    "parallel": "follows from the key sequences of the unit",
    **dict.fromkeys(("fit", "fit-target", "fit-ctx", "cache-ram"), _MEMORY),
    **dict.fromkeys(("mmap", "no-mmap", "mlock", "load-mode", "direct-io"), "is set: a mapped file is in memory twice"),
    "metrics": "is set for each unit: its metrics tell an engine that computes from one that hangs",
    **dict.fromkeys(("embedding", "embeddings", "rerank", "reranking"), "follows from the key kind of the unit"),
    "rpc": "hands layers to workers without a key and without a time limit",
    "sleep-idle-seconds": "unloads the model when idle, by which other memory was overwritten (CVE-2026-43631)",
    **dict.fromkeys(("ssl-key-file", "ssl-cert-file"), "turns on TLS, and the proofs of the unit are plain HTTP"),
    "api-prefix": "moves the paths of the API, which the proofs of the unit ask for",
    **dict.fromkeys(("list-devices", "help", "version", "cache-list"), "prints something and ends"),
}
PROGRESS = Progress(
    # Rises with each batch of a prompt and with each token; the counters of tokens rise when a prompt, or an answer, is
    # whole (measured, b11549).
    counters=("llamacpp:n_decode_total",),
    requests=("llamacpp:requests_processing", "llamacpp:requests_deferred"),
)


def argv(place: RankPlace) -> list[str]:
    """Return the command. Sizes that are left unset are set by free memory, so each is written."""
    unit, known = place.unit, place.known
    words = ["--model", f"{place.model}/{unit.gguf}", "--alias", unit.model]
    # The context is shared out to the sequences.
    words += ["--ctx-size", str(unit.context * unit.sequences), "--parallel", str(unit.sequences)]
    words += ["--load-mode", "none"] if "--load-mode" in known else ["--no-mmap"]
    usual = {"--n-gpu-layers": "999", "--flash-attn": "on"}
    usual = {name: value for name, value in usual.items() if name.removeprefix("--") not in unit.args}
    for name, value in {"--fit": "off", "--cache-ram": "0", **usual}.items():
        words += [name, value] if name in known else []
    for name in ("--metrics", "--no-ui" if "--no-ui" in known else "--no-webui"):
        words += [name] if name in known else []
    return ["sh", "-c", START, "llama-server", *words, *place.args, *place.listen]


def weights(unit: ServedUnit, files: Mapping[str, int], named: Sequence[str]) -> float | None:
    """Return the bytes of the files that the server reads; None where one of them is not known.

    Args:
        unit: the unit.
        files: the sizes of the files of its models, by the path in the container.
        named: the paths that its options name.
    """
    wanted = [f"/models/{unit.model}/{part}" for part in parts(unit.gguf or "")]
    folders = [path for path in named if any(file.startswith(f"{path}/") for file in files)]
    wanted += [part for path in named if path not in folders for part in parts(path)]
    sizes = [files.get(path) for path in dict.fromkeys(wanted)]
    return None if None in sizes else float(sum(size for size in sizes if size is not None))


ENGINES = (
    ServingEngine(
        name="llama.cpp",
        family="llama.cpp",
        title="llama.cpp",
        argv=argv,
        key=lambda _: KeyForm(option="--api-key-file", path=INSIDE_KEY),
        progress=lambda _: PROGRESS,
        looks=lambda _unit, _rank, _ranks: ("program:llama-server", "devices:llama-server"),
        owned=OWNED,
        table=Path(__file__).with_name("options.json"),
        syntax=OptionSyntax(equals=False),
        serves_any_name=True,
        guards_metrics=True,
        weights=weights,
        phases=PHASES,
        rules=rules,
        advice=advice,
    ),
)
