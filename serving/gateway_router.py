"""The router of the gateway as rack.yaml declares it: the place of each model, its program and its service. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping

from core.model import Rack
from core.model.fields import mebibytes
from core.util import resources
from core.util.managed_file import ManagedFile, header, validate_unit
from serving.engines.json_option import structured_value
from serving.options import ServedUnit, ServingGateway, plain_argument, served_units

SERVICE = "sparkrack-gateway-router.service"
SERVICE_FILE = f"/etc/systemd/system/{SERVICE}"
PROGRAM = "/usr/local/lib/sparkrack/serve_router.py"
MODELS = "/etc/sparkrack/gateway-models.json"
"""Beside the folder of the gateway, which root alone reads. It has no secret."""
PATHS = (PROGRAM, MODELS, SERVICE_FILE)
RUN = "/run/sparkrack-gateway-router"
SOCKET = f"{RUN}/socket"
BODIES = 4
"""Times that a body is held while it is read: as it comes, whole, as text, and as values."""
BESIDE_BODIES = 96
"""MiB that the router takes beside the largest body."""


def units_by_model(units: Iterable[ServedUnit]) -> Mapping[str, tuple[str, ...]]:
    """Return the names of the units that serve each model, in the order of rack.yaml: `serve use` changes no file."""
    found: dict[str, tuple[str, ...]] = {}
    for unit in units:
        for name in dict.fromkeys((*unit.served_names, *adapters(unit))):
            found[name] = (*found.get(name, ()), unit.name)
    return found


def adapters(unit: ServedUnit) -> Iterator[str]:
    """Yield the names of the adapters of a unit that vLLM serves as models of their own."""
    given = plain_argument(unit.args.get("lora-modules", ()))
    for one in given if isinstance(given, list) else [given]:
        read = structured_value(one)
        name = read.get("name") if isinstance(read, Mapping) else str(read).partition("=")[0]
        # A text with a brace at its beginning is JSON that vLLM cannot read.
        if isinstance(name, str) and name and not name.lstrip().startswith("{"):
            yield name


def route(units: tuple[str, ...]) -> str:
    """Return the name of the location of nginx for a model that these units serve."""
    return f"route-{'-'.join(units)}"


def files(rack: Rack, gateway: ServingGateway) -> tuple[ManagedFile, ...]:
    """Return the files of the router, in the order in which they are written."""
    service = resources.file_text(
        "serving",
        "templates/sparkrack-gateway-router.service",
        header=header(rack.rack),
        program=PROGRAM,
        socket=SOCKET,
        models=MODELS,
        memory=BESIDE_BODIES + BODIES * mebibytes(gateway.body),
    )
    units = units_by_model(served_units(rack).values())
    models = json.dumps({name: route(names) for name, names in units.items()}, indent=1)
    return (
        ManagedFile(PROGRAM, resources.file_text("serving", "files/serve_router.py").encode(), "755"),
        ManagedFile(MODELS, f"{models}\n".encode()),
        ManagedFile(SERVICE_FILE, service.encode(), validate=validate_unit(SERVICE)),
    )
