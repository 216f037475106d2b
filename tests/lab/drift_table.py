"""Manual changes of a node, and the expected reports. One table; every row is broken on one node."""

from __future__ import annotations

from dataclasses import dataclass

IMAGE = "scitrera/dgx-spark-sglang:0.5.12"


@dataclass(frozen=True)
class Drift:
    """`breaks`: shell text, as root. `proof`: expected in the output of verify. `plan`: expected in the output of a dry
    run. `whole`: shell text that succeeds when it is repaired.
    """

    breaks: str
    proof: str
    plan: str
    whole: str


DRIFTS = {
    "swap is on": Drift(
        "systemctl unmask -q swap.target swap.img.swap; swapon /swap.img",
        "spark2: swap is on, ",
        "swapoff /swap.img",
        "[ $(wc -l < /proc/swaps) -eq 1 ]",
    ),
    "swap comes back at boot": Drift(
        "echo '/swap.img none swap sw 0 0' >> /etc/fstab",
        "spark2: fstab swaps to /swap.img at the next boot",
        "Will modify /etc/fstab",
        "! grep -q '^/swap.img' /etc/fstab",
    ),
    "swap in compressed memory": Drift(
        "modprobe zram; echo 64M > /sys/block/zram0/disksize; mkswap -q /dev/zram0; swapon /dev/zram0",
        "spark2: a zram device is set up",
        "release zram0",
        "grep -qx 0 /sys/block/zram0/disksize",
    ),
    "another program's sysctl, live only": Drift(
        "sysctl -qw vm.overcommit_memory=1",
        "spark2: vm.overcommit_memory is 1, wanted 0",
        "vm.overcommit_memory: 1 -> 0",
        "grep -qx 0 /proc/sys/vm/overcommit_memory",
    ),
    "our sysctl drop-in edited": Drift(
        "sed -i s/1572864/65536/ /etc/sysctl.d/zz-sparkrack-memory.conf",
        "spark2: vm.min_free_kbytes will be 65536 after a boot, wanted 1572864",
        "Will modify /etc/sysctl.d/zz-sparkrack-memory.conf",
        "grep -q 1572864 /etc/sysctl.d/zz-sparkrack-memory.conf",
    ),
    "the slice's limit raised": Drift(
        "systemctl set-property sparkrack.slice MemoryMax=120G",
        "sparkrack.slice: MemoryMax is",
        "sparkrack.slice",
        "grep -qx 107374182400 /sys/fs/cgroup/sparkrack.slice/memory.max",
    ),
    "the memory guard stopped": Drift(
        "systemctl disable -q --now sparkrack-memory-guard.service",
        "spark2: sparkrack-memory-guard.service is inactive, wanted active",
        "sparkrack-memory-guard",
        "systemctl is-active -q sparkrack-memory-guard.service",
    ),
    "a hold released": Drift(
        "apt-mark unhold nvidia-modprobe",
        "spark2: nvidia-modprobe is not on hold",
        "nvidia-modprobe",
        "apt-mark showhold | grep -qx nvidia-modprobe",
    ),
    "a package upgraded": Drift(
        "apt-get -qq update; apt-get -y -qq install --allow-change-held-packages nvidia-driver-580-open "
        "nvidia-dkms-580-open nvidia-kernel-common-580 nvidia-utils-580 libnvidia-compute-580",
        "nvidia-utils-580 is 580.173.02-0ubuntu1, wanted 580.159",
        "nvidia-utils-580",
        "dpkg-query -W -f '${Version}' nvidia-utils-580 | grep -q '^580.159'",
    ),
    "a timer of apt enabled again": Drift(
        "systemctl unmask -q apt-daily-upgrade.timer; systemctl enable -q --now apt-daily-upgrade.timer",
        "spark2: apt-daily-upgrade.timer is enabled, wanted masked",
        "apt-daily-upgrade.timer",
        "[ $(systemctl is-enabled apt-daily-upgrade.timer) = masked ]",
    ),
    "apt upgrades by itself": Drift(
        "rm /etc/apt/apt.conf.d/99-sparkrack-no-upgrades",
        "for apt, wanted 0",
        "99-sparkrack-no-upgrades",
        "[ -e /etc/apt/apt.conf.d/99-sparkrack-no-upgrades ]",
    ),
    "daemon.json edited": Drift(
        "sed -i s/sparkrack.slice/other.slice/ /etc/docker/daemon.json",
        "daemon.json",
        "daemon.json",
        "grep -q sparkrack.slice /etc/docker/daemon.json",
    ),
    "the user out of group docker": Drift(
        "gpasswd -d ops docker",
        "spark2: ops is not in group docker",
        "docker",
        "id -nG ops | grep -qw docker",
    ),
    "a container without a limit": Drift(
        f"docker run -d --name loose {IMAGE} sleep 3600",
        "spark2: container loose may take all memory, wanted at most 100G",
        "memory unlimited -> 100G",
        "grep -qx 107374182400 /sys/fs/cgroup/sparkrack.slice/docker-*.scope/memory.max && docker rm -f loose",
    ),
    "an image retagged": Drift(
        f"c=$(docker create {IMAGE} sh); docker commit $c lab/other:1; docker rm $c; docker tag lab/other:1 {IMAGE}",
        f"{IMAGE} is ",
        IMAGE,
        f"[ $(docker image inspect -f '{{{{.Id}}}}' {IMAGE}) != $(docker image inspect -f '{{{{.Id}}}}' lab/other:1) ]",
    ),
    "an address changed": Drift(
        "ip address del 192.168.100.2/24 dev enp1s0f1np1; ip address add 192.168.100.99/24 dev enp1s0f1np1",
        "spark2/enp1s0f1np1: has 192.168.100.99/24, wanted 192.168.100.2/24",
        "enp1s0f1np1: 192.168.100.99/24 -> 192.168.100.2/24",
        "ip -br address show dev enp1s0f1np1 | grep -q 192.168.100.2/24",
    ),
    "an MTU changed": Drift(
        "ip link set enP2p1s0f1np1 mtu 1500",
        "spark2/enP2p1s0f1np1: mtu 1500, wanted 9000",
        "enP2p1s0f1np1: mtu 1500 -> 9000",
        "grep -qx 9000 /sys/class/net/enP2p1s0f1np1/mtu",
    ),
    "our netplan file readable by all": Drift(
        "chmod 644 /etc/netplan/60-sparkrack-fabric.yaml",
        "60-sparkrack-fabric.yaml is 644 root root, wanted 600 root root",
        "60-sparkrack-fabric.yaml: owner and mode are put right",
        "[ $(stat -c %a /etc/netplan/60-sparkrack-fabric.yaml) = 600 ]",
    ),
    "nccl.conf turns RDMA off": Drift(
        "printf '# theirs\\nNCCL_IB_DISABLE=1\\nNCCL_DEBUG=WARN\\n' > /etc/nccl.conf",
        "spark2: /etc/nccl.conf turns RDMA off",
        "/etc/nccl.conf",
        "! grep -q '^NCCL_IB_DISABLE=1' /etc/nccl.conf && grep -qx NCCL_DEBUG=WARN /etc/nccl.conf",
    ),
    "the fabric's environment edited": Drift(
        "sed -i s/NCCL_IB_HCA=.*/NCCL_IB_HCA=mlx5_0/ /etc/sparkrack/fabric.env",
        "NCCL_IB_HCA is mlx5_0",
        "/etc/sparkrack/fabric.env",
        "! grep -q mlx5_0 /etc/sparkrack/fabric.env",
    ),
    "an ARP setting changed": Drift(
        "sysctl -qw net.ipv4.conf.all.arp_ignore=0",
        "arp_ignore is 0, wanted 1",
        "arp_ignore",
        "grep -qx 1 /proc/sys/net/ipv4/conf/all/arp_ignore",
    ),
    "its own name on loopback": Drift(
        "echo '127.0.1.1 spark2' >> /etc/hosts",
        "stands for 127.0.1.1",
        "/etc/hosts",
        "! grep -q '^127.*spark2' /etc/hosts",
    ),
    "another node's key removed": Drift(
        "sed -i '/sparkrack:lab:spark1$/d' ~ops/.ssh/authorized_keys",
        "spark2: does not accept spark1",
        "let spark1 in",
        "grep -q 'sparkrack:lab:spark1$' ~ops/.ssh/authorized_keys",
    ),
    "passwords accepted by sshd": Drift(
        "sed -i 's/^PasswordAuthentication no/PasswordAuthentication yes/' /etc/ssh/sshd_config.d/00-sparkrack.conf; "
        "systemctl reload ssh",
        "spark2: sshd has not PasswordAuthentication no",
        "00-sparkrack.conf",
        "sshd -T | grep -qx 'passwordauthentication no'",
    ),
}
"""Changes that only the operator can fix (another netplan file, a container outside the slice) are in
test_4_unknown.py.
"""
