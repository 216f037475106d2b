"""The lock of a rack, its scripts run by a real shell: one holder, who comes second is reported, given back by its
own."""

from __future__ import annotations

import base64
import getpass
import json
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier

import pytest
from pyinfra.api.command import StringCommand

from core.ops import run_lock
from core.ops.run_lock import GONE, HELD, Holder, content, describe_holder, holder
from tests.unit.ops.shells import run

MINE = Holder("20260314T091500-3fa2", "ana@desk", "2026-03-14T09:15:00+00:00", "spark1, spark2: memory")
OTHER = Holder("20260314T091501-0000", "ben@desk", "2026-03-14T09:15:01+00:00", "spark2")
GARBAGE = {
    "empty": b"",
    "half": MINE.text.encode()[:40],
    "not text": b"\xff\xfe\0\x9b",
    "another kind": b'["id"]\n',
    "nested": b"[" * 4096,
    "number for an ID": MINE.text.replace(f'"{MINE.id}"', "7").encode(),
    "no ID": MINE.text.replace(MINE.id, "").encode(),
    "an ID for a shell": MINE.text.replace(MINE.id, "$(reboot)").encode(),
    "long": b"x" * 100_000,
}
HOSTILE = {
    "id": MINE.id,
    "who": "\x1b]0;owned\x07\x1b[2J ana\n\r\u2028\u202e\x9b31m",
    "since": "`reboot` $(reboot) '\"; reboot #",
    "what": "x" * 5000,
}


def take(root: Path, own: Holder = MINE) -> subprocess.CompletedProcess[str]:
    script, text = run_lock.take(own)
    command = StringCommand(script)
    command.connector_arguments["_stdin"] = text
    return run(command, root)


def release(root: Path, own: Holder = MINE) -> subprocess.CompletedProcess[str]:
    return run(run_lock.release(own.text.encode()), root)


@pytest.fixture
def node(tmp_path: Path) -> Path:
    (tmp_path / "run").mkdir()
    return tmp_path


@pytest.fixture
def held(node: Path) -> Path:
    assert take(node).returncode == 0
    return node


def file(node: Path) -> Path:
    return node / "run/sparkrack/run.lock"


def put(node: Path, text: bytes) -> None:
    file(node).parent.mkdir()
    file(node).write_bytes(text)


def names(node: Path) -> list[str]:
    return sorted(path.name for path in file(node).parent.iterdir())


def test_it_is_taken(node: Path) -> None:
    done = take(node)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert json.loads(file(node).read_text()) == vars(MINE)
    assert f"{file(node).stat().st_mode & 0o777:o}" == "644", "every user may read who holds the rack"
    assert names(node) == ["run.lock"], "nothing is left beside it"


def test_the_second_is_reported_who_since_when_and_what(held: Path) -> None:
    done = take(held, OTHER)
    assert done.returncode == HELD
    assert describe_holder(done.stdout) == MINE
    fault = run_lock.acquire_error("spark1", OTHER, done.returncode, done.stdout)
    assert fault == (
        "the rack is locked by run 20260314T091500-3fa2 of ana@desk, since 2026-03-14T09:15:00+00:00 "
        "(spark1, spark2: memory); if that run is dead: sparkrack unlock 20260314T091500-3fa2"
    )
    assert json.loads(file(held).read_text()) == vars(MINE)
    assert names(held) == ["run.lock"]


def test_an_answer_that_was_lost_leaves_it_taken(held: Path) -> None:
    again = take(held)
    assert run_lock.acquire_error("spark1", MINE, again.returncode, again.stdout) is None


def test_of_two_at_the_same_time_one_wins(node: Path) -> None:
    for _ in range(50):
        start = Barrier(2)

        def race(own: Holder, start: Barrier = start) -> subprocess.CompletedProcess[str]:
            start.wait(60)
            return take(node, own)

        with ThreadPoolExecutor(2) as pool:
            ended = list(pool.map(race, (MINE, OTHER)))
        assert sorted(one.returncode for one in ended) == [0, HELD], ended
        winner, loser = (MINE, ended[1]) if ended[0].returncode == 0 else (OTHER, ended[0])
        assert describe_holder(loser.stdout) == winner
        assert release(node, winner).returncode == 0
    assert names(node) == []


