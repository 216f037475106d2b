"""The gateway of served units, judged by real clients: curl and the Python client of OpenAI, through nginx itself."""

from __future__ import annotations

import json
import posixpath
import shutil
import signal
import sys
import urllib.parse
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from core.verify.reporter import CheckReporter
from serving import gateway as gateway
from serving import gateway_certificate as gateway_certificate
from serving import gateway_router as gateway_router
from serving import verify
from tests.serving.running_gateway import CLIENTS, NGINX, UNIT_KEYS, RunningGateway, running_gateway
from tests.unit.ops.shells import rooted, run

if TYPE_CHECKING:
    import openai

pytestmark = pytest.mark.skipif(not shutil.which(NGINX), reason="nginx is not unpacked: make setup FOR=tests")
ALICE = CLIENTS["alice"]


@pytest.fixture(scope="module")
def shared() -> Iterator[RunningGateway]:
    with running_gateway() as made:
        yield made


@pytest.fixture
def gate(shared: RunningGateway) -> RunningGateway:
    """The gateway; every unit is open and up, and nothing is slow."""
    for name in shared.ports:
        assert shared.command("open", name).returncode == 0
    shared.logged()
    return shared


def client(gate: RunningGateway, name: str, key: str = ALICE) -> openai.OpenAI:
    import openai  # a thousand modules, which each worker would import when it collects

    return openai.OpenAI(
        base_url=f"https://127.0.0.1:{gate.port}/{name}/v1",
        api_key=key,
        http_client=openai.DefaultHttpxClient(verify=gate.trust()),
        max_retries=0,
    )


@pytest.mark.parametrize("name", ["one", "two"])
@pytest.mark.parametrize("key", CLIENTS.values(), ids=CLIENTS)
def test_each_key_reaches_each_unit(gate: RunningGateway, name: str, key: str) -> None:
    reply = gate.complete(name, key)
    assert (reply.status, reply.json["choices"][0]["text"]) == (200, "4, as is 1+3=")


@pytest.mark.parametrize(
    "key",
    [None, "", ALICE.lower(), ALICE[:-1], f"{ALICE}x", ALICE.replace(".", "x"), UNIT_KEYS["one"], ".*", f"{ALICE} x"],
)
@pytest.mark.parametrize("path", ["/one/v1/models", "/nothing", "/"])
def test_without_a_key_nothing_is_reported(gate: RunningGateway, key: str | None, path: str) -> None:
    reply = gate.curl(path, key=key)
    assert (reply.status, reply.code) == (401, "invalid_api_key")
    assert reply.headers["www-authenticate"] == 'bearer realm="served"'
    assert "unit" not in reply.json["error"]["message"]


def test_a_key_in_another_scheme_is_refused(gate: RunningGateway) -> None:
    assert gate.curl("/one/v1/models", "-u", f"alice:{ALICE}", key=None).status == 401
    assert gate.curl("/one/v1/models", "-H", f"Authorization: bearer {ALICE}", key=None).status == 200


@pytest.mark.parametrize(
    "path",
    [
        "/",
        "/metrics",
        "/three/v1/models",
        "/ONE/v1/models",
        "/echo",
        "/echo/",
        "/echo/v1",
        "/echo/metrics",
        "/echo/docs",
        "/echo/v1x/models",
        "/echo/v2/models",
        "/echo/v1/../metrics",
        "/echo/v1/../../metrics",
        "/echo/v1/..",
        "/echo/v1/models/../../metrics",
        "/echo/v1/%2e%2e/metrics",
        "/echo/v1/.%2E/metrics",
        "/echo/v1%2f..%2fmetrics",
        "/echo/v1/..%2fmetrics",
        "/echo/v1/%2e%2e%2fmetrics",
        "//echo//v1//..//metrics",
        "/echo/v1/./../metrics",
        "/echo/v1/..//../metrics",
        "/echo%2fmetrics",
    ],
)
def test_what_is_not_below_v1_of_a_unit_is_not_there(gate: RunningGateway, path: str) -> None:
    reply = gate.curl(path)
    assert (reply.status, reply.code) == (404, "unit_not_found")
    assert "units: one, two, echo" in reply.json["error"]["message"]


