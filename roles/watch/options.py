"""What is watched, where, and who is notified: the section `watch` of rack.yaml, and its rules."""

from __future__ import annotations

import re
from collections.abc import Iterator
from difflib import get_close_matches
from ipaddress import IPv4Address
from typing import Annotated

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StrictBool,
    StrictInt,
    StrictStr,
    TypeAdapter,
    model_validator,
)

from core.model.cabling import Cabling
from core.model.errors import RuleViolation
from core.model.fields import (
    Address,
    Duration,
    HostName,
    Management,
    NonEmptyList,
    NotEmpty,
    Section,
    invalid,
    matching,
    seconds,
    size,
)
from core.model.partial_rack import PartialRack
from core.model.schema import Rack
from core.model.secrets import SecretRef
from core.model.sections import Node
from roles.blackbox.options import BlackboxOptions, cap_of

SHORTEST, LONGEST = 5, 60
"""Seconds. An alert of 30 s needs two samples. The shortest rates are those of 2 minutes, which need two as well."""
_ADDRESS = TypeAdapter[IPv4Address](Address)
_NAME = TypeAdapter[str](HostName)


def _check_interval(text: str) -> str:
    if not SHORTEST <= seconds(text) <= LONGEST:
        raise invalid("{value} is out of range", f"write {SHORTEST}s to {LONGEST}s")
    return text


def _check_port(text: str) -> str:
    if not 1 <= int(text.rpartition(":")[2]) <= 65535:
        raise invalid("{value} has no port from 1 to 65535", "write one, like mail.example.org:587")
    return text


def _parse_server(value: object) -> object:
    # Digits and dots are an address, so that the reason of a refusal is that of an address.
    if isinstance(value, str) and re.fullmatch(r"[0-9.]+", value):
        return _ADDRESS.validate_python(value)
    return value if isinstance(value, IPv4Address) else _NAME.validate_python(value)


Interval = Annotated[Duration, AfterValidator(_check_interval)]
MetricsSize = Annotated[str, size(1024, 1024 * 1024, "the size of the metrics", "is not a fit size for metrics", "8G")]
Server = Annotated[IPv4Address | StrictStr, BeforeValidator(_parse_server)]
"""A node of the rack by its name, or the IPv4 address of a machine outside of it."""
MailAddress = Annotated[
    StrictStr,
    matching(
        r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9.-]{1,190}",
        "{value} is not a mail address",
        "write one, like ops@example.org",
    ),
]
SmartHost = Annotated[
    StrictStr,
    matching(
        r"[A-Za-z0-9.-]{1,190}:[0-9]{1,5}", "{value} is not a host with a port", "write both, like mail.example.org:587"
    ),
    AfterValidator(_check_port),
]
MailUser = Annotated[
    StrictStr,
    matching(r"[A-Za-z0-9._+@-]{1,190}", "{value} is not a user name", "write one word, like rack@example.org"),
]


class KeepOptions(Section):
    """How long metrics are kept: for `days`, and at most `size` of them; the oldest go first."""

    days: Annotated[StrictInt, Field(ge=1, le=365)] = 15
    size: MetricsSize = Field(default="8G", examples=["8G"])


class EmailOptions(Section):
    """Alerts by mail: from `sender` to `to` through `smarthost`, which must offer TLS.

    `user` logs in there with `password`; without both there is no login.
    """

    to: MailAddress = Field(examples=["ops@example.org"])
    sender: MailAddress = Field(examples=["rack@example.org"])
    smarthost: SmartHost = Field(examples=["mail.example.org:587"])
    user: Annotated[MailUser | None, NotEmpty] = Field(default=None, examples=["rack@example.org"])
    password: Annotated[SecretRef | None, NotEmpty] = Field(default=None, examples=["{env: MAIL_PASSWORD}"])

    @model_validator(mode="after")
    def _login_is_whole(self) -> EmailOptions:
        if (self.user is None) != (self.password is None):
            missing = "user" if self.user is None else "password"
            raise invalid(f"has no {missing}", "write user and password, or neither")
        return self


class NotifyOptions(Section):
    """Who is notified of alerts: a `webhook`, whose URL is a secret, or a mailbox, or both.

    `heartbeat`: the URL of a service outside of the rack that is asked every 5 minutes while alerts are evaluated and
    sent, and that notifies by itself when it was not.
    """

    webhook: Annotated[SecretRef | None, NotEmpty] = Field(default=None, examples=["{env: WATCH_WEBHOOK}"])
    email: Annotated[EmailOptions | None, NotEmpty] = Field(
        default=None,
        examples=["{to: ops@example.org, sender: rack@example.org, smarthost: mail.example.org:587}"],
    )

    heartbeat: Annotated[SecretRef | None, NotEmpty] = Field(default=None, examples=["{env: WATCH_HEARTBEAT}"])

    @model_validator(mode="after")
    def _require_receiver(self) -> NotifyOptions:
        if self.webhook is None and self.email is None:
            raise invalid("has neither webhook nor email", "write one, or remove the key")
        return self


