"""Run the emulated switch: ``python -m lab.crs812 --config FILE [--fixture FILE] [--factory]``.

It prints one JSON line when it is ready: ``ready``, ``plain_port``, ``tls_port``, ``www_port`` and ``rest_port``
(www-ssl), null for a service that has no port. It runs until SIGTERM or SIGINT. Exit code 2 means that it could not
start; the reason is on stderr.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import signal
import sys
from pathlib import Path

from . import fixture
from .config import ConfigError, SwitchConfig, read
from .control import Control
from .device import Device
from .faults import Faults
from .fixture import Fixture
from .journal import Journal
from .menus import MENUS
from .nvram import NvramError
from .server import Server
from .vault import VaultError
from .wires import BridgeWires, NullWires, Wires


async def serve(config: SwitchConfig, recorded: Fixture | None = None, *, factory: bool) -> None:
    """Run a switch until a signal ends it. Raises OSError, NvramError, VaultError or ConfigError when it cannot
    start."""
    # It warns of each answer to a client that was killed, which is the client's end and no fault of the switch.
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    wires: Wires = BridgeWires(config.bridge) if config.bridge else NullWires()
    journal = Journal(config.log)
    if recorded is None:
        device = Device(config, MENUS, wires, loop.call_later, factory=factory)
    else:
        config = recorded.config(config)
        menus = recorded.menus(MENUS)
        device = Device(config, menus, wires, loop.call_later, factory=factory, fill=recorded.fill)
        device.told = recorded.told
    faults = Faults()
    server = Server(device, faults, journal)
    control = Control(device, faults, journal, server)
    ports = await server.start(config)
    if config.control is not None:
        await control.start(config.control)
    device.links.boot()
    device.schedule.boot()
    ready = {"plain_port": ports.plain, "tls_port": ports.tls, "www_port": ports.www, "rest_port": ports.rest}
    print(json.dumps({"ready": True, **ready}), flush=True)
    await ended.wait()
    control.stop()
    await server.stop()
    device.schedule.stop()
    device.jobs.stop()
    device.links.stop()
    journal.close()


def main() -> int:
    """Read the arguments and run; gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m lab.crs812", description="An emulated MikroTik CRS812 switch.")
    parser.add_argument("--config", type=Path, required=True, help="configuration file (JSON)")
    parser.add_argument("--fixture", type=Path, help="be the unit that `sparkrack probe` recorded in this file")
    parser.add_argument("--factory", action="store_true", help="forget the saved state first")
    given = parser.parse_args()
    try:
        recorded = fixture.read(given.fixture) if given.fixture else None
        asyncio.run(serve(read(given.config), recorded, factory=given.factory))
    except (ConfigError, NvramError, VaultError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
