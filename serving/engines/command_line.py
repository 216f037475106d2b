"""Command lines of inference engines: rendered from rack.yaml, and judged before anything starts."""

from __future__ import annotations

import difflib
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from serving.engines.option_table import TITLES, Engine, EngineOption, EngineTable, table
from serving.engines.registry import FAMILIES

_NEGATIVE_NUMBER = re.compile(r"-\d+|-\d*\.\d+")
_SIZE = re.compile(r"-?\d+|\d+(\.\d+)?[kmgt]i?b?", re.IGNORECASE)
_KEY = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")


@dataclass(frozen=True)
class OptionProblem:
    """What is wrong with one option of a command line; `option` is empty if it concerns the whole line."""

    option: str
    message: str


@dataclass(frozen=True)
class CommandLineVerdict:
    """What the table says of one command line.

    `release`: the known release that judged it, None if none is near enough; then `problems` says so. `note`: a
    sentence where another release than the given version judged.
    """

    release: str | None
    note: str
    problems: tuple[OptionProblem, ...]

    @property
    def accepted(self) -> bool:
        """Whether a known release takes the line."""
        return self.release is not None and not self.problems


class EngineArgumentsError(Exception):
    """Arguments of an engine that are refused; `problems` has them all."""

    def __init__(self, problems: Sequence[OptionProblem]) -> None:
        super().__init__("\n".join(problem.message for problem in problems))
        self.problems = tuple(problems)


def judge(engine: Engine, version: str, argv: Sequence[str]) -> CommandLineVerdict:
    """Judge a command line with the options of a release.

    Args:
        engine: the engine.
        version: the version of the engine, such as 0.21.0. Between two known releases a neighbour judges; outside of
            them nothing does, which is a problem of its own.
        argv: what follows `vllm serve`, or `python -m sglang.launch_server`.

    Returns the problems: unknown, abbreviated or repeated options, missing or surplus values, and values of a wrong
    kind. A value that the engine itself judges later (a model, the keys of a JSON value) passes.
    """
    try:
        known = table(engine)
    except ValueError as error:
        return CommandLineVerdict(None, "", (OptionProblem("", str(error)),))
    return _judge_arguments(known, version, argv)


def render(engine: Engine, version: str, args: Mapping[str, object]) -> list[str]:
    """Return the command-line arguments of a unit's `args`, one item an argument, without quotes.

    Args:
        engine: the engine.
        version: the version of the engine.
        args: values by the long name of an option, without the leading dashes. True gives the flag, False its opposite,
            or nothing where the flag has none. A list gives several values. A mapping, or a list, of an option that
            takes JSON is written as JSON.

    Raises:
        EngineArgumentsError: with all problems: those of `judge`, and options that the launcher sets itself.
    """
    if FAMILIES[engine].table is None:
        what = f"{TITLES[engine]} has no table of options that could judge it; write it in the command"
        if args:
            raise EngineArgumentsError([OptionProblem(f"--{key}", what) for key in args])
        return []
    try:
        known = table(engine)
    except ValueError as error:
        raise EngineArgumentsError([OptionProblem("", str(error))]) from None
    release, note, problems = _find_judging_release(known, version)
    if release is None:
        raise EngineArgumentsError(problems)
    options = known.of(release)
    found: list[OptionProblem] = []
    argv: list[str] = []
    reasons = FAMILIES[engine].owned
    owned = {options[f"--{name}"].dest: name for name in reasons if f"--{name}" in options}
    for key, value in args.items():
        name = f"--{key}"
        if not _KEY.fullmatch(key):
            proper = key.lstrip("-").replace("_", "-").lower()
            found.append(OptionProblem(key, f"{key} is not the long name of an option; write {proper}"))
            continue
        option = options.get(name)
        launcher = key if key in reasons else owned.get(option.dest) if option else None
        if launcher:
            found.append(OptionProblem(name, f"{name} {reasons[launcher]}; remove it from args"))
        elif option is None:
            found.append(
                _describe_unknown_option(known, release, f"{TITLES[engine]} {version}{note and f' ({note})'}", name)
            )
        else:
            try:
                argv += _render_option(name, option, options, value)
            except ValueError as error:
                found.append(OptionProblem(name, f"{name} {error}"))
    found += _judge_arguments(
        known, version, ["model", *argv] if FAMILIES[engine].syntax.model_first else argv
    ).problems
    if found:
        raise EngineArgumentsError(found)
    return argv


