"""What an answer of an engine proves: garbage in six forms proves nothing, and neither do chat and tools that fail."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.serving.serve_modules import serve_answers, serve_keeper, serve_lifecycle, serve_unit
from tests.serving.test_unit_file import MINIMAL, written

TEMPLATE = (
    "As of transformers v4.44, default chat template is no longer allowed, so you must provide a chat template if the "
    "tokenizer does not define one."
)
"""vLLM's answer with HTTP status 400 (entrypoints/chat_utils.py)."""
GARBAGE = {
    "empty": ("", "   ", "\n\n"),
    "one character": ("!!!!!!!!", "4!!!!!!!", "4 的的的的的的", "....", "4 444444"),
    "one word": (
        "multmultimultimultmulti||multi",
        "lockhandlehandlehandlehandle",
        "4 handlehandlehandlehandle",
        "4, hand hand hand hand hand",
    ),
    "replacement characters": ("4 \ufffd\ufffd\ufffd", "\ufffd", "4 \ufffdx"),
    "no word": ("?!", "...", "**"),
    "no text": ("4\x00\x01", "4 \x1b[31m", "4 \ue000", "4\u0378", "4 \ud800"),
    "another answer": ("5", "42", "44", "14", "4ever", "4_", "4.5", "4,25", "the answer is 4"),
}
RIGHT = (
    *("4", " 4", "\n4", "4\n", "4.", "4. 3+3=6", "4, as is 1+3=", "**4**", "$4$", '"4"', "(4)", "4是", "4\n\n\n\n\n\n"),
    *("4 = 4 = 4", "4.00000000", "4\n--------", "4 ______ 2", "4 😀"),
)


@pytest.mark.parametrize(("form", "text"), [(form, text) for form, texts in GARBAGE.items() for text in texts])
def test_garbage_is_not_a_right_answer(form: str, text: str) -> None:
    assert serve_answers.fault(text, "4"), form


@pytest.mark.parametrize("text", RIGHT)
def test_a_clean_text_that_begins_with_the_answer_is_right(text: str) -> None:
    assert serve_answers.fault(text, "4") == ""


@pytest.mark.parametrize("form", [form for form in GARBAGE if form != "another answer"])
def test_garbage_is_not_clean_where_no_answer_is_known(form: str) -> None:
    assert all(serve_answers.fault(text, "") for text in GARBAGE[form] if text != "4 444444")


@pytest.mark.parametrize(
    "text",
    [
        "five",
        "The capital of France is Paris.",
        "no, no, no, never",
        "東京は日本の首都です",
        "int main() {\n\treturn 0;\n}",
    ],
)
def test_a_clean_text_is_right_where_no_answer_is_known(text: str) -> None:
    assert serve_answers.fault(text, "") == ""


def test_half_a_character_is_clean_only_where_the_limit_of_tokens_cut_it() -> None:
    assert serve_answers.garbage("4 \ufffd", cut=True) == ""
    assert serve_answers.garbage("4 \ufffd")
    assert serve_answers.garbage("4 \ufffd\ufffd", cut=True)


class Engine(BaseHTTPRequestHandler):
    """Answers a path with what `answers` has for it: a status and a body; a list is used up."""

    answers: dict[str, Any]
    asked: list[tuple[str, Any]]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        kind = "tool" if "tools" in body else "chat" if "messages" in body else "text"
        self.asked.append((self.path, body))
        status, content = self.answers[kind]
        text = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        pass


def completion(text: str) -> tuple[int, Any]:
    return 200, {"choices": [{"text": text, "finish_reason": "stop"}]}


def said(**message: object) -> tuple[int, Any]:
    return 200, {"choices": [{"message": {"role": "assistant", **message}, "finish_reason": "stop"}]}


def called(name: str, arguments: str) -> tuple[int, Any]:
    return said(content=None, tool_calls=[{"type": "function", "function": {"name": name, "arguments": arguments}}])


class Start:
    """A unit of one rank that starts on an engine, with the keeper's own prober."""

    def __init__(self, folder: Path, engine: type[Engine], port: int) -> None:
        changes = {"ranks": MINIMAL["ranks"][:1], "api": {"address": "127.0.0.1", "port": port}}
        self.unit = serve_unit.load_unit(written(folder, MINIMAL | changes))
        self.engine = engine

    def ask(self, **probe: object) -> Any:
        """The record of a start after a rank runs and two tries of the prober, or one that is enough."""
        unit = replace(self.unit, probe=replace(self.unit.probe, **probe))  # type: ignore[arg-type]
        record = serve_lifecycle.UnitRecord("qwen", wish="up", state="starting", generation=1, boots=["b"])
        lifecycle = serve_lifecycle.UnitLifecycle(unit, record, lambda _: None, 0.0, lambda: 1000.0)
        skew = serve_lifecycle.ClockSkew(0.0, 0.0)
        runs = serve_lifecycle.TetherReport("running", 1, "b", True, False, "", None, 1.0, skew, "", "")
        lifecycle.reports[0] = runs
        prober = serve_keeper.Prober(unit, lifecycle, threading.Lock())
        prober._prove_start(1)
        if record.state == "starting":
            prober._prove_start(1)
        self.tried = lifecycle.last_probe
        return record


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    answers = {"text": completion("4"), "chat": said(content="4"), "tool": called("sparkrack_add", '{"a": 2, "b": 2}')}
    engine = type("OwnEngine", (Engine,), {"answers": answers, "asked": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), engine)
    threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
    yield Start(tmp_path, engine, server.server_address[1])
    server.shutdown()
    server.server_close()


