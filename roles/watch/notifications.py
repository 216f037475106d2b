"""The configuration of Alertmanager: who gets which alert, and which alerts silence others. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from core.model import Rack
from core.model.declared_secrets import secret_position, secret_value
from core.model.secrets import SecretRef
from roles.watch import desired, switch_reader
from roles.watch.options import WatchOptions
from roles.watch.rules import HEARTBEAT
from roles.watch.scrape import watched_units, yaml_text

CHECK = (
    'amtool check-config "$new" > /dev/null 2>&1 || { '
    "echo 'amtool check-config refuses the new file; its reason is not shown: it may quote a secret' >&2; exit 1; }"
)
MODE = "640"
"""Group prometheus reads it: it holds the URL of the webhook and the password of the mailbox."""


_HEARTBEAT_WAITS = {"group_wait": "0s", "group_interval": "1m", "repeat_interval": "4m"}
"""It is sent at the first multiple of group_interval after repeat_interval, every 5 minutes."""


def secrets(rack: Rack) -> tuple[SecretRef, ...]:
    """Return the references of the secrets in the file."""
    notify = rack.options(WatchOptions).notify
    found = (notify.webhook, notify.email.password if notify.email else None, notify.heartbeat) if notify else ()
    return tuple(ref for ref in found if ref is not None)


_URL = re.compile(
    r"https?://([A-Za-z0-9._~!$&'()*+,;=:%-]+@)?([A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?"
    r"([/?#]([!-$&-~]|%[0-9A-Fa-f]{2})*)?"
)
"""What Alertmanager 0.25 to 0.28 takes for the URL of a webhook, as far as a webhook needs it."""


def secret_values(rack: Rack) -> dict[SecretRef, str]:
    """Fetch the secrets of the file, and check what Alertmanager would refuse: its own message may quote a secret.

    Raises ValueError; the message has no secret.
    """
    values = {ref: secret_value(rack, ref) for ref in secrets(rack)}
    for fault in _secret_faults(rack, values):
        raise ValueError(fault)
    return values


def _secret_faults(rack: Rack, values: Mapping[SecretRef, str]) -> Iterator[str]:
    notify = rack.options(WatchOptions).notify
    for ref in (notify.webhook, notify.heartbeat) if notify else ():
        if ref is None or _URL.fullmatch(values[ref]):
            continue
        place = secret_position(rack, ref)
        yield f"{place}: {ref} does not give the URL of a webhook; put one there, like https://HOST/PATH"
    if notify and notify.email and (ref := notify.email.password) and not values[ref].isprintable():
        place = secret_position(rack, ref)
        yield f"{place}: {ref} gives a password with a control character; put one line of text there"


def alertmanager_text(rack: Rack, values: Mapping[SecretRef, str]) -> bytes:
    """Return the configuration of Alertmanager, with the value of each secret."""
    receiver: dict[str, Any] = {"name": "rack"}
    receivers, routes = (
        [receiver],
        [
            {"receiver": "rack", "matchers": ['severity="ticket"'], "repeat_interval": "24h"},
            {"receiver": "rack", "matchers": ['severity="info"'], "repeat_interval": "72h"},
        ],
    )
    if notify := rack.options(WatchOptions).notify:
        if notify.webhook:
            receiver["webhook_configs"] = [{"url": values[notify.webhook], "send_resolved": True}]
        if email := notify.email:
            mail: dict[str, Any] = {"to": email.to, "from": email.sender, "smarthost": email.smarthost}
            if email.user and email.password:
                mail |= {"auth_username": email.user, "auth_password": values[email.password]}
            receiver["email_configs"] = [{**mail, "send_resolved": True}]
        if notify.heartbeat:
            receivers.append({"name": "heartbeat", "webhook_configs": [{"url": values[notify.heartbeat]}]})
            matcher = f'alertname="{HEARTBEAT}"'
            routes.insert(0, {"receiver": "heartbeat", "matchers": [matcher], **_HEARTBEAT_WAITS})
    document = {
        "route": {
            "receiver": "rack",
            "group_by": ["alertname"],
            "group_wait": "10s",
            "group_interval": "1m",
            "repeat_interval": "4h",
            "routes": routes,
        },
        "inhibit_rules": [
            # A node that is off has no links and no engine either.
            {
                "source_matchers": ['alertname="NodeSilent"'],
                "target_matchers": ['alertname!="NodeSilent"'],
                "equal": ["node"],
            },
            *_silent_node_rules(rack),
            *_lost_rank_rules(rack),
            *switch_reader.inhibitions(rack),
        ],
        "receivers": receivers,
    }
    return yaml_text(rack, document).encode()


def _silent_node_rules(rack: Rack) -> Iterator[dict[str, Any]]:
    """Yield what a silent node silences that names it in another label, or in none."""
    for name in rack.nodes:
        yield {
            "source_matchers": ['alertname="NodeSilent"', f'node="{name}"'],
            "target_matchers": ['alertname="DriftUnknown"', f'host="{name}"'],
        }
    server = desired.server(rack)
    if server is not None and switch_reader.switches(rack):
        yield {
            "source_matchers": ['alertname="NodeSilent"', f'node="{server.name}"'],
            "target_matchers": ['alertname="SwitchReaderStopped"'],
        }


def _lost_rank_rules(rack: Rack) -> Iterator[dict[str, Any]]:
    """Yield what follows from the loss of a rank, on any node of the unit: the others wait for it, or end.

    The alerts of a unit have the node of its API alone.
    """
    for unit in watched_units(rack):
        nodes = "|".join(unit.ranks(rack.nodes))
        yield {
            "source_matchers": ['alertname=~"NodeSilent|GuardFired"', f'node=~"{nodes}"'],
            "target_matchers": ['alertname=~"EngineDown|EngineHangs"', f'unit="{unit.name}"'],
        }
