"""The role watch on real nodes: exporters, Prometheus, Alertmanager, what reads the switch, and an alert that reaches a
receiver. The packages of the distribution are in the image of the nodes, disabled.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lab import black_box
from tests.lab.virtual import VirtualRack

pytestmark = pytest.mark.soak(turn=0)

SERVER, RECEIVER, KILLED = "spark1", "spark2", "spark3"
SECTION = f"watch: {{server: {SERVER}, notify: {{webhook: {{env: WATCH_WEBHOOK}}}}}}\n"
PORT = 8099
HOOK = f"""\
import http.server
class Hook(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        with open("/run/hook", "ab") as file:
            file.write(self.rfile.read(int(self.headers["Content-Length"])) + b"\\n")
        self.send_response(200)
        self.end_headers()
http.server.HTTPServer(("10.77.0.12", {PORT}), Hook).serve_forever()
"""
LISTENERS = {SERVER: (9090, 9093, 9100), RECEIVER: (9100,)}
WAIT = 300
"""Seconds for an alert: the machine of the tests is slow. What it took is printed."""


@pytest.fixture(scope="module")
def file(disposable_rack: VirtualRack) -> Iterator[Path]:
    """The rack file with the section watch, applied; a receiver of alerts runs on a node."""
    rack = disposable_rack
    rack.environment["WATCH_WEBHOOK"] = f"http://10.77.0.12:{PORT}/"
    rack.ssh(RECEIVER, f"cat > /run/hook.py <<'END'\n{HOOK}END\nsystemd-run --unit=hook python3 /run/hook.py")
    path = rack.folder / "watch.yaml"
    path.write_text(rack.paths.rack.read_text() + SECTION)
    rack.inside("sparkrack", "apply", "-y", "--only", "watch", rack=path)
    yield path
    del rack.environment["WATCH_WEBHOOK"]
    path.unlink()


def wait_for(what: str, look: Callable[[], Any]) -> Any:
    until = time.monotonic() + WAIT
    while not (found := look()):
        assert time.monotonic() < until, f"no {what} within {WAIT} s"
        time.sleep(1)
    return found


def query(rack: VirtualRack, words: str) -> dict[str, float]:
    """The value of each series by its node or switch."""
    asked = f"curl -fsG --data-urlencode 'query={words}' http://127.0.0.1:9090/api/v1/query"
    rows = json.loads(rack.ssh(SERVER, asked))["data"]["result"]
    return {row["metric"].get("switch") or row["metric"]["node"]: float(row["value"][1]) for row in rows}


def alerts(rack: VirtualRack) -> list[dict[str, Any]]:
    """What the receiver got."""
    text = rack.ssh(RECEIVER, "cat /run/hook 2>/dev/null || true")
    return [alert for line in filter(None, text.splitlines()) for alert in json.loads(line)["alerts"]]


def test_all_is_proven_and_the_second_run_changes_nothing(rack: VirtualRack, file: Path) -> None:
    wait_for("reading of the switch", lambda: query(rack, "sparkrack_switch_up"))
    wait_for("metrics of each node", lambda: len(query(rack, "sparkrack_node_metrics_timestamp_seconds")) == 3)
    rack.verify("--only", "watch", rack=file)
    done = rack.inside("sparkrack", "drift", "--only", "watch", rack=file, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_nodes_and_the_switch_are_read(rack: VirtualRack, file: Path) -> None:
    assert query(rack, 'up{job="node"}') == {"spark1": 1, "spark2": 1, "spark3": 1}
    assert query(rack, "sparkrack_switch_up") == {"crs812": 1}
    assert query(rack, "sum by(switch) (sparkrack_switch_leg_up)") == {"crs812": 3}


def test_the_operator_sees_the_switch(rack: VirtualRack, file: Path) -> None:
    """From outside of the nodes, by the screen of `sparkrack watch`; a rate is known once there are two readings."""
    row = re.compile(r"^crs812 +\d+ +4/4 +\d/1 +3/3 +\d+ +\d+ +\d+ s ago *$", re.MULTILINE)

    def shown() -> str:
        done = rack.inside("sparkrack", "watch", "--once", rack=file, check=False)
        print(done.stdout)
        return done.stdout if row.search(done.stdout) else ""

    assert "crs812: legs with a link: 3 at " in wait_for("row of the switch", shown)


def test_what_the_operator_finds_is_collected(rack: VirtualRack, file: Path) -> None:
    """`sparkrack drift` runs outside of the nodes, and its metrics are on the server."""
    done = rack.inside("sparkrack", "drift", "--quiet", rack=file, check=False)
    assert done.returncode in (0, 2), done.stdout + done.stderr
    assert "not delivered" not in done.stderr
    found = wait_for("metrics of drift", lambda: query(rack, "sparkrack_drift_last_run_timestamp_seconds"))
    assert found.keys() == {SERVER}
    mode = rack.ssh(SERVER, "stat -c '%a %U' /var/lib/prometheus/node-exporter/sparkrack.prom").strip()
    assert mode == "644 root"


def test_exporters_listen_on_the_management_address_and_the_others_on_loopback(rack: VirtualRack, file: Path) -> None:
    for node, ports in LISTENERS.items():
        listening = [line.split()[4] for line in rack.ssh(node, "ss -Hltnu").splitlines()]
        for port in ports:
            found = [place for place in listening if place.endswith(f":{port}")]
            assert found, f"{node}: nothing listens at {port}"
            assert all(place.startswith("10.77.0." if port == 9100 else "127.0.0.1:") for place in found), found


@pytest.mark.soak
@pytest.mark.parametrize(
    "by_hand",
    [
        "systemctl disable --now prometheus-node-exporter.service",
        "systemctl mask --now prometheus-alertmanager.service",
        "systemctl mask --runtime --now prometheus.service",
        "chmod 644 /etc/sparkrack/watch/switch-passwords.json /etc/prometheus/sparkrack-alertmanager.yml",
        "systemctl stop sparkrack-switch-reader.timer",
        "rm /usr/local/lib/sparkrack/switch_reader.py",
        "rm /etc/prometheus/sparkrack-rules.yml",
        "systemctl disable --now sparkrack-node-metrics.timer",
    ],
)
def test_what_is_broken_by_hand_is_found_and_repaired(rack: VirtualRack, file: Path, by_hand: str) -> None:
    rack.ssh(SERVER, by_hand)
    assert rack.inside("sparkrack", "drift", "--only", "watch", rack=file, check=False).returncode == 2
    done = rack.inside("sparkrack", "apply", "-y", "--only", "watch", rack=file, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    rack.verify("--only", "watch", rack=file)


@pytest.mark.soak
def test_a_run_that_was_killed_before_the_restart(rack: VirtualRack, file: Path) -> None:
    """It had written other arguments, and systemd had read them: only the mark says that Prometheus has not. The first
    tier has tests/unit/roles/test_watch_killed.py.
    """
    dropin = "/etc/systemd/system/prometheus.service.d/zz-sparkrack.conf"
    rack.ssh(SERVER, f"sed -i s/time=15d/time=3d/ {dropin}; systemctl daemon-reload; systemctl restart prometheus")
    rack.ssh(SERVER, f"sed -i s/time=3d/time=15d/ {dropin}; systemctl daemon-reload")
    rack.ssh(SERVER, "mkdir -p /run/sparkrack; : > /run/sparkrack/watch-prometheus.pending")
    assert rack.inside("sparkrack", "drift", "--only", "watch", rack=file, check=False).returncode == 2
    rack.inside("sparkrack", "apply", "-y", "--only", "watch", rack=file)
    main = "$(systemctl show --property=MainPID --value prometheus.service)"
    assert "--storage.tsdb.retention.time=15d" in rack.ssh(SERVER, f"tr '\\0' '\\n' < /proc/{main}/cmdline")
    assert rack.inside("sparkrack", "drift", "--only", "watch", rack=file, check=False).returncode == 0


@pytest.mark.soak
def test_a_drop_in_of_others_is_reported(rack: VirtualRack, file: Path) -> None:
    """It is read after ours; the node is not changed. The first tier has tests/unit/roles/test_watch_by_hand.py."""
    theirs = "/etc/systemd/system/prometheus-node-exporter.service.d/zzz.conf"
    rack.ssh(SERVER, f"printf '[Service]\\nMemoryMax=infinity\\n' > {theirs}")
    done = rack.inside("sparkrack", "drift", "--only", "watch", rack=file, check=False)
    assert done.returncode == 2
    assert "zzz.conf" in done.stdout + done.stderr
    rack.ssh(SERVER, f"rm {theirs}; systemctl daemon-reload")
    assert rack.inside("sparkrack", "drift", "--only", "watch", rack=file, check=False).returncode == 0


def test_a_node_that_dies_is_reported(rack: VirtualRack, file: Path) -> None:
    died = black_box.kill(rack, KILLED)

    def reported() -> list[dict[str, Any]]:
        found = [alert["labels"] for alert in alerts(rack) if alert["status"] == "firing"]
        return [labels for labels in found if (labels["alertname"], labels.get("node")) == ("NodeSilent", KILLED)]

    wait_for("alert NodeSilent at the receiver", reported)
    print(f"NodeSilent reached the receiver {time.time() - died:.0f} s after the kill")
