"""What other programs read: whole, and quoted, whatever a machine says."""

from __future__ import annotations

import re

import pytest
from markdown_it import MarkdownIt

from core.util.event import Action, EventKind, acted
from sparkrack.drift.compare import compare_runs
from sparkrack.drift.findings import Drift, DriftFinding, FindingKind, drift_of
from sparkrack.drift.labels import TITLES, difference, sentence, total
from sparkrack.drift.markdown import MAX_CHARACTERS, markdown
from sparkrack.engine.plan import Plan
from tests.unit.drift.plans import EVIL, HOSTILE, MIXED, machine, modified, plan, unreachable

IN_SYNC = plan(machine("spark1"))
SHOWN = HOSTILE.replace("\n", "\\n").replace("\x1b", "\\x1b").replace("\udc80", "\\udc80").replace("\u202e", "\\u202e")
BOTH = pytest.mark.parametrize("whole", [MIXED, EVIL, IN_SYNC], ids=["mixed", "hostile", "in sync"])


def compared(whole: Plan) -> Drift:
    """With what came and went, both of which it has."""
    now = drift_of(whole)
    then = drift_of(plan(machine("spark1", ("rdma", EventKind.CHANGE, "x"))))
    return now.model_copy(update={"since": compare_runs(then, now, "a run")})


def file(action: Action, path: str) -> DriftFinding:
    return DriftFinding(
        kind=FindingKind.DECLARED,
        event_kind=EventKind.FILE,
        path=path,
        action=action,
        message=f"{action} {path}",
    )


def test_words() -> None:
    assert set(TITLES) == set(FindingKind)
    lines = [
        sentence(finding) for machine in drift_of(MIXED).hosts for _, finding in machine.found(FindingKind.DECLARED)
    ]
    assert lines == [
        "/etc/hosts differs",
        "vm.min_free_kbytes: 45155 -> 1572864",
        "manual fix required: /etc/nccl.conf turns RDMA off",
        "~ /system/identity: name MikroTik -> crs812",
    ]
    assert sentence(file(Action.CREATE, "/x y")) == "/x y is missing"
    assert sentence(file(Action.REMOVE, "/x")) == "/x should not exist"
    assert total(drift_of(MIXED)) == "unknown: 4 declared, 1 broken, 1 outlier, 2 unmanaged; 1 of 4 machines unknown"
    assert total(drift_of(IN_SYNC)).startswith("in sync: 0 declared")
    assert total(drift_of(plan(machine("spark1", ("rdma", EventKind.OUTLIER, "x"))))).startswith("drift: 0 declared")


# Markdown


def blocks(text: str) -> list[str]:
    return [token.content for token in MarkdownIt("gfm-like", {"linkify": False}).parse(text) if token.type == "fence"]


def markup(text: str) -> set[str]:
    """What a renderer makes of it, but for code and tables."""
    tokens = MarkdownIt("gfm-like", {"linkify": False}).parse(text)
    inline = {child.type for token in tokens for child in token.children or ()}
    return {token.type for token in tokens} | inline


@BOTH
def test_markdown_has_no_markup_of_a_machine(whole: Plan) -> None:
    found = markup(markdown(compared(whole)))
    assert not found & {"html_block", "html_inline", "link_open", "image", "code_block", "strong_open", "hr"}, found
    assert sum(text.count("@team") for text in re.split(r"(?m)^`{3,}.*$", markdown(compared(whole)))[::2]) == 0


def test_markdown_shows_everything() -> None:
    text = markdown(compared(EVIL))
    reported = "\n".join(blocks(text))
    evil = [finding for machine in drift_of(EVIL).hosts for _, finding in machine.found(*FindingKind)]
    assert len(evil) > 10
    assert all(sentence(finding) in reported for finding in evil)
    assert f"unreachable: {SHOWN}" in reported
    assert f"+{SHOWN}" in reported
    assert text.isascii() or "é" in text
    assert "\x1b" not in text


def test_markdown_counts_and_has_no_zero_of_what_is_not_known() -> None:
    rows = [row for row in markdown(drift_of(MIXED)).splitlines() if row.startswith("| ")]
    assert rows == [
        "| | declared | broken | outlier | unmanaged | unknown |",
        "| `spark1` | 2 | 1 | 1 | 1 |  |",
        "| `spark2` | 1 | 0 | 0 | 0 |  |",
        "| `spark3` | ? | ? | ? | ? | yes |",
        "| `crs812` | 1 | 0 | 0 | 1 |  |",
    ]
    assert "table_open" in markup(markdown(drift_of(MIXED)))


def test_markdown_in_sync() -> None:
    text = markdown(drift_of(IN_SYNC))
    assert text.startswith("## Drift of `lab`: in sync")
    assert "###" not in text
    assert not blocks(text)


