"""The watch on a screen that renews itself."""

from __future__ import annotations

import time

from rich.live import Live
from rich.text import Text

from core.model import Rack
from sparkrack.watch.collect import collect
from sparkrack.watch.model import WatchReport
from sparkrack.watch.prometheus_api import PrometheusError
from sparkrack.watch.render import WatchScreen
from sparkrack.watch.server_access import WatchApis

SECONDS = 5.0
"""Seconds between two readings."""


def show_live(rack: Rack, names: tuple[str, ...], apis: WatchApis) -> WatchReport | None:
    """Renew the screen until the operator ends it; return what it showed last, None when Prometheus did not answer."""
    report = None
    try:
        with Live(Text(f"asking {apis.prometheus.url}"), auto_refresh=False, screen=False) as display:
            while True:
                try:
                    report = collect(rack, names, apis.prometheus, apis.alertmanager)
                    display.update(WatchScreen(report), refresh=True)
                except PrometheusError as fault:
                    # The values of before are no longer known.
                    report = None
                    text = f"{time.strftime('%H:%M:%S')} unknown: {fault}; asked again every {SECONDS:.0f} s"
                    display.update(Text(text, style="bold red"), refresh=True)
                time.sleep(SECONDS)
    except KeyboardInterrupt:
        return report
