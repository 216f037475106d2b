"""Releases that an operator adds to the tables of options, without a clone: files of his configuration folder."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from serving.engines import dump_options
from serving.engines.command_line import EngineArgumentsError, judge, render
from serving.engines.option_table import added_folder, table
from tests.unit.model.serving_racks import refusals, text, unit


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    table.cache_clear()
    added_folder().mkdir(parents=True)
    yield added_folder()
    table.cache_clear()


def printed(version: str, *added: str, engine: str = "vllm") -> str:
    """What dump_options.py prints: the options of vLLM 0.33.0 that are judged here, and more."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    parser.add_argument("model_tag", nargs="?")
    for name in ("--max-model-len", "--served-model-name", *added):
        parser.add_argument(name, type=str)
    parser.add_argument("--new-mode", choices=["fast", "slow"])
    parser.add_argument("--number", type=int)
    return json.dumps({"engine": engine, "version": version, "options": dump_options.dump(parser)})


def test_an_option_of_an_added_release_is_known_and_its_value_is_judged(folder: Path) -> None:
    assert "--new-mode is not an option" in judge("vllm", "0.34.0", ["m", "--new-mode", "fast"]).problems[0].message
    table.cache_clear()
    (folder / "vllm-0.34.0.json").write_text(printed("0.34.0"))
    assert list(table("vllm").releases)[-2:] == ["0.33.0", "0.34.0"]
    assert judge("vllm", "0.34.0", ["m", "--new-mode", "fast", "--number", "3"]).note == ""
    assert judge("vllm", "0.34.0", ["m", "--new-mode", "fast", "--number", "3"]).accepted
    (wrong,) = judge("vllm", "0.34.0", ["m", "--new-mode", "fest"]).problems
    assert "--new-mode takes one of fast, slow in vLLM 0.34.0, not 'fest'; did you mean fast?" in wrong.message
    assert "takes a whole number" in judge("vllm", "0.34.0", ["m", "--number", "x"]).problems[0].message
    gone = judge("vllm", "0.34.0", ["m", "--headless"]).problems[0].message
    assert "--headless is not an option of vLLM 0.34.0: removed after 0.33.0" in gone
    assert judge("vllm", "0.34.1", ["m"]).note == "0.34.1 is judged by 0.34.0"
    assert judge("vllm", "0.33.0", ["m", "--headless"]).accepted, "the others are as before"


def test_the_launcher_s_own_options_stay_refused_in_an_added_release(folder: Path) -> None:
    (folder / "vllm-0.34.0.json").write_text(printed("0.34.0", "--port"))
    with pytest.raises(EngineArgumentsError, match="--port follows from where the unit listens"):
        render("vllm", "0.34.0", {"port": 1})


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        printed("latest"),
        printed("0.34.0", engine="sglang"),
        json.dumps({"engine": "vllm", "version": "0.34.0", "options": {}}),
        json.dumps({"engine": "vllm", "version": "0.34.0", "options": {"--a": {"dest": "a"}}}),
        json.dumps({"engine": "vllm", "version": "0.34.0", "options": ["--a"]}),
    ],
)
def test_a_file_that_is_no_such_table_is_refused_by_its_name_and_never_passed_over(folder: Path, content: str) -> None:
    (folder / "vllm-0.34.0.json").write_text(content)
    why = f"{folder}/vllm-0.34.0.json: is not what dump_options.py prints of vllm; make it again, or remove it"
    assert [problem.message for problem in judge("vllm", "0.33.0", ["m"]).problems] == [why]
    table.cache_clear()
    (found,) = refusals(text({"one": unit()}))
    assert found == f"serving.units.one.version @ version: {why}"
    assert judge("sglang", "0.5.12", []).accepted, "the table of another engine is not touched"


def test_a_dump_has_what_the_table_has_of_each_option() -> None:
    found: Any = json.loads(printed("0.34.0"))["options"]
    assert found["--new-mode"] == {
        "dest": "new_mode",
        "count": 1,
        "kind": "text",
        "choices": ["fast", "slow"],
        "repeats": False,
    }
    assert (found["--number"]["kind"], found["--help"]["kind"], found["model_tag"]["count"]) == ("int", "flag", "?")
