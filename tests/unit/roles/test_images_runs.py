"""Whole runs on nodes with an engine that is none: who pulls, who takes from whom, what the lock file says after."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from pyinfra.api.config import Config

from roles.images import scripts, state
from sparkrack.fleet import pins
from sparkrack.fleet.pins import Pin
from tests.unit.fleet.racks import SUBNETS, node, ring, switch
from tests.unit.ops import fakenode

from .dockers import Desk, Held, World

A, B, C, D = (f"sha256:{digit * 64}" for digit in "abcd")
X, PINNED = "scitrera/x:1", f"scitrera/x@{D}"
CAGES = {"qsfp56-dd-1": "4x100G", "qsfp56-dd-2": "4x100G"}


def rack(size: int = 2, *images: str) -> str:
    nodes = "".join(node(f"n{n}", n, {1: f"sw/qsfp56-dd-{n // 4 + 1}-{n % 4 * 2 + 1}"}) for n in range(size))
    declared = ", ".join(f"'{image}'" for image in images or (X,))
    return (
        f"rack: some\naccess: {{user: ops, key: k, known_hosts: h}}\nnodes:\n{nodes}"
        f"switches:\n{switch('sw', 0, CAGES)}{SUBNETS}images: [{declared}]\n"
    )


@pytest.fixture
def desk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Desk:
    return Desk(tmp_path, monkeypatch)


def lock(desk: Desk) -> dict[str, Pin]:
    return pins.read(desk.folder / "rack.lock.json")


def write(desk: Desk, **found: Pin) -> None:
    pins.write(desk.folder / "rack.lock.json", {X: found["x"]})


def fetched(world: World) -> dict[str, list[str]]:
    return {name: docker.fetched for name, docker in world.dockers.items() if docker.fetched}


def all_have(world: World, identity: str, name: str = X) -> bool:
    return all(docker.find(name) == identity for docker in world.dockers.values())


@pytest.mark.parametrize("mode", ["yes", "asked"])
def test_one_pulls_the_others_take_it_over_the_fabric(desk: Desk, mode: str) -> None:
    world = desk.world(rack(8))
    world.registry[X] = (A, D)
    ended = desk.run(world, mode)
    assert ended.failed == [], ended.log
    assert all_have(world, A)
    pulls = {name: ways for name, ways in fetched(world).items() if ways[0].startswith("pull")}
    assert pulls == {"n0": [f"pull {X}"]}
    assert all(way.startswith("copy 192.168.100.") for ways in fetched(world).values() for way in ways[1:])
    assert world.most == 2, "no more than two take from one at a time, and two do"
    assert lock(desk) == {X: Pin(D, A)}
    assert "scitrera/x:1 from n0: 5 of 50 MB" in ended.log


def test_a_second_run_finds_nothing_to_do(desk: Desk) -> None:
    world = desk.world(rack())
    world.registry[X] = (A, D)
    desk.run(world)
    before = (desk.folder / "rack.lock.json").stat().st_mtime_ns
    for docker in world.dockers.values():
        docker.sent.clear()
    again = desk.run(world)
    assert (again.failed, [docker.sent for docker in world.dockers.values()]) == ([], [[], []])
    assert (desk.folder / "rack.lock.json").stat().st_mtime_ns == before
    assert desk.run(world, "dry").changing == 0


def test_a_dry_run_touches_nothing(desk: Desk) -> None:
    world = desk.world(rack())
    ended = desk.run(world, "dry")
    assert ended.changing == 2
    assert "pull scitrera/x:1 on n0" in ended.log
    assert "copy scitrera/x:1 from n0 (fabric)" in ended.log
    assert not any(docker.sent for docker in world.dockers.values())
    assert [path.name for path in desk.folder.iterdir()] == ["rack.yaml"]


def test_what_the_nodes_agree_on_is_recorded_and_spread_without_a_pull(desk: Desk) -> None:
    held = {"n1": {A: Held({X})}, "n2": {A: Held({X}, ("scitrera/x", D))}}
    world = desk.world(rack(3), **held)
    ended = desk.run(world)
    assert ended.failed == [], ended.log
    assert list(fetched(world)) == ["n0"]
    assert lock(desk) == {X: Pin(D, A)}


def test_the_same_everywhere_is_only_recorded(desk: Desk) -> None:
    world = desk.world(rack(), n0={A: Held({X})}, n1={A: Held({X})})
    assert desk.run(world, "dry").changing == 1
    assert desk.run(world).failed == []
    assert fetched(world) == {}
    assert lock(desk) == {X: Pin(None, A)}


def test_different_images_under_one_name(desk: Desk) -> None:
    world = desk.world(rack(), n0={A: Held({X})}, n1={B: Held({X})})
    ended = desk.run(world)
    assert ended.failed == ["n0", "n1"]
    assert "scitrera/x:1 is not the same everywhere: n0 has aaaaaaaaaaaa; n1 has bbbbbbbbbbbb; remove" in ended.log
    assert lock(desk) == {}


def test_the_lock_file_is_asked_for_by_digest(desk: Desk) -> None:
    write(desk, x=Pin(D, A))
    world = desk.world(rack())
    world.registry[f"scitrera/x@{D}"] = (A, D)
    world.registry[X] = (B, C)
    ended = desk.run(world)
    assert ended.failed == [], ended.log
    assert fetched(world)["n0"] == [f"pull scitrera/x@{D}"]
    assert all_have(world, A)


def test_another_image_that_took_the_name(desk: Desk) -> None:
    write(desk, x=Pin(D, A))
    world = desk.world(rack(), n0={A: Held({X})}, n1={B: Held({X}), A: Held()})
    ended = desk.run(world)
    assert ended.failed == [], ended.log
    assert fetched(world) == {}
    assert "scitrera/x:1: bbbbbbbbbbbb -> aaaaaaaaaaaa; the old one stays without a name" in ended.log
    assert all_have(world, A)
    assert world.dockers["n1"].held[B] == Held(set())


def test_another_image_and_the_right_one_gone(desk: Desk) -> None:
    write(desk, x=Pin(D, A))
    world = desk.world(rack(), n0={A: Held({X})}, n1={B: Held({X})})
    assert desk.run(world).failed == []
    assert (fetched(world), all_have(world, A)) == ({"n1": ["copy 192.168.100.1"]}, True)


def test_one_pinned_by_digest_has_a_name_on_every_node(desk: Desk) -> None:
    world = desk.world(rack(2, PINNED))
    world.registry[PINNED] = (A, D)
    assert desk.run(world).failed == []
    assert all_have(world, A, f"scitrera/x:{'d' * 12}")
    assert lock(desk) == {PINNED: Pin(D, A)}


def test_around_a_ring(desk: Desk) -> None:
    world = desk.world(ring(5, [0] * 5) + f"images: ['{X}']\n", n0={A: Held({X})})
    ended = desk.run(world)
    assert ended.failed == [], ended.log
    assert all_have(world, A)
    assert all(way.startswith("copy 10.100.") for ways in fetched(world).values() for way in ways)


def test_a_way_that_fails_is_not_the_last(desk: Desk) -> None:
    write(desk, x=Pin(D, A))
    world = desk.world(rack(), n0={A: Held({X})})
    world.dead = {"192.168.100.1", "192.168.101.1"}
    ended = desk.run(world)
    assert ended.failed == [], ended.log
    assert fetched(world) == {"n1": ["copy 192.168.100.1", "copy 192.168.101.1", "copy 10.77.0.11"]}
    assert "n0 (fabric) could not give it: ssh: no route to host" in ended.log


def test_the_last_resort_is_outside(desk: Desk) -> None:
    write(desk, x=Pin(D, A))
    world = desk.world(rack(), n0={A: Held({X})})
    world.dead = {"192.168.100.1", "192.168.101.1", "10.77.0.11"}
    world.registry[f"scitrera/x@{D}"] = (A, D)
    ended = desk.run(world)
    assert ended.failed == [], ended.log
    assert "as the last resort it is pulled from outside" in ended.log


def test_an_image_from_no_registry_that_nobody_gives(desk: Desk) -> None:
    write(desk, x=Pin(None, A))
    ended = desk.run(desk.world(rack()))
    assert ended.failed == ["n0", "n1"]
    assert "no node of this run can give aaaaaaaaaaaa, and it is from no registry" in ended.log


def test_a_pull_that_fails(desk: Desk) -> None:
    world = desk.world(rack(3, X, "other:1"), n2={C: Held({"other:1"})})
    ended = desk.run(world)
    assert ended.failed == ["n0", "n1", "n2"]
    assert f"{X} cannot be pulled: Error response from daemon: manifest for {X} not found" in ended.log
    assert f"images: {X}: n0 could not pull it" in ended.log
    assert fetched(world) == {"n0": [f"pull {X}"]}, "nobody else asks for it, and nothing else is begun"


def test_what_comes_is_not_what_was_asked_for(desk: Desk) -> None:
    write(desk, x=Pin(D, A))
    world = desk.world(rack(), n0={A: Held({X})})
    world.dockers["n1"].wrong = B
    ended = desk.run(world)
    assert ended.failed == ["n1"]
    assert f"what came has the ID {B}, wanted {A}" in ended.log
    assert world.dockers["n1"].held == {}


def test_what_was_there_before_is_not_removed(desk: Desk) -> None:
    write(desk, x=Pin(D, A))
    world = desk.world(rack(), n0={A: Held({X})}, n1={B: Held({"mine:1"})})
    world.dockers["n1"].wrong = B
    assert desk.run(world).failed == ["n1"]
    assert B in world.dockers["n1"].held


def test_a_transfer_of_an_earlier_run_is_waited_for(desk: Desk) -> None:
    write(desk, x=Pin(D, A))
    world = desk.world(rack(), n0={A: Held({X})})
    late = world.dockers["n1"]
    late.rest = {"images-transfers": f"{scripts.unit(state.image(X))}\n"}
    late.job = [5, f"ssh 192.168.100.1 docker save {A} <", None]
    ended = desk.run(world)
    assert ended.failed == [], ended.log
    assert "an earlier run still fetches it; waiting for that" in ended.log
    assert late.fetched == ["copy 192.168.100.1"], "nothing was begun anew"
    assert all_have(world, A)


def test_one_that_brings_nothing_is_begun_anew(desk: Desk) -> None:
    world = desk.world(rack())
    world.registry[X] = (A, D)
    head = world.dockers["n0"]
    head.rest = {"images-transfers": f"{scripts.unit(state.image(X))}\n"}
    head.job = [2, "docker pull gone:1 <", None]
    ended = desk.run(world)
    assert ended.failed == [], ended.log
    assert head.fetched == ["pull gone:1", f"pull {X}"]


def test_a_connection_that_is_lost(desk: Desk) -> None:
    write(desk, x=Pin(D, A))
    world = desk.world(rack(3), n0={A: Held({X})})
    world.dockers["n1"].lost = 2
    ended = desk.run(world)
    assert ended.failed == ["n1"], ended.log
    assert "Socket is closed; what was on its way goes on without this run, the next one waits for it" in ended.log
    assert world.dockers["n2"].find(X) == A


def test_nodes_that_are_not_in_the_run_are_not_waited_for(desk: Desk) -> None:
    write(desk, x=Pin(D, A))
    world = desk.world(rack(3), n0={A: Held({X})})
    world.registry[f"scitrera/x@{D}"] = (A, D)
    assert desk.run(world, only=("n1", "n2")).failed == []
    assert fetched(world)["n1"] == [f"pull scitrera/x@{D}"]


def test_no_room(desk: Desk) -> None:
    write(desk, x=Pin(D, A))
    world = desk.world(rack(), n0={A: Held({X}, size=8 * 10**9)})
    world.dockers["n1"].rest = {"images-room": "9000000000 /var/lib/docker\n"}
    ended = desk.run(world)
    assert ended.failed == ["n1"]
    assert "/var/lib/docker has 9000 MB free, the images it lacks need 17073 MB" in ended.log


def test_one_without_room_to_write_it_out_is_no_source(desk: Desk) -> None:
    """docker's own store writes an image out before it sends it."""
    write(desk, x=Pin(D, A))
    world = desk.world(rack(3), n0={A: Held({X}, size=8 * 10**9)}, n1={A: Held({X}, size=8 * 10**9)})
    world.dockers["n0"].rest = {"images-room": "1000000000 /var/lib/docker\n"}
    assert desk.run(world).failed == []
    assert fetched(world) == {"n2": ["copy 192.168.100.2"]}


