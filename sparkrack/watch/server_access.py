"""How the programs of the server of the watch are reached, and the files that it reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from core.model import Rack
from core.ssh.port_forward import forwarded_ports
from core.util.atomic_file import write_atomic
from core.util.command_error import CommandError
from roles.watch import desired, notifications, rules, scrape
from sparkrack.watch.prometheus_api import AlertmanagerApi, PrometheusApi


@dataclass(frozen=True)
class WatchApis:
    """What is asked. `alertmanager` None: it cannot be reached where Prometheus is."""

    prometheus: PrometheusApi
    alertmanager: AlertmanagerApi | None = None


def prometheus_url(rack: Rack) -> str:
    """Return the address of the Prometheus of the rack."""
    return f"http://{desired.listen_address(rack)}:{desired.PROMETHEUS_PORT}"


@contextmanager
def open_apis(rack: Rack, url: str | None) -> Iterator[WatchApis]:
    """The programs of the server of the watch, behind a login by ssh where it is a node of the rack. `url`: of another
    Prometheus.
    """
    server = desired.server(rack)
    if url or server is None:
        yield WatchApis(PrometheusApi(url or prometheus_url(rack)))
        return
    prometheus, alertmanager = desired.PROMETHEUS_PORT, desired.ALERTMANAGER_PORT
    with forwarded_ports(rack, server.name, (prometheus, alertmanager)) as forward:
        yield WatchApis(
            PrometheusApi(f"http://{server.name}:{prometheus}", partial(forward.socket, prometheus)),
            AlertmanagerApi(f"http://{server.name}:{alertmanager}", partial(forward.socket, alertmanager)),
        )


def server_files(rack: Rack) -> dict[str, str]:
    """Return what a server outside of the rack reads, by file name; one of the files has secrets. Raises CommandError
    for a secret that cannot be read.
    """
    try:
        values = notifications.secret_values(rack)
    except ValueError as fault:
        raise CommandError(str(fault)) from None
    contents = {
        desired.RULES: rules.rule_file(rack).content,
        desired.CONFIG: scrape.prometheus_file(rack).content,
        desired.NOTIFICATIONS: notifications.alertmanager_text(rack, values),
    }
    return {Path(path).name: content.decode() for path, content in contents.items()}


def write_files(folder: Path, contents: Mapping[str, str]) -> Iterator[Path]:
    """Write files into a folder, readable by their owner only, and yield the path of each. Raises CommandError."""
    try:
        for name, content in contents.items():
            write_atomic(folder / name, content)
            yield folder / name
    except OSError as fault:
        raise CommandError(f"{folder}: {fault.strerror}") from None