def test_what_was_proven_is_said_and_nothing_else(start: Start) -> None:
    assert start.ask().reason == "a completion gave the known answer, a chat completion gave a clean text"
    assert [path for path, _ in start.engine.asked] == ["/v1/completions", "/v1/chat/completions"]
    assert start.ask(chat=False).reason == "a completion gave the known answer"
    assert start.ask(chat=False, answer="").reason == "a completion gave a clean text"
    record = start.ask(answer="", tool=True)
    assert record.state == "ready"
    assert record.reason == (
        "a completion gave a clean text, a chat completion gave a clean text, a tool call named the right function"
    )


@pytest.mark.parametrize(
    "text", ["", "multmultimultimultmulti||multi", "lockhandlehandlehandlehandle", "?!", "!!!!!!!!"]
)
def test_a_unit_that_starts_with_garbage_is_not_ready(start: Start, text: str) -> None:
    start.engine.answers["text"] = completion(text)
    record = start.ask()
    assert (record.state, record.cause) == ("stopping", "failed")
    assert record.reason.startswith(f"the answer is {text!r}, ")


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (
            (400, {"error": {"message": TEMPLATE}}),
            "; its model has no chat template: use a model that has one, or write probe.chat: false",
        ),
        ((400, {"error": {"message": "openai_harmony.HarmonyError: no vocab"}}), "write probe.chat: false only if no"),
        ((404, {"detail": "Not Found"}), "the chat completion has HTTP status 404"),
        (said(content=""), "the chat completion is '': it is empty"),
        (said(content=None), "the chat completion is '': it is empty"),
        (said(content="lockhandlehandlehandlehandle"), "repeats 'han"),
        ((200, {"object": "error"}), "no chat completion: "),
    ],
)
def test_a_unit_whose_chat_fails_is_not_ready_and_the_reason_says_why(
    start: Start, answer: tuple[int, Any], reason: str
) -> None:
    start.engine.answers["chat"] = answer
    record = start.ask()
    assert record.state == "stopping"
    assert reason in record.reason


@pytest.mark.parametrize("key", ["reasoning", "reasoning_content"])
def test_a_model_that_still_thinks_at_the_limit_of_tokens_chats(start: Start, key: str) -> None:
    start.engine.answers["chat"] = said(content=None, **{key: "The user asks for 2+2."})
    assert start.ask().state == "ready"


@pytest.mark.parametrize("status", [401, 429, 503])
def test_a_refusal_that_passes_does_not_end_a_start(start: Start, status: int) -> None:
    start.engine.answers["chat"] = (status, {"error": "later"})
    assert start.ask().state == "starting"
    assert f"HTTP status {status}" in start.tried


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (said(content='<tool_call>{"name": "sparkrack_add"}'), "the tool call came as text: '<tool_call>"),
        (called("add", '{"a": 2, "b": 2}'), "expected sparkrack_add with a and b"),
        (called("sparkrack_add", '{"a": 2, "b"'), "expected sparkrack_add with a and b"),
        (called("sparkrack_add", '{"a": 2}'), "expected sparkrack_add with a and b"),
        (
            (
                400,
                {"message": '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'},
            ),
            "write tool-call-parser in args, for vLLM with enable-auto-tool-choice, or remove probe.tool",
        ),
    ],
)
def test_a_unit_whose_tool_call_fails_is_not_ready(start: Start, answer: tuple[int, Any], reason: str) -> None:
    start.engine.answers["tool"] = answer
    record = start.ask(tool=True)
    assert record.state == "stopping"
    assert reason in record.reason
    assert start.ask().state == "ready", "no tool call is asked for without probe.tool"


def test_one_wrong_answer_does_not_end_a_start(start: Start) -> None:
    answers = [completion("?!"), completion("4")]
    kinds = start.engine.answers
    start.engine.answers = Used(kinds, answers)
    assert start.ask().state == "ready"


class Used(dict[str, Any]):
    """Answers of an engine, of which those of completions are used up."""

    def __init__(self, others: dict[str, Any], texts: list[Any]) -> None:
        super().__init__(others)
        self.texts = texts

    def __getitem__(self, kind: str) -> Any:
        return self.texts.pop(0) if kind == "text" else super().__getitem__(kind)