@pytest.mark.parametrize(
    "path",
    [
        "load_lora_adapter",
        "unload_lora_adapter",
        "loads",
        "tokenize",
        "realtime",
        "chat/completions/render",
        "completions/",
        "completionsx",
        "Completions",
        "completions%0a",
        "..;/metrics",
        "..%5cmetrics",
        "%252e%252e/metrics",
        "models/a/b/c",
        "responses/a/delete",
        "invocations",
    ],
)
def test_what_clients_do_not_need_stays_at_the_gateway(gate: RunningGateway, path: str) -> None:
    reply = gate.curl(f"/echo/v1/{path}")
    assert (reply.status, reply.code) == (404, "path_not_found")
    assert "/v1/chat/completions" in reply.json["error"]["message"]


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/echo/v1/models", "/v1/models"),
        ("/echo/v1/models?limit=2&x=%2e%2e/", "/v1/models?limit=2&x=%2e%2e/"),
        ("/echo/v1/models/a%20b", "/v1/models/a%20b"),
        ("/echo/v1/a/../models", "/v1/models"),
        ("/echo/v1/%2e/models", "/v1/models"),
        ("//echo/v1//models", "/v1/models"),
        ("/one/../echo/v1/models", "/v1/models"),
        ("/echo/v1/models/..;", "/v1/models/..;"),
        ("/echo/v1/models/%252e%252e", "/v1/models/%252e%252e"),
        ("/echo/v1/models/..%5cmetrics", "/v1/models/..%5Cmetrics"),
        ("/echo/v1/models/%0d%0aX-Evil:%20y", "/v1/models/%0D%0AX-Evil:%20y"),
        *(
            (f"/echo/v1/{one}", f"/v1/{one}")
            for one in (
                *("completions", "chat/completions", "embeddings", "responses", "responses/resp_1"),
                *("responses/resp_1/cancel", "messages", "messages/count_tokens", "rerank", "score", "classify"),
                *("audio/transcriptions", "audio/translations", "models/owner/name"),
            )
        ),
    ],
)
def test_the_engine_is_asked_below_v1_only(gate: RunningGateway, path: str, asked: str) -> None:
    reply = gate.curl(path)
    assert (reply.status, reply.json["path"]) == (200, asked)
    decoded = posixpath.normpath(urllib.parse.unquote(asked.partition("?")[0]))
    assert decoded.startswith("/v1/")
    assert "X-Evil" not in reply.json["headers"]


def test_the_key_of_a_client_stays_at_the_gateway(gate: RunningGateway) -> None:
    """A unit without a key gets none; one with a key gets its own, which the first test shows."""
    assert "Authorization" not in gate.curl("/echo/v1/models").json["headers"]


def test_the_python_client_completes_and_reads_a_stream_as_it_comes(gate: RunningGateway) -> None:
    with client(gate, "one") as api:
        assert [model.id for model in api.models.list()] == ["qwen"]
        assert api.completions.create(model="qwen", prompt="2+2=").choices[0].text == "4, as is 1+3="
        slow = gate.faults / "slow"
        slow.touch()
        with api.completions.create(model="qwen", prompt="2+2=", stream=True) as stream:
            parts = iter(stream)
            assert next(parts).choices[0].text == "4"
            slow.unlink()
            assert [part.choices[0].text for part in parts] == [" as is 1+3="]


def test_the_python_client_understands_each_refusal(gate: RunningGateway) -> None:
    import openai

    with client(gate, "one", "x" * 24) as api, pytest.raises(openai.AuthenticationError) as refused:
        api.models.list()
    assert refused.value.code == "invalid_api_key"
    with client(gate, "three") as api, pytest.raises(openai.NotFoundError) as unknown:
        api.models.list()
    assert unknown.value.code == "unit_not_found"
    gate.command("close", "two")
    with client(gate, "two") as api, pytest.raises(openai.InternalServerError) as closed:
        api.models.list()
    assert (closed.value.status_code, closed.value.code) == (503, "unit_closed")