def _render_option(name: str, option: EngineOption, options: Mapping[str, EngineOption], value: object) -> list[str]:
    """Return the arguments of one option. Raises ValueError with the end of a sentence that begins with its name."""
    if isinstance(value, bool):
        if option.count != 0:
            raise ValueError(f"takes a value, not {str(value).lower()}")
        if value:
            return [name]
        opposite = {"on": "off", "off": "on"}.get(option.kind, "no opposite")
        return [other for other, known in options.items() if (known.dest, known.kind) == (option.dest, opposite)][:1]
    if option.count == 0:
        raise ValueError("is a flag; write true or false")
    if option.takes_json and isinstance(value, Mapping | list):
        return [name, json.dumps(value, separators=(",", ":"))]
    values = [_format_value(each) for each in (value if isinstance(value, list) else [value])]
    if isinstance(value, list) and option.count not in ("+", "*"):
        raise ValueError("takes one value, not a list")
    if any(_is_option(each) for each in values):
        if len(values) > 1:
            raise ValueError("cannot take a list with a value that begins with a dash")
        return [f"{name}={values[0]}"]
    return [name, *values]


def _format_value(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value):
        return str(value)
    raise ValueError(f"cannot take {value!r}; write a number, a text, true, false or a list")


def _find_judging_release(known: EngineTable, version: str) -> tuple[str | None, str, list[OptionProblem]]:
    """Return the release that judges a version, a note if it is another one, and a problem if there is none."""
    title, releases = TITLES[known.engine], list(known.releases)
    try:
        release = known.judging(version)
    except ValueError as error:
        return None, "", [OptionProblem("", f"{title}: {error}")]
    if release is None:
        message = (
            f"{title} {version}: its options are unknown; the table has releases from {releases[0]} to {releases[-1]}; "
            "use one of them, or add this one as docs/reference/engine-options.md says"
        )
        return None, "", [OptionProblem("", message)]
    return release, "" if release == version else f"{version} is judged by {release}", []


def _judge_arguments(known: EngineTable, version: str, argv: Sequence[str]) -> CommandLineVerdict:
    release, note, problems = _find_judging_release(known, version)
    if release is None:
        return CommandLineVerdict(None, "", tuple(problems))
    title = f"{TITLES[known.engine]} {version}" + (f" ({note})" if note else "")
    options = known.of(release)
    seen: dict[str, str] = {}
    given = list(split_options(known.engine, options, argv))
    names = {name for name, *_ in given}
    plugins = FAMILIES[known.engine].syntax.plugins
    for name, path, values in given:
        if not name:
            problems += [OptionProblem("", f"{value!r} belongs to no option of {title}; remove it") for value in values]
            continue
        option = options.get(name)
        if option is None or not name.startswith("-"):
            problems.append(_describe_unknown_option(known, release, title, name))
            continue
        if plugins.get(name) in names:
            option = replace(option, choices=())
        place = option.dest + path
        if place in seen and not option.repeats:
            same = "" if seen[place] == name + path else f", the first time as {seen[place]}"
            problems.append(OptionProblem(name, f"{name}{path} is given twice{same}; keep one of them"))
        seen.setdefault(place, name + path)
        problems += [
            OptionProblem(name, f"{name}{path} {fault}") for fault in _list_option_faults(title, option, path, values)
        ]
    return CommandLineVerdict(release, note, tuple(problems))


def _is_option(argument: str) -> bool:
    """Return whether argparse takes an argument for an option and not for a value."""
    return (
        len(argument) > 1
        and argument.startswith("-")
        and " " not in argument.partition("=")[0]
        and not _NEGATIVE_NUMBER.fullmatch(argument)
    )


def split_options(
    engine: Engine, options: Mapping[str, EngineOption], argv: Sequence[str]
) -> Iterator[tuple[str, str, list[str]]]:
    """Yield each option, the path below it (`.mode`, vLLM only) and its values; arguments of no option without a name.

    vLLM takes one argument, the model, before the options.
    """
    syntax = FAMILIES[engine].syntax
    rest = list(argv)
    if syntax.model_first and rest and not _is_option(rest[0]):
        rest.pop(0)
    while rest:
        argument = rest.pop(0)
        if not _is_option(argument):
            yield "", "", [argument]
            continue
        name, equals, inline = argument.partition("=") if syntax.equals else (argument, "", "")
        path = ""
        if syntax.paths:
            name, dot, below = name.partition(".")
            path = dot + below
            if name.startswith("--"):
                name = "--" + name[2:].replace("_", "-")
            elif name.startswith("-O") and "-O" not in options:
                name, equals, inline = "--optimization-level", "=" if name[2:] else equals, name[2:] or inline
        values = [inline] if equals else []
        option = options.get(name)
        while rest and not _is_option(rest[0]) and not equals and _takes_more(option, len(values)):
            values.append(rest.pop(0))
        yield name, path, values


