"""llama.cpp itself, from its wheel: what its command asks for, proven by the programs of the nodes.

The wheel has the server as a library, so that the words of the command become its parameters.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from core.model import load
from core.model.image_lock import Pin
from core.model.model_lock import read
from serving import desired
from serving.launch import launches
from serving.options import served_units
from serving.unit_kinds import request as request_of
from tests.serving import tiny_gguf
from tests.serving.serve_modules import serve_answers, serve_probe, serve_unit
from tests.serving.test_answers import Start
from tests.serving.test_unit_file import written
from tests.unit.model.serving_racks import IMAGE_ID, VLLM, loaded, put, record, refusals, text, unit

KEY = "sk-tiny-llama"
SERVER = Path(__file__).with_name("llama_server.py")


class Llama:
    """A unit of llama.cpp, as rack.yaml declares it, and its server."""

    def __init__(self, folder: Path) -> None:
        keys = unit(
            engine="llama.cpp",
            version="b11434",
            nodes=["n1"],
            parallel=None,
            memory=None,
            kv="1G",
            context=512,
            sequences=2,
            gguf="tiny.gguf",
            api={"key": {"env": "KEY"}},
        )
        files = {"tiny.gguf": {"size": 2**20, "sha256": "0" * 64}}
        path = put(folder, text({"one": keys}), {"qwen": {**record(), "files": files}})
        rack = load(path)
        one = served_units(rack)["one"]
        locked = desired.locked_unit(rack, one, {VLLM: Pin(None, IMAGE_ID)}, read(path.with_name("rack.lock.json")))
        (launch,) = launches(rack, one, locked.addresses, "100G", None)
        (secret,) = (file for file in desired.private_files(locked, "n1", KEY, "x" * 32) if file.path.endswith(".key"))
        self.key, self.model = folder / "key", folder / "tiny.gguf"
        self.key.write_bytes(secret.content.get_secret_value())
        self.key.chmod(0o600)
        tiny_gguf.write(self.model)
        others = {"--model": str(self.model), "--api-key-file": str(self.key), "--port": "0"}
        words = [others.get(option, word) for option, word in pairwise(launch.argv[3:])]
        self.process = subprocess.Popen(
            [sys.executable, str(SERVER), *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={"PATH": os.environ["PATH"]},
        )
        assert self.process.stdout
        address, _, port = self.process.stdout.readline().strip().rpartition(":")
        made: Any = desired.configuration(locked)
        made["api"] = {"address": address.removeprefix("http://"), "port": int(port), "key_file": str(self.key)}
        self.folder, self.made = folder, made

    def unit(self, **changes: Any) -> Any:
        return serve_unit.load_unit(written(self.folder, {**self.made, **changes}))

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(60)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Llama]:
    made = Llama(tmp_path_factory.mktemp("llama"))
    yield made
    made.close()


def request(served: Any) -> Any:
    return serve_probe.ApiRequest(served, 60.0)


def test_a_completion_and_a_chat_completion_prove_it(llama: Llama) -> None:
    served = llama.unit()
    serve_probe.prove(served, request(served))
    status, content, shown = serve_probe.post(
        served, request(served), "/v1/chat/completions", serve_answers.chat_body(served.model)
    )
    serve_answers.judge_chat(status, content, shown)


def test_a_start_of_it_becomes_ready_by_the_coordinators_own_proof(llama: Llama) -> None:
    start = Start(llama.unit())
    record = start.ask()
    assert record.state == "ready"
    assert record.reason == "a completion gave the known answer, a chat completion gave a clean text"
    wrong = start.ask(answer="5")
    assert (wrong.state, "expected '5' at its beginning" in wrong.reason) == ("stopping", True)


def test_another_answer_than_the_known_one_proves_nothing(llama: Llama) -> None:
    served = llama.unit(probe={"prompt": "3+3=", "answer": "6", "named": True})
    with pytest.raises(serve_answers.WrongAnswerError, match="expected '6' at its beginning"):
        serve_probe.prove(served, request(served))


def test_its_counter_moves_with_a_request_and_its_gauges_say_that_none_is_left(llama: Llama) -> None:
    served = llama.unit()
    before = serve_probe.progress(served, request(served))
    assert set(before) == {"llamacpp:n_decode_total", "llamacpp:requests_processing", "llamacpp:requests_deferred"}
    assert not serve_probe.moved(served, before, serve_probe.progress(served, request(served)))
    serve_probe.prove(served, request(served))
    assert serve_probe.moved(served, before, serve_probe.progress(served, request(served)))
    assert serve_probe.requests(served, request(served)) == 0


def test_its_metrics_and_its_answers_need_the_key(llama: Llama) -> None:
    api = {name: value for name, value in llama.made["api"].items() if name != "key_file"}
    served = llama.unit(api=api)
    assert serve_probe.progress(served, request(served)) == {}
    with pytest.raises(serve_probe.OwnFaultError, match="HTTP status 401"):
        serve_probe.prove(served, request(served))


def test_a_model_of_another_name_is_no_proof_though_the_server_answers_for_it(llama: Llama) -> None:
    answered = llama.unit(model="other", probe={"named": False})
    serve_probe.prove(answered, request(answered))
    served = llama.unit(model="other")
    with pytest.raises(serve_probe.OwnFaultError, match="/v1/models has qwen, expected other"):
        serve_probe.prove(served, request(served))


def test_the_context_of_a_sequence_is_the_declared_one(llama: Llama) -> None:
    served = llama.unit()
    status, content = request(served).send("GET", "/props", key=KEY)
    assert (status, b'"n_ctx":512' in content.replace(b" ", b"")) == (200, True), "and not a half of it"


POOLED = """
import json, sys, urllib.error, urllib.request
import xllamacpp
path, model, pooling, body = sys.argv[1:]
made = xllamacpp.CommonParams()
made.model.path, made.embedding, made.n_ctx, made.fit_params = model, True, 512, False
made.pooling_type = getattr(xllamacpp.llama_pooling_type, "LLAMA_POOLING_TYPE_" + pooling.upper())
made.hostnames, made.port = ["127.0.0.1"], 0
made.cpuparams.n_threads = made.cpuparams_batch.n_threads = made.n_threads_http = 1
server = xllamacpp.Server(made)
asked = urllib.request.Request(server.listening_address + path, body.encode(), {"Content-Type": "application/json"})
try:
    print(urllib.request.urlopen(asked).status)
except urllib.error.HTTPError as error:
    print(error.code)
"""


@pytest.mark.parametrize(
    ("kind", "pooling", "status"),
    [("embedding", "none", 400), ("embedding", "mean", 200), ("score", "mean", 501), ("score", "rank", 200)],
)
def test_a_pooling_that_is_refused_in_args_is_one_with_which_the_server_refuses_what_proves_the_kind(
    kind: str, pooling: str, status: int, tmp_path: Path
) -> None:
    declared: dict[str, Any] = {
        "engine": "llama.cpp",
        "version": "b11434",
        "nodes": ["n1"],
        "parallel": None,
        "memory": None,
        "kv": "1G",
        "gguf": "tiny.gguf",
        "kind": kind,
    }
    assert bool(refusals(text({"one": unit(**declared, args={"pooling": pooling})}))) == (status != 200)
    path, body, _ = request_of(served_units(loaded(text({"one": unit(**declared)})))["one"])
    tiny_gguf.write(tmp_path / "tiny.gguf")
    words = [path, str(tmp_path / "tiny.gguf"), pooling, json.dumps({"model": "qwen", **body})]
    done = subprocess.run([sys.executable, "-c", POOLED, *words], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(status)]
