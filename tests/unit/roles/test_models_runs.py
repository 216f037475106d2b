"""Whole runs on nodes in folders: who fetches, who takes from whom, what is kept, and what a second run does."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from core.model import model_lock
from core.ops import host_facts
from roles.models.delivery import ModelDelivery
from roles.models.model_sources import ModelTransfers
from roles.models.scripts import FetchState
from tests.unit.model.racks import SUBNETS, node, switch
from tests.unit.roles.models_hub import COMMIT, NAME, LoopbackHub, model, serving, sha256
from tests.unit.roles.models_nodes import ModelNode, ModelWorld

FILES = model(3, 60_000)
BIG = "model-00002-of-00003.safetensors"
CAGES = {"qsfp56-dd-1": "4x100G"}
HUB = f"models: {{qwen: {{source: {NAME}}}}}\n"


def rack(size: int = 3, models: str = HUB) -> str:
    nodes = "".join(node(f"n{n}", n, {1: f"sw/qsfp56-dd-1-{n * 2 + 1}"}) for n in range(size))
    return (
        f"rack: some\naccess: {{user: ops, key: k, known_hosts: h}}\nnodes:\n{nodes}"
        f"switches:\n{switch('sw', 0, CAGES)}{SUBNETS}{models}"
    )


def local(folder: Path) -> str:
    return f"models: {{qwen: {{path: {folder}}}}}\n"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[LoopbackHub]:
    with serving(LoopbackHub(FILES)) as found:
        monkeypatch.setenv("HF_ENDPOINT", found.url)
        yield found


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelWorld]:
    made = ModelWorld(tmp_path, monkeypatch)
    made.write(rack())
    yield made
    for one in made.nodes.values():
        if list((one.root / "sys/fs/cgroup/system.slice").iterdir()):
            one.kill()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model on the operator's machine."""
    found = tmp_path / "qwen"
    for path, content in FILES.items():
        (found / path).parent.mkdir(parents=True, exist_ok=True)
        (found / path).write_bytes(content)
    return found


def all_have(world: ModelWorld) -> bool:
    return all(one.files("qwen") == FILES for one in world.nodes.values())


def until(true: Callable[[], bool]) -> None:
    for _ in range(6000):
        if true():
            return
        time.sleep(0.01)
    raise AssertionError("it did not become so within 60 s")


def test_one_fetches_and_the_others_take_it_in_a_chain(world: ModelWorld, hub: LoopbackHub) -> None:
    ended = world.run()
    assert ended.failed == [], ended.log
    assert all_have(world)
    assert len(hub.requests) == len(FILES) + 2, "each file once, and the list at the branch and at its commit"
    taken = {name: set(one.noted("copies")) for name, one in world.nodes.items()}
    assert taken == {"n0": set(), "n1": {"192.168.100.1"}, "n2": {"192.168.100.2"}}
    record = world.records()["qwen"]
    assert (record.source, record.revision, record.requested) == (NAME, COMMIT, "main")
    assert {file.path: (file.size, file.sha256) for file in record.files} == {
        path: (len(content), sha256(content)) for path, content in FILES.items()
    }
    assert record.configurations == {"config.json": '{"model_type": "small"}'}
    assert "qwen: from n0 (fabric)" in ended.log


def test_a_second_run_asks_and_does_nothing(world: ModelWorld, hub: LoopbackHub) -> None:
    world.run()
    asked = len(hub.requests)
    for one in world.nodes.values():
        one.sent.clear()
        one.texts.clear()
        for path in one.store.rglob("*"):
            os.utime(path, ns=(1, path.stat().st_mtime_ns))
    ended = world.run()
    assert (ended.failed, [one.sent for one in world.nodes.values()]) == ([], [[], [], []])
    assert all(one.texts == [host_facts.READ] for one in world.nodes.values())
    assert len(hub.requests) == asked
    assert {(one.store / "qwen" / BIG).stat().st_atime_ns for one in world.nodes.values()} == {1}, "no file was read"
    assert world.run("dry").changing == 0


def test_a_dry_run_touches_nothing(world: ModelWorld, hub: LoopbackHub) -> None:
    ended = world.run("dry")
    assert ended.changing == 3
    assert f"pull qwen from {NAME} to n0" in ended.log
    assert "copy qwen from n0 (fabric)" in ended.log
    assert "copy qwen from n1 (fabric)" in ended.log
    assert hub.requests == []
    assert not any(one.sent or one.store.exists() for one in world.nodes.values())
    assert not (world.folder / "rack.lock.json").exists()


