"""A report as one HTML page that needs nothing else: no script, no font, no picture from elsewhere."""

from __future__ import annotations

import re
from base64 import b64encode
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from markdown_it import MarkdownIt
from markupsafe import Markup

from core.util.html_page import page_template
from core.util.project_files import UNPROVEN
from core.verify.pair_matrix import pair_matrices
from core.verify.report import Cell, CheckResult, Failure, Report


@dataclass(frozen=True)
class DrawnLink:
    """One link of the picture in words. `ends`: its two ends; `desired`: its declared values; `actual`: the values that
    the hosts report, empty when none is known; `findings`: differences and unknown values.
    """

    ends: tuple[str, str]
    desired: str
    actual: str
    state: Literal["declared", "fine", "mismatch", "unknown"]
    findings: tuple[str, ...] = ()


@dataclass(frozen=True)
class Drawing:
    """The picture of the rack: `svg` and its version on dark ground, `dark`, or the reason for their absence, `why`.

    `links`: the links of the picture. `not_compared`: the reason for which they are not compared with the actual links;
    empty when they are.
    """

    svg: str = ""
    dark: str = ""
    why: str = ""
    links: tuple[DrawnLink, ...] = ()
    not_compared: str = ""

    @property
    def addresses(self) -> dict[str, str]:
        """The pictures as addresses that hold them whole, by colour scheme. As an image a picture can neither run nor
        fetch anything.
        """
        pictures = {"light": self.svg, "dark": self.dark or self.svg}
        return {
            scheme: f"data:image/svg+xml;base64,{b64encode(svg.encode()).decode()}" for scheme, svg in pictures.items()
        }


Verdict = Literal["failed", "unknown", "passed", "skipped"]
_VERDICTS = get_args(Verdict)
"""Verdicts of checks, in the order in which the page lists them."""


@dataclass(frozen=True)
class CheckGroup:
    """The checks of a host, or of one of its roles, worst first; `parts` are the roles of a host."""

    name: str
    checks: tuple[CheckResult, ...]
    parts: tuple[CheckGroup, ...] = ()

    @property
    def verdict(self) -> Verdict:
        """The worst verdict."""
        return min((one.verdict for one in self.checks), key=_VERDICTS.index)

    @property
    def open(self) -> bool:
        """Whether the page shows its checks at once."""
        return self.verdict in ("failed", "unknown")

    @property
    def summary(self) -> str:
        """The number of checks of each verdict."""
        counts = Counter(one.verdict for one in self.checks)
        return ", ".join(f"{counts[verdict]} {verdict}" for verdict in _VERDICTS if counts[verdict])


@dataclass(frozen=True)
class PageSection:
    """The failures of one role of one machine; `anchor` is what a link leads to."""

    anchor: str
    machine: str
    role: str
    failures: tuple[Failure, ...]


def page(report: Report, drawing: Drawing, unproven: Path = UNPROVEN) -> str:
    """Render the page. `unproven`: the document that lists what only hardware can show."""
    groups = _failure_sections(report)
    return page_template(__file__, plainly=_describe_check).render(
        report=report,
        drawing=drawing,
        groups=groups,
        hosts=_groups_by_host(report.checks),
        anchors={(group.machine, group.role): group.anchor for group in groups},
        cells={(cell.host, cell.role): cell for cell in report.cells},
        states=_cell_states(report.cells),
        squares=pair_matrices(report),
        unproven=_render_document(unproven),
    )


def _failure_sections(report: Report) -> list[PageSection]:
    found: dict[tuple[str, str], list[Failure]] = {}
    for failure in report.failures:
        found.setdefault((failure.host, failure.role), []).append(failure)
    return [
        PageSection(f"failure-{number}", machine, role, tuple(failures))
        for number, ((machine, role), failures) in enumerate(found.items(), 1)
    ]


def _groups_by_host(checks: Iterable[CheckResult]) -> tuple[CheckGroup, ...]:
    """Return the checks by host and by role, the groups and the checks of each group with the worst verdict first."""

    def grouped(some: Iterable[CheckResult], key: Callable[[CheckResult], str]) -> list[tuple[str, list[CheckResult]]]:
        found: dict[str, list[CheckResult]] = {}
        for one in some:
            found.setdefault(key(one), []).append(one)
        return list(found.items())

    def worst_first(groups: Iterable[CheckGroup]) -> tuple[CheckGroup, ...]:
        return tuple(sorted(groups, key=lambda group: _VERDICTS.index(group.verdict)))

    def role(name: str, some: Iterable[CheckResult]) -> CheckGroup:
        return CheckGroup(name, tuple(sorted(some, key=lambda one: _VERDICTS.index(one.verdict))))

    return worst_first(
        CheckGroup(host, tuple(some), worst_first(role(*part) for part in grouped(some, lambda one: one.role)))
        for host, some in grouped(checks, lambda one: one.host)
    )


def _describe_check(check: str, machine: str) -> str:
    """The name of a check as words; what it is about only where that is more than the machine."""
    if check == "-":
        return "all checks"
    name, _, about = check.removeprefix("test_").partition("[")
    about = about.removesuffix("]")
    return name.replace("_", " ") + (f" ({about})" if about and about != machine else "")


def _cell_states(cells: tuple[Cell, ...]) -> Mapping[tuple[str, str], str]:
    def state(cell: Cell) -> str:
        if cell.failed:
            return "bad"
        if cell.unknown:
            return "unknown"
        return "good" if cell.passed else "none"

    return {(cell.host, cell.role): state(cell) for cell in cells}


def _render_document(path: Path) -> Markup | None:
    """A document without its title; None where the program was installed without its documents."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError:
        return None
    body = text.partition("\n")[2] if text.startswith("# ") else text
    # This reader shows HTML in a document as text, not as HTML; the marks of generated blocks are comments.
    body = re.sub(r"^<!--.*-->\n", "", body, flags=re.MULTILINE)
    return Markup(MarkdownIt("commonmark", {"html": False}).enable("table").render(body))  # noqa: S704
