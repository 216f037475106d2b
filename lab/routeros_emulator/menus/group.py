"""/user/group: what users may do. The three groups of the factory: MikroTik manual, 'User', 'Default groups'."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lab.routeros_emulator.argument_types import Enum, Text
from lab.routeros_emulator.device import EmulatedDevice
from lab.routeros_emulator.errors import failure, no_match
from lab.routeros_emulator.menu import FULL, EmulatedField, EmulatedMenu, EmulatedRow, Values
from lab.routeros_emulator.permissions import GROUP as PATH
from lab.routeros_emulator.permissions import POLICIES, WRITES

#: Writing users and groups needs ``policy`` besides ``write`` (MikroTik manual, 'User').
USER_NEEDS = dict.fromkeys(WRITES, frozenset({"write", "policy"}))
_BUILTIN = ("read", "write", "full")
_DENIED = {"read": {"ftp", "write", "policy"}, "write": {"ftp", "policy"}, "full": set[str]()}


@dataclass(frozen=True)
class Policies:
    """A comma list of policies, each with ``!`` when denied. All are printed, the denied ones last; one that
    is not given is denied."""

    def parse(self, argument: str, text: str) -> str:
        words = [word for word in text.split(",") if word]
        if any(word.removeprefix("!") not in POLICIES for word in words):
            raise no_match(argument)
        return spell({word for word in words if not word.startswith("!")})


def spell(granted: set[str]) -> str:
    """Print a set of policies as a group does."""
    denied = [f"!{policy}" for policy in POLICIES if policy not in granted]
    return ",".join([policy for policy in POLICIES if policy in granted] + denied)


FIELDS = (
    EmulatedField("name", Text(), required=True),
    EmulatedField("policy", Policies(), spell(set())),
    EmulatedField("skin", Enum(("default",)), "default"),
    EmulatedField("comment", Text(), clears=True),
)


def _factory_rows(_device: EmulatedDevice) -> Iterator[Values]:
    for name in _BUILTIN:
        yield {"name": name, "policy": spell(set(POLICIES) - _DENIED[name]), "skin": "default"}


def _refuse_removal(device: EmulatedDevice, row: EmulatedRow) -> None:
    """The groups of the factory stay, and so does one that has users. The wordings are inferred."""
    if row.values["name"] in _BUILTIN:
        raise failure("can not remove default group")
    if any(user.values["group"] == row.values["name"] for user in device.store.rows("/user")):
        raise failure("group is in use")


GROUP = EmulatedMenu(
    PATH,
    FIELDS,
    verbs=FULL - {"enable", "disable"},
    named_by="name",
    unique=((("name",), "group with the same name already exists"),),
    factory=_factory_rows,
    keep=_refuse_removal,
    needs=USER_NEEDS,
)