@pytest.mark.parametrize("text", GARBAGE.values(), ids=GARBAGE)
def test_a_lock_file_that_cannot_be_read_is_held(node: Path, text: bytes) -> None:
    put(node, text)
    done = take(node)
    assert done.returncode == HELD
    assert describe_holder(done.stdout).id == "unknown"
    assert file(node).read_bytes() == text
    assert release(node).returncode == HELD
    assert file(node).read_bytes() == text


@pytest.mark.parametrize("text", GARBAGE.values(), ids=GARBAGE)
def test_it_can_be_ended(node: Path, text: bytes) -> None:
    """As `sparkrack unlock unknown` does it: look, then remove what was seen."""
    put(node, text)
    seen = run(run_lock.read_script(), node)
    assert (seen.returncode, describe_holder(seen.stdout).id) == (0, "unknown")
    assert run(run_lock.release(content(seen.stdout)), node).returncode == 0
    assert names(node) == []


def test_a_link_to_nowhere_is_held(node: Path) -> None:
    file(node).parent.mkdir()
    file(node).symlink_to(node / "nowhere")
    assert take(node).returncode == HELD
    assert not (node / "nowhere").exists()
    assert run(run_lock.read_script(), node).returncode == 0
    assert run(run_lock.release(b""), node).returncode == 0
    assert names(node) == []


def test_a_folder_in_its_place_is_held(node: Path) -> None:
    file(node).mkdir(parents=True)
    assert take(node).returncode == HELD
    assert list(file(node).iterdir()) == []
    assert run(run_lock.release(b""), node).returncode not in (0, HELD, GONE)


@pytest.mark.parametrize("tool", ["mkdir", "mktemp", "base64", "chmod", "ln"])
def test_what_goes_wrong_is_not_a_lock_of_another_user(node: Path, tool: str) -> None:
    (node / "bin").mkdir()
    (node / f"bin/{tool}").write_text("#!/bin/sh\necho no space >&2\nexit 1\n")
    (node / f"bin/{tool}").chmod(0o755)
    done = take(node)
    assert done.returncode not in (0, HELD)
    fault = run_lock.acquire_error("spark1", MINE, done.returncode, done.stderr)
    assert fault == "spark1: the lock of the rack cannot be taken: no space; nothing was changed"
    assert not file(node).exists()


def test_it_is_given_back(held: Path) -> None:
    done = release(held)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert names(held) == []
    assert run_lock.release_error("spark1", MINE, 0, "") is None
    assert take(held, OTHER).returncode == 0


def test_that_of_another_is_left_alone(held: Path) -> None:
    done = release(held, OTHER)
    assert done.returncode == HELD
    assert json.loads(file(held).read_text()) == vars(MINE)
    fault = run_lock.release_error("spark1", OTHER, done.returncode, done.stdout)
    assert fault == f"spark1: the lock is now that of {MINE}; another run may have changed the rack in between"


def test_one_that_names_ours_is_not_ours(node: Path) -> None:
    put(node, Holder(OTHER.id, OTHER.who, OTHER.since, f'"id": "{MINE.id}", {MINE.text}').text.encode())
    assert release(node).returncode == HELD
    assert names(node) == ["run.lock"]


def test_one_that_is_gone_is_reported(held: Path) -> None:
    file(held).unlink()
    done = release(held)
    assert done.returncode == GONE
    fault = run_lock.release_error("spark1", MINE, done.returncode, done.stdout)
    assert fault is not None
    assert fault.startswith("spark1: the lock was gone before the end, by a restart or by `sparkrack unlock`; another")
    assert run(run_lock.read_script(), held).returncode == GONE


