"""What is asked about groups and files of ours, run by a real shell in folders like a node's, and how it is read."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from core.model import CONTAINER_SLICE
from core.ops import host_facts, remote_files
from core.util import managed_file
from core.util.managed_file import ManagedFile
from roles.memory import (
    cgroups,
    container_slice,
    daemon_protection,
    facts,
    memory_gate,
    memory_guard,
)
from tests.unit.model.racks import SWITCH, loaded
from tests.unit.ops.shells import rooted, run, stand_in, write
from tests.unit.roles.cases import node_of
from tests.unit.roles.memory_files import lines

COMMANDS = host_facts._registered["memory"].commands
RACK = loaded(SWITCH)


def process(node: Path, pid: int, name: str, parent: int, score: int) -> None:
    write(
        node, f"/proc/{pid}/status", f"Name:\t{name}\nUmask:\t0022\nState:\tS\nPid:\t{pid}\nPPid:\t{parent}\nUid:\t0\n"
    )
    write(node, f"/proc/{pid}/oom_score_adj", f"{score}\n")
    write(node, f"/proc/{pid}/cmdline", f"/bin/bash\0{memory_guard.SCRIPT}\0{3145728}\0")


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A node on which everything is right, one process of a login beside sshd, and one that has just ended."""
    top = "/sys/fs/cgroup"
    write(tmp_path, f"{top}/cgroup.controllers", "cpu io memory pids\n")
    for name, value in {"max": "107374182400", "swap.max": "0", "current": "0", "min": "0"}.items():
        write(tmp_path, f"{top}/{CONTAINER_SLICE}/memory.{name}", f"{value}\n")
    write(tmp_path, f"{top}/{CONTAINER_SLICE}/cgroup.events", "populated 0\nfrozen 0\n")
    write(tmp_path, f"{top}/system.slice/memory.min", "134217728\n")
    for pid, daemon in enumerate((*daemon_protection.DAEMONS[:2], daemon_protection.DAEMONS[3]), 100):
        process(tmp_path, pid, daemon.process, 1, daemon.score)
        write(tmp_path, f"{top}/system.slice/{daemon.unit}/memory.min", f"{daemon.keep * 1024**2}\n")
        write(tmp_path, f"{top}/system.slice/{daemon.unit}/cgroup.procs", f"200\n{pid}\n999\n")
    process(tmp_path, 200, "sshd", 100, 0)
    write(tmp_path, f"{top}/system.slice/{cgroups.GUARD}/memory.min", "16777216\n")
    write(tmp_path, f"{top}/system.slice/{cgroups.GUARD}/cgroup.procs", "300\n")
    process(tmp_path, 300, "memory-guard", 1, -1000)
    for unit, target in cgroups.WANTS.items():
        link = tmp_path / f"etc/systemd/system/{target}/{unit}"
        link.parent.mkdir(parents=True)
        link.symlink_to(f"/etc/systemd/system/{unit}")
    return tmp_path


def asked(node: Path) -> cgroups.MemoryCgroups:
    done = run(COMMANDS[facts.LIVE], node)
    assert (done.returncode, done.stderr) == (0, "")
    return cgroups.live(done.stdout.replace(str(node), ""))


def test_a_bare_machine(tmp_path: Path) -> None:
    assert asked(tmp_path) == cgroups.MemoryCgroups(False, {}, frozenset())


def test_everything_right(node: Path) -> None:
    now = asked(node)
    assert now.unified
    assert (
        now.group(CONTAINER_SLICE).there,
        now.group(CONTAINER_SLICE).enabled,
        now.group(CONTAINER_SLICE).dropins,
    ) == (True, True, [])
    assert container_slice.wrong(RACK, now.group(CONTAINER_SLICE)) == {}
    assert (daemon_protection.drifted_reservations(now), daemon_protection.unprotected_daemons(now)) == ({}, [])
    assert memory_guard.restart_reason(RACK, now.group(cgroups.GUARD)) is None


def test_the_case_file_says_what_a_node_says(node: Path) -> None:
    """Else the cases would be about something that no node answers."""
    reported = run(COMMANDS[facts.LIVE], node).stdout
    kinds = {" ".join(line.split()[:2]) for line in reported.splitlines()}
    assert kinds == {" ".join(line.split()[:2]) for line in node_of("memory")[facts.LIVE].splitlines()}
    assert node_of("memory")[facts.FILES].splitlines() == lines(RACK)


