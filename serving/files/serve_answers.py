"""What an answer of an engine proves: a completion, a chat completion, a tool call, embeddings and a ranking. Pure.

An engine whose kernels compute nonsense answers with status 200 at full speed (reported for 4-bit weights on GB10). So
a text is judged: it must be clean, and begin with the known answer where one is declared. Six forms of garbage are
refused: an empty text, one character without end, one word without end, replacement characters, characters that are no
text, and another answer. An engine that pools answers with numbers: of embeddings the near pair must be nearer, of a
ranking the right document must be first.
"""

from __future__ import annotations

import json
import math
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from serve_unit import ServeError, UnitProbe, line

EMBEDDED = (
    "How do I reset my password?",
    "I forgot my password. How can I reset it?",
    "The ripe apples fell from the tree into the wet grass.",
)
"""Texts of which the first two mean one thing, and the third another."""
NEARER = 0.9
"""The distance of the near pair (1 - cosine) is at most this part of the distance of each to the third text.

Of vectors of random numbers one pair is always the nearest, by less than a tenth from some hundred numbers on."""
RANKED = "What is the capital of France?"
DOCUMENTS = ("A bicycle has two wheels, a saddle and a chain.", "Paris is the capital of France.")
"""A wrong document and the right one: in this order, which an engine that does not rank keeps."""
NOT_SERVED = (400, 404, 405, 422, 501)
"""HTTP status by which an engine says that it does not serve what a kind asks for. Waiting does not mend it."""

CHAT_QUESTION = "What is 2+2? Answer with the number only."
CHAT_TOKENS = 64
CHAT_WORDS = "a chat completion gave a clean text"
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
    if word := _find_repetition(whole):
        return f"it repeats {word!r} without end"
    return ""


def _find_repetition(text: str) -> str:
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
        return "" if _begins_with_answer(text, answer) else f"expected {answer!r} at its beginning"
    return "" if any(mark.isalnum() for mark in text) else "it has no letter and no digit"


def _begins_with_answer(text: str, answer: str) -> bool:
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


def question(probe: UnitProbe, model: str) -> tuple[str, dict[str, Any]]:
    """Return path and body of the request that proves a unit. Both engines take them, in each release of the table."""
    if probe.kind == "embedding":
        return "/v1/embeddings", {"model": model, "input": list(EMBEDDED)}
    if probe.kind == "score":
        return "/v1/rerank", {"model": model, "query": RANKED, "documents": list(DOCUMENTS)}
    body = {"model": model, "prompt": probe.prompt, "max_tokens": probe.max_tokens, "temperature": 0}
    return "/v1/completions", body


def proven_words(probe: UnitProbe, dimension: int) -> str:
    """Return what a right answer has proven, as a clause; `dimension`: the numbers of each embedding."""
    if probe.kind == "embedding":
        return f"three embeddings of {dimension} numbers, the near pair nearer"
    if probe.kind == "score":
        return "a ranking with the right document first"
    return "a completion gave the known answer" if probe.answer else "a completion gave a clean text"


# claim: serving.kinds
def judge(probe: UnitProbe, content: bytes, shown: str, dimension: int) -> int:
    """Raise WrongAnswerError unless the body of an answer proves the unit.

    Args:
        probe: the probe.
        content: the body.
        shown: the body in a message.
        dimension: the numbers that an embedding must have; 0: any number of them.

    Returns the numbers of each embedding, 0 where none was asked for.
    """
    if probe.kind == "embedding":
        return _judge_embeddings(content, shown, dimension)
    if probe.kind == "score":
        _judge_ranking(content, shown)
    else:
        _judge_completion(probe, content, shown)
    return 0


def not_served(probe: UnitProbe, status: int, shown: str) -> WrongAnswerError:
    """Return the error of an engine that does not serve what the kind of a unit asks for, with the remedy."""
    if probe.noun == "completion":
        right = "a model that pools completes no text: write kind: embedding, or score"
    else:
        other = "score" if probe.kind == "embedding" else "embedding"
        right = f"write the kind of this model: chat, completion or {other}"
    return WrongAnswerError(f"the {probe.noun} has HTTP status {status}: {shown}; {right}")


def _judge_embeddings(content: bytes, shown: str, dimension: int) -> int:
    """An embedding that an engine cannot write as JSON, such as NaN, is null in its answer, or NaN."""
    try:
        found = {one["index"]: one["embedding"] for one in json.loads(content)["data"]}
        vectors = [found.pop(place) for place in range(len(EMBEDDED))]
    except (ValueError, LookupError, TypeError):
        raise WrongAnswerError(f"no embeddings: {shown}") from None
    if found or not all(isinstance(vector, list) and vector for vector in vectors):
        raise WrongAnswerError(f"no embeddings: {shown}")
    for place, vector in enumerate(vectors, 1):
        name = f"embedding {place} of {len(vectors)}"
        if odd := [value for value in vector if not _is_finite(value)]:
            raise WrongAnswerError(f"{name} has a value that is not a finite number ({_shown_value(odd[0])})")
        if not any(vector):
            raise WrongAnswerError(f"{name} is all zeros")
    sizes = [len(vector) for vector in vectors]
    if len(set(sizes)) > 1:
        raise WrongAnswerError(f"the embeddings have {sizes[0]}, {sizes[1]} and {sizes[2]} numbers")
    if dimension and sizes[0] != dimension:
        raise WrongAnswerError(f"the embeddings have {sizes[0]} numbers, expected {dimension}")
    first, second, third = vectors
    near, others = similarity(first, second), (similarity(first, third), similarity(second, third))
    if not all(1 - near < NEARER * (1 - other) for other in others):
        raise WrongAnswerError(
            f"the embeddings of two near texts are not nearer ({near:.2f}) than each is to a third "
            f"({others[0]:.2f}, {others[1]:.2f})"
        )
    return sizes[0]


