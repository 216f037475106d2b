"""Command lines of vLLM and SGLang are judged by the table of options."""

from __future__ import annotations

import difflib
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from serving.engines.command_line import EngineArgumentsError, judge, render
from serving.engines.option_table import Engine, build, parse_table, render_table, table, version_key
from serving.engines.registry import FAMILIES
from tests.unit.serving.engines import published_lines as published
from tests.unit.serving.engines.published_lines import PublishedLine
from tests.unit.serving.engines.test_real_parsers import OPTIONS

ENGINES: tuple[Engine, ...] = ("vllm", "sglang")


def messages(engine: Engine, version: str, *argv: str) -> list[str]:
    """The problems of a line; vLLM gets a model before it."""
    line = ("model", *argv) if engine == "vllm" else argv
    return [problem.message for problem in judge(engine, version, line).problems]


@pytest.mark.parametrize("line", published.ACCEPTED.values(), ids=published.ACCEPTED)
def test_a_published_line_is_accepted_by_its_version(line: PublishedLine) -> None:
    verdict = judge(line.engine, line.version, line.argv)
    assert verdict.problems == ()
    assert verdict.accepted


def test_prefix_caching_is_refused_and_the_option_that_is_meant_is_named() -> None:
    line = published.TWO_NODES_DEEPSEEK
    for version in ("0.21.1rc1", "0.21.0", "0.33.0"):
        (problem,) = judge(line.engine, version, line.argv).problems
        assert problem.option == "--prefix-caching"
        assert problem.message.endswith("; did you mean --enable-prefix-caching?")


def test_a_line_for_an_older_sglang_is_refused_by_a_newer_one() -> None:
    line = published.EIGHT_NODES_NEMOTRON
    assert judge("sglang", "0.5.18", line.argv).accepted
    problems = judge("sglang", "0.5.20", line.argv).problems
    assert [problem.option for problem in problems] == ["--cuda-graph-max-bs", "--disable-piecewise-cuda-graph"]
    assert problems[0].message == (
        "--cuda-graph-max-bs is not an option of SGLang 0.5.20: removed after 0.5.18; "
        "did you mean --cuda-graph-max-bs-decode?"
    )
    assert "removed after 0.5.18" in problems[1].message


@pytest.mark.parametrize(
    ("engine", "version", "release"),
    [
        ("vllm", "0.19.1", "0.19.1"),
        ("vllm", "0.19.0", "0.19.1"),
        ("vllm", "v0.19.1+cu130", "0.19.1"),
        ("vllm", "0.21.1rc1", "0.21.0"),
        ("vllm", "0.15.0", "0.14.1"),
        ("vllm", "0.22.2", "0.22.1"),
        ("sglang", "0.5.5", "0.5.4"),
        ("sglang", "0.5.12.post1", "0.5.12"),
    ],
)
def test_a_version_between_known_ones_is_judged_by_a_neighbour(engine: Engine, version: str, release: str) -> None:
    verdict = judge(engine, version, [])
    assert verdict.release == release
    assert verdict.note == ("" if version == release else f"{version} is judged by {release}")
    message = messages(engine, version, "--no-such-thing")[0]
    assert (f"({version} is judged by {release})" in message) == (version != release)


@pytest.mark.parametrize(
    ("engine", "version"),
    [("vllm", "0.10.2rc1"), ("vllm", "0.9.2"), ("sglang", "0.5.3"), ("llama.cpp", "b10000")],
)
def test_a_version_before_the_table_is_never_accepted(engine: Engine, version: str) -> None:
    verdict = judge(engine, version, ["model"] if engine == "vllm" else [])
    assert verdict.release is None
    assert not verdict.accepted
    (problem,) = verdict.problems
    assert "its options are unknown" in problem.message
    with pytest.raises(EngineArgumentsError, match="its options are unknown"):
        render(engine, version, {})


@pytest.mark.parametrize(
    ("engine", "version"),
    [("vllm", "0.33.1"), ("vllm", "0.34.0rc1"), ("vllm", "1.0.0"), ("sglang", "0.5.24"), ("llama.cpp", "b11549")],
)
def test_a_version_after_the_table_is_judged_by_the_newest_release_which_is_said(engine: Engine, version: str) -> None:
    newest = list(table(engine).releases)[-1]
    verdict = judge(engine, version, ["model"] if engine == "vllm" else [])
    assert (verdict.release, verdict.accepted) == (newest, True)
    assert verdict.note == f"{version} is judged by {newest}"
    (problem,) = judge(engine, version, ["model", "--no-such-option"][engine != "vllm" :]).problems
    assert f"{version} ({version} is judged by {newest})" in problem.message


