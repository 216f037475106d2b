"""What the probe makes of an answer: nothing is ever known that the node did not say whole."""

from __future__ import annotations

import base64
import os
import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from core.ops.host_facts import HostReading, Probe, parse, script
from core.probes.protocol import UnknownError

COMMANDS = {"one": "echo 1", "two": "printf 'b\\n'", "three": "true"}
PROBES = [Probe(commands=COMMANDS), Probe(files=("/no/such/file",))]
SAID = {"one": b"1\n", "two": b"b\n", "three": b"", "/no/such/file": None}
ANSWER = subprocess.run(
    ["/bin/sh", "-c", script(PROBES)], capture_output=True, text=True, check=True, env={"PATH": os.environ["PATH"]}
).stdout.splitlines()


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


@given(st.integers(0, len(ANSWER) - 2))
def test_a_line_that_is_missing_is_unknown_and_the_rest_stays(at: int) -> None:
    found = known(parse(PROBES, ANSWER[:at] + ANSWER[at + 1 :]))
    assert len(found) >= len(SAID) - 1
    assert all(SAID[key] == value for key, value in found.items())


@pytest.mark.parametrize("garbage", ["%%%%", "MQ=", "MQ==MQ==", "=", "MQ\x00=", "ä", "MQ== MQ=="])
def test_garbled_content_is_unknown(garbage: str) -> None:
    lines = [line.replace(base64.b64encode(b"1\n\n0").decode(), garbage) for line in ANSWER]
    assert lines != ANSWER
    found = known(parse(PROBES, lines))
    assert "one" not in found
    assert found["two"] == b"b\n"


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
