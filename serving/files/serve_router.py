#!/usr/bin/python3
"""serve_router.py SOCKET MODELS: names the place in nginx's configuration that has the model of a request.

nginx sends each request below /v1 to SOCKET. The answer is `X-Accel-Redirect: @PLACE`, with which nginx itself asks the
unit, or the list of the models, or an error. No answer of an engine passes here, so that a stop of this program ends no
request that an engine has. MODELS is a JSON file with the place of each model by its name.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import socket
import sys
import urllib.parse
from collections.abc import Mapping
from http import HTTPStatus
from pathlib import Path

LARGE = 1 << 20
"""Bytes. Larger bodies are read one at a time, so that the memory of this program is bounded by the largest of them."""
AT_ONCE = 32
"""Requests whose bodies are read at a time."""
SECONDS = 30.0
"""Time for a request. nginx has its whole body before it asks."""
LIST = "/v1/models"
ANTHROPIC = "/v1/messages"
"""Clients of this path and of those below it expect errors in the form of Anthropic."""
_ANTHROPIC_TYPES = {404: "not_found_error"}


class RequestError(Exception):
    """A request that no unit gets: its HTTP status, the code of the error, and a sentence for the client."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


def requested_model(body: bytes, content_type: str) -> str:
    """Return the name of the model that a request has. Raises RequestError."""
    name: object = None
    if content_type.lower().startswith("multipart/form-data"):
        name = form_field(body, content_type, "model")
    else:
        try:
            # Read as Latin-1 a text has one byte for each character, whatever it is. Nothing that JSON marks differs.
            given = json.loads(body.decode("latin-1"))
        except (ValueError, RecursionError):
            raise RequestError(400, "invalid_json", "the body of the request is not JSON") from None
        name = given.get("model") if isinstance(given, dict) else None
    if not isinstance(name, str) or not name:
        raise RequestError(400, "model_missing", 'the request names no model; write "model": NAME')
    with contextlib.suppress(UnicodeError):
        return name.encode("latin-1").decode()
    return name


def form_field(body: bytes, content_type: str, name: str) -> str | None:
    """Return a field of a form as Latin-1; None for a form without it."""
    boundary = re.search(r'boundary="?([^";]+)"?', content_type)
    for part in body.split(b"--" + boundary[1].encode("latin-1"))[1:] if boundary else ():
        head, _, value = part[:4096].partition(b"\r\n\r\n")
        if re.search(rf'(?<!\w)name="?{name}"?(?![\w"])', head.decode("latin-1")):
            return value.removesuffix(b"\r\n").decode("latin-1")
    return None


class Router:
    """The place of each model, and the answers that are made of them."""

    def __init__(self, models: Mapping[str, str]) -> None:
        self.models = models
        self.at_once, self.large = asyncio.Semaphore(AT_ONCE), asyncio.Lock()

    def place(self, model: str) -> str:
        """Return the place of a model. Raises RequestError."""
        if found := self.models.get(model):
            return found
        known = ", ".join(self.models) or "none"
        raise RequestError(404, "model_not_found", f"no unit serves the model {model[:200]}; models: {known}")

    def listed(self, path: str) -> object:
        """Return the list of all models, or one of them, in the form of OpenAI. Raises RequestError."""
        if path != LIST:
            name = urllib.parse.unquote(path[len(LIST) + 1 :])
            self.place(name)
            return self._describe_model(name)
        return {"object": "list", "data": [self._describe_model(name) for name in self.models]}

    def _describe_model(self, name: str) -> object:
        return {"id": name, "object": "model", "created": 0, "owned_by": "sparkrack"}

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one request, which is the only one of its connection."""
        try:
            writer.write(await asyncio.wait_for(self._answer_request(reader), SECONDS))
            await writer.drain()
        except (OSError, EOFError, ValueError, asyncio.LimitOverrunError, asyncio.TimeoutError) as error:
            print(f"serve_router: a request has no answer: {type(error).__name__}", flush=True)
        finally:
            writer.close()

    async def _answer_request(self, reader: asyncio.StreamReader) -> bytes:
        head, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        method, target, _ = head.split(" ")
        path = target.partition("?")[0]
        try:
            check_method(method, path)
            if method == "GET":
                return response(200, self.listed(path))
            length = int(headers.get("content-length", "0"))
            async with self.at_once, self.large if length > LARGE else contextlib.nullcontext():
                model = requested_model(await reader.readexactly(length), headers.get("content-type", ""))
            place = f"X-Accel-Redirect: @{self.place(model)}"
            return f"HTTP/1.1 200 OK\r\n{place}\r\nContent-Length: 0\r\n\r\n".encode()
        except RequestError as error:
            return response(error.status, error_content(path, error))


def check_method(method: str, path: str) -> None:
    """Raise RequestError for a method that a path does not take: the list of the models is read, all else is sent."""
    wanted = "GET" if path == LIST or path.startswith(f"{LIST}/") else "POST"
    if method != wanted:
        raise RequestError(405, "method_not_allowed", f"{path[:200]} takes {wanted}, not {method}")


def error_content(path: str, error: RequestError) -> object:
    """Return an error in the form that the clients of a path expect."""
    if path == ANTHROPIC or path.startswith(f"{ANTHROPIC}/"):
        kind = _ANTHROPIC_TYPES.get(error.status, "invalid_request_error")
        return {"type": "error", "error": {"type": kind, "message": str(error)}}
    found = {"message": str(error), "type": "invalid_request_error", "param": None, "code": error.code}
    return {"error": found}


def response(status: int, content: object) -> bytes:
    """Return an answer with a JSON body of one line."""
    body = f"{json.dumps(content)}\n".encode()
    head = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def report_ready() -> None:
    """Tell systemd that requests are answered from now on. Without systemd, do nothing."""
    if address := os.environ.get("NOTIFY_SOCKET", ""):
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to:
            to.sendto(b"READY=1", f"\0{address[1:]}" if address.startswith("@") else address)


async def main(place: str, models_file: str) -> None:
    """Answer until the program is stopped."""
    router = Router(json.loads(Path(models_file).read_text(encoding="utf-8")))
    server = await asyncio.start_unix_server(router.serve, place, backlog=1024)
    report_ready()
    await server.serve_forever()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: serve_router.py SOCKET MODELS")
    asyncio.run(main(*sys.argv[1:]))
