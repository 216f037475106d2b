"""pyinfra's connector for switches, which is loaded with the first switch.

pyinfra imports the connectors of every installed project in each of its runs, also in those of another project, whose
packages may be named as ours: see sparkrack_start.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyinfra.api.host import Host
    from pyinfra.api.state import State

    from core.routeros import connector


class RouterOSConnector:
    """Stands in for core.routeros.connector.RouterOSConnector, and makes it."""

    handles_execution = True

    def __new__(cls, state: State, host: Host) -> connector.RouterOSConnector:  # type: ignore[misc]
        """Return the connector itself."""
        return _import_connector()(state, host)

    @staticmethod
    def make_names_data(name: str) -> Iterator[tuple[str, dict[str, Any], list[str]]]:
        """Return the host of a name in an inventory."""
        return _import_connector().make_names_data(name)


def _import_connector() -> type[connector.RouterOSConnector]:
    import sparkrack_start  # noqa: F401 - finds the packages
    from core.routeros import connector

    return connector.RouterOSConnector
