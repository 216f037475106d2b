"""Run the command-line parser of an unpacked vLLM or SGLang release, without torch and without a GPU.

engine_parser.py ENGINE TREE

Each line of standard input is a question in JSON, each line of standard output its answer. "options": the options by
name. A list of command lines, which are lists of arguments: for each the message of the refusal, or null.

scripts/engine_options.py starts it with the packages of requirements/engines.lock and nothing else. Modules that
are not installed there (torch, transformers, triton and many more) are replaced by mocks when an import needs them, as
vLLM's documentation build does (docs/mkdocs). Choices that such a module would give are missing.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import importlib.metadata
import io
import json
import os
import re
import sys
import types
import typing
import warnings
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock, patch

from pydantic_core import core_schema

sys.path.append(str(Path(__file__).resolve().parents[1] / "serving/engines"))
from dump_options import dump

IMPORTS = 400
"""Number of modules that one release may lack."""

SGLANG_REPLACED = tuple(
    f"sglang.{part}"
    for part in (
        "kernels",
        "srt.configs",
        "srt.connector",
        "srt.distributed",
        "srt.entrypoints",
        "srt.layers",
        "srt.lora.lora_config",
        "srt.platforms",
        "srt.speculative",
        "srt.utils.hf_transformers",
        "srt.utils.hf_transformers_utils",
        "srt.utils.runai_utils",
        "srt.utils.tensor_bridge",
    )
)
"""Packages of SGLang that compute with torch when they are imported, and define no option."""


class _Base:
    """What a class inherits from where its base class is a mock."""

    def __init_subclass__(cls, **_: object) -> None:
        """Take the arguments of any class statement."""


class MockModule(MagicMock):
    """A module that is not installed: any attribute, any base class, any pydantic field."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        name = str(kwargs.get("name"))
        self.__spec__ = ModuleSpec(name, None)
        self.__path__: list[str] = []
        self.__file__ = name

    def __mro_entries__(self, bases: object) -> tuple[type, ...]:
        return (_Base,)

    def __get_pydantic_core_schema__(self, source: object, handler: object) -> Any:
        return core_schema.any_schema()


class MockFinder:
    """Serves mocks for SGLANG_REPLACED."""

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        wanted = any(name == part or name.startswith(f"{part}.") for part in SGLANG_REPLACED)
        return ModuleSpec(name, typing.cast(Any, self)) if wanted else None

    def create_module(self, spec: ModuleSpec) -> Any:
        return MockModule(name=spec.name)

    def exec_module(self, module: object) -> None:
        """There is nothing to execute."""


def with_mocks(act: Callable[[], Any], own: str) -> Any:
    """Repeat an action, with a mock for each module that it lacks. A missing module of the engine is an error."""
    for _ in range(IMPORTS):
        try:
            return act()
        except ModuleNotFoundError as error:
            if error.name is None or error.name == own or error.name.startswith(f"{own}."):
                raise
            sys.modules[error.name] = MockModule(name=error.name)
    raise SystemExit(f"more than {IMPORTS} modules are missing")


def _version_or_any(known: Callable[[str], str]) -> Callable[[str], str]:
    def version(name: str) -> str:
        try:
            return known(name)
        except importlib.metadata.PackageNotFoundError:
            return "99.0.0"

    return version


def _infer_schema(function: Any, **_: object) -> str:
    """Stand in for infer_schema of torch, whose result is only parsed for what follows the arrow."""
    returned = typing.get_type_hints(function)["return"]
    parts = typing.get_args(returned) if typing.get_origin(returned) is tuple else (returned,)
    return "(Tensor x) -> " + ", ".join(getattr(part, "__name__", str(part)) for part in parts)


