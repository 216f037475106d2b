"""The text of a recipe is read as the tools of both formats read it: YAML 1.1 by PyYAML, placeholders, one command."""

from __future__ import annotations

import pytest
import yaml

from sparkrack.serving.recipe_text import RecipeError, command_words, filled, read_recipe, single_braces


@pytest.mark.parametrize(
    "value",
    [
        *(
            "yes",
            "no",
            "on",
            "off",
            "True",
            "y",
            "1_000",
            "010",
            "0o10",
            "0x1F",
            "1:30",
            "1.5",
            ".5",
            "1.0e+3",
            "~",
            "''",
        ),
        *(
            "8000",
            "1e6",
            "0.80",
            "auto",
            "-1",
            "128k",
            '"1"',
            "2026-11-26",
            "{a: yes, b: [on, 2]}",
            "null",
            "+3",
            "1_0.5",
        ),
    ],
)
@pytest.mark.filterwarnings("error")
def test_a_value_is_what_pyyaml_reads(value: str) -> None:
    text = f"key: {value}\n"
    found, _ = read_recipe(text)
    wanted = yaml.safe_load(text)
    assert found == wanted
    assert type(found["key"]) is type(wanted["key"])


@pytest.mark.parametrize(
    "text",
    [
        "base: &b {a: 1, b: 2}\nderived: {<<: *b, b: 3}\n",
        "one: {a: 1}\ntwo: {a: 1}\n",
        "a: |\n  line\n  more\nb: >\n  folded\n  text\n",
    ],
)
def test_anchors_merges_and_blocks_are_what_pyyaml_reads(text: str) -> None:
    assert read_recipe(text) == (yaml.safe_load(text), ())


@pytest.mark.parametrize(
    ("second", "warning"),
    [
        ("image:1", "container: is written twice with the same value; the last one, on line 3, counts"),
        ("image:2", "container: is written twice with two values; the last one, on line 3, counts"),
    ],
)
def test_the_last_of_equal_keys_counts_with_a_warning(second: str, warning: str) -> None:
    text = f"container: image:1\nmodel: a/b\ncontainer: {second}\n"
    found, warnings = read_recipe(text)
    assert found == yaml.safe_load(text) == {"container": second, "model": "a/b"}
    assert warnings == (warning,)


def test_text_that_is_not_yaml_is_refused_with_its_line() -> None:
    with pytest.raises(RecipeError, match=r"^line 2: a bracket is opened here and never closed; "):
        read_recipe("a: 1\nb: [2\n")


@pytest.mark.parametrize(
    ("word", "single"),
    [
        ('{"a":{"b":1}}', '{"a":{"b":1}}'),
        ('{{"x":"y"}}', '{"x":"y"}'),
        ('{{"a":{{"b":[1]}}}}', '{"a":{"b":[1]}}'),
        ('--config={{"x":1}}', '--config={"x":1}'),
        ('--config={"a":{"b":1}}', '--config={"a":{"b":1}}'),
        ("plain", "plain"),
    ],
)
def test_only_doubled_braces_become_single(word: str, single: str) -> None:
    assert single_braces(word) == single


def test_json_with_and_without_doubled_braces_stands_in_one_command() -> None:
    command = """vllm serve a/b --reasoning-config '{"a":{"b":1}}' --compilation-config '{{"x":"y"}}'"""
    assert command_words(command).words[4::2] == ['{"a":{"b":1}}', '{"x":"y"}']


def test_placeholders_in_values_are_replaced_too() -> None:
    missing: list[str] = []
    values = {"config": '{"n": {count}}', "count": 3, "max-num-seqs": 4, "list": ["a"], "extra": "", "none": None}
    text = filled(
        "--a '{config}' --b {max-num-seqs} --c {list} {extra}--d {none} {absent} ${HOME}", values, missing.append
    )
    assert text == """--a '{"n": 3}' --b 4 --c ["a"] --d   ${HOME}"""
    assert missing == ["none", "absent"]


@pytest.mark.parametrize(
    ("command", "problem"),
    [
        (
            "vllm serve a/b --x ${CUDA_HOME}/y",
            "command: ${CUDA_HOME} is a shell variable, whose value only the container",
        ),
        (
            "vllm serve a/b --x $HOME",
            "command: ${HOME} is a shell variable, whose value only the container knows; write",
        ),
        ("vllm serve $(cat x)", "command: is a shell script ($(); leave only the line of the engine in a copy of the"),
        ("vllm serve a/b | tee log", "command: is a shell script (|); leave only the line of the engine in a copy of"),
        ("vllm serve a/b\nsleep 1", "command: has more than one line; leave only the line of the engine"),
    ],
)
def test_a_shell_script_is_named_as_such(command: str, problem: str) -> None:
    (found,) = command_words(command).problems
    assert found.startswith(problem)


def test_variables_before_the_engine_are_taken() -> None:
    found = command_words("# note\nexport A=1 B='2 3'\nC=4 exec vllm serve a/b \\ \n  --x 'y # z'  # end\n")
    assert found.words == ["vllm", "serve", "a/b", "--x", "y # z"]
    assert found.environment == {"A": "1", "B": "2 3", "C": "4"}
    assert found.problems == []
