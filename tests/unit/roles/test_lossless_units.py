"""Which interface gets which policy, what stands on the node for it, and what the probe makes of that."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from core.model import Rack
from core.ops import host_facts, remote_files
from roles.lossless import boot_unit, desired, facts
from tests.unit.model.racks import DIRECT, RING, SWITCH, changed, loaded
from tests.unit.ops.shells import rooted, run, stand_in

COMMANDS = host_facts._registered["lossless"].commands


def rack(policy: str) -> Rack:
    return loaded(changed(SWITCH, ("    l2mtu: 9500\n", f"    l2mtu: 9500\n    lossless: {policy}\n")))


@pytest.mark.parametrize("policy", ["pause", "roce"])
def test_both_halves_of_each_port_at_the_switch(policy: str) -> None:
    two = rack(policy)
    for node in two.nodes.values():
        assert desired.policies(two, node) == {"enp1s0f1np1": policy, "enP2p1s0f1np1": policy}


@pytest.mark.parametrize("text", [SWITCH, DIRECT, RING])
def test_none_without_a_switch_or_a_word_of_it(text: str) -> None:
    some = loaded(text)
    assert [desired.policies(some, node) for node in some.nodes.values()] == [{}] * len(some.nodes)


def test_a_script_knows_each_interface_and_no_date() -> None:
    script = boot_unit.script("two", {"enp1s0f0np0": "pause", "enp1s0f1np1": "roce"}).decode()
    assert re.findall(r"^(\S+)\) (\w+) ", script, re.MULTILINE) == [
        ("enp1s0f0np0", "pause"),
        ("enp1s0f1np1", "roce"),
        ("*", "pause"),
    ]
    assert script == boot_unit.script("two", {"enp1s0f0np0": "pause", "enp1s0f1np1": "roce"}).decode()
    assert not re.search(r"20\d\d", script)


def put(node: Path, path: str, content: bytes) -> subprocess.CompletedProcess[str]:
    """Write one of the files as the role does, below a folder."""
    Path(f"{node}{path}").parent.mkdir(parents=True, exist_ok=True)
    stand_in(node, "chown")
    files = {file.path: file for file in boot_unit.files("two", {"enp1s0f1np1": "pause"})}
    command = remote_files.put_managed(files[path])
    command.connector_arguments["_stdin"] = remote_files.encoded(content)
    return run(command, node)


def test_a_script_that_is_not_a_shell_never_stands_there(tmp_path: Path) -> None:
    assert put(tmp_path, desired.SCRIPT, b"case x in\n").returncode != 0
    assert list(Path(f"{tmp_path}{desired.SCRIPT}").parent.iterdir()) == []
    assert put(tmp_path, desired.SCRIPT, boot_unit.script("two", {})).returncode == 0
    assert Path(f"{tmp_path}{desired.SCRIPT}").stat().st_mode & 0o777 == 0o755


def test_systemd_takes_the_unit_and_only_a_good_one(tmp_path: Path) -> None:
    good = boot_unit.unit("two").replace(desired.SCRIPT.encode(), b"/bin/true")
    done = put(tmp_path, desired.UNIT, good)
    assert done.returncode == 0, done.stderr
    for old, new in ((b"oneshot", b"onesho"), (b"/bin/true", b"/no/such/program"), (b"[Service]", b"[Servic]")):
        assert put(tmp_path, desired.UNIT, good.replace(old, new)).returncode != 0, new
    assert Path(f"{tmp_path}{desired.UNIT}").read_bytes() == good
    assert [path.name for path in Path(f"{tmp_path}{desired.UNIT}").parent.iterdir()] == [desired.TEMPLATE]


def test_our_units_are_found_by_their_links(tmp_path: Path) -> None:
    wants = tmp_path / "etc/systemd/system"
    for name, unit in (("a", "sparkrack-lossless@enp1s0f1np1.service"), ("b", "other@enp1s0f1np1.service")):
        (wants / f"{name}.device.wants").mkdir(parents=True)
        (wants / f"{name}.device.wants" / unit).symlink_to("/nowhere")
    done = run(COMMANDS[facts.OURS], tmp_path)
    assert (done.returncode, done.stdout) == (0, "sparkrack-lossless@enp1s0f1np1.service\n")


def test_the_stand_in_folder_is_really_used() -> None:
    """Else these tests would look at this machine."""
    for text in COMMANDS.values():
        for top in ("/etc/", "/run/", "/usr/local/lib/", "/sys/"):
            assert top not in rooted(text, Path("/R")).replace("/R" + top, "")
