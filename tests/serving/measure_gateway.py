"""What the gateway adds to a request: `python -m tests.serving.measure_gateway [--silence SECONDS]` prints a table.

Three ways to one stub of an engine are measured in turn: to the stub itself, through nginx by the path of its unit, and
through nginx and the router by the name of its model. The second has TLS, the key and the paths; the third has the
router besides. All of it runs on loopback of this machine, whose load is printed.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.client
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import mkdtemp

from tests.serving.running_gateway import CLIENTS, MODELS, NGINX, PATIENCE, RunningGateway

TOKEN = b'data: {"choices": [{"index": 0, "text": "token"}]}\n\n'
WAYS = ("to the engine", "/UNIT/v1", "/v1")


async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Answer the requests of a connection. `tokens`, `interval` and `silence` of a body make its answer a stream."""
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            length = int(head.partition("content-length:")[2].partition("\r")[0] or 0)
            body = await reader.readexactly(length)
            asked = json.loads(body) if 0 < length < 4096 else {}
            if "tokens" in asked:
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n")
                for number in range(asked["tokens"]):
                    writer.write(TOKEN)
                    await writer.drain()
                    await asyncio.sleep(asked["silence"] if not number else asked["interval"])
                writer.write(b"data: [DONE]\n\n")
                await writer.drain()
                break
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
            await writer.drain()
    writer.close()


async def engine(port: int) -> None:
    """Be a stub of an engine."""
    server = await asyncio.start_server(answer, "127.0.0.1", port)
    await server.serve_forever()


class MeasuredGateway(RunningGateway):
    """The gateway with stubs that take no time in the place of the engines."""

    def start_engine(self, name: str) -> None:
        words = [sys.executable, "-m", "tests.serving.measure_gateway", "--engine", str(self.ports[name])]
        self.engines[name] = subprocess.Popen(words, start_new_session=True)

        def answers() -> bool:
            with contextlib.suppress(OSError):
                return bool(urllib.request.urlopen(f"http://127.0.0.1:{self.ports[name]}/", timeout=5))
            return False

        self.wait(answers, f"stub {name} answers")


class Client:
    """A client that keeps a connection for each way to the stub."""

    def __init__(self, gate: MeasuredGateway) -> None:
        self.gate = gate
        self.headers = {"Authorization": f"Bearer {CLIENTS['alice']}", "Content-Type": "application/json"}
        self.paths = dict(zip(WAYS, ("/v1/completions", "/two/v1/completions", "/v1/completions"), strict=True))
        self.connections = {way: self.connect(way) for way in WAYS}

    def connect(self, way: str) -> http.client.HTTPConnection:
        if way == WAYS[0]:
            return http.client.HTTPConnection("127.0.0.1", self.gate.ports["two"], timeout=PATIENCE)
        return http.client.HTTPSConnection("127.0.0.1", self.gate.port, timeout=PATIENCE, context=self.gate.trust())

    def request(self, way: str, body: bytes) -> float:
        """Return the seconds of a request."""
        connection, begun = self.connections[way], time.perf_counter()
        connection.request("POST", self.paths[way], body, self.headers)
        reply = connection.getresponse()
        reply.read()
        assert reply.status == 200, (way, reply.status)
        return time.perf_counter() - begun

    def stream(self, way: str, tokens: int, interval: float = 0.0, silence: float = 0.0) -> tuple[float, float, bool]:
        """Return the seconds to the first token and to the end of a stream, and whether it is whole."""
        asked = {"model": MODELS["two"][0], "tokens": tokens, "interval": interval, "silence": silence or interval}
        connection = self.connect(way)
        connection.timeout = PATIENCE + silence
        connection.connect()
        begun = time.perf_counter()
        connection.request("POST", self.paths[way], json.dumps(asked).encode(), self.headers)
        reply = connection.getresponse()
        first = reply.readline() and time.perf_counter() - begun
        lines = reply.read().split(b"\n\n")
        connection.close()
        return float(first), time.perf_counter() - begun, len(lines) == tokens + 1 and lines[-2] == b"data: [DONE]"


