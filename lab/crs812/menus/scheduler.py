"""/system/scheduler: rows only; nothing is run yet when their time comes."""

from __future__ import annotations

from ..kinds import Bool, Duration, Text, Words
from ..menu import FULL, Field, Menu

_POLICIES = """
    ftp reboot read write policy test password sniff sensitive romon
    api local ssh telnet web winbox rest-api
"""

FIELDS = (
    Field("name", Text(), required=True),
    Field("comment", Text(), clears=True),
    Field("disabled", Bool(), "false"),
    Field("start-date", Text(), "1970-01-01"),
    Field("start-time", Text(), "00:00:00"),
    Field("interval", Duration(), "0s"),
    Field("on-event", Text(), ""),
    Field("policy", Words(tuple(_POLICIES.split())), "read,write,test"),
)

SCHEDULER = Menu(
    "/system/scheduler",
    FIELDS,
    verbs=FULL | {"unset", "listen"},
    named_by="name",
    unique=((("name",), "already have such entry"),),
    show=lambda _device, _row: {"run-count": "0"},
)