def test_a_node_that_does_not_answer_keeps_it() -> None:
    fault = run_lock.release_error("spark1", MINE, 255, "the connection\nended\x1b[2J")
    assert fault == (
        f"spark1: the lock could not be released (the connection\\nended\\x1b[2J); sparkrack unlock {MINE.id}"
    )


def test_hostile_text_prints_on_one_line() -> None:
    found = holder(json.dumps(HOSTILE))
    assert found.id == MINE.id
    for text in (str(found), found.busy):
        assert text.isprintable()
        assert len(text) < 1000
    assert "\\x1b]0;owned\\x07" in found.who


def test_hostile_text_reaches_no_shell(node: Path) -> None:
    put(node, json.dumps(HOSTILE).encode())
    assert take(node).returncode == HELD
    seen = run(run_lock.read_script(), node)
    script = run_lock.release(content(seen.stdout))
    assert "reboot" not in script
    assert "reboot" not in run_lock.acquire_error("spark1", OTHER, HELD, seen.stdout).rpartition(": ")[2]  # type: ignore[union-attr]


def test_what_we_write_ourselves_is_harmless() -> None:
    own = run_lock.new_holder("\x1b[2J" + ", ".join(f"spark{number}" for number in range(1000)))
    assert holder(own.text) == own
    assert str(own).isprintable()
    assert len(own.text) < 1000
    assert "\x1b" not in base64.b64decode(run_lock.take(own)[1]).decode()


def test_a_user_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_user() -> str:
        raise KeyError("getpwuid(): uid not found: 4711")

    monkeypatch.setattr(getpass, "getuser", no_user)
    assert run_lock.new_holder("spark1").who.split("@")[0].isdigit()


def test_no_two_runs_have_one_id() -> None:
    assert len({run_lock.new_holder("spark1").id for _ in range(100)}) == 100


NEW = Holder(MINE.id, MINE.who, MINE.since, MINE.what, beat=run_lock.BEAT)


def up(node: Path, seconds: int) -> None:
    """How long the node runs."""
    (node / "proc").mkdir(exist_ok=True)
    (node / "proc/uptime").write_text(f"{seconds}.25 17.00\n")


def seen(node: Path) -> str:
    done = run(run_lock.read_script(), node)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(("silent", "over"), [(0, False), (run_lock.EXPIRED, False), (run_lock.EXPIRED + 1, True)])
def test_a_lock_that_is_not_renewed_expires_by_the_nodes_clock(node: Path, silent: int, over: bool) -> None:
    up(node, 1000)
    assert take(node, NEW).returncode == 0
    up(node, 2000)
    assert run(run_lock.renew(NEW.text.encode()), node).returncode == 0
    up(node, 2000 + silent)
    assert (describe_holder(seen(node)), run_lock.silence_seconds(seen(node)), run_lock.expired(seen(node))) == (
        NEW,
        silent,
        over,
    )
    assert run_lock.parse_lock_query(run(run_lock.lock_query(), node).stdout) == (NEW, over)
    ended = run(run_lock.release(NEW.text.encode(), after=run_lock.EXPIRED), node).returncode
    assert ended == (0 if over else HELD)
    assert file(node).exists() != over


def test_one_of_a_version_that_renews_nothing_never_expires(node: Path) -> None:
    put(node, MINE.text.encode())
    up(node, 10**7)
    assert not run_lock.expired(seen(node))
    assert take(node, OTHER).returncode == HELD


@pytest.mark.parametrize("text", GARBAGE.values(), ids=GARBAGE)
def test_garbage_never_expires(node: Path, text: bytes) -> None:
    put(node, text)
    up(node, 10**7)
    assert not run_lock.expired(seen(node))
    if text.isascii():
        assert run_lock.parse_lock_query(run(run_lock.lock_query(), node).stdout) == (
            describe_holder(seen(node)),
            False,
        )


