"""/system/logging: rules and actions of logs. Rules and actions are kept; the unit's own log in memory gets all
entries, and nothing is sent.

Arguments: schema of RouterOS 7.23; rows of the factory and defaults: published verbose exports of 7.x units.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from lab.routeros_emulator.argument_types import Bool, Enum, Integer, Reference, Text
from lab.routeros_emulator.device import EmulatedDevice
from lab.routeros_emulator.errors import ARGUMENT_VALUE, TrapError, failure
from lab.routeros_emulator.menu import FULL, EmulatedField, EmulatedMenu, EmulatedRow, Values
from lab.routeros_emulator.menus.ntp import Host
from lab.routeros_emulator.request import Call

RULES, ACTIONS = "/system/logging", "/system/logging/action"
#: From this version on a format and a protocol take the place of ``bsd-syslog``.
_FORMATS = (7, 18)
_FACILITIES = """
    auth authpriv cron daemon ftp kern local0 local1 local2 local3 local4 local5 local6 local7 lpr mail news
    ntp syslog user uucp
"""
_NOBODY = "0.0.0.0"  # noqa: S104 - nothing is bound: the address that means none
_SEVERITIES = "alert auto critical debug emergency error info notice warning"


@dataclass(frozen=True)
class Topics:
    """A comma list of topics, each with ``!`` when it must not be there. Any word is taken as a topic."""

    def parse(self, argument: str, text: str) -> str:
        words = [word for word in text.split(",") if word]
        if not all(re.fullmatch(r"!?[a-z0-9-]+", word) for word in words):
            raise TrapError(f"invalid value for argument {argument}", ARGUMENT_VALUE)
        return ",".join(dict.fromkeys(words))


RULE_FIELDS = (
    EmulatedField("topics", Topics(), "info"),
    EmulatedField("action", Reference((ACTIONS,)), "memory"),
    EmulatedField("prefix", Text(), ""),
    EmulatedField("regex", Text(), ""),
    EmulatedField("comment", Text(), clears=True),
    EmulatedField("disabled", Bool(), "false"),
)
_TARGETS: dict[str, dict[str, str]] = {
    "memory": {"memory-lines": "1000", "memory-stop-on-full": "false"},
    "disk": {
        "disk-file-name": "log",
        "disk-lines-per-file": "1000",
        "disk-file-count": "2",
        "disk-stop-on-full": "false",
    },
    "echo": {"remember": "true"},
    "remote": {
        "remote": _NOBODY,
        "remote-port": "514",
        "remote-protocol": "udp",
        "remote-log-format": "default",
        "bsd-syslog": "false",
        "src-address": _NOBODY,
        "syslog-time-format": "bsd-syslog",
        "syslog-facility": "daemon",
        "syslog-severity": "auto",
        "vrf": "main",
    },
}
#: Defaults by target: an action shows only what its target can use.
ACTION_FIELDS = (
    EmulatedField("name", Text(), required=True),
    EmulatedField("target", Enum(tuple(_TARGETS)), required=True),
    EmulatedField("memory-lines", Integer(1, 65535)),
    EmulatedField("memory-stop-on-full", Bool()),
    EmulatedField("disk-file-name", Text()),
    EmulatedField("disk-lines-per-file", Integer(1, 65535)),
    EmulatedField("disk-file-count", Integer(1, 65535)),
    EmulatedField("disk-stop-on-full", Bool()),
    EmulatedField("remember", Bool()),
    EmulatedField("remote", Host()),
    EmulatedField("remote-port", Integer(1, 65535)),
    EmulatedField("remote-protocol", Enum(("tcp", "udp")), since=_FORMATS),
    EmulatedField("remote-log-format", Enum(("cef", "default", "syslog")), since=_FORMATS),
    EmulatedField("bsd-syslog", Bool(), until=_FORMATS),
    EmulatedField("src-address", Host()),
    EmulatedField("syslog-time-format", Enum(("bsd-syslog", "iso8601"))),
    EmulatedField("syslog-facility", Enum(tuple(_FACILITIES.split()))),
    EmulatedField("syslog-severity", Enum(tuple(_SEVERITIES.split()))),
    EmulatedField("vrf", Text()),
    EmulatedField("comment", Text(), clears=True),
)


def _factory_rules(_device: EmulatedDevice) -> Iterator[Values]:
    for topics, action in (("info", "memory"), ("error", "memory"), ("warning", "memory"), ("critical", "echo")):
        yield {"topics": topics, "action": action, "prefix": "", "regex": "", "disabled": "false"}


def _factory_actions(_device: EmulatedDevice) -> Iterator[Values]:
    for target, values in _TARGETS.items():
        yield {"name": target, "target": target} | values


def _show_default(_device: EmulatedDevice, row: EmulatedRow) -> Values:
    """The four rows of the factory, of rules as of actions."""
    return {"default": "true" if row.id <= len(_TARGETS) else "false"}


def _refuse_removal(_device: EmulatedDevice, row: EmulatedRow) -> None:
    """The rows of the factory stay; the wording is inferred."""
    if row.id <= len(_TARGETS):
        raise failure("can not remove default entry")


def _keep_action(device: EmulatedDevice, row: EmulatedRow) -> None:
    """An action that a rule uses stays, too."""
    _refuse_removal(device, row)
    if any(rule.values["action"] == row.values["name"] for rule in device.store.rows(RULES)):
        raise failure("action is in use")


def _stamp_fields(call: Call) -> Values:
    target = call.sentence.attributes.get("target", "")
    return _TARGETS.get(target, {})


def _check_action(_device: EmulatedDevice, row: EmulatedRow, _old: EmulatedRow | None) -> None:
    """A changed target brings its own fields and takes the others away."""
    if not re.fullmatch("[A-Za-z0-9]+", row.values["name"]):
        raise failure("action name can contain only letters and numbers")
    mine = _TARGETS[row.values["target"]]
    for name in {name for values in _TARGETS.values() for name in values} - set(mine):
        row.values.pop(name, None)
    for name, value in mine.items():
        row.values.setdefault(name, value)


LOGGING = EmulatedMenu(
    RULES,
    RULE_FIELDS,
    verbs=FULL,
    factory=_factory_rules,
    show=lambda device, row: _show_default(device, row) | {"invalid": "false"},
    keep=_refuse_removal,
)
ACTION = EmulatedMenu(
    ACTIONS,
    ACTION_FIELDS,
    verbs=FULL - {"enable", "disable"},
    named_by="name",
    unique=((("name",), "action with the same name already exists"),),
    factory=_factory_actions,
    show=_show_default,
    check=_check_action,
    keep=_keep_action,
    stamp=_stamp_fields,
)
