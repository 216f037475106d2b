"""What a node's own files hold beside what we change: in no plan, no report, no history, no journal."""

from __future__ import annotations

import time
from pathlib import Path

from tests.unit.cli.runs import Ended, command
from tests.unit.engine.fake_rack import usual
from tests.unit.engine.ssh_node import SshNode, answering, rack_file
from tests.unit.roles.cases import NOW

CANARIES = ("canary-of-the-share", "canary-of-the-swap", "canary-svc", "/root/canary-file")
FSTAB = (
    "//nas/models /models cifs username=canary-svc,password=canary-of-the-share 0 0\n"
    "/swap.img none swap sw,password=canary-of-the-swap,username=canary-svc,credentials=/root/canary-file 0 0\n"
    "//nas/more /more cifs credentials=/root/canary-file 0 0\n"
)
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("sparkrack", "plan", "--limit", "spark1", "--only", "memory", "--out", "plan.json"),
    ("sparkrack", "plan", "--limit", "spark1", "--only", "memory", "--json"),
    ("sparkrack", "drift", "--limit", "spark1", "--only", "memory", "--markdown", "--prom", "drift.prom"),
    ("sparkrack", "drift", "--limit", "spark1", "--only", "memory"),
    ("sparkrack", "apply", "-y", "--limit", "spark1", "--only", "memory"),
    ("pyinfra", "inventory.py", "deploy.py", "--dry", "--diff", "-vvv", "--debug", "--limit", "spark1"),
)


def _answer_command(reported: str) -> tuple[int, str, str] | None:
    now = dict(usual("memory"))["preflight-now"].replace(str(int(NOW)), str(int(time.time())))
    return answering(dict(usual("memory")) | {"preflight-now": now, "/etc/fstab": FSTAB})(reported)


def test_neighbours_of_a_changed_line_and_values_of_mount_options_are_shown_nowhere(tmp_path: Path) -> None:
    there = SshNode(_answer_command)
    reported: list[Ended] = []
    try:
        rack = rack_file(tmp_path, there)
        for words in COMMANDS:
            named = [str(tmp_path / word) if word in ("plan.json", "drift.prom") else word for word in words]
            reported.append(command(*named, RACK=str(rack), XDG_STATE_HOME=str(tmp_path / "state")))
    finally:
        there.close()
    for words, ended in zip(COMMANDS, reported, strict=True):
        assert not [canary for canary in CANARIES if canary in ended.text], f"{words}: {ended.text}"
        assert "Traceback" not in ended.text
    for ended in (reported[0], reported[-1]):
        assert "-/swap.img none swap sw,password=***" in ended.text, ended.text
        assert "+#sparkrack: swap off# /swap.img none swap sw,password=***" in ended.text
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {"plan.json", "drift.prom"} <= {path.name for path in files}
    assert list((tmp_path / "state").rglob("*.json*"))
    assert not [(path, canary) for path in files for canary in CANARIES if canary.encode() in path.read_bytes()]