def test_only_its_own_is_renewed(node: Path) -> None:
    assert run(run_lock.renew(NEW.text.encode()), node).returncode == GONE
    assert take(node, OTHER).returncode == 0
    assert run(run_lock.renew(NEW.text.encode()), node).returncode == HELD


def on(node: Path) -> run_lock.Run:
    """Runs scripts there."""

    def go(script: str, stdin: str | None) -> tuple[int, str]:
        command = StringCommand(script)
        command.connector_arguments["_stdin"] = stdin or ""
        done = run(command, node)
        return done.returncode, done.stdout

    return go


def test_the_next_run_ends_one_that_has_expired_and_says_so(node: Path) -> None:
    up(node, 1000)
    assert take(node, NEW).returncode == 0
    up(node, 1500)
    reported: list[str] = []
    run_lock.acquire("spark1", OTHER, on(node), lambda _: False, reported.append)
    assert holder(file(node).read_text()) == OTHER
    assert reported == [f"{NEW} has not renewed its lock for 500 s; it is ended"]


def process(pid: int, start: str) -> str:
    here = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{here} {Path('/proc/self/ns/pid').readlink()} {pid} {start}"


def test_a_dead_run_of_this_machine_is_distinguished_from_a_living_one() -> None:
    child = subprocess.Popen(["sleep", "60"])
    start = run_lock.born(child.pid)
    assert start is not None
    alive = Holder("1", "ana@desk", "now", "spark1", process(child.pid, start), run_lock.BEAT)
    assert not alive.dead
    assert replace(alive, process=process(child.pid, str(int(start) + 1))).dead, "its number was given again"
    child.kill()
    while run_lock.born(child.pid) is not None:
        time.sleep(0.01)
    assert alive.dead, "its exit status was not read"
    child.wait()
    assert alive.dead
    assert "is dead, its process on this machine is gone; to end its lock: sparkrack unlock 1" in alive.busy
    elsewhere = alive.process.replace(alive.process.split()[0], "0" * 36)
    assert not replace(alive, process=elsewhere).dead
    assert not replace(alive, process=alive.process.replace("pid:[", "pid:[1")).dead
    assert not replace(alive, process="").dead


@pytest.mark.parametrize("agreed", [True, False])
def test_the_lock_of_a_dead_run_is_ended_when_that_is_agreed(node: Path, agreed: bool) -> None:
    dead = replace(NEW, process=process(2**22 + 1, "1"))
    assert take(node, dead).returncode == 0
    asked: list[Holder] = []

    def agree(one: Holder) -> bool:
        asked.append(one)
        return agreed

    if agreed:
        run_lock.acquire("spark1", OTHER, on(node), agree, print)
    else:
        with pytest.raises(run_lock.LockError, match="is dead, its process"):
            run_lock.acquire("spark1", OTHER, on(node), agree, print)
    assert asked == [dead]
    assert holder(file(node).read_text()) == (OTHER if agreed else dead)


@pytest.mark.parametrize(
    "text", ["x", "0 pid:[1] x 1", "0 pid:[1] 1 1 1", "a b c d", "\x1b[2J pid:[1] 1 1", f"{'0' * 99} pid:[1] 1 1"]
)
def test_a_process_that_is_none_is_not_believed(text: str) -> None:
    found = holder(json.dumps({**vars(NEW), "process": text}))
    assert (found.id, found.process, found.dead) == (NEW.id, "", False)


@pytest.mark.parametrize(("length", "shown"), [(200, "x" * 200), (201, "x" * 197 + "...")])
def test_words_of_a_lock_have_at_most_200_characters(length: int, shown: str) -> None:
    assert run_lock.new_holder("x" * length).what == shown
    assert holder(json.dumps({**json.loads(MINE.text), "what": "x" * length})).what == shown


