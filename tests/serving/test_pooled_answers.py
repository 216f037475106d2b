"""What proves a unit that pools: three embeddings of which the near pair is nearer, and a ranking with the right
document first. Everything else that an engine can answer with status 200 proves nothing.
"""

from __future__ import annotations

import json
import math
import random
import threading
from dataclasses import replace
from typing import Any

import pytest

from tests.serving.serve_modules import serve_answers, serve_coordinator, serve_lifecycle, serve_unit
from tests.serving.test_answers import Start, start  # noqa: F401 - a fixture

SKEW = serve_lifecycle.ClockSkew(0.0, 0.0)
NAN, INFINITE = float("nan"), float("inf")
NEAR = [[3.0, 4.0, 0.0, 0.1], [3.0, 3.0, 0.5, 0.0], [0.0, 0.2, -4.0, 3.0]]
"""Vectors of which the first two are near each other."""


def embeddings(*vectors: object, order: tuple[int, ...] = ()) -> tuple[int, Any]:
    """An answer of /v1/embeddings, as both engines give it."""
    places = order or tuple(range(len(vectors)))
    data = [{"object": "embedding", "index": place, "embedding": vectors[place]} for place in places]
    return 200, {"object": "list", "data": data, "model": "toy", "usage": {"prompt_tokens": 9, "total_tokens": 9}}


def vllm_ranking(*scores: object, order: tuple[int, ...] = (1, 0)) -> tuple[int, Any]:
    """An answer of vLLM's /v1/rerank (entrypoints/pooling/scoring/protocol.py)."""
    results = [{"index": one, "document": {"text": "d"}, "relevance_score": scores[one]} for one in order]
    return 200, {"id": "score-1", "model": "toy", "usage": {"total_tokens": 9}, "results": results}


def sglang_ranking(*scores: object, order: tuple[int, ...] = (1, 0)) -> tuple[int, Any]:
    """An answer of SGLang's /v1/rerank (entrypoints/openai/protocol.py)."""
    return 200, [{"score": scores[one], "document": "d", "index": one, "meta_info": {}} for one in order]


def asked(kind: str, **keys: object) -> Any:
    return replace(serve_unit.UnitProbe(), kind=kind, **keys)  # type: ignore[arg-type]


def judged(kind: str, answer: tuple[int, Any], dimension: int = 0) -> int:
    content = json.dumps(answer[1])
    found: int = serve_answers.judge(asked(kind), content.encode(), content, dimension)
    return found


def test_three_embeddings_with_the_near_pair_nearer_are_right() -> None:
    assert judged("embedding", embeddings(*NEAR)) == 4
    assert judged("embedding", embeddings(*NEAR), 4) == 4
    assert judged("embedding", embeddings(*NEAR, order=(2, 0, 1))) == 4, "the index counts, not the order"
    huge = [[value * 1e300 for value in vector] for vector in NEAR]
    assert judged("embedding", embeddings(*huge)) == 4, "the square of a large number is not one that is finite"
    tiny = [[value * 1e-300 for value in vector] for vector in NEAR]
    assert judged("embedding", embeddings(*tiny)) == 4
    assert judged("embedding", embeddings([1, 1, 0], [1, 1, 0], [0, 0, 1])) == 3, "whole numbers are numbers"


@pytest.mark.parametrize(
    ("vectors", "reason"),
    [
        (
            [[1.0, 2.0]] * 3,
            "of two near texts are not nearer (1.00) than each is to a third (1.00, 1.00)",
        ),
        ([NEAR[0], NEAR[2], NEAR[1]], "the embeddings of two near texts are not nearer ("),
        ([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.1]], "are not nearer (0.00) than each is to a third (-1.00, 0.10)"),
        ([NEAR[0], NEAR[1], [NAN, 0, 0, 1]], "embedding 3 of 3 has a value that is not a finite number (NaN)"),
        (
            [NEAR[0], [1, 2, 3, INFINITE], NEAR[2]],
            "embedding 2 of 3 has a value that is not a finite number (Infinity)",
        ),
        ([[None] * 4, NEAR[1], NEAR[2]], "embedding 1 of 3 has a value that is not a finite number (null)"),
        ([NEAR[0], NEAR[1], [True, 0, 0, 1]], "embedding 3 of 3 has a value that is not a finite number (true)"),
        ([NEAR[0], [0.0] * 4, NEAR[2]], "embedding 2 of 3 is all zeros"),
        ([NEAR[0], NEAR[1], NEAR[2][:3]], "the embeddings have 4, 4 and 3 numbers"),
        ([[], [], []], "no embeddings: "),
        ([NEAR[0], NEAR[1]], "no embeddings: "),
        ([*NEAR, NEAR[0]], "no embeddings: "),
        (["AACAPw==", "AACAPw==", "AACAPw=="], "no embeddings: "),
        ([[NEAR[0]], [NEAR[1]], [NEAR[2]]], "embedding 1 of 3 has a value that is not a finite number ([3.0, 4.0, "),
    ],
)
def test_wrong_vectors_prove_nothing(vectors: list[Any], reason: str) -> None:
    with pytest.raises(serve_answers.WrongAnswerError) as refused:
        judged("embedding", embeddings(*vectors))
    assert reason in str(refused.value)