@pytest.mark.parametrize(("engine", "version"), [("vllm", "b11434"), ("llama.cpp", "0.5.3")])
def test_a_version_in_the_form_of_another_engine_is_refused(engine: Engine, version: str) -> None:
    assert "is not a version; write it as " in judge(engine, version, []).problems[0].message


@pytest.mark.parametrize("version", ["latest", "", "0.21", "26.04-py3"])
def test_what_is_not_a_version_is_refused(version: str) -> None:
    verdict = judge("vllm", version, [])
    assert not verdict.accepted
    assert "is not a version" in verdict.problems[0].message


@pytest.mark.parametrize(
    ("engine", "version", "argv", "expected"),
    [
        (
            "vllm",
            "0.25.1",
            ["--enable-reasoning"],
            "--enable-reasoning is not an option of vLLM 0.25.1: removed before 0.10.2; remove it: reasoning-parser",
        ),
        (
            "vllm",
            "0.17.1",
            ["--shutdown-timeout", "5"],
            "--shutdown-timeout is not an option of vLLM 0.17.1: since 0.18.1",
        ),
        (
            "vllm",
            "0.20.2",
            ["--disable-log-requests"],
            "--disable-log-requests is not an option of vLLM 0.20.2: removed after 0.16.0, back since 0.33.0",
        ),
        ("vllm", "0.21.0", ["--max-num-seqs"], "--max-num-seqs has no value; give it one"),
        ("vllm", "0.21.0", ["--max-num-seqs", "8", "9"], "'9' belongs to no option of vLLM 0.21.0; remove it"),
        (
            "vllm",
            "0.21.0",
            ["--headless=yes"],
            "--headless is a flag of vLLM 0.21.0 and takes no value; remove 'yes'",
        ),
        ("vllm", "0.21.0", ["--headless", "yes"], "'yes' belongs to no option of vLLM 0.21.0; remove it"),
        (
            "vllm",
            "0.21.0",
            ["--max-num-seqs", "many"],
            "--max-num-seqs takes a whole number in vLLM 0.21.0, not 'many'",
        ),
        (
            "vllm",
            "0.21.0",
            ["--max-model-len", "64 K"],
            "--max-model-len takes a whole number or a size such as 4k in vLLM 0.21.0, not '64 K'",
        ),
        ("vllm", "0.21.0", ["--kv-cache-dtype", "fp7"], "did you mean fp8?"),
        ("vllm", "0.21.0", ["--compilation-config", "{'mode':3}"], "is not JSON: Expecting property name"),
        (
            "vllm",
            "0.21.0",
            ["--speculative-config", "mtp"],
            "--speculative-config takes JSON in vLLM 0.21.0, and 'mtp'",
        ),
        ("vllm", "0.21.0", ["--compilation-config", "3"], "takes a JSON object in vLLM 0.21.0, not '3'"),
        ("vllm", "0.21.0", ["--max-num-seqs", "8", "--max-num-seqs", "9"], "--max-num-seqs is given twice; keep one"),
        ("vllm", "0.21.0", ["-tp", "2", "--tensor-parallel-size", "2"], "is given twice, the first time as -tp; keep"),
        (
            "vllm",
            "0.21.0",
            ["--max-num-seqs.x", "2"],
            "--max-num-seqs.x has a part '.x', but vLLM 0.21.0 takes no JSON",
        ),
        ("vllm", "0.21.0", ["--"], "-- is not an option of vLLM 0.21.0; remove it"),
        ("sglang", "0.5.12", ["--tp", "8"], "--tp is not an option of SGLang 0.5.12; did you mean --tp-size?"),
        ("sglang", "0.5.12", ["--max_mamba_cache_size", "9"], "did you mean --max-mamba-cache-size?"),
        (
            "sglang",
            "0.5.4",
            ["--enable-ep-moe"],
            "--enable-ep-moe is an option of the past, which SGLang 0.5.4 refuses",
        ),
    ],
)
def test_a_wrong_option_gives_one_problem_that_says_what_is_wrong(
    engine: Engine, version: str, argv: list[str], expected: str
) -> None:
    (message,) = messages(engine, version, *argv)
    assert expected in message


@pytest.mark.parametrize(
    ("engine", "argv"),
    [
        ("vllm", ["--max_num_seqs", "8"]),
        ("vllm", ["--max-model-len", "64k"]),
        ("vllm", ["--max-model-len", "-1"]),
        ("vllm", ["--max-model-len", "auto"]),
        ("vllm", ["--compilation-config.mode", "3", "--compilation-config.cudagraph_mode=PIECEWISE"]),
        ("vllm", ["--attention_config.indexer_kv_dtype", "fp8"]),
        ("vllm", ['--compilation-config={"mode": 3}']),
        ("vllm", ["-O3"]),
        ("vllm", ["-O", "2"]),
        ("vllm", ["--no-enable-prefix-caching"]),
        ("vllm", ["--middleware", "a", "--middleware", "b"]),
        ("vllm", ["--served-model-name", "a", "b"]),
        ("sglang", ["--lora-paths", "a=/a", "b=/b", "--enable-metrics"]),
    ],
)
def test_a_right_option_is_accepted(engine: Engine, argv: list[str]) -> None:
    assert messages(engine, "0.21.0" if engine == "vllm" else "0.5.12", *argv) == []


