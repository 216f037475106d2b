"""What reads the switches for Prometheus: its program, its units, its files, and which alerts it serves. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from core.model import Rack, Switch
from core.model.secrets import SecretRef
from core.util import resources
from core.util.managed_file import ManagedFile, header, validate_unit
from roles.watch import desired
from roles.watch.options import WatchOptions

NAME = "sparkrack-switch-reader"
SERVICE, TIMER = f"{NAME}.service", f"{NAME}.timer"
PROGRAM = "/usr/local/lib/sparkrack/switch_reader.py"
FOLDER = "/etc/sparkrack/watch"
TARGETS = f"{FOLDER}/switches.json"
PASSWORDS = f"{FOLDER}/switch-passwords.json"
"""Of root, mode 0600: systemd hands it to the reader, whose user exists only while it runs."""
METRICS = "/var/lib/prometheus/node-exporter/sparkrack-switch.prom"
"""In the folder of the textfile collector, as the package of node_exporter configures it."""
PASSWORDS_MODE = "600"
FILES = (PROGRAM, TARGETS, f"/etc/systemd/system/{SERVICE}", f"/etc/systemd/system/{TIMER}")
"""Paths of the files without a secret, in the order in which they are written."""
STALE = 180
"""Seconds after which a reading is too old: three are due in that time."""


def switches(rack: Rack) -> dict[str, Switch]:
    """Return the switches that the server reads; none where rack.yaml turns it off, or the server is outside."""
    watch = rack.declared(WatchOptions)
    if watch is None or watch.switch is False or desired.server(rack) is None:
        return {}
    return {name: switch for name, switch in rack.switches.items() if switch.reader and switch.tls}


def alerts(rack: Rack) -> tuple[str, ...]:
    """Return the files of the alerts about switches; none where no switch is read, since they fire without series."""
    return ("files/alerts-switch.yml",) if switches(rack) else ()


def inhibitions(rack: Rack) -> list[dict[str, Any]]:
    """Return which alerts a switch that cannot be reached silences: those of the links of the nodes on it.

    Only then: a switch that refuses its reader still carries the links.
    """
    return [
        {
            "source_matchers": ['alertname="SwitchSilent"', 'problem="unreachable"', f'switch="{name}"'],
            "target_matchers": ['alertname=~"Link.+"', f'node=~"{"|".join(nodes)}"'],
        }
        for name in switches(rack)
        # Not a backslash, which a matcher reads as well.
        if (nodes := list(dict.fromkeys(port.node.replace(".", "[.]") for _, port in rack.cabling.legs(name))))
    ]


def secrets(rack: Rack) -> tuple[SecretRef, ...]:
    """Return the references of the passwords of the readers."""
    return tuple(switch.reader.password for switch in switches(rack).values() if switch.reader)


def passwords_text(rack: Rack, values: Mapping[SecretRef, str]) -> bytes:
    """Return the file of the passwords, by the name of the switch."""
    found = {name: values[switch.reader.password] for name, switch in switches(rack).items() if switch.reader}
    return f"{json.dumps(found)}\n".encode()


def files(rack: Rack) -> list[ManagedFile]:
    """Return the files without a secret, in the order in which they are written."""
    targets = {
        "supplies": rack.options(WatchOptions).psus,
        "switches": [_reader_target(rack, name, switch) for name, switch in switches(rack).items()],
    }
    service = resources.file_text(
        "roles.watch",
        "templates/sparkrack-switch-reader.service",
        header=header(rack.rack),
        program=PROGRAM,
        targets=TARGETS,
        passwords=PASSWORDS,
        metrics=METRICS,
    )
    timer = resources.file_text("roles.watch", "templates/sparkrack-switch-reader.timer", header=header(rack.rack))
    program = resources.file_text("roles.watch", "files/switch_reader.py")
    made = (
        ManagedFile(PROGRAM, program.encode(), "755"),
        ManagedFile(TARGETS, f"{json.dumps(targets, indent=1)}\n".encode()),
        ManagedFile(FILES[2], service.encode(), validate=validate_unit(SERVICE)),
        ManagedFile(FILES[3], timer.encode()),
    )
    return list(made)


def _reader_target(rack: Rack, name: str, switch: Switch) -> dict[str, Any]:
    assert switch.reader  # noqa: S101 - for mypy: `switches` returns no other
    assert switch.tls  # noqa: S101
    return {
        "name": name,
        "address": str(switch.address),
        "port": switch.reader.port,
        "sha256": switch.tls.sha256,
        "user": switch.reader.user,
        "legs": {leg.interface: str(port) for leg, port in rack.cabling.legs(name)},
    }
