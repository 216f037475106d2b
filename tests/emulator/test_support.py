"""`sparkrack support`: what the archive has, and that no secret of any of its sources is in it."""

from __future__ import annotations

import hashlib
import json
import os
import stat
import tarfile
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from core.model import load
from sparkrack.engine.journal import RunJournal, log_path
from sparkrack.support.collect import collect
from tests.emulator.switch_runs import Workdir
from tests.unit.cli.runs import Ended, forked
from tests.unit.cli.test_runs import ENDED, journal

CANARY = "canaryQ7rT"
ARGUMENT, COMMENT = f"{CANARY}-argument", f"{CANARY}-comment"
TOOLS = {
    "ssh": '#!/bin/sh\ncase "$*" in *spark2*) echo "ssh: no route" >&2; exit 255;; esac\nexec sh\n',
    "journalctl": f"#!/bin/sh\necho 'vllm: downloading with hf_{CANARY}12345'\necho 'x --password {CANARY}5'\n"
    f"echo 'Authorization: Bearer {CANARY}-bearer'\n",
    "dmesg": f"#!/bin/sh\necho 'HF_TOKEN={CANARY}6 at 02:11:22:33:44:55 and 203.0.113.99 of GB10-SERIAL-1'\n",
    "docker": f'#!/bin/sh\ncase "$1" in info) echo "Proxy: http://u:{CANARY}7@proxy";; ps) echo web running;; '
    f"*) echo 'TOKEN={CANARY}8';; esac\n",
    "systemctl": f"#!/bin/sh\nprintf -- '-----BEGIN OPENSSH PRIVATE KEY-----\\n{CANARY}9\\n'\n",
    "cat": '#!/bin/sh\ncase "$*" in *_serial*) echo GB10-SERIAL-1;; *) exec /bin/cat "$@";; esac\n',
}
NODE_FILES = ("versions", "journal", "dmesg", "network", "ethtool", "systemd", "docker", "memory", "files")


@pytest.fixture
def tools(tmp_path: Path) -> str:
    """PATH with an ssh that runs scripts here, and with tools whose output has secrets."""
    folder = tmp_path / "tools"
    folder.mkdir()
    for name, text in TOOLS.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


def support(workdir: Workdir, tools: str, *words: str) -> tuple[Ended, dict[str, str], Path]:
    """How the command ended, the files of its archive by their names, and the archive."""
    out = workdir.folder / "out"
    more: dict[str, Any] = {
        "RACK": str(workdir.folder / "rack.yaml"),
        "XDG_STATE_HOME": str(workdir.folder / "state"),
        "PATH": tools,
    }
    ended = forked("sparkrack", "support", *words, "--out", str(out), CRS812_PASSWORD=workdir.emulator.password, **more)
    (path,) = out.glob("sparkrack-support-*.tar.gz")
    with tarfile.open(path) as archive:
        found = {
            entry.name.partition("/")[2]: file.read().decode()
            for entry in archive
            if (file := archive.extractfile(entry)) is not None
        }
    return ended, found, path


def prepare(workdir: Workdir) -> str:
    """Write the rack and a run with secrets; the name of the rack."""
    workdir.write()
    file = workdir.folder / "rack.yaml"
    rack = next(line.split()[1] for line in file.read_text().splitlines() if line.startswith("rack:"))
    text = file.read_text()
    file.write_text(f"# the password is {COMMENT}\n{text}")
    kept: RunJournal = journal(workdir.folder / "state/sparkrack" / rack / "runs", ENDED)
    kept.close()
    log_path(kept.path).write_text(f"    export SOME_TOKEN={CANARY}1\n    ssh-ed25519 AAAAC3Nz {CANARY}2\n")
    with kept.path.open("a") as added:
        added.write(json.dumps({"event": "message", "password": f"{CANARY}3"}) + "\n")
    return rack


