"""The result of `sparkrack accept` on the screen: what is refuted first, then the numbers. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from core.model.errors import counted
from core.util.tables import print_sentence, print_whole
from sparkrack.accept.model import AcceptReport, ClaimResult

MOST_SHOWN = 5
"""Claims, and reasons, of which the screen has the text; the page and the JSON have all."""
_LINE = 160


def show(report: AcceptReport, console: Console, *, quiet: bool = False) -> None:
    """Print the summary; what is refuted or could not be read, and the last line, if `quiet`."""
    for line in (*_list_refuted(report.claims), *_list_unknown(report)):
        print_sentence(console, line)
    if not quiet:
        print_whole(console, _claims_table(report))
        names = [one.id for one in report.claims if one.result == "observed"]
        if names:
            print_sentence(console, f"observed: {', '.join(names)}")
    print_sentence(console, Text(total(report), style="bold"))


def _list_refuted(claims: Sequence[ClaimResult]) -> Iterator[Text]:
    found = [one for one in claims if one.result == "refuted"]
    for one in found[:MOST_SHOWN]:
        yield Text(f"refuted: {one.id}: {one.claim}", style="red")
        by_text: dict[str, list[str]] = {}
        for host in one.hosts:
            if host.result == "refuted":
                by_text.setdefault(host.evidence, []).append(host.host)
        for text, names in list(by_text.items())[:MOST_SHOWN]:
            yield Text(f"  {', '.join(names)}: {_cut_line(text)}")
        yield Text(f"  this means: {one.matters}")
    if rest := found[MOST_SHOWN:]:
        yield Text(f"refuted as well: {', '.join(one.id for one in rest)}", style="red")


def _list_unknown(report: AcceptReport) -> Iterator[Text]:
    """Hosts that did not answer, then claims without an answer that is understood."""
    silent = {host.host for host in report.hosts if not host.answered}
    lines = [f"{host.host}: unknown: {_cut_line(host.reason)}" for host in report.hosts if not host.answered]
    lines += [
        f"{one.id}: unknown: {_cut_line(one.reason)}"
        for one in report.claims
        if any(host.unknown and host.host not in silent for host in one.hosts)
    ]
    yield from (Text(line, style="red") for line in lines[:MOST_SHOWN])
    if len(lines) > MOST_SHOWN:
        yield Text(f"and {len(lines) - MOST_SHOWN} more unknown", style="red")


def _claims_table(report: AcceptReport) -> Table:
    table = Table("level", "refuted", "observed", "not observed", "", box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for level in ("look", "change", "load"):
        of_level = [one for one in report.claims if one.level == level]
        if not of_level:
            continue
        refuted, observed, not_observed = (
            sum(one.result == result for one in of_level) for result in ("refuted", "observed", "not observed")
        )
        table.add_row(
            level,
            Text(str(refuted), style="red" if refuted else ""),
            Text(str(observed), style="green" if observed else ""),
            str(not_observed),
            _counts_note(of_level)
            if level == "look" or report.level != "look"
            else f"not observed by --level {report.level}",
        )
    return table


def _counts_note(claims: Sequence[ClaimResult]) -> str:
    by_hand = sum(one.reason.startswith("by hand") for one in claims)
    unknown = sum(one.unknown for one in claims)
    rest = sum(one.result == "not observed" and not one.unknown for one in claims) - by_hand
    return f"{by_hand} by hand, {unknown} unknown, {rest} not visible on this rack"


def _cut_line(text: str) -> str:
    return text if len(text) <= _LINE else f"{text[: _LINE - 3]}..."


def total(report: AcceptReport) -> str:
    """The last line: how many claims, and how they are."""
    counts = report.counts
    parts = [f"{counts[result]} {result}" for result in ("refuted", "observed", "not observed")]
    answered = sum(host.answered for host in report.hosts)
    hosts = f"{answered} of {counted(len(report.hosts), 'host')} answered"
    return f"{counted(len(report.claims), 'claim')}: {', '.join(parts)}; {hosts}"
