"""Authentication of users."""

from __future__ import annotations

from lab.routeros_emulator.device import EmulatedDevice
from lab.routeros_emulator.errors import TrapError
from lab.routeros_emulator.menu import Values
from lab.routeros_emulator.passwords import agrees
from lab.routeros_emulator.permissions import of_group

USER = "/user"


def authenticate(device: EmulatedDevice, name: str, password: str, policy: str = "api") -> Values:
    """Return the user's row when name and password are right and the group has the policy of that service; TrapError
    with RouterOS' wording otherwise. That a missing policy looks like a wrong password is inferred.
    """
    row = device.store.find(USER, name)
    known = row is not None and row.values["name"] == name and row.values["disabled"] == "false"
    if row is not None and known and agrees(password, row.values["password"]):
        if policy not in of_group(device, row.values["group"]):
            device.tell("system,error,critical", f"login failure for user {name} via {policy}: no permission")
            raise TrapError("invalid user name or password (6)")
        return row.values
    device.tell("system,error,critical", f"login failure for user {name} via api")
    raise TrapError("invalid user name or password (6)")
