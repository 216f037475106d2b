"""One address for all units: nginx hands a request on by the name of its model, which the router reads."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import shutil
import signal
import socketserver
import stat
import subprocess
import sys
import threading
import urllib.parse
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import openai
import pytest

from core.model import Rack
from core.model.fields import FrozenDict
from serving import gateway as gateway
from serving import gateway_router as gateway_router
from serving.options import serving_of
from tests.serving.running_gateway import (
    CLIENTS,
    MODELS,
    NGINX,
    UNIT_KEYS,
    Echo,
    Reply,
    RunningGateway,
    running_gateway,
)
from tests.unit.ops.shells import rooted

pytestmark = pytest.mark.skipif(not shutil.which(NGINX), reason="nginx is not unpacked: make setup FOR=tests")
ALICE = CLIENTS["alice"]
NAMES = [name for names in MODELS.values() for name in names]


@pytest.fixture(scope="module")
def shared() -> Iterator[RunningGateway]:
    with running_gateway() as made:
        yield made


@pytest.fixture
def gate(shared: RunningGateway) -> RunningGateway:
    """The gateway; every unit is open and up, and nothing is slow."""
    for name in shared.ports:
        assert shared.command("open", name).returncode == 0
    for fault in shared.faults.iterdir():
        fault.unlink()
    shared.logged()
    return shared


def post(gate: RunningGateway, body: object, path: str = "/v1/completions", *words: str, **keys: Any) -> Reply:
    """Send a body, which is JSON unless it is bytes."""
    file = gate.root / f"body-{threading.get_ident()}"
    file.write_bytes(body if isinstance(body, bytes) else json.dumps(body, ensure_ascii=False).encode())
    return gate.curl(path, "-H", "Content-Type: application/json", *words, "--data-binary", f"@{file}", **keys)


def client(gate: RunningGateway, key: str = ALICE) -> openai.OpenAI:
    return openai.OpenAI(
        base_url=f"https://127.0.0.1:{gate.port}/v1",
        api_key=key,
        http_client=openai.DefaultHttpxClient(verify=gate.trust()),
        max_retries=0,
    )


def test_one_client_asks_three_models_at_one_address(gate: RunningGateway) -> None:
    with client(gate) as api:
        assert [model.id for model in api.models.list()] == NAMES
        assert api.models.retrieve("owner/echo 2").id == "owner/echo 2"
        for model in ("qwen", "glm"):
            assert api.completions.create(model=model, prompt="2+2=").choices[0].text == "4, as is 1+3="
    reply = post(gate, {"model": "echo", "prompt": "2+2="})
    assert (reply.status, reply.json["path"]) == (200, "/v1/completions")


@pytest.mark.parametrize("name", MODELS["echo"])
def test_each_name_of_a_model_reaches_its_unit(gate: RunningGateway, name: str) -> None:
    for body in (
        {"model": name},
        json.dumps({"model": name}).encode(),
        {"x": "ü€😀", "model": name, "y": [1, {"model": "qwen"}]},
    ):
        assert post(gate, body, "/v1/chat/completions").json["path"] == "/v1/chat/completions"


def test_the_engine_gets_the_request_as_it_was_sent_but_for_the_key(gate: RunningGateway) -> None:
    body = b'{"prompt": "x",  "model":"echo", "unknown": 1.0e2}\n'
    reply = post(gate, body, "/v1/responses?a=%2e%2e/b&c", "-H", "X-Own: kept", "-H", f"X-Api-Key: {ALICE}")
    found = reply.json
    assert (found["method"], found["path"], found["bytes"]) == ("POST", "/v1/responses?a=%2e%2e/b&c", len(body))
    assert found["headers"]["X-Own"] == "kept"
    # Without `Connection ""` nginx asks the engine to close, and connections that it keeps fail now and then.
    assert {"Authorization", "X-Api-Key", "Connection"} & set(found["headers"]) == set()
    assert "x-accel-redirect" not in reply.headers


def test_requests_at_the_same_time_each_reach_their_unit(gate: RunningGateway) -> None:
    def ask(number: int) -> bool:
        model = ("qwen", "glm", "echo")[number % 3]
        reply = post(gate, {"model": model, "prompt": "2+2=", "number": number, "filling": "x" * 50_000 * (number % 5)})
        return reply.status == 200 and ("path" in reply.json) == (model == "echo")

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(ask, range(45)))


def test_a_form_names_its_model(gate: RunningGateway) -> None:
    """As for /v1/audio/transcriptions. What a file of the form contains names none."""
    audio = gate.root / "model.wav"
    audio.write_bytes(b'\r\n--x\r\nContent-Disposition: form-data; name="model"\r\n\r\nqwen\r\n--x--' * 9)
    form = ("-F", f"file=@{audio};filename=model", "-F", "model=größe", "-F", "language=de")
    assert gate.curl("/v1/audio/transcriptions", *form).json["path"] == "/v1/audio/transcriptions"
    assert gate.curl("/v1/audio/transcriptions", *form[:2]).code == "model_missing"


@pytest.mark.parametrize("key", ["none", "wrong", "of a unit"])
@pytest.mark.parametrize("path", ["/v1/completions", "/v1/models", "/v1/nothing"])
def test_without_a_key_of_the_gateway_nothing_is_reported(gate: RunningGateway, key: str, path: str) -> None:
    sent = {"none": None, "wrong": "y" * 24, "of a unit": UNIT_KEYS["one"]}[key]
    reply = post(gate, {"model": "qwen"}, path, key=sent)
    assert (reply.status, reply.code) == (401, "invalid_api_key")
    assert "qwen" not in reply.body


def test_a_key_may_stand_in_x_api_key(gate: RunningGateway) -> None:
    """So clients of Anthropic's API send it."""
    for path in ("/v1/messages", "/echo/v1/messages"):
        reply = post(gate, {"model": "echo"}, path, "-H", f"x-api-key: {ALICE}", key=None)
        assert reply.status == 200
        assert ALICE not in reply.body
        wrong = post(gate, {"model": "echo"}, path, "-H", f"x-api-key: {ALICE[:-1]}", key=None)
        assert (wrong.status, wrong.json["type"], wrong.json["error"]["type"]) == (401, "error", "authentication_error")


