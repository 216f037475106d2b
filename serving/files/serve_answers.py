"""What an answer of an engine proves: the text of a completion, of a chat completion, and a tool call. Pure.

An engine whose kernels compute nonsense answers with status 200 at full speed (reported for 4-bit weights on GB10). So
a text is judged: it must be clean, and begin with the known answer where one is declared. Six forms of garbage are
refused: an empty text, one character without end, one word without end, replacement characters, characters that are no
text, and another answer.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Mapping
from typing import Any

from serve_unit import CompletionProbe, ServeError, line

CHAT_QUESTION = "What is 2+2? Answer with the number only."
CHAT_TOKENS = 64
TOOL = "sparkrack_add"
TOOL_QUESTION = f"Call the function {TOOL} to add 2 and 2."
TOOL_TOKENS = 1024
"""A model that thinks does so before it calls."""
CALLED_TOOL = {
    "type": "function",
    "function": {
        "name": TOOL,
        "description": "Add two whole numbers.",
        "parameters": {
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
        },
    },
}
PASSING = (401, 403, 408, 425, 429, 502, 503, 504)
"""HTTP status of a refusal that says nothing of the model: a key, a full queue, a proxy. It is asked again."""
LONGEST = 4096
"""Characters of a text that are judged."""
_RULERS = frozenset("-=_*#.~0")
"""Characters that a right text has many of in a row: lines, places to fill in, decimals."""
_LEADING = " \t\r\n*_$`\"'("
"""What may stand before the known answer: spaces, and marks of emphasis or quotation."""


class WrongAnswerError(ServeError):
    """The engine answered, and not as it must. What it computed for that does not count as progress."""


def garbage(text: str, cut: bool = False) -> str:
    """Return why a text is not clean, as a clause; nothing for a clean one.

    Args:
        text: what the engine generated.
        cut: whether the limit of tokens ended it. Then its last character may be half of one.
    """
    text = text[:LONGEST]
    if not text.strip():
        return "it is empty"
    whole = text[:-1] if cut and text.endswith("\ufffd") else text
    if "\ufffd" in whole:
        return "it has replacement characters, which stand for bytes that are not text"
    if any(unicodedata.category(mark) in ("Cc", "Cn", "Co", "Cs") and mark not in "\t\r\n" for mark in whole):
        return "it has characters that are not text"
    marks = "".join(whole.split())
    if len(marks) >= 5 and len(set(marks)) == 1:
        return f"it repeats {marks[0]!r} without end"
    for run in re.finditer(r"(.)\1{4,}", marks):
        if run[1] not in _RULERS:
            return f"it repeats {run[1]!r} without end"
    if word := _repeated(whole):
        return f"it repeats {word!r} without end"
    return ""


def _repeated(text: str) -> str:
    """Return a part of a word that stands three times or more and is more than half of all letters; else nothing."""
    letters = re.sub(r"[\W\d_]+", "", text)
    if len(letters) < 12:
        return ""
    for size in range(3, 25):
        for start in range(len(letters) - 3 * size + 1):
            part = letters[start : start + size]
            count = letters.count(part)
            if count >= 3 and count * size * 2 > len(letters):
                return part
    return ""


# claim: serving.known-answer
def fault(text: str, answer: str, cut: bool = False) -> str:
    """Return why a text is not right, as a clause; nothing for a right one.

    Args:
        text: what the engine generated.
        answer: what it must begin with, as a word of its own; empty: any clean text is right.
        cut: whether the limit of tokens ended it.
    """
    if reason := garbage(text, cut):
        return reason
    if answer:
        return "" if _begins(text, answer) else f"expected {answer!r} at its beginning"
    return "" if any(mark.isalnum() for mark in text) else "it has no letter and no digit"


def _begins(text: str, answer: str) -> bool:
    for begun in (text, text.lstrip(_LEADING)):
        if begun.startswith(answer):
            rest = begun[len(answer) :]
            if not rest or not answer[-1].isalnum():
                return True
            # 42 and 4ever are other words than 4, and 4.5 another number. Letters without case need no space.
            joined = unicodedata.category(rest[0]) in ("Lu", "Ll", "Lt", "Lm", "Nd") or rest[0] == "_"
            return not joined and not (answer[-1].isdigit() and re.match(r"[.,]\d*[1-9]", rest))
    return False


# Questions and what their answers prove


def completion_words(probe: CompletionProbe) -> str:
    """Return what a right completion has proven, as a clause."""
    return "a completion gave the known answer" if probe.answer else "a completion gave a clean text"


def judge_completion(probe: CompletionProbe, content: bytes, shown: str) -> None:
    """Raise WrongAnswerError unless the body of a completion has a right text; `shown`: the body in a message."""
    choice = _choice(content, shown, "completion")
    text = choice.get("text")
    if not isinstance(text, str):
        raise WrongAnswerError(f"no completion: {shown}")
    if reason := fault(text, probe.answer, choice.get("finish_reason") == "length"):
        raise WrongAnswerError(f"the answer is {line(repr(text), 80)}, {reason}")


def chat_body(model: str) -> dict[str, Any]:
    """Return the chat completion that is asked for after a start."""
    return {
        "model": model,
        "messages": [{"role": "user", "content": CHAT_QUESTION}],
        "max_tokens": CHAT_TOKENS,
        "temperature": 0,
    }


def judge_chat(status: int, content: bytes, shown: str) -> None:
    """Raise ServeError unless a chat completion has a clean text: what the model says, or thinks.

    WrongAnswerError where another try repeats it.
    """
    if status != 200:
        raise _refused("chat completion", status, shown)
    choice = _choice(content, shown, "chat completion")
    text = _text(choice)
    if reason := fault(text, "", choice.get("finish_reason") == "length"):
        raise WrongAnswerError(f"the chat completion is {line(repr(text), 80)}: {reason}")


def tool_body(model: str) -> dict[str, Any]:
    """Return the chat completion that must come back as a tool call."""
    return {
        "model": model,
        "messages": [{"role": "user", "content": TOOL_QUESTION}],
        "tools": [CALLED_TOOL],
        "tool_choice": "auto",
        "max_tokens": TOOL_TOKENS,
        "temperature": 0,
    }


def judge_tool(status: int, content: bytes, shown: str) -> None:
    """Raise ServeError unless a chat completion has a call of the tool, with its arguments."""
    if status != 200:
        raise _refused("tool call", status, shown)
    choice = _choice(content, shown, "tool call")
    calls = choice.get("message", {}).get("tool_calls")
    if not calls:
        text = line(repr(_text(choice)), 80)
        raise WrongAnswerError(
            f"the tool call came as text: {text}; write the tool-call-parser of this model in args, and its "
            "reasoning-parser if it thinks"
        )
    try:
        called = calls[0]["function"]
        name, arguments = called["name"], json.loads(called["arguments"])
    except (ValueError, LookupError, TypeError):
        name, arguments = None, None
    if name != TOOL or not isinstance(arguments, dict) or not {"a", "b"} <= arguments.keys():
        raise WrongAnswerError(
            f"the tool call is {line(json.dumps(calls), 120)}, expected {TOOL} with a and b; write another "
            "tool-call-parser in args"
        )


def _choice(content: bytes, shown: str, what: str) -> Mapping[str, Any]:
    try:
        choice = json.loads(content)["choices"][0]
    except (ValueError, LookupError, TypeError):
        choice = None
    if not isinstance(choice, dict) or not isinstance(choice.get("message", {}), dict):
        raise WrongAnswerError(f"no {what}: {shown}")
    return choice


def _text(choice: Mapping[str, Any]) -> str:
    """Return what the model says, or thinks: vLLM's name of the latter is `reasoning`, and was `reasoning_content`."""
    message = choice.get("message", {})
    found = (message.get(key) for key in ("content", "reasoning", "reasoning_content"))
    return next((text for text in found if isinstance(text, str) and text.strip()), "")


