"""What the probe makes of an answer: nothing is ever known that the node did not say whole."""

from __future__ import annotations

import os
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.ops.host_facts import HostReading, Probe, parse, script
from core.probes.protocol import UnknownError
from tests.unit.probe_output import decode_answers, encode_answers

COMMANDS = {"one": "echo 1", "two": "printf 'b\\n'", "three": "true"}
PROBES = [Probe(commands=COMMANDS), Probe(files=("/no/such/file",))]
SAID = {"one": b"1\n", "two": b"b\n", "three": b"", "/no/such/file": None}
ANSWER = subprocess.run(
    ["/bin/sh", "-c", script(PROBES)], capture_output=True, text=True, check=True, env={"PATH": os.environ["PATH"]}
).stdout.splitlines()


DECODED = decode_answers("\n".join(ANSWER))


def known(reading: HostReading) -> dict[str, bytes | None]:
    """Everything that the reading claims to know."""
    found = {}
    for key in SAID:
        try:
            found[key] = reading.content(key)
        except UnknownError:
            continue
    return found


def test_a_whole_answer_is_known() -> None:
    assert known(parse(PROBES, ANSWER)) == SAID


@pytest.mark.parametrize("lines", range(len(ANSWER)))
def test_an_answer_that_ends_too_early_is_unknown_as_a_whole(lines: int) -> None:
    assert known(parse(PROBES, ANSWER[:lines])) == {}


@given(st.integers(0, len("\n".join(ANSWER)) - 1))
def test_so_is_one_cut_inside_a_line(length: int) -> None:
    assert known(parse(PROBES, "\n".join(ANSWER)[:length].splitlines())) == {}


@pytest.mark.parametrize("missing", SAID)
def test_an_answer_that_is_missing_is_unknown_and_the_rest_stays(missing: str) -> None:
    answers = [(name, *answer) for name, answer in DECODED.items() if name != missing]
    lines = encode_answers((name, content, status.decode()) for name, content, status in answers).splitlines()
    assert known(parse(PROBES, lines)) == {name: content for name, content in SAID.items() if name != missing}


@pytest.mark.parametrize("status", ["", "absent", "0x", "-1", "1000", "0 ", "٠"])
def test_an_answer_without_a_status_is_unknown(status: str) -> None:
    answers = {name: (content, code.decode()) for name, (content, code) in DECODED.items()} | {"one": (b"1\n", status)}
    found = known(parse(PROBES, encode_answers((name, *answer) for name, answer in answers.items()).splitlines()))
    assert found == {name: content for name, content in SAID.items() if name != "one"}


@pytest.mark.parametrize("garbage", ["", "%%%%", "MQ=", "MQ==MQ==", "=", "ä", "bm8gbWFyawo="])
def test_answers_that_are_garbled_are_unknown(garbage: str) -> None:
    lines = ["one MQ==", garbage, "complete"]
    assert known(parse(PROBES, lines)) == {}


FILES = {"/a": b"x\n", "/b": b"", "/c": b"0\n"}


@pytest.mark.parametrize(
    ("listing", "contents", "status"),
    [
        (b"2 /a\n0 /b\n2 /c", b"x\n0\n0\n", 0),
        (b"2 /a\n0 /b\n2 /c", b"x\n0", 0),
        (b"2 /a\n0 /b\n? /c", b"x\n0\n", 0),
        (b"2 /a\n0 /b\n-2 /c", b"x\n0\n", 0),
        (b"2 /a\n0 /b\n2 /c", b"x\n0\n", 1),
    ],
)
def test_files_whose_sizes_are_not_right_are_unknown_but_those_that_were_read_apart(
    listing: bytes, contents: bytes, status: int
) -> None:
    probe = Probe(files=tuple(FILES))
    right = encode_answers([("=files", b"2 /a\n0 /b\n2 /c\n\nx\n0\n", 0)]).splitlines()
    assert parse([probe], right).found == FILES
    wrong = encode_answers([("=files", listing + b"\n\n" + contents, status), ("/b", b"apart", 0)]).splitlines()
    assert parse([probe], wrong).found == {"/b": b"apart"}


@given(st.lists(st.text(max_size=30), max_size=6))
def test_garbage_is_never_known(lines: list[str]) -> None:
    assert known(parse(PROBES, [*lines, "complete"])) == {}


def test_nothing_at_all() -> None:
    with pytest.raises(UnknownError, match=r"^one: "):
        parse(PROBES, []).content("one")


@pytest.mark.parametrize(("text", "number"), [("0\n", 0), ("1572864\n", 1572864), (" 7 ", 7)])
def test_numbers(text: str, number: int) -> None:
    assert HostReading({"k": text.encode()}, {}).number("k") == number


@pytest.mark.parametrize("content", [b"", b"\n", b"-1\n", b"1 2\n", b"0x10", b"1.5", b"\xff", "٣".encode(), None])
def test_no_numbers(content: bytes | None) -> None:
    with pytest.raises(UnknownError):
        HostReading({"k": content}, {}).number("k")
