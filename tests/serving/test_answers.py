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

from tests.serving.serve_modules import serve_answers, serve_coordinator, serve_lifecycle, serve_unit
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


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it is empty"),
        ("00000", "it repeats '0' without end"),
        ("0000", ""),
        ("hmmmmm", "it repeats 'm' without end"),
        ("hmmmm", ""),
        ("handhandhand", "it repeats 'han' without end"),
        ("handhandhan", ""),
        ("hand1 hand_2 hand-3", "it repeats 'han' without end"),
        ("handhandhandbcefgijklmo", "it repeats 'hand' without end"),
        ("handhandhandbcefgijklmop", ""),  # half of all letters
        ("naxnaynaznab", ""),  # a part of two letters is not a word
        ("4 \ufffd", "it has replacement characters, which stand for bytes that are not text"),
        ("4 \x00", "it has characters that are not text"),
        ("4" + " " * 4094 + "\x00", "it has characters that are not text"),
        ("4" + " " * 4095 + "\x00", ""),
    ],
)
def test_a_text_is_garbage_from_these_lengths_on(text: str, reason: str) -> None:
    assert serve_answers.garbage(text) == reason


class Engine(BaseHTTPRequestHandler):
    """Answers a path with what `answers` has for it: a status and a body; a list is used up."""

    answers: dict[str, Any]
    asked: list[tuple[str, Any]]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        kinds = {"tools": "tool", "messages": "chat", "prompt": "text", "input": "embedding", "documents": "score"}
        kind = next(kind for key, kind in kinds.items() if key in body)
        self.asked.append((self.path, body))
        status, content = self.answers[kind]
        text = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        pass


def completion(text: str, finish_reason: str = "stop") -> tuple[int, Any]:
    return 200, {"choices": [{"text": text, "finish_reason": finish_reason}]}


def said(finish_reason: str = "stop", **message: object) -> tuple[int, Any]:
    return 200, {"choices": [{"message": {"role": "assistant", **message}, "finish_reason": finish_reason}]}


def called(name: str, arguments: str | None) -> tuple[int, Any]:
    return said(content=None, tool_calls=[{"type": "function", "function": {"name": name, "arguments": arguments}}])


class Start:
    """A unit of one rank that starts on an engine, with the coordinator's own prober."""

    def __init__(self, unit: Any, engine: Any = None) -> None:
        self.unit, self.engine = unit, engine

    def ask(self, **probe: object) -> Any:
        """The record of a start after a rank runs and two tries of the prober, or one that is enough."""
        unit = replace(self.unit, probe=replace(self.unit.probe, **probe))
        record = serve_lifecycle.UnitRecord("qwen", desired_state="up", state="starting", generation=1, boots=["b"])
        lifecycle = serve_lifecycle.UnitLifecycle(unit, record, lambda _: None, 0.0, lambda: 1000.0)
        skew = serve_lifecycle.ClockSkew(0.0, 0.0)
        runs = serve_lifecycle.AgentReport("running", 1, "b", True, False, "", None, 1.0, skew, "", "")
        lifecycle.reports[0] = runs
        prober = serve_coordinator.Prober(unit, lifecycle, threading.Lock())
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
    changes = {"ranks": MINIMAL["ranks"][:1], "api": {"address": "127.0.0.1", "port": server.server_address[1]}}
    yield Start(serve_unit.load_unit(written(tmp_path, MINIMAL | changes)), engine)
    server.shutdown()
    server.server_close()


def test_what_was_proven_is_said_and_nothing_else(start: Start) -> None:
    assert start.ask().reason == "a completion gave the known answer, a chat completion gave a clean text"
    assert [path for path, _ in start.engine.asked] == ["/v1/completions", "/v1/chat/completions"]
    assert start.ask(kind="completion").reason == "a completion gave the known answer"
    assert start.ask(kind="completion", answer="").reason == "a completion gave a clean text"
    record = start.ask(answer="", tool=True)
    assert record.state == "ready"
    assert record.reason == (
        "a completion gave a clean text, a chat completion gave a clean text, a tool call named the right function"
    )


