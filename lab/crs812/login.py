"""Who may log in."""

from __future__ import annotations

from .device import Device
from .errors import TrapError
from .menu import Values
from .passwords import agrees
from .permissions import of_group

USER = "/user"


def authenticate(device: Device, name: str, password: str, policy: str = "api") -> Values:
    """Give the user's row when name and password are right and the group has the policy of that door;
    TrapError as RouterOS words it otherwise. That a missing policy looks like a wrong password is inferred.
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