def test_limits_that_another_user_wrote(node: Path) -> None:
    write(node, "/sys/fs/cgroup/sparkrack.slice/memory.max", "max\n")
    write(node, "/sys/fs/cgroup/sparkrack.slice/memory.swap.max", "4096\n")
    now = asked(node).group(CONTAINER_SLICE)
    assert container_slice.wrong(RACK, now) == {"memory.max": 107374182400, "memory.swap.max": 0}
    assert [event.message for event in container_slice.changes(RACK, now)] == [
        "sparkrack.slice: MemoryMax no limit -> 100G (live, nothing is restarted)",
        "sparkrack.slice: MemorySwapMax 4K -> 0 (live, nothing is restarted)",
    ]


def test_a_ceiling_below_what_is_used(node: Path) -> None:
    write(node, "/sys/fs/cgroup/sparkrack.slice/memory.max", f"{120 * 1024**3}\n")
    write(node, "/sys/fs/cgroup/sparkrack.slice/memory.current", f"{110 * 1024**3}\n")
    reported = [event.message for event in container_slice.changes(RACK, asked(node).group(CONTAINER_SLICE))]
    assert reported[0] == "sparkrack.slice: MemoryMax 120G -> 100G (live, nothing is restarted)"
    assert reported[1].startswith("sparkrack.slice: 112640M are in use, more than 100G")
    assert len(reported) == 2


@pytest.mark.parametrize(
    ("total_kb", "notes"),
    [
        (64 * 1024**2, ["docker.memory: 100G is more than this node's 65536M: it bounds nothing here"]),
        (100 * 1024**2 - 1, ["docker.memory: 100G is more than this node's 102399M: it bounds nothing here"]),
        (100 * 1024**2, []),
    ],
)
def test_a_ceiling_above_what_there_is(total_kb: int, notes: list[str]) -> None:
    assert container_slice.notes(RACK, total_kb) == notes


def test_a_kernel_that_counts_no_swap(node: Path) -> None:
    (node / "sys/fs/cgroup/sparkrack.slice/memory.swap.max").unlink()
    assert container_slice.wrong(RACK, asked(node).group(CONTAINER_SLICE)) == {}


def test_only_the_main_process_counts(node: Path) -> None:
    process(node, 100, "sshd", 1, 0)
    process(node, 101, "systemd-network", 1, -500)
    now = asked(node)
    assert [daemon.unit for daemon in daemon_protection.unprotected_daemons(now)] == [
        "ssh.service",
        "systemd-networkd.service",
    ]
    assert [event.message for event in daemon_protection.changes(now)] == [
        "ssh.service: OOM score of sshd 0 -> -1000 (live, nothing is restarted)",
        "systemd-networkd.service: OOM score of systemd-network -500 -> -900 (live, nothing is restarted)",
    ]


def test_sessions_do_not_inherit_what_protects_sshd() -> None:
    texts = {file.path: file.content for file in daemon_protection.dropins(RACK)}
    assert b"OOMScoreAdjust" not in texts["/etc/systemd/system/ssh.service.d/zz-sparkrack.conf"]


def test_the_slice_keeps_what_its_services_keep() -> None:
    assert daemon_protection.keeps()["system.slice"] == sum(
        keep for unit, keep in daemon_protection.keeps().items() if "slice" not in unit
    )


def test_drop_ins_of_others_and_runs_that_died(node: Path) -> None:
    write(node, "/etc/systemd/system.control/sparkrack.slice.d/50-MemoryMax.conf")
    write(node, f"/run/systemd/system/{cgroups.GUARD}.d/a $(b).conf")
    write(node, f"/run/systemd/system/{cgroups.GUARD}.d/README")
    write(node, "/run/sparkrack/memory-guard.pending")
    write(node, "/run/sparkrack/fabric.revert")
    now = asked(node)
    assert now.group(CONTAINER_SLICE).dropins == ["/etc/systemd/system.control/sparkrack.slice.d/50-MemoryMax.conf"]
    assert now.group(cgroups.GUARD).dropins == [f"/run/systemd/system/{cgroups.GUARD}.d/a $(b).conf"]
    assert now.pending == {"memory-guard"}
    write(node, f"/run/systemd/system/{cgroups.GUARD}.d/a\nb.conf")
    with pytest.raises(ValueError, match=r"memory-live: unexpected probe output 'b.conf'"):
        asked(node)


def test_a_group_that_cannot_be_read_is_unknown(node: Path) -> None:
    path = node / "sys/fs/cgroup/system.slice/ssh.service/memory.min"
    path.unlink()
    path.mkdir()
    assert run(COMMANDS[facts.LIVE], node).returncode == 9


@pytest.mark.parametrize(
    "line",
    ["", "x", "ssh.service", "ssh.service memory.max -5", "ssh.service memory.min 1 2", "ssh.service process a 0 sshd",
     "ssh.service process 1 - sshd", "cron.service there", "sparkrack.slice populated"],
)  # fmt: skip
def test_any_other_line_is_unknown(line: str) -> None:
    with pytest.raises(ValueError, match="unexpected probe output"):
        cgroups.live(f"unified\n{line}\n")