def vllm_parser(tree: Path) -> argparse.ArgumentParser:
    """Return the parser of `vllm serve`."""

    class Registering:
        """CustomOp and PluggableLayer, whose decorator must return the class."""

        @staticmethod
        def register(*_: object, **__: object) -> Callable[[type], type]:
            return lambda cls: cls

    nn = MagicMock(Parameter=object, Module=type("Module", (), {}))
    sys.modules |= {
        "torch": MockModule(name="torch", nn=nn),
        **{f"torch.{part}": mock for part, mock in (("nn", nn), ("library", MagicMock(infer_schema=_infer_schema)))},
        "vllm._C": MagicMock(),
        "vllm._C_stable_libtorch": MagicMock(),
        "vllm.model_executor.custom_op": MagicMock(CustomOp=Registering, PluggableLayer=Registering),
        "vllm.utils.torch_utils": MagicMock(direct_register_custom_op=lambda *_, **__: None),
    }
    # The module moved twice: entrypoints/openai, /launchers, /common.
    places = [
        file for file in (tree / "vllm/entrypoints").rglob("cli_args.py") if "def make_arg_parser" in file.read_text()
    ]
    if len(places) != 1:
        raise SystemExit(f"{tree}: make_arg_parser is in {len(places)} files; adapt {__file__}")
    module = ".".join(places[0].relative_to(tree).with_suffix("").parts)
    utilities = "vllm.utils.argparse_utils" if (tree / "vllm/utils/argparse_utils.py").exists() else "vllm.utils"
    options = with_mocks(lambda: importlib.import_module(module), "vllm")
    parser = with_mocks(lambda: importlib.import_module(utilities), "vllm").FlexibleArgumentParser

    def make() -> Any:
        with patch("vllm.config.DeviceConfig.__post_init__"):
            return options.make_arg_parser(parser(prog="vllm serve"))

    made = typing.cast(argparse.ArgumentParser, with_mocks(make, "vllm"))
    _name_parsers(made, with_mocks(lambda: importlib.import_module("vllm.reasoning"), "vllm").ReasoningParserManager)
    return made


def _name_parsers(made: argparse.ArgumentParser, reasoning: Any) -> None:
    """Give --tool-call-parser and --reasoning-parser the names that a release has as their choices.

    vLLM takes any name when it parses, and ends at its start for one that is not registered
    (validate_api_server_args). A plugin registers more.
    """
    for action in made._actions:
        if action.dest == "tool_call_parser":
            names = re.fullmatch(r"\{(.+)\} or name registered in --tool-parser-plugin", str(action.metavar))
            if not names:
                raise SystemExit(f"--tool-call-parser has the metavar {action.metavar!r}; adapt {__file__}")
            action.choices = sorted(names[1].split(","))
        elif action.dest == "reasoning_parser" and not action.choices:
            action.choices = sorted(reasoning.list_registered())


def sglang_parser(tree: Path) -> argparse.ArgumentParser:
    """Return the parser of `python -m sglang.launch_server`."""
    nn = MagicMock(Parameter=object, Module=type("Module", (), {}))
    torch: Any = MockModule(name="torch", nn=nn, __version__="2.9.0")
    torch.version.hip = None
    torch.cuda.is_available = lambda: False
    torch.cuda.device_count = lambda: 1
    torch.cuda.get_device_capability = lambda *_: (12, 1)  # of a GB10
    sys.modules |= {"torch": torch, "torch.nn": nn}
    for name in ("sglang", "sglang.srt"):  # without their __init__, which import the engine
        package: Any = types.ModuleType(name)
        package.__path__, package.__version__ = [str(tree / name.replace(".", "/"))], "0"
        sys.modules[name] = package
    sys.modules["sglang"].srt = sys.modules["sglang.srt"]  # type: ignore[attr-defined]
    sys.meta_path.insert(0, typing.cast(Any, MockFinder()))

    def make() -> argparse.ArgumentParser:
        parser = argparse.ArgumentParser(prog="sglang.launch_server")
        importlib.import_module("sglang.srt.server_args").ServerArgs.add_cli_args(parser)
        return parser

    made = with_mocks(make, "sglang")
    return typing.cast(argparse.ArgumentParser, made)


def refusal(parser: argparse.ArgumentParser, line: list[str]) -> str | None:
    """Return the message with which a parser refuses a line, None if it takes it."""
    answer = io.StringIO()
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(answer):
        try:
            parser.parse_args(line)
        except SystemExit:
            return answer.getvalue().strip().rpartition("error: ")[2] or "it ended"
        except Exception as error:  # an assertion of SGLang, an error of pydantic: each engine refuses in its way
            return str(error) or type(error).__name__
    return None


def main() -> None:
    """Answer the questions of standard input."""
    engine, tree = sys.argv[1:]
    answers, sys.stdout = sys.stdout, sys.stderr
    warnings.filterwarnings("ignore")
    os.environ.setdefault("VLLM_LOGGING_LEVEL", "ERROR")
    importlib.metadata.version = _version_or_any(importlib.metadata.version)
    sys.path.insert(0, tree)
    parser = {"vllm": vllm_parser, "sglang": sglang_parser}[engine](Path(tree))
    parser.allow_abbrev = False
    parser.print_usage = lambda *_: None  # type: ignore[method-assign]  # it has hundreds of options
    for line in sys.stdin:
        question = json.loads(line)
        answer = dump(parser) if question == "options" else [refusal(parser, each) for each in question]
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
