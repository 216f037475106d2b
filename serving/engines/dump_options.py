"""The options of an argparse parser as the table of options has them; as a program, those of the engine of an image.

    python3 - ENGINE < dump_options.py > ENGINE-VERSION.json

It runs in the image of the engine, vllm or sglang, with its own parser, and prints what a file of
~/.config/sparkrack/engines has. Standard library only.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock


def accepts(convert: Callable[[str], object], text: str) -> bool:
    """Return whether a conversion takes a text."""
    try:
        convert(text)
    except (ValueError, TypeError, ArithmeticError, argparse.ArgumentTypeError):
        return False
    return True


def kind_of(action: argparse.Action, name: str, parser: argparse.ArgumentParser) -> str:
    """Return what an option is, found by trying it.

    A flag is `on` or `off` by what it stores, `refused` where the parser knows it only to refuse it (SGLang does so
    with options of the past), or `flag`. The value of any other option is text, int, float, size (such as 4k), json or
    object (JSON with keys); words that it takes besides follow: size|auto.
    """
    if action.nargs == 0:
        return _kind_of_flag(action, name, parser)
    convert = action.type
    if not callable(convert) or isinstance(convert, MagicMock) or accepts(convert, "no-such-value"):
        return "text"
    for kind, sample in (("object", "{}"), ("float", "1.5"), ("size", "4k"), ("int", "4")):
        if accepts(convert, sample):
            if kind == "object" and accepts(convert, "1"):
                kind = "json"
            return "|".join((kind, *(word for word in ("None", "auto") if accepts(convert, word))))
    return "text"


def _kind_of_flag(action: argparse.Action, name: str, parser: argparse.ArgumentParser) -> str:
    values = argparse.Namespace()
    try:
        action(parser, values, [], name)
    except (ValueError, argparse.ArgumentError):
        return "refused"
    except SystemExit:  # --help and --version
        return "flag"
    stored = getattr(values, action.dest, None)
    return {True: "on", False: "off"}.get(stored, "flag") if isinstance(stored, bool) else "flag"


def _list_choices(action: argparse.Action) -> list[str]:
    """Return the choices of an option that its own conversion lets through: vLLM lists a None that it never takes."""
    convert = action.type if callable(action.type) and not isinstance(action.type, MagicMock) else str
    choices = action.choices or ()
    return sorted(text for text in map(str, choices) if not accepts(convert, text) or convert(text) in choices)


def dump(parser: argparse.ArgumentParser) -> dict[str, Any]:
    """Return for each name of an option: where its value goes, how many values it takes, their kind and choices."""
    found: dict[str, Any] = {}
    for action in parser._actions:
        for name in action.option_strings or [action.dest]:
            found[name] = {
                "dest": action.dest,
                "count": 1 if action.nargs is None else action.nargs,
                "kind": kind_of(action, name, parser),
                "choices": _list_choices(action),
                "repeats": isinstance(action, argparse._AppendAction),
            }
    return found


def vllm_parser() -> argparse.ArgumentParser:
    """Return the parser of `vllm serve`. The module moved twice: entrypoints/openai, /launchers, /common."""
    package = Path(importlib.import_module("vllm").__file__ or "").parent
    (place,) = [
        file for file in (package / "entrypoints").rglob("cli_args.py") if "def make_arg_parser" in file.read_text()
    ]
    options = importlib.import_module(".".join(place.relative_to(package.parent).with_suffix("").parts))
    own = package / "utils/argparse_utils.py"
    utilities = importlib.import_module("vllm.utils.argparse_utils" if own.exists() else "vllm.utils")
    made: argparse.ArgumentParser = options.make_arg_parser(utilities.FlexibleArgumentParser(prog="vllm serve"))
    return made


def sglang_parser() -> argparse.ArgumentParser:
    """Return the parser of `python -m sglang.launch_server`."""
    parser = argparse.ArgumentParser(prog="sglang.launch_server")
    importlib.import_module("sglang.srt.server_args").ServerArgs.add_cli_args(parser)
    return parser


def main() -> None:
    """Print the options of the engine of this image."""
    answers, sys.stdout = sys.stdout, sys.stderr
    engine = sys.argv[1]
    options = dump({"vllm": vllm_parser, "sglang": sglang_parser}[engine]())
    version = importlib.metadata.version(engine)
    print(json.dumps({"engine": engine, "version": version, "options": options}, indent=1), file=answers)


if __name__ == "__main__":
    main()
