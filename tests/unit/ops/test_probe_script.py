"""The probe's script, run by a real shell: what is there, what is not, and what is unknown."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from core.ops.host_facts import HostReading, Probe, parse, script
from core.probes.protocol import UnknownError


def asked(probe: Probe, path: str | None = None) -> HostReading:
    environment = {"PATH": os.environ["PATH"] if path is None else path}
    done = subprocess.run(["/bin/sh", "-c", script([probe])], capture_output=True, text=True, env=environment)
    return parse([probe], done.stdout.splitlines())


def unknown(reading: HostReading, key: str) -> str:
    with pytest.raises(UnknownError) as caught:
        reading.content(key)
    return str(caught.value)


def test_known_and_absent(tmp_path: Path) -> None:
    there, not_there = tmp_path / "there", tmp_path / "not-there"
    there.write_text("a b\n\n")
    reading = asked(Probe(files=(str(there), str(not_there)), commands={"hello": "echo hello; echo"}))
    assert reading.content(str(there)) == b"a b\n\n"
    assert reading.content(str(not_there)) is None
    assert reading.text("hello") == "hello\n\n"
    with pytest.raises(UnknownError, match="is not there"):
        reading.text(str(not_there))


@pytest.mark.parametrize("content", [b"", b"\n", b"\n\n\n", b"\0\xff\n\x80", b"%s %d \\n $HOME `id`", b"x" * 200_000])
def test_a_file_arrives_byte_for_byte(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "file"
    file.write_bytes(content)
    assert asked(Probe(files=(str(file),))).content(str(file)) == content


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(contents=st.lists(st.binary(max_size=60), min_size=1, max_size=5))
def test_any_contents_arrive_byte_for_byte(tmp_path: Path, contents: list[bytes]) -> None:
    files = [tmp_path / str(number) for number in range(len(contents))]
    for file, content in zip(files, contents, strict=True):
        file.write_bytes(content)
    reading = asked(Probe(files=tuple(map(str, files))))
    assert [reading.content(str(file)) for file in files] == contents


@pytest.mark.parametrize("text", ["", "one", "one\n", "\n\n", "a\n\nb\n\n\n", "0", "\n0\n", " complete\n", "%d \\0"])
def test_a_commands_output_arrives_with_its_last_line_breaks(tmp_path: Path, text: str) -> None:
    file = tmp_path / "said"
    file.write_text(text)
    assert asked(Probe(commands={"said": f"cat {file}"})).text("said") == text


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("echo half; exit 3", "ends with exit 3"),
        ("no-such-tool --version", "ends with exit 127"),
        ("if then", "ends with exit 2"),
        ("sh -c 'kill -9 $$'", "ends with exit 137"),
        ("exec false", "is garbled"),
    ],
)
def test_a_command_that_fails_is_unknown(command: str, why: str) -> None:
    reading = asked(Probe(commands={"tool": command, "next": "echo fine"}))
    assert why in unknown(reading, "tool")
    assert reading.text("next") == "fine\n"


def test_what_is_there_but_cannot_be_read_is_unknown(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "dangling").symlink_to("nowhere")
    probe = Probe(files=(str(tmp_path / "folder"), str(tmp_path / "dangling")))
    reading = asked(probe)
    assert unknown(reading, str(tmp_path / "folder"))
    assert unknown(reading, str(tmp_path / "dangling"))


def test_a_node_without_base64_is_unknown(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("x")
    (tmp_path / "sh").symlink_to("/bin/sh")
    reading = asked(Probe(files=(str(file),), commands={"hello": "echo hello"}), path=str(tmp_path))
    assert unknown(reading, str(file))
    assert unknown(reading, "hello")


@pytest.mark.parametrize("name", ["it's", 'a"b', "$(id)", "-n", "ä", "%s", "a;b", "*", "$HOME", "`id`"])
def test_file_names_are_taken_as_they_are(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(name)
    path = f"{tmp_path}/{name}"
    reading = asked(Probe(files=(path, f"{path}-absent")))
    assert reading.text(path) == name
    assert reading.content(f"{path}-absent") is None


@pytest.mark.parametrize("name", ["a b", " ", "a  b ", "a\nb", "a\tb", "a\\b", "x ok MQ==", "x absent"])
def test_no_file_name_makes_a_wrong_answer(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("content")
    path = f"{tmp_path}/{name}"
    reading = asked(Probe(files=(path, f"{path}-absent")))
    answers = [reading.unknown.get(key) or reading.content(key) for key in (path, f"{path}-absent")]
    assert answers[0] in (b"content", "the node did not answer")
    assert answers[1] in (None, "the node did not answer")


def test_no_tool_answers_in_another_language() -> None:
    """sudo keeps the locale of the login user."""
    text = script([Probe(commands={"locale": 'echo "$LC_ALL"'})])
    environment = {"PATH": os.environ["PATH"], "LANG": "de_DE.UTF-8", "LC_ALL": "de_DE.UTF-8"}
    done = subprocess.run(["/bin/sh", "-c", text], capture_output=True, text=True, env=environment)
    assert parse([Probe(commands={"locale": ""})], done.stdout.splitlines()).text("locale") == "C\n"