def test_a_node_that_joins_takes_the_commit_of_the_lock_file(world: ModelWorld, hub: LoopbackHub) -> None:
    world.run(only=("n0", "n1"))
    hub.listed = {"sha": "f" * 40, "siblings": [{"rfilename": "other", "size": 1, "blobId": "a" * 40}]}
    asked = len(hub.requests)
    ended = world.run("dry")
    assert "copy qwen from n0 (fabric): 5 files of 5, 180 kB" in ended.log
    assert world.run().failed == []
    assert (all_have(world), len(hub.requests)) == (True, asked)


def test_a_flipped_byte_is_found_by_its_time_and_replaced(world: ModelWorld, hub: LoopbackHub) -> None:
    world.run()
    asked, path = len(hub.requests), world.nodes["n0"].store / "qwen" / BIG
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    assert "qwen: not verified -> verified (1 file read, none fetched)" in world.run("dry").log
    ended = world.run()
    assert ended.failed == [], ended.log
    assert (all_have(world), len(hub.requests)) == (True, asked)
    assert world.nodes["n0"].noted("copies")[0] in ("192.168.100.2", "192.168.100.3")


def test_a_missing_file_is_fetched_alone(world: ModelWorld, hub: LoopbackHub) -> None:
    world.run()
    (world.nodes["n2"].store / "qwen" / BIG).unlink()
    assert "copy qwen from n0 (fabric): 1 file of 5" in world.run("dry").log
    before = len(world.nodes["n2"].noted("copies"))
    assert world.run().failed == []
    assert (all_have(world), len(world.nodes["n2"].noted("copies"))) == (True, before + 1)


def test_a_model_that_was_put_there_by_hand_is_read_and_not_fetched(world: ModelWorld, hub: LoopbackHub) -> None:
    for one in world.nodes.values():
        for path, content in FILES.items():
            (one.store / "qwen" / path).parent.mkdir(parents=True, exist_ok=True)
            (one.store / "qwen" / path).write_bytes(content)
    assert world.run().failed == []
    assert [path for path, _, _ in hub.requests] == [
        f"/api/models/{NAME}/revision/{revision}?blobs=true" for revision in ("main", COMMIT)
    ]
    assert not any(one.noted("copies") for one in world.nodes.values())


def test_undeclared_files_and_models_are_reported_and_stay(world: ModelWorld, hub: LoopbackHub) -> None:
    world.run()
    (world.nodes["n1"].store / "qwen/notes\n.txt").write_text("mine")
    (world.nodes["n1"].store / "old").mkdir()
    (world.nodes["n1"].store / "old/weights").write_text("mine")
    ended = world.run()
    assert "/srv/models/old: rack.yaml declares no such model" in ended.log
    assert "/srv/models/qwen: no files of the model: notes\\n.txt" in ended.log
    world.write(rack(models="models: {}\n"))
    assert world.run().failed == []
    assert (world.nodes["n1"].store / "old/weights").read_text() == "mine"
    assert (world.nodes["n1"].store / "qwen/notes\n.txt").read_text() == "mine"
    assert (world.nodes["n1"].store / "qwen" / BIG).exists(), "a removed declaration removes no file"


def test_another_route_after_one_that_fails(world: ModelWorld, hub: LoopbackHub) -> None:
    world.run(only=("n0", "n1"))
    (world.nodes["n0"].root / "unreachable").touch()
    ended = world.run()
    assert ended.failed == [], ended.log
    assert "could not give it: " in ended.log
    assert all_have(world)


def test_no_room_is_refused_before_the_first_byte(world: ModelWorld, hub: LoopbackHub) -> None:
    world.run(only=("n0",))
    world.nodes["n1"].edits["models-room"] = "1000000"
    ended = world.run()
    assert ended.failed == ["n1"]
    assert "models: /srv/models has 1 MB free, the models it lacks need 1074 MB" in ended.log
    assert (world.nodes["n1"].sent, world.nodes["n1"].store.exists()) == ([], False)
    assert world.nodes["n2"].files("qwen") == FILES, "the others have it"


