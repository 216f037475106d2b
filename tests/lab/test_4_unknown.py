"""What cannot be read is unknown, and unknown changes nothing."""

from __future__ import annotations

from tests.lab.virtual import VirtualRack


def test_a_node_that_cannot_be_read_is_left_alone(rack: VirtualRack) -> None:
    rack.ssh("spark2", "mv /usr/bin/base64 /usr/bin/base64.away; sysctl -qw vm.overcommit_memory=1")
    try:
        before = rack.ssh("spark2", "tar -c --sort=name /etc | sha256sum")
        for words in (("-y",), ("--dry",)):
            done = rack.deploy(*words, "--limit", "spark2", check=False, roles=("memory",))
            reported = done.stdout + done.stderr
            assert done.returncode == 1
            assert (
                "the node's answer cannot be used: it is garbled, or base64 or mktemp of the node does not work"
                in reported
            )
            assert "Traceback" not in reported
        assert rack.ssh("spark2", "tar -c --sort=name /etc | sha256sum") == before
        assert rack.ssh("spark2", "sysctl -n vm.overcommit_memory").strip() == "1"
    finally:
        rack.ssh("spark2", "mv /usr/bin/base64.away /usr/bin/base64")
    rack.deploy("-y", "--limit", "spark2", roles=("memory",))
    assert rack.ssh("spark2", "sysctl -n vm.overcommit_memory").strip() == "0"


def test_a_changed_host_key_stops_the_run(rack: VirtualRack) -> None:
    known = rack.paths.known_hosts.read_text()
    one, two, *rest = known.splitlines()
    swapped = [f"{one.split()[0]} {' '.join(two.split()[1:])}", two, *rest]
    rack.paths.known_hosts.write_text("\n".join(swapped) + "\n")
    try:
        done = rack.deploy("-y", "--limit", "spark1", check=False, roles=("memory",))
    finally:
        rack.paths.known_hosts.write_text(known)
    assert done.returncode == 1
    assert "Host key for 10.77.0.11 does not match" in done.stdout + done.stderr


def test_a_drop_in_of_others_that_would_win_is_named(rack: VirtualRack) -> None:
    rack.ssh("spark3", "echo 'vm.overcommit_memory = 1' > /etc/sysctl.d/zzz-kubelet.conf")
    try:
        done = rack.deploy("-y", "--limit", "spark3", check=False, roles=("memory",))
    finally:
        rack.ssh("spark3", "rm /etc/sysctl.d/zzz-kubelet.conf")
    assert done.returncode == 1
    assert "/etc/sysctl.d/zzz-kubelet.conf sets vm.overcommit_memory = 1" in done.stdout + done.stderr


def test_a_second_netplan_file_for_a_port_is_refused(rack: VirtualRack) -> None:
    theirs = "network:\\n  version: 2\\n  ethernets:\\n    enp1s0f1np1:\\n      addresses: [10.9.9.9/24]\\n"
    rack.ssh("spark3", f"umask 077; printf '{theirs}' > /etc/netplan/40-cx7.yaml")
    try:
        done = rack.deploy("-y", "--limit", "spark3", check=False, roles=("fabric",))
    finally:
        rack.ssh("spark3", "rm /etc/netplan/40-cx7.yaml")
    assert done.returncode == 1
    assert "/etc/netplan/40-cx7.yaml defines enp1s0f1np1" in done.stdout + done.stderr
