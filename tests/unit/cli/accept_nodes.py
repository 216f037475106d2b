"""Nodes that answer the commands of `sparkrack accept`, as a GB10 is claimed to, until a test changes an answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from core.ssh.root_shell import UnreachableError
from tests.unit.probe_output import probe_output

HALVES = ("enp1s0f0np0", "enP2p1s0f0np0", "enp1s0f1np1", "enP2p1s0f1np1")
FUNCTIONS = ("0000:01:00.0", "0000:01:00.1", "0002:01:00.0", "0002:01:00.1")


def ethtool(speed: str = "100000Mb/s", link: str = "yes") -> str:
    return "".join(
        f"Settings for {name}:\n\tSpeed: {speed}\n\tLink detected: {link}\n"
        for name in ("enp1s0f1np1", "enP2p1s0f1np1")
    )


GOOD: Mapping[str, str | tuple[int, str]] = {
    "fabric.ethtool-speed": ethtool(),
    "fabric.interface-names": "\n".join((*HALVES, "lo", "enP7s7")),
    "lossless.driver-files": "\n".join(f"{name}: has ecn\n{name}: has traffic_class" for name in HALVES),
    "preflight.dmi": "sys_vendor=Dell Inc.\nboard_vendor=NVIDIA\nproduct_name=Dell Pro Max with GB10 FCM1253\n",
    "preflight.lspci-vpd": "\n".join(
        f"{name} Ethernet controller: Mellanox\n\t\tLnkSta:\tSpeed 32GT/s, Width x4" for name in FUNCTIONS
    )
    + "\nlspci ended with 0\n",
    "lossless.driver-identity": "\n".join("DOCA-OFED: roce_np" for _ in HALVES),
    "preflight.lspci-link": "\n".join(f"{name}: has LnkSta" for name in FUNCTIONS),
    "driver.packages": "nvidia-driver-580-open 580.95.05-0ubuntu1\nnvidia-container-toolkit 1.17.8-1\n",
    "rdma.sysfs": "\n".join(
        f"{name}: has {what}"
        for name in ("rocep1s0f0", "roceP2p1s0f0", "rocep1s0f1", "roceP2p1s0f1")
        for what in ("gids", "gid_attrs/types", "hw_counters")
    ),
    "time.daemons": "NTPSynchronized=yes\nSystemNTPServers=10.77.0.1\nServerName=10.77.0.1\n       Offset: -412us\n",
    "driver.upgrade-units": "DGX OS\nnvidia-spark-run-apt-upgrade-once.service enabled\n"
    "nvidia-spark-ota-check.service static\nnvidia-spark-ota-check.timer enabled\ndgx-ota.service static\n",
}
"""The answers of a node on which each claim holds."""


class Nodes:
    """In place of the shells of nodes. `changed`: answers that differ, by claim; of each node, or of one by
    `(node, claim)`. `silent`: why a node does not answer. `raw`: the whole output of a node. `scripts`: what was run.
    """

    def __init__(self) -> None:
        self.changed: dict[str | tuple[str, str], str | tuple[int, str]] = {}
        self.silent: dict[str, str] = {}
        self.raw: dict[str, str] = {}
        self.scripts: list[tuple[str, str]] = []

    def shell(self, node: str, _config: Path, _seconds: float) -> Any:
        def run(script: str) -> Any:
            self.scripts.append((node, script))
            if node in self.silent:
                raise UnreachableError(node, self.silent[node])
            asked = re.findall(r"^c (\S+)", script, re.MULTILINE)
            answers = {
                name: self.changed.get((node, name), self.changed.get(name, GOOD.get(name, ""))) for name in asked
            }
            return SimpleNamespace(stdout_bytes=self.raw.get(node, probe_output(answers)).encode())

        return SimpleNamespace(run=run, close=lambda: None, hostname=node)
