"""Whatever is in the file: a rack or a RackError, in bounded time, every fault one line in one form."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from core.model import ConfigError
from core.model.errors import MAX_SHOWN_FAULTS
from core.model.yaml_reader import parse
from tests.unit.model.racks import DIRECT, KEPT, RING, SWITCH, loaded

FORM = re.compile(r"[^:]+:[1-9][0-9]*: [^\n]*[^ ][^\n]*; [^\n]+")

scalars = st.sampled_from(
    ["null", "true", "no", "0", "-1", "1e400", ".nan", "0x10", "9" * 40, "''", '"\\0"', "[]", "{}",
     "[{}, []]", "{a: 1}", "10.77.0.11", "0.0.0.0/0", "crs812/qsfp56-dd-1-1", "spark1/0", "../..", "&a b",
     "*a", "!!python/object x", "| \n  x", "2026-11-20", "a: b", "<<", "\u202e", "\ud7ff", "٣"]
)  # fmt: skip
anything = st.one_of(scalars, st.text(max_size=20))


@st.composite
def mutated(draw: st.DrawFn) -> str:
    lines = draw(st.sampled_from([SWITCH, DIRECT, RING, KEPT])).splitlines(keepends=True)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(lines) - 1))
        line = lines[at]
        match draw(st.sampled_from(["drop", "value", "inner", "double", "insert", "indent", "key"])):
            case "drop":
                lines[at] = ""
            case "value":
                lines[at] = line.partition(":")[0] + ": " + draw(anything) + "\n"
            case "inner":
                cut, end = sorted(draw(st.tuples(*[st.integers(0, max(0, len(line) - 1))] * 2)))
                lines[at] = line[:cut] + draw(anything) + line[end:]
            case "double":
                lines[at] = line + line
            case "insert":
                lines[at] = draw(anything) + "\n" + line
            case "indent":
                lines[at] = draw(st.sampled_from([" ", "  ", "\t", "- "])) + line
            case "key":
                lines[at] = draw(anything) + ":" + line.partition(":")[2]
    return "".join(lines)


def refusal(text: str) -> ConfigError | None:
    try:
        rack = loaded(text)
    except ConfigError as error:
        return error
    assert hash(rack) == hash(rack)
    assert rack.topology in ("direct", "ring", "switch")
    assert len(rack.addresses) == 2 * sum(len(rack.cabling.ports_of(name)) for name in rack.nodes)
    return None


def judged(text: str) -> None:
    error = refusal(text)
    if error is None:
        return
    reported = str(error).split("\n")
    if len(error.faults) > MAX_SHOWN_FAULTS:
        assert reported.pop().endswith(f": and {len(error.faults) - MAX_SHOWN_FAULTS} more")
    assert all(FORM.fullmatch(line) for line in reported), reported
    assert len(set(error.faults)) == len(error.faults) > 0
    assert len(reported) == min(len(error.faults), MAX_SHOWN_FAULTS)
    last = len(re.findall("\r\n|[\r\n\x85\u2028\u2029]", text)) + 1  # what YAML takes for the end of a line
    assert all(fault.line is not None and fault.line <= last for fault in error.faults)


@settings(max_examples=400, deadline=None)
@given(mutated())
def test_changed_files(text: str) -> None:
    judged(text)


@settings(max_examples=200, deadline=None)
@given(st.text(max_size=200))
def test_any_text(text: str) -> None:
    judged(text)


def test_hostile_documents_are_refused_and_not_unfolded() -> None:
    laughs = "a0: &a0 [x, x]\n" + "".join(
        f"a{level}: &a{level} [{', '.join([f'*a{level - 1}'] * 9)}]\n" for level in range(1, 40)
    )
    judged(laughs)
    assert len(parse(laughs).problems) == 40 + 39 * 9
    judged("[" * 100_000)
    judged("{a: " * 100_000)
    judged("- " * 100_000)


def test_yaml_1_2() -> None:
    words = {
        "yes": "yes", "off": "off", "Y": "Y", "true": True, "FALSE": False, "~": None, "": None, "Null": None,
        "12": 12, "+12": 12, "012": 12, "0o14": 12, "0xC": 12, "1_000": "1_000", "12:30": "12:30", "1.5": 1.5,
        "1e3": 1000.0, ".5": 0.5, "-.inf": float("-inf"), "9" * 20: 1e20, "2026-11-20": "2026-11-20",
        "'12'": "12", '"true"': "true",
    }  # fmt: skip
    for written, value in words.items():
        found = parse(f"a: {written}").data["a"]
        assert (type(found), found) == (type(value), value), written
    assert parse("a: .nan").data["a"] != parse("a: .nan").data["a"]