def test_a_holder_is_described_in_whole_sentences() -> None:
    named = f"run {MINE.id} of ana@desk, since 2026-03-14T09:15:00+00:00 (spark1, spark2: memory)"
    assert str(MINE) == named
    assert MINE.busy == f"the rack is locked by {named}; if that run is dead: sparkrack unlock {MINE.id}"
    dead = replace(MINE, process=run_lock.new_holder("x").process.rpartition(" ")[0] + " 1")
    assert dead.dead
    assert dead.busy == (
        f"{named} is dead, its process on this machine is gone; to end its lock: sparkrack unlock {MINE.id}"
    )
    unread = holder("")
    assert (unread.id, unread.who, unread.since, unread.what) == (
        "unknown",
        "an unknown operator",
        "an unknown time",
        "/run/sparkrack/run.lock cannot be read",
    )


def test_the_end_of_a_lock_is_described_in_whole_sentences() -> None:
    warning = "another run may have changed the rack in between"
    held = base64.b64encode(OTHER.text.encode()).decode() + "\nage:7\n"
    assert run_lock.release_error("spark1", MINE, GONE, "") == (
        f"spark1: the lock was gone before the end, by a restart or by `sparkrack unlock`; {warning}"
    )
    assert run_lock.release_error("spark1", MINE, HELD, held) == f"spark1: the lock is now that of {OTHER}; {warning}"
    assert run_lock.release_error("spark1", MINE, 1, " ") == (
        f"spark1: the lock could not be released (exit 1); sparkrack unlock {MINE.id}"
    )
    assert run_lock.acquire_error("spark1", MINE, 1, " ") == (
        "spark1: the lock of the rack cannot be taken: exit 1; nothing was changed"
    )


@pytest.mark.parametrize(
    ("silence", "words"),
    [
        (119.9, ""),
        (120.0, "spark1: the lock could not be renewed for 120 s, so another run may have taken it"),
    ],
)
def test_a_lock_is_lost_after_two_minutes_without_a_renewal(silence: float, words: str) -> None:
    assert run_lock.expiry_reason("spark1", silence) == words


@pytest.mark.parametrize(("output", "seconds"), [("eA==\nage:7\n", 7), ("eA==\n", 0), ("age:-7", 0), ("age:٣", 0)])
def test_an_age_that_is_not_a_number_is_none(output: str, seconds: int) -> None:
    assert run_lock.silence_seconds(output) == seconds


@pytest.mark.parametrize(("age", "over"), [("120", False), ("121", True), ("x", False), ("", False)])
def test_the_age_of_a_queried_lock_counts_from_121_seconds(age: str, over: bool) -> None:
    assert run_lock.parse_lock_query(f"{NEW.text}\nage:{age}\n") == (NEW, over)
    assert run_lock.parse_lock_query(f"{MINE.text}\nage:{age}\n") == (MINE, False)


@pytest.mark.parametrize(("beat", "kept"), [(20, 20), (19, 0), (21, 0), ("20", 0), (None, 0)])
def test_a_lock_that_is_renewed_otherwise_is_taken_for_one_that_is_not(beat: object, kept: int) -> None:
    assert holder(json.dumps({**json.loads(MINE.text), "beat": beat})).beat == kept


def test_a_lock_file_in_the_output_of_a_script_is_base64() -> None:
    assert content("eA==\nage:7\n") == b"x"
    assert content("!\nage:7\n") == b""
    assert content("eA=\nage:7\n") == b""


def test_a_lock_is_tried_three_times() -> None:
    asked: list[str] = []

    def busy(script: str, text: str | None) -> tuple[int, str]:
        asked.append("take" if text else "end")
        lock = base64.b64encode(NEW.text.encode()).decode()
        return (HELD, f"{lock}\nage:500\n") if text else (HELD, "")

    with pytest.raises(run_lock.LockError, match=r"^the rack is locked by "):
        run_lock.acquire("spark1", OTHER, busy, lambda _: False, pytest.fail)
    assert asked == ["take", "end"] * 3


def test_the_clock_of_a_run_also_counts_while_its_machine_sleeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "clock_gettime", lambda which: {time.CLOCK_BOOTTIME: 5.0}.get(which, 1.0))
    assert run_lock.clock() == 5.0
