"""The HTTP API of the stand-in, as far as a probe and a client need it."""

from __future__ import annotations

import json
import time
from http.server import BaseHTTPRequestHandler
from typing import Any

from lab.engine import faults, tuned_setting
from lab.engine.engine_process import StandInEngine
from lab.engine.pooled_answers import embedding, ranking

CHAT_ANSWER = "A stand-in for an engine, in a virtual rack."
ANSWERS = {"2+2=": "4, as is 1+3=", "Who are you?": CHAT_ANSWER}
NOT_EMBEDDING = (
    "This model does not appear to be an embedding model by default. Please add `--is-embedding` when launching the "
    "server or try another model."
)
"""SGLang's words (managers/tokenizer_manager.py), with HTTP status 400."""
NO_TEMPLATE = (
    "As of transformers v4.44, default chat template is no longer allowed, so you must provide a chat template if the "
    "tokenizer does not define one."
)
"""vLLM's words (entrypoints/chat_utils.py), with HTTP status 400."""


class StandInApi(BaseHTTPRequestHandler):
    """The OpenAI API of the head, as far as a probe needs it."""

    engine: StandInEngine

    def do_GET(self) -> None:
        if self.path == "/health":
            self._send_answer(200, {})
        elif self.path == "/metrics":
            engine = self.engine.given.engine
            there = engine == "vllm" or self.engine.given.enable_metrics
            found = self.engine.metrics().items()
            lines = (f'{engine}:{name}{{engine="0"}} {float(value)}\n' for name, value in found)
            text = "# TYPE x counter\n" + "".join(lines)
            self._send_answer(200 if there else 404, text if there else {"detail": "Not Found"})
        elif self._is_allowed():
            self._send_answer(200, {"object": "list", "data": [{"id": self.engine.given.served_model_name}]})

    def do_POST(self) -> None:
        self.log_message(" %s ", self.path)  # when it begins
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self._is_allowed():
            return
        if self.engine.given.engine == "vllm" and body["model"] != self.engine.given.served_model_name:
            self._send_answer(404, {"error": "no such model"})
            return
        if faults.is_injected("status"):
            self._send_answer(int(faults.fault_content("status")), {"error": "the fault `status`"})
            return
        while self.path == "/v1/completions" and faults.is_injected("completions"):
            time.sleep(0.05)
        if self.path in ("/v1/embeddings", "/v1/rerank"):
            self._answer_pooled(body)
            return
        if self.engine.given.pools:
            self._send_answer(404, {"detail": "Not Found"})
            return
        chat = self.path == "/v1/chat/completions"
        if chat and faults.is_injected("no-template"):
            self._send_answer(400, {"error": {"message": NO_TEMPLATE, "type": "BadRequestError", "code": 400}})
            return
        if not self._take_step():
            self._send_answer(500, {"error": "EngineDeadError"})
        elif chat:
            asked = [message["content"] for message in body.get("messages", ())]
            message: dict[str, Any] = {
                "role": "assistant",
                "content": self._answered_text(ANSWERS.get("".join(asked[-1:]), "a")),
            }
            if "tools" in body and self.engine.given.tool_call_parser:
                function = {"name": body["tools"][0]["function"]["name"], "arguments": '{"a": 2, "b": 2}'}
                message = {
                    "role": "assistant",
                    "content": None,
                    "tool_calls": [{"type": "function", "function": function}],
                }
            self._send_answer(200, {**self._model_origin(), "choices": [{"message": message}]})
        else:
            text = "?!" if faults.is_injected("wrong") else self._answered_text(ANSWERS.get(body["prompt"], "a"))
            if body.get("stream"):
                self._send_stream(text.split(","))
                return
            answer = {"choices": [{"text": text}], "usage": {"completion_tokens": 1}}
            self._send_answer(200, {**self._model_origin(), **answer})

    def _answer_pooled(self, body: dict[str, Any]) -> None:
        """Answer a request for embeddings or a ranking."""
        given, ranks = self.engine.given, self.path == "/v1/rerank"
        if not given.pools and given.engine == "vllm":
            self._send_answer(404, {"detail": "Not Found"})
        elif not given.pools and not ranks:
            self._send_answer(400, {"object": "error", "message": NOT_EMBEDDING, "code": 400})
        elif not self._take_step():
            self._send_answer(500, {"error": "EngineDeadError"})
        elif ranks:
            self._send_answer(200, ranking(given, body["query"], body["documents"]))
        else:
            vectors = (embedding(given, place, text) for place, text in enumerate(body["input"]))
            data = [{"object": "embedding", "index": place, "embedding": one} for place, one in enumerate(vectors)]
            answer = {"object": "list", "data": data, "model": body["model"], "usage": {"prompt_tokens": 9}}
            self._send_answer(200, {**self._model_origin(), **answer})

    def _model_origin(self) -> dict[str, str]:
        """What an answer has of the model that it is from, whatever name the client gave."""
        return {"system_fingerprint": self.engine.given.model}

    def _answered_text(self, right: str) -> str:
        return faults.fault_content("garbage") if faults.is_injected("garbage") else tuned_setting.answered_text(right)

    def _send_stream(self, parts: list[str]) -> None:
        """Send an answer as server-sent events, a part each."""
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.end_headers()
        for number, part in enumerate(parts):
            self.wfile.write(f"data: {json.dumps({'choices': [{'index': 0, 'text': part}]})}\n\n".encode())
            while not number and faults.is_injected("slow"):
                time.sleep(0.05)
        self.wfile.write(b"data: [DONE]\n\n")

    def _take_step(self) -> bool:
        with self.engine.counting:
            self.engine.requests += 1
        try:
            return self.engine.step()
        finally:
            with self.engine.counting:
                self.engine.requests -= 1

    def _is_allowed(self) -> bool:
        key = self.engine.key
        if key and self.headers["Authorization"] != f"Bearer {key}":
            # Some proxies answer so.
            self._send_answer(401, {"error": f"Incorrect API key: {self.headers['Authorization']}"})
            return False
        return True

    def _send_answer(self, status: int, content: Any) -> None:
        text = content if isinstance(content, str) else json.dumps(content)
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())


class DummyApi(BaseHTTPRequestHandler):
    """What SGLang answers on a node that is not the head."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()
