"""A recipe for a model that pools becomes a unit of that kind, and its small share is kept."""

from __future__ import annotations

import pytest

from tests.unit.serving.test_recipe_whole import LINE, SGLANG_LINE, recipe, taken


@pytest.mark.parametrize(
    ("more", "line", "model", "kind"),
    [
        ("--runner pooling", LINE, "acme/Tiny", "embedding"),
        ("--runner pooling", LINE, "acme/Tiny-Reranker", "score"),
        ("--convert embed", LINE, "acme/Tiny", "embedding"),
        ("--runner pooling --convert embed", LINE, "acme/Tiny", "embedding"),
        ("--runner pooling --convert classify", LINE, "acme/Tiny", "score"),
        ("--runner generate", LINE, "acme/Tiny", None),
        ("", LINE, "acme/Tiny", None),
        ("--is-embedding", SGLANG_LINE, "acme/Tiny", "embedding"),
        ("", LINE, "acme/Tiny-Embedding-8B", "embedding"),
    ],
)
def test_what_an_engine_is_told_to_compute_is_the_kind_of_the_unit(
    more: str, line: str, model: str, kind: str | None
) -> None:
    unit, found = taken(recipe(more, line, model=model))
    assert unit.get("kind") == kind
    assert not {"runner", "task", "is-embedding"} & set(unit["args"])
    assert any(warning.startswith(f"kind: {kind} is written, by the name") for warning in found.warnings) == (
        more == "--runner pooling" or "Embedding" in model
    )


def test_a_small_share_of_a_recipe_is_kept() -> None:
    unit, _ = taken(recipe("--runner pooling").replace("0.8", "0.05"))
    assert unit["memory"] == 0.05