def test_a_stream_is_not_held_back(gate: RunningGateway) -> None:
    with gate.stream("two") as running:
        assert "as is 1+3=" in gate.finish(running)


def test_a_closed_unit_ends_what_runs_and_takes_nothing_new(gate: RunningGateway) -> None:
    with gate.stream("one") as running:
        assert gate.command("close", "one").returncode == 0
        reply = gate.complete("one")
        assert (reply.status, reply.code, reply.headers["retry-after"]) == (503, "unit_closed", "30")
        assert "unit one is closed" in reply.json["error"]["message"]
        assert gate.curl("/two/v1/models").status == 200
        assert gate.curl("/one/v1/models", key=None).status == 401
        assert "[DONE]" in gate.finish(running)
    assert gate.command("open", "one").returncode == 0
    assert gate.complete("one").status == 200


@pytest.mark.parametrize("words", [("close", "three"), ("close", "../x"), ("shut", "one"), ("close",), ("open", "#")])
def test_a_wrong_word_is_refused(gate: RunningGateway, words: tuple[str, ...]) -> None:
    done = gate.command(*words)
    assert done.returncode == 2
    assert done.stderr.startswith("serve-gateway: ")
    assert list(Path(rooted(gateway.RUN, gate.root)).glob("*.closed")) == []


def test_a_unit_that_is_down_is_named(gate: RunningGateway) -> None:
    gate.stop_engine("two")
    try:
        reply = gate.complete("two")
        assert (reply.status, reply.code, reply.headers["retry-after"]) == (503, "unit_down", "30")
        assert reply.json["error"]["message"] == "unit two is down: its head n0 gives no answer"
        assert gate.complete("one").status == 200
    finally:
        gate.start_engine("two")
    assert gate.complete("two").status == 200


def test_errors_of_the_engine_pass(gate: RunningGateway) -> None:
    reply = gate.complete("one", model="other")
    assert (reply.status, reply.json) == (404, {"error": "no such model"})


def test_a_request_that_is_too_large_is_refused(gate: RunningGateway) -> None:
    file = gate.root / "large"
    file.write_text(json.dumps({"model": "qwen", "prompt": "x" * (4 << 20)}))
    reply = gate.curl("/one/v1/completions", "--data-binary", f"@{file}")
    assert (reply.status, reply.code) == (413, "request_too_large")
    file.write_text(json.dumps({"model": "qwen", "prompt": "x" * (1 << 19)}))
    assert gate.curl("/one/v1/completions", "--data-binary", f"@{file}").status == 200


def test_only_tls_of_today_is_spoken(gate: RunningGateway) -> None:
    plain = gate.curl("/one/v1/models", "--proto", "=http", "--url", f"http://127.0.0.1:{gate.port}/one/v1/models")
    assert "x" * 24 not in plain.body
    old = gate.curl("/one/v1/models", "--tls-max", "1.1", "--ciphers", "DEFAULT@SECLEVEL=0")
    assert old.status == 0
    other = gate.curl("/one/v1/models", "--cacert", "/etc/ssl/certs/ca-certificates.crt")
    assert "certificate" in other.body


def test_other_keys_are_taken_without_an_end_of_what_runs(gate: RunningGateway) -> None:
    with gate.stream("one") as running:
        gate.write_keys({**CLIENTS, "alice": "another-quiet-horse"})
        gate.nginx.send_signal(signal.SIGHUP)
        gate.wait(lambda: gate.curl("/two/v1/models", key="another-quiet-horse").status == 200, "the key is taken")
        gate.wait(lambda: gate.curl("/two/v1/models").status == 401, "the old one is refused")
        assert "[DONE]" in gate.finish(running)
    gate.write_keys(CLIENTS)
    gate.nginx.send_signal(signal.SIGHUP)
    gate.wait(lambda: gate.curl("/two/v1/models").status == 200, "the keys are back")


