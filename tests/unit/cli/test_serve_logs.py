"""`sparkrack serve logs`, with nodes that are shells of this machine and a journal that is a file."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.cli_fixtures import SPARKRACK, settings
from tests.unit.cli.serve_rack import ServeRack
from tests.unit.model.serving_racks import unit

JOURNALCTL = """#!/bin/sh
echo "$@" >> "$NODE/journalctl"
cat "$NODE/journal"
case "$*" in *--follow*) exec sleep 1000 ;; esac
"""
SECOND = 10**6
BEGIN = 1_790_000_000 * SECOND
ENGINE, AGENT, COORDINATOR = (f"sparkrack-serve-qwen{suffix}.service" for suffix in ("", "-agent", "-coordinator"))


def entry(seconds: float, message: Any, service: str = ENGINE, **fields: str) -> str:
    at = {"__REALTIME_TIMESTAMP": str(int(BEGIN + seconds * SECOND)), "_SYSTEMD_UNIT": service}
    return json.dumps({**at, "MESSAGE": message, **fields}) + "\n"


@pytest.fixture
def rack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ServeRack:
    made = ServeRack(tmp_path, monkeypatch)
    made.program("bin/journalctl", JOURNALCTL)
    journal(made, "n0", entry(1, "loading"), entry(3, "unit qwen: ready", COORDINATOR))
    journal(made, "n1", entry(2, "start", AGENT), entry(4, "Stopped.", "init.scope", UNIT=ENGINE))
    return made


def journal(rack: ServeRack, node: str, *entries: str) -> None:
    (rack.folder / node / "journal").write_text("".join(entries))


def test_all_journals_are_one_stream_in_the_order_of_time(rack: ServeRack) -> None:
    done = rack.run("logs", "qwen", "--since", "10m")
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines() == [
        "2026-09-21T14:13:21.000Z n0 (rank 0) engine: loading",
        "2026-09-21T14:13:22.000Z n1 (rank 1) agent: start",
        "2026-09-21T14:13:23.000Z n0 (rank 0) coordinator: unit qwen: ready",
        "2026-09-21T14:13:24.000Z n1 (rank 1) systemd (engine): Stopped.",
    ]
    (asked,) = (rack.folder / "n1/journalctl").read_text().splitlines()
    assert f"-u {ENGINE} -u {AGENT} -u {COORDINATOR} --since=-600s " in asked
    assert not rack.lock.exists()


def test_one_rank(rack: ServeRack) -> None:
    done = rack.run("logs", "qwen", "--rank", "1")
    assert [line.split()[1] for line in done.stdout.splitlines()] == ["n1", "n1"]
    assert not (rack.folder / "n0/journalctl").exists()
    done = rack.run("logs", "qwen", "--rank", "2")
    assert (done.exit_code, "Error: unit qwen has no rank 2; its ranks are 0 to 1" in done.stderr) == (1, True)


def test_a_node_without_a_journal_is_named_and_the_others_are_printed(rack: ServeRack) -> None:
    rack.off("n1")
    done = rack.run("logs", "qwen")
    assert done.exit_code == 1
    assert len(done.stdout.splitlines()) == 2
    assert done.stderr == "n1 (rank 1): no journal: ssh: connect: No route to host\n"


def test_control_characters_and_secrets_are_replaced(rack: ServeRack) -> None:
    key = rack.folder / "qwen.key"
    key.write_text("quiet-horse-of-the-api\n")
    key.chmod(0o600)
    rack.declare({"qwen": unit(api={"key": {"file": str(key)}})})
    lines = ["title \x1b]0;owned\x07", "the key is quiet-horse-of-the-api", "HF_TOKEN=hf_0123456789abcdef"]
    journal(rack, "n0", *(entry(1 + number, line) for number, line in enumerate(lines)))
    journal(rack, "n1", entry(9, list(b"a\xff\x1b[2Jb\nsecond line")), "no entry \x1b[2J\n", entry(10, None))
    done = rack.run("logs", "qwen")
    assert done.exit_code == 0, done.output
    assert [line.partition(") ")[2] for line in done.stdout.splitlines()] == [
        "engine: title \\x1b]0;owned\\x07",
        "engine: the key is ***",
        "engine: HF_TOKEN=***",
        "engine: a\\xff\\x1b[2Jb",
        "engine: second line",
        "no entry: no entry \\x1b[2J",
        "engine: ",
    ]


def test_a_key_that_is_not_here_is_a_warning(rack: ServeRack) -> None:
    rack.declare({"qwen": unit(api={"key": {"env": "NO_SUCH_KEY"}})})
    done = rack.run("logs", "qwen")
    assert done.exit_code == 0
    assert (
        "warning: the API key is not known here, so it is not removed: environment variable NO_SUCH_KEY" in done.stderr
    )


@pytest.mark.parametrize("since", ["yesterday", "1d", "-1h", "1h; id"])
def test_another_duration_is_wrong_usage(rack: ServeRack, since: str) -> None:
    done = rack.run("logs", "qwen", "--since", since)
    assert done.exit_code == 1
    assert "is not a whole number of s, m or h, such as 30m" in done.stderr
    assert not (rack.folder / "n0/journalctl").exists()


def test_follow_goes_on_until_ctrl_c(rack: ServeRack) -> None:
    """As a process of its own: what was there is printed in order, a node that is away is named at once."""
    rack.declare({"qwen": unit(nodes=["n0", "n1", "n2"], parallel={"pipeline": 3})})
    rack.off("n2")
    words = [SPARKRACK, "serve", "logs", "qwen", "--follow", "--rack", str(rack.file)]
    process = subprocess.Popen(
        words, env=settings(rack.folder), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, process_group=0
    )
    try:
        assert process.stdout
        assert process.stderr
        lines = [process.stdout.readline().partition("Z ")[2] for _ in range(4)]
        messages = [line.split(": ", 1)[1] for line in lines]
        assert messages == ["loading\n", "start\n", "unit qwen: ready\n", "Stopped.\n"]
        assert process.stderr.readline() == "n2 (rank 2): no journal: ssh: connect: No route to host\n"
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=60)
        assert (process.returncode, out, err) == (1, "", "")
    finally:
        process.kill()
        process.communicate()