def test_a_plan_gives_no_model_to_a_node_without_room_and_takes_none_from_it(
    world: ModelWorld, hub: LoopbackHub
) -> None:
    world.nodes["n0"].edits["models-room"] = "1000000"
    shown = world.run("dry").log
    assert f"pull qwen from {NAME} to n1" in shown
    assert "copy qwen from n1 (fabric)" in shown
    assert "from n0" not in shown


def test_a_hub_that_refuses(world: ModelWorld, hub: LoopbackHub) -> None:
    hub.token = "hf_secret"
    ended = world.run()
    assert ended.failed == ["n0", "n1", "n2"]
    assert f"models: qwen: {NAME}: the hub answers 401: it needs a token, or the token is not valid" in ended.log
    assert "models: qwen: n0 could not list its files" in ended.log
    assert not (world.folder / "rack.lock.json").exists()


def test_a_fetch_that_fails_fails_everywhere_and_goes_on_later(world: ModelWorld, hub: LoopbackHub) -> None:
    hub.status[BIG] = [403]
    ended = world.run()
    assert ended.failed == ["n0", "n1", "n2"], ended.log
    assert f"models: qwen: it cannot be fetched: {BIG}: the hub answers 403" in ended.log
    assert "models: qwen: n0 could not fetch it" in ended.log
    assert world.run().failed == []
    assert all_have(world)


