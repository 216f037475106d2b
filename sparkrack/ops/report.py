"""Show what an operation will change, when pyinfra was called with --diff."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from pyinfra.api.host import Host


def tell(host: Host, lines: Iterable[str]) -> None:
    """Changes that are no file: one line each."""
    if host.state.config.DIFF:
        for line in lines:
            host.log(f"  {line}")


def show(host: Host, path: str, before: bytes | None, after: bytes | None) -> None:
    """Show what will become of a file, when pyinfra was called with --diff."""
    if not host.state.config.DIFF:
        return
    old, new = (
        [] if side is None else side.decode("utf-8", "backslashreplace").splitlines() for side in (before, after)
    )
    host.log(f"{'Will create' if before is None else 'Will modify'} {path}")
    for line in list(difflib.unified_diff(old, new, lineterm="", n=1))[2:]:
        host.log(f"  {line}")
