"""What a support bundle asks of a node: shell text by the name of the file that gets its output. Nothing is changed.

No environment and no command line of a container or process is asked for: both hold tokens. Nor is `netplan get`, which
prints passwords of Wi-Fi networks.
"""

from __future__ import annotations

from collections.abc import Mapping

QUESTION_SECONDS = 60
"""Seconds for one question."""

_OWN_FILES = (
    "for d in /etc /usr/local /var/lib/systemd /run/netplan; do [ ! -d $d ] || "
    "grep -rlIF --exclude-dir=ssl -e sparkrack $d 2>/dev/null; done | sort -u | head -n 500 | "
    "while IFS= read -r f; do stat -c '%a %U:%G %s' \"$f\" | tr '\\n' ' '; sha256sum \"$f\"; done"
)
_INTERFACES = (
    "for i in $(ls /sys/class/net | grep -v -e '^lo$' -e '^veth'); do "
    'echo "== $i"; timeout 10 ethtool "$i"; timeout 10 ethtool -i "$i"; timeout 10 ethtool -a "$i"; '
    'timeout 10 ethtool --show-fec "$i"; timeout 10 ethtool -S "$i" | grep -v ": 0$" | head -n 200; done 2>&1'
)
_FIRMWARE = (
    "cd /sys/class/dmi/id && grep -H '' sys_vendor product_name product_version board_name bios_vendor bios_version "
    "bios_date bios_release ec_firmware_release 2>/dev/null; "
    "for f in /sys/class/infiniband/*/fw_ver; do [ ! -e $f ] || grep -H '' $f; done"
)

QUESTIONS: Mapping[str, str] = {
    "versions.txt": (
        f"uname -a; uptime; cat /etc/os-release /etc/dgx-release 2>/dev/null; {_FIRMWARE}; "
        "timeout 20 nvidia-smi --query-gpu=name,driver_version,vbios_version --format=csv,noheader 2>&1; "
        "timeout 20 docker version --format '{{.Server.Version}}' 2>&1; netplan --version 2>&1; "
        "dpkg-query -W 'nvidia-driver*' 'linux-image*' 'docker*' 'containerd*' 'netplan*' openssh-server 2>/dev/null"
    ),
    "journal.txt": "journalctl -b -p warning --no-pager -o short-iso -n 2000",
    "dmesg.txt": "dmesg --ctime | tail -n 1000",
    "network.txt": (
        "ip -d address; ip -s link; ip route show table all; ip rule; ip neighbour; bridge vlan 2>&1; "
        "rdma link 2>&1; rdma dev 2>&1; rdma resource 2>&1"
    ),
    "ethtool.txt": _INTERFACES,
    "systemd.txt": (
        "systemctl --failed --no-pager --plain; systemctl list-timers --all --no-pager; "
        "systemctl list-units 'sparkrack*' --all --no-pager --plain"
    ),
    "docker.txt": (
        "timeout 20 docker info 2>&1; "
        "timeout 20 docker ps -a --format 'table {{.ID}}\\t{{.Image}}\\t{{.Status}}\\t{{.Names}}' 2>&1; "
        "timeout 20 docker image ls 2>&1"
    ),
    "memory.txt": "free -b; cat /proc/swaps /proc/pressure/memory; df -h; df -i",
    "files.txt": _OWN_FILES,
}
SERIALS = "cat /sys/class/dmi/id/*_serial 2>/dev/null | sort -u"
"""Prints the serial numbers of a node, which only an anonymized bundle asks for, to replace them."""