def mutated(name: str, place: int, act: str) -> str:
    """An option with one slip of the keyboard, behind its dashes."""
    place = 2 + place % (len(name) - 2)
    match act:
        case "left out":
            return name[:place] + name[place + 1 :]
        case "doubled":
            return name[:place] + name[place] + name[place:]
        case "swapped":
            return name[:place] + name[place : place + 2][::-1] + name[place + 2 :]
        case _:
            return name[:place]


@settings(max_examples=300, deadline=None)
@given(
    line=st.sampled_from(list(published.ACCEPTED.values())),
    which=st.integers(0, 100),
    place=st.integers(0, 100),
    act=st.sampled_from(["left out", "doubled", "swapped", "abbreviated"]),
)
def test_one_slip_in_a_published_line_is_refused_by_its_name_and_the_nearest_one(
    line: PublishedLine, which: int, place: int, act: str
) -> None:
    places = [at for at, argument in enumerate(line.argv) if argument.startswith("--")]
    at = places[which % len(places)]
    name, equals, value = line.argv[at].partition("=")
    wrong = mutated(name, place, act)
    known = table(line.engine)
    names = known.of(known.judging(line.version) or "")
    argv = [*line.argv[:at], wrong + equals + value, *line.argv[at + 1 :]]
    verdict = judge(line.engine, line.version, argv)
    if wrong in names:
        return  # another option: whether it is right is the parser's concern
    assert not verdict.accepted
    problem = next(problem for problem in verdict.problems if problem.option == wrong)
    assert problem.message.startswith(f"{wrong} is not an option of ")
    meant = problem.message.rpartition("did you mean ")[2].removesuffix("?")
    if meant != problem.message:
        assert meant in names
        assert meant == name or nearness(wrong, meant) >= nearness(wrong, name) or wrong[2:] in meant
    else:
        assert nearness(wrong, name) < 0.6


def nearness(one: str, other: str) -> float:
    """As difflib.get_close_matches compares."""
    return difflib.SequenceMatcher(None, other, one).ratio()


def test_args_become_arguments_in_their_order() -> None:
    args = {
        "attention-backend": "TRITON_ATTN",
        "disable-custom-all-reduce": True,
        "enable-prefix-caching": False,
        "cpu-offload-gb": 0.87,
        "block-size": 8,
        "served-model-name": ["a b", "c"],
        "compilation-config": {"cudagraph_mode": "PIECEWISE"},
        "speculative-config": '{"method":"mtp"}',
        "chat-template": "--odd",
    }
    assert render("vllm", "0.21.0", args) == [
        "--attention-backend",
        "TRITON_ATTN",
        "--disable-custom-all-reduce",
        "--no-enable-prefix-caching",
        "--cpu-offload-gb",
        "0.87",
        "--block-size",
        "8",
        "--served-model-name",
        "a b",
        "c",
        "--compilation-config",
        '{"cudagraph_mode":"PIECEWISE"}',
        "--speculative-config",
        '{"method":"mtp"}',
        "--chat-template=--odd",
    ]
    assert render("vllm", "0.33.0", {"enable-prefix-caching": False}) == ["--disable-prefix-caching"]
    assert render("sglang", "0.5.12", {"disable-radix-cache": False}) == []
    assert render("sglang", "0.5.12", {"disable-radix-cache": True}) == ["--disable-radix-cache"]


