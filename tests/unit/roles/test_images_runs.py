"""Whole runs on nodes with an engine that is none: who pulls, who takes from whom, what the lock file says after."""

from __future__ import annotations

from functools import partial

import pytest
from pyinfra.api.config import Config

from core.model import image_lock
from core.model.image_lock import ImageNccl, Pin
from tests.unit.model.racks import ring
from tests.unit.ops import fakenode
from tests.unit.roles.dockers import Held, Workdir
from tests.unit.roles.images_runs import PINNED, A, B, C, D, X, all_have, fetched, lock, pin, rack, write


@pytest.mark.parametrize("mode", ["yes", "asked"])
def test_one_pulls_the_others_take_it_over_the_fabric(workdir: Workdir, mode: str) -> None:
    world = workdir.world(rack(8))
    world.registry[X] = (A, D)
    ended = workdir.run(world, mode)
    assert ended.failed == [], ended.log
    assert all_have(world, A)
    pulls = {name: ways for name, ways in fetched(world).items() if ways[0].startswith("pull")}
    assert pulls == {"n0": [f"pull {X}"]}
    assert all(way.startswith("copy 192.168.100.") for ways in fetched(world).values() for way in ways[1:])
    assert world.most <= 2, "no more than two take from one at a time"
    assert world.passed_on, "a node that receives the image passes it on"
    assert lock(workdir) == {X: pin(D, A)}
    assert "scitrera/x:1 from n0: 5 of 50 MB" in ended.log
    assert "scitrera/x:1 from outside: " in ended.log


def test_a_second_run_finds_nothing_to_do(workdir: Workdir) -> None:
    world = workdir.world(rack())
    world.registry[X] = (A, D)
    workdir.run(world)
    before = (workdir.folder / "rack.lock.json").stat().st_mtime_ns
    for docker in world.dockers.values():
        docker.sent.clear()
    again = workdir.run(world)
    assert (again.failed, [docker.sent for docker in world.dockers.values()]) == ([], [[], []])
    assert (workdir.folder / "rack.lock.json").stat().st_mtime_ns == before
    assert workdir.run(world, "dry").changing == 0


def test_a_dry_run_touches_nothing(workdir: Workdir) -> None:
    world = workdir.world(rack())
    ended = workdir.run(world, "dry")
    assert ended.changing == 2
    assert "pull scitrera/x:1 on n0" in ended.log
    assert "copy scitrera/x:1 from n0 (fabric)" in ended.log
    assert not any(docker.sent for docker in world.dockers.values())
    assert [path.name for path in workdir.folder.iterdir()] == ["rack.yaml"]


def test_what_the_nodes_agree_on_is_recorded_and_spread_without_a_pull(workdir: Workdir) -> None:
    held = {"n1": {A: Held({X})}, "n2": {A: Held({X}, ("scitrera/x", D))}}
    world = workdir.world(rack(3), **held)
    ended = workdir.run(world)
    assert ended.failed == [], ended.log
    assert list(fetched(world)) == ["n0"]
    assert lock(workdir) == {X: pin(D, A)}


def test_the_same_everywhere_is_only_recorded(workdir: Workdir) -> None:
    world = workdir.world(rack(), n0={A: Held({X})}, n1={A: Held({X})})
    assert workdir.run(world, "dry").changing == 1
    assert workdir.run(world).failed == []
    assert fetched(world) == {}
    assert lock(workdir) == {X: pin(None, A)}


def test_the_lock_file_is_asked_for_by_digest(workdir: Workdir) -> None:
    write(workdir, x=pin(D, A))
    world = workdir.world(rack())
    world.registry[f"scitrera/x@{D}"] = (A, D)
    world.registry[X] = (B, C)
    ended = workdir.run(world)
    assert ended.failed == [], ended.log
    assert fetched(world)["n0"] == [f"pull scitrera/x@{D}"]
    assert all_have(world, A)


def test_another_image_that_took_the_name(workdir: Workdir) -> None:
    write(workdir, x=pin(D, A))
    world = workdir.world(rack(), n0={A: Held({X})}, n1={B: Held({X}), A: Held()})
    ended = workdir.run(world)
    assert ended.failed == [], ended.log
    assert fetched(world) == {}
    assert "scitrera/x:1: bbbbbbbbbbbb -> aaaaaaaaaaaa (the old one stays without a name)" in ended.log
    assert all_have(world, A)
    assert world.dockers["n1"].held[B] == Held(set())


def test_another_image_and_the_right_one_gone(workdir: Workdir) -> None:
    write(workdir, x=pin(D, A))
    world = workdir.world(rack(), n0={A: Held({X})}, n1={B: Held({X})})
    assert workdir.run(world).failed == []
    assert (fetched(world), all_have(world, A)) == ({"n1": ["copy 192.168.100.1"]}, True)


def test_one_pinned_by_digest_has_a_name_on_every_node(workdir: Workdir) -> None:
    world = workdir.world(rack(2, PINNED))
    world.registry[PINNED] = (A, D)
    assert workdir.run(world).failed == []
    assert all_have(world, A, f"scitrera/x:{'d' * 12}")
    assert lock(workdir) == {PINNED: pin(D, A)}


