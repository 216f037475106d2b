"""The table of options judges command lines as the parsers of vLLM and SGLang themselves do.

The parsers are those of the releases of scripts/engine_options.py. These are soak tests, which fetch the releases
(177 MB) if the cache lacks them. In `make test`, tests/unit/serving/engines/test_command_line.py finds a table that was
edited since it was compared.
"""

from __future__ import annotations

import importlib.util
import random
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from serving.engines.command_line import judge, render
from serving.engines.option_table import Engine, table
from serving.engines.registry import FAMILIES
from serving.engines.sglang import KEY_PATH
from tests.generated import REPOSITORY
from tests.unit.serving.engines import example_lines
from tests.unit.serving.engines import published_lines as published
from tests.unit.serving.engines.published_lines import PublishedLine

pytestmark = pytest.mark.soak(sampled=False)

Release = tuple[Engine, str]


def script() -> Any:
    """scripts/engine_options.py as a module."""
    place = Path(REPOSITORY) / "scripts/engine_options.py"
    spec = importlib.util.spec_from_file_location("engine_options", place)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


OPTIONS = script()
RELEASES: list[Release] = OPTIONS.RELEASES
VLLM = [release for release in RELEASES if release[0] == "vllm"]
SAMPLES = ("1", "-1", "0.5", "4k", "auto", "None", "no-such-value", "{}", '{"a": 1}', "{'a': 1}")
"""No empty value: vLLM takes it for None, and the table refuses it."""
APART = {"help", "config", "version", "model", "model_path", "lora_modules", "lora_paths", "kv_canary_real_data"}
"""Where options are kept that end the parser, name the model, or judge the inner form of their value.

The choices of kv_canary_real_data are those of a mock.
"""
REFUSED: dict[str, tuple[str, list[str]]] = {
    "eight nodes, Nemotron 3 Ultra": ("0.5.23", ["--cuda-graph-max-bs", "--disable-piecewise-cuda-graph"]),
    "eight nodes, Nemotron 3 Ultra, MTP": ("0.5.23", ["--cuda-graph-max-bs", "--disable-piecewise-cuda-graph"]),
    "two nodes, Qwen3 235B": ("0.11.2", ["--attention-backend"]),
    "two nodes, DeepSeek V4 Flash, corrected": (
        "0.11.2",
        ["--tokenizer-mode", "--tool-call-parser", "--reasoning-parser"],
    ),
}
"""By published line: a release for which it is wrong, and the options that this release refuses.

The other lines have only options that all releases of the table take.
"""
WITH_DEEPSEEK_V4 = ("0.21.0", "0.33.0")
"""The releases of vLLM in the table that have the parsers of the published DeepSeek line; an older one names these."""
OF_THE_IMAGE = ',"table_memory":"disk"'
"""A key of --engram-config that the images of b12x add to the release: vLLM 0.33.0 itself refuses it."""
WRONG_KEY = "unexpected_keyword_argument"
"""Part of the message with which vLLM refuses a key of a JSON value. The table does not have these keys."""


@pytest.fixture(scope="module")
def parsers() -> Iterator[dict[Release, Any]]:
    """The parsers of all releases, each in a process that imports its release once."""
    OPTIONS.fetch_all()
    started = {release: OPTIONS.ReleaseParser(*release) for release in RELEASES}
    yield started
    for parser in started.values():
        parser.close()


@pytest.fixture(scope="module")
def recipes() -> list[list[str]]:
    """The command lines of vLLM's recipes for one GB10, from the source of the release."""
    return [shlex.split(line) for line in OPTIONS.recipes()]


def assert_judged_alike(parser: Any, lines: Sequence[Sequence[str]]) -> None:
    """The table accepts what the parser accepts; of what both refuse, both name an option in common."""
    refusals = parser.refusals(lines)
    assert len(refusals) == len(lines)
    wrong = {}
    for line, refusal in zip(lines, refusals, strict=True):
        problems = judge(parser.engine, parser.version, line).problems
        named = any(problem.option in refusal for problem in problems) if refusal else False
        alike = named or (not problems and (refusal is None or WRONG_KEY in refusal))
        if not alike:
            wrong[shlex.join(line)] = ([problem.message for problem in problems], refusal)
    assert wrong == {}


def with_model(engine: Engine, line: Sequence[str]) -> list[str]:
    """A line with the model that each engine asks for."""
    return ["model", *line] if engine == "vllm" else ["--model-path", "model", *line]