class WatchOptions(Section):
    """Where metrics are collected and kept, and who is notified of alerts.

    `server` None: the first node without a cap on its clock (`blackbox.clock_cap`), else the first node. `notify` None:
    alerts are shown and sent to no receiver. `switch`: whether the server reads the switches that have a `reader`, once
    a minute; None: where there is such a switch, and the server is a node. `psus`: how many power supplies of a switch
    are expected to be connected. `allow`: addresses that read the exporters beside the server.
    """

    server: Annotated[Server | None, NotEmpty] = Field(default=None, examples=["spark1"])
    interval: Interval = Field(default="15s", examples=["15s"])
    keep: KeepOptions = KeepOptions()
    notify: Annotated[NotifyOptions | None, NotEmpty] = Field(
        default=None, examples=["{webhook: {env: WATCH_WEBHOOK}}"]
    )
    switch: Annotated[StrictBool | None, NotEmpty] = Field(default=None, examples=["false"])
    psus: Annotated[StrictInt, Field(ge=1, le=2)] = 1
    allow: Annotated[Annotated[tuple[Management, ...], NonEmptyList] | None, NotEmpty] = Field(
        default=None, examples=["[10.77.0.50/32]"]
    )


def unguarded(watch: WatchOptions | None) -> Iterator[RuleViolation]:
    """What ends all notifications without a notification, which is allowed and worth knowing; nothing without alerts
    that are sent.
    """
    if watch is not None and watch.notify is not None and watch.notify.heartbeat is None:
        what = "nothing outside of the rack notices when the server is off or alerts are silenced"
        yield RuleViolation(
            ("watch", "notify"), what, "write heartbeat, the URL of a service that misses a sign of life"
        )


def check(partial: PartialRack, watch: WatchOptions, _cabling: Cabling) -> Iterator[RuleViolation]:
    """The rules between the section and the machines of the rack."""
    yield from _check_server(partial, watch)
    if watch.switch:
        yield from _check_switch(partial, watch)


def _check_switch(partial: PartialRack, watch: WatchOptions) -> Iterator[RuleViolation]:
    """What reads the switches runs on a node, as the reader that a switch declares."""
    where = ("watch", "switch")
    if isinstance(watch.server, IPv4Address):
        yield RuleViolation(
            where, "needs a server in the rack, which reads the switches", "name a node at watch.server, or write false"
        )
    elif partial.complete and not any(switch.reader for switch in partial.switches.values()):
        yield RuleViolation(where, "no switch has a reader", "write switches.NAME.reader, or write false")


def _check_server(partial: PartialRack, watch: WatchOptions) -> Iterator[RuleViolation]:
    """The server is a node of the rack, or an address that no machine of the rack has."""
    where = ("watch", "server")
    if isinstance(watch.server, IPv4Address):
        for name, node in partial.nodes.items():
            if node.address == watch.server:
                yield RuleViolation(where, f"{watch.server} is the address of {name}", f"write {name}")
        for name, switch in partial.switches.items():
            if switch.address == watch.server:
                what = f"{watch.server} is the address of {name}, and a switch cannot be the server"
                yield RuleViolation(where, what, "write the name of a node")
    elif watch.server is not None and partial.complete and watch.server not in partial.nodes:
        near = get_close_matches(watch.server, list(partial.nodes), 1)
        right = f"did you mean {near[0]}?" if near else "write the name of a node, or the address of a machine outside"
        yield RuleViolation(where, f"there is no node called {watch.server}", right)


def server(rack: Rack) -> Node | None:
    """Return the node that has Prometheus and Alertmanager; None where that is a machine outside of the rack.

    A node with a cap on its clock is one of a kind that loses power at a load step, so the first node without one.
    """
    declared = rack.options(WatchOptions).server
    if isinstance(declared, IPv4Address):
        return None
    if declared is not None:
        return rack.nodes[declared]
    blackbox = rack.declared(BlackboxOptions)
    caps = blackbox.clock_cap if blackbox else {}
    nodes = list(rack.nodes.values())
    return next((node for node in nodes if cap_of(caps, node) is None), nodes[0])


def server_address(rack: Rack) -> IPv4Address:
    """Return the address of the server, in the rack or outside of it."""
    declared = rack.options(WatchOptions).server
    found = server(rack)
    if found is not None:
        return found.address
    assert isinstance(declared, IPv4Address)  # noqa: S101 - for mypy: `server` returns None for nothing else
    return declared