def test_the_archive_has_everything_but_secrets(workdir: Workdir, tools: str) -> None:
    prepare(workdir)
    ended, found, path = support(workdir, tools, "spark1", "switches")
    assert ended.code == 0, ended.text
    assert ended.stdout.splitlines()[-1] == str(path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    wanted = {"manifest.json", "rack.yaml", "status.json", "drift.json", f"runs/{ENDED}.ndjson", f"runs/{ENDED}.log"}
    wanted |= {f"nodes/spark1/{name}.txt" for name in NODE_FILES}
    wanted |= {f"switches/crs812/{name}" for name in ("export.rsc", "health.json", "log.json", "interfaces.json")}
    assert wanted <= found.keys()
    assert not [name for name, text in found.items() if CANARY in text or workdir.emulator.password in text]
    manifest = json.loads(found["manifest.json"])
    assert manifest["schema"] == "sparkrack.support/1"
    assert [host["name"] for host in manifest["hosts"]] == ["spark1", "crs812"]
    hashes = {one["path"]: one["sha256"] for one in manifest["files"]}
    assert hashes == {
        name: hashlib.sha256(text.encode()).hexdigest() for name, text in found.items() if name != "manifest.json"
    }
    assert "downloading with ***" in found["nodes/spark1/journal.txt"]
    assert "web running" in found["nodes/spark1/docker.txt"]
    assert "/interface" in found["switches/crs812/export.rsc"]
    assert "***" in found["rack.yaml"]
    assert "env" not in found["rack.yaml"]
    assert "sparkrack-" not in json.dumps(workdir.emulator.state().get("tables", {}).get("/file", [])), "it is removed"
    assert "203.0.113.99" in found["nodes/spark1/dmesg.txt"]


def test_a_host_that_does_not_answer_is_named_and_the_rest_is_there(workdir: Workdir, tools: str) -> None:
    prepare(workdir)
    ended, found, _ = support(workdir, tools, "spark[12]")
    assert ended.code == 1
    assert "spark2: versions.txt: ssh: no route" in ended.stderr
    assert "1 of 2 hosts answered" in ended.stdout
    assert "Traceback" not in ended.text
    hosts = {host["name"]: host["answered"] for host in json.loads(found["manifest.json"])["hosts"]}
    assert hosts == {"spark1": True, "spark2": False}
    assert "nodes/spark1/files.txt" in found


class Observer:
    """What a progress is reported, in order, and of which hosts."""

    def __init__(self) -> None:
        self.reported: list[tuple[str, ...]] = []

    def phase(self, title: str, hosts: Iterable[str] = ()) -> None:
        self.reported.append(("phase", title, *hosts))

    def step(self, host: str, activity: str, number: int = 0, total: int = 0) -> None:
        self.reported.append((host, activity, f"{number}/{total}"))

    def finish(self, host: str, result: str = "done") -> None:
        self.reported.append((host, result))


def test_it_says_what_it_waits_for(workdir: Workdir, tools: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of its commands, each question to a node, and each host that is finished."""
    prepare(workdir)
    monkeypatch.setenv("PATH", tools)
    monkeypatch.setenv("XDG_STATE_HOME", str(workdir.folder / "state"))
    monkeypatch.setenv("CRS812_PASSWORD", workdir.emulator.password)
    monkeypatch.setattr("sparkrack.support.collect.CALL", ("true",))
    observer, file = Observer(), workdir.folder / "rack.yaml"
    collect(load(file), file, ["spark1", "spark2", "crs812"], datetime.now(UTC), False, observer)
    assert [one[1] for one in observer.reported if one[0] == "phase"] == [
        "run sparkrack status",
        "run sparkrack drift",
        "read what the hosts log",
    ]
    assert ("phase", "read what the hosts log", "spark1", "spark2", "crs812") in observer.reported
    number = len(NODE_FILES)
    assert [one[2] for one in observer.reported if one[0] == "spark1" and len(one) == 3] == [
        f"{at}/{number}" for at in range(1, number + 1)
    ]
    ends = [one for one in observer.reported if len(one) == 2 and one[0] != "phase"]
    assert sorted(ends) == [("crs812", "done"), ("spark1", "done"), ("spark2", "no answer")]


def test_anonymized(workdir: Workdir, tools: str) -> None:
    prepare(workdir)
    ended, found, _ = support(workdir, tools, "spark1", "switches", "--anonymize")
    assert ended.code == 0, ended.text
    text = "\n".join(found.values())
    for private in ("203.0.113.99", "02:11:22:33:44:55", "GB10-SERIAL-1"):
        assert private not in text
    assert "192.0.2." in found["nodes/spark1/dmesg.txt"]
    assert "SERIAL-" in found["nodes/spark1/dmesg.txt"]
