"""What the rdma role asks of a node, run by a real shell in folders like a node's."""

from __future__ import annotations

from pathlib import Path

import pytest

from core.ops import host_facts
from core.probes.dropin_overriders import overriders
from roles.rdma import desired, environment, facts
from tests.unit.model.racks import SWITCH, loaded
from tests.unit.ops.shells import rooted, run, stand_in, write

COMMANDS = host_facts._registered["rdma"].commands
RACK = loaded(SWITCH)
NODE = RACK.nodes["spark1"]


def asked(node: Path, key: str) -> str:
    done = run(COMMANDS[key], node)
    assert done.returncode == 0, done.stderr
    return done.stdout.replace(str(node), "")


def test_a_bare_node_answers_with_nothing(tmp_path: Path) -> None:
    keys = (facts.MODES, facts.DEVICES, facts.LIMITS, facts.MANAGER, facts.ARP)
    assert [asked(tmp_path, key) for key in keys] == [""] * 5


def test_lines_that_set_our_variables_are_printed_and_no_others(tmp_path: Path) -> None:
    write(
        tmp_path, "/etc/profile.d/zz-nccl.sh", "export A=hunter2\n# NCCL_IB_DISABLE=1\nexport NCCL_IB_DISABLE=1 # off\n"
    )
    write(tmp_path, "/etc/environment", 'MY_NCCL_IB_DISABLE=1\nUCX_NET_DEVICES="all"\n')
    write(tmp_path, environment.PROFILE, "NCCL_IB_DISABLE=0\n")
    write(tmp_path, "/etc/systemd/system.conf.d/x.conf", "[Manager]\nDefaultEnvironment=A=1 NCCL_NET=Socket\n")
    assert asked(tmp_path, facts.SETTINGS).splitlines() == [
        '/etc/environment:UCX_NET_DEVICES="all"',
        "/etc/profile.d/zz-nccl.sh:export NCCL_IB_DISABLE=1 # off",
        "/etc/systemd/system.conf.d/x.conf:DefaultEnvironment=A=1 NCCL_NET=Socket",
    ]
    stand_in(tmp_path, "grep", "exit 2")
    assert run(COMMANDS[facts.SETTINGS], tmp_path).returncode == 9, "a file that cannot be read is unknown"


def test_modes(tmp_path: Path) -> None:
    write(tmp_path, environment.ENV)
    write(tmp_path, environment.GID_INDEX)
    (tmp_path / environment.GID_INDEX[1:]).chmod(0o755)
    (tmp_path / environment.ENV[1:]).chmod(0o640)
    assert asked(tmp_path, facts.MODES) == f"640 root:root {environment.ENV}\n755 root:root {environment.GID_INDEX}\n"


def test_devices(tmp_path: Path) -> None:
    write(tmp_path, "/sys/class/net/enp1s0f1np1/device/infiniband/mlx5_1/node_type")
    write(tmp_path, "/sys/class/net/enP2p1s0f1np1/device/infiniband/mlx5_3/node_type")
    write(tmp_path, "/sys/class/net/enP7s7/device/infiniband/other/node_type")
    write(tmp_path, "/sys/class/net/enp1s0f0np0/device/x")
    live = environment.live_devices(asked(tmp_path, facts.DEVICES))
    assert live == {"enp1s0f1np1": "mlx5_1", "enP2p1s0f1np1": "mlx5_3"}


def test_limits(tmp_path: Path) -> None:
    write(tmp_path, "/etc/security/limits.d/99-a b.conf", "ops - memlock 64\nops - nofile 1\n")
    write(tmp_path, "/etc/security/limits.d/99-x.conf.bak", "ops - memlock 64\n")
    (reported,) = desired.outlimited(asked(tmp_path, facts.LIMITS), RACK)
    assert reported.startswith("/etc/security/limits.d/99-a b.conf limits memlock of ops to 64 ")


