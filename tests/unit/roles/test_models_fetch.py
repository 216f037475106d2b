"""The program that a node runs to fetch a model: from a hub, a node or parts; interrupted, and given wrong bytes."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.ops.shells import calls, stand_in
from tests.unit.roles.models_hub import (
    COMMIT,
    LocalStore,
    LoopbackHub,
    hub_source,
    model,
    node_source,
    rows,
    serving,
    sha256,
)

FILES = model()
BIG = "model-00002-of-00004.safetensors"
SIZE = sum(map(len, FILES.values()))


@pytest.fixture
def hub() -> Iterator[LoopbackHub]:
    with serving(LoopbackHub(FILES)) as found:
        yield found


@pytest.fixture
def store(tmp_path: Path) -> LocalStore:
    return LocalStore(tmp_path / "n1")


@pytest.fixture
def other(tmp_path: Path) -> LocalStore:
    """A node that has the model."""
    found = LocalStore(tmp_path / "n0")
    put(found, FILES)
    assert found.fetch(found.job(FILES, None))[-1] == "sparkrack: ended 0"
    return found


def put(store: LocalStore, files: dict[str, bytes]) -> None:
    for path, content in files.items():
        (store.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (store.folder / path).write_bytes(content)


def received(log: list[str]) -> int:
    """How many bytes came."""
    return int([line for line in log if line.startswith("sparkrack: at ")][-1].split()[-1])


def until(true: Callable[[], bool], process: subprocess.Popen[str] | None = None) -> None:
    for _ in range(6000):
        if true():
            return
        assert process is None or process.poll() is None, "it ended"
        time.sleep(0.01)
    raise AssertionError("it did not become so within 60 s")


def test_from_the_hub(hub: LoopbackHub, store: LocalStore) -> None:
    log = store.fetch(store.job(FILES, hub_source(hub)))
    assert log[-1] == "sparkrack: ended 0"
    assert store.contents() == FILES
    assert (received(log), store.parts(), store.recorded()) == (SIZE, [], set(FILES))
    assert not (store.root / "job").exists(), "it may hold a token"


def test_a_second_time_nothing_is_read(hub: LoopbackHub, store: LocalStore) -> None:
    store.fetch(store.job(FILES, hub_source(hub)))
    before, asked = (store.folder / BIG).stat().st_atime_ns, len(hub.requests)
    os.utime(store.folder / BIG, ns=(1, (store.folder / BIG).stat().st_mtime_ns))
    log = store.fetch(store.job(FILES, hub_source(hub)))
    assert (log[-1], received(log), len(hub.requests)) == ("sparkrack: ended 0", 0, asked)
    assert (store.folder / BIG).stat().st_atime_ns == 1 < before, "a file that is recorded is not hashed again"


def test_from_another_node(other: LocalStore, store: LocalStore) -> None:
    log = store.fetch(store.job(FILES, node_source(other)))
    assert log[-1] == "sparkrack: ended 0", log
    assert store.contents() == FILES == other.contents()
    assert (received(log), store.recorded()) == (SIZE, set(FILES))
    assert calls(store.root)[0].startswith("ssh 192.168.100.1 python3 -I -S -B -c ")


def test_many_small_files_come_over_one_connection(other: LocalStore, store: LocalStore) -> None:
    """One of them has other bytes there than its record says: it is asked for once more, alone, and not accepted."""
    files = {f"part {number}/vocab.json": b"%d" % number * 100 for number in range(300)} | {"empty": b""}
    put(other, files)
    assert other.fetch(other.job(files, None))[-1] == "sparkrack: ended 0"
    log = store.fetch(store.job(files, node_source(other)), WORKERS=1)
    assert (log[-1], received(log)) == ("sparkrack: ended 0", sum(map(len, files.values())))
    assert (store.contents(), store.recorded()) == (files, set(files))
    assert [call[:4] for call in calls(store.root)].count("ssh ") == 1
    wrong = other.folder / "part 7/vocab.json"
    wrong.write_bytes(b"8" * wrong.stat().st_size)
    shutil.rmtree(store.folder)
    log = store.fetch(store.job(files, node_source(other)), WORKERS=1)
    assert log[-2:] == [
        "part 7/vocab.json: what came has another sha256 than the one that was recorded, twice",
        "sparkrack: ended 1",
    ], log
    assert store.recorded() == files.keys() - {"part 7/vocab.json"} == store.contents().keys()
    assert [call[:4] for call in calls(store.root)].count("ssh ") == 3


@pytest.mark.parametrize("start", [0, 1, 123_456])
def test_a_part_is_continued_from_a_node(other: LocalStore, store: LocalStore, start: int) -> None:
    store.fetch(store.job(FILES, None))
    part = store.folder / f".sparkrack/parts/{part_name(BIG, FILES[BIG])}"
    part.write_bytes(FILES[BIG][:start])
    log = store.fetch(store.job({BIG: FILES[BIG]}, node_source(other)))
    assert (log[-1], received(log)) == ("sparkrack: ended 0", len(FILES[BIG]) - start)
    assert store.contents() == {BIG: FILES[BIG]}


def part_name(path: str, content: bytes) -> str:
    return f"{sha256(path.encode())[:12]}-{sha256(content)}"


def test_killed_while_it_comes_from_the_hub_and_continued(hub: LoopbackHub, store: LocalStore) -> None:
    hub.pause, hub.pause_after = threading.Event(), 100_000
    process = store.start(store.job(FILES, hub_source(hub)), BLOCK=10_000)
    until(lambda: sum(store.parts()) >= 4 * 90_000, process)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    came = sum(store.parts())
    hub.pause.set()
    hub.pause = None
    log = store.fetch(store.job(FILES, hub_source(hub)))
    assert log[-1] == "sparkrack: ended 0", log
    assert store.contents() == FILES
    small = sum(len(content) for content in FILES.values() if len(content) < 1000)
    assert received(log) <= SIZE - came + small
    assert any(part for part in hub.asked(BIG)), "a range"


def test_killed_while_it_comes_from_a_node_and_continued(other: LocalStore, store: LocalStore) -> None:
    slow = 'for last in "$@"; do :; done; sh -c "$last" | { head -c 100000; sleep 30; }'
    stand_in(store.root, "ssh", slow)
    job = store.job({BIG: FILES[BIG]}, node_source(other))
    process = store.start(job, BLOCK=10_000)
    until(lambda: sum(store.parts()) == 100_000, process)
    process.kill()
    process.communicate()
    stand_in(store.root, "ssh", 'for last in "$@"; do :; done; exec sh -c "$last"')
    log = store.fetch(job)
    assert (log[-1], received(log)) == ("sparkrack: ended 0", len(FILES[BIG]) - 100_000)
    assert store.contents() == {BIG: FILES[BIG]}


def test_killed_between_the_move_and_the_record(hub: LoopbackHub, store: LocalStore) -> None:
    """The file is in its place, and its hash is not known: it is read, not fetched."""
    put(store, FILES)
    asked = len(hub.requests)
    log = store.fetch(store.job(FILES, hub_source(hub)))
    assert (log[-1], received(log), len(hub.requests)) == ("sparkrack: ended 0", 0, asked)
    assert store.recorded() == set(FILES)


def test_killed_with_a_whole_part(hub: LoopbackHub, store: LocalStore) -> None:
    store.fetch(store.job(FILES, None))
    (store.folder / f".sparkrack/parts/{part_name(BIG, FILES[BIG])}").write_bytes(FILES[BIG])
    log = store.fetch(store.job({BIG: FILES[BIG]}, hub_source(hub)))
    assert (log[-1], received(log), hub.asked(BIG)) == ("sparkrack: ended 0", 0, [])


def test_a_flipped_byte_is_found_and_that_file_fetched(other: LocalStore, store: LocalStore) -> None:
    store.fetch(store.job(FILES, node_source(other)))
    flipped = bytearray(FILES[BIG])
    flipped[1000] ^= 1
    (store.folder / BIG).write_bytes(flipped)
    log = store.fetch(store.job(FILES, node_source(other)))
    assert (log[-1], received(log)) == ("sparkrack: ended 0", len(FILES[BIG]))
    assert store.contents() == FILES


def test_a_flipped_byte_in_a_part_is_found(hub: LoopbackHub, store: LocalStore) -> None:
    store.fetch(store.job(FILES, None))
    flipped = bytes([FILES[BIG][0] ^ 1]) + FILES[BIG][1:5000]
    (store.folder / f".sparkrack/parts/{part_name(BIG, FILES[BIG])}").write_bytes(flipped)
    log = store.fetch(store.job({BIG: FILES[BIG]}, hub_source(hub)))
    assert log[-1] == "sparkrack: ended 0"
    assert (store.contents(), hub.asked(BIG)) == ({BIG: FILES[BIG]}, ["bytes=5000-", ""])


def test_other_bytes_than_recorded_are_not_accepted(hub: LoopbackHub, store: LocalStore) -> None:
    hub.sends[BIG] = b"x" * len(FILES[BIG])
    log = store.fetch(store.job({BIG: FILES[BIG]}, hub_source(hub)))
    assert log[-1] == "sparkrack: ended 1"
    assert f"{BIG}: what came has another sha256 than the one that was recorded, twice" in log
    assert store.contents() == {}
    assert store.parts() == []


def test_more_bytes_than_recorded_are_not_written(hub: LoopbackHub, store: LocalStore) -> None:
    hub.sends[BIG] = b"x" * (10 * len(FILES[BIG]))
    log = store.fetch(store.job({BIG: FILES[BIG]}, hub_source(hub)))
    assert (log[-1], "more bytes came than the file has" in log) == ("sparkrack: ended 1", True)
    assert sum(store.parts()) <= len(FILES[BIG])


def test_a_connection_that_ends_early_is_made_again(hub: LoopbackHub, store: LocalStore) -> None:
    hub.cut[BIG] = 70_000
    hub.status["config.json"] = [503, 429]
    log = store.fetch(store.job(FILES, hub_source(hub)))
    assert (log[-1], store.contents()) == ("sparkrack: ended 0", FILES)
    assert hub.asked(BIG) == ["", "bytes=70000-"]


def test_a_disk_that_takes_half_a_block_is_named_and_no_wrong_file_is_kept(hub: LoopbackHub, store: LocalStore) -> None:
    hub.pause, hub.pause_after = threading.Event(), 70_000
    process = store.start(store.job({BIG: FILES[BIG]}, hub_source(hub)), PAUSE=0.5)
    with process:
        until(lambda: store.parts() == [70_000], process)
        # The kernel writes up to the limit, then refuses, as on a full disk.
        _, hard = resource.prlimit(process.pid, resource.RLIMIT_FSIZE)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (100_003, hard))
        hub.pause.set()
        until(lambda: store.parts() == [100_003])
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (hard, hard))
        output, _ = process.communicate(timeout=60)
    assert store.contents() == {}, output
    assert output.splitlines()[-2:] == [f"{BIG}: cannot be written: File too large", "sparkrack: ended 1"]
    log = store.fetch(store.job({BIG: FILES[BIG]}, hub_source(hub)))
    assert (log[-1], store.contents()) == ("sparkrack: ended 0", {BIG: FILES[BIG]})
    assert hub.asked(BIG) == ["", "bytes=100003-"]


def test_a_hub_without_ranges(hub: LoopbackHub, store: LocalStore) -> None:
    hub.cut[BIG], hub.without_ranges = 70_000, True
    log = store.fetch(store.job(FILES, hub_source(hub)))
    assert (log[-1], store.contents()) == ("sparkrack: ended 0", FILES)


@pytest.mark.parametrize(
    ("status", "what"),
    [
        (401, "the hub answers 401: it needs a token, or the token is not valid"),
        (403, "the hub answers 403: the token has no access to it"),
        (404, "the hub answers 404: is not there"),
    ],
)
def test_what_the_hub_refuses(hub: LoopbackHub, store: LocalStore, status: int, what: str) -> None:
    hub.status[BIG] = [status]
    log = store.fetch(store.job({BIG: FILES[BIG]}, hub_source(hub)))
    assert (log[-1], f"{BIG}: {what}" in log) == ("sparkrack: ended 1", True)


def test_a_hub_that_does_not_answer(hub: LoopbackHub, store: LocalStore) -> None:
    hub.status[BIG] = [500] * 20
    log = store.fetch(store.job({BIG: FILES[BIG]}, hub_source(hub)))
    assert log[-1] == "sparkrack: ended 1"
    assert f"{BIG}: the hub does not give it: " in "\n".join(log)
    assert len(hub.asked(BIG)) == 6


def test_a_token_is_given_to_the_hub_and_not_to_where_it_redirects(hub: LoopbackHub, store: LocalStore) -> None:
    hub.token = "hf_secret"
    with serving(LoopbackHub(FILES)) as elsewhere:
        hub.redirect = elsewhere.url.replace("127.0.0.1", "localhost")
        log = store.fetch(store.job(FILES, hub_source(hub, hub.token)))
        assert (log[-1], store.contents()) == ("sparkrack: ended 0", FILES)
        assert {token for _, _, token in hub.requests} == {"Bearer hf_secret"}
        assert {token for _, _, token in elsewhere.requests} == {""}
    assert "hf_secret" not in "\n".join(log)
    assert all(b"hf_secret" not in path.read_bytes() for path in store.root.rglob("*") if path.is_file())


def test_a_token_follows_on_the_same_host(hub: LoopbackHub, store: LocalStore) -> None:
    hub.token, hub.redirect = "hf_secret", hub.url
    log = store.fetch(store.job({BIG: FILES[BIG]}, hub_source(hub, hub.token)))
    assert log[-1] == "sparkrack: ended 0"
    assert [token for path, _, token in hub.requests if path.startswith("/cdn")] == ["Bearer hf_secret"]


def test_no_room_is_refused_before_the_first_byte(hub: LoopbackHub, store: LocalStore) -> None:
    log = store.fetch(store.job(FILES, hub_source(hub), reserve=1 << 60))
    assert log[-1] == "sparkrack: ended 1"
    assert any("MB free, what it lacks needs 1152921504" in line for line in log), log
    assert (hub.requests, store.contents(), store.parts()) == ([], {}, [])


@pytest.mark.parametrize(
    "path",
    ["../x", "a/../../x", "/tmp/owned", "a\nb", "", ".sparkrack/record", "a//b", "./a", "a\\b", "a\x1b[2J", "a\tb"],  # noqa: S108
)
def test_a_path_that_leads_out_is_refused_before_the_first_byte(hub: LoopbackHub, store: LocalStore, path: str) -> None:
    log = store.fetch(store.job({**FILES, path: b"x"}, hub_source(hub)))
    assert log[-1] == "sparkrack: ended 1"
    assert "is not accepted as the path of a file" in log[-2]
    assert (hub.requests, store.folder.exists()) == ([], False)


def test_a_path_is_never_run(other: LocalStore, store: LocalStore) -> None:
    paths = ("$(touch owned)", "`touch owned`", "a'; touch owned; '", "-x", "--", "a b", "模型.bin")
    files = dict.fromkeys(paths, b"content") | {f"{path}x/d/{path}": b"more" for path in paths}
    put(other, files)
    assert other.fetch(other.job(files, None))[-1] == "sparkrack: ended 0"
    log = store.fetch(store.job(files, node_source(other)))
    assert (log[-1], store.contents()) == ("sparkrack: ended 0", files)
    assert not list(store.root.parent.rglob("owned"))
    assert not Path("owned").exists()


def test_a_link_in_the_folder_is_not_followed(hub: LoopbackHub, store: LocalStore, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    store.folder.mkdir(parents=True)
    (store.folder / "nested").symlink_to(outside)
    log = store.fetch(store.job(FILES, hub_source(hub)))
    assert (log[-1], list(outside.iterdir())) == ("sparkrack: ended 1", [])
    assert any("nested is not a folder; move it away" in line for line in log)
    (store.folder / "nested").unlink()
    (store.folder / BIG).symlink_to(outside / "big")
    log = store.fetch(store.job(FILES, hub_source(hub)))
    assert any(f"{BIG} is not a regular file; move it away" in line for line in log)
    assert list(outside.iterdir()) == []


def test_a_folder_that_is_a_link_is_refused(hub: LoopbackHub, store: LocalStore, tmp_path: Path) -> None:
    store.folder.parent.mkdir(parents=True)
    store.folder.symlink_to(tmp_path)
    log = store.fetch(store.job(FILES, hub_source(hub)))
    assert (log[-1], hub.requests) == ("sparkrack: ended 1", [])


def test_what_is_not_declared_stays(hub: LoopbackHub, store: LocalStore) -> None:
    put(store, {"notes.txt": b"mine"})
    store.fetch(store.job(FILES, hub_source(hub)))
    assert store.contents() == {**FILES, "notes.txt": b"mine"}


def test_two_at_a_time_are_refused(hub: LoopbackHub, store: LocalStore) -> None:
    hub.pause, hub.pause_after = threading.Event(), 1000
    process = store.start(store.job(FILES, hub_source(hub)), BLOCK=1000)
    until(lambda: bool(store.parts()), process)
    log = store.fetch(store.job(FILES, hub_source(hub)))
    assert (log[-1], "another transfer writes this model" in log[-2]) == ("sparkrack: ended 1", True)
    hub.pause.set()
    assert process.communicate(timeout=120)[0].splitlines()[-1] == "sparkrack: ended 0"


def test_a_node_serves_what_it_has_while_the_rest_comes(hub: LoopbackHub, store: LocalStore, tmp_path: Path) -> None:
    """A chain: n1 fetches, n2 takes each file as soon as n1 has verified it."""
    first, last = store, LocalStore(tmp_path / "n2")
    stand_in(last.root, "systemctl", "exit 0")
    hub.pause, hub.pause_after = threading.Event(), 200_000
    fetching = first.start(first.job(FILES, hub_source(hub)), BLOCK=10_000)
    until(lambda: (first.folder / ".sparkrack/record").exists() and "config.json" in first.recorded(), fetching)
    taking = last.start(last.job(FILES, node_source(first)))
    until(lambda: "config.json" in last.contents(), taking)
    assert BIG not in first.contents()
    hub.pause.set()
    assert [process.communicate(timeout=60)[0].splitlines()[-1] for process in (fetching, taking)] == [
        "sparkrack: ended 0"
    ] * 2
    assert last.contents() == FILES
    assert len(hub.requests) == len(FILES), "from the hub it came once"


def test_a_source_that_ended_without_the_model(store: LocalStore, tmp_path: Path) -> None:
    half = LocalStore(tmp_path / "n0")
    put(half, {"config.json": FILES["config.json"]})
    half.fetch(half.job({"config.json": FILES["config.json"]}, None))
    log = store.fetch(store.job(FILES, node_source(half)), WORKERS=1)
    assert log[-1] == "sparkrack: ended 1"
    assert "the transfer of the other node ended before it had the model" in log
    assert store.recorded() == {"config.json"}


def test_a_file_of_the_source_that_was_cut_since_it_was_recorded_is_named(store: LocalStore, other: LocalStore) -> None:
    cut = other.folder / "config.json"
    os.truncate(cut, 1)
    log = store.fetch(store.job(FILES, node_source(other)), WORKERS=1)
    assert log[-2:] == [f"config.json: {cut}: is shorter than its record says", "sparkrack: ended 1"], log


def test_more_bytes_than_the_files_have_are_refused(store: LocalStore, other: LocalStore) -> None:
    stand_in(store.root, "ssh", 'for last in "$@"; do :; done; sh -c "$last"; echo x')
    log = store.fetch(store.job(FILES, node_source(other)), WORKERS=1)
    assert log[-2:] == ["more bytes came than the files have", "sparkrack: ended 1"], log


def test_a_failure_ends_copies_that_wait(store: LocalStore, other: LocalStore) -> None:
    """Of two files one fails at once, and the other would be waited for."""
    script = 'case $(cat) in *config.json*) echo "No route to host" >&2; exit 255; esac; '
    stand_in(store.root, "ssh", f"{script}exec sleep 300")
    log = store.fetch(store.job(FILES, node_source(other)), SMALL=1)
    assert (log[-1], "config.json: No route to host" in log) == ("sparkrack: ended 1", True)


def test_parts_of_the_operators_machine(store: LocalStore) -> None:
    log = store.fetch(store.job(FILES, None))
    lacks = [line.split(" ", 5) for line in log if line.startswith("sparkrack: lacks ")]
    assert [(path, sha) for _, _, _, sha, _, path in lacks] == [(path, sha) for path, _, sha in rows(FILES)]
    for _, _, start, _, part, path in lacks:
        assert start == "0"
        Path(part).write_bytes(FILES[path][: 5000 if path == BIG else None])
    log = store.fetch(store.job(FILES, None))
    assert [line.split(" ")[2] for line in log if "lacks" in line] == ["5000"]
    assert store.recorded() == set(FILES) - {BIG}
    big = Path(lacks[-1][4]).with_name(part_name(BIG, FILES[BIG]))
    big.write_bytes(b"x" * len(FILES[BIG]))
    log = store.fetch(store.job(FILES, None))
    assert [line.split(" ")[2] for line in log if "lacks" in line] == ["0"], "wrong bytes are removed"
    big.write_bytes(FILES[BIG])
    log = store.fetch(store.job(FILES, None))
    assert (log[-1], [line for line in log if "lacks" in line]) == ("sparkrack: ended 0", [])
    assert store.contents() == FILES


def test_the_list_of_a_revision(hub: LoopbackHub, store: LocalStore) -> None:
    code, output, _ = store.resolve(hub)
    assert code == 0
    assert json.loads(output) == {
        "revision": COMMIT,
        "files": rows(FILES),
        "configurations": {"config.json": '{"model_type": "small"}'},
    }
    asked = [path for path, _, _ in hub.requests]
    assert asked[0].endswith("/revision/main?blobs=true")
    assert len(asked) == 3, "the list and two files without a sha256"
    assert store.resolve(hub)[1] == output
    log = store.fetch(store.job(FILES, hub_source(hub)))
    assert (log[-1], store.contents()) == ("sparkrack: ended 0", FILES)
    assert len(hub.asked("config.json")) == 1, "what came with the list does not come again"


def test_a_revision_with_a_slash_and_a_token(hub: LoopbackHub, store: LocalStore) -> None:
    hub.token = "hf_secret"
    assert store.resolve(hub, "refs/pr/1", "hf_secret")[0] == 0
    assert hub.requests[0][0].endswith("/revision/refs%2Fpr%2F1?blobs=true")
    code, _, why = store.resolve(hub)
    assert (code, why) == (1, "Qwen/Small: the hub answers 401: it needs a token, or the token is not valid")


def entry(path: Any = "a", size: Any = 5, **others: Any) -> dict[str, Any]:
    return {"rfilename": path, "size": size, "blobId": "a" * 40, **others}


LARGE = {"lfs": {"sha256": "a" * 64, "size": 5}}


@pytest.mark.parametrize(
    "listed",
    [
        [],
        "x",
        {"sha": COMMIT, "siblings": []},
        {"sha": "main", "siblings": [entry(**LARGE)]},
        {"sha": COMMIT, "siblings": [entry(blobId="x")]},
        {"sha": COMMIT, "siblings": [entry(size=None, **LARGE)]},
        {"sha": COMMIT, "siblings": [entry(lfs={"sha256": 1, "size": 5})]},
        {"sha": COMMIT, "siblings": [entry(lfs={"size": 5})]},
        *(
            {"sha": COMMIT, "siblings": [entry(path, **LARGE)]}
            for path in ("../x", "/etc/x", "a\nb", "", None, ".sparkrack/record", "a/../../b")
        ),
        {"sha": COMMIT, "siblings": [entry(**LARGE), entry(**LARGE)]},
        {"sha": COMMIT, "siblings": [entry(lfs={"sha256": "../x", "size": 5})]},
        {"sha": COMMIT, "siblings": [entry(size=1 << 40)]},
    ],
)
def test_a_list_that_cannot_be_used(hub: LoopbackHub, store: LocalStore, listed: Any) -> None:
    hub.listed = listed
    code, output, why = store.resolve(hub)
    assert (code, output) == (1, "")
    assert why.count("\n") == 0, why
    assert why
    assert store.contents() == {}
    assert not list(store.root.parent.rglob("x"))


def test_small_files_are_checked_by_the_hash_of_git(hub: LoopbackHub, store: LocalStore) -> None:
    hub.sends["config.json"] = b'{"model_type": "other"}'
    code, output, why = store.resolve(hub)
    assert (code, output, why) == (1, "", "config.json: the hub gives other bytes than its list says")
