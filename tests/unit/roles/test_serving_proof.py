"""The proof of the role serving on nodes like real ones: it passes after a run, and each thing broken fails it."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from ipaddress import IPv4Network
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from core.model.lock_file import lock_path
from core.verify.reporter import CheckReporter
from serving import verify
from serving.allowed_addresses import rank_sources
from serving.options import served_units, serving_of
from tests.unit.model.serving_racks import unit
from tests.unit.ops.shells import stand_in
from tests.unit.roles.serving_nodes import ETC, ServingNode, ServingWorld
from tests.unit.roles.serving_units import KEY, locked

PROGRAMS = "usr/local/lib/sparkrack/serve"
FABRIC, INFINIBAND = "etc/sparkrack/fabric.env", "sys/class/infiniband"
COUNTERS = f"{INFINIBAND}/rocep1s0f1/ports/1/counters"


class Api(BaseHTTPRequestHandler):
    """An engine that answers as `answer`, `said`, `pooled` (by path) and `open_to_all` have it, and moves the counters
    of `devices`. `listed`: whether it has /v1/models. `refusal`: the status of what it refuses.
    """

    answer = "4"
    said = "It is 4."
    devices: ClassVar[list[Path]] = []
    open_to_all = False
    listed = True
    refusal = 401
    pooled: ClassVar[dict[str, Any]] = {}

    def do_GET(self) -> None:
        self._send_answer((200 if self._has_key() else self.refusal) if self.listed else 404, {})

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self._send_answer(
            200 if self._has_key() else self.refusal, self.pooled.get(self.path) or self._completion_text()
        )
        for device in self.devices:
            device.write_text(f"{int(device.read_text()) + 1}\n")

    def _completion_text(self) -> dict[str, Any]:
        return {"choices": [{"text": self.answer, "message": {"content": self.said}}]}

    def _has_key(self) -> bool:
        return self.open_to_all or self.headers["Authorization"] == f"Bearer {KEY}"

    def _send_answer(self, status: int, content: object) -> None:
        text = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_: object) -> None:
        pass


class UnitMachine:
    """The part of testinfra's host that verify uses, for a node in a folder."""

    def __init__(self, node: ServingNode) -> None:
        self.node = node
        self.commands: list[str] = []

    def run(self, command: str) -> SimpleNamespace:
        self.commands.append(command)
        own = command.replace("python3 -B -c", f"{sys.executable} -B -c")
        for part in (PROGRAMS, ETC, FABRIC, INFINIBAND):
            own = own.replace(f"/{part}", f"{self.node.root}/{part}")
        own = own.replace(
            f"{self.node.root}/{PROGRAMS}/serve_coordinator.py {self.node.root}/etc",
            f"serve_coordinator {self.node.root}/etc",
        )
        if "serve_probe" in own:
            text = self.node.path("one.json").read_text().replace(f"/{ETC}", f"{self.node.root}/{ETC}")
            (self.node.root / "ask.json").write_text(text)
            own = own.replace(str(self.node.path("one.json")), f"{self.node.root}/ask.json")
        done = self.node.shell(own)
        output = done.stdout.decode().replace(f"{self.node.root}/", "/").replace(self.node.owner, "root:root")
        return SimpleNamespace(rc=done.returncode, stdout=output, stderr=done.stderr.decode())


def listening(handler: type[Api]) -> ThreadingHTTPServer:
    """A server on a port that rack.yaml accepts: none that the kernel gives to outgoing connections."""
    for port in range(18000, 18400):
        with contextlib.suppress(OSError):
            return ThreadingHTTPServer(("127.0.0.1", port), handler)
    raise AssertionError("no port is free")


@pytest.fixture
def engine() -> Iterator[type[Api]]:
    handler = type("OwnApi", (Api,), {})
    server = listening(handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    handler.port = server.server_address[1]  # type: ignore[attr-defined]
    yield handler
    server.shutdown()
    server.server_close()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: Any) -> ServingWorld:
    """A unit that is ready, with its API on loopback."""
    return ready_world(tmp_path, monkeypatch, engine)


