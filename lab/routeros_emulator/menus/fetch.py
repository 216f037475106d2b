"""/tool/fetch: downloads a file over plain HTTP. Other protocols, uploads and ``output=user`` are not emulated.

Arguments: MikroTik manual, 'Fetch'. The rows with ``status`` are published for 7.x; wordings of failures and the
policies are inferred.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

from lab.routeros_emulator.device import EmulatedDevice
from lab.routeros_emulator.errors import failure, missing, unknown_parameter
from lab.routeros_emulator.menu import EmulatedMenu, Values
from lab.routeros_emulator.request import Call, Stream

_KNOWN = frozenset({"url", "dst-path", "output", "mode", "duration", "idle-timeout", "as-value"})
_IDLE_SECONDS = 10.0


def _fetch_file(call: Call) -> Stream:
    given = call.sentence.attributes
    for name in given:
        if name not in _KNOWN:
            raise unknown_parameter(name)
    if not given.get("url"):
        raise missing("url")
    if call.device.config.device_mode == "home":
        raise failure("not allowed by device-mode")
    url = urlsplit(given["url"])
    if url.scheme != "http" or given.get("output", "file") != "file":
        raise failure("this way to fetch is not emulated")
    name = given.get("dst-path") or url.path.rpartition("/")[2]
    return _download_file(call.device, url.hostname or "", url.port or 80, url.path, name)


async def _download_file(device: EmulatedDevice, host: str, port: int, path: str, name: str) -> AsyncIterator[Values]:
    yield {"status": "connecting"}
    try:
        reader, writer = await asyncio.wait_for(asyncio.open_connection(host, port), _IDLE_SECONDS)
    except (OSError, TimeoutError):
        raise failure(f"connection to {host}:{port} failed") from None
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode())
        head = (await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _IDLE_SECONDS)).decode("latin-1")
        status, *fields = head.split("\r\n")
        if status.split()[1:2] != ["200"]:
            raise failure(f"closing connection: <{status.partition(' ')[2]}> {host}:{port} (4)")
        length = next((int(f.partition(":")[2]) for f in fields if f.lower().startswith("content-length:")), -1)
        data = b""
        while part := await asyncio.wait_for(reader.read(65536), _IDLE_SECONDS):
            data += part
            if len(part) + len(data) > device.free_space():
                raise failure("no space left on device")
            device.files.write(name, data)
            yield {"status": "downloading", "downloaded": str(len(data) // 1024), "total": str(max(length, 0) // 1024)}
    except (OSError, TimeoutError, asyncio.IncompleteReadError):
        raise failure("connection lost") from None
    finally:
        writer.close()
    if 0 <= length != len(data):
        raise failure("connection lost")
    yield {"status": "finished", "downloaded": str(len(data) // 1024), "total": str(len(data) // 1024)}


TOOL = EmulatedMenu(
    "/tool",
    verbs=frozenset(),
    rows=lambda _device: (),
    actions={"fetch": _fetch_file},
    needs={"fetch": frozenset({"ftp", "read", "write", "test"})},
)