def test_markdown_since() -> None:
    text = markdown(compared(MIXED))
    assert "+ spark1 fabric (broken): enp1s0f1np1 has no carrier\n" in text
    assert "- spark1 rdma (declared): x\n" in text
    assert "Cannot be compared: `spark2`, `spark3`, `crs812`" in text
    nothing = drift_of(IN_SYNC).model_copy(
        update={"since": compare_runs(drift_of(IN_SYNC), drift_of(IN_SYNC), "a run")}
    )
    assert "Nothing appeared and nothing was resolved." in markdown(nothing)


@pytest.mark.parametrize(
    ("findings", "diff", "shortened"),
    [(3, 3, False), (60, 20, True), (900, 20, True), (900, 0, True)],
)
def test_markdown_fits_into_a_comment(findings: int, diff: int, shortened: bool) -> None:
    lines = ("+" + "y" * 40,) * diff
    printed = [("fabric", modified(f"/etc/{'x' * 50}/{number}", *lines)) for number in range(findings)]
    text = markdown(drift_of(plan(*(machine(f"spark{number}", *printed) for number in range(1, 9)))))
    assert len(text) <= MAX_CHARACTERS
    assert ("Shortened" in text) == shortened
    assert (f"... and {findings - 10} more" in text) == (findings == 900)
    assert "/0 differs" in text


def test_a_missing_image_is_named_as_missing() -> None:
    """The action alone (`name 840abd7a143f IMAGE`) would not show what differs."""
    image = "scitrera/dgx-spark-vllm:0.10"
    events = (*acted(Action.NAME, "840abd7a143f", detail=image), *acted(Action.COPY, image, detail="from spark1"))
    found = [
        one
        for _, one in drift_of(plan(machine("spark2", *(("images", event) for event in events))))
        .hosts[0]
        .found(FindingKind.DECLARED)
    ]
    assert [sentence(one).partition(";")[0] for one in found] == [f"image {image} is missing"] * 2


def test_a_row_that_is_cut_and_a_fence_are_as_long_as_the_text_needs() -> None:
    printed = [("fabric", EventKind.CHANGE, f"{number} {'x' * 200}") for number in range(12)]
    found = drift_of(plan(*(machine(f"spark{number}", *printed * 20) for number in range(3))))
    text = markdown(found)
    assert text.count("... and 230 more") == 3
    shown = [row for row in text.splitlines() if row.startswith("fabric: ")]
    assert {len(row) for row in shown} == {100}
    assert len(shown) == 30
    assert "```diff" in text
    marked = markdown(drift_of(plan(machine("spark1", ("fabric", EventKind.CHANGE, "a ```` b")))))
    assert "`````diff" in marked


def test_a_name_with_backticks_or_a_bar_stays_one_cell() -> None:
    text = markdown(drift_of(plan(machine("a`b|c"))))
    assert "| `` a`b\\x7cc `` | 0 | 0 | 0 | 0 |  |" in text


def test_the_revision_and_the_time_stand_below_the_title() -> None:
    whole = drift_of(IN_SYNC)
    assert "\n`rack.yaml` at `0123456789ab`, 2026-11-20 08:30:05 UTC\n" in markdown(whole)
    assert "\n`rack.yaml`, 2026-11-20 08:30:05 UTC\n" in markdown(whole.model_copy(update={"revision": ""}))


@pytest.mark.parametrize(
    ("action", "subject", "detail", "text"),
    [
        (Action.COPY, "x:1", "from spark1", "image x:1 is missing; a run would "),
        (Action.PULL, "x:1", None, "image x:1 is missing; a run would "),
        (Action.NAME, "840abd7a143f", "x:1", "image x:1 is missing; a run would "),
        (Action.NAME, "840abd7a143f", None, "image  is missing; a run would "),
    ],
)
def test_an_image_is_named_by_what_is_to_be_there(action: Action, subject: str, detail: str | None, text: str) -> None:
    finding = DriftFinding(
        kind=FindingKind.DECLARED,
        event_kind=EventKind.CHANGE,
        action=action,
        subject=subject,
        detail=detail,
        message="m",
    )
    assert sentence(finding) == f"{text}m"


def test_a_file_without_a_known_action_is_reported_by_its_message() -> None:
    assert sentence(file(Action.WRITE, "/x")) == "write /x"
    assert sentence(file(Action.MODIFY, "/x\x1b")) == "/x\\x1b differs"


def test_a_machine_that_is_away_is_a_difference_of_no_role() -> None:
    then, now = drift_of(IN_SYNC), drift_of(plan(unreachable("spark1")))
    (one,) = compare_runs(then, now, "a run").appeared
    assert difference(one) == "spark1 unreachable (unknown): no route to host"
    (two,) = compare_runs(then, drift_of(plan(machine("spark1", ("rdma", EventKind.BROKEN, "x")))), "a run").appeared
    assert difference(two) == "spark1 rdma (broken): x"
