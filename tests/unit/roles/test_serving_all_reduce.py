"""The all-reduce of `verify --bandwidth`: containers of the unit's image on each of its nodes, and the verdict."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from core.probes.protocol import UnknownError
from core.ssh.root_shell import UnreachableError
from core.util import resources
from core.verify.fabric_use import FabricUse
from core.verify.measurements import AllReduceMeasurement, Bandwidth, parse_measurement
from core.verify.reporter import CheckReporter
from serving import all_reduce, verify
from serving.options import served_units
from tests.unit.model.serving_racks import unit
from tests.unit.ops.shells import stand_in
from tests.unit.roles.serving_nodes import ServingNode, ServingWorld
from tests.unit.roles.serving_units import KEY
from tests.unit.roles.test_serving_proof import UnitMachine

KEPT = "var/lib/sparkrack/serve/collective"
DOCKER = """
case $1 in
ps) case $* in
    *--all*) cat @/left 2>/dev/null; [ ! -e @/leaving ] || { cat @/leaving; rm @/leaving; } ;;
    *) cat @/containers 2>/dev/null ;;
    esac; exit 0 ;;
run) echo "$*" >> @/ran; cat @/printed; [ ! -s @/printed-errors ] || { cat @/printed-errors >&2; exit 1; } ;;
logs) [ ! -e @/gone ] || { echo "Error response from daemon: No such container" >&2; exit 1; }
    cat @/printed @/printed-errors; echo ended ;;
