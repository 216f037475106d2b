"""What the engines' measuring tools are asked, and what is read from their results."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from serving.engines.bench_tool import (
    BenchCase,
    BenchFigures,
    BenchTarget,
    BenchTool,
    BenchToolError,
    cases,
)
from serving.engines.option_table import Engine, table, version_key
from serving.engines.registry import ENGINES
from tests.unit.serving.engines.bench_results import FIGURES, sglang_result, vllm_result

CASE = BenchCase(4, 8192)
EXPECTED = BenchFigures(16.98, 8123.4, 8311.9, 58.1, 61.7)


def tool(engine: Engine) -> BenchTool:
    found = ENGINES[engine].bench
    assert found
    return found


def target(version: str = "0.19.1", **args: Any) -> BenchTarget:
    return BenchTarget(version, "http://10.77.0.11:8000", "/models/qwen", "qwen3", args)


def option(words: tuple[str, ...], name: str) -> str:
    return words[words.index(name) + 1]


def test_the_matrix_is_limited_by_context_and_sequences() -> None:
    found = {str(case): reason for case, reason in cases(16896, 3, quick=False)}
    four = "needs 4 sequences, the unit has 3"
    long = "needs a context of 66048 tokens, the unit has 16896"
    assert found == {
        "1 x 8192 tokens": "",
        "1 x 16384 tokens": "",
        "1 x 65536 tokens": long,
        "4 x 8192 tokens": four,
        "4 x 16384 tokens": four,
        "4 x 65536 tokens": f"{long}; {four}",
    }
    assert all(not reason for _, reason in cases(66048, 4, quick=False))
    assert [(str(case), reason) for case, reason in cases(16896, 1, quick=True)] == [("1 x 1024 tokens", "")]
    assert [case.requests for case in (BenchCase(1, 1), BenchCase(4, 1))] == [4, 8]


def test_vllm_is_asked_for_prompts_that_it_has_not_seen() -> None:
    words = tool("vllm").command(target(), CASE, "/tmp/x/4.json", 17)  # noqa: S108 - no file is made
    assert words[:3] == ("vllm", "bench", "serve")
    assert option(words, "--seed") == "17"
    assert (option(words, "--num-prompts"), option(words, "--max-concurrency")) == ("8", "4")
    assert (option(words, "--random-input-len"), option(words, "--random-output-len")) == ("8192", "256")
    assert (option(words, "--model"), option(words, "--served-model-name")) == ("/models/qwen", "qwen3")
    assert option(words, "--ready-check-timeout-sec") == "0", "else the first prompt is in the prefix cache"
    assert (option(words, "--result-dir"), option(words, "--result-filename")) == ("/tmp/x", "4.json")  # noqa: S108
    assert "--ignore-eos" in words
    assert not any(word.startswith("--num-warmups") for word in words), "it repeats the first prompt"


def test_sglang_is_asked_for_lengths_that_do_not_vary() -> None:
    words = tool("sglang").command(target("0.5.12"), CASE, "/tmp/x/4.json", 17)  # noqa: S108 - no file is made
    assert words[:3] == ("python3", "-m", "sglang.bench_serving")
    assert (option(words, "--dataset-name"), option(words, "--random-range-ratio")) == ("random-ids", "1")
    assert "--tokenize-prompt" in words
    assert option(words, "--warmup-requests") == "0", "else the first prompt is in the prefix cache"
    assert option(words, "--output-file") == "/tmp/x/4.json"  # noqa: S108 - no file is made


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_a_warm_up_has_one_round_of_short_answers(engine: Engine) -> None:
    words = tool(engine).command(target(), CASE, "/x/4.json", 17, warm_up=True)
    assert (option(words, "--num-prompts"), option(words, "--random-output-len")) == ("4", "16")
    assert option(words, "--random-input-len") == "8192"


def test_the_tokenizer_is_that_of_the_engine() -> None:
    args = {"tokenizer": "/models/t", "tokenizer-mode": "deepseek_v4", "trust-remote-code": True}
    new, old = (tool("vllm").command(target(version, **args), CASE, "/x/4.json", 1) for version in ("0.21.0", "0.11.0"))
    assert (option(new, "--tokenizer"), option(new, "--tokenizer-mode")) == ("/models/t", "deepseek_v4")
    assert "--trust-remote-code" in new
    assert "--tokenizer-mode" not in old, "vllm bench serve has it from 0.11.2 on"
    sglang = tool("sglang").command(target("0.5.12", **{"tokenizer-path": "/models/t"}), CASE, "/x/4.json", 1)
    assert option(sglang, "--tokenizer") == "/models/t"


def test_releases_whose_tool_sends_a_prompt_twice_are_not_measured() -> None:
    for engine, since in {"vllm": "0.11.0", "sglang": "0.5.4"}.items():
        for release in table(engine).releases:
            assert bool(tool(engine).fault(release)) == (version_key(release) < version_key(since))
    assert "vLLM 0.10.2 cannot" in tool("vllm").fault("0.10.2")
    assert "0.11.0 or later can" in tool("vllm").fault("0.10.2")


@pytest.mark.parametrize(
    ("engine", "text"),
    [
        ("vllm", vllm_result(CASE)),
        ("vllm", vllm_result(CASE, counts_failed=False)),
        ("sglang", sglang_result(CASE)),
        ("sglang", sglang_result(CASE, completed=1) + sglang_result(CASE)),
    ],
    ids=["vllm", "vllm 0.11.0", "sglang", "sglang, two lines"],
)
def test_the_figures_of_a_result(engine: Engine, text: str) -> None:
    assert tool(engine).figures(text, CASE) == EXPECTED


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"completed": 7}, "7 of 8 requests were answered"),
        ({"completed": 0, **dict.fromkeys(FIGURES, 0)}, "0 of 8 requests were answered"),
        ({"failed": 1}, "8 of 8 requests were answered, 1 failed"),
        ({"total_output_tokens": 1800}, "the answers have 1800 tokens, expected 2048"),
        *(
            ({name: value}, f"no usable {name}")
            for name in FIGURES
            for value in (None, "12", True, 0, -1.0, float("nan"), float("inf"))
        ),
    ],
)
def test_a_result_that_cannot_be_used_is_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(BenchToolError, match=re.escape(reason)):
        tool("vllm").figures(vllm_result(CASE, **changes), CASE)


@pytest.mark.parametrize("text", ["", "[]", "{", json.dumps([1]), "x\ny"])
@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_what_is_not_a_result_is_refused(engine: Engine, text: str) -> None:
    with pytest.raises(BenchToolError, match="not a JSON object"):
        tool(engine).figures(text, CASE)


@pytest.mark.parametrize("name", ["completed", "total_output_tokens", *FIGURES])
def test_each_figure_is_needed(name: str) -> None:
    found = json.loads(vllm_result(CASE))
    del found[name]
    with pytest.raises(BenchToolError, match=f"no usable {name}"):
        tool("vllm").figures(json.dumps(found), CASE)