@pytest.mark.parametrize(
    ("size", "text"),
    [(None, "no limit"), (0, "0"), (107374182400, "100G"), (48 * 1024**2, "48M"), (4096, "4K"), (5, "5 bytes")],
)
def test_amounts(size: int | None, text: str) -> None:
    assert cgroups.amount(size) == text


def test_files_of_ours(tmp_path: Path) -> None:
    """What is written, is read back as right; another mode, content or place is not."""
    stand_in(tmp_path, "systemd-analyze")
    stand_in(tmp_path, "chown")
    stand_in(tmp_path, "stat", "/usr/bin/stat \"$@\" | sed 's/ .*/ root:root/'")
    (tmp_path / "etc/systemd/system").mkdir(parents=True)
    own = [
        container_slice.unit(RACK),
        *memory_guard.files(RACK),
        memory_gate.script(RACK),
        *daemon_protection.dropins(RACK),
    ]
    for command in remote_files.put_files(own):
        done = run(command, tmp_path)
        assert done.returncode == 0, done.stderr

    def stale() -> list[str]:
        done = run(COMMANDS[facts.FILES], tmp_path)
        assert done.returncode == 0
        reported = managed_file.parse_hashes(facts.FILES, done.stdout.replace(str(tmp_path), ""))
        return [file.path for file in managed_file.differing(own, reported)]

    assert [file.path for file in own] == list(dict.fromkeys([*facts.PATHS]))
    assert stale() == []
    Path(f"{tmp_path}{memory_guard.SCRIPT}").chmod(0o775)
    write(tmp_path, container_slice.PATH, "[Slice]\nMemoryMax=5G\n")
    Path(f"{tmp_path}{memory_gate.SCRIPT}").unlink()
    Path(f"{tmp_path}{memory_guard.UNIT}").unlink()
    Path(f"{tmp_path}{memory_guard.UNIT}").symlink_to("/nowhere")
    assert stale() == [container_slice.PATH, memory_guard.SCRIPT, memory_guard.UNIT, memory_gate.SCRIPT]


def test_a_file_that_cannot_be_read_is_unknown(tmp_path: Path) -> None:
    Path(f"{tmp_path}{memory_guard.SCRIPT}").mkdir(parents=True)
    assert run(COMMANDS[facts.FILES], tmp_path).returncode == 9


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd-analyze is not here")
@pytest.mark.parametrize(
    "file", [container_slice.unit(RACK), memory_guard.unit(RACK)], ids=lambda file: file.path.rpartition(".")[2]
)
def test_systemd_takes_the_units_and_only_good_ones(tmp_path: Path, file: ManagedFile) -> None:
    stand_in(tmp_path, "chown")
    (tmp_path / "etc/systemd/system").mkdir(parents=True)
    good = file.content.replace(memory_guard.SCRIPT.encode(), b"/bin/true")

    def put(content: bytes) -> int:
        command = remote_files.put_managed(ManagedFile(file.path, content, validate=file.validate))
        command.connector_arguments["_stdin"] = remote_files.encoded(content)
        return run(command, tmp_path).returncode

    assert put(good) == 0
    for old, new in ((b"MemoryM", b"MemoryN"), (b"[Install]", b"[Instal]")):
        assert put(good.replace(old, new)) != 0, new
    assert Path(f"{tmp_path}{file.path}").read_bytes() == good
    assert len(list((tmp_path / "etc/systemd/system").iterdir())) == 1


def test_drop_ins_go_to_the_backups(tmp_path: Path) -> None:
    paths = ["/run/systemd/system/sparkrack.slice.d/a.conf", "/etc/systemd/system/sparkrack.slice.d/a.conf"]
    for path in paths:
        write(tmp_path, path, path)
    done = run(remote_files.move_aside(paths), tmp_path)
    assert done.returncode == 0, done.stderr
    kept = sorted((tmp_path / "var/backups/sparkrack").iterdir())
    assert [file.read_text() for file in kept] == sorted(paths, key=lambda path: path.replace("/", "-"))
    assert not any(Path(f"{tmp_path}{path}").exists() for path in paths)


def test_the_stand_in_folder_is_really_used() -> None:
    for text in (COMMANDS[facts.LIVE], COMMANDS[facts.FILES]):
        for top in ("/etc/", "/run/", "/usr/local/lib/", "/sys/", "/proc/"):
            assert top not in rooted(text, Path("/R")).replace("/R" + top, "")