def test_each_unit_gets_its_own_key(gate: RunningGateway) -> None:
    """`one` refuses a request without its key, which the client does not have."""
    for _ in range(3):
        assert post(gate, {"model": "qwen", "prompt": "2+2="}).status == 200
        assert post(gate, {"model": "glm", "prompt": "2+2="}).status == 200


@pytest.mark.parametrize(
    ("body", "status", "code", "message"),
    [
        (b'{"model": "other"}', 404, "model_not_found", "no unit serves the model other; models: qwen, glm, echo, "),
        (b'{"model": ""}', 400, "model_missing", "names no model"),
        (b'{"model": ["qwen"]}', 400, "model_missing", "names no model"),
        (b'{"prompt": "qwen"}', 400, "model_missing", "names no model"),
        (b'["model", "qwen"]', 400, "model_missing", "names no model"),
        (b"", 400, "invalid_json", "is not JSON"),
        (b'{"model": "qwen"', 400, "invalid_json", "is not JSON"),
        (b"[" * 100000, 400, "invalid_json", "is not JSON"),
        (b"\xff\xfe{\x00}\x00", 400, "invalid_json", "is not JSON"),
    ],
)
def test_a_request_that_no_unit_gets_is_refused_with_the_reason(
    gate: RunningGateway, body: bytes, status: int, code: str, message: str
) -> None:
    reply = post(gate, body)
    assert (reply.status, reply.code) == (status, code)
    assert message in reply.json["error"]["message"]
    other = post(gate, body, "/v1/messages").json
    kind = "not_found_error" if status == 404 else "invalid_request_error"
    assert other == {"type": "error", "error": {"type": kind, "message": reply.json["error"]["message"]}}


@pytest.mark.parametrize(
    "path", ["/v1/models/other", "/v1/models/", "/v1/models/owner/echo", "/v1/models/..%2fmetrics"]
)
def test_a_model_that_is_not_there_is_not_found(gate: RunningGateway, path: str) -> None:
    reply = gate.curl(path)
    assert (reply.status, reply.code) == (404, "model_not_found")


