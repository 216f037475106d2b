"""Permissions of a user: the policies of the group, and those that a command needs.

MikroTik manual, 'User', 'Router user groups', lists the policies and their purpose; which command needs which, beyond
reading and writing, is inferred. A changed group changes its users at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from lab.routeros_emulator.errors import TrapError

if TYPE_CHECKING:
    from lab.routeros_emulator.device import EmulatedDevice
    from lab.routeros_emulator.menu import EmulatedMenu
    from lab.routeros_emulator.request import RequestClient

GROUP = "/user/group"
WRITES = frozenset({"add", "set", "unset", "enable", "disable", "remove"})
_ALL = "local telnet ssh ftp reboot read write policy test winbox password web sniff sensitive api romon rest-api"
_JOB = "ftp reboot read write policy test password sniff sensitive romon"
#: Every policy, in the order in which a group prints them.
POLICIES = tuple(_ALL.split())
#: The policies that a script or a scheduled job may have, in their order.
JOB_POLICIES = tuple(_JOB.split())


def not_permitted() -> TrapError:
    """The user's group lacks a policy that the command needs."""
    return TrapError("not enough permissions (9)")


def of_group(device: EmulatedDevice, group: str) -> frozenset[str]:
    """The policies of a group; none when there is no such group."""
    row = device.store.find(GROUP, group)
    words = row.values["policy"].split(",") if row is not None else []
    return frozenset(word for word in words if word and not word.startswith("!"))


def held(device: EmulatedDevice, client: RequestClient) -> frozenset[str]:
    """The policies that a session or a script has now."""
    return of_group(device, client.group) if client.policies is None else client.policies


def needed(menu: EmulatedMenu, verb: str) -> frozenset[str]:
    """The policies that a command needs."""
    if verb in menu.needs:
        return menu.needs[verb]
    return frozenset({"write" if verb in WRITES or verb in menu.protected else "read"})


def require(device: EmulatedDevice, client: RequestClient, menu: EmulatedMenu, verb: str) -> None:
    """Raise TrapError when a client may not give a command."""
    if not needed(menu, verb) <= held(device, client):
        raise not_permitted()