@pytest.mark.parametrize("release", RELEASES, ids="-".join)
def test_the_table_has_the_options_of_the_release(release: Release, parsers: dict[Release, Any]) -> None:
    assert OPTIONS.differences(parsers[release]) == []


@pytest.mark.parametrize("release", RELEASES, ids="-".join)
def test_published_lines_are_judged_as_the_release_does(release: Release, parsers: dict[Release, Any]) -> None:
    lines = [
        line.argv for line in (*published.ACCEPTED.values(), published.TWO_NODES_DEEPSEEK) if line.engine == release[0]
    ]
    assert_judged_alike(parsers[release], lines)


def test_the_line_of_each_rank_of_the_examples_is_taken_by_its_release(
    parsers: dict[Release, Any], tmp_path: Path
) -> None:
    """And the lines of one release are refused by a later one that has other options."""
    key = tmp_path / "key.yaml"
    key.write_text("api-key: none\n")
    found: dict[Release, list[list[str]]] = {}
    for line in example_lines.lines():
        release = table(line.engine).judging(line.version)
        assert release
        # The file of the key is in the container only.
        argv = [str(key) if word == KEY_PATH else word for word in line.argv]
        own = [word.replace(OF_THE_IMAGE, "") for word in argv]
        assert (own != argv) == line.example.startswith("deepseek-v4.1"), line.example
        found.setdefault((line.engine, release), []).append(own)
    assert set(found) == {("sglang", "0.5.12"), ("vllm", "0.19.1"), ("vllm", "0.21.0"), ("vllm", "0.33.0")}
    for (engine, version), lines in found.items():
        assert parsers[engine, version].refusals(lines) == [None] * len(lines)
    gone = [line for line in found["sglang", "0.5.12"] if "--cuda-graph-max-bs" in line]
    assert len(gone) == 16
    for refusal in parsers["sglang", "0.5.23"].refusals(gone):
        assert "--cuda-graph-max-bs" in refusal


@pytest.mark.parametrize("name", [name for name, line in published.ACCEPTED.items() if line.version != "0.22.1"])
def test_a_published_line_is_taken_by_its_own_release(name: str, parsers: dict[Release, Any]) -> None:
    line = published.ACCEPTED[name]
    release = table(line.engine).judging(line.version)
    assert release
    assert parsers[line.engine, release].refusals([line.argv]) == [None]
    assert judge(line.engine, release, line.argv).accepted


@pytest.mark.parametrize("name", published.ACCEPTED)
def test_a_published_line_is_refused_by_a_wrong_release_which_names_the_option(
    name: str, parsers: dict[Release, Any]
) -> None:
    line = published.ACCEPTED[name]
    if name not in REFUSED:
        assert all(judge(line.engine, release, line.argv).accepted for release in table(line.engine).releases)
        of_engine = [parser for release, parser in parsers.items() if release[0] == line.engine]
        assert [parser.refusals([line.argv]) for parser in of_engine] == [[None]] * len(of_engine)
        return
    version, options = REFUSED[name]
    (refusal,) = parsers[line.engine, version].refusals([line.argv])
    # argparse names all options that it does not know, but of wrong values the first alone.
    assert [option for option in options if option in refusal] in (options, options[:1])
    assert [problem.option for problem in judge(line.engine, version, line.argv).problems] == options


@pytest.mark.parametrize("release", [one for one in VLLM if one[1] in WITH_DEEPSEEK_V4], ids="-".join)
def test_prefix_caching_is_refused_by_the_release_as_by_the_table(
    release: Release, parsers: dict[Release, Any]
) -> None:
    argv = published.TWO_NODES_DEEPSEEK.argv
    assert parsers[release].refusals([argv]) == ["unrecognized arguments: --prefix-caching"]
    (problem,) = judge(*release, argv).problems
    assert problem.option == "--prefix-caching"
    assert problem.message.endswith("; did you mean --enable-prefix-caching?")


