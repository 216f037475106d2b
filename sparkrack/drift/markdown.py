"""Drift as Markdown, for the comment of a CI job."""

from __future__ import annotations

import re
from collections.abc import Iterator

from core.model.errors import printable_line
from sparkrack.drift.findings import Comparison, Drift, FindingKind
from sparkrack.drift.labels import TITLES, difference, sentence, total

MAX_CHARACTERS = 60_000
"""Characters. GitHub takes 65536 in a comment; the job may add a line of its own."""


def markdown(drift: Drift) -> str:
    """The whole report; without what is in the files, then with ten lines a machine, when it would get too long."""
    whole = _markdown_report(drift, diffs=True, most=None)
    if len(whole) > MAX_CHARACTERS:
        whole = _markdown_report(drift, diffs=False, most=None)
    return whole if len(whole) <= MAX_CHARACTERS else _markdown_report(drift, diffs=False, most=10)


def _markdown_report(drift: Drift, *, diffs: bool, most: int | None) -> str:
    revision = f" at {_inline_code(drift.revision)}" if drift.revision else ""
    lines = [
        f"## Drift of {_inline_code(drift.rack)}: {total(drift)}",
        "",
        f"{_inline_code(drift.file)}{revision}, {_time_text(drift)}",
    ]
    lines += ["", "| | " + " | ".join(FindingKind) + " |", "|---" * (len(FindingKind) + 1) + "|"]
    for machine in drift.hosts:
        lines.append(f"| {_inline_code(machine.name)} | " + " | ".join(_machine_cells(machine)) + " |")
    for kind, title in TITLES.items():
        groups = [(machine, list(_finding_lines(machine, kind, diffs))) for machine in drift.hosts]
        if any(found for _, found in groups):
            lines += ["", f"### {title}"]
        for machine, found in groups:
            if found:
                lines += ["", f"{_inline_code(machine.name)}", *_fenced_block(found, most)]
    if not diffs:
        lines += ["", "_Shortened: `sparkrack drift` shows all of it._"]
    return "\n".join([*lines, *_since_lines(drift, most)]) + "\n"


def _time_text(drift: Drift) -> str:
    return f"{drift.made:%Y-%m-%d %H:%M:%S} UTC"


def _machine_cells(machine: Comparison) -> Iterator[str]:
    for kind in FindingKind:
        count = sum(1 for _ in machine.found(kind))
        if kind is FindingKind.UNKNOWN:
            yield "" if machine.complete else "yes"
        else:
            # An empty cell of a machine that is not wholly known is not a zero.
            yield str(count) if count or machine.complete else "?"


def _finding_lines(machine: Comparison, kind: FindingKind, diffs: bool) -> Iterator[str]:
    if kind is FindingKind.UNKNOWN and machine.reason:
        yield f"unreachable: {printable_line(machine.reason)}"
    for role, finding in machine.found(kind):
        yield f"{role}: {sentence(finding)}"
        if diffs:
            yield from map(printable_line, finding.diff)


def _since_lines(drift: Drift, most: int | None) -> Iterator[str]:
    if not drift.since:
        return
    yield from ("", f"### Since {_inline_code(drift.since.run)}")
    lines = [f"+ {difference(one)}" for one in drift.since.appeared]
    lines += [f"- {difference(one)}" for one in drift.since.resolved]
    if lines:
        yield from ("", "`+` appeared, `-` resolved", *_fenced_block(lines, most))
    else:
        yield from ("", "Nothing appeared and nothing was resolved.")
    if drift.since.uncompared:
        yield from ("", "Cannot be compared: " + ", ".join(map(_inline_code, drift.since.uncompared)))


def _fenced_block(lines: list[str], most: int | None) -> list[str]:
    """A block in which nothing is markup, HTML or a mention: no line of it is as long a row of backticks as its fence.
    Shown as a diff, so what begins with + or - has its colour."""
    if most is not None:
        more = [f"... and {len(lines) - most} more"] if len(lines) > most else []
        lines = [*(line[:100] for line in lines[:most]), *more]
    fence = "`" * max(3, 1 + _longest_backticks(*lines))
    return [f"{fence}diff", *lines, fence]


def _inline_code(text: str) -> str:
    text = printable_line(text).replace("|", "\\x7c")
    fence = "`" * (1 + _longest_backticks(text))
    return f"{fence}{text}{fence}" if fence == "`" else f"{fence} {text} {fence}"


def _longest_backticks(*texts: str) -> int:
    """The longest row of backticks in any of them."""
    return max((len(row) for text in texts for row in re.findall("`+", text)), default=0)