def ready_world(folder: Path, monkeypatch: pytest.MonkeyPatch, api: Any, **keys: Any) -> ServingWorld:
    """The same with other keys of the unit."""
    monkeypatch.setenv("UNIT_KEY", KEY)
    made = ServingWorld(folder, monkeypatch)
    probe = {"answer": {"ask": "2+2=", "say": "4"}, "limit": "5s"}
    made.write({"one": unit(api={"port": api.port, "key": {"env": "UNIT_KEY"}}, probe=probe, **keys)})
    ended = made.run()
    assert ended.failed == [], ended.log
    api.devices = []
    for node in made.nodes.values():
        ready(node)
        (node.root / FABRIC).write_text("NCCL_IB_HCA==rocep1s0f1\n")
        (node.root / COUNTERS).mkdir(parents=True)
        (node.root / COUNTERS / "port_xmit_data").write_text("7\n")
        (node.root / COUNTERS / "port_rcv_data").write_text("9\n")
        api.devices.append(node.root / COUNTERS / "port_xmit_data")
    return made


def ready(
    node: ServingNode, state: str = "ready", group: str = "/sparkrack.slice/sparkrack-one.slice/docker-1"
) -> None:
    """What systemctl, docker and the coordinator answer on it."""
    stand_in(
        node.root, "systemctl", f"case $1 in is-active) cat {node.root}/active ;; *) cat {node.root}/enabled ;; esac"
    )
    (node.root / "active").write_text("active\n")
    (node.root / "enabled").write_text("enabled\n")
    stand_in(node.root, "serve_coordinator", f"""echo '{{"state": "{state}", "reason": "a rank ended"}}'""")
    stand_in(node.root, "docker", "echo 77")
    (node.root / "proc/77").mkdir(parents=True, exist_ok=True)
    (node.root / "proc/77/cgroup").write_text(f"0::{group}\n")


def failures(world: ServingWorld) -> list[str]:
    machines = {name: UnitMachine(node) for name, node in world.nodes.items()}
    found: list[str] = []

    def check(test: Callable[..., None], *arguments: object) -> None:
        try:
            test(*arguments)
        except AssertionError as error:
            found.append(str(error).splitlines()[0])
        except pytest.skip.Exception:
            pass

    for name, machine in machines.items():
        node = world.rack.nodes[name]
        for test in (
            verify.test_the_programs_are_those_of_this_release,
            verify.test_the_files_are_those_of_the_rack,
            verify.test_secrets_are_readable_by_root_only,
            verify.test_agent_and_coordinator_run_and_start_at_boot,
            verify.test_each_unit_is_up_or_down_as_declared,
            verify.test_each_unit_answers_as_its_kind_asks,
            verify.test_each_rank_is_in_its_slice,
        ):
            check(test, node, machine, world.rack, CheckReporter([]))
        check(
            verify.test_all_nodes_of_a_unit_share_its_lease_secret,
            node,
            machines,
            machine,
            world.rack,
            frozenset[str](),
        )
        check(
            verify.test_the_ranks_of_each_unit_use_rdma,
            node,
            machines,
            machine,
            world.rack,
            frozenset[str](),
            CheckReporter([]),
        )
        assert not [command for command in machine.commands if KEY in command]
    return found


def test_nodes_that_are_right(world: ServingWorld) -> None:
    assert failures(world) == []


@pytest.mark.parametrize(
    ("break_it", "line"),
    [
        (
            lambda n0, _: (n0.root / PROGRAMS / "serve_start_gate.py").write_text("x"),
            f"n0: /{PROGRAMS}/serve_start_gate.py is",
        ),
        (lambda n0, _: (n0.root / PROGRAMS / "serve-run.sh").unlink(), f"n0: /{PROGRAMS}/serve-run.sh is missing"),
        (lambda _, n1: n1.path("one.args").chmod(0o666), f"n1: /{ETC}/one.args is 666 root:root"),
        (lambda _, n1: n1.path("one.secret").chmod(0o604), f"n1: /{ETC}/one.secret is 604 root:root, wanted 600"),
        (lambda _, n1: n1.path("one.token").write_text("x"), f"n1: /{ETC}/one.token is 644 root:root, wanted missing"),
        (lambda n0, _: (n0.root / ETC).chmod(0o755), f"n0: /{ETC} is 755 root:root, wanted 700"),
        (lambda _, n1: n1.path("one.secret").write_text("x"), f"n1: /{ETC}/one.secret is not that of n0"),
        (lambda _, n1: (n1.root / "active").write_text("failed\n"), "n1: sparkrack-serve-one-agent.service is failed"),
        (
            lambda n0, _: (n0.root / "enabled").write_text("disabled\n"),
            "n0: sparkrack-serve-one-agent.service is acti",
        ),
        (lambda n0, _: ready(n0, "held"), "n0: unit one is held (a rank ended), wanted ready or busy"),
        (lambda _, n1: ready(n1, group="/system.slice/x"), "n1: container sparkrack-one is in /system.slice/x, wanted"),
        (lambda _, n1: stand_in(n1.root, "docker", "exit 1"), "n1: container sparkrack-one: it does not run"),
    ],
)
def test_each_thing_broken(world: ServingWorld, break_it: Callable[..., object], line: str) -> None:
    break_it(*world.nodes.values())
    found = failures(world)
    assert len(found) == 1, found
    assert found[0].startswith(line)


