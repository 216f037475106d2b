"""The unit's own addresses on this machine: those that /ip/address has, on a link that carries nothing else."""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from typing import Protocol


class AddressError(Exception):
    """The kernel refused an address; the text is the error of ``ip``."""


class OwnAddresses(Protocol):
    """The addresses of the unit."""

    def keep(self, addresses: Iterable[str]) -> None:
        """Have exactly these addresses; raises AddressError."""
        ...


class NoAddresses:
    """Addresses that are this machine's anyway, such as those of 127.0.0.0/8."""

    def keep(self, addresses: Iterable[str]) -> None:
        pass


class LinkAddresses:
    """Addresses on one link of the network namespace that this process runs in. The link is the unit's alone."""

    def __init__(self, link: str) -> None:
        self._link = link
        self._held: frozenset[str] | None = None

    def keep(self, addresses: Iterable[str]) -> None:
        wanted = frozenset(addresses)
        # A process that was killed took nothing along, so the first time begins with an empty link.
        lines = [f"address flush dev {self._link}"] if self._held is None else []
        held = self._held or frozenset()
        lines += [f"address del {address}/32 dev {self._link}" for address in sorted(held - wanted)]
        # No route comes with it: the network around an address is the operator's business.
        lines += [f"address replace {address}/32 dev {self._link}" for address in sorted(wanted - held)]
        self._held = wanted
        if not lines:
            return
        # -force: a refused address does not prevent the others.
        done = subprocess.run(
            ["ip", "-force", "-batch", "-"], input="\n".join(lines) + "\n", capture_output=True, text=True, timeout=10
        )
        if done.returncode != 0:
            raise AddressError(" ".join(done.stderr.split()))