def test_a_lock_file_that_is_none(desk: Desk) -> None:
    world = desk.world(rack(), n0={A: Held({X})})
    (desk.folder / "rack.lock.json").write_text("{}")
    ended = desk.run(world)
    assert ended.failed == ["n0", "n1"]
    assert "rack.lock.json: is no lock file of sparkrack" in ended.log


def test_another_kind_of_store(desk: Desk) -> None:
    write(desk, x=Pin(D, A))
    world = desk.world(rack(), n0={A: Held({X})}, n1={D: Held({X}, ("scitrera/x", D))})
    ended = desk.run(world)
    assert ended.failed == ["n1"]
    assert "this node keeps images in containerd's store" in ended.log


def test_two_images_and_an_entry_that_is_dropped(desk: Desk) -> None:
    pins.write(desk.folder / "rack.lock.json", {"old:1": Pin(D, C)})
    world = desk.world(rack(2, X, "other:1"), n1={B: Held({"other:1"})})
    world.registry[X] = (A, D)
    ended = desk.run(world)
    assert ended.failed == [], ended.log
    assert lock(desk) == {X: Pin(D, A), "other:1": Pin(None, B)}


def test_a_head_that_does_not_begin_is_not_waited_for_for_ever(desk: Desk) -> None:
    """As with --parallel 1: its turn comes when the others are done."""
    world = desk.world(rack())
    world.registry[X] = (A, D)
    desk.patch.setattr(fakenode, "Config", partial(Config, PARALLEL=1))
    ended = desk.run(world, only=("n1", "n0"), grace=0.05)
    assert ended.failed == [], ended.log
    # pyinfra takes hosts in no particular order; the head is the first of them in half of the runs.
    late_head = {"n1": [f"pull {X}"], "n0": ["copy 192.168.100.2"]}
    assert fetched(world) in (late_head, {"n0": [f"pull {X}"], "n1": ["copy 192.168.100.1"]})
    assert all_have(world, A)
