"""The one script that a node is asked with, run by a real shell over a folder in place of the node's root."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from core.model import Rack
from core.ops import run_lock
from core.ops.run_lock import Holder
from core.probes.protocol import parse_commands
from roles.driver.reboot_reasons import ASKED, ASKING
from sparkrack.status.collect_answers import ALL_ANSWERS_SECONDS, ANSWER_SECONDS
from sparkrack.status.node import node
from sparkrack.status.probe_script import DOCKER_SECONDS, OTHER_SECONDS, script
from tests.unit.ops.shells import calls, rooted, run, stand_in, write
from tests.unit.probe_output import decode_answers, encode_answers
from tests.unit.status.machines import CONTAINER, DIGEST, ID, MEMINFO, SWAPS, ethtool, reference

HALVES = ("enp1s0f1np1", "enP2p1s0f1np1")
LISTED = f"{ID} scitrera/dgx-spark-sglang 0.5.12 {DIGEST} 22.4GB"


@pytest.fixture(scope="module")
def rack(tmp_path_factory: pytest.TempPathFactory) -> Rack:
    return reference(tmp_path_factory.mktemp("rack"))


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A healthy head node."""
    write(tmp_path, "/proc/uptime", "7620.25 150000.75\n")
    write(tmp_path, "/proc/meminfo", "\n".join(MEMINFO) + "\n")
    write(tmp_path, "/proc/swaps", SWAPS + "\n")
    write(tmp_path, "/sys/module/nvidia/version", "580.159.03\n")
    scope = CONTAINER.split()[0]
    for name, text in (("cgroup.events", "populated 1\nfrozen 0"), ("memory.max", "9"), ("memory.swap.max", "0")):
        write(tmp_path, f"{scope}/{name}", f"{text}\n")
    for half in HALVES:
        (tmp_path / "sys/class/net" / half).mkdir(parents=True)
    write(tmp_path, "/run/docker.pid", "77")
    write(tmp_path, "/proc/77/comm", "dockerd\n")
    stand_in(tmp_path, "uname", "echo 6.17.0-1021-nvidia")
    printed = "\n".join(ethtool("100000Mb/s"))
    stand_in(tmp_path, "ethtool", f"cat <<'END'\n{printed}\nEND\necho 'netlink error' >&2; exit 75")
    stand_in(tmp_path, "docker", f"echo {LISTED}; echo warning >&2")
    stand_in(tmp_path, "nvidia-smi", "echo 580.159.04")
    return tmp_path


def output(root: Path, rack: Rack, name: str = "spark1") -> str:
    done = run(script(rack, name), root)
    assert (done.returncode, done.stderr) == (0, "")
    return as_if_rooted(done.stdout, root)


def as_if_rooted(printed: str, root: Path) -> str:
    """Return the output of the script with the paths of a real node."""
    answers = decode_answers(printed).items()
    return encode_answers((name, text.replace(bytes(root), b""), code.decode()) for name, (text, code) in answers)


def test_a_whole_node(root: Path, rack: Rack) -> None:
    found, holds = node(rack, "spark1", output(root, rack), {})
    assert [finding.text for finding in found.unknown] == [
        "the lock file does not have scitrera/dgx-spark-sglang:0.5.12, so which image is right is not known"
    ]
    assert (found.uptime, found.kernel, found.driver) == (7620, "6.17.0-1021-nvidia", "580.159.03")
    assert found.memory
    assert found.memory.available == 102760448
    assert (found.swap, found.reboot, found.containers) == ((), False, 1)
    assert [link.gbps for link in found.links] == [100, 100]
    assert (holds.known, holds.holder) == (True, None)


def test_each_tool_is_started_once_and_nothing_is_written(root: Path, rack: Rack) -> None:
    before = tree(root)
    output(root, rack)
    assert calls(root) == [
        "uname -r",
        *(f"ethtool {half}" for half in HALVES),
        "docker image ls --no-trunc --digests --format {{.ID}} {{.Repository}} {{.Tag}} {{.Digest}} {{.Size}}",
    ]
    (root / "calls").unlink()
    assert tree(root) == before


def tree(root: Path) -> dict[str, tuple[float, int]]:
    return {str(path): (path.stat().st_mtime, path.stat().st_size) for path in root.rglob("*") if path.is_file()}


def test_only_the_head_node_is_asked_for_the_lock(root: Path, rack: Rack) -> None:
    assert "lock" in parse_commands(output(root, rack))
    assert "lock" not in parse_commands(output(root, rack, "spark2"))