def test_vectors_of_another_dimension_prove_nothing() -> None:
    with pytest.raises(serve_answers.WrongAnswerError, match=r"^the embeddings have 4 numbers, expected 1024$"):
        judged("embedding", embeddings(*NEAR), 1024)


@pytest.mark.parametrize("size", [256, 1024, 4096])
def test_vectors_of_random_numbers_prove_nothing(size: int) -> None:
    """By chance one pair in three is the nearest; it is not nearer by a tenth."""
    source = random.Random(size)  # noqa: S311 - no secret
    for _ in range(20):
        vectors = [[source.gauss(0, 1) for _ in range(size)] for _ in range(3)]
        with pytest.raises(serve_answers.WrongAnswerError, match="not nearer"):
            judged("embedding", embeddings(*vectors))


def test_vectors_that_differ_by_rounding_alone_prove_nothing() -> None:
    source = random.Random(1)  # noqa: S311 - no secret
    for _ in range(20):
        vectors = [[1.0 + source.gauss(0, 1e-3) for _ in range(1024)] for _ in range(3)]
        with pytest.raises(serve_answers.WrongAnswerError, match="not nearer"):
            judged("embedding", embeddings(*vectors))


@pytest.mark.parametrize(
    "body",
    [
        "x",
        {"data": None},
        {"data": [1, 2, 3]},
        {"data": [{"index": 0, "embedding": [1.0]}] * 3},
        {"data": [{"index": "0", "embedding": [1.0]}] * 3},
        {"data": [{"index": one} for one in range(3)]},
    ],
)
def test_a_body_without_vectors_is_not_an_embedding(body: object) -> None:
    with pytest.raises(serve_answers.WrongAnswerError, match=r"^no embeddings: "):
        judged("embedding", (200, body))


def test_a_body_that_is_not_json_is_not_an_answer() -> None:
    for kind in ("embedding", "score"):
        with pytest.raises(serve_answers.WrongAnswerError, match=r"^no (embeddings|ranking): <html>$"):
            serve_answers.judge(asked(kind), b"<html>", "<html>", 0)


@pytest.mark.parametrize("form", [vllm_ranking, sglang_ranking])
def test_a_ranking_with_the_right_document_above_is_right(form: Any) -> None:
    assert judged("score", form(0.02, 0.97)) == 0
    assert judged("score", form(-11.2, -3.1, order=(0, 1))) == 0, "scores count, not the order, and may be below 0"


@pytest.mark.parametrize("form", [vllm_ranking, sglang_ranking])
@pytest.mark.parametrize(
    ("scores", "order", "reason"),
    [
        ((0.9, 0.1), (1, 0), "the right document has the score 0.1, the wrong one 0.9"),
        ((0.5, 0.5), (1, 0), "the right document has the score 0.5, the wrong one 0.5"),
        ((NAN, NAN), (1, 0), "a score is not a finite number (NaN)"),
        ((0.1, INFINITE), (1, 0), "a score is not a finite number (Infinity)"),
        ((0.1, None), (1, 0), "a score is not a finite number (null)"),
        ((False, True), (1, 0), "a score is not a finite number ("),
        ((0.1, 0.9), (1,), "no ranking: "),
        ((0.1, 0.9), (1, 1), "no ranking: "),
        ((0.1, 0.9), (1, 0, 1), "no ranking: "),
    ],
)
def test_a_wrong_ranking_proves_nothing(form: Any, scores: Any, order: Any, reason: str) -> None:
    with pytest.raises(serve_answers.WrongAnswerError) as refused:
        judged("score", form(*scores, order=order))
    assert reason in str(refused.value)


