"""Who may log in."""

from __future__ import annotations

from .device import Device
from .errors import TrapError
from .menu import Values
from .passwords import agrees

USER = "/user"


def authenticate(device: Device, name: str, password: str) -> Values:
    """Give the user's row when name and password are right; TrapError as RouterOS words it otherwise."""
    row = device.store.find(USER, name)
    known = row is not None and row.values["name"] == name and row.values["disabled"] == "false"
    if row is not None and known and agrees(password, row.values["password"]):
        return row.values
    device.tell("system,error,critical", f"login failure for user {name} via api")
    raise TrapError("invalid user name or password (6)")
