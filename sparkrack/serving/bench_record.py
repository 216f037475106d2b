"""The records of `sparkrack serve bench`: what was measured, how it compares with the baseline, and where both are."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, ValidationError

from core.model.errors import printable_line
from core.util import atomic_file, regular_file
from core.util.paths import state_folder
from core.util.records import Record, Text
from serving.engines.bench_tool import BenchFigures
from serving.options import EngineName
from sparkrack.serving.bench_pooled import PooledFigures

TOLERANCE = 0.05
"""Share by which a figure may be worse than the baseline."""
MAX_RECORDS = 200
"""Records that are kept of a unit, without its baselines."""
Kind = Literal["full", "quick"]
ComparedFigure = Literal["output_throughput", "ttft_median_ms", "item_throughput", "latency_median_ms"]
COMPARED: tuple[ComparedFigure, ...] = ("output_throughput", "ttft_median_ms", "item_throughput", "latency_median_ms")
"""The figures that are compared with the baseline: of a throughput less is worse, of a time more."""
_Figure = Annotated[float, Field(gt=0, allow_inf_nan=False)]


class BaselineError(Exception):
    """The baseline cannot be read. The text is one line."""


class BenchCaseRecord(Record):
    """One measurement. The figures are null unless it was measured.

    `state`: skipped is one that the unit cannot serve, or that comes after a failed one. `requests`: their number.
    `item_throughput`: texts a second of a unit of kind embedding, pairs of query and document a second of one of kind
    score; `input_throughput`: their tokens. `slower`: the figures that are worse than those of the baseline by more
    than 5 %.
    """

    concurrency: int
    input_tokens: int
    output_tokens: int
    requests: int
    state: Literal["measured", "skipped", "failed"]
    reason: Text = ""
    output_throughput: _Figure | None = None
    ttft_median_ms: _Figure | None = None
    ttft_p99_ms: _Figure | None = None
    tpot_median_ms: _Figure | None = None
    tpot_p99_ms: _Figure | None = None
    item_throughput: _Figure | None = None
    input_throughput: _Figure | None = None
    latency_median_ms: _Figure | None = None
    latency_p99_ms: _Figure | None = None
    baseline_output_throughput: _Figure | None = None
    baseline_ttft_median_ms: _Figure | None = None
    baseline_item_throughput: _Figure | None = None
    baseline_latency_median_ms: _Figure | None = None
    slower: tuple[ComparedFigure, ...] = ()

    def with_figures(self, figures: BenchFigures | PooledFigures) -> BenchCaseRecord:
        """Return the same measurement with what was measured."""
        return self.model_copy(update={"state": "measured", "reason": "", **vars(figures)})

    @property
    def key(self) -> tuple[int, int, int]:
        """What two measurements have in common that can be compared."""
        return self.concurrency, self.input_tokens, self.output_tokens


class BaselineReference(Record):
    """The baseline that a measurement is compared with."""

    made: datetime
    revision: str
    engine_version: Text
    image_id: Text


class ServeBenchRecord(Record):
    """A measurement of a unit.

    `revision`: the git revision of the rack file, with `+` when something there is not committed; empty outside git.
    `engine_version`, `image_id`: of the running container. `unit_kind`: of the unit. `busy`: the unit computed for
    others at the beginning, or shortly before. `saved`: it is the new baseline.
    """

    schema_: Literal["sparkrack.serve-bench/1"] = Field(
        "sparkrack.serve-bench/1", alias="schema", serialization_alias="schema"
    )
    rack: str
    file: Text
    revision: str
    made: datetime
    unit: str
    model: str
    nodes: tuple[str, ...]
    engine: EngineName
    engine_version: Text
    image: Text
    image_id: Text
    kind: Kind
    unit_kind: Literal["chat", "completion", "embedding", "score"] = "chat"
    busy: bool
    saved: bool = False
    cases: tuple[BenchCaseRecord, ...]
    baseline: BaselineReference | None = None

    @property
    def complete(self) -> bool:
        """Whether something was measured, and nothing failed."""
        states = {one.state for one in self.cases}
        return "measured" in states and "failed" not in states

    @property
    def code(self) -> int:
        """The exit code: 1 when a measurement failed, 2 when one is slower than the baseline, else 0."""
        if not self.complete:
            return 1
        return 2 if any(one.slower for one in self.cases) else 0


def folder(rack: str, unit: str) -> Path:
    """Return the folder of the measurements of a unit."""
    return state_folder(rack) / "bench" / unit


def baseline_path(rack: str, unit: str, kind: Kind) -> Path:
    """Return the path of the baseline of a unit. A short measurement has its own."""
    return folder(rack, unit) / f"baseline-{kind}.json"


def read_baseline(rack: str, unit: str, kind: Kind) -> ServeBenchRecord | None:
    """Return the baseline of a unit, None if it has none. Raises BaselineError."""
    path = baseline_path(rack, unit, kind)
    try:
        return ServeBenchRecord.model_validate_json(regular_file.read_bytes(path))
    except FileNotFoundError:
        return None
    except OSError as error:
        raise BaselineError(f"{path}: the baseline cannot be read: {error.strerror or error}") from None
    except ValidationError as error:
        what = error.errors(include_url=False)[0]
        place = ".".join(map(str, what["loc"]))
        raise BaselineError(printable_line(f"{path}: is not a baseline: {place}: {what['msg']}")) from None


def keep(record: ServeBenchRecord) -> Path:
    """Keep a record, as the baseline too if it is `saved`, and only the newest `MAX_RECORDS`; return its path. Raises
    OSError.
    """
    made = record.made.astimezone(UTC)
    text = record.model_dump_json(by_alias=True, indent=1) + "\n"
    path = folder(record.rack, record.unit) / f"{made:%Y%m%dT%H%M%S}.{made.microsecond // 1000:03d}Z.json"
    atomic_file.write_atomic(path, text)
    if record.saved:
        atomic_file.write_atomic(baseline_path(record.rack, record.unit, record.kind), text)
    for old in sorted(path.parent.glob("[0-9]*Z.json"), reverse=True)[MAX_RECORDS:]:
        old.unlink(missing_ok=True)
    return path


def compared(record: ServeBenchRecord, baseline: ServeBenchRecord | None) -> ServeBenchRecord:
    """Return a record with the figures of the baseline, and with what is slower."""
    if baseline is None or baseline.unit_kind != record.unit_kind:
        return record
    known = {one.key: one for one in baseline.cases if one.state == "measured"}
    reference = BaselineReference(
        made=baseline.made,
        revision=baseline.revision,
        engine_version=baseline.engine_version,
        image_id=baseline.image_id,
    )
    cases = tuple(_compare_case(one, known.get(one.key)) for one in record.cases)
    return record.model_copy(update={"cases": cases, "baseline": reference})


def _compare_case(case: BenchCaseRecord, before: BenchCaseRecord | None) -> BenchCaseRecord:
    if before is None:
        return case
    then = {f"baseline_{name}": getattr(before, name) for name in COMPARED}
    return case.model_copy(update={**then, "slower": tuple(_list_slower_figures(case, before))})


def _list_slower_figures(case: BenchCaseRecord, before: BenchCaseRecord) -> Iterable[ComparedFigure]:
    for name in COMPARED:
        now, then = getattr(case, name), getattr(before, name)
        if now and then and (now > then * (1 + TOLERANCE) if name.endswith("_ms") else now < then * (1 - TOLERANCE)):
            yield name
