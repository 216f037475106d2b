"""The protocol of all probes: one shell script asks a node several questions, and its output is parsed. Pure.

Checks of verify (`roles/*/verify.py`) do not use it on purpose: what proves a change must not share its reading.

An answer is known, absent (a file that does not exist) or unknown: a command that failed, or an answer that is missing
or garbled. A script prints all answers as one line of base64, and `complete` at last; other lines, as of the greeting
of a login shell, are ignored. The line has a mark that the node has made for it, and then the answers:

    NAME          the path of a file, or the name of a command
    CONTENT       any bytes; those of a command that is not a NulQuestion are without NUL
    STATUS        the exit status of the command or of the reading, or `absent` for a file that does not exist
    MARK

A later answer replaces one of the same name. `=files` has a line with size and path for each of several files, an empty
line, and their contents one after the other. `=0`, `=1`, … are the answers to joined questions; the node answers their
members one by one when it has none.
"""

from __future__ import annotations

import base64
import binascii
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from core.util import resources
from core.util.joined_questions import JoinedQuestion

LOCALE = "export LC_ALL=C"
"""C locale for tools: sudo keeps the locale of the login user, in which tools translate their output."""
END = "complete"
MAX_BYTES = 8 << 20
"""Maximum size of the output of a script; a longer one is not parsed."""
# As few processes as can be: one for a command, three for all files.
FUNCTIONS = "\n".join([LOCALE, resources.shell_text("core.probes", "files/probe-functions.sh")])
NO_ANSWER = "the node did not answer"
_GARBLED = "the node's answer is garbled"
_FILES = "=files"
_MARK = re.compile(rb"[0-9A-Za-z]{24}")
_Reported = tuple[bytes, bytes]
"""Content and status of an answer."""


class NulQuestion(str):
    """Shell text of a command that prints NUL: the shell leaves NUL out of the answers to other questions."""


class UnknownError(Exception):
    """A probe gave no answer, so nothing may be concluded. The text is one line.

    reason: the text without the name of the machine, for a report that stands under that name already.
    """

    def __init__(self, text: str, reason: str | None = None) -> None:
        super().__init__(text)
        self.reason = text if reason is None else reason


class InvalidAnswerError(ValueError):
    """The output of a script is incomplete, too long, or without any answer. The text has `it` for the node."""


class IncompleteAnswerError(InvalidAnswerError):
    """The output of a script has no last line, so its connection or shell ended early."""


