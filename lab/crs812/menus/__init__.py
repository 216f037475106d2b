"""The menus this switch has. A new menu is a ``Menu`` in one of these files and its name in ``MENUS``."""

from __future__ import annotations

from ..menu import Menu
from .bridge import BRIDGE, BRIDGE_HOST, BRIDGE_PORT
from .ethernet import ETHERNET
from .interface import INTERFACE
from .ip import ADDRESS, SERVICE
from .log import LOG
from .safe_mode import HISTORY, SAFE_MODE
from .scheduler import SCHEDULER
from .system import IDENTITY, PACKAGE, RESOURCE, ROUTERBOARD
from .user import ACTIVE, USER

MENUS: tuple[Menu, ...] = (
    ETHERNET,
    BRIDGE,
    BRIDGE_PORT,
    BRIDGE_HOST,
    INTERFACE,
    ADDRESS,
    SERVICE,
    IDENTITY,
    RESOURCE,
    ROUTERBOARD,
    PACKAGE,
    USER,
    ACTIVE,
    HISTORY,
    SAFE_MODE,
    SCHEDULER,
    LOG,
)
