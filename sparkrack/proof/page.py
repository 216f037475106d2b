"""A report as one HTML page that needs nothing else: no script, no font, no picture from elsewhere."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markdown_it import MarkdownIt
from markupsafe import Markup

from sparkrack.proof.report import Cell, Failure, Report
from sparkrack.proof.square import squares

UNPROVEN = Path(__file__).parents[2] / "docs/unproven.md"


@dataclass(frozen=True)
class Drawing:
    """The picture of the rack: `svg`, or why there is none."""

    svg: str = ""
    why: str = ""

    @property
    def address(self) -> str:
        """The picture as an address that holds it whole. As an image it can neither run nor fetch anything."""
        return f"data:image/svg+xml;base64,{b64encode(self.svg.encode()).decode()}"


@dataclass(frozen=True)
class Group:
    """The failures of one part of one machine; `anchor` is what a link leads to."""

    anchor: str
    machine: str
    part: str
    failures: tuple[Failure, ...]


def page(report: Report, drawing: Drawing, unproven: Path = UNPROVEN) -> str:
    """The page. `unproven`: the document that says what only hardware can show."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["plainly"] = _plainly
    groups = _groups(report)
    return environment.get_template("page.html.j2").render(
        report=report,
        drawing=drawing,
        groups=groups,
        anchors={(group.machine, group.part): group.anchor for group in groups},
        cells={(cell.machine, cell.part): cell for cell in report.cells},
        states=_states(report.cells),
        squares=squares(report),
        unproven=_document(unproven),
    )


def _groups(report: Report) -> list[Group]:
    found: dict[tuple[str, str], list[Failure]] = {}
    for failure in report.failures:
        found.setdefault((failure.machine, failure.part), []).append(failure)
    return [
        Group(f"failure-{number}", machine, part, tuple(failures))
        for number, ((machine, part), failures) in enumerate(found.items(), 1)
    ]


def _plainly(check: str, machine: str) -> str:
    """The name of a check as words; what it is about only where that is more than the machine."""
    name, _, about = check.removeprefix("test_").partition("[")
    about = about.removesuffix("]")
    return name.replace("_", " ") + (f" ({about})" if about and about != machine else "")


def _states(cells: tuple[Cell, ...]) -> Mapping[tuple[str, str], str]:
    def state(cell: Cell) -> str:
        if cell.failed:
            return "bad"
        if cell.unknown:
            return "unknown"
        return "good" if cell.passed else "none"

    return {(cell.machine, cell.part): state(cell) for cell in cells}


def _document(path: Path) -> Markup | None:
    """A document without its title; None where the program was installed without its documents."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError:
        return None
    body = text.partition("\n")[2] if text.startswith("# ") else text
    # This reader shows HTML in a document as text, not as HTML.
    return Markup(MarkdownIt("commonmark", {"html": False}).enable("table").render(body))  # noqa: S704
