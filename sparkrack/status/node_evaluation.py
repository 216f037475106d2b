"""Evaluation of a node's answer: the value of each question, and the problems and unknown values. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from core.model import Rack
from core.model.errors import printable_line, truncate
from core.probes.protocol import Answer
from sparkrack.status.model import About, StatusFinding

_T = TypeVar("_T")
_TOOLS = {"kernel": "uname", "driver": "nvidia-smi", "containers": "find", "images": "docker", "lock": "run lock"}
_TIMED_OUT, _MISSING = (124, 137), 127


@dataclass
class NodeEvaluation:
    """The answer of a node during its evaluation."""

    rack: Rack
    name: str
    answers: Mapping[str, Answer]
    wrong: list[StatusFinding] = field(default_factory=list)
    unknown: list[StatusFinding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def value_or_unknown(self, about: About, read: Callable[[], _T]) -> _T | None:
        """Return the result of `read`; None, with the reason recorded, when the value is unknown."""
        try:
            return read()
        except ValueError as fault:
            self.unknown.append(StatusFinding(about=about, text=printable_line(str(fault))))
            return None

    def differs(self, about: About, text: str) -> None:
        """Note that something is not as declared."""
        self.wrong.append(StatusFinding(about=about, text=text))

    def answer(self, question: str, tool: str = "") -> Answer:
        """Return a tool's answer. Raises ValueError when it was not asked, or failed."""
        found = self.answers.get(question)
        if found is None:
            raise ValueError(f"{question}: there is no answer")
        if found.code:
            tool = tool or _TOOLS.get(question, question)
            if found.code in _TIMED_OUT:
                raise ValueError(f"{tool} does not answer in time")
            if found.code == _MISSING:
                raise ValueError(f"{tool} is not installed")
            raise ValueError(f"{tool}: ends with exit {found.code}")
        return found

    def line(self, question: str, pattern: str) -> str:
        """The one line of an answer. Raises ValueError when it is not of this form."""
        lines = self.answer(question).lines
        if len(lines) != 1 or not re.fullmatch(pattern, lines[0], re.ASCII):
            raise ValueError(f"{question}: unexpected output: {truncate(' '.join(lines))}")
        return lines[0]