@pytest.mark.parametrize(
    ("rc", "shown", "said"),
    [
        (0, "ray, version 2.60.0", "n0: unit one: Ray 2.60.0 asks for the token"),
        (0, "ray, version 2.52.1", "n0: unit one: Ray 2.52.1 asks for the token"),
        (0, "ray, version 2.51.9", "n0: unit one: Ray 2.51.9 asks for no token"),
        (127, "", "n0: unit one: the image does not say which Ray it has"),
    ],
)
def test_the_ray_of_an_image_says_whether_it_asks_for_the_token(rc: int, shown: str, said: str) -> None:
    rack = locked(unit(engine="vllm-ray")).rack
    kept: list[tuple[str, object]] = []
    machine: Any = SimpleNamespace(run=lambda _: SimpleNamespace(rc=rc, stdout=shown, stderr=""))
    verify.test_ray_of_the_image_asks_for_the_token(rack.nodes["n0"], machine, rack, CheckReporter(kept))
    ((kind, text),) = kept
    assert (kind, str(text).startswith(said)) == ("note", True), text


@pytest.mark.parametrize(("guarded", "status"), [(True, 401), (False, 200)])
def test_what_answers_past_the_gateway_is_said_and_is_no_fault(
    world: ServingWorld, engine: type[Api], monkeypatch: pytest.MonkeyPatch, guarded: bool, status: int
) -> None:
    def answer(api: Api) -> None:
        assert (api.path, api.headers["Authorization"]) == ("/invocations", None)
        api.send_response(401 if guarded else 200)
        api.end_headers()

    monkeypatch.setattr(engine, "do_POST", answer)
    serving = serving_of(world.rack)
    assert serving
    one = serving.units["one"]
    # The engine of this test listens on loopback, where rack.yaml refuses `direct`.
    api = one.api.model_copy(update={"direct": (IPv4Network("10.9.0.0/16"),)})
    units = {"one": one.model_copy(update={"api": api})}
    rack = world.rack.model_copy(update={"serving": serving.model_copy(update={"units": units})})
    said: list[tuple[str, object]] = []
    machine: Any = UnitMachine(world.nodes["n0"])
    verify.test_what_answers_past_the_gateway_without_a_key(rack.nodes["n0"], machine, rack, CheckReporter(said))
    ((kind, text),) = said
    assert kind == "note"
    assert f"HTTP status {status}" in str(text)
    assert ("answers 10.9.0.0/16 without a key" in str(text)) is not guarded


def test_another_answer(world: ServingWorld, engine: type[Api]) -> None:
    engine.answer = "five"
    fault = "n0: unit one: the answer is 'five', expected '4' at its beginning"
    assert failures(world) == [fault, fault]


def test_a_program_that_is_missing_on_the_head_is_the_reason_of_each_check_that_asks_the_unit(
    world: ServingWorld,
) -> None:
    (world.nodes["n0"].root / PROGRAMS / "serve_answers.py").unlink()
    fault = "n0: unit one: ModuleNotFoundError: No module named 'serve_answers'"
    assert failures(world) == [f"n0: /{PROGRAMS}/serve_answers.py is missing", fault, fault]


def test_garbage_in_chat(world: ServingWorld, engine: type[Api]) -> None:
    engine.said = "lockhandlehandlehandlehandle"
    assert failures(world)[0].startswith("n0: unit one: the chat completion is 'lockhandle")


