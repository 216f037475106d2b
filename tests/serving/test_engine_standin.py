"""The stand-ins alone: for vLLM, which fails as 0.32 was measured to fail, for SGLang and Ray; the other tests of this
folder, and those of the lab, rest on them."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from core.util.project_files import PACKAGES
from lab.images import ENGINE as INSIDE
from lab.images import ENGINE_FILES
from serving.engines.bench_tool import BenchCase, BenchTarget
from serving.engines.vllm.bench import BENCH
from tests.contact.nodes import free_port
from tests.serving.engines import ENGINE
from tests.serving.serving_rack import PATIENCE, freeze


class LoneEngine:
    """Two ranks on loopback, without coordinator and agent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.api, self.master = free_port(), free_port()
        self.ranks: list[subprocess.Popen[bytes]] = []

    def start(self, rank: int, timeout: float = 60.0) -> subprocess.Popen[bytes]:
        words = ["serve", "toy", "--nnodes", "2", "--node-rank", str(rank), "--master-addr", "127.0.0.1"]
        words += ["--master-port", str(self.master), "--port", str(self.api), *(["--headless"] if rank else [])]
        words += ["--distributed-timeout-seconds", str(timeout)]
        environment = {"STANDIN_SHM": str(self.folder), "STANDIN_GRACE_SECONDS": "0.5", "STANDIN_STOP_SECONDS": "0.5"}
        started = subprocess.Popen(
            [sys.executable, str(ENGINE), *words],
            env={**os.environ, **environment},
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.ranks.append(started)
        return started

    def get(self, path: str) -> int:
        """The status of a path; 0 when nothing answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.api}{path}", timeout=PATIENCE) as answer:
                return int(answer.status)
        except OSError:
            return 0

    def computes(self) -> bool:
        """Whether the head waits for the answer of a rank to a request."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.api}/metrics", timeout=PATIENCE) as answer:
            return b'num_requests_running{engine="0"} 1.0' in answer.read()

    def both(self) -> tuple[subprocess.Popen[bytes], subprocess.Popen[bytes]]:
        head, other = self.start(0), self.start(1)
        wait(lambda: self.get("/health") == 200)
        return head, other


