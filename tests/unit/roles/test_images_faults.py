"""Runs of the images role in which something fails: ways, registries, nodes, room. Who is reported, and what is
left."""

from __future__ import annotations

from core.model.image_names import image_name
from roles.images import scripts
from tests.unit.roles.dockers import Held, Workdir, copy_job
from tests.unit.roles.images_runs import A, B, C, D, X, all_have, fetched, lock, pin, rack, write


def test_different_images_under_one_name(workdir: Workdir) -> None:
    world = workdir.world(rack(), n0={A: Held({X})}, n1={B: Held({X})})
    ended = workdir.run(world)
    assert ended.failed == ["n0", "n1"]
    assert "scitrera/x:1 is not the same everywhere: n0 has aaaaaaaaaaaa; n1 has bbbbbbbbbbbb; remove" in ended.log
    assert lock(workdir) == {}


def test_a_way_that_fails_is_not_the_last(workdir: Workdir) -> None:
    write(workdir, x=pin(D, A))
    world = workdir.world(rack(), n0={A: Held({X})})
    world.dead = {"192.168.100.1", "192.168.101.1"}
    ended = workdir.run(world)
    assert ended.failed == [], ended.log
    assert fetched(world) == {"n1": ["copy 192.168.100.1", "copy 192.168.101.1", "copy 10.77.0.11"]}
    assert "n0 (fabric) could not give it: ssh: no route to host" in ended.log


def test_the_last_resort_is_outside(workdir: Workdir) -> None:
    write(workdir, x=pin(D, A))
    world = workdir.world(rack(), n0={A: Held({X})})
    world.dead = {"192.168.100.1", "192.168.101.1", "10.77.0.11"}
    world.registry[f"scitrera/x@{D}"] = (A, D)
    ended = workdir.run(world)
    assert ended.failed == [], ended.log
    assert "as the last resort it is pulled from outside" in ended.log


def test_an_image_from_no_registry_that_no_one_gives(workdir: Workdir) -> None:
    write(workdir, x=pin(None, A))
    ended = workdir.run(workdir.world(rack()))
    assert ended.failed == ["n0", "n1"]
    assert "no node of this run can give aaaaaaaaaaaa, and it is from no registry" in ended.log


def test_a_pull_that_fails(workdir: Workdir) -> None:
    world = workdir.world(rack(3, X, "other:1"), n2={C: Held({"other:1"})})
    ended = workdir.run(world)
    assert ended.failed == ["n0", "n1", "n2"]
    assert f"{X} cannot be pulled: Error response from daemon: manifest for {X} not found" in ended.log
    assert f"images: {X}: n0 could not pull it" in ended.log
    assert fetched(world) == {"n0": [f"pull {X}"]}, "no other node asks for it, and nothing else is begun"


def test_what_comes_is_not_what_was_asked_for(workdir: Workdir) -> None:
    write(workdir, x=pin(D, A))
    world = workdir.world(rack(), n0={A: Held({X})})
    world.dockers["n1"].wrong = B
    ended = workdir.run(world)
    assert ended.failed == ["n1"]
    assert f"what came has the ID {B}, wanted {A}" in ended.log
    assert world.dockers["n1"].held == {}


def test_what_was_there_before_is_not_removed(workdir: Workdir) -> None:
    write(workdir, x=pin(D, A))
    world = workdir.world(rack(), n0={A: Held({X})}, n1={B: Held({"mine:1"})})
    world.dockers["n1"].wrong = B
    assert workdir.run(world).failed == ["n1"]
    assert B in world.dockers["n1"].held


def test_a_transfer_of_an_earlier_run_is_waited_for(workdir: Workdir) -> None:
    write(workdir, x=pin(D, A))
    world = workdir.world(rack(), n0={A: Held({X})})
    late = world.dockers["n1"]
    late.rest = {"images-transfers": f"{scripts.unit(image_name(X))}\n"}
    late.job = [5, copy_job("192.168.100.1", A), None]
    ended = workdir.run(world)
    assert ended.failed == [], ended.log
    assert "an earlier run still fetches it; waiting for that" in ended.log
    assert late.fetched == ["copy 192.168.100.1"], "nothing was begun again"
    assert all_have(world, A)


def test_one_that_brings_nothing_is_begun_again(workdir: Workdir) -> None:
    world = workdir.world(rack())
    world.registry[X] = (A, D)
    head = world.dockers["n0"]
    head.rest = {"images-transfers": f"{scripts.unit(image_name(X))}\n"}
    head.job = [2, "docker pull gone:1 <", None]
    ended = workdir.run(world)
    assert ended.failed == [], ended.log
    assert head.fetched == ["pull gone:1", f"pull {X}"]


def test_a_connection_that_is_lost(workdir: Workdir) -> None:
    write(workdir, x=pin(D, A))
    world = workdir.world(rack(3), n0={A: Held({X})})
    world.dockers["n1"].lost = 2
    ended = workdir.run(world)
    assert ended.failed == ["n1"], ended.log
    assert (
        "Socket is closed; a transfer in progress continues without this run, and the next run waits for it"
        in ended.log
    )
    assert world.dockers["n2"].find(X) == A


def test_no_room(workdir: Workdir) -> None:
    write(workdir, x=pin(D, A))
    world = workdir.world(rack(), n0={A: Held({X}, size=8 * 10**9)})
    world.dockers["n1"].rest = {"images-room": "20000000000 /var/lib/docker\n"}
    ended = workdir.run(world)
    assert ended.failed == ["n1"]
    assert "/var/lib/docker has 20000 MB free, the images it lacks need 25073 MB" in ended.log


def test_one_without_room_to_write_it_out_is_not_a_source(workdir: Workdir) -> None:
    """docker's own store writes an image out before it sends it."""
    write(workdir, x=pin(D, A))
    world = workdir.world(rack(3), n0={A: Held({X}, size=8 * 10**9)}, n1={A: Held({X}, size=8 * 10**9)})
    world.dockers["n0"].rest = {"images-room": "1000000000 /var/lib/docker\n"}
    assert workdir.run(world).failed == []
    assert fetched(world) == {"n2": ["copy 192.168.100.2"]}


def test_a_lock_file_that_is_none(workdir: Workdir) -> None:
    world = workdir.world(rack(), n0={A: Held({X})})
    (workdir.folder / "rack.lock.json").write_text("{}")
    ended = workdir.run(world)
    assert ended.failed == ["n0", "n1"]
    assert "rack.lock.json: is not a lock file of sparkrack" in ended.log


def test_another_kind_of_store(workdir: Workdir) -> None:
    write(workdir, x=pin(D, A))
    world = workdir.world(rack(), n0={A: Held({X})}, n1={D: Held({X}, ("scitrera/x", D))})
    ended = workdir.run(world)
    assert ended.failed == ["n1"]
    assert "this node keeps images in containerd's store" in ended.log