def test_a_token_is_in_no_command_and_no_log(
    world: ModelWorld, hub: LoopbackHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HUB_TOKEN", "hf_secret_value")
    world.write(rack(models=f"models: {{qwen: {{source: {NAME}, token: {{env: HUB_TOKEN}}}}}}\n"))
    ended = world.run(only=("n0",))
    assert "HF_ENDPOINT has no TLS, and the model has a token; use an https address" in ended.log
    assert hub.requests == []
    # As if the stand-in had TLS.
    hub.token = "hf_secret_value"
    from roles.models import delivery

    monkeypatch.setattr(delivery.ModelDelivery, "_hub_address_and_token", lambda *_: (hub.url, "hf_secret_value"))
    ended = world.run()
    assert ended.failed == [], ended.log
    assert {token for _, _, token in hub.requests} == {"Bearer hf_secret_value"}
    assert "hf_secret_value" not in ended.log
    for one in world.nodes.values():
        assert not any("hf_secret_value" in text for text in one.texts)
        assert not any(b"hf_secret_value" in path.read_bytes() for path in one.root.rglob("*") if path.is_file())


def test_a_unit_that_does_not_start_leaves_no_job(world: ModelWorld, hub: LoopbackHub) -> None:
    (world.nodes["n0"].root / "no-units").touch()
    ended = world.run(only=("n0",))
    assert ended.failed == ["n0"]
    assert "Failed to start transient service unit" in ended.log
    assert not list(world.nodes["n0"].root.rglob("*.job"))


def test_a_run_that_is_killed_and_the_next_one_waits(world: ModelWorld, hub: LoopbackHub) -> None:
    hub.pause, hub.pause_after = threading.Event(), 50_000
    world.nodes["n0"].lost = 4
    ended = world.run(only=("n0",))
    assert "a transfer in progress continues without this run, and the next run waits for it" in ended.log
    world.nodes["n0"].lost = None
    pause, wait = hub.pause, ModelDelivery._watch_fetch_program

    def go_on_when_waited_for(delivery: ModelDelivery, transfers: ModelTransfers, source: str) -> FetchState:
        pause.set()
        return wait(delivery, transfers, source)

    world.patch.setattr(ModelDelivery, "_watch_fetch_program", go_on_when_waited_for)
    ended = world.run()
    assert ended.failed == [], ended.log
    assert "qwen: an earlier run still fetches it; waiting for that" in ended.log
    assert all_have(world)
    assert len(hub.asked(BIG)) == 1


def test_a_node_that_reboots_midway_continues(world: ModelWorld, hub: LoopbackHub) -> None:
    hub.pause, hub.pause_after = threading.Event(), 50_000
    world.nodes["n0"].lost = 4
    world.run(only=("n0",))
    until(lambda: any(path.stat().st_size == 50_000 for path in world.nodes["n0"].store.rglob("*-*")))
    world.nodes["n0"].kill()
    hub.pause.set()
    hub.pause, world.nodes["n0"].lost = None, None
    ended = world.run()
    assert (ended.failed, all_have(world)) == ([], True), ended.log
    assert any(asked.startswith("bytes=") for path in FILES for asked in hub.asked(path))


def test_a_folder_of_the_operators_machine(world: ModelWorld, folder: Path) -> None:
    (folder / ".git").mkdir()
    (folder / ".git/objects").write_text("not part of it")
    world.write(rack(models=local(folder)))
    assert f"pull qwen from {folder} to n0" in world.run("dry").log
    ended = world.run()
    assert ended.failed == [], ended.log
    assert all_have(world)
    assert sorted(world.uploads) == sorted(("n0", path, len(content)) for path, content in FILES.items())
    record = world.records()["qwen"]
    assert (record.source, record.revision, record.size) == (None, None, sum(map(len, FILES.values())))
    assert record.configurations == {"config.json": '{"model_type": "small"}'}
    assert world.run("dry").changing == 0


def test_an_operators_machine_that_fails_midway(world: ModelWorld, folder: Path) -> None:
    world.write(rack(models=local(folder)))
    world.upload_limit = 100_000
    assert world.run().failed == ["n0", "n1", "n2"]
    world.upload_limit = None
    first = sum(number for _, _, number in world.uploads)
    ended = world.run()
    assert (ended.failed, all_have(world)) == ([], True), ended.log
    assert sum(number for _, _, number in world.uploads) == sum(map(len, FILES.values()))
    assert first == 100_000


def test_a_folder_that_is_gone_is_not_needed_any_more(world: ModelWorld, folder: Path) -> None:
    world.write(rack(models=local(folder)))
    world.run(only=("n0",))
    subprocess.run(["rm", "-r", folder], check=True)
    ended = world.run()
    assert (ended.failed, all_have(world)) == ([], True), ended.log


def test_a_folder_with_other_bytes_than_recorded(world: ModelWorld, folder: Path) -> None:
    world.write(rack(models=local(folder)))
    world.run(only=("n0",))
    subprocess.run(["rm", "-r", world.nodes["n0"].store], check=True)
    flipped = bytearray(FILES[BIG])
    flipped[5] ^= 1
    (folder / BIG).write_bytes(flipped)
    ended = world.run()
    assert ended.failed == ["n0", "n1", "n2"]
    assert f"{folder}: {BIG} has other bytes than in the lock file; restore the file" in ended.log
    assert all(BIG not in one.files("qwen") for one in world.nodes.values())


@pytest.mark.parametrize("called", ["a\nb", "a\\b", "\x1b[2J"])
def test_a_folder_with_a_name_that_is_not_accepted(world: ModelWorld, folder: Path, called: str) -> None:
    (folder / called).write_text("x")
    world.write(rack(models=local(folder)))
    ended = world.run(only=("n0",))
    assert ended.failed == ["n0"]
    assert "has a backslash or a character that does not print" in ended.log
    assert world.uploads == []


def test_a_node_that_asks_for_a_file_which_is_not_of_the_model_gets_none(
    world: ModelWorld, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder.parent / "secret").write_text("of the operator")
    world.write(rack(models=local(folder)))
    shell = ModelNode.shell

    def asking_for_another(node: ModelNode, text: str, stdin: str = "") -> subprocess.CompletedProcess[bytes]:
        done = shell(node, text, stdin)
        done.stdout = re.sub(rb"(sparkrack: lacks .*) \S+", rb"\1 ../secret", done.stdout, count=1)
        return done

    monkeypatch.setattr(ModelNode, "shell", asking_for_another)
    ended = world.run(only=("n0",))
    assert ended.failed == ["n0"]
    assert "the node asks for '../secret', which is not a file of the model" in ended.log
    assert world.uploads == []


def test_a_folder_that_is_not_there(world: ModelWorld, tmp_path: Path) -> None:
    world.write(rack(models=local(tmp_path / "none")))
    ended = world.run(only=("n0",))
    assert f"models: qwen: {tmp_path}/none is not a folder of this machine" in ended.log


def test_another_source_or_commit_is_listed_again(world: ModelWorld, hub: LoopbackHub) -> None:
    world.run(only=("n0",))
    record = world.records()["qwen"]
    for models, listed in (
        (HUB, False),
        (f"models: {{qwen: {{source: {NAME}, revision: {COMMIT}}}}}\n", False),
        (f"models: {{qwen: {{source: {NAME}, revision: {'a' * 40}}}}}\n", True),
        (f"models: {{qwen: {{source: {NAME}, revision: v2}}}}\n", True),
        ("models: {qwen: {source: Qwen/Other}}\n", True),
    ):
        world.write(rack(models=models))
        model_lock.write(world.folder / "rack.lock.json", {"qwen": record})
        assert ("pull qwen" in world.run("dry", only=("n0",)).log) == listed, models


# Which files


INDEX = "model.safetensors.index.json"
PARTS = [path for path in FILES if path.endswith(".safetensors")]
INDEXED = {
    **FILES,
    INDEX: json.dumps({"weight_map": dict(zip("abc", PARTS, strict=True))}).encode(),
    "extra.safetensors": b"x" * 50_000,
    "original/model.safetensors": b"y" * 50_000,
    "pytorch_model.bin": b"z" * 50_000,
    "figure.png": b"p" * 2000,
}
USUAL = {*FILES, INDEX}


def chosen(*patterns: str) -> str:
    return f"models: {{qwen: {{source: {NAME}, files: {json.dumps(list(patterns))}}}}}\n"


@pytest.mark.parametrize("large", [50, 1000])
def test_one_format_of_the_weights_is_fetched_by_its_index(world: ModelWorld, hub: LoopbackHub, large: int) -> None:
    """`large`: bytes from which on the hub keeps a file with its sha256, the index too."""
    hub.files, hub.large = INDEXED, large
    ended = world.run()
    assert ended.failed == [], ended.log
    for one in world.nodes.values():
        assert one.files("qwen") == {path: INDEXED[path] for path in USUAL}
    for left in INDEXED.keys() - USUAL:
        assert hub.asked(left) == [], left
    record = world.records()["qwen"]
    assert {file.path for file in record.files} == USUAL
    assert (record.chosen, record.configurations) == (None, {"config.json": '{"model_type": "small"}'})
    assert len(hub.asked(INDEX)) == 1, "it came with the list"
    assert world.run("dry").changing == 0


def test_chosen_files_are_fetched_and_no_others(world: ModelWorld, hub: LoopbackHub) -> None:
    hub.files = INDEXED
    world.write(rack(models=chosen("*.json", "pytorch_model.bin", *PARTS)))
    ended = world.run()
    assert ended.failed == [], ended.log
    wanted = {"config.json", INDEX, "pytorch_model.bin", *PARTS}
    assert all({*one.files("qwen")} == wanted for one in world.nodes.values())
    assert hub.asked("nested/vocab file.txt") == []
    assert world.records()["qwen"].chosen == ("*.json", "pytorch_model.bin", *PARTS)
    assert world.run("dry").changing == 0


def test_an_index_that_names_a_file_which_is_not_there_is_refused(world: ModelWorld, hub: LoopbackHub) -> None:
    hub.files = {path: content for path, content in INDEXED.items() if path != BIG}
    ended = world.run()
    assert ended.failed == ["n0", "n1", "n2"]
    assert f"{INDEX} names {BIG}, which is not there; fetch another revision" in ended.log
    assert not (world.folder / "rack.lock.json").exists()
    assert not any(one.files("qwen") for one in world.nodes.values())


def test_another_choice_keeps_the_commit_and_fetches_what_is_new(world: ModelWorld, hub: LoopbackHub) -> None:
    hub.files = INDEXED
    assert world.run().failed == []
    revision, asked = world.records()["qwen"].revision, len(hub.requests)
    world.write(rack(models=chosen("*.json", "pytorch_model.bin", *PARTS)))
    assert f"pull qwen from {NAME} to n0" in world.run("dry").log
    ended = world.run()
    assert ended.failed == [], ended.log
    assert all("pytorch_model.bin" in one.files("qwen") for one in world.nodes.values())
    assert world.records()["qwen"].revision == revision
    requests = [path for path, _, _ in hub.requests[asked:]]
    listings = [path for path in requests if path.startswith("/api/")]
    assert {path.split("/revision/")[1] for path in listings} == {f"{COMMIT}?blobs=true"}, "not at the branch"
    assert [path for path in requests if path not in listings] == [f"/{NAME}/resolve/{COMMIT}/pytorch_model.bin"]


def test_files_that_are_no_longer_chosen_stay_and_are_named_with_their_size(
    world: ModelWorld, hub: LoopbackHub
) -> None:
    """The gate of a unit that runs, and a previous version of it, may need them."""
    hub.files = INDEXED
    world.write(rack(models=chosen("*.json", "pytorch_model.bin", "original/", *PARTS)))
    assert world.run().failed == []
    (world.nodes["n1"].store / "qwen/notes.txt").write_text("mine")
    asked = len(hub.requests)
    world.write(rack(models=chosen("*.json", *PARTS)))
    ended = world.run()
    assert ended.failed == [], ended.log
    assert all(path.startswith("/api/") for path, _, _ in hub.requests[asked:]), "nothing is fetched"
    assert {file.path for file in world.records()["qwen"].files} == {"config.json", INDEX, *PARTS}
    for one in world.nodes.values():
        assert {"pytorch_model.bin", "original/model.safetensors"} <= {*one.files("qwen")}
    again = world.run()
    assert again.failed == []
    what = "fetched before, and no longer files of the model: original/model.safetensors, pytorch_model.bin, 100 kB"
    assert f"/srv/models/qwen: {what}; remove them by hand" in again.log
    assert re.search(r"/srv/models/qwen: no files of the model: notes\.txt$", again.log, re.MULTILINE)
    assert world.run("dry").changing == 0
    for one in world.nodes.values():
        (one.store / "qwen/pytorch_model.bin").unlink()
        (one.store / "qwen/original/model.safetensors").unlink()
    assert "no longer files of the model" not in world.run("dry").log
    assert world.run("dry").changing == 0


def test_another_choice_that_is_killed_while_it_comes_goes_on(world: ModelWorld, hub: LoopbackHub) -> None:
    hub.files = INDEXED
    assert world.run().failed == []
    world.write(rack(models=chosen("*.json", "pytorch_model.bin", *PARTS)))
    hub.pause, hub.pause_after = threading.Event(), 20_000
    world.nodes["n0"].lost = 5
    world.run(only=("n0",))
    until(lambda: any(path.stat().st_size == 20_000 for path in world.nodes["n0"].store.rglob("*-*")))
    world.nodes["n0"].kill()
    hub.pause.set()
    hub.pause, world.nodes["n0"].lost = None, None
    ended = world.run()
    assert ended.failed == [], ended.log
    assert all(one.files("qwen")["pytorch_model.bin"] == INDEXED["pytorch_model.bin"] for one in world.nodes.values())
    assert hub.asked("pytorch_model.bin") == ["", "bytes=20000-"]
    assert not any(list((one.store / "qwen/.sparkrack/parts").iterdir()) for one in world.nodes.values())


def test_a_choice_that_is_taken_back_fetches_nothing(world: ModelWorld, hub: LoopbackHub) -> None:
    hub.files = INDEXED
    assert world.run().failed == []
    first = world.records()["qwen"]
    world.write(rack(models=chosen("*.json", "pytorch_model.bin", *PARTS)))
    assert world.run().failed == []
    world.write(rack())
    asked = len(hub.requests)
    assert world.run().failed == []
    assert all(path.startswith("/api/") for path, _, _ in hub.requests[asked:])
    assert world.records()["qwen"] == first


def test_of_a_folder_the_chosen_files_alone_are_read_and_sent(world: ModelWorld, folder: Path) -> None:
    for path, content in INDEXED.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(content)
    world.write(rack(models=local(folder)))
    ended = world.run()
    assert ended.failed == [], ended.log
    assert all({*one.files("qwen")} == USUAL for one in world.nodes.values())
    assert sorted(path for _, path, _ in world.uploads) == sorted(USUAL)
    assert "reading extra.safetensors" not in ended.log
    (folder / BIG).unlink()
    world.write(rack(models=f'models: {{qwen: {{path: {folder}, files: ["*.json", "model-*"]}}}}\n'))
    ended = world.run(only=("n0",))
    assert f"{INDEX} names {BIG}, which is not there" in ended.log


def test_a_broken_lock_file_is_one_line(world: ModelWorld, hub: LoopbackHub) -> None:
    (world.folder / "rack.lock.json").write_text(json.dumps({"models": {"qwen": {}}}))
    ended = world.run(only=("n0",))
    assert ended.failed == ["n0"]
    assert "models.qwen: is not a mapping of source, revision, files and configurations" in ended.log
    assert (hub.requests, world.nodes["n0"].sent) == ([], [])
