"""Links on this machine: a node's taps are, or are not, in the fabric bridge.

RouterOS' l2mtu is the frame without its MAC header, as is a Linux device's MTU, so the one becomes the other.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol


class WiringError(Exception):
    """The kernel refused to move a wire; the text is the error of ``ip``."""


class LinkWiring(Protocol):
    """Puts taps into the fabric and takes them out. Both may be called again for the same tap."""

    def attach(self, taps: Iterable[str], mtu: int) -> None:
        """Make taps members of the fabric with that MTU (bytes); raises WiringError."""
        ...

    def detach(self, taps: Iterable[str]) -> None:
        """Take taps out of the fabric; raises WiringError."""
        ...

    def hosts(self) -> Sequence[tuple[str, str]]:
        """Give (MAC address, tap) pairs that the fabric has learned."""
        ...

    def powered(self, taps: Sequence[str], /) -> bool:
        """Give whether the node behind the taps of one port has power. A port without taps has."""
        ...


class NoWiring:
    """Wires that are not there: for a switch without nodes."""

    def attach(self, taps: Iterable[str], mtu: int) -> None:
        pass

    def detach(self, taps: Iterable[str]) -> None:
        pass

    def hosts(self) -> Sequence[tuple[str, str]]:
        return ()

    def powered(self, _taps: Sequence[str]) -> bool:
        return True


class BridgeWiring:
    """Taps and one Linux bridge in the network namespace that this process runs in."""

    def __init__(self, bridge: str, devices: Path = Path("/sys/class/net")) -> None:
        self._bridge, self._devices = bridge, devices

    def attach(self, taps: Iterable[str], mtu: int) -> None:
        # The MTU first: a frame must never meet a member that is too small for it.
        lines = [f"link set dev {tap} {what}" for tap in taps for what in (f"mtu {mtu}", f"master {self._bridge}")]
        self._run_ip(lines)

    def detach(self, taps: Iterable[str]) -> None:
        self._run_ip([f"link set dev {tap} nomaster" for tap in taps])

    def hosts(self) -> Sequence[tuple[str, str]]:
        done = subprocess.run(
            ["bridge", "-json", "fdb", "show", "br", self._bridge], capture_output=True, text=True, timeout=10
        )
        if done.returncode != 0:
            raise WiringError(done.stderr.strip() or "bridge fdb show failed")
        return [
            (entry["mac"].upper(), entry["ifname"])
            for entry in json.loads(done.stdout or "[]")
            if entry.get("master") == self._bridge and entry.get("state") != "permanent"
        ]

    def powered(self, taps: Sequence[str]) -> bool:
        # The kernel of the node holds its taps open until it ends, and a tap that no process holds has no carrier. One
        # process lets go of them one after the other, so the first one counts.
        return all(self._has_carrier(tap) for tap in taps)

    def _has_carrier(self, tap: str) -> bool:
        try:
            return (self._devices / tap / "carrier").read_text().strip() == "1"
        except OSError:
            return False  # it is not there, or it is down

    def _run_ip(self, lines: list[str]) -> None:
        if not lines:
            return
        # -force carries on with the other taps when one is missing, for instance of a node that is off.
        done = subprocess.run(
            ["ip", "-force", "-batch", "-"],
            input="\n".join(lines) + "\n",
            capture_output=True,
            text=True,
            timeout=10,
        )
        if done.returncode != 0:
            raise WiringError(" ".join(done.stderr.split()))