def test_the_log_names_keys_and_has_none(gate: RunningGateway) -> None:
    gate.complete("one", CLIENTS["ci.nightly"])
    gate.complete("two", "y" * 24)
    found = ""

    def written() -> bool:
        nonlocal found
        found += gate.logged()
        return found.count("completions") == 2

    gate.wait(written, "both requests are logged")
    assert '127.0.0.1 ci.nightly "POST /one/v1/completions" 200' in found
    assert '127.0.0.1  "POST /two/v1/completions" 401' in found
    everything = found + gate.nginx_log.read_text()
    for secret in (*CLIENTS.values(), *UNIT_KEYS.values(), "y" * 24):
        assert secret not in everything


# What `sparkrack verify` finds


class GatewayMachine:
    """The part of testinfra's host that verify uses, on the node of the gateway."""

    def __init__(self, gate: RunningGateway) -> None:
        self.gate = gate
        self.commands: list[str] = []

    def run(self, command: str) -> SimpleNamespace:
        self.commands.append(command)
        done = run(command.replace("python3 -B", f"{sys.executable} -B"), self.gate.root)
        return SimpleNamespace(rc=done.returncode, stdout=done.stdout, stderr=done.stderr)


def findings(gate: RunningGateway) -> str:
    """What the proof of the answers finds; empty if all of it is right."""
    machine = GatewayMachine(gate)
    try:
        verify.test_the_gateway_answers_for_each_unit(gate.rack.nodes["n0"], machine, gate.rack, CheckReporter([]))
    except AssertionError as error:
        return str(error)
    finally:
        for secret in (*CLIENTS.values(), *UNIT_KEYS.values()):
            assert not [command for command in machine.commands if secret in command]
    return ""


@pytest.fixture
def declared(gate: RunningGateway) -> RunningGateway:
    """The gateway; the units that rack.yaml declares down take nothing."""
    for name in ("two", "echo"):
        gate.command("close", name)
    return gate


def test_a_gateway_that_is_right_is_verified(declared: RunningGateway) -> None:
    assert findings(declared) == ""


def other_certificate(gate: RunningGateway) -> None:
    gate.write(gateway.CERTIFICATE, gateway_certificate.self_signed_pem(gate.gateway, "127.0.0.1"), 0o600)


def other_models(gate: RunningGateway) -> None:
    """The router runs with the models of another rack."""
    gate.stop_router()
    file = Path(rooted(gateway_router.MODELS, gate.root))
    before = file.read_text()
    file.write_text(json.dumps({"other": "route-one"}))
    gate.start_router()
    file.write_text(before)


@pytest.mark.parametrize(
    ("break_it", "line"),
    [
        (lambda gate: gate.command("open", "two"), "n0: /v1/completions of unit two directly has HTTP status 200"),
        (lambda gate: gate.command("close", "one"), "n0: /v1/completions of unit one directly has HTTP status 503"),
        (other_certificate, "n0: the gateway has another certificate than its file"),
        (RunningGateway.stop_router, "n0: /v1/completions of unit one by its model has HTTP status 503"),
        (RunningGateway.stop_router, "n0: /v1/models has HTTP status 503"),
        (other_models, "n0: /v1/models has other, wanted qwen, glm, echo"),
        (other_models, "n0: /v1/completions of unit one by its model has HTTP status 404"),
        (
            lambda gate: gate.write_keys({**CLIENTS, "alice": "a-key-that-is-not-loaded"}),
            "n0: /v1/completions of unit one directly has HTTP status 401",
        ),
    ],
)
def test_a_gateway_that_is_wrong_is_found(
    declared: RunningGateway, break_it: Callable[[RunningGateway], object], line: str
) -> None:
    break_it(declared)
    try:
        assert line in findings(declared)
    finally:
        declared.write_keys(CLIENTS)
        declared.write(gateway.CERTIFICATE, declared.pem, 0o600)
        declared.stop_router()
        declared.start_router()