def _takes_more(option: EngineOption | None, count: int) -> bool:
    """Return whether an option takes another value; an unknown one takes one, so that it is reported only once."""
    if option is None:
        return count < 1
    return option.count in ("+", "*") or (option.count == "?" and count < 1) or count < _least_count(option.count)


def _least_count(count: object) -> int:
    return count if isinstance(count, int) else 0


def _list_option_faults(title: str, option: EngineOption, path: str, values: Sequence[str]) -> Iterator[str]:
    """Yield what is wrong with one option and its values, as the ends of sentences that begin with its name."""
    if option.kind == "refused":
        yield f"is an option of the past, which {title} refuses; remove it"
    elif option.count == 0 and values:
        yield f"is a flag of {title} and takes no value; remove {' '.join(values)!r}"
    elif option.count not in (0, "?", "*") and len(values) < max(1, _least_count(option.count)):
        yield "has no value; give it one"
    elif path and not option.takes_json:
        yield f"has a part {path!r}, but {title} takes no JSON here; remove the part"
    elif not path:
        for value in values:
            yield from _value_faults(title, option, value)


def _value_faults(title: str, option: EngineOption, value: str) -> Iterator[str]:
    kind, *words = option.kind.split("|")
    if value in words:
        return
    if option.takes_json:
        try:
            parsed = json.loads(value)
        except ValueError as error:
            yield f"takes JSON in {title}, and {value!r} is not JSON: {error}"
            return
        if kind == "object" and not isinstance(parsed, dict):
            yield f"takes a JSON object in {title}, not {value!r}"
        return
    if not _is_kind(kind, value):
        wanted = {"int": "a whole number", "float": "a number", "size": "a whole number or a size such as 4k"}[kind]
        yield f"takes {wanted} in {title}, not {value!r}"
        return
    plain = str(int(value)) if kind == "int" else value
    if option.choices and plain not in option.choices:
        near = difflib.get_close_matches(value, option.choices, n=1)
        meant = f"; did you mean {near[0]}?" if near else ""
        yield f"takes one of {', '.join(option.choices)} in {title}, not {value!r}{meant}"


def _is_kind(kind: str, value: str) -> bool:
    try:
        match kind:
            case "int":
                int(value)
            case "float":
                float(value)
            case "size":
                return bool(_SIZE.fullmatch(value))
    except ValueError:
        return False
    return True


_REPLACED = {
    "--enable-reasoning": "removed before 0.10.2; remove it: reasoning-parser alone turns it on",
}
"""Options of releases before the first of the tables that recipes still have, with what does the same now."""


def _describe_unknown_option(known: EngineTable, release: str, title: str, name: str) -> OptionProblem:
    """Say that a release lacks an option, which releases have it, and which name is near."""
    if name in _REPLACED:
        return OptionProblem(name, f"{name} is not an option of {title}: {_REPLACED[name]}")
    presences = known.options.get(name, ())
    place = known.order[release]
    before = [row for row in presences if known.order[row.until] < place]
    after = [row for row in presences if known.order[row.since] > place]
    history = [
        *([f"removed after {before[-1].until}"] if before else []),
        *([f"since {after[0].since}" if not before else f"back since {after[0].since}"] if after else []),
    ]
    names = [other for other in known.of(release) if other.startswith("--")]
    near = find_same_option(known, release, name) or _find_nearest_name(name, names)
    message = f"{name} is not an option of {title}"
    if history:
        message += f": {', '.join(history)}"
    return OptionProblem(name, message + (f"; did you mean {near}?" if near else "; remove it"))


def find_same_option(known: EngineTable, release: str, name: str) -> str | None:
    """Return the name that a release has for an option of other releases: one that sets the same to the same."""
    options = known.of(release)
    for presence in reversed(known.options.get(name, ())):
        then = (presence.option.dest, presence.option.kind, presence.option.count)
        for other, option in options.items():
            if other.startswith("--") and (option.dest, option.kind, option.count) == then:
                return other
    return None


def _find_nearest_name(name: str, names: Sequence[str]) -> str | None:
    """Return the name that is probably meant: one that has all words of the wrong one, else a similar one."""
    words = f"-{name.strip('-')}-"
    whole = [other for other in names if words != "--" and words in f"{other[1:]}-"]
    longer = [other for other in names if len(name) > 3 and other.startswith(name)]
    near = difflib.get_close_matches(name, whole, n=1, cutoff=0) or difflib.get_close_matches(name, names, n=1)
    return next(iter(near or longer), None)
