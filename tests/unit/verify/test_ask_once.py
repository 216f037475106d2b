"""What all sessions of a verification share is asked by one of them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from core.verify.plugin import AskOnce


def test_sessions_that_begin_at_once_ask_once(tmp_path: Path) -> None:
    asked: list[int] = []

    def ask() -> dict[str, int]:
        asked.append(1)
        return {"spark1": len(asked)}

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(lambda _: AskOnce(tmp_path)("preflight", ask), range(8)))
    assert answers == [{"spark1": 1}] * 8
    assert asked == [1]


def test_two_names_are_two_answers(tmp_path: Path) -> None:
    once = AskOnce(tmp_path)
    assert [once(name, name.upper) for name in ("a", "b", "a")] == ["A", "B", "A"]


def test_an_exception_is_not_kept(tmp_path: Path) -> None:
    def fails() -> str:
        raise OSError("the connection ended")

    with pytest.raises(OSError, match="the connection ended"):
        AskOnce(tmp_path)("preflight", fails)
    assert AskOnce(tmp_path)("preflight", lambda: "answer") == "answer"


def test_without_a_folder_each_session_asks() -> None:
    asked: list[int] = []
    for _ in range(2):
        AskOnce(None)("preflight", lambda: asked.append(1))
    assert asked == [1, 1]
