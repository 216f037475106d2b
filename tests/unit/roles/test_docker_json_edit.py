"""Editing JSON text: what is asked for changes, and not a byte beside it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from roles.docker import json_edit

COMPACT = '{"a":1,"b":{"c":[1, 2]}}'
WIDE = '{\n\t"a" : 1,\r\n\t"b" : {\r\n\t\t"c" : [1,2]\r\n\t}\r\n}'


@pytest.mark.parametrize(
    ("text", "path", "value", "after"),
    [
        ("", ("a",), 1, '{\n  "a": 1\n}\n'),
        (" \n", ("a", "b"), "x", '{\n  "a": {\n    "b": "x"\n  }\n}\n'),
        ("{}", ("a",), [1], '{\n  "a": [\n    1\n  ]\n}'),
        (COMPACT, ("a",), 2, '{"a":2,"b":{"c":[1, 2]}}'),
        (COMPACT, ("d",), {"e": 1}, '{"a":1,"b":{"c":[1, 2]},"d":{"e": 1}}'),
        (COMPACT, ("b", "d"), True, '{"a":1,"b":{"c":[1, 2],"d":true}}'),
        (COMPACT, ("b", "c"), [3], '{"a":1,"b":{"c":[3]}}'),
        ('{"a": {}}', ("a", "b"), 1, '{"a": {"b": 1}}'),
        ('{"a": null}', ("a", "b"), 1, '{"a": {"b": 1}}'),
        ('{\n    "a": {}\n}\n', ("a", "b"), 1, '{\n    "a": {\n        "b": 1\n    }\n}\n'),
        (
            '{\n   "a": [1],\n\n   "b": 2 }',
            ("c",),
            {"d": 1},
            '{\n   "a": [1],\n\n   "b": 2,\n   "c": {\n      "d": 1\n   } }',
        ),
        ('{\n  "a": [1]\n}', ("a",), [1, 2], '{\n  "a": [1, 2]\n}'),
        ('{\n  "a": [\n    1\n  ]\n}', ("a",), [2], '{\n  "a": [\n    2\n  ]\n}'),
        ('{\r\n "a": 1\r\n}', ("b", "c"), 2, '{\r\n "a": 1,\r\n "b": {\r\n  "c": 2\r\n }\r\n}'),
    ],
)
def test_put(text: str, path: tuple[str, ...], value: Any, after: str) -> None:
    assert json_edit.put(text, path, value) == after


@pytest.mark.parametrize(
    ("text", "path", "after"),
    [
        ('{"a": 1, "b": 2}', ("a",), '{"b": 2}'),
        ('{"a": 1, "b": 2}', ("b",), '{"a": 1}'),
        ('{ "a": 1 }', ("a",), "{ }"),
        ('{\n  "a": {\n    "b": 1,\n    "c": 2\n  }\n}', ("a", "b"), '{\n  "a": {\n    "c": 2\n  }\n}'),
        ('{"a": 1}', ("b",), '{"a": 1}'),
        ('{"a": 1}', ("a", "b"), '{"a": 1}'),
    ],
)
def test_drop(text: str, path: tuple[str, ...], after: str) -> None:
    assert json_edit.drop(text, path) == after


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('{"a": 1,}', "is not JSON: .* line 1 column"),
        ('{"a": 1} x', "is not JSON: Extra data, line 1 column 10"),
        ('{"a": NaN}', "NaN is not a number"),
        ("\ufeff{}", "is not JSON"),
        ("[]", "is not a JSON object"),
        ("null", "is not a JSON object"),
        ('{"a": 1,\n"a": 1}', '"a" is there twice, the second time in line 2'),
        ('{"a": {"b": 1,\n\n"b": 2}}', '"b" is there twice, the second time in line 3'),
        ('{"a":' * 100000, "is not JSON"),
        ("{'a': 1}", "is not JSON"),
    ],
)
def test_what_is_not_an_object(text: str, fault: str) -> None:
    with pytest.raises(ValueError, match=fault):
        json_edit.parse(text)


def test_something_else_in_the_way() -> None:
    with pytest.raises(ValueError, match="a is not an object"):
        json_edit.put('{"a": 1}', ("a", "b"), 1)


slow = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
keys = st.sampled_from(["a", "b", "live-restore", 'q"\\', "ä\n", "{", "}"])
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=8,
)
texts = st.builds(
    lambda value, indent, separators, around: around + json.dumps(value, indent=indent, separators=separators) + around,
    st.dictionaries(keys, values, max_size=4),
    st.sampled_from([None, 0, 1, 4, "\t"]),
    st.sampled_from([(",", ":"), (" , ", " : "), (",", ": ")]),
    st.sampled_from(["", "\n", " \r\n"]),
)


def wanted(config: dict[str, Any], path: list[str], value: Any) -> dict[str, Any]:
    if len(path) == 1:
        return {**config, path[0]: value}
    return {**config, path[0]: wanted(config.get(path[0]) or {}, path[1:], value)}


@slow
@given(texts, st.lists(keys, min_size=1, max_size=2), values)
def test_what_is_asked_for_and_nothing_else(text: str, path: list[str], value: Any) -> None:
    before = json_edit.parse(text)
    if len(path) == 2 and not isinstance(before.get(path[0]), (dict, type(None))):
        with pytest.raises(ValueError, match="is not an object"):
            json_edit.put(text, path, value)
        return
    after = json_edit.put(text, path, value)
    assert json_edit.parse(after) == wanted(before, path, value)
    assert list(json_edit.parse(after))[: len(before)] == list(before)
    same = 0
    while same < min(len(text), len(after)) and text[same] == after[same]:
        same += 1
    member = path[0] in before
    assert same >= (text.index(json.dumps(path[0])) if member else text.index("{")), "bytes before it changed"


@slow
@given(texts, st.lists(keys, min_size=1, max_size=2))
def test_what_is_dropped_is_gone_and_nothing_else(text: str, path: list[str]) -> None:
    before = json_edit.parse(text)
    shall = json.loads(json.dumps(before))
    holder = shall if len(path) == 1 else shall.get(path[0])
    if isinstance(holder, dict):
        holder.pop(path[-1], None)
    assert json_edit.parse(json_edit.drop(text, path)) == shall