def test_around_a_ring(workdir: Workdir) -> None:
    world = workdir.world(ring(5, [0] * 5) + f"images: ['{X}']\n", n0={A: Held({X})})
    ended = workdir.run(world)
    assert ended.failed == [], ended.log
    assert all_have(world, A)
    assert all(way.startswith("copy 10.100.") for ways in fetched(world).values() for way in ways)


def test_nodes_that_are_not_in_the_run_are_not_waited_for(workdir: Workdir) -> None:
    write(workdir, x=pin(D, A))
    world = workdir.world(rack(3), n0={A: Held({X})})
    world.registry[f"scitrera/x@{D}"] = (A, D)
    assert workdir.run(world, only=("n1", "n2")).failed == []
    assert fetched(world)["n1"] == [f"pull scitrera/x@{D}"]


def test_two_images_and_an_entry_that_is_dropped(workdir: Workdir) -> None:
    image_lock.write(workdir.folder / "rack.lock.json", {"old:1": pin(D, C)})
    world = workdir.world(rack(2, X, "other:1"), n1={B: Held({"other:1"})})
    world.registry[X] = (A, D)
    ended = workdir.run(world)
    assert ended.failed == [], ended.log
    assert lock(workdir) == {X: pin(D, A), "other:1": pin(None, B)}


def test_a_head_that_does_not_begin_is_not_waited_for_for_ever(workdir: Workdir) -> None:
    """As with --parallel 1: its turn comes when the others are done."""
    world = workdir.world(rack())
    world.registry[X] = (A, D)
    workdir.patch.setattr(fakenode, "Config", partial(Config, PARALLEL=1))
    ended = workdir.run(world, only=("n1", "n0"), grace=0.05)
    assert ended.failed == [], ended.log
    # pyinfra takes hosts in no particular order; the head is the first of them in half of the runs.
    late_head = {"n1": [f"pull {X}"], "n0": ["copy 192.168.100.2"]}
    assert fetched(world) in (late_head, {"n0": [f"pull {X}"], "n1": ["copy 192.168.100.1"]})
    assert all_have(world, A)


def test_the_first_node_that_has_an_image_asks_what_it_has_of_nccl(workdir: Workdir) -> None:
    world = workdir.world(rack(3))
    world.registry[X] = (A, D)
    world.nccl[A] = (0, ["/etc/nccl.conf: NCCL_IB_USE_INLINE=1", "nccl: 2.28.9 wheel"])
    ended = workdir.run(world)
    assert ended.failed == [], ended.log
    assert lock(workdir) == {X: Pin(D, A, ImageNccl("2.28.9", "wheel", ("NCCL_IB_USE_INLINE=1",)))}
    assert [name for name, docker in world.dockers.items() if docker.asked_nccl] == ["n0"]
    assert "scitrera/x:1: NCCL 2.28.9 (wheel)" in ended.log
    assert "nccl.2-28-9-wheel" in ended.log, "a known fault is reported before a unit starts"


def test_an_image_of_an_older_lock_file_is_asked_once_by_a_node_that_has_it(workdir: Workdir) -> None:
    write(workdir, x=Pin(D, A))
    world = workdir.world(rack(3), n1={A: Held({X})}, n2={A: Held({X})})
    plan = workdir.run(world, "dry")
    assert "record scitrera/x:1 with its NCCL in rack.lock.json" in plan.log
    assert not any(docker.sent for docker in world.dockers.values())
    assert workdir.run(world).failed == []
    assert lock(workdir) == {X: pin(D, A)}
    assert [name for name, docker in world.dockers.items() if docker.asked_nccl] == ["n1"]
    assert workdir.run(world, "dry").changing == 0


@pytest.mark.parametrize(
    ("code", "printed", "found"),
    [
        (127, [], ImageNccl(None, None, None)),
        (0, [], ImageNccl(None, None, ())),
        (0, ["nccl: -1.99.99 wheel"], ImageNccl(None, None, ())),
    ],
)
def test_an_image_that_does_not_tell_its_nccl_is_recorded_as_unknown(
    workdir: Workdir, code: int, printed: list[str], found: ImageNccl
) -> None:
    world = workdir.world(rack(), n0={A: Held({X})}, n1={A: Held({X})})
    world.nccl[A] = (code, printed)
    ended = workdir.run(world)
    assert ended.failed == [], ended.log
    assert lock(workdir) == {X: Pin(None, A, found)}
    assert "scitrera/x:1: NCCL unknown" in ended.log
    assert workdir.run(world, "dry").changing == 0


@pytest.mark.parametrize("code", [124, 125, 137, 143])
def test_an_answer_that_did_not_come_is_not_recorded_and_asked_for_again(workdir: Workdir, code: int) -> None:
    world = workdir.world(rack(), n0={A: Held({X})}, n1={A: Held({X})})
    world.nccl[A] = (code, ["nccl: 2.28.9 wheel"])
    ended = workdir.run(world)
    assert ended.failed == [], ended.log
    assert lock(workdir) == {X: Pin(None, A)}
    assert "scitrera/x:1: its NCCL could not be read in a container" in ended.log
    assert workdir.run(world, "dry").changing == 1
