"""The HTML page as text: whole, escaped, and asking for nothing. How it looks is tested in a browser."""

from __future__ import annotations

import re
from base64 import b64decode
from collections import Counter
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from core.verify.outcomes import Outcome
from core.verify.report import Report, report
from core.verify.report_html import Drawing, DrawnLink, page
from sparkrack.topology.render_dot import DARK, LIGHT, Palette
from tests.unit.verify.reports import (
    ALL,
    HOSTILE,
    ORIGIN,
    RACK,
    failed,
    fine,
    passed,
    reduced,
    reported,
    skipped,
    unmeasured,
)

SVG = '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20"><text x="1" y="15">rack</text></svg>'
UNPROVEN = "# Title\n\n| claim | in the lab |\n| --- | --- |\n| `a` & <b>b</b> | stand-in |\n"


class Elements(HTMLParser):
    """Every element of a page with what it is given, and the text beside them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.all: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.all.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    def of(self, *names: str) -> list[str]:
        return [value for _, given in self.all for name, value in given.items() if name in names and value]


def shown(found: Report, tmp_path: Path, drawing: Drawing | None = None, unproven: str = UNPROVEN) -> Elements:
    document = tmp_path / "unproven.md"
    document.write_text(unproven)
    return Elements(page(found, drawing or Drawing(svg=SVG), document))


def faulty_outcomes() -> list[Outcome]:
    made = [*fine(), failed("spark2", "memory", "swap is on"), failed("spark1", "docker", "gone", unknown=True)]
    return [*made, failed("-", "-", "cannot be read", unknown=True)]


def faulty() -> Report:
    return reported(faulty_outcomes())


def test_nothing_is_asked_for(tmp_path: Path) -> None:
    elements = shown(faulty(), tmp_path)
    for address in elements.of("src", "href", "action", "data", "srcset", "poster"):
        assert address.startswith(("data:", "#")), address
    assert not {tag for tag, _ in elements.all} & {"script", "iframe", "object", "embed", "base", "form"}
    style = elements.text[: elements.text.index("spark1")]
    assert not re.search(r"url\(|@import", style)
    assert any("default-src 'none'" in (given.get("content") or "") for _, given in elements.all)


def test_an_all_reduce_stands_beside_the_wire_and_what_is_unknown_is_called_so(tmp_path: Path) -> None:
    slow = {"gbytes": 3.04, "good": False, "slow": "all-reduce", "reason": "NCCL is slow", "best": None}
    values = (reduced("llama", "spark1", "spark2", **slow), unmeasured("gpt", "spark2", "spark1", reason="it runs"))
    found = reported([*fine(), passed("spark1", "serving", measured=values)])
    words = " ".join(
        shown(found, tmp_path).text.partition("All-reduce beside the wire")[2].partition("Unproven")[0].split()
    )
    llama, gpt = words.partition("llama: spark1, spark2")[2].split("gpt: spark2, spark1")
    assert "ib_write_bw 97.1 to 97.4 Gbit/s 80.0 Gbit/s ✓ healthy" in llama
    assert "all-reduce of 64 MiB 3.0 GB/s 17.5 GB/s ✗ NCCL is slow" in llama
    assert "too slow the all-reduce" in llama
    assert "nvcr.io/nvidia/vllm:26.04-py3 sha256:4e1b" in llama
    assert "NCCL of the image 2.28.9+cuda13.0 its network IB" in llama
    assert "best earlier with this image none is kept" in llama
    assert "ib_write_bw unknown unknown ? not measured" in gpt
    assert "all-reduce of 64 MiB unknown unknown ? it runs" in gpt
    assert "NCCL of the image unknown its network unknown" in gpt
    assert 'id="all-reduce"' not in page(reported(fine()), Drawing(svg=SVG)), "without one there is no empty section"


def test_every_link_leads_to_its_words(tmp_path: Path) -> None:
    elements = shown(faulty(), tmp_path)
    places = Counter(elements.of("id"))
    links = [link[1:] for link in elements.of("href") if link.startswith("#")]
    assert set(places.values()) == {1}
    assert set(links) <= set(places)
    assert len([link for link in links if link.startswith("failure-")]) == 2


@pytest.mark.parametrize(
    ("outcomes", "words"),
    [
        (fine(), "two: As declared"),
        ([*fine(), failed("spark1", "memory", "no")], "two: Not as declared"),
        ([*fine(), failed("spark1", "memory", "no", unknown=True)], "two: Unknown"),
        (
            [failed("spark1", "memory", "no"), failed("spark2", "memory", "no", unknown=True)],
            "two: Not as declared, and not all known",
        ),
        ([], "Nothing was proven"),
    ],
)
def test_the_verdict_comes_first(tmp_path: Path, outcomes: list[object], words: str) -> None:
    elements = shown(reported(outcomes), tmp_path)  # type: ignore[arg-type]
    body = elements.text[elements.text.rindex("}") :]
    assert words in " ".join(body.split())[:200]


def test_what_was_not_looked_at_is_next_to_the_verdict(tmp_path: Path) -> None:
    text = shown(reported([passed("spark1", "memory")], ["spark1"], ["memory"]), tmp_path).text
    assert "Not checked in this run: spark2, crs812, preflight" in " ".join(text.split())
    assert "Not checked" not in shown(reported(fine()), tmp_path).text


def test_hostile_words_are_words(tmp_path: Path) -> None:
    origin = ORIGIN.model_copy(update={"by": HOSTILE, "file": HOSTILE, "revision": HOSTILE})
    made = [
        failed("spark1", "memory", HOSTILE, check=HOSTILE),
        skipped("spark1", "rdma", HOSTILE),
        replace(passed("spark2", "memory"), notes=(HOSTILE,)),
        failed(HOSTILE, HOSTILE, HOSTILE),
    ]
    found = report(RACK, ALL, ["memory"], made, origin)
    link = DrawnLink((HOSTILE, HOSTILE), HOSTILE, HOSTILE, "mismatch", (HOSTILE,))
    spoiled = shown(found, tmp_path, Drawing(why=HOSTILE, links=(link,), not_compared=HOSTILE))
    plain = shown(reported(fine()), tmp_path)
    assert {tag for tag, _ in spoiled.all} <= {tag for tag, _ in plain.all} | {"ul", "li", "strong"}
    assert not [name for _, given in spoiled.all for name in given if name.startswith("on")]
    assert spoiled.text.count("<script>document.title = 'run'</script> & \"quoted\" 'twice'") >= 8
    assert "{{ 7 * 7 }}" in spoiled.text


def test_the_picture_is_an_image_that_holds_itself(tmp_path: Path) -> None:
    sources = shown(reported(fine()), tmp_path, Drawing(svg=SVG, dark=SVG.replace("rack", "night"))).of("src")
    assert [source.partition(",")[0] for source in sources] == ["data:image/svg+xml;base64"] * 2
    texts = [b64decode(source.partition(",")[2]).decode() for source in sources]
    assert [">rack<" in text for text in texts] == [True, False], "the light one, then the dark one"


def test_every_check_is_listed_once_and_the_worst_comes_first(tmp_path: Path) -> None:
    found = reported([*faulty_outcomes(), skipped("spark1", "rdma", "not declared")])
    elements = shown(found, tmp_path)
    assert Counter(elements.of("data-check")) == Counter(one.check for one in found.checks)
    assert len(found.checks) == found.passed + found.failed + found.unknown + 1
    text = " ".join(elements.text.split())
    text = text[text.index("All checks") : text.index("The rack, declared and actual")]
    for words in ("✗ failed: it: swap is on", "? unknown: it: gone", "– skipped: it: not declared"):
        assert words in text
    first, *_, last = re.findall(r"(spark[12]|crs812|the run itself): \d", text)
    assert (first, last) == ("spark2", "crs812"), "failed, then unknown, then passed"
    groups = [given for tag, given in elements.all if tag == "details" and given.get("class")]
    assert [given["class"] for given in groups[:3]] == ["host", "role", "role"]
    assert ["open" in given for given in groups[:3]] == [True, True, False]
    assert sum("open" in given for given in groups) == 6, "a host and a role for each of the three"


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_the_texts_of_a_picture_can_be_read_on_each_ground(palette: Palette) -> None:
    def light(colour: str) -> float:
        parts = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
        linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    def contrast(one: str, other: str) -> float:
        low, high = sorted((light(one), light(other)))
        return (high + 0.05) / (low + 0.05)

    grounds = (palette.paper, palette.node, palette.switch, palette.cage, palette.cell)
    assert min(contrast(text, ground) for text in (palette.ink, palette.pale) for ground in grounds) >= 4.5
    assert min(contrast(text, palette.paper) for text in palette.states.values()) >= 4.5


def test_without_a_picture_it_says_why(tmp_path: Path) -> None:
    elements = shown(reported(fine()), tmp_path, Drawing(why="there is no program dot"))
    assert elements.of("src") == []
    assert "No picture: there is no program dot." in elements.text


def test_the_unproven_is_shown_as_a_table(tmp_path: Path) -> None:
    elements = shown(reported(fine()), tmp_path)
    assert "`" not in elements.text[elements.text.index("claim") :]
    assert "a & <b>b</b>" in elements.text, "HTML in the document is text"
    assert "b" not in {tag for tag, _ in elements.all}


@pytest.mark.parametrize(
    ("document", "title"), [("# A title\n\nThe first line.", False), ("A title\n\nThe first line.", True)]
)
def test_only_the_title_of_the_document_is_left_out(tmp_path: Path, document: str, title: bool) -> None:
    text = shown(reported(fine()), tmp_path, unproven=document).text
    assert ("A title" in text, "The first line." in text) == (title, True)


def test_the_marks_of_generated_tables_are_not_shown() -> None:
    shown_page = page(reported(fine()), Drawing(svg=SVG))
    assert "generated:" not in shown_page
    assert "-- end --" not in shown_page
    assert "switch.safe-mode.api" in shown_page


def test_without_the_document_there_is_a_pointer(tmp_path: Path) -> None:
    assert "docs/unproven.md" in page(reported(fine()), Drawing(svg=SVG), tmp_path / "none.md")


def test_the_projects_own_document_is_taken() -> None:
    assert "<table>\n<thead>\n<tr>\n<th>claim</th>" in page(reported(fine()), Drawing(svg=SVG))
