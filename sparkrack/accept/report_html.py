"""The result of `sparkrack accept` as one HTML page that needs nothing else."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup, escape

from core.util.html_page import page_template
from sparkrack.accept.model import AcceptReport, ClaimResult
from sparkrack.accept.render import total

_RESULTS = ("refuted", "observed", "not observed")
_CODE = re.compile(r"`([^`]+)`")


@dataclass(frozen=True)
class _Group:
    """Claims that a reader looks for together, and what they have in common."""

    meaning: str
    claims: Sequence[ClaimResult]


def page(report: AcceptReport) -> str:
    """Render the page."""
    groups = _group_claims(report)
    levels = {
        level: [sum(one.level == level and one.result == result for one in report.claims) for result in _RESULTS]
        for level in ("look", "change", "load")
        if any(one.level == level for one in report.claims)
    }
    silent = any(not host.answered for host in report.hosts)
    verdict = "refuted" if groups["refuted"].claims else "unknown" if groups["unknown"].claims or silent else "fine"
    return page_template(__file__, marked=marked).render(
        report=report, groups=groups, levels=levels, verdict=verdict, total=total(report)
    )


def marked(text: str) -> Markup:
    """Return a text with its parts in back-quotes as code; everything is escaped."""
    parts = [escape(part) for part in _CODE.split(text)]
    return Markup("").join(Markup("<code>{}</code>").format(part) if at % 2 else part for at, part in enumerate(parts))


def _group_claims(report: AcceptReport) -> dict[str, _Group]:
    """Return the claims in the order in which a reader needs them. One without an answer is not among the rest."""
    unknown = [one for one in report.claims if one.result == "not observed" and one.unknown]
    rest = [one for one in report.claims if one.result == "not observed" and not one.unknown]
    of = {result: [one for one in report.claims if one.result == result] for result in ("refuted", "observed")}
    return {
        "refuted": _Group("The rack shows something else than this project assumes.", of["refuted"]),
        "unknown": _Group("A host was asked and gave no answer that is understood.", unknown),
        "observed": _Group("The rack shows what this project assumes.", of["observed"]),
        "not observed": _Group("This run, or this rack, cannot show it.", rest),
    }
