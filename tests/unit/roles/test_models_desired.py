"""The files of models: what a node has and lacks, who passes on what to whom, and what the output of a fetch means."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from core.model.model_lock import ModelFile, ModelRecord
from core.model.models import Model
from core.ops import detached_unit
from core.ops.distribution import Pull, Route, Routes, forecast_chain
from roles.models import desired, scripts
from roles.models.delivery import ModelDelivery
from roles.models.desired import ModelGoal
from roles.models.model_sources import ModelTransfers
from tests.unit.model.racks import loaded, ring
from tests.unit.ops.test_distribution import ALL, EIGHT, PAIR

A, B = "a" * 64, "b" * 64
FILES = (ModelFile("config.json", 2, A), ModelFile("sub/x.bin", 5, B))
RECORDS = f"= m\n{A} 2 config.json\t1700000000123456789\n{B} 5 sub/x.bin\t1700000000000000000\n"
ROWS = (
    "d 4096 1700000000.0000000000 m",
    "f 2 1700000000.1234567890 m/config.json",
    "d 4096 1700000000.0000000000 m/sub",
    "f 5 1700000000.0000000000 m/sub/x.bin",
)
HUB = Model(name="m", source="a/b")
RECORD = ModelRecord("a/b", "c" * 40, FILES, {}, "main")


def stored(*rows: str, records: str = RECORDS) -> desired.StoredModel:
    listing = "".join(f"{row}\0" for row in (*rows, "end"))
    return desired.store(listing.encode(errors="surrogateescape"), records).of("m")


def test_a_node_that_has_it() -> None:
    assert stored(*ROWS).lacks(FILES) == []
    assert (desired.need(stored(*ROWS), FILES), stored(*ROWS).undeclared(FILES)) == (0, [])


@pytest.mark.parametrize(
    ("row", "missing"),
    [
        ("f 3 1700000000.1234567890 m/config.json", True),
        ("f 2 1700000000.1234567900 m/config.json", False),
        ("f 2 1700000001.1234567890 m/config.json", False),
        ("l 2 1700000000.1234567890 m/config.json", True),
        ("f 2 1700000000.1234567890 m/config.jso", True),
    ],
)
def test_a_file_that_differs(row: str, missing: bool) -> None:
    found = stored(ROWS[0], row, *ROWS[2:])
    assert found.lacks(FILES) == [FILES[0]]
    assert found.is_missing(FILES[0]) == missing


@pytest.mark.parametrize("edit", [(A, B), (" 2 ", " 3 "), ("config.json", "other"), ("= m", "= n"), ("\t", " ")])
def test_a_record_that_differs(edit: tuple[str, str]) -> None:
    assert FILES[0] in stored(*ROWS, records=RECORDS.replace(*edit)).lacks(FILES)


def test_what_is_not_declared() -> None:
    more = ("f 1 1.0000000000 m/a\nb", "f 1 1.0000000000 m/\udcff", "l 1 1.0000000000 m/sub/l", "d 1 1.0000000000 m/e")
    own = ("f 9 1.0000000000 m/.sparkrack/record", "f 3 1.0000000000 m/.sparkrack/parts/x")
    found = stored(*ROWS, *more, *own)
    assert found.undeclared(FILES) == ["\\xff", "a\nb", "sub/l"]
    assert found.parts == 3


def test_what_must_be_free_without_what_has_come() -> None:
    assert desired.need(stored(ROWS[0]), FILES) == 7
    assert desired.need(stored(ROWS[0], "f 3 1.0000000000 m/.sparkrack/parts/x"), FILES) == 4


def test_what_is_in_the_way() -> None:
    assert stored(*ROWS).in_the_way(FILES) == []
    assert stored("f 1 1.0000000000 m").in_the_way(FILES) == ["is a link or a file, and must be a folder"]
    rows = (
        "d 1 1.0000000000 m",
        "l 1 1.0000000000 m/sub",
        "d 1 1.0000000000 m/config.json",
        "f 1 1.0000000000 m/.sparkrack",
    )
    assert stored(*rows).in_the_way(FILES) == [
        ".sparkrack is a link or a file, and must be a folder",
        "sub is a link or a file, and must be a folder",
        "config.json is not a regular file",
    ]


@pytest.mark.parametrize(
    "listing",
    [b"", b"end", b"d 4096 1.0000000000 m\0", b"d 4096 1.0000000000 m\0end", b"x\0end\0", b"f -1 1.0 m\0end\0"],
)
def test_a_list_that_is_not_one(listing: bytes) -> None:
    with pytest.raises(ValueError, match=r"ends too early|unexpected probe output"):
        desired.store(listing, "")


def test_a_list_that_is_too_long() -> None:
    with pytest.raises(ValueError, match="too many files to list"):
        desired.store(b"x" * (desired.MAX_LISTING + 1), "")


@pytest.mark.parametrize(
    ("model", "record", "counts"),
    [
        (HUB, RECORD, True),
        (HUB, None, False),
        (HUB, replace(RECORD, source="a/c"), False),
        (HUB, replace(RECORD, source=None, revision=None, requested=None), False),
        (HUB, replace(RECORD, requested="v1"), False),
        (HUB, replace(RECORD, requested=None), True),
        (Model(name="m", source="a/b", revision="c" * 40), RECORD, True),
        (Model(name="m", source="a/b", revision="d" * 40), RECORD, False),
        (Model(name="m", source="a/b", revision="d" * 40), replace(RECORD, requested=None), False),
    ],
)
def test_when_the_lock_file_counts(model: Model, record: ModelRecord | None, counts: bool) -> None:
    assert (desired.goal(model, record).record is not None) == counts


@pytest.mark.parametrize("files", [None, {}, [["a"]], [["a", "1", A]], [[1, 1, A]], [["a", None, A]]])
def test_a_list_of_files_that_is_not_accepted(files: object) -> None:
    with pytest.raises(ValueError, match=r"list|row"):
        desired.record_of(HUB, "c" * 40, files, {})


@pytest.mark.parametrize("path", ["../x", "/etc/x", "a\nb", ".sparkrack/x"])
def test_a_path_that_leads_out_is_not_recorded(path: str) -> None:
    with pytest.raises(ValueError, match=r"plain path|does not print|belongs to this program"):
        desired.record_of(HUB, "c" * 40, [[path, 1, A]], {})


def test_a_chain_of_eight() -> None:
    plan = {name: str(way) for name, way in forecast_chain(EIGHT, (), ALL).items()}
    assert plan == {"n0": "outside", **{f"n{n}": f"n{n - 1} (fabric)" for n in range(1, 8)}}


def test_around_a_ring_each_takes_from_its_neighbour() -> None:
    roads = Routes(loaded(ring(5, [0] * 5)))
    plan = forecast_chain(roads, ["n0"], ["n1", "n2", "n3", "n4"])
    assert all(isinstance(way, Route) and way.fabric for way in plan.values())
    assert set(plan) == {"n1", "n2", "n3", "n4"}


def test_a_pair() -> None:
    plan = forecast_chain(PAIR, (), PAIR.rank)
    assert [isinstance(way, Pull) for way in plan.values()] == [True, False]


def transfers(receiving: dict[str, str | None], *holders: str) -> ModelTransfers:
    return ModelTransfers(goal=ModelGoal(HUB, RECORD), holders=set(holders), receiving=receiving, expected=set())


def test_a_node_does_not_take_it_from_one_that_takes_it_from_there() -> None:
    chain = transfers({"n1": "n0", "n2": "n1", "n3": "n2"}, "n0")
    assert chain.sources_for("n4") == {"n0": 1, "n1": 1, "n2": 1, "n3": 0}
    assert chain.sources_for("n1") == {"n0": 1}
    assert chain.sources_for("n2") == {"n0": 1, "n1": 1}
    assert transfers({"n0": None, "n1": "n0"}).sources_for("n0") == {}
    assert transfers({"n1": "n2", "n2": "n1"}).sources_for("n3") == {"n1": 1, "n2": 1}, "which cannot be, and ends"


@pytest.mark.parametrize(
    ("lines", "running", "fine"),
    [
        (["active", "sparkrack: ended 0"], True, False),
        (["inactive"], False, False),
        (["inactive", "sparkrack: ended 0"], False, True),
        (["inactive", "sparkrack: ended 1"], False, False),
        (["failed", "sparkrack: at 1 2 3"], False, False),
        (["inactive", "sparkrack: ended 0", "sparkrack: ended 1"], False, False),
    ],
)
def test_progress(lines: list[str], running: bool, fine: bool) -> None:
    found = scripts.progress(lines)
    assert (found.running, found.fine) == (running, fine)


def test_what_a_fetch_reports() -> None:
    part = f"/srv/models/m/.sparkrack/parts/0123-{A}"
    lines = ["inactive", "sparkrack: at 1 9 0", "sparkrack: at 5 9 4", f"sparkrack: lacks 3 {A} {part} a b.bin", "why"]
    found = scripts.progress(lines)
    assert (found.done, found.total, found.received, found.reported) == (5, 9, 4, ("why",))
    assert found.lacks == (scripts.LackingFile("a b.bin", 3, part),)
    with pytest.raises(ValueError, match="does not say"):
        scripts.progress([])


@pytest.mark.parametrize("part", ["/etc/passwd", "/srv/models/m/.sparkrack/parts/../../x", ""])
def test_only_a_part_is_written_to(part: str) -> None:
    with pytest.raises(ValueError, match="is not a part of a model"):
        scripts.append(part, 0)


def test_amounts() -> None:
    assert [desired.amount(size) for size in (0, 180_000, 5_000_000, 9_999_999_999, 118e9)] == [
        *("0 kB", "180 kB", "5 MB", "10000 MB", "118.0 GB")
    ]
    assert [desired.time_left(seconds) for seconds in (40, 100, 5300, 12000)] == [
        "40 s",
        "2 min",
        "88 min",
        "3 h 20 min",
    ]


@pytest.mark.parametrize(("receiving", "started"), [({"n0": None}, {"n0"}), ({}, set())])
def test_a_node_passes_files_on_from_the_moment_at_which_its_transfer_runs(
    monkeypatch: pytest.MonkeyPatch, receiving: dict[str, str | None], started: set[str]
) -> None:
    given, seen = transfers(receiving), list[set[str]]()
    monkeypatch.setattr(detached_unit, "send", lambda *_: seen.append({*given.started}))
    monkeypatch.setattr(detached_unit, "watch", lambda *_: seen.append({*given.started}))
    anything: Any = None
    ModelDelivery(anything, "n0", anything)._run_fetch_program(given, None, "the hub")
    assert seen == [set(), started]