def body_of(size: int) -> bytes:
    """A request of about `size` bytes, as one with an image is."""
    return json.dumps({"model": MODELS["two"][0], "prompt": "x" * size}).encode()


def in_turn(times: int, measured: Callable[[str], float]) -> dict[str, list[float]]:
    """Measure each way so many times, one after the other, so that all have the same load of the machine."""
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(times):
        for way in WAYS:
            found[way].append(measured(way))
    return found


def processor_seconds(pid: int) -> float:
    """The time of a processor that a process has had."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def row(what: str, found: dict[str, list[float]], used: float) -> str:
    """A line of the table: minimum and median of each way in milliseconds, what the router adds to them, and the
    milliseconds of a processor that it used for each request."""
    cells = [f"{min(found[way]) * 1000:.1f} / {statistics.median(found[way]) * 1000:.1f}" for way in WAYS]
    unit, model = (found[way] for way in WAYS[1:])
    least, usual = min(model) - min(unit), statistics.median(model) - statistics.median(unit)
    return f"| {what} | {' | '.join(cells)} | {least * 1000:+.1f} / {usual * 1000:+.1f} | {used * 1000:.1f} |"


def table(gate: MeasuredGateway, silence: float, times: int) -> Iterator[str]:
    """Yield the lines of the table as they are measured."""
    client = Client(gate)

    def measured(what: str, count: int, once: Callable[[str], float]) -> str:
        for way in WAYS:
            once(way)
        before = processor_seconds(gate.router.pid)
        found = in_turn(count, once)
        return row(f"{what} ({count} times)", found, (processor_seconds(gate.router.pid) - before) / count)

    yield f"| minimum / median, ms | {' | '.join(WAYS)} | the router adds | its processor time |"
    yield f"| --- {'| --- ' * (len(WAYS) + 2)}|"
    few = max(3, times // 40)
    small, large, image = (body_of(size) for size in (100, 1_000_000, 20_000_000))
    yield measured("small request, keep-alive", times, lambda way: client.request(way, small))
    yield measured("body of 1 MB", max(5, times // 10), lambda way: client.request(way, large))
    yield measured("body of 20 MB", few, lambda way: client.request(way, image))
    yield measured("first token of a stream of 50, one each 20 ms", few, lambda way: client.stream(way, 50, 0.02)[0])
    yield measured("stream of 2,000 tokens at once, whole", few, lambda way: client.stream(way, 2000)[1])
    whole = [client.stream(way, 3, silence=silence)[2] for way in WAYS]
    yield f"| stream with {silence:g} s of silence | {' | '.join('whole' if one else 'BROKEN' for one in whole)} | | |"


def memory(pid: int) -> str:
    """The memory of a process: now, and the most that it had."""
    lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines())
    now, most = (int(lines[key].split()[0]) // 1024 for key in ("VmRSS", "VmHWM"))
    return f"{now} MiB, at most {most} MiB"


def main() -> None:
    """Measure, or be a stub."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--silence", type=float, default=5.0)
    parser.add_argument("--times", type=int, default=300)
    parser.add_argument("--engine", type=int, metavar="PORT", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.engine:
        asyncio.run(engine(given.engine))
        return
    root = Path(mkdtemp(prefix="sparkrack-gateway-"))
    root.chmod(0o755)
    gate = MeasuredGateway(root, body="64M")
    try:
        gate.start()
        before = memory(gate.router.pid)
        version = subprocess.run([NGINX, "-v"], capture_output=True, text=True, check=True).stderr.strip()
        machine = f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
        print(f"{version}, Python {platform.python_version()}, {platform.machine()}, {machine}\n")
        for line in table(gate, given.silence, given.times):
            print(line, flush=True)
        print(f"\nMemory of the router: {before} before; {memory(gate.router.pid)} after bodies of 20 MB.")
        print(f"Load at the end: {os.getloadavg()[0]:.1f}.")
    finally:
        gate.end()
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
