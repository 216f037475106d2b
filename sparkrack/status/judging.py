"""A node's answer while it is judged: what it says to each question, and what is wrong or unknown. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from sparkrack.fleet import Rack
from sparkrack.fleet.errors import one_line, shown
from sparkrack.status.model import About, Finding
from sparkrack.status.question import Answer

_T = TypeVar("_T")
_TOOLS = {"kernel": "uname", "driver": "nvidia-smi", "containers": "find", "images": "docker", "lock": "run lock"}
_TIMED_OUT, _MISSING = (124, 137), 127


@dataclass
class Judging:
    """A node's answer while it is read."""

    rack: Rack
    name: str
    said: Mapping[str, Answer]
    wrong: list[Finding] = field(default_factory=list)
    unknown: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def told(self, about: About, read: Callable[[], _T]) -> _T | None:
        """What `read` makes of the answer; None, and why, when it cannot be told."""
        try:
            return read()
        except ValueError as fault:
            self.unknown.append(Finding(about=about, text=one_line(str(fault))))
            return None

    def differs(self, about: About, text: str) -> None:
        """Note that something is not as declared."""
        self.wrong.append(Finding(about=about, text=text))

    def answer(self, question: str, tool: str = "") -> Answer:
        """How a tool answered. Raises ValueError when it was not asked, or failed."""
        found = self.said.get(question)
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
            raise ValueError(f"{question}: cannot be told from {shown(' '.join(lines))}")
        return lines[0]
