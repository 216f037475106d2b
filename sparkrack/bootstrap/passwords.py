"""The password of the account that a node has from its first-boot wizard: asked for late, tried seldom."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pydantic import SecretStr

from sparkrack.fleet import SecretRef

TRIES = 3
"""How many passwords are typed for one node at most: machines lock accounts after more."""


class Passwords:
    """One password for all nodes, unless a node does not take it."""

    def __init__(self, reference: SecretRef | None, ask: Callable[[str, str], SecretStr]) -> None:
        """`reference`: where it is kept; None: `ask` is called with node and account. Both may raise SecretError."""
        self.reference = reference
        self._ask = ask
        self._last: SecretStr | None = None

    def tries(self, node: str, user: str) -> Iterator[SecretStr]:
        """What may be tried on a node: a referenced password once, else up to three, the first one that which another
        node took."""
        if self.reference:
            self._last = self._last or self.reference.resolve()
            yield self._last
            return
        for number in range(TRIES):
            yield self._last if self._last and number == 0 else self._ask(node, user)

    def took(self, secret: SecretStr) -> None:
        """A node took this one; the next node is asked with it first."""
        self._last = secret

    @property
    def refused(self) -> str:
        """What is said when a node took none."""
        if self.reference:
            return f"the password of {self.reference} is wrong there; tried once, so that nobody is locked out"
        return f"{TRIES} passwords were wrong there; no more are tried, so that nobody is locked out"
