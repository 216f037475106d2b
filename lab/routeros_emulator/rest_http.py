"""The part of HTTP/1.1 that REST needs: one request after another on a connection, with limited sizes and times."""

from __future__ import annotations

import asyncio
import base64
import binascii
import json
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import parse_qsl, unquote, urlsplit

HEAD_LIMIT = 16 * 1024
BODY_LIMIT = 1024 * 1024
#: How long (s) a kept-alive connection may be idle, and a request may take to arrive once it began.
IDLE_SECONDS = 60.0
ARRIVAL_SECONDS = 20.0


class BadRequestError(Exception):
    """The input is not a valid request; the connection ends with this status."""

    def __init__(self, status: HTTPStatus, detail: str) -> None:
        super().__init__(detail)
        self.status = status


@dataclass(frozen=True)
class HttpRequest:
    """One request. ``path`` is decoded segment by segment; ``credentials`` are Basic's user and password."""

    method: str
    path: tuple[str, ...]
    query: tuple[tuple[str, str], ...]
    body: bytes
    credentials: tuple[str, str] | None
    keep: bool

    def __repr__(self) -> str:
        return f"Request({self.method} /{'/'.join(self.path)})"


async def read_request(reader: asyncio.StreamReader) -> HttpRequest | None:
    """Read one request; None when the peer is done. Raises BadRequestError or OSError."""
    try:
        async with asyncio.timeout(IDLE_SECONDS):
            first = await reader.read(1)
        if not first:
            return None
        async with asyncio.timeout(ARRIVAL_SECONDS):
            head = first + await reader.readuntil(b"\r\n\r\n")
            return await _parse_request(head, reader)
    except TimeoutError:
        return None
    except asyncio.IncompleteReadError:
        return None
    except asyncio.LimitOverrunError:
        raise BadRequestError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "request head too large") from None


async def _parse_request(head: bytes, reader: asyncio.StreamReader) -> HttpRequest:
    if len(head) > HEAD_LIMIT:
        raise BadRequestError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, "request head too large")
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or words[2] not in ("HTTP/1.1", "HTTP/1.0"):
        raise BadRequestError(HTTPStatus.BAD_REQUEST, "not an HTTP/1 request")
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:])}
    if "transfer-encoding" in headers:
        raise BadRequestError(HTTPStatus.LENGTH_REQUIRED, "no transfer encoding is understood")
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdecimal()):
        raise BadRequestError(HTTPStatus.BAD_REQUEST, "bad Content-Length")
    if int(length) > BODY_LIMIT:
        raise BadRequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "request body too large")
    body = await reader.readexactly(int(length))
    connection = headers.get("connection", "").lower()
    keep = connection == "keep-alive" if words[2] == "HTTP/1.0" else connection != "close"
    target = urlsplit(words[1])
    path = tuple(unquote(part) for part in target.path.split("/") if part)
    query = tuple(parse_qsl(target.query, keep_blank_values=True))
    return HttpRequest(words[0], path, query, body, _parse_credentials(headers.get("authorization", "")), keep)


def _parse_credentials(header: str) -> tuple[str, str] | None:
    scheme, _, code = header.partition(" ")
    if scheme.lower() != "basic":
        return None
    try:
        name, colon, password = base64.b64decode(code, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        return None
    return (name, password) if colon else None


def response(status: HTTPStatus, content: object, *, keep: bool) -> bytes:
    """The bytes of an answer; ``content`` becomes JSON, except that 204 has none."""
    body = (
        b"" if status == HTTPStatus.NO_CONTENT else json.dumps(content, ensure_ascii=False).encode("utf-8", "replace")
    )
    lines = [f"HTTP/1.1 {status.value} {status.phrase}"]
    if status != HTTPStatus.NO_CONTENT:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    if status == HTTPStatus.UNAUTHORIZED:
        lines.append('WWW-Authenticate: Basic realm="RouterOS"')
    lines.append("Connection: " + ("keep-alive" if keep else "close"))
    return "\r\n".join([*lines, "", ""]).encode() + body


def problem(status: HTTPStatus, detail: str | None = None) -> dict[str, object]:
    """The body of an error: its status twice, and RouterOS' own words when there are some."""
    body = {} if detail is None else {"detail": detail}
    return {**body, "error": status.value, "message": status.phrase}
