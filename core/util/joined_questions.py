"""Questions that differ only in their subjects, as units or files: a node answers them with one program. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

Splitter = Callable[[str, Sequence[str]], Mapping[str, str]]
"""Returns the part of an output that is about each subject. Raises ValueError for an output that is not the answer."""


class JoinableQuestion(str):
    """Shell text that asks `program` about its subjects, words of the shell that it has as "$@"."""

    program: str
    subjects: tuple[str, ...]
    splitter: Splitter

    def __new__(cls, program: str, subjects: Iterable[str], splitter: Splitter) -> JoinableQuestion:
        subjects = tuple(subjects)
        made = super().__new__(cls, f"set -- {' '.join(subjects)}; {program}")
        made.program, made.subjects, made.splitter = program, subjects, splitter
        return made


@dataclass(frozen=True)
class JoinedQuestion:
    """Several questions of one program, by the names of their answers."""

    program: str
    members: Mapping[str, JoinableQuestion]

    @property
    def subjects(self) -> tuple[str, ...]:
        """The subjects of all members, each once."""
        return tuple(dict.fromkeys(subject for one in self.members.values() for subject in one.subjects))

    def split(self, output: bytes) -> dict[str, bytes]:
        """Return the answer to each member. Raises ValueError for an output that is not an answer to all of them."""
        (first, *_) = self.members.values()
        parts = first.splitter(output.decode(errors="surrogateescape"), self.subjects)
        return {
            name: "".join(parts.get(subject, "") for subject in one.subjects).encode(errors="surrogateescape")
            for name, one in self.members.items()
        }


def join_questions(commands: Mapping[str, str]) -> list[JoinedQuestion]:
    """Return one question for all of each program that several of these questions ask."""
    groups: dict[str, dict[str, JoinableQuestion]] = {}
    for name, text in commands.items():
        if isinstance(text, JoinableQuestion):
            groups.setdefault(text.program, {})[name] = text
    return [JoinedQuestion(program, members) for program, members in groups.items() if len(members) > 1]


def split_lines(output: str, paths: Sequence[str]) -> dict[str, str]:
    """Return the line of each path, which is the last word of its line; a file that does not exist has none."""
    lines = {line.rpartition(" ")[2]: f"{line}\n" for line in output.split("\n") if line}
    if lines.keys() - set(paths):
        raise ValueError("a line about something else")
    return lines
