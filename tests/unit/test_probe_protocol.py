"""The protocol of all probes: whole answers, whatever a login shell prints before them, and none beyond a limit."""

from __future__ import annotations

import subprocess

import pytest

from core.probes import protocol
from core.probes.protocol import Answer, IncompleteAnswerError, InvalidAnswerError, parse, parse_commands, script
from tests.unit.probe_output import decode_answers, probe_output

OUTPUT = probe_output({"one": "1\n\n2\n", "two": (75, "half")}, {"/a": "x", "/b": None})
GREETING = "Welcome to Ubuntu\none\x85 e30K\none e30K\x1b[2J\n * one\n"


def test_the_helper_of_the_tests_prints_what_the_script_prints() -> None:
    done = subprocess.run(["sh", "-c", script({"one": "echo 1; exit 3"}, ["/no/such"])], capture_output=True, text=True)
    assert decode_answers(done.stdout) == decode_answers(probe_output({"one": (3, "1\n")}, {"/no/such": None}))


@pytest.mark.parametrize("greeting", ["", GREETING, "one MQ==\n", f"{protocol.END}\n"])
def test_a_greeting_is_ignored(greeting: str) -> None:
    found = parse(greeting + OUTPUT, ["one", "two", "three"], ["/a", "/b"])
    assert found.commands == {"one": Answer(0, b"1\n\n2\n"), "two": Answer(75, b"half")}
    assert found.files == {"/a": b"x", "/b": None}
    assert found.unknown == {"three": "the node did not answer"}
    assert found.commands["one"].lines == ("1", "2")


def test_a_command_that_failed_is_not_a_fact() -> None:
    reading = parse(OUTPUT, ["one", "two"], ["/b"]).reading
    assert reading.found == {"one": b"1\n\n2\n", "/b": None}
    assert reading.unknown == {"two": "reading it ends with exit 75"}


def test_an_output_beyond_the_limit_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol, "MAX_BYTES", len(OUTPUT))
    assert parse(OUTPUT, ["one"]).commands
    with pytest.raises(InvalidAnswerError, match="it answered more than"):
        parse(GREETING + OUTPUT, ["one"])


@pytest.mark.parametrize("output", ["", "\n", OUTPUT[:-2], f"{OUTPUT}more\n", f"{OUTPUT}\n"])
def test_an_output_without_its_end_is_refused(output: str) -> None:
    with pytest.raises(IncompleteAnswerError):
        parse(output, ["one"])


def test_an_output_without_an_answer_is_refused() -> None:
    with pytest.raises(InvalidAnswerError, match="it is garbled, or base64"):
        parse_commands(f"Last login: today\none e30K\n{protocol.END}\n")