@dataclass(frozen=True)
class Answer:
    """Exit status and output of a command."""

    code: int
    output: bytes

    @property
    def text(self) -> str:
        """The output as text; bytes that are not UTF-8 are escaped."""
        return self.output.decode(errors="backslashreplace")

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines of the output that are not empty."""
        return tuple(filter(None, self.text.split("\n")))


@dataclass(frozen=True)
class Reading:
    """The facts of a node: for each file and command its bytes, None for absent, or why it is unknown."""

    found: Mapping[str, bytes | None]
    unknown: Mapping[str, str]

    def content(self, key: str) -> bytes | None:
        """The bytes behind a path or command; None for a file that does not exist. Raises UnknownError."""
        if key in self.unknown:
            raise UnknownError(f"{key}: {self.unknown[key]}")
        return self.found[key]

    def text(self, key: str) -> str:
        """The text behind a path or command. Raises UnknownError when it is absent, unreadable or not UTF-8."""
        content = self.content(key)
        if content is None:
            raise UnknownError(f"{key}: is not there")
        try:
            return content.decode()
        except UnicodeDecodeError:
            raise UnknownError(f"{key}: is not UTF-8 text") from None

    def number(self, key: str) -> int:
        """The whole number behind a path or command. Raises UnknownError when it is anything else."""
        text = self.text(key).strip()
        if not text.isascii() or not text.isdigit():
            raise UnknownError(f"{key}: is not a number: {text[:40]!r}")
        return int(text)


@dataclass(frozen=True)
class Answers:
    """The answers of a node: each command by its name, each file by its path (None: it does not exist). `unknown`: why
    the others have no answer.
    """

    commands: Mapping[str, Answer]
    files: Mapping[str, bytes | None]
    unknown: Mapping[str, str] = field(default_factory=dict)

    @property
    def reading(self) -> Reading:
        """The answers as facts: a command that failed is unknown."""
        failed = {name: _exit_text(answer.code) for name, answer in self.commands.items() if answer.code}
        found = {name: answer.output for name, answer in self.commands.items() if not answer.code}
        return Reading({**self.files, **found}, {**self.unknown, **failed})


def script(commands: Mapping[str, str], files: Iterable[str] = (), joined: Sequence[JoinedQuestion] = ()) -> str:
    """Return the script that reads `files` and runs `commands` (shell texts by name). It needs no input, and changes
    nothing unless a command does. A name or path with a line break gets no answer. `joined`: the commands that are
    asked together.
    """
    parts = [FUNCTIONS, "{", "printf '%s\\n' \"$mark\""]
    if paths := [path for path in files if "\n" not in path]:
        parts.append(shlex.join(["files", *paths]))
    for number, question in enumerate(joined):
        # One that the joined question did not get an answer for is unknown, and the others are not.
        parts += [f"p={shlex.quote(question.program)}", f'c ={number} "set -- {" ".join(question.subjects)}; $p" || {{']
        parts += [f'c {name} "set -- {" ".join(one.subjects)}; $p"' for name, one in question.members.items()]
        parts.append("}")
    apart = commands.keys() - {name for question in joined for name in question.members}
    parts += [
        shlex.join(["z" if isinstance(text, NulQuestion) else "c", name, text])
        for name, text in commands.items()
        if name in apart and "\n" not in name
    ]
    return "\n".join([*parts, "} | base64 -w0", "echo", f"echo {END}"])


def parse(
    output: str | Sequence[str],
    commands: Iterable[str],
    files: Iterable[str] = (),
    joined: Iterable[JoinedQuestion] = (),
) -> Answers:
    """Parse the output of a script that asked these questions: a text, or its lines. Raises InvalidAnswerError when it
    is incomplete, garbled or too long: then no part of it is known.
    """
    reported = _read_answers(output)
    for number, question in enumerate(joined):
        reported = {**_split_joined(question, reported.get(f"={number}")), **reported}
    found: dict[str, Answer] = {}
    contents: dict[str, bytes | None] = {}
    unknown: dict[str, str] = {}
    for path in files:
        try:
            contents[path] = _parse_file_answer(reported.get(path))
        except UnknownError as error:
            unknown[path] = str(error)
    for name in commands:
        try:
            found[name] = _parse_command_answer(reported.get(name))
        except UnknownError as error:
            unknown[name] = str(error)
    return Answers(found, contents, unknown)


def parse_commands(output: str) -> Mapping[str, Answer]:
    """Parse the output of a script that asked only commands: the answer of each by its name, whatever its exit status;
    a missing or garbled one is left out. Raises InvalidAnswerError, also when no answer is left.
    """
    names = [name for name in _read_answers(output) if not name.startswith(("/", "="))]
    found = parse(output, names).commands
    if not found:
        raise InvalidAnswerError("it answered something else")
    return found


def _complete_lines(output: str | Sequence[str]) -> Sequence[str]:
    # Not splitlines: a greeting may hold what Python takes for a line end.
    lines = output.split("\n") if isinstance(output, str) else output
    if sum(map(len, lines)) > MAX_BYTES:
        raise InvalidAnswerError(f"it answered more than {MAX_BYTES >> 20} MiB")
    end = len(lines) - 1 if lines and not lines[-1] else len(lines)
    if not end or lines[end - 1].strip() != END:
        raise IncompleteAnswerError("it did not answer to the end")
    return lines[: end - 1]


def _read_answers(output: str | Sequence[str]) -> dict[str, _Reported]:
    """Return the answers in an output by their names, each with its status. Raises InvalidAnswerError."""
    lines = _complete_lines(output)
    try:
        decoded = base64.b64decode(lines[-1].strip() if lines else "", validate=True)
    except (binascii.Error, ValueError):
        decoded = b""
    mark, _, rest = decoded.partition(b"\n")
    if not _MARK.fullmatch(mark):
        raise InvalidAnswerError("it is garbled, or base64 or mktemp of the node does not work")
    found: dict[str, _Reported] = {}
    for answer in rest.split(b"\n" + mark + b"\n")[:-1]:
        name, _, content = answer.partition(b"\n")
        content, _, status = content.rpartition(b"\n")
        found[name.decode(errors="surrogateescape")] = (content, status)
    return {**_split_files(found.pop(_FILES, None)), **found}


def _split_files(reported: _Reported | None) -> dict[str, _Reported]:
    """Return the content of each of several files. None is known when their sizes are not that of all contents."""
    if reported is None or reported[1] != b"0":
        return {}
    listing, _, contents = reported[0].partition(b"\n\n")
    found: dict[str, _Reported] = {}
    for line in listing.split(b"\n"):
        size, _, path = line.partition(b" ")
        if not size.isdigit():
            return {}
        found[path.decode(errors="surrogateescape")] = (contents[: int(size)], b"0")
        contents_left = len(contents) - int(size)
        if contents_left < 0:
            return {}
        contents = contents[int(size) :]
    return {} if contents else found


def _split_joined(question: JoinedQuestion, reported: _Reported | None) -> dict[str, _Reported]:
    """Return the answer to each member of a joined question."""
    if reported is None or reported[1] != b"0":
        return {}
    try:
        return {name: (answer, b"0") for name, answer in question.split(reported[0]).items()}
    except ValueError:
        return dict.fromkeys(question.members, (b"", b"garbled"))


def _parse_file_answer(reported: _Reported | None) -> bytes | None:
    if reported == (b"", b"absent"):
        return None
    answer = _parse_command_answer(reported)
    if answer.code:
        raise UnknownError(_exit_text(answer.code))
    return answer.output


def _parse_command_answer(reported: _Reported | None) -> Answer:
    if reported is None:
        raise UnknownError(NO_ANSWER)
    content, status = reported
    if re.fullmatch(rb"[0-9]{1,3}", status):
        return Answer(int(status), content)
    raise UnknownError(_GARBLED)


def _exit_text(code: int | str) -> str:
    return f"reading it ends with exit {code}"


def logged_output(lines: Sequence[str]) -> str:
    """Return the output of a command for a log: of a probe only which questions were answered, since it holds whole
    files of the node.
    """
    if not lines or not any(line.strip() == END for line in lines[-3:]):
        return "\n".join(lines)
    try:
        names = ", ".join(_read_answers(list(lines)))
    except InvalidAnswerError as error:
        names = str(error)
    return f"answers of a probe, without their contents: {names}"


def logged_title(text: str) -> str:
    """Return a short name for a script in a log: what a probe asks; empty for any other script."""
    if not text.rstrip("'").endswith(f"echo {END}"):
        return ""
    files = re.findall(r"^files (.*)", text, re.MULTILINE)
    names = [*" ".join(files).split(), *re.findall(r"^[cz] ([^=\s]\S*)", text, re.MULTILINE)]
    return f"ssh: probe of {len(names)} values: {' '.join(names)}"