@pytest.mark.parametrize("body", ["x", {"results": None}, {"results": [1, 2]}, [[1], [2]]])
def test_a_body_without_scores_is_not_a_ranking(body: object) -> None:
    with pytest.raises(serve_answers.WrongAnswerError, match=r"^no ranking: "):
        judged("score", (200, body))


def test_each_kind_asks_its_own_path_for_texts_that_differ() -> None:
    path, body = serve_answers.question(asked("embedding"), "toy")
    assert (path, body["model"], len(set(body["input"]))) == ("/v1/embeddings", "toy", 3)
    path, body = serve_answers.question(asked("score"), "toy")
    assert (path, body["model"], len(set(body["documents"]))) == ("/v1/rerank", "toy", 2)
    assert "Paris" in body["documents"][1], "an engine that keeps the order must not pass"
    for kind in ("chat", "completion"):
        assert serve_answers.question(asked(kind), "toy") == (
            "/v1/completions",
            {"model": "toy", "prompt": "2+2=", "max_tokens": 8, "temperature": 0},
        )


def test_what_was_proven_is_said_by_kind() -> None:
    words = serve_answers.proven_words
    assert words(asked("chat"), 0) == "a completion gave the known answer"
    assert words(asked("completion", answer=""), 0) == "a completion gave a clean text"
    assert words(asked("embedding"), 1024) == "three embeddings of 1024 numbers, the near pair nearer"
    assert words(asked("score"), 0) == "a ranking with the right document first"


def of_kind(start: Start, kind: str, answer: tuple[int, Any], **keys: Any) -> Any:  # noqa: F811
    start.engine.answers[kind] = answer
    return start.ask(kind=kind, **keys)


def test_a_start_of_a_unit_that_embeds_says_what_was_proven_and_keeps_the_dimension(start: Start) -> None:  # noqa: F811
    record = of_kind(start, "embedding", embeddings(*NEAR))
    assert (record.state, record.reason) == ("ready", "three embeddings of 4 numbers, the near pair nearer")
    assert [path for path, _ in start.engine.asked] == ["/v1/embeddings"], "neither a completion nor a chat"
    assert record.dimension == 4
    assert record.figures.keys() >= {"embedding_s"}


def test_a_start_of_a_unit_that_ranks_says_what_was_proven(start: Start) -> None:  # noqa: F811
    for answer in (vllm_ranking(0.1, 0.9), sglang_ranking(0.1, 0.9)):
        record = of_kind(start, "score", answer)
        assert (record.state, record.reason) == ("ready", "a ranking with the right document first")
    assert {path for path, _ in start.engine.asked} == {"/v1/rerank"}
    assert record.figures.keys() >= {"ranking_s"}


def test_a_unit_whose_embeddings_are_wrong_is_not_ready(start: Start) -> None:  # noqa: F811
    record = of_kind(start, "embedding", embeddings(*[NEAR[0]] * 3))
    assert (record.state, record.cause) == ("stopping", "failed")
    assert record.reason.startswith("the embeddings of two near texts are not nearer (1.00)")
    record = of_kind(start, "embedding", embeddings(*NEAR), dimension=8)
    assert (record.state, record.reason) == ("stopping", "the embeddings have 4 numbers, expected 8")


@pytest.mark.parametrize(
    ("kind", "status", "body", "remedy"),
    [
        ("chat", 404, {"detail": "Not Found"}, "a model that pools completes no text: write kind: embedding, or score"),
        ("completion", 400, {"error": "x"}, "a model that pools completes no text: write kind: embedding, or score"),
        ("embedding", 404, {"detail": "Not Found"}, "write the kind of this model: chat, completion or score"),
        ("score", 501, {"error": "x"}, "write the kind of this model: chat, completion or embedding"),
        ("score", 405, {"error": "x"}, "write the kind of this model: chat, completion or embedding"),
        ("embedding", 422, {"error": "x"}, "write the kind of this model: chat, completion or score"),
    ],
)
def test_an_engine_that_does_not_serve_the_kind_is_refused_at_its_start(
    start: Start,  # noqa: F811
    kind: str,
    status: int,
    body: object,
    remedy: str,
) -> None:
    start.engine.answers["text" if kind in ("chat", "completion") else kind] = status, body
    record = start.ask(kind=kind)
    assert record.state == "stopping"
    assert record.reason.endswith(f"HTTP status {status}: {json.dumps(body)}; {remedy}")