def wait(reached: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE
    while not reached():
        assert time.monotonic() < until
        time.sleep(0.05)


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[LoneEngine]:
    made = LoneEngine(tmp_path)
    try:
        yield made
    finally:
        for rank in made.ranks:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(rank.pid, signal.SIGKILL)
            rank.wait()


def test_health_is_200_beside_a_dead_rank_whose_code_is_0(engine: LoneEngine) -> None:
    _, other = engine.both()
    child = Path(f"/proc/{other.pid}/task/{other.pid}/children").read_text().split()[0]
    os.kill(int(child), signal.SIGKILL)
    assert other.wait(PATIENCE) == 0
    assert engine.get("/health") == 200


def test_a_headless_rank_outlives_its_head_which_leaves_its_shared_memory(engine: LoneEngine) -> None:
    head, other = engine.both()
    assert len(list(engine.folder.iterdir())) == 2
    os.killpg(head.pid, signal.SIGKILL)
    head.wait()
    time.sleep(2)  # several times the grace that a rank has
    assert other.poll() is None
    other.terminate()
    assert other.wait(PATIENCE) == 0
    assert [file.name for file in engine.folder.iterdir()] == [f"standin_{head.pid}"]


def test_a_head_that_waits_for_a_rank_leaves_its_shared_memory(engine: LoneEngine) -> None:
    head, other = engine.both()
    children = Path(f"/proc/{other.pid}/task/{other.pid}/children").read_text().split()
    freeze(int(children[0]))
    body = b'{"model": "toy", "prompt": "2+2="}'
    asked = socket.create_connection(("127.0.0.1", engine.api))
    asked.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    wait(engine.computes)
    assert engine.get("/health") == 200
    head.terminate()
    assert head.wait(PATIENCE) == 0
    asked.close()
    assert (engine.folder / f"standin_{head.pid}").exists()


def test_a_missing_rank_is_a_failure_to_start(engine: LoneEngine) -> None:
    assert engine.start(0, timeout=1.0).wait(PATIENCE) == 1


class ImageEngine:
    """The files of an image's engine in a folder, and processes of it on loopback."""

    def __init__(self, folder: Path, engine: str, version: str) -> None:
        self.api, self.port = free_port(), free_port()
        self.folder = folder
        self.programs = folder / INSIDE
        self.started: list[subprocess.Popen[str]] = []
        for place, path in ENGINE_FILES.items():
            (folder / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(PACKAGES / path, folder / place)
        (self.programs / "release.json").write_text(json.dumps({"engine": engine, "version": version}))

    def start(self, program: str, *words: str, **variables: str) -> subprocess.Popen[str]:
        (self.folder / "shm").mkdir(exist_ok=True)
        known = {
            "STANDIN_SHM": str(self.folder / "shm"),
            "STANDIN_GRACE_SECONDS": "0.5",
            "STANDIN_STOP_SECONDS": "0.1",
            "STANDIN_RAY_LOST_SECONDS": "0.5",
            "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0",
            "RAY_TMPDIR": str(self.folder),
        }
        started = subprocess.Popen(
            [sys.executable, str(self.programs / program), *words],
            env={**os.environ, **known, **variables},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.started.append(started)
        return started

    def ask(self, path: str, body: object = None, key: str = "") -> tuple[int, str]:
        """The status of a path and the answer; 0 when nothing answers."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        try:
            request = urllib.request.Request(f"http://127.0.0.1:{self.api}{path}", data, headers)
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:  # noqa: S310 - of this test
                return int(answer.status), answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""


@pytest.fixture
def image(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[ImageEngine]:
    made = ImageEngine(tmp_path, *request.param)
    try:
        yield made
    finally:
        for one in made.started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(one.pid, signal.SIGKILL)
            one.wait()


VLLM, SGLANG = ("vllm", "0.19.0"), ("sglang", "0.5.12")
QUESTION = {"model": "toy", "prompt": "2+2=", "max_tokens": 8}


@pytest.mark.parametrize(
    ("image", "words", "reason"),
    [
        (VLLM, ["serve", "toy", "--prefix-caching", "true"], "--prefix-caching is not an option of vLLM 0.19.0"),
        (VLLM, ["serve", "toy", "--max-num-seqs", "many"], "--max-num-seqs takes a whole number"),
        (VLLM, ["sglang", "--model-path", "toy"], "the image has vllm, not sglang"),
        (SGLANG, ["sglang", "--model-path", "toy", "--cuda-graph-max-bs-decode=8"], "since 0.5.15"),
        (SGLANG, ["sglang", "--model-path", "/models/none"], "/models/none has no config.json"),
        (
            VLLM,
            ["serve", "toy", "--speculative-config", '{"method": "eagle", "model": "/models/draft"}'],
            "/models/draft: no such file or folder",
        ),
        (VLLM, ["serve", "toy", "--chat-template=/workspace/t.jinja"], "/workspace/t.jinja: no such file or folder"),
    ],
    indirect=["image"],
)
def test_an_image_refuses_what_its_release_does_not_take(image: ImageEngine, words: list[str], reason: str) -> None:
    refused = image.start("engine_standin.py", *words)
    _, errors = refused.communicate(timeout=PATIENCE)
    assert (refused.returncode, reason in errors) == (2, True), errors


@pytest.mark.parametrize("image", [SGLANG], indirect=True)
def test_sglang_joins_its_ranks_and_takes_its_key_from_a_file(image: ImageEngine) -> None:
    options = image.folder / "key.yaml"
    options.write_text('api-key: "sk-quiet"\n')
    common = ["sglang", "--model-path", "toy", "--tp-size", "2", "--nnodes", "2", "--context-length", "4096"]
    common += ["--dist-init-addr", f"127.0.0.1:{image.port}"]
    listen = ["--host", "127.0.0.1", "--port", str(image.api), "--config", str(options)]
    head = image.start("engine_standin.py", *common, "--node-rank", "0", *listen, STANDIN_EXECUTE_SECONDS="1")
    dummy = free_port()
    other = image.start("engine_standin.py", *common, "--node-rank", "1", "--port", str(dummy))
    wait(lambda: image.ask("/health")[0] == 200)
    assert image.ask("/v1/completions", QUESTION)[0] == 401
    assert '"text": "4' in image.ask("/v1/completions", QUESTION, "sk-quiet")[1]
    assert image.ask("/metrics")[0] == 404, "without --enable-metrics"
    with urllib.request.urlopen(f"http://127.0.0.1:{dummy}/health", timeout=PATIENCE) as answer:
        assert answer.status == 200
    os.killpg(other.pid, signal.SIGKILL)
    assert image.ask("/v1/completions", QUESTION, "sk-quiet")[0] == 500
    assert head.wait(PATIENCE) == 137


def start_ray(image: ImageEngine) -> tuple[subprocess.Popen[str], subprocess.Popen[str]]:
    """A node and the head of Ray."""
    place = f"127.0.0.1:{image.port}"
    node = image.start("ray_standin.py", "start", "--block", f"--address={place}", "--node-ip-address=127.0.0.1")
    head = ["start", "--head", "--node-ip-address=127.0.0.1", f"--port={image.port}", "--include-dashboard=false"]
    started = image.start("ray_standin.py", *head)
    assert started.wait(PATIENCE) == 0
    return node, started


@pytest.mark.parametrize("image", [VLLM], indirect=True)
def test_vllm_on_ray_waits_for_a_node_for_each_rank(image: ImageEngine) -> None:
    node, _ = start_ray(image)
    serve = ["serve", "toy", "--tensor-parallel-size", "2", "--distributed-executor-backend", "ray"]
    serve += ["--host", "127.0.0.1", "--port", str(image.api)]
    head = image.start("engine_standin.py", *serve)
    wait(lambda: image.ask("/health")[0] == 200)
    assert '"text": "4' in image.ask("/v1/completions", QUESTION)[1]
    os.killpg(node.pid, signal.SIGKILL)
    assert image.ask("/v1/completions", QUESTION)[0] == 500
    assert head.wait(PATIENCE) == 0


@pytest.mark.parametrize("image", [VLLM], indirect=True)
def test_vllm_on_ray_does_not_start_with_too_few_nodes(image: ImageEngine) -> None:
    start_ray(image)
    serve = ["serve", "toy", "--pipeline-parallel-size", "3", "--distributed-executor-backend", "ray"]
    serve += ["--distributed-timeout-seconds", "1"]
    assert image.start("engine_standin.py", *serve).wait(PATIENCE) == 1


@pytest.mark.parametrize("image", [VLLM], indirect=True)
@pytest.mark.parametrize("ending", ["head", "TERM"])
def test_a_node_of_ray_ends_when_its_head_is_gone_or_when_asked(image: ImageEngine, ending: str) -> None:
    node, head = start_ray(image)
    assert node.stdout
    assert "joined" in node.stdout.readline()
    if ending == "head":
        os.killpg(head.pid, signal.SIGKILL)
    else:
        node.terminate()
    assert node.wait(PATIENCE) == (1 if ending == "head" else 0)


@pytest.mark.parametrize("image", [VLLM], indirect=True)
def test_the_measuring_tool_of_an_image_measures_its_engine(image: ImageEngine) -> None:
    image.start("engine_standin.py", "serve", "toy", "--port", str(image.api), STANDIN_TUNED="0.2", VLLM_API_KEY="sk-q")
    wait(lambda: image.ask("/health")[0] == 200)
    target = BenchTarget(VLLM[1], f"http://127.0.0.1:{image.api}", "/models/toy", "toy", {})
    case, result = BenchCase(concurrency=2, input_tokens=1024), image.folder / "result.json"
    command = BENCH.command(target, case, str(result), seed=1)
    assert image.start("engine_standin.py", *command[1:], OPENAI_API_KEY="sk-q").wait(PATIENCE) == 0
    figures = BENCH.figures(result.read_text(), case)
    assert figures.ttft_median_ms >= 200, "each answer takes 0.2 s"
    assert figures.output_throughput <= case.concurrency * case.output_tokens / 0.2
    refused = image.start("engine_standin.py", *command[1:], OPENAI_API_KEY="sk-wrong")
    assert (refused.communicate(timeout=PATIENCE)[1].strip(), refused.returncode) == (
        "no request was answered: HTTP Error 401: Unauthorized",
        1,
    )
