"""The probe's script, run by a real shell: what is there, what is not, and what is unknown."""

from __future__ import annotations

import base64
import os
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import roles.models.facts  # noqa: F401 - it registers its probe
from core.ops import host_facts
from core.ops.host_facts import HostReading, Probe, parse, script
from core.probes.protocol import NulQuestion, UnknownError
from core.probes.systemd_units import show_units
from core.util.managed_file import probe_permissions
from roles.models.desired import END, FILES
from tests.unit.ops.shells import calls, stand_in
from tests.unit.probe_output import decode_answers


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


@pytest.mark.parametrize("content", ["a\\0b\\n\\0", "", "\\n\\n"])
@pytest.mark.parametrize("code", [0, 3])
def test_a_question_whose_answer_has_nul(content: str, code: int) -> None:
    commands = {"one": NulQuestion(f"printf '{content}'; exit {code}"), "two": "echo 2"}
    reading = asked(Probe(commands=commands))
    assert reading.text("two") == "2\n"
    if code:
        assert "exit 3" in unknown(reading, "one")
    else:
        assert reading.content("one") == content.encode().decode("unicode_escape").encode()


def test_the_list_of_the_files_of_models_ends_as_it_is_parsed() -> None:
    """It has NUL, which no variable of a shell can hold, after each file and after its end."""
    command = host_facts._registered["models"].commands[FILES]
    assert asked(Probe(commands={FILES: command})).text(FILES).endswith(f"{END}\0")


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


HOSTILE = "\nother\nfalse\n0\n0123456789ABCDEFGHIJabcd\nother\nfalse\n0\n\n=files\n4 /etc/shadow\n\nevil\n0\ncomplete\n"


def test_no_content_makes_the_answer_to_another_question(tmp_path: Path) -> None:
    """Not even one that has the form of answers: no file and no program knows the mark between them."""
    file, other = tmp_path / "file", tmp_path / "other"
    file.write_text(HOSTILE)
    other.write_text("right")
    reading = asked(Probe((str(file), str(other)), {"hostile": f"cat {file}", "other": "echo right"}))
    assert (reading.text(str(file)), reading.text("hostile")) == (HOSTILE, HOSTILE)
    assert (reading.text(str(other)), reading.text("other")) == ("right", "right\n")


def test_the_mark_is_new_each_time_and_in_no_environment() -> None:
    text = script([Probe(commands={"environment": "env"})])
    outputs = [subprocess.run(["/bin/sh", "-c", text], capture_output=True, text=True).stdout for _ in range(2)]
    streams = [base64.b64decode(output.splitlines()[0]) for output in outputs]
    marks = [stream.partition(b"\n")[0] for stream in streams]
    assert marks[0] != marks[1]
    assert len(marks[0]) == 24
    assert marks[0] not in decode_answers(outputs[0])["environment"][0]


def test_a_process_that_outlives_its_command_prints_into_no_other_answer() -> None:
    reading = asked(Probe(commands={"early": "(sleep 0.3; echo late) & exit 0", "next": "echo fine"}))
    assert "is garbled" in unknown(reading, "early")
    assert reading.text("next") == "fine\n"


@pytest.mark.parametrize("target", ["/proc/self/mem", "/", "nowhere"])
def test_a_file_that_cannot_be_read_leaves_the_others_known(tmp_path: Path, target: str) -> None:
    first, odd, last = (tmp_path / name for name in ("first", "odd", "last"))
    first.write_bytes(b"\0one\n")
    odd.symlink_to(target)
    last.write_bytes(b"last")
    reading = asked(Probe(files=(str(first), str(odd), str(last), "/proc/sys/kernel/ostype")))
    assert unknown(reading, str(odd))
    assert (reading.content(str(first)), reading.content(str(last))) == (b"\0one\n", b"last")
    assert reading.text("/proc/sys/kernel/ostype") == "Linux\n"


