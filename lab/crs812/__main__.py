"""Run the emulated switch: ``python -m lab.crs812 --config FILE [--factory]``.

It prints one JSON line when it is ready (``{"ready": true, "plain_port": …, "tls_port": …}``) and runs until
SIGTERM or SIGINT. Exit code 2 means that it could not start; the reason is on stderr.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from pathlib import Path

from .config import ConfigError, SwitchConfig, read
from .control import Control
from .device import Device
from .faults import Faults
from .journal import Journal
from .menus import MENUS
from .nvram import NvramError
from .server import Server
from .wires import BridgeWires, NullWires, Wires


async def serve(config: SwitchConfig, *, factory: bool) -> None:
    """Run a switch until a signal ends it. Raises OSError, NvramError or ConfigError when it cannot start."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, ended.set)
    wires: Wires = BridgeWires(config.bridge) if config.bridge else NullWires()
    journal = Journal(config.log)
    device = Device(config, MENUS, wires, loop.call_later, factory=factory)
    faults = Faults()
    server = Server(device, faults, journal)
    control = Control(device, faults, journal, server)
    plain, tls = await server.start(config)
    if config.control is not None:
        await control.start(config.control)
    device.links.boot()
    print(json.dumps({"ready": True, "plain_port": plain, "tls_port": tls}), flush=True)
    await ended.wait()
    control.stop()
    await server.stop()
    device.links.stop()
    journal.close()


def main() -> int:
    """Read the arguments and run; gives the exit code."""
    parser = argparse.ArgumentParser(prog="python -m lab.crs812", description="An emulated MikroTik CRS812 switch.")
    parser.add_argument("--config", type=Path, required=True, help="configuration file (JSON)")
    parser.add_argument("--factory", action="store_true", help="forget the saved state first")
    given = parser.parse_args()
    try:
        asyncio.run(serve(read(given.config), factory=given.factory))
    except (ConfigError, NvramError, OSError) as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
