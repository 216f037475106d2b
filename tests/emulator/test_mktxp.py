"""mktxp (PyPI), an exporter of metrics on the binary API, asks the emulator for its links.

It runs in a process of its own, since it changes the library routeros-api for the whole process.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.emulator.emulator_process import Crs812Process, stop_all
from tests.emulator.restore_fixtures import READER, Restorer
from tests.emulator.wait import until

PROGRAM = """
import sys
from pathlib import Path

from mktxp.cli.config import config_handler
from mktxp.cli.config.os_paths import CustomConfig

config_handler(CustomConfig(sys.argv[1]))

from mktxp.flow.collector_handler import CollectorHandler
from mktxp.flow.collector_registry import CollectorRegistry
from mktxp.flow.router_entries_handler import RouterEntriesHandler
from prometheus_client import CollectorRegistry as Metrics
from prometheus_client import generate_latest

metrics = Metrics()
metrics.register(CollectorHandler(RouterEntriesHandler(), CollectorRegistry()))
Path(sys.argv[2]).write_bytes(generate_latest(metrics))
"""
"""What its exporter does, without the HTTP server: its collectors, as its configuration in a folder says."""
ENTRY = """\
[crs812]
    hostname = 127.0.0.1
    port = {port}
    username = {user}
    password = {password}
    use_ssl = True
    ssl_certificate_verify = False
    public_ip = False

"""
EXPORTER_PASSWORD = "an-exporter-s-own-long-password"


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Crs812Process]:
    """A switch as declared, with the reader that a run makes, and a user whose group has `read,api` besides."""
    folder = tmp_path_factory.mktemp("mktxp")
    emulator = Crs812Process(folder / "switch", settle=0.05).start()
    (folder / "desk").mkdir()
    try:
        workdir = Restorer(folder / "desk", emulator)
        workdir.deploy()
        workdir.add("/user/group", name="exporter", policy="read,api")
        workdir.add("/user", name="exporter", group="exporter", password=EXPORTER_PASSWORD)
        until(lambda: "initializing" not in emulator.links().values())
        yield emulator
    finally:
        stop_all([emulator])


def collected(switch: Crs812Process, folder: Path, user: str, password: str) -> tuple[str, str]:
    """The metrics that mktxp collects as a user, and what it prints."""
    package = find_spec("mktxp")
    assert package
    assert package.origin
    templates = Path(package.origin).parent / "cli/config"
    _, default, usual = (templates / "mktxp.conf").read_text().partition("[default]")
    entry = ENTRY.format(port=switch.tls_port, user=user, password=password)
    (folder / "mktxp.conf").write_text(entry + default + usual)
    system = (templates / "_mktxp.conf").read_text()
    (folder / "_mktxp.conf").write_text(system.replace("socket_timeout = 5 ", "socket_timeout = 30 "))
    ended = subprocess.run(
        [sys.executable, "-c", PROGRAM, folder, folder / "metrics"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    assert ended.returncode == 0, ended.stdout
    return (folder / "metrics").read_text(), ended.stdout


def series(metrics: str, name: str) -> dict[str, float]:
    """The values of one metric by the label `name`, the interface."""
    found = re.findall(rf"^{name}{{(.*?)}} (\S+)$", metrics, re.MULTILINE)
    return {re.findall(r'(?:^|,)name="(.*?)"', labels)[0]: float(value) for labels, value in found}


def test_a_user_with_read_and_api_gets_the_links(deployed: Crs812Process, tmp_path: Path) -> None:
    metrics, printed = collected(deployed, tmp_path, "exporter", EXPORTER_PASSWORD)
    assert "ethernet interface monitor info" not in printed, printed
    status = series(metrics, "mktxp_interface_status")
    assert len(status) == 34, metrics[:2000] + printed
    assert {name for name, value in status.items() if value == 1} == {
        name for name, link in deployed.links().items() if link == "link-ok"
    }
    assert status["qsfp56-dd-1-1"] == 1
    assert "qsfp56-dd-1-1" in series(metrics, "mktxp_interface_rate")


def test_the_reader_of_rack_yaml_is_refused(deployed: Crs812Process, tmp_path: Path) -> None:
    metrics, printed = collected(deployed, tmp_path, "sparkrack-reader", READER)
    assert "invalid user name or password" in printed
    assert series(metrics, "mktxp_interface_status") == {}
