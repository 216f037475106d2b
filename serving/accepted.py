"""What a unit declares against a table, or without a mount, with a reason: its `accept`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from core.model.errors import RuleViolation
from core.model.model_lock import ModelRecord
from serving.container_paths import ACCEPTED_BEFORE, ACCEPTED_CUSTOM, absent, unit_places
from serving.engines.command_line import EngineArgumentsError, OptionProblem, render
from serving.engines.option_table import TITLES
from serving.engines.registry import ENGINES
from serving.fit import PADDED, padding
from serving.options import ServedUnit, plain_argument


def engine_arguments(unit: ServedUnit) -> list[str]:
    """Return the command-line arguments of `args`: those that the table takes, then those that `accept` names.

    Raises:
        EngineArgumentsError: with all problems of what `accept` does not name.
    """
    args = {key: plain_argument(value) for key, value in unit.args.items()}
    accepted = accepted_options(unit)
    problems: list[OptionProblem] = []
    words: list[str] = []
    try:
        words = render(unit.family, unit.version, {key: value for key, value in args.items() if key not in accepted})
    except EngineArgumentsError as refused:
        problems += refused.problems
    for key in accepted:
        try:
            words += _render_unknown_option(key, args[key])
        except ValueError as error:
            problems.append(OptionProblem(f"--{key}", f"--{key} {error}"))
    if problems:
        raise EngineArgumentsError(problems)
    return words


def accepted_options(unit: ServedUnit) -> Mapping[str, str]:
    """Return what the table says against each option that is accepted, by its key in `args`.

    An option that the launcher sets itself is never accepted, nor is any where no release of the table judges.
    """
    args = {key: plain_argument(value) for key, value in unit.args.items()}
    if not unit.accept.keys() & args.keys() or ENGINES[unit.engine].table is None:
        return {}
    try:
        render(unit.family, unit.version, args)
    except EngineArgumentsError as refused:
        problems = {problem.option: problem.message for problem in refused.problems}
    else:
        return {}
    if "" in problems:
        return {}
    own = {f"{why}; remove it from args" for why in ENGINES[unit.engine].owned.values()}
    return {
        key: message
        for key in args
        if key in unit.accept and (message := problems.get(f"--{key}")) and message.removeprefix(f"--{key} ") not in own
    }


def _render_unknown_option(key: str, value: object) -> list[str]:
    """Return the arguments of an option of which nothing is known. Raises ValueError with the end of a sentence."""
    if value is False:
        raise ValueError("has no opposite that is known; remove it from args")
    if value is True:
        return [f"--{key}"]
    if isinstance(value, Mapping):
        return [f"--{key}", json.dumps(value, separators=(",", ":"))]
    values = [
        json.dumps(one, separators=(",", ":")) if isinstance(one, Mapping | list) else str(one)
        for one in (value if isinstance(value, list) else [value])
    ]
    if not any(one.startswith("-") for one in values):
        return [f"--{key}", *values]
    if len(values) > 1:
        raise ValueError("cannot take a list with a value that begins with a dash; write one value")
    return [f"--{key}={values[0]}"]


def idle_entries(unit: ServedUnit, record: ModelRecord | None) -> Iterator[RuleViolation]:
    """Yield each entry of `accept` that accepts nothing, so that none stays when its cause has gone.

    Args:
        unit: the unit.
        record: its model in the lock file, None without one.
    """
    options = accepted_options(unit)
    places = {one.key for one in unit_places(unit) if absent(unit, one)}
    for key in unit.accept:
        if key in options or key in places:
            continue
        if key == PADDED:
            if padding(unit, record) == ():
                what = f"accepts nothing: {unit.model} divides by the split"
                yield RuleViolation(("accept", key), what, "remove it")
            continue
        if key in unit.args:
            if _has_no_judging_release(unit):
                continue
            what = f"{TITLES[unit.family]} {unit.version} takes args.{key}, and the container has what it names"
            if f"--{key}" in _refused_options(unit):
                what = f"args.{key} is an option that the launcher sets, which nothing accepts"
        elif key in unit.env:
            what = f"the container has what env.{key} names"
        elif key in (ACCEPTED_BEFORE, ACCEPTED_CUSTOM) and getattr(unit, key):
            what = f"the container has what {key} names"
        else:
            what = f"there is neither args.{key} nor env.{key}"
        yield RuleViolation(("accept", key), f"accepts nothing: {what}", "remove it")


def _has_no_judging_release(unit: ServedUnit) -> bool:
    """Return whether no release of the table judges a unit, which is a problem of its own."""
    try:
        render(unit.family, unit.version, {})
    except EngineArgumentsError:
        return True
    return False


def _refused_options(unit: ServedUnit) -> set[str]:
    args = {key: plain_argument(value) for key, value in unit.args.items()}
    try:
        render(unit.family, unit.version, args)
    except EngineArgumentsError as refused:
        return {problem.option for problem in refused.problems}
    return set()