@pytest.mark.parametrize("engine", ENGINES)
def test_an_option_of_the_launcher_is_refused_in_every_release_and_under_every_name(engine: Engine) -> None:
    known = table(engine)
    for release in known.releases:
        options = known.of(release)
        owned = {options[f"--{key}"].dest for key in FAMILIES[engine].owned if f"--{key}" in options}
        names = [name for name, option in options.items() if option.dest in owned and name.startswith("--")]
        for key in {*FAMILIES[engine].owned, *(name.removeprefix("--") for name in names)}:
            with pytest.raises(EngineArgumentsError, match=f"--{key} .*remove it from args"):
                render(engine, release, {key: "x"})


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        ({"--block-size": 8}, "--block-size is not the long name of an option; write block-size"),
        ({"block_size": 8}, "block_size is not the long name of an option; write block-size"),
        ({"block-size": True}, "--block-size takes a value, not true"),
        ({"disable-custom-all-reduce": 1}, "--disable-custom-all-reduce is a flag; write true or false"),
        ({"block-size": [1, 2]}, "--block-size takes one value, not a list"),
        ({"block-size": None}, "--block-size cannot take None"),
        ({"cpu-offload-gb": float("nan")}, "--cpu-offload-gb cannot take nan"),
        ({"served-model-name": ["a", "-b"]}, "cannot take a list with a value that begins with a dash"),
        ({"served-model-name": []}, "--served-model-name has no value"),
        ({"block-size": {"a": 1}}, "--block-size cannot take"),
    ],
)
def test_wrong_args_are_refused(args: dict[str, object], expected: str) -> None:
    with pytest.raises(EngineArgumentsError) as caught:
        render("vllm", "0.21.0", args)
    assert expected in str(caught.value)


def test_all_problems_of_args_are_reported_at_once() -> None:
    with pytest.raises(EngineArgumentsError) as caught:
        render("vllm", "0.19.0", {"prefix-caching": True, "port": 1, "block-size": "many"})
    assert [problem.option for problem in caught.value.problems] == ["--prefix-caching", "--port", "--block-size"]
    assert "vLLM 0.19.0 (0.19.0 is judged by 0.19.1)" in str(caught.value)


@pytest.mark.parametrize(
    ("engine", "version", "args", "expected"),
    [
        (
            "vllm",
            "0.25.1",
            {"enable-auto-tool-choice": True, "tool-call-parser": "qwen3xml_typo", "reasoning-parser": "qwen33"},
            ["--tool-call-parser qwen3_xml?", "--reasoning-parser qwen3?"],
        ),
        ("sglang", "0.5.23", {"tool-call-parser": "qwen_25"}, ["--tool-call-parser qwen25?"]),
        ("vllm", "0.25.1", {"tool-call-parser": "qwen3_xml", "reasoning-parser": "qwen3"}, []),
        ("vllm", "0.25.1", {"tool-call-parser": "mine", "tool-parser-plugin": "/usr/share/mine.py"}, []),
        ("vllm", "0.25.1", {"reasoning-parser": "mine", "reasoning-parser-plugin": "/usr/share/mine.py"}, []),
        (
            "vllm",
            "0.25.1",
            {"tool-call-parser": "mine", "reasoning-parser-plugin": "/usr/share/mine.py"},
            ["--tool-call-parser "],
        ),
    ],
)
def test_a_parser_that_the_release_does_not_have_is_refused_unless_a_plugin_may_bring_it(
    engine: Engine, version: str, args: dict[str, object], expected: list[str]
) -> None:
    found = []
    try:
        render(engine, version, args)
    except EngineArgumentsError as refused:
        found = [f"{each.option} {each.message.partition('did you mean ')[2]}" for each in refused.problems]
    assert found == expected


@pytest.mark.parametrize("engine", ENGINES)
def test_the_table_is_in_order_and_its_text_is_what_it_renders_to(engine: Engine) -> None:
    known = table(engine)
    assert list(known.releases) == sorted(known.releases, key=version_key)
    assert all(len(digest) == 64 for digest in known.releases.values())
    for name, rows in known.options.items():
        places = [known.order[place] for row in rows for place in (row.since, row.until)]
        assert places == sorted(places), name
    path = FAMILIES[engine].table
    assert path
    assert path.read_text() == render_table(known)
    again = build(engine, known.releases, {release: known.of(release) for release in known.releases})
    assert again == known
    assert parse_table(engine, json.loads(render_table(known))) == known


@pytest.mark.parametrize("engine", ENGINES)
def test_the_table_has_what_was_compared_with_the_parser_of_each_release(engine: Engine) -> None:
    """After an edit, `scripts/engine_options.py compare` compares again, and records what does not differ."""
    now = {release: OPTIONS.compared(engine, release) for release in table(engine).releases}
    recorded = json.loads(OPTIONS.COMPARED.read_text())[engine]
    assert [release for release in now.keys() | recorded.keys() if now.get(release) != recorded.get(release)] == []


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("no-enable-prefix-caching", "--disable-prefix-caching"),
        ("no-disable-custom-all-reduce", "--enable-custom-all-reduce"),
        ("no-enable-flashinfer-autotune", "--disable-flashinfer-autotune"),
    ],
)
def test_the_hint_for_a_negated_option_sets_the_same(key: str, meant: str) -> None:
    (problem,) = judge("vllm", "0.33.0", ["model", f"--{key}"]).problems
    assert problem.message == (f"--{key} is not an option of vLLM 0.33.0: removed after 0.32.0; did you mean {meant}?")
