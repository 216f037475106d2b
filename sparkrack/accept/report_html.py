"""The result of `sparkrack accept` as one HTML page that needs nothing else."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from sparkrack.accept.model import AcceptReport
from sparkrack.accept.render import total


def page(report: AcceptReport) -> str:
    """Render the page."""
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    groups = {
        result: [one for one in report.claims if one.result == result]
        for result in ("refuted", "observed", "not observed")
    }
    return environment.get_template("page.html.j2").render(report=report, groups=groups, total=total(report))
