"""The protocol of all probes: one shell script asks a node several questions, and its output is parsed. Pure.

Checks of verify (`roles/*/verify.py`) do not use it on purpose: what proves a change must not share its reading.

An answer is known, absent (a file that does not exist) or unknown: a command that failed, or an answer that is missing
or garbled. A script prints a line for each question, with the content in base64:

    PATH absent         a file that does not exist
    PATH CONTENT CODE   a file, and the exit status of its reading
    NAME CONTENT        a command; the last line of its content is its exit status

and `complete` at last. Other lines, as of the greeting of a login shell, are ignored.
"""

from __future__ import annotations

import base64
import binascii
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from core.util import resources

LOCALE = "export LC_ALL=C"
"""C locale for tools: sudo keeps the locale of the login user, in which tools translate their output."""
END = "complete"
MAX_BYTES = 8 << 20
"""Maximum size of the output of a script; a longer one is not parsed."""
# As few processes as can be. A command has a shell of its own, without input.
FUNCTIONS = "\n".join([LOCALE, resources.shell_text("core.probes", "files/probe-functions.sh")])
NO_ANSWER = "the node did not answer"
_GARBLED = "the node's answer is garbled"


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


def script(commands: Mapping[str, str], files: Iterable[str] = ()) -> str:
    """Return the script that reads `files` and runs `commands` (shell texts by name). It needs no input, and changes
    nothing unless a command does. A name or path with a space or line break gets no answer.
    """
    parts = [FUNCTIONS]
    parts += [shlex.join(["f", path]) for path in files]
    parts += [shlex.join(["c", name, text]) for name, text in commands.items()]
    return "\n".join([*parts, f"echo {END}"])


def parse(output: str | Sequence[str], commands: Iterable[str], files: Iterable[str] = ()) -> Answers:
    """Parse the output of a script that asked these questions: a text, or its lines. Raises InvalidAnswerError when it
    is incomplete or too long: then no part of it is known.
    """
    lines = _complete_lines(output)
    reported = {words[0]: words[1:] for words in (line.split(" ") for line in lines) if len(words) > 1}
    found: dict[str, Answer] = {}
    contents: dict[str, bytes | None] = {}
    unknown: dict[str, str] = {}
    for path in files:
        try:
            contents[path] = _decode_file(reported.get(path))
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
    names = dict.fromkeys(line.partition(" ")[0] for line in _complete_lines(output) if " " in line)
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
    return lines[:end]


def _decode_file(reported: list[str] | None) -> bytes | None:
    match reported:
        case ["absent"]:
            return None
        case [content, "0"]:
            return _decode_base64(content)
        case [_, code]:
            raise UnknownError(_exit_text(code))
    raise UnknownError(NO_ANSWER)


def _parse_command_answer(reported: list[str] | None) -> Answer:
    match reported:
        case [content]:
            output, _, code = _decode_base64(content).rpartition(b"\n")
            if re.fullmatch(rb"[0-9]{1,3}", code):
                return Answer(int(code), output)
            raise UnknownError(_GARBLED)
    raise UnknownError(NO_ANSWER)


def _exit_text(code: int | str) -> str:
    return f"reading it ends with exit {code}"


def _decode_base64(content: str) -> bytes:
    try:
        return base64.b64decode(content, validate=True)
    except (binascii.Error, ValueError):
        raise UnknownError(_GARBLED) from None


def logged_output(lines: Sequence[str]) -> str:
    """Return the output of a command for a log: of a probe only which questions were answered, since it holds whole
    files of the node.
    """
    if not lines or not any(line.strip() == END for line in lines[-3:]):
        return "\n".join(lines)
    answers = [words[0] for words in (line.split(" ") for line in lines) if len(words) > 1]
    return f"answers of a probe, without their contents: {', '.join(answers)}"


def logged_title(text: str) -> str:
    """Return a short name for a script in a log: what a probe asks; empty for any other script."""
    if not text.rstrip("'").endswith(f"echo {END}"):
        return ""
    names = re.findall(r"^[cf] (\S+)", text, re.MULTILINE)
    return f"ssh: probe of {len(names)} values: {' '.join(names)}"
