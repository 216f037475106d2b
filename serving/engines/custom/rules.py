"""What the section `custom` of a unit must have, and what a unit loses with an engine that no table knows."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from core.model.errors import RuleViolation, truncate
from core.model.written_secrets import written_secret

if TYPE_CHECKING:
    from serving.options import ServedUnit

PLACEHOLDERS = ("model", "name", "rank", "nodes", "head", "meeting", "host", "port", "context", "sequences")
PLACEHOLDER = re.compile(r"(?<!\$)\{([A-Za-z_][A-Za-z0-9_]*)\}")
"""A name in braces. JSON has no such thing, and `${NAME}` is a variable of a shell."""
_VERSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,63}")


def rules(unit: ServedUnit, ranks: int) -> Iterator[RuleViolation]:
    """Yield what is wrong with the section."""
    declared = unit.custom
    if declared is None:
        return  # the section itself is refused
    if not _VERSION.fullmatch(unit.version):
        yield RuleViolation(("version",), "is not a version", "write letters, digits and . _ + -, like 0.6.2")
    yield from _check_command("command", declared.command)
    yield from _check_command("worker_command", declared.worker_command or ())
    yield from _check_ranks(unit, ranks)
    for name in ("host", "port"):
        if name not in _placeholders_in(declared.command):
            what = f"has no {{{name}}}, so the engine would not listen where it is asked for"
            yield RuleViolation(("custom", "command"), what, f"add the option of its {name} with the value {{{name}}}")
    if unit.api.key and declared.key is None:
        what = "the engine would not get its key: no option and no variable is declared for it"
        yield RuleViolation(("api", "key"), what, "write custom.key, like {option: --api-key-file}, or remove it")
    if declared.key and unit.api.key is None:
        yield RuleViolation(("custom", "key"), "there is no key at api.key", "write one there, or remove custom.key")


def _check_ranks(unit: ServedUnit, ranks: int) -> Iterator[RuleViolation]:
    declared = unit.custom
    if declared is None:
        return
    if ranks > 1 and not declared.worker_command and "rank" not in _placeholders_in(declared.command):
        what = f"is the same on each of {ranks} nodes"
        yield RuleViolation(("custom", "command"), what, "add {rank}, or write worker_command for the others")
    if ranks == 1 and declared.worker_command:
        yield RuleViolation(("custom", "worker_command"), "the unit has one node", "remove it")


def _placeholders_in(words: Sequence[str]) -> set[str]:
    return {name for word in words for name in PLACEHOLDER.findall(word)}


def _check_command(key: str, words: Sequence[str]) -> Iterator[RuleViolation]:
    for place, word in enumerate(words):
        for name in PLACEHOLDER.findall(word):
            if name not in PLACEHOLDERS:
                known = ", ".join(f"{{{one}}}" for one in PLACEHOLDERS)
                yield RuleViolation(
                    ("custom", key, place), f"{{{truncate(name)}}} is not a placeholder", f"write one of {known}"
                )
    for place, (option, value) in enumerate(pairwise([*words, ""])):
        name, equals, inline = option.partition("=")
        given = inline if equals else "" if value.startswith("-") else value
        if option.startswith("-") and given and written_secret(name, given) is not None:
            what = "a secret does not belong in this file, nor into the arguments of a process"
            yield RuleViolation(
                ("custom", key, place), what, "write a reference at api.key, and custom.key for its option"
            )
        elif not option.startswith("-") and written_secret("", option) is not None:
            yield RuleViolation(("custom", key, place), "a secret does not belong in this file", "remove it")


def advice(unit: ServedUnit, _ranks: int) -> Iterator[RuleViolation]:
    """Yield what is lost."""
    declared = unit.custom
    if declared is None:
        return
    yield RuleViolation(
        ("engine",),
        "no table judges the options of a custom engine; `serve bench`, `serve calibrate` and the phases of its log do "
        "not know it",
        "what the image takes shows at its start",
    )
    if not declared.progress or not declared.requests:
        lacks = "progress" if not declared.progress else "requests"
        yield RuleViolation(
            ("custom", lacks),
            "is not declared: a prompt that takes longer than probe.limit x probe.misses may look stuck"
            if lacks == "progress"
            else "is not declared: a stop cannot tell whether requests are left, and waits for drain",
            "name metrics of its /metrics, or write a longer probe.limit" if lacks == "progress" else "name two gauges",
        )