rm) echo "$*" >> @/removed ;;
esac
"""


def prepare(node: ServingNode, gbytes: float = 10.9, networks: tuple[str, ...] = ("IB",), errors: str = "") -> None:
    """What the rank on a node prints."""
    result = {"gbytes": gbytes, "nccl": "2.28.9+cuda13.0", "networks": list(networks)}
    (node.root / "printed").write_text("" if errors else f"NCCL noise\n{json.dumps(result)}\n")
    (node.root / "printed-errors").write_text(errors)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ServingWorld:
    """A unit of two nodes with legs of 100G, which does not run."""
    monkeypatch.setenv("UNIT_KEY", KEY)
    made = ServingWorld(tmp_path, monkeypatch)
    made.write({"one": unit(api={"port": 8000, "key": {"env": "UNIT_KEY"}})})
    for node in made.nodes.values():
        stand_in(node.root, "docker", DOCKER.replace("@", str(node.root)))
        stand_in(node.root, "nvidia-smi", f"cat {node.root}/processes 2>/dev/null || true")
        prepare(node)
    return made


class Ended:
    """What a check reported."""

    def __init__(self, world: ServingWorld, folder: Path | None = None, **given: Any) -> None:
        self.properties: list[tuple[str, object]] = []
        names = list(world.rack.nodes)
        machines: dict[str, StateMachine] = {name: StateMachine(node) for name, node in world.nodes.items()}
        for name in given.pop("silent", ()):
            machines[name] = SilentMachine(world.nodes[name])
        arguments: dict[str, Any] = {"bandwidth": True, "excluded": frozenset(), **given}
        self.failure: Exception | None = None
        try:
            verify.test_an_all_reduce_over_the_ranks_is_as_fast_as_their_links(
                world.rack.nodes[names[0]],
                machines,
                world.rack,
                arguments["bandwidth"],
                arguments["excluded"],
                FabricUse(folder),
                CheckReporter(self.properties),
            )
        except (AssertionError, UnknownError) as error:
            self.failure = error

    def record(self) -> AllReduceMeasurement:
        """What the report gets."""
        (text,) = self.lines("measured")
        value = parse_measurement(text)
        assert isinstance(value, AllReduceMeasurement)
        return value

    def lines(self, kind: str) -> list[str]:
        return [str(text) for name, text in self.properties if name == kind]


class StateMachine(UnitMachine):
    """A machine whose state folder is in its folder, too."""

    def run(self, command: str) -> Any:
        return super().run(command.replace("/var/lib/sparkrack", f"{self.node.root}/var/lib/sparkrack"))


class SilentMachine(StateMachine):
    """A node that does not answer any more when its rank is to be begun."""

    def run(self, command: str) -> Any:
        if "docker run" in command or "docker rm" in command:
            raise UnreachableError(self.node.root.name, "no answer within 300 s")
        return super().run(command)


def wire(good: bool = True, gbps: float = 98.0) -> Bandwidth:
    return Bandwidth(
        halves=(0,),
        sender="n0",
        sender_devices=("enp1s0f1np1",),
        receiver="n1",
        gbps=(gbps,),
        least=80.0,
        verdict="healthy" if good else "stale ConnectX-7",
        good=good,
        reason="",
    )


def test_a_fast_all_reduce_is_a_note_beside_the_wire_and_is_kept(world: ServingWorld, tmp_path: Path) -> None:
    FabricUse(tmp_path).record(wire())
    ended = Ended(world, tmp_path)
    assert ended.failure is None, ended.failure
    (note,) = ended.lines("note")
    assert note == (
        "n0: unit one: all-reduce of 64 MiB 10.9 GB/s by NCCL 2.28.9+cuda13.0 over IB; ib_write_bw between its nodes "
        "98.0 Gbit/s a half"
    )
    (kept,) = (world.nodes["n0"].root / KEPT).iterdir()
    found = json.loads(kept.read_text())
    assert (found["unit"], found["ranks"], found["gbytes"]) == ("one", ["n0", "n1"], 10.9)
    assert kept.name == f"one.{found['image'].removeprefix('sha256:')[:12]}.json"


def test_the_report_has_both_figures_what_is_enough_and_what_is_kept(world: ServingWorld, tmp_path: Path) -> None:
    FabricUse(tmp_path).record(wire())
    first, second = Ended(world, tmp_path).record(), Ended(world, tmp_path).record()
    assert (first.name, first.nodes, first.size) == ("one", ("n0", "n1"), 64 << 20)
    assert (first.gbytes, first.least, first.wire, first.wire_verdict) == (10.9, 8.75, (98.0, 98.0), "healthy")
    assert first.wire_least == 80.0
    assert (first.slow, first.good, first.reason) == ("nothing", True, "")
    assert (first.nccl, first.networks) == ("2.28.9+cuda13.0", ("IB",))
    assert first.image == served_units(world.rack)["one"].image
    (kept,) = (world.nodes["n0"].root / KEPT).iterdir()
    assert first.image_id == json.loads(kept.read_text())["image"]
    assert (first.best, first.best_when) == (None, None)
    assert (second.best, second.best_when) == (10.9, json.loads(kept.read_text())["measured"])


@pytest.mark.parametrize(
    ("good", "slow", "verdict"),
    [(True, "all-reduce", "healthy"), (False, "wire", "n0 to n1: stale ConnectX-7"), (None, None, "not measured")],
)
def test_the_report_says_which_is_slow(
    world: ServingWorld, tmp_path: Path, good: bool | None, slow: str | None, verdict: str
) -> None:
    if good is not None:
        FabricUse(tmp_path).record(wire(good))
    for node in world.nodes.values():
        prepare(node, 3.04)
    found = Ended(world, tmp_path).record()
    assert (found.gbytes, found.good, found.slow, found.wire_verdict) == (3.04, False, slow, verdict)
    assert found.reason


def test_a_wire_that_was_measured_in_part_is_not_healthy(world: ServingWorld, tmp_path: Path) -> None:
    FabricUse(tmp_path).record(wire())
    missing = {"sender": "n1", "receiver": "n0", "gbps": (), "least": None, "verdict": "not measured", "good": None}
    FabricUse(tmp_path).record(wire().model_copy(update=missing))
    found = Ended(world, tmp_path).record()
    assert (found.wire, found.wire_verdict) == ((98.0, 98.0), "n1 to n0: not measured")
    assert (found.wire_good, found.slow, found.good) == (None, None, True)


def test_a_wire_is_not_healthy_while_that_of_a_rank_is_not_measured_yet() -> None:
    """The sessions of a verification measure in parallel: that of the head may be ready before another one begins."""
    found = all_reduce.wire_between([wire()], ("n0", "n1", "n2"))
    assert (found.good, found.verdict, found.gbps) == (None, "n2: not measured", (98.0,))
    assert all_reduce.wire_between([wire()], ("n0", "n1")).good
    assert all_reduce.wire_between([wire(good=False)], ("n0", "n1", "n2")).good is False


def test_the_report_says_why_nothing_was_measured(world: ServingWorld) -> None:
    idle = Ended(world, silent=["n0"])
    (world.nodes["n1"].root / "containers").write_text("unit sparkrack-one\n")
    for ended, why in (
        (Ended(world), "unit one runs on n1"),
        (Ended(world, excluded=frozenset({"n1"})), "n1 is excluded"),
        (idle, "n0: cannot be asked"),
    ):
        found = ended.record()
        assert found.reason.startswith(why)
        assert (found.gbytes, found.good, found.slow, found.nccl) == (None, None, None, None)


def test_a_record_that_cannot_be_read_is_not_compared_with(world: ServingWorld) -> None:
    Ended(world)
    (kept,) = (world.nodes["n0"].root / KEPT).iterdir()
    kept.write_text(json.dumps(json.loads(kept.read_text()) | {"gbytes": "fast"}))
    found = Ended(world)
    assert found.failure is None, found.failure
    assert found.record().best is None
    assert json.loads(kept.read_text())["gbytes"] == 10.9


def test_a_result_that_cannot_be_kept_is_reported_and_unknown(world: ServingWorld) -> None:
    place = world.nodes["n0"].root / KEPT
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text("a file\n")
    ended = Ended(world)
    assert ended.record().gbytes == 10.9
    assert "cannot be written" in str(ended.failure)


def test_what_a_container_prints_may_be_anything(world: ServingWorld) -> None:
    for nccl, networks in ((228, 7), ("2.28\u202e\x1b[1m", ["IB\n" * 40]), (None, None)):
        for node in world.nodes.values():
            result = {"gbytes": 10.9, "nccl": nccl, "networks": networks}
            (node.root / "printed").write_text(f"{json.dumps(result)}\n")
        ended = Ended(world)
        assert ended.failure is None, ended.failure
        found = ended.record()
        assert "\u202e" not in (found.nccl or "")
        assert all(len(one) <= 40 and "\n" not in one for one in found.networks)


def test_each_rank_runs_in_a_container_as_the_unit_s_without_its_key_and_none_is_left(world: ServingWorld) -> None:
    Ended(world)
    runs = {name: (node.root / "ran").read_text() for name, node in world.nodes.items()}
    for rank, (name, run) in enumerate(runs.items()):
        assert "--name sparkrack-one-collective" in run
        assert "--entrypoint python3" in run
        assert "--network host" in run
        assert "--device /dev/infiniband" in run
        assert f"/dev/null:{world.nodes[name].root}/etc/nccl.conf:ro" in run, "settings of the image count for nothing"
        assert "one.key" not in run
        assert KEY not in run
        assert f'"rank": {rank}, "ranks": 2' in run
        assert ("--detach" in run) == (rank > 0)
        assert "--rm" in run, "docker removes it when it ends"
        removed = (world.nodes[name].root / "removed").read_text().splitlines()
        assert removed == ["rm --force sparkrack-one-collective"] * 2, "before and after"


@pytest.mark.parametrize(
    ("good", "cause"),
    [(True, "the wire is healthy and NCCL is slow: take an image with"), (False, "the wire is slow: mend that first")],
)
def test_a_slow_all_reduce_fails_and_says_whether_the_wire_is_slow(
    world: ServingWorld, tmp_path: Path, good: bool, cause: str
) -> None:
    FabricUse(tmp_path).record(wire(good))
    prepare(world.nodes["n0"], 3.04)
    prepare(world.nodes["n1"], 3.05)
    ended = Ended(world, tmp_path)
    assert isinstance(ended.failure, AssertionError)
    assert "all-reduce of 64 MiB 3.0 GB/s" in str(ended.failure)
    assert "at least 8.8 GB/s are expected" in str(ended.failure)
    assert cause in str(ended.failure)
    assert not (world.nodes["n0"].root / KEPT).exists(), "a slow result is not kept"


def test_a_rank_that_uses_sockets_is_named_whatever_its_speed(world: ServingWorld) -> None:
    prepare(world.nodes["n1"], networks=("Socket",))
    ended = Ended(world)
    assert "NCCL of n1 uses sockets instead of RDMA" in str(ended.failure)


def test_a_result_below_the_kept_one_with_this_image_fails(world: ServingWorld) -> None:
    for node in world.nodes.values():
        prepare(node, 12.0)
    assert Ended(world).failure is None
    for node in world.nodes.values():
        prepare(node, 9.5)
    assert "with this image it was 12.0 GB/s on 20" in str(Ended(world).failure)
    (kept,) = (world.nodes["n0"].root / KEPT).iterdir()
    assert json.loads(kept.read_text())["gbytes"] == 12.0


def test_the_record_of_other_nodes_is_not_compared_with() -> None:
    text = json.dumps({"ranks": ["n0", "n1"], "gbytes": 20.0})
    assert all_reduce.kept_record(text, ["n0", "n1"]) == {"ranks": ["n0", "n1"], "gbytes": 20.0}
    assert all_reduce.kept_record(text, ["n0", "n2"]) is None


def test_nothing_is_measured_while_a_unit_runs(world: ServingWorld) -> None:
    (world.nodes["n1"].root / "containers").write_text("unit sparkrack-one\n")
    ended = Ended(world)
    assert ended.failure is None
    assert ended.lines("note")[0].startswith(
        "n0: unit one: no all-reduce: unit one runs on n1; `sparkrack serve stop one`"
    )
    assert not (world.nodes["n0"].root / "ran").exists()


def test_nothing_is_measured_while_a_process_uses_a_gpu(world: ServingWorld) -> None:
    (world.nodes["n0"].root / "processes").write_text("3411, python3\n")
    assert Ended(world).lines("note") == [
        "n0: unit one: no all-reduce: a process uses the GPU of n0: 3411, python3; end it"
    ]


def test_a_rank_without_a_result_is_unknown_with_its_last_words(world: ServingWorld) -> None:
    prepare(world.nodes["n1"], errors="Traceback\nModuleNotFoundError: No module named 'torch'\n")
    ended = Ended(world)
    assert isinstance(ended.failure, UnknownError)
    assert "docker of n1: ModuleNotFoundError: No module named 'torch'" in str(ended.failure)
    assert (world.nodes["n0"].root / "removed").read_text(), "no container is left"


@pytest.mark.parametrize("silent", ["n0", "n1"])
def test_a_silent_node_keeps_no_container_of_another_one(world: ServingWorld, silent: str) -> None:
    ended = Ended(world, silent=[silent])
    other = "n0" if silent == "n1" else "n1"
    removed = (world.nodes[other].root / "removed").read_text().splitlines()
    assert removed == ["rm --force sparkrack-one-collective"] * (2 if other == "n1" else 1), "n1 has begun its rank"
    assert isinstance(ended.failure, UnknownError)
    assert str(ended.failure) == (
        f"n0: unit one: no all-reduce: {silent}: cannot be asked: no answer within 300 s; sparkrack-one-collective of "
        f"{silent} may be left until it ends by itself: no answer within 300 s"
    )


def test_a_container_that_docker_does_not_remove_is_unknown_beside_the_result(world: ServingWorld) -> None:
    (world.nodes["n1"].root / "left").write_text("0123456789ab\n")
    stand_in(world.nodes["n1"].root, "sleep", "")
    ended = Ended(world)
    assert "all-reduce of 64 MiB 10.9 GB/s" in ended.lines("note")[0]
    assert str(ended.failure) == (
        "n0: unit one: sparkrack-one-collective of n1 may be left until it ends by itself: docker does not remove it"
    )


def test_a_container_that_docker_removes_by_itself_meanwhile_is_waited_for(world: ServingWorld) -> None:
    """`docker rm` of a container with --rm that has ended: "removal of container is already in progress"."""
    (world.nodes["n1"].root / "leaving").write_text("0123456789ab\n")
    ended = Ended(world)
    assert ended.failure is None, ended.failure


def test_the_cause_is_named_beside_the_ranks_that_waited_for_it(world: ServingWorld) -> None:
    """Also of a container that docker has removed, since its rank has ended by a signal."""
    prepare(world.nodes["n0"], errors="Timeout (0:02:30)!\n")
    (world.nodes["n1"].root / "gone").touch()
    assert str(Ended(world).failure) == (
        "n0: unit one: no all-reduce: the rank on n0 has no result: Timeout (0:02:30)!; "
        "the rank on n1 has no result: Error response from daemon: No such container"
    )


def test_a_rank_holds_its_error_until_it_is_read_and_ends_by_itself(tmp_path: Path) -> None:
    """The program as it runs in the image, in one without torch."""
    (tmp_path / "torch.py").write_text("raise ImportError('no torch here\\n\\nCompile with TORCH_USE_CUDA_DSA\\n')\n")
    text = resources.file_text("serving", "files/all_reduce.py")
    wanted = {"rank": 1, "ranks": 2, "limit": 30, "hold": 1, "bytes": 4, "backend": "nccl"}
    done = subprocess.run(
        [sys.executable, "-c", text, json.dumps(wanted)],
        env={"PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines()[-2:] == ["ImportError: no torch here", "ended"]
    assert done.returncode == 1
    with pytest.raises(ValueError, match=r"^ImportError: no torch here$"):
        all_reduce.parse_result(done.stdout)


def test_without_the_option_and_with_an_excluded_node_nothing_runs(world: ServingWorld) -> None:
    with pytest.raises(pytest.skip.Exception, match="is measured with --bandwidth"):
        Ended(world, bandwidth=False)
    ended = Ended(world, excluded=frozenset({"n1"}))
    assert ended.lines("note") == ["n0: unit one: no all-reduce: n1 is excluded"]
    assert not (world.nodes["n0"].root / "ran").exists()


def test_the_floor_is_a_share_of_the_slowest_rank_s_links(world: ServingWorld) -> None:
    assert all_reduce.enough(world.rack, served_units(world.rack)["one"].ranks(world.rack.nodes)) == 8.75


def test_what_is_no_result_is_refused() -> None:
    for text in ("", "{}", '{"gbytes": "19"}', '{"gbytes": 0.0}', '{"gbytes": Infinity}', "[1]"):
        with pytest.raises(ValueError, match=r"printed nothing|gbytes|\{\}|\[1\]"):
            all_reduce.parse_result(text)
