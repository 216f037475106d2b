"""The shell texts of the docker role, run by a real shell in a folder like a node's, with stand-ins for its tools."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from core.ops.shell import sudo_script
from roles.docker import desired, scripts
from tests.unit.ops.shells import calls, run, stand_in, write

ID, NEXT = "a" * 32, "b" * 32
SLICE = "sys/fs/cgroup/sparkrack.slice"
SCOPE = f"{SLICE}/docker-{'c' * 64}.scope"


def container(node: Path, path: str, memory: str = "max", swap: str | None = "max", populated: int = 1) -> None:
    write(node, f"{path}/cgroup.events", f"populated {populated}\nfrozen 0\n")
    write(node, f"{path}/memory.max", f"{memory}\n")
    if swap is not None:
        write(node, f"{path}/memory.swap.max", f"{swap}\n")


def asked(node: Path, script: str) -> str:
    done = run(script, node)
    assert done.returncode == 0, done.stderr
    return done.stdout.replace(str(node), "")


def test_containers(tmp_path: Path) -> None:
    container(tmp_path, SCOPE)
    container(tmp_path, f"{SCOPE}/docker/{'d' * 64}")
    container(tmp_path, f"sys/fs/cgroup/docker/{'e' * 64}", "1024", None)
    container(tmp_path, f"{SLICE}/docker-4x7v0q9zk2m1abcd.scope", "2048", "0")
    container(tmp_path, f"{SLICE}/docker-{'f' * 64}.scope", populated=0)
    container(tmp_path, "sys/fs/cgroup/system.slice/docker.service")
    container(tmp_path, f"{SLICE}/cri-containerd-{'f' * 64}.scope")
    assert sorted(asked(tmp_path, scripts.CONTAINERS).splitlines()) == [
        f"/sys/fs/cgroup/docker/{'e' * 64} 1024 -",
        f"/{SLICE}/docker-4x7v0q9zk2m1abcd.scope 2048 0",
        f"/{SCOPE} max max",
    ]


def test_no_container(tmp_path: Path) -> None:
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    assert asked(tmp_path, scripts.CONTAINERS) == ""


def test_containers_that_cannot_be_read(tmp_path: Path) -> None:
    assert run(scripts.CONTAINERS, tmp_path).returncode == 9
    container(tmp_path, SCOPE)
    (tmp_path / SCOPE / "memory.max").unlink()
    assert run(scripts.CONTAINERS, tmp_path).returncode == 9


def engine(node: Path) -> None:
    """A node with an engine that runs."""
    stand_in(node, "dockerd")
    write(node, "run/docker.pid", "77")
    write(node, "proc/77/comm", "dockerd\n")
    write(node, "proc/77/cgroup", "0::/system.slice/docker.service\n")
    write(node, "proc/77/cmdline", "/usr/bin/dockerd\0-H\0fd://\0")
    write(node, "proc/77/environ", f"HTTP_PROXY=http://u:hush@x\0INVOCATION_ID={ID}\0X=1\0")
    write(node, f"run/sparkrack/docker.{ID}", "{}\n")
    write(node, "etc/docker/daemon.json", "{}\n").chmod(0o644)
    write(node, "sys/fs/cgroup/system.slice/docker.service/cgroup.procs", "76\n77\n")


def test_engine(tmp_path: Path) -> None:
    engine(tmp_path)
    stand_in(tmp_path, "nvidia-ctk")
    write(tmp_path, "var/lib/docker/swarm/docker-state.json", "{}")
    reported = asked(tmp_path, scripts.ENGINE)
    assert "hush" not in reported
    lines = reported.splitlines()
    assert lines.pop(3).startswith("stat 644:")
    assert lines == [
        "dockerd /bin/dockerd",
        "nvidia-ctk /bin/nvidia-ctk",
        "swarm yes",
        "cgroup 0::/system.slice/docker.service",
        "command L3Vzci9iaW4vZG9ja2VyZAAtSABmZDovLwA=",
        f"start {ID}",
        "with e30K",
    ]


@pytest.mark.parametrize(("pid", "there"), [("", True), ("12", True), (None, True), ("77", False)])
def test_engine_without_a_good_pid_file(tmp_path: Path, pid: str | None, there: bool) -> None:
    engine(tmp_path)
    file = write(tmp_path, "run/docker.pid", pid or "")
    if pid is None:
        file.unlink()
    if not there:
        write(tmp_path, "proc/77/comm", "bash\n")
    assert ("command " in asked(tmp_path, scripts.ENGINE)) is there


def test_no_engine(tmp_path: Path) -> None:
    candidates = "docker-ce:\n  Installed: (none)\n  Candidate: (none)\ndocker.io:\n  Candidate: 26.1\n     26.1 500\n"
    stand_in(tmp_path, "apt-cache", f"printf '{candidates}'")
    assert asked(tmp_path, scripts.ENGINE) == "candidate docker.io\n"


def test_users(tmp_path: Path) -> None:
    write(tmp_path, "etc/passwd", "root:x:0:0::/:/bin/sh\nops:x:1000:1001::/:/bin/sh\n")
    write(tmp_path, "etc/group", "notdocker:x:1:\ndocker:x:998:ops\n")
    assert asked(tmp_path, scripts.USERS) == "root:0\nops:1001\n\ndocker:x:998:ops\n"
    write(tmp_path, "etc/group", "root:x:0:\n")
    assert asked(tmp_path, scripts.USERS) == "root:0\nops:1001\n\n"
    (tmp_path / "etc/group").unlink()
    assert run(scripts.USERS, tmp_path).returncode != 0


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """A node whose systemd starts docker unless its daemon.json says "bad", as our drop-in has it."""
    engine(tmp_path)
    (tmp_path / "sys/fs/cgroup/sparkrack.slice").mkdir(parents=True)
    config, copy = tmp_path / "etc/docker/daemon.json", tmp_path / f"run/sparkrack/docker.{NEXT}"
    stand_in(
        tmp_path,
        "systemctl",
        f'case "$*" in restart*) ! grep -q bad {config} || exit 1; cat {config} > {copy} || echo > {copy};; '
        f"show*) echo {NEXT};; esac",
    )
    stand_in(tmp_path, "docker", "echo 'true {\"nvidia\":1}'")
    stand_in(tmp_path, "journalctl", "echo nothing; echo 'failed to start daemon: it is bad'")
    return tmp_path


def restarted(node: Path, last: str | None = ID, idle: bool = True) -> subprocess.CompletedProcess[str]:
    return run(sudo_script(scripts.restart(last, idle)), node)


def test_restart(node: Path) -> None:
    write(node, scripts.KEPT, "{}")
    done = restarted(node)
    assert (done.returncode, done.stderr) == (0, "")
    assert [file.name for file in (node / "run/sparkrack").iterdir()] == [f"docker.{NEXT}"]


@pytest.mark.parametrize(
    ("last", "kept", "after"),
    [
        (ID, None, '{"old": 1}'),
        (ID, '{"older": 1}', '{"old": 1}'),
        (None, '{"kept": 1}', '{"kept": 1}'),
        (None, "", None),
    ],
)
def test_restart_that_fails_brings_the_old_file_back(
    node: Path, last: str | None, kept: str | None, after: str | None
) -> None:
    config = write(node, "etc/docker/daemon.json", '{"bad": 1}')
    config.chmod(0o640)
    write(node, f"run/sparkrack/docker.{ID}", '{"old": 1}')
    if kept is not None:
        write(node, scripts.KEPT, kept)
    done = restarted(node, last)
    assert done.returncode == 1
    assert "docker does not start with this daemon.json: failed to start daemon: it is bad" in done.stderr
    assert "the old daemon.json is back, and docker runs with it" in done.stderr
    assert (config.read_text() if config.exists() else None) == after
    assert after is None or config.stat().st_mode & 0o777 == 0o640
    assert not (node / scripts.KEPT.lstrip("/")).exists()
    assert [file.name for file in (node / "etc/docker").iterdir()] == ([] if after is None else ["daemon.json"])


def test_restart_that_fails_with_the_old_file_too(node: Path) -> None:
    write(node, "etc/docker/daemon.json", '{"bad": 1}')
    write(node, f"run/sparkrack/docker.{ID}", '{"bad": 2}')
    assert "the old daemon.json is back, and docker does not start with it either" in restarted(node).stderr


@pytest.mark.parametrize("last", [ID, None])
def test_restart_that_fails_and_nothing_to_go_back_to(node: Path, last: str | None) -> None:
    config = write(node, "etc/docker/daemon.json", '{"bad": 1}')
    write(node, f"run/sparkrack/docker.{ID}", '{"bad": 1}')
    done = restarted(node, last)
    assert (done.returncode, config.read_text()) == (1, '{"bad": 1}')
    assert "there is no older daemon.json to go back to" in done.stderr


def test_restart_is_not_done_under_a_container(node: Path) -> None:
    container(node, SCOPE)
    done = restarted(node)
    assert done.returncode == 1
    assert "a container was started during the run" in done.stderr
    assert calls(node) == []
    assert restarted(node, idle=False).returncode == 0


def test_restart_that_leaves_no_copy_is_reported(node: Path) -> None:
    stand_in(node, "systemctl", f'case "$*" in show*) echo {NEXT};; esac')
    assert f"{desired.DROPIN} is not heeded" in restarted(node).stderr.replace(str(node), "")


def test_reload(node: Path) -> None:
    write(node, "etc/docker/daemon.json", '{"new": 1}')
    done = run(sudo_script(scripts.reload(True, nvidia=True)), node)
    assert (done.returncode, done.stderr) == (0, "")
    assert "systemctl reload docker.service" in calls(node)
    copy = node / f"run/sparkrack/docker.{NEXT}"
    assert (copy.read_text(), copy.stat().st_mode & 0o777) == ('{"new": 1}', 0o600)


@pytest.mark.parametrize("reported", ['false {"nvidia":1}', 'true {"runc":1}'])
def test_reload_that_is_not_taken_up(node: Path, reported: str) -> None:
    stand_in(node, "docker", f"echo '{reported}'")
    stand_in(node, "sleep")
    done = run(sudo_script(scripts.reload(True, nvidia=True)), node)
    assert done.returncode == 1
    assert "docker has not taken up its daemon.json" in done.stderr
    assert not (node / f"run/sparkrack/docker.{NEXT}").exists()


def validated(node: Path, **more: bool) -> subprocess.CompletedProcess[str]:
    asks = {"nvidia": False, "idle": False, "keep": False} | more
    new = write(node, "etc/docker/.new", "{}")
    return run(
        sudo_script(f"new={new}; {scripts.validated(['-H', 'fd://', '$(false)'], mode='644', **asks)}; echo fine"), node
    )


def test_validated_with_the_flags_of_the_unit(node: Path) -> None:
    assert validated(node).stdout == "fine\n"
    assert calls(node) == [f"dockerd --validate --config-file {node}/etc/docker/.new -H fd:// $(false)"]


def test_validated_and_found_wrong(node: Path) -> None:
    stand_in(node, "dockerd", "echo 'unable to configure' >&2; exit 1")
    done = validated(node, keep=True)
    assert (done.returncode, done.stdout, done.stderr) == (1, "", "unable to configure\n")
    assert not (node / scripts.KEPT.lstrip("/")).exists()


def test_validated_with_what_nvidia_adds(node: Path) -> None:
    stand_in(node, "chown")
    stand_in(node, "nvidia-ctk", 'for last; do :; done; echo "{\\"runtimes\\": 1}" > "${last#--config=}"')
    assert validated(node, nvidia=True).stdout == "fine\n"
    assert (node / "etc/docker/.new").read_text() == '{"runtimes": 1}\n'
    stand_in(node, "nvidia-ctk", "echo no; exit 1")
    assert validated(node, nvidia=True).stderr == "no\n"


@pytest.mark.parametrize("before", ['{"a": 1}', None])
def test_the_file_before_is_kept_once(node: Path, before: str | None) -> None:
    config = write(node, "etc/docker/daemon.json", before or "")
    if before is None:
        config.unlink()
    assert validated(node, keep=True).returncode == 0
    write(node, "etc/docker/daemon.json", "ours")
    assert validated(node, keep=True).returncode == 0
    assert (node / scripts.KEPT.lstrip("/")).read_text() == (before or "")


def test_not_written_while_something_runs(node: Path) -> None:
    container(node, SCOPE)
    done = validated(node, idle=True)
    assert done.returncode == 1
    assert "a container was started during the run" in done.stderr


def test_the_drop_in_keeps_the_file_of_each_start(tmp_path: Path) -> None:
    (line,) = [
        line for line in desired.dropin("two").decode().splitlines() if line.startswith("ExecStartPre=-/bin/sh -c '")
    ]
    script = line.partition("'")[2].removesuffix("'").replace("$$", "$")
    (tmp_path / "run").mkdir()
    for text in (None, '{"a": 1}\n'):
        if text:
            write(tmp_path, "etc/docker/daemon.json", text)
        assert run(f"INVOCATION_ID={ID}; {script}", tmp_path).returncode == 0
        assert (tmp_path / f"run/sparkrack/docker.{ID}").read_text() == (text or "{}\n")