@pytest.mark.parametrize("name", NAMES)
def test_each_model_can_be_looked_up(gate: RunningGateway, name: str) -> None:
    quoted = urllib.parse.quote(name)
    for path in (f"/v1/models/{quoted}", f"/v1/models/{urllib.parse.quote(name, safe='')}?x"):
        assert gate.curl(path).json == {"id": name, "object": "model", "created": 0, "owned_by": "sparkrack"}


def test_a_method_that_a_path_does_not_take_is_refused(gate: RunningGateway) -> None:
    for method, path in (("GET", "/v1/completions"), ("POST", "/v1/models"), ("DELETE", "/v1/models/qwen")):
        reply = gate.curl(path, "-X", method)
        assert (reply.status, reply.code) == (405, "method_not_allowed")


@pytest.mark.parametrize(
    "path",
    [
        *("/v1", "/v1/", "/v1/metrics", "/v1/load_lora_adapter", "/v1/chat/completions/render", "/v1/completions/"),
        *("/v1/responses/resp_1", "/v1/responses/resp_1/cancel", "/v1/files", "/v1/batches", "/v1/realtime"),
        *("/v1//completions", "//v1/completions", "/v1/./completions", "/one/../v1/completions", "/v1/%63ompletions"),
        *("/v1/completions%3fx", "/v1/completions%0a", "/v1/modelsx", "/v1/x/../completions"),
    ],
)
def test_another_path_or_another_spelling_reaches_no_engine(gate: RunningGateway, path: str) -> None:
    """An engine gets the path as it was sent, so that it is compared as it was sent."""
    reply = post(gate, {"model": "echo"}, path)
    assert (reply.status, reply.code) == (404, "path_not_found")
    assert "below /UNIT/v1, units: one, two, echo" in reply.json["error"]["message"]


@pytest.mark.parametrize("path", ["/metrics", "/v2/models", "/V1/models", "/@route-echo", "/v1x/models"])
def test_what_is_beside_v1_is_not_there(gate: RunningGateway, path: str) -> None:
    assert gate.curl(path).code == "unit_not_found"


def test_a_body_that_is_too_large_is_refused_in_the_form_of_its_path(gate: RunningGateway) -> None:
    large = {"model": "echo", "prompt": "x" * (4 << 20)}
    assert post(gate, large).code == "request_too_large"
    assert post(gate, large, "/v1/messages").json["error"]["type"] == "request_too_large"


def test_a_stream_comes_as_it_is_made(gate: RunningGateway) -> None:
    with gate.stream("two", "/v1/completions") as running:
        assert "as is 1+3=" in gate.finish(running)


def test_a_stream_outlives_the_router_and_a_reload(gate: RunningGateway) -> None:
    with gate.stream("one", "/v1/completions") as running:
        gate.stop_router()
        reply = post(gate, {"model": "qwen", "prompt": "2+2="})
        assert (reply.status, reply.code, reply.headers["retry-after"]) == (503, "router_down", "2")
        assert post(gate, {"model": "qwen"}, "/v1/messages").json["error"]["type"] == "api_error"
        assert gate.complete("one").status == 200
        gate.start_router()
        assert post(gate, {"model": "qwen", "prompt": "2+2="}).status == 200
        gate.nginx.send_signal(signal.SIGHUP)
        gate.wait(lambda: "gracefully shutting down" in gate.nginx_log.read_text() or workers(gate) > 2, "a reload")
        assert post(gate, {"model": "glm", "prompt": "2+2="}).status == 200
        assert "[DONE]" in gate.finish(running)


def workers(gate: RunningGateway) -> int:
    return len(children(gate))