def _refused(what: str, status: int, shown: str) -> ServeError:
    """Return the error of an HTTP status, with cause and remedy where they are known."""
    text = f"the {what} has HTTP status {status}: {shown}"
    if status in PASSING:
        return ServeError(text)
    if "chat template" in shown.lower() or "chat_template" in shown:
        # Both engines need one since transformers 4.44 has no default.
        text += "; its model has no chat template: use a model that has one, or write probe.chat: false"
    elif "tool" in shown.lower() and what == "tool call":
        text += "; write tool-call-parser in args, for vLLM with enable-auto-tool-choice, or remove probe.tool"
    elif what == "chat completion":
        text += "; write probe.chat: false only if no client chats"
    return WrongAnswerError(text)


Ask = Callable[[str, Mapping[str, Any]], "tuple[int, bytes, str]"]
"""Sends a body to a path of the API. Returns status, body, and the body as it may stand in a message."""


def prove_start(probe: CompletionProbe, model: str, ask: Ask) -> list[str]:
    """Ask for what is asked once after a start, beside the completion, and return what it has proven.

    Raises ServeError with a clause that says what failed.
    """
    proven = []
    if probe.chat:
        judge_chat(*ask("/v1/chat/completions", chat_body(model)))
        proven.append("a chat completion gave a clean text")
    if probe.tool:
        judge_tool(*ask("/v1/chat/completions", tool_body(model)))
        proven.append("a tool call named the right function")
    return proven