@pytest.mark.parametrize("name", published.ACCEPTED)
def test_an_option_without_one_letter_is_refused_by_release_and_table(name: str, parsers: dict[Release, Any]) -> None:
    """Each option of each published line but the model; the table names the option that is meant."""
    line: PublishedLine = published.ACCEPTED[name]
    release = (line.engine, [version for engine, version in RELEASES if engine == line.engine][-2])
    names = table(line.engine).of(release[1])
    slips = []
    for place, argument in enumerate(line.argv):
        option, equals, value = argument.partition("=")
        wrong = option[: len(option) // 2] + option[len(option) // 2 + 1 :]
        if option in names and wrong not in names and len(option) > 3 and option != "--model-path":
            slips.append((option, wrong, [*line.argv[:place], wrong + equals + value, *line.argv[place + 1 :]]))
    assert slips
    refusals = parsers[release].refusals([slip[2] for slip in slips])
    for (option, wrong, argv), refusal in zip(slips, refusals, strict=True):
        assert wrong in (refusal or "accepted")
        (problem,) = judge(*release, argv).problems
        assert (problem.option, problem.message.rpartition("; ")[2]) == (wrong, f"did you mean {option}?")


def test_the_recipes_of_vllm_for_a_gb10_are_taken_by_its_release(
    recipes: list[list[str]], parsers: dict[Release, Any]
) -> None:
    assert len(recipes) == 81
    assert parsers["vllm", OPTIONS.RECIPES].refusals(recipes) == [None] * len(recipes)
    assert [judge("vllm", OPTIONS.RECIPES, line).problems for line in recipes] == [()] * len(recipes)


@pytest.mark.parametrize("release", VLLM, ids="-".join)
def test_the_recipes_are_judged_as_each_release_does(
    release: Release, recipes: list[list[str]], parsers: dict[Release, Any]
) -> None:
    assert_judged_alike(parsers[release], recipes)


def test_older_releases_refuse_the_recipes_that_need_newer_ones(recipes: list[list[str]]) -> None:
    refused = Counter(
        (problem.option, problem.message.partition("not ")[2].partition(";")[0])
        for line in recipes
        for problem in judge("vllm", "0.25.1", line).problems
    )
    assert refused == {
        ("--enable-mamba-shared-prefix-checkpoint", "an option of vLLM 0.25.1: since 0.31.0"): 4,
        ("--prefix-match-unit", "an option of vLLM 0.25.1: since 0.26.0"): 4,
        ("--linear-backend", "'b12x'"): 8,
        ("--moe-backend", "'b12x'"): 8,
        ("--tool-call-parser", "'ling3'"): 4,
        ("--reasoning-parser", "'ling3'"): 4,
        ("--tool-call-parser", "'muse_glimmer'"): 3,
        ("--reasoning-parser", "'muse_glimmer'"): 3,
    }


@pytest.mark.parametrize("part", range(10))
@pytest.mark.parametrize("release", RELEASES, ids="-".join)
def test_every_option_is_judged_as_the_release_does(release: Release, part: int, parsers: dict[Release, Any]) -> None:
    """Each option alone: without a value, with two, with values of each kind, and without its last letter."""
    lines = []
    options = list(table(release[0]).of(release[1]).items())
    for name, option in options[part::10]:
        if name.startswith("--") and option.dest not in APART:
            is_plain = option.count == 0 or (option.kind == "text" and not option.choices)
            values: tuple[str, ...] = SAMPLES[:1] if is_plain else SAMPLES
            if option.kind.startswith("object"):  # its keys are not in the table
                values = tuple(value for value in values if value != '{"a": 1}')
            lines += [[name], [name, "1", "2"], [name[:-1]], *([f"{name}={value}"] for value in values)]
    lines = [with_model(release[0], line) for line in lines]
    wrong = {
        shlex.join(line): ([problem.message for problem in verdict.problems], refusal)
        for line, refusal in zip(lines, parsers[release].refusals(lines), strict=True)
        if (verdict := judge(*release, line)).accepted != (refusal is None)
    }
    assert wrong == {}


@pytest.mark.parametrize("release", RELEASES, ids="-".join)
def test_what_is_rendered_is_taken_by_the_release(release: Release, parsers: dict[Release, Any]) -> None:
    """Every flag, true and false."""
    chance = random.Random(7)  # noqa: S311 - which flags stand together, not a secret
    options = table(release[0]).of(release[1])
    launcher = {options[f"--{name}"].dest for name in FAMILIES[release[0]].owned if f"--{name}" in options}
    flags = [
        name[2:]
        for name, option in options.items()
        if option.kind in ("on", "off") and name.startswith("--") and option.dest not in launcher
    ]
    lines = [
        with_model(release[0], render(*release, {flag: value}))
        for value in (True, False)
        for flag in chance.sample(flags, len(flags))
    ]
    assert [refusal for refusal in parsers[release].refusals(lines) if refusal] == []