def test_the_bodies_that_are_asked_are_those_of_the_api(start: Start) -> None:
    start.ask(tool=True)
    bodies = dict(zip(("text", "chat", "tool"), start.engine.asked, strict=True))
    assert bodies["text"] == (
        "/v1/completions",
        {"model": "qwen3", "prompt": "2+2=", "max_tokens": 8, "temperature": 0},
    )
    question = "What is 2+2? Answer with the number only."
    assert bodies["chat"] == (
        "/v1/chat/completions",
        {"model": "qwen3", "messages": [{"role": "user", "content": question}], "max_tokens": 64, "temperature": 0},
    )
    path, body = bodies["tool"]
    assert path == "/v1/chat/completions"
    assert body == {
        "model": "qwen3",
        "messages": [{"role": "user", "content": "Call the function sparkrack_add to add 2 and 2."}],
        "tools": [
            {
                "type": "function",
                "function": {
                    "name": "sparkrack_add",
                    "description": "Add two whole numbers.",
                    "parameters": {
                        "type": "object",
                        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
                        "required": ["a", "b"],
                    },
                },
            }
        ],
        "tool_choice": "auto",
        "max_tokens": 1024,
        "temperature": 0,
    }


@pytest.mark.parametrize(("kind", "half"), [("text", completion), ("chat", lambda *of: said(of[1], content=of[0]))])
def test_half_a_character_at_the_end_is_right_only_where_the_engine_says_that_the_limit_cut_it(
    start: Start, kind: str, half: Any
) -> None:
    start.engine.answers[kind] = half("4 \ufffd", "length")
    assert start.ask().state == "ready"
    start.engine.answers[kind] = half("4 \ufffd", "stop")
    assert start.ask().state == "stopping"


def test_the_answer_is_shown_by_its_first_80_characters(start: Start) -> None:
    start.engine.answers["text"] = completion("abcd efgh " * 30)
    reason = start.ask().reason
    start.engine.answers["chat"], start.engine.answers["text"] = said(content="hand " * 60), completion("4")
    shown = ("'" + "abcd efgh " * 30)[:77]
    assert reason == f"the answer is {shown}..., it repeats 'abcde' without end"
    shown = ("'" + "hand " * 60)[:77]
    assert start.ask().reason == f"the chat completion is {shown}...: it repeats 'han' without end"


@pytest.mark.parametrize(
    "body",
    [
        {"choices": []},
        {"choices": [{"message": 5, "text": "4"}]},
        {"choices": [{"text": 4}]},
        {"choices": [{}]},
        "4",
    ],
)
def test_a_body_without_a_text_is_not_a_completion(start: Start, body: object) -> None:
    start.engine.answers["text"] = (200, body)
    record = start.ask()
    assert (record.state, record.reason) == ("stopping", f"no completion: {json.dumps(body)}")


@pytest.mark.parametrize("text", ["", "lockhandlehandlehandlehandle"])
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
            "; its model has no chat template: use a model that has one, or write kind: completion",
        ),
        ((400, {"error": {"message": "openai_harmony.HarmonyError: no vocab"}}), "write kind: completion only if no"),
        ((404, {"detail": "Not Found"}), "the chat completion has HTTP status 404"),
        (said(content=""), "the chat completion is '': it is empty"),
        (said(content="lockhandlehandlehandlehandle"), "repeats 'han"),
        ((400, {"error": {"message": "tool_choice"}}), "write kind: completion only if no client chats"),
        ((400, {"error": {"message": "no chat_template"}}), "; its model has no chat template: "),
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
    for content in (None, " \n"):
        start.engine.answers["chat"] = said(content=content, **{key: "The user asks for 2+2."})
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
        (called("sparkrack_add", '{"b": 2}'), "expected sparkrack_add with a and b"),
        (called("sparkrack_add", None), "expected sparkrack_add with a and b"),
        (said(content="4", tool_calls=[None]), "the tool call is [null], expected sparkrack_add with a and b"),
        ((200, {"object": "error"}), 'no tool call: {"object": "error"}'),
        ((500, "x"), 'the tool call has HTTP status 500: "x"'),
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
    asked_for = answer[0] == 400
    assert ("remove probe.tool" in record.reason) == asked_for
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