def test_what_stands_there(root: Path, rack: Rack) -> None:
    holder = Holder("20261122T092800-1a2b", "ann@desk", "2026-11-22T09:28:00+00:00", "spark1: docker")
    write(root, run_lock.PATH, holder.text)
    write(root, ASKED)
    write(root, ASKING, "linux-image\nlibc6\n")
    reported = parse_commands(output(root, rack))
    assert run_lock.describe_holder(reported["lock"].text) == holder
    assert reported["reboot"].lines == ("held", "linux-image", "libc6")
    (root / ASKING[1:]).unlink()
    reported = parse_commands(output(root, rack))
    assert (reported["reboot"].code, reported["reboot"].lines) == (0, ("held",))


def test_a_driver_that_is_not_loaded(root: Path, rack: Rack) -> None:
    (root / "sys/module/nvidia/version").unlink()
    assert parse_commands(output(root, rack))["driver"].lines == ("580.159.04",)
    stand_in(root, "nvidia-smi", "echo NVIDIA-SMI has failed; exit 9")
    assert parse_commands(output(root, rack))["driver"].code == 9


def test_an_engine_that_does_not_run_is_left_alone(root: Path, rack: Rack) -> None:
    write(root, "/proc/77/comm", "postgres\n")
    assert parse_commands(output(root, rack))["images"].lines == ("no engine",)
    (root / "run/docker.pid").unlink()
    assert parse_commands(output(root, rack))["images"].lines == ("no engine",)
    assert not [call for call in calls(root) if call.startswith("docker")]


def test_an_interface_that_is_not_there(root: Path, rack: Rack) -> None:
    (root / "sys/class/net" / HALVES[1]).rmdir()
    reported = parse_commands(output(root, rack))
    assert (reported[HALVES[1]].lines, reported[HALVES[0]].code) == (("absent",), 75)


def test_a_node_that_has_nothing(tmp_path: Path, rack: Rack) -> None:
    """Each question fails by itself, and each is reported."""
    for tool in ("uname", "ethtool", "docker", "nvidia-smi", "find"):
        stand_in(tmp_path, tool, "exit 127")
    found, _ = node(rack, "spark1", output(tmp_path, rack), {})
    assert [finding.about for finding in found.unknown] == [
        *("uptime", "kernel", "driver", "memory", "swap", "containers")
    ]
    assert [finding.text for finding in found.wrong] == [
        *(f"there is no interface {half}" for half in HALVES),
        "docker does not run; start it (systemctl start docker), or run sparkrack apply",
    ]


def test_tools_that_hang_end_in_time(root: Path, rack: Rack) -> None:
    (root / "sys/module/nvidia/version").unlink()
    for tool in ("nvidia-smi", "ethtool", "docker"):
        stand_in(root, tool, "exec sleep 30")
    quick = script(rack, "spark1").replace(f"timeout {OTHER_SECONDS} ", "timeout 0.1 ")
    assert quick.count("timeout 0.1") == 3
    quick = quick.replace(f"timeout {DOCKER_SECONDS} ", "timeout 0.1 ")
    assert quick.count("timeout 0.1") == 4
    found, _ = node(rack, "spark1", as_if_rooted(run(quick, root).stdout, root), {})
    assert [finding.text for finding in found.unknown if "in time" in finding.text] == [
        "nvidia-smi does not answer in time",
        *["ethtool does not answer in time"] * 2,
        "docker does not answer in time",
    ]


def test_one_tool_that_hangs_leaves_time_for_the_others() -> None:
    assert OTHER_SECONDS + 2 * OTHER_SECONDS + DOCKER_SECONDS <= ANSWER_SECONDS < ALL_ANSWERS_SECONDS


def test_hostile_texts_are_only_text(root: Path, rack: Rack) -> None:
    write(root, "/proc/uptime", "end 0\n$(touch /run/hacked) `id`\\n %s \x1b[2J\n  kernel 0 evil\n")
    reported = parse_commands(output(root, rack))
    assert reported["uptime"].lines == ("end 0", "$(touch /run/hacked) `id`\\n %s \x1b[2J", "  kernel 0 evil")
    assert reported["kernel"].lines == ("6.17.0-1021-nvidia",)
    assert not (root / "run/hacked").exists()


def test_it_is_plain_sh(rack: Rack) -> None:
    for shell in ("dash", "bash"):
        checked = subprocess.run([shell, "-n", "-c", script(rack, "spark1")], capture_output=True, text=True)
        assert (checked.returncode, checked.stderr) == (0, ""), shell


def test_the_stand_in_folder_is_really_used(rack: Rack) -> None:
    text = script(rack, "spark1")
    for top in ("/etc/", "/run/", "/var/", "/sys/", "/proc/"):
        assert top not in rooted(text, Path("/R")).replace("/R" + top, "")
