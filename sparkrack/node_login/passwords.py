"""The password of the account from a node's first-boot wizard: asked for late, tried rarely."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pydantic import SecretStr

from core.model import SecretRef

TRIES = 3
"""Maximum number of passwords that are typed for one node: machines lock accounts after more."""


class Passwords:
    """One password for all nodes, unless a node does not take it."""

    def __init__(self, reference: SecretRef | None, ask: Callable[[str, str], SecretStr]) -> None:
        """`reference`: where it is kept; None: `ask` is called with node and account. Both may raise SecretError."""
        self.reference = reference
        self._ask = ask
        self._last: SecretStr | None = None

    def tries(self, node: str, user: str) -> Iterator[SecretStr]:
        """Yield the passwords to try on a node: a referenced one once, else up to three, first the one that another
        node accepted.
        """
        if self.reference:
            self._last = self._last or self.reference.resolve()
            yield self._last
            return
        for number in range(TRIES):
            yield self._last if self._last and number == 0 else self._ask(node, user)

    def took(self, secret: SecretStr) -> None:
        """Record that a node accepted this one; it is tried first on the next node."""
        self._last = secret

    @property
    def refused(self) -> str:
        """Message for a node that accepted none."""
        if self.reference:
            return f"the password of {self.reference} is wrong there; tried once, so that no account is locked"
        return f"{TRIES} passwords were wrong there; no more are tried, so that no account is locked"