def test_a_file_that_changes_while_all_are_read_leaves_the_others_known(tmp_path: Path) -> None:
    files = [tmp_path / name for name in ("first", "grows", "last")]
    for file in files:
        file.write_text(file.name)
    stand_in(tmp_path, "cat", f'echo more >> {files[1]}; PATH=${{PATH#*:}}; cat "$@"')
    reading = asked(Probe(files=tuple(map(str, files))), path=f"{tmp_path}/bin:{os.environ['PATH']}")
    assert (reading.text(str(files[0])), reading.text(str(files[2]))) == ("first", "last")
    assert reading.text(str(files[1])).startswith("growsmore\nmore\n")


def test_all_files_are_read_by_three_programs(tmp_path: Path) -> None:
    files = [tmp_path / str(number) for number in range(20)]
    for file in files:
        file.write_text(file.name)
    for tool in ("cat", "stat", "base64"):
        stand_in(tmp_path, tool, f'PATH=${{PATH#*:}}; {tool} "$@"')
    reading = asked(Probe(files=tuple(map(str, files))), path=f"{tmp_path}/bin:{os.environ['PATH']}")
    assert [reading.text(str(file)) for file in files] == [file.name for file in files]
    assert [call.split(" ")[0] for call in calls(tmp_path)].count("cat") == 1
    assert len(calls(tmp_path)) == 4


def test_questions_of_one_program_start_it_once_and_each_has_its_answer(tmp_path: Path) -> None:
    (tmp_path / "a").touch(0o640)
    (tmp_path / "b").touch(0o600)
    permissions = {
        name: probe_permissions(str(tmp_path / end) for end in ends)
        for name, ends in {"one": "ab", "two": "bx", "three": "x"}.items()
    }
    units = {"four": show_units(["a.service", "b.service"]), "five": show_units(["b.timer"])}
    stand_in(tmp_path, "systemctl", 'shift 2; for unit; do echo "$sep""Id=$unit"; echo LoadState=x; sep="\n"; done')
    stand_in(tmp_path, "stat", 'PATH=${PATH#*:}; stat "$@"')
    path = f"{tmp_path}/bin:{os.environ['PATH']}"
    joined = asked(Probe(commands={**permissions, **units}), path)
    assert [call.split(" ")[0] for call in calls(tmp_path)] == ["stat", "systemctl"]
    apart = {name: asked(Probe(commands={name: text}), path) for name, text in (permissions | units).items()}
    for name in permissions:
        assert joined.text(name) == apart[name].text(name)
    assert joined.text("one").splitlines()[0].startswith("640 ")
    assert joined.text("three") == ""
    for name in units:
        assert joined.text(name).strip() == apart[name].text(name).strip()


def test_when_a_joined_question_fails_each_is_asked_by_itself(tmp_path: Path) -> None:
    stand_in(tmp_path, "systemctl", 'case "$*" in *odd*) exit 1 ;; esac; echo "Id=${3}"')
    probe = Probe(commands={"one": show_units(["a.service"]), "two": show_units(["odd.service"])})
    reading = asked(probe, f"{tmp_path}/bin:{os.environ['PATH']}")
    assert reading.text("one") == "Id=a.service\n"
    assert "exit 1" in unknown(reading, "two")


def test_an_answer_of_another_form_to_a_joined_question_is_unknown(tmp_path: Path) -> None:
    stand_in(tmp_path, "systemctl", "echo Id=a.service")
    probe = Probe(commands={"one": show_units(["a.service"]), "two": show_units(["b.service"]), "three": "echo 3"})
    reading = asked(probe, f"{tmp_path}/bin:{os.environ['PATH']}")
    assert "garbled" in unknown(reading, "one")
    assert "garbled" in unknown(reading, "two")
    assert reading.text("three") == "3\n"


def test_no_tool_answers_in_another_language() -> None:
    """sudo keeps the locale of the login user."""
    text = script([Probe(commands={"locale": 'echo "$LC_ALL"'})])
    environment = {"PATH": os.environ["PATH"], "LANG": "de_DE.UTF-8", "LC_ALL": "de_DE.UTF-8"}
    done = subprocess.run(["/bin/sh", "-c", text], capture_output=True, text=True, env=environment)
    assert parse([Probe(commands={"locale": ""})], done.stdout.splitlines()).text("locale") == "C\n"