def test_a_unit_that_pools_is_asked_for_its_kind_and_what_was_proven_is_said(
    world: ServingWorld, engine: type[Api]
) -> None:
    vectors = [[1.0, 0.1], [1.0, 0.2], [0.0, 1.0]]
    engine.pooled = {
        "/v1/embeddings": {"data": [{"index": place, "embedding": one} for place, one in enumerate(vectors)]},
        "/v1/rerank": {"results": [{"index": 1, "relevance_score": 0.9}, {"index": 0, "relevance_score": 0.1}]},
    }
    head, said = world.rack.nodes["n0"], []
    words = {
        "chat": "a completion gave the known answer, a chat completion gave a clean text",
        "embedding": "three embeddings of 2 numbers, the near pair nearer",
        "score": "a ranking with the right document first",
    }
    file = world.nodes["n0"].path("one.json")
    for kind in words:
        file.write_text(
            json.dumps({**(declared := json.loads(file.read_text())), "probe": {**declared["probe"], "kind": kind}})
        )
        machine: Any = UnitMachine(world.nodes["n0"])
        kept: list[tuple[str, object]] = []
        verify.test_each_unit_answers_as_its_kind_asks(head, machine, world.rack, CheckReporter(kept))
        said += kept
    assert said == [("note", f"n0: unit one: {found}") for found in words.values()]
    engine.pooled["/v1/rerank"] = [{"index": 0, "score": 0.5}, {"index": 1, "score": 0.5}]
    with pytest.raises(
        AssertionError, match=r"n0: unit one: the right document has the score 0\.5, the wrong one 0\.5"
    ):
        verify.test_each_unit_answers_as_its_kind_asks(head, machine, world.rack, CheckReporter([]))


def test_ranks_that_do_not_use_rdma(world: ServingWorld, engine: type[Api]) -> None:
    del engine.devices[1]
    assert failures(world) == [
        "n1: unit one: the ranks do not use RDMA: rocep1s0f1 moved 0 bytes during a request",
    ]


def test_counters_that_cannot_be_read(world: ServingWorld) -> None:
    (world.nodes["n1"].root / COUNTERS / "port_rcv_data").unlink()
    assert failures(world)[0].startswith("the counters of rocep1s0f1 cannot be read: cat: ")


@pytest.mark.parametrize("refusal", [401, 403])
def test_a_custom_engine_without_a_list_of_models_is_asked_for_what_proves_its_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, engine: Any, refusal: int
) -> None:
    engine.listed, engine.refusal = False, refusal
    custom = {"command": ["serve", "{host}:{port}", "{rank}"], "key": {"option": "--key"}, "weights": "60G"}
    world = ready_world(tmp_path, monkeypatch, engine, engine="custom", version="1", memory=None, custom=custom)
    assert failures(world) == []
    engine.open_to_all = True
    (found,) = failures(world)
    assert "without the key /v1/completions has HTTP status 200, wanted 401 or 403" in found
    assert "with another key /v1/completions has HTTP status 200, wanted 401 or 403" in found


def test_an_engine_that_is_open(world: ServingWorld, engine: type[Api]) -> None:
    engine.open_to_all = True
    (found,) = failures(world)
    assert "without the key /v1/models has HTTP status 200, wanted 401" in found
    assert "with another key /v1/models has HTTP status 200, wanted 401" in found


@pytest.mark.parametrize(
    ("failing", "line"),
    [
        ("python3", "n0: sparkrack-one.slice: bpf: not permitted"),
        ("systemctl", "n0: Failed to connect to bus"),
        ("", ""),
    ],
)
def test_a_kernel_that_cannot_be_asked_whom_it_lets_reach_a_rank_is_a_fault(
    world: ServingWorld, failing: str, line: str
) -> None:
    allowed = ["127.0.0.0/8", "::1/128", *map(str, rank_sources(world.rack, served_units(world.rack)["one"], "n0"))]
    shown = f"IPAddressAllow={' '.join(allowed)}\nIPAddressDeny=0.0.0.0/0 ::/0\n"
    errors = {"systemctl": "Failed to connect to bus", "python3": "Traceback\nbpf: not permitted"}

    def run(command: str) -> SimpleNamespace:
        program = command.split()[0]
        if program == failing:
            return SimpleNamespace(rc=1, stdout="", stderr=errors[program])
        return SimpleNamespace(rc=0, stdout=shown if program == "systemctl" else "1 /\n", stderr="")

    def check() -> None:
        machine = SimpleNamespace(run=run)
        verify.test_the_kernel_closes_each_rank_to_other_machines(
            world.rack.nodes["n0"], machine, world.rack, CheckReporter([])
        )

    if not failing:
        check()
        return
    with pytest.raises(AssertionError) as caught:
        check()
    assert str(caught.value).splitlines()[0] == line


def test_what_the_lock_file_lacks_is_the_reason_why_no_file_can_be_judged(world: ServingWorld) -> None:
    lock_path(world.rack.source).unlink()
    found = failures(world)
    assert any(line.startswith("n0: ") and "lock file" in line for line in found), found