@pytest.mark.parametrize("key", [facts.ARP, facts.MANAGER, facts.LIMITS])
def test_what_cannot_be_read_is_unknown(tmp_path: Path, key: str) -> None:
    for folder in ("sysctl.d", "systemd/system.conf.d", "security/limits.d"):
        write(tmp_path, f"/etc/{folder}/a.conf", "x\n")
    stand_in(tmp_path, "grep", "exit 2")
    assert run(COMMANDS[key], tmp_path).returncode == 9


def test_drop_ins(tmp_path: Path) -> None:
    text = "# x\nnet.ipv4.conf.all.arp_ignore=8\nnet.ipv4.conf.all.rp_filter = 1\n"
    write(tmp_path, "/usr/lib/sysctl.d/zzz.conf", text)
    write(tmp_path, "/run/sysctl.d/zzz z.conf", "-net/ipv4/conf/default/arp_announce = 0\n")
    write(tmp_path, "/etc/sysctl.d/zzzz.conf.bak", text)
    wanted = desired.sysctls(RACK, NODE)
    faults = overriders(asked(tmp_path, facts.ARP), wanted, desired.ARP_DROPIN)
    assert [fault.partition(" sets")[0] for fault in faults] == [
        "/run/sysctl.d/zzz z.conf",
        "/usr/lib/sysctl.d/zzz.conf",
    ]
    # A file of the same name in /etc hides it, a link to /dev/null too.
    (tmp_path / "etc/sysctl.d/zzz.conf").symlink_to("/dev/null")
    assert len(overriders(asked(tmp_path, facts.ARP), wanted, desired.ARP_DROPIN)) == 1


def test_manager_settings(tmp_path: Path) -> None:
    write(tmp_path, "/usr/lib/systemd/system.conf.d/60-x.conf", "[Manager]\nDefaultLimitMEMLOCK=8M\n")
    write(tmp_path, "/etc/systemd/system.conf.d/10-x.conf", "[Manager]\n#DefaultLimitMEMLOCK=8M\n")
    faults = overriders(asked(tmp_path, facts.MANAGER), {desired.MEMLOCK: "infinity"}, desired.MANAGER)
    assert [fault.partition(" sets")[0] for fault in faults] == ["/usr/lib/systemd/system.conf.d/60-x.conf"]


def test_live_values(tmp_path: Path) -> None:
    for place in ("all", "default", "enp1s0f1np1", "fabric0", "eth0"):
        for name, value in (("arp_ignore", "1"), ("arp_announce", "10")):
            write(tmp_path, f"{desired.CONF}/{place}/{name}", f"{value}\n")
    live = desired.live_sysctls(asked(tmp_path, facts.ARP_LIVE))
    assert live["net.ipv4.conf.fabric0.arp_announce"] == 10
    assert {key.split(".")[3] for key in live} == {"all", "default", "enp1s0f1np1", "fabric0"}


def test_no_live_values_are_unknown(tmp_path: Path) -> None:
    assert run(COMMANDS[facts.ARP_LIVE], tmp_path).returncode != 0


def test_the_stand_in_folder_is_really_used() -> None:
    """Else these tests would look at this machine."""
    for text in COMMANDS.values():
        for top in ("/etc/", "/run/", "/usr/lib/", "/usr/local/", "/sys/class/", "/proc/"):
            assert top not in rooted(text, Path("/R")).replace("/R" + top, "")


def test_of_the_files_of_others_only_settings_of_arp_are_read(tmp_path: Path) -> None:
    """Comments and other settings are not in the form that is read here, and would make the node unknown."""
    own = "net.ipv4.conf.all.arp_ignore = 0\nnet/ipv4/conf/enp1s0f0np0/arp_announce=1\n"
    write(tmp_path, "/etc/sysctl.d/99-z.conf", f"# of another program\n\n-kernel.panic\nvm.swappiness = 1\n{own}")
    assert asked(tmp_path, facts.ARP) == "".join(f"/etc/sysctl.d/99-z.conf:{row}\n" for row in own.splitlines())