def similarity(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the cosine of the angle between two vectors of finite numbers that are not all zero."""
    # The square of a large number is infinite, and that of a small one is 0.
    largest, also = max(map(abs, one)), max(map(abs, other))
    left, right = [value / largest for value in one], [value / also for value in other]
    product = math.fsum(a * b for a, b in zip(left, right, strict=True))
    return product / math.sqrt(math.fsum(a * a for a in left) * math.fsum(b * b for b in right))


def _judge_ranking(content: bytes, shown: str) -> None:
    """vLLM answers with an object whose `results` have a `relevance_score`, SGLang with a list of `score`."""
    try:
        answer = json.loads(content)
        results = answer["results"] if isinstance(answer, dict) else answer
        scores = {one["index"]: one["relevance_score" if "relevance_score" in one else "score"] for one in results}
        wrong, right = scores[0], scores[1]
    except (ValueError, LookupError, TypeError):
        raise WrongAnswerError(f"no ranking: {shown}") from None
    if len(results) != len(DOCUMENTS):
        raise WrongAnswerError(f"no ranking: {shown}")
    for score in (right, wrong):
        if not _is_finite(score):
            raise WrongAnswerError(f"a score is not a finite number ({_shown_value(score)})")
    if not right > wrong:
        raise WrongAnswerError(f"the right document has the score {right:g}, the wrong one {wrong:g}")


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _shown_value(value: object) -> str:
    return line(json.dumps(value), 40)


def _judge_completion(probe: UnitProbe, content: bytes, shown: str) -> None:
    choice = _read_choice(content, shown, "completion")
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
        raise _explain_status("chat completion", status, shown)
    choice = _read_choice(content, shown, "chat completion")
    text = _read_text(choice)
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
        raise _explain_status("tool call", status, shown)
    choice = _read_choice(content, shown, "tool call")
    calls = choice.get("message", {}).get("tool_calls")
    if not calls:
        text = line(repr(_read_text(choice)), 80)
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


def _read_choice(content: bytes, shown: str, what: str) -> Mapping[str, Any]:
    try:
        choice = json.loads(content)["choices"][0]
    except (ValueError, LookupError, TypeError):
        choice = None
    if not isinstance(choice, dict) or not isinstance(choice.get("message", {}), dict):
        raise WrongAnswerError(f"no {what}: {shown}")
    return choice


def _read_text(choice: Mapping[str, Any]) -> str:
    """Return what the model says, or thinks: vLLM's name of the latter is `reasoning`, and was `reasoning_content`."""
    message = choice.get("message", {})
    found = (message.get(key) for key in ("content", "reasoning", "reasoning_content"))
    return next((text for text in found if isinstance(text, str) and text.strip()), "")


def _explain_status(what: str, status: int, shown: str) -> ServeError:
    """Return the error of an HTTP status, with cause and remedy where they are known."""
    text = f"the {what} has HTTP status {status}: {shown}"
    if status in PASSING:
        return ServeError(text)
    if "chat template" in shown.lower() or "chat_template" in shown:
        # Both engines need one since transformers 4.44 has no default.
        text += "; its model has no chat template: use a model that has one, or write kind: completion"
    elif "tool" in shown.lower() and what == "tool call":
        text += "; write tool-call-parser in args, for vLLM with enable-auto-tool-choice, or remove probe.tool"
    elif what == "chat completion":
        text += "; write kind: completion only if no client chats"
    return WrongAnswerError(text)


Ask = Callable[[str, Mapping[str, Any]], "tuple[int, bytes, str]"]
"""Sends a body to a path of the API. Returns status, body, and the body as it may stand in a message."""


def prove_start(probe: UnitProbe, model: str, ask: Ask) -> list[str]:
    """Ask for what is asked once after a start, beside what proves the unit, and return what it has proven.

    Raises ServeError with a clause that says what failed.
    """
    proven = []
    if probe.kind == "chat":
        judge_chat(*ask("/v1/chat/completions", chat_body(model)))
        proven.append(CHAT_WORDS)
    if probe.tool:
        judge_tool(*ask("/v1/chat/completions", tool_body(model)))
        proven.append("a tool call named the right function")
    return proven