def children(gate: RunningGateway) -> list[int]:
    """The workers of nginx."""
    pid = gate.nginx.pid
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.skipif(bool(os.geteuid()), reason="another user needs root")
def test_a_socket_that_nginx_may_not_open_has_its_own_code(gate: RunningGateway) -> None:
    place = Path(rooted(gateway_router.SOCKET, gate.root))
    assert stat.S_IMODE(place.stat().st_mode) == 0o660
    place.chmod(0o600)
    try:
        reply = post(gate, {"model": "qwen", "prompt": "2+2="})
        assert (reply.status, reply.code) == (503, "router_down")
    finally:
        place.chmod(0o660)


def test_the_router_gets_no_key_and_no_other_header(gate: RunningGateway) -> None:
    heads: list[str] = []

    class Recorder(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            lines = list(iter(self.rfile.readline, b"\r\n"))
            heads.extend(line.decode().partition(":")[0].lower().strip() for line in lines[1:])
            self.wfile.write(b"HTTP/1.1 200 OK\r\nX-Accel-Redirect: @route-echo\r\nContent-Length: 0\r\n\r\n")

    place = Path(rooted(gateway_router.SOCKET, gate.root))
    gate.stop_router()
    place.unlink()
    try:
        with socketserver.UnixStreamServer(str(place), Recorder) as server:
            place.chmod(0o666)
            thread = threading.Thread(target=server.handle_request)
            thread.start()
            reply = post(gate, {"model": "qwen"}, "/v1/completions", "-H", f"X-Api-Key: {ALICE}", "-H", "Cookie: a=b")
            thread.join()
    finally:
        place.unlink()
        gate.start_router()
    assert reply.json["path"] == "/v1/completions"
    assert sorted(heads) == ["connection", "content-length", "content-type", "host"]


def test_a_unit_that_nginx_does_not_know_yet_is_the_routers_fault(gate: RunningGateway) -> None:
    """Between the two commands of a run that changes the units."""
    file = Path(rooted(gateway_router.MODELS, gate.root))
    before = file.read_text()
    file.write_text(json.dumps({"new": "route-new"}))
    try:
        gate.stop_router()
        gate.start_router()
        reply = post(gate, {"model": "new"})
        assert (reply.status, reply.code) == (503, "router_down")
    finally:
        file.write_text(before)
        gate.stop_router()
        gate.start_router()


def test_a_closed_unit_ends_what_runs_and_takes_nothing_new(gate: RunningGateway) -> None:
    with gate.stream("one", "/v1/completions") as running:
        assert gate.command("close", "one").returncode == 0
        reply = post(gate, {"model": "qwen"})
        assert (reply.status, reply.code, reply.headers["retry-after"]) == (503, "unit_closed", "30")
        assert post(gate, {"model": "qwen"}, "/v1/messages").json["error"]["type"] == "overloaded_error"
        assert post(gate, {"model": "glm", "prompt": "2+2="}).status == 200
        assert [model["id"] for model in gate.curl("/v1/models").json["data"]] == NAMES
        assert "[DONE]" in gate.finish(running)


def test_a_unit_that_is_down_is_named(gate: RunningGateway) -> None:
    gate.stop_engine("two")
    try:
        reply = post(gate, {"model": "glm", "stream": True})
        assert (reply.status, reply.code, reply.headers["retry-after"]) == (503, "unit_down", "30")
    finally:
        gate.start_engine("two")


def test_the_log_names_the_unit_and_has_no_prompt(gate: RunningGateway) -> None:
    post(gate, {"model": "glm", "prompt": "a-quiet-prompt"}, key=CLIENTS["ci.nightly"])
    post(gate, {"model": "a-quiet-prompt"})
    found = ""

    def written() -> bool:
        nonlocal found
        found += gate.logged()
        return found.count("completions") == 2

    gate.wait(written, "both requests are logged")
    assert '127.0.0.1 ci.nightly "POST /v1/completions" 200' in found
    assert [line.split()[-1] for line in found.splitlines()] == ["two", "-"]
    everything = found + gate.nginx_log.read_text() + gate.router_log.read_text()
    for secret in (*CLIENTS.values(), *UNIT_KEYS.values(), "a-quiet-prompt"):
        assert secret not in everything


# Faults of an engine, and of a large body


@pytest.mark.parametrize("place", ["/one/v1/models", "@route-one", "@down-one"])
@pytest.mark.parametrize("path", ["/echo/v1/models", "/echo/v1/completions", "/v1/completions"])
def test_an_engine_cannot_have_the_gateway_ask_another_unit(gate: RunningGateway, place: str, path: str) -> None:
    (gate.faults / "accel").write_text(place)
    reply = gate.curl(path) if path.endswith("models") else post(gate, {"model": "echo"}, path)
    assert (reply.status, reply.json["path"]) == (200, f"/v1/{path.rpartition('/')[2]}")


@contextmanager
def held_request(gate: RunningGateway, path: str, *words: str) -> Iterator[threading.Thread]:
    """A request with a body of 3 MB, which the engine has read and not answered."""
    (gate.faults / "held").touch()
    body = {"model": "echo", "prompt": "x" * 3_000_000}
    replies: list[Reply] = []
    thread = threading.Thread(target=lambda: replies.append(post(gate, body, path, *words)))
    before = Echo.waiting
    thread.start()
    try:
        gate.wait(lambda: Echo.waiting > before, "the engine has the request")
        yield thread
    finally:
        (gate.faults / "held").unlink()
        thread.join()
    assert (replies[0].status, replies[0].json["bytes"]) == (200, len(json.dumps(body)))


@pytest.mark.parametrize("path", ["/echo/v1/completions", "/v1/completions"])
@pytest.mark.parametrize("words", [(), ("-H", "Transfer-Encoding: chunked")])
def test_a_large_prompt_is_in_no_file(gate: RunningGateway, path: str, words: tuple[str, ...]) -> None:
    with held_request(gate, path, *words):
        opened = [str(file.readlink()) for pid in children(gate) for file in Path(f"/proc/{pid}/fd").iterdir()]
    assert len(opened) > 2
    assert [file for file in opened if "/body/" in file] == []


def test_the_folders_of_bodies_are_in_memory(gate: RunningGateway) -> None:
    """A body that comes in small chunks may be longer than its content, and than the memory that one has."""
    configuration = Path(rooted(gateway.CONFIGURATION, gate.root)).read_text()
    folders = [line.split()[1] for line in configuration.splitlines() if "_temp_path" in line]
    assert len(folders) == 5
    assert all(folder.startswith(f"{gate.root}/run/") for folder in folders)


def test_large_requests_are_as_many_as_their_memory_holds(gate: RunningGateway) -> None:
    configuration = Path(rooted(gateway.CONFIGURATION, gate.root))
    before = configuration.read_text()
    assert "limit_conn gateway_large 256;" in before
    configuration.write_text(before.replace("limit_conn gateway_large 256;", "limit_conn gateway_large 1;"))
    try:
        old = set(children(gate))
        gate.nginx.send_signal(signal.SIGHUP)
        gate.wait(lambda: not old & set(children(gate)), "new workers")
        with held_request(gate, "/v1/completions"):
            for path in ("/v1/completions", "/echo/v1/completions"):
                reply = post(gate, {"model": "echo", "prompt": "x" * 1_000_000}, path)
                assert (reply.status, reply.code, reply.headers["retry-after"]) == (503, "gateway_busy", "30")
            assert post(gate, {"model": "qwen", "prompt": "2+2="}).status == 200
    finally:
        configuration.write_text(before)
        gate.nginx.send_signal(signal.SIGHUP)


def test_the_configuration_has_nothing_that_faults_of_nginx_were_in(gate: RunningGateway) -> None:
    """CVE-2026-42945 and CVE-2026-9256 need `rewrite`, CVE-2026-42533 a capture; Ubuntu's correction of the last broke
    both of them for a time."""
    lines = [line.strip() for line in Path(rooted(gateway.CONFIGURATION, gate.root)).read_text().splitlines()]
    directives = [line for line in lines if not line.startswith("#")]
    assert not [line for line in directives if line.startswith("rewrite ")]
    assert not [line for line in directives if any(f"${digit}" in line for digit in range(10))]
    assert not [line for line in directives if "(?<" in line or "(?P<" in line]


# Two units of one slot, which serve one name


class SlotGateway(RunningGateway):
    """The gateway before two units that both serve qwen: `one` and `echo`."""

    @property
    def rack(self) -> Rack:
        rack = super().rack
        serving = serving_of(rack)
        assert serving
        both = {"args": FrozenDict({"served-model-name": (*MODELS["echo"], "qwen")})}
        units = FrozenDict({**serving.units, "echo": serving.units["echo"].model_copy(update=both)})
        return rack.model_copy(update={"serving": serving.model_copy(update={"units": units})})


@pytest.fixture(scope="module")
def slot() -> Iterator[RunningGateway]:
    with running_gateway(SlotGateway) as made:
        yield made


def test_of_a_slot_the_unit_that_is_up_gets_the_request(slot: RunningGateway) -> None:
    """Whichever it is: `serve use` changes it, and the files of the gateway stay as they are."""
    asked = {"model": "qwen", "prompt": "2+2=", "filling": "x" * 100_000}
    assert [name for name in NAMES if name != "qwen"] == [
        model["id"] for model in slot.curl("/v1/models").json["data"] if model["id"] != "qwen"
    ]
    assert post(slot, asked).json["choices"][0]["text"] == "4, as is 1+3="
    slot.stop_engine("one")
    found = post(slot, asked).json
    assert (found["method"], found["path"], found["bytes"]) == ("POST", "/v1/completions", len(json.dumps(asked)))
    assert "Authorization" not in found["headers"]
    assert slot.complete("one").code == "unit_down"
    slot.command("close", "echo")
    assert post(slot, asked).code == "unit_closed"
    slot.start_engine("one")
    assert post(slot, asked).status == 200
    slot.command("close", "one")
    slot.command("open", "echo")
    assert post(slot, asked).json["path"] == "/v1/completions"
    slot.echo.shutdown()
    slot.echo.server_close()
    assert (post(slot, asked).code, post(slot, {"model": "echo"}).code) == ("unit_down", "unit_down")
    slot.command("open", "one")
    assert post(slot, asked).status == 200


def test_an_answer_of_a_unit_of_a_slot_is_final(slot: RunningGateway) -> None:
    """Also when it is an error of the engine: the other unit is not asked."""
    slot.command("open", "one")
    (slot.faults / "status").write_text("500")
    try:
        reply = post(slot, {"model": "qwen", "prompt": "2+2="})
        assert (reply.status, reply.json) == (500, {"error": "the fault `status`"})
    finally:
        (slot.faults / "status").unlink()


# The router alone


def router_module() -> Any:
    found = importlib.util.spec_from_file_location(
        "serve_router", Path(gateway.__file__).with_name("files") / "serve_router.py"
    )
    assert found
    assert found.loader
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    "sent",
    [
        b"",
        b"POST /v1/completions\r\n\r\n",
        b"x" * 100_000,
        b"POST /v1/completions HTTP/1.1\r\nContent-Length: x\r\n\r\n",
    ],
)
def test_what_is_no_request_gets_no_answer_and_ends_nothing(tmp_path: Path, sent: bytes) -> None:
    module = router_module()

    async def ask(content: bytes) -> bytes:
        reader, writer = await asyncio.open_unix_connection(str(tmp_path / "socket"))
        writer.write(content)
        writer.write_eof()
        with suppress(ConnectionError):
            return await reader.read()
        return b""

    async def both() -> tuple[bytes, bytes]:
        router = module.Router({"qwen": "route-a"})
        async with await asyncio.start_unix_server(router.serve, str(tmp_path / "socket")):
            return await ask(sent), await ask(b"GET /v1/models HTTP/1.1\r\n\r\n")

    odd, right = asyncio.run(both())
    assert odd == b""
    assert right.startswith(b"HTTP/1.1 200 OK\r\n")


def test_a_router_without_its_files_says_so_and_ends(tmp_path: Path) -> None:
    program = Path(gateway.__file__).with_name("files") / "serve_router.py"
    done = subprocess.run(
        [sys.executable, "-I", str(program), f"{tmp_path}/socket", f"{tmp_path}/models"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert f"{tmp_path}/models" in done.stderr
