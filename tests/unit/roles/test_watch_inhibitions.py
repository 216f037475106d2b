"""Which alerts silence others, by a real Alertmanager: alerts are added and asked for with amtool."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from core.model import Rack
from roles.watch import desired
from tests.unit.model import serving_racks
from tests.unit.model.racks import changed, loaded
from tests.unit.roles.watch_server import Server, on_loopback, own_loopback, wait_for  # noqa: F401
from tests.unit.roles.watch_tools import call, written

UNITS = {
    "pair": serving_racks.unit(nodes=["n0", "n1"], api={"listen": "management"}),
    "alone": serving_racks.unit(nodes=["n2"], parallel={"tensor": 1}, api={"listen": "management"}),
}
READER = "    user: sparkrack\n", "    user: sparkrack\n    reader: {password: {env: READER}}\n"
SERVER = "n3"

Alert = tuple[str, Mapping[str, str]]
"""The name of an alert, and its labels."""

TARGETS: dict[str, Alert] = {
    **{f"links of {node}": ("LinkDown", {"node": node, "device": "enp1s0f0np0"}) for node in ("n0", "n1", "n2")},
    **{f"drift of {node}": ("DriftUnknown", {"host": node}) for node in ("n0", "n1")},
    "drift found on n0": ("Drift", {"host": "n0", "role": "fabric"}),
    "memory of n0": ("MemoryNearFloor", {"node": "n0"}),
    "pair is down": ("EngineDown", {"node": "n0", "unit": "pair", "job": "vllm"}),
    "pair hangs": ("EngineHangs", {"node": "n0", "unit": "pair", "job": "vllm"}),
    "queue of pair": ("QueueGrows", {"node": "n0", "unit": "pair", "job": "vllm"}),
    "alone is down": ("EngineDown", {"node": "n2", "unit": "alone", "job": "vllm"}),
    "no switch is read": ("SwitchReaderStopped", {}),
}
"""Alerts that silence none, by what they are about."""


def declared() -> Rack:
    """Four nodes behind a switch that n3 reads, a unit of two nodes and a unit of one."""
    file = serving_racks.text(UNITS, serving_racks.machines(4), watch={"server": SERVER})
    return loaded(changed(file, READER))


@pytest.mark.parametrize(
    ("source", "silenced"),
    [
        (
            ("NodeSilent", {"node": "n0", "job": "node"}),
            {
                *("links of n0", "drift of n0", "memory of n0"),
                *("pair is down", "pair hangs", "queue of pair"),
            },
        ),
        # A rank of the unit is lost, and the alerts of the unit have the node of its API.
        (("NodeSilent", {"node": "n1", "job": "node"}), {"links of n1", "drift of n1", "pair is down", "pair hangs"}),
        (("GuardFired", {"node": "n0"}), {"pair is down", "pair hangs"}),
        (("GuardFired", {"node": "n1"}), {"pair is down", "pair hangs"}),
        (("GuardFired", {"node": "n2"}), {"alone is down"}),
        (("GuardFired", {"node": "n3"}), set()),
        # The server of the watch is off: it exports nothing of the switches, which the alert cannot tell.
        (("NodeSilent", {"node": "n3", "job": "node"}), {"no switch is read"}),
        (
            ("SwitchSilent", {"node": "n3", "switch": "s0", "problem": "unreachable"}),
            {"links of n0", "links of n1", "links of n2"},
        ),
        (("SwitchSilent", {"node": "n3", "switch": "s0", "problem": "refused"}), set()),
    ],
    ids=lambda value: "-".join((value[0], *value[1].values())) if isinstance(value, tuple) else "",
)
def test_an_alert_silences_what_follows_from_it_and_nothing_else(
    tmp_path: Path, source: Alert, silenced: set[str]
) -> None:
    found, _ = on_loopback(declared())
    written(tmp_path, found)
    server = Server(found, tmp_path)
    server.start("alertmanager", desired.alertmanager_dropin(found))
    url = f"--alertmanager.url=http://{desired.listen_address(found)}:{desired.ALERTMANAGER_PORT}"

    def add(alert: Alert, **more: str) -> bool:
        labels = {"alertname": alert[0], **alert[1], **more}
        return call("amtool", url, "alert", "add", *(f"{key}={value}" for key, value in labels.items())).returncode == 0

    def seen() -> dict[str, bool]:
        """Whether another alert silences it, for each alert by its case."""
        done = call("amtool", url, "alert", "query", "--active", "--inhibited", "--unprocessed", "--output=json")
        return {one["labels"]["case"]: bool(one["status"]["inhibitedBy"]) for one in json.loads(done.stdout)}

    try:
        wait_for("Alertmanager takes alerts", lambda: add(source, case="source"))
        for name, alert in TARGETS.items():
            assert add(alert, case=name)
        wanted = {"source": False, **{name: name in silenced for name in TARGETS}}
        wait_for(f"{sorted(silenced)} and no other are silenced", lambda: seen() == wanted)
    finally:
        server.stop_all()