@pytest.mark.parametrize("status", [401, 500])
def test_a_status_that_passes_does_not_end_the_start_of_a_unit_that_pools(start: Start, status: int) -> None:  # noqa: F811
    assert of_kind(start, "embedding", (status, {"error": "later"})).state == "starting"


def serving(start: Start, kind: str, version: str = "v1", **record: object) -> Any:  # noqa: F811
    """The prober of a unit that serves, with what its record has."""
    unit = replace(start.unit, version=version, probe=replace(start.unit.probe, kind=kind))
    values: dict[str, Any] = {"desired_state": "up", "state": "ready", "generation": 1, "boots": ["b"], **record}
    lifecycle = serve_lifecycle.UnitLifecycle(
        unit, serve_lifecycle.UnitRecord("qwen", **values), lambda _: None, 0.0, lambda: 1000.0
    )
    return serve_coordinator.Prober(unit, lifecycle, threading.Lock())


@pytest.mark.parametrize(
    ("record", "misses", "kept"),
    [
        ({"dimension": 4, "dimension_of": "v1"}, 0, 4),
        ({"dimension": 8, "dimension_of": "v1"}, 1, 8),
        ({"dimension": 8, "dimension_of": "v0"}, 0, 4),
        ({}, 0, 4),
    ],
)
def test_an_embedding_has_as_many_numbers_as_the_first_one_of_the_same_files(
    start: Start,  # noqa: F811
    record: dict[str, Any],
    misses: int,
    kept: int,
) -> None:
    start.engine.answers["embedding"] = embeddings(*NEAR)
    prober = serving(start, "embedding", **record)
    prober._send_question(1, 60.0)
    assert (prober.lifecycle.misses, prober.lifecycle.record.dimension) == (misses, kept)
    if misses:
        assert prober.lifecycle.last_probe == "the embeddings have 4 numbers, expected 8"


@pytest.mark.parametrize("kind", ["embedding", "score"])
def test_a_unit_that_pools_and_begins_to_answer_wrong_is_stuck_after_two_answers(start: Start, kind: str) -> None:  # noqa: F811
    start.engine.answers |= {"embedding": embeddings(*[NEAR[0]] * 3), "score": sglang_ranking(0.5, 0.5)}
    prober = serving(start, kind)
    prober._send_question(1, 60.0)
    assert prober.lifecycle.record.state == "ready"
    prober._send_question(1, 60.0)
    noun = {"embedding": "embeddings", "score": "rankings"}[kind]
    assert prober.lifecycle.record.state == "stuck"
    assert prober.lifecycle.record.reason.startswith(f"2 {noun} in a row failed and no counter rose: the ")


def test_a_unit_that_embeds_names_embeddings_where_nothing_was_proven(start: Start) -> None:  # noqa: F811
    start.engine.answers["embedding"] = (404, {"detail": "x"})
    prober = serving(start, "embedding")
    assert prober.lifecycle.last_probe == "no embedding was tried"
    prober._send_question(1, 60.0)
    assert prober.lifecycle.probe_fault == 'no embedding can be asked for: HTTP status 404: {"detail": "x"}'
    assert prober.lifecycle.record.state == "ready", "a fault of the probe says nothing of an engine that serves"
    starting = serving(start, "embedding", state="starting").lifecycle
    starting.reported(0, serve_lifecycle.AgentReport("running", 1, "b", True, False, "", None, 6000.0, SKEW, "", "v1"))
    starting.tick(6000.0)
    assert "no correct embedding within 5400 s" in starting.record.reason


def test_a_similarity_is_that_of_the_directions() -> None:
    assert math.isclose(serve_answers.similarity([1.0, 0.0], [7.0, 0.0]), 1.0)
    assert math.isclose(serve_answers.similarity([1.0, 0.0], [0.0, 3.0]), 0.0)
    assert math.isclose(serve_answers.similarity([1.0, 1.0], [-2.0, -2.0]), -1.0)
