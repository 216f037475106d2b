"""What a unit of llama.cpp must have."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

from core.model.errors import RuleViolation

if TYPE_CHECKING:
    from serving.options import ServedUnit

_PART = re.compile(r"(.*)-00001-of-(\d{5})\.gguf")


def parts(gguf: str) -> list[str]:
    """Return the files of a model, of which the first is named: all parts where it is one."""
    found = _PART.fullmatch(gguf)
    if not found:
        return [gguf]
    return [f"{found[1]}-{number:05}-of-{found[2]}.gguf" for number in range(1, int(found[2]) + 1)]


def rules(unit: ServedUnit, ranks: int) -> Iterator[RuleViolation]:
    """Yield what is wrong with the unit."""
    if ranks > 1:
        what = (
            "llama.cpp joins nodes by RPC, which has no key and no time limit: a frozen worker hangs the head for ever"
        )
        yield RuleViolation(("nodes",), what, "write one node, or engine: vllm")
    if unit.gguf is None:
        what = "llama.cpp reads one file of the model, and none is named"
        yield RuleViolation(("engine",), what, "write gguf, like Q4_K_M/model-00001-of-00003.gguf")
    elif re.search(r"-\d{5}-of-\d{5}\.gguf$", unit.gguf) and not _PART.fullmatch(unit.gguf):
        yield RuleViolation(("gguf",), "is not the first part of the model", "write the one with -00001-of-")
    if unit.memory is not None:
        what = "llama.cpp takes no share of a node: it takes the weights, and a cache of context x sequences"
        yield RuleViolation(("memory",), what, "write kv, the size of that cache; its log has it as `KV buffer size`")
    for name in unit.env:
        if name.startswith("LLAMA_ARG_") or name in ("LLAMA_API_KEY", "HF_TOKEN"):
            right = "write the option in args" if name.startswith("LLAMA_ARG_") else "write a reference at api.key"
            yield RuleViolation(("env", name), "sets an option of llama-server past what is checked", right)


def advice(unit: ServedUnit, _ranks: int) -> Iterator[RuleViolation]:
    """Yield what is lost."""
    what = "`serve bench`, `serve calibrate` and the phases of its log do not know llama.cpp"
    yield RuleViolation(("engine",), what, "its own llama-bench measures it")
    if unit.probe.tool:
        yield RuleViolation(
            ("probe", "tool"), "a tool call of llama.cpp needs a chat template that has tools", "try it"
        )
