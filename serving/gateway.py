"""The gateway of the served units as rack.yaml declares it: nginx's configuration, its service and its keys. Pure.

Only the node of the gateway has it. Its private files are the keys, and the certificate with its private key.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from pydantic import SecretBytes

from core.model import Rack
from core.model.addressing import first_address
from core.model.fields import mebibytes
from core.util import resources
from core.util.managed_file import ManagedFile, header, validate_shell, validate_unit
from serving.desired import UNITS, PrivateFile, plain
from serving.launch import api_address
from serving.options import ServedUnit, ServingGateway, gateway_of, served_units

FOLDER = "/etc/sparkrack/gateway"
RUN = "/run/sparkrack-gateway"
"""Has a file `UNIT.closed` for each closed unit. It is empty after a boot."""
CACHE = "/var/cache/sparkrack-gateway"
NGINX = "/usr/sbin/nginx"
PACKAGE = "nginx"
SERVICE = "sparkrack-gateway.service"
SERVICE_FILE = f"{UNITS}/{SERVICE}"
CONFIGURATION = f"{FOLDER}/nginx.conf"
REACHED = f"{FOLDER}/units"
KEYS = f"{FOLDER}/keys.conf"
CERTIFICATE = f"{FOLDER}/gateway.pem"
"""The private key and the certificates in one file, so that one is never replaced without the other."""
PROGRAM = "/usr/local/lib/sparkrack/serve-gateway"
PENDING = f"{FOLDER}/pending"
"""A run has begun to change the gateway, and has not ended it."""
INSTALLING = f"{FOLDER}/installing"
"""A run has begun to install nginx, and has not disabled the package's own service yet."""
PATHS = (SERVICE_FILE, CONFIGURATION, REACHED, KEYS, CERTIFICATE, PROGRAM, PENDING, INSTALLING)
CLIENT_PATHS = (
    "models",
    "completions",
    "chat/completions",
    "embeddings",
    "responses",
    "messages",
    "messages/count_tokens",
    "rerank",
    "score",
    "classify",
    "audio/transcriptions",
    "audio/translations",
)
"""Below /v1: what the libraries of OpenAI and Anthropic, and those for rerankers, ask. Nothing else is handed on: below
/v1 vLLM 0.33 also loads adapters (`load_lora_adapter`), and SGLang 0.5.23 shows its load (`loads`)."""
_BELOW = {"models": "(?:/[^/]+){0,2}", "responses": "(?:/[^/]+(?:/cancel)?)?"}
"""What these have below them: the name of a model, with its owner; a response, and its end."""
SILENCE_SECONDS = 3600
"""Seconds for which an engine may be silent before or within an answer: a queue, a long prompt."""
RETRY_SECONDS = 30
"""Seconds after which a client may ask again a unit that is closed or down."""
_KEY = re.compile(r"[A-Za-z0-9._~+/-]{16,512}=*")
"""A bearer token as RFC 6750 has it, which is safe in an expression and in quotes of nginx."""
KEY_FAULT = (
    "a key of the gateway has 16 to 512 letters, digits or any of . _ ~ + / -; `openssl rand -hex 24` prints such a key"
)


def declared(rack: Rack, node: str) -> ServingGateway | None:
    """Return the gateway if it is on this node."""
    gateway = gateway_of(rack)
    return gateway if gateway and gateway.node == node else None


def address(rack: Rack, gateway: ServingGateway) -> str:
    """Return the address at which the gateway listens. Raises ValueError when the node has none there."""
    if gateway.listen == "local":
        return "127.0.0.1"
    if gateway.listen == "management":
        return str(rack.nodes[gateway.node].address)
    fabric = first_address(rack, gateway.node)
    if fabric is None:
        raise ValueError(f"{rack.source}: serving.gateway.listen: {gateway.node} has no fabric address")
    return str(fabric.interface.ip)


def files(rack: Rack, gateway: ServingGateway) -> tuple[ManagedFile, ...]:
    """Return the files of the gateway without its private ones, in the order in which they are written."""
    units = _units(rack)
    apis = {unit.name: (str(api_address(rack, unit)), unit.api.port) for unit in units}
    reached = "".join(f"{name} {host} {port}\n" for name, (host, port) in apis.items())
    service = resources.file_text(
        "serving",
        "templates/sparkrack-gateway.service",
        header=header(rack.rack),
        nginx=NGINX,
        configuration=CONFIGURATION,
    )
    program = resources.file_text("serving", "files/serve-gateway.sh")
    accepted = f'install -d -m 755 {RUN} {CACHE}; {NGINX} -e stderr -t -q -c "$new"'
    return (
        ManagedFile(PROGRAM, program.encode(), "755", validate_shell()),
        ManagedFile(REACHED, f"{header(rack.rack)}\n{reached}".encode()),
        ManagedFile(CONFIGURATION, _configuration(rack, gateway).encode(), validate=accepted),
        ManagedFile(SERVICE_FILE, service.encode(), validate=validate_unit(SERVICE)),
    )


def _configuration(rack: Rack, gateway: ServingGateway) -> str:
    units = _units(rack)
    names = ", ".join(unit.name for unit in units) or "none"
    unknown = _error(f"no unit has this path; write /UNIT/v1/..., units: {names}", "unit_not_found")
    return resources.file_text(
        "serving",
        "templates/gateway.nginx.conf",
        header=header(rack.rack),
        rack=rack.rack,
        host=f"{(listen := address(rack, gateway))}:{gateway.port}",
        address=listen,
        port=gateway.port,
        keys=KEYS,
        run=RUN,
        cache=CACHE,
        certificate=CERTIFICATE,
        body=f"{mebibytes(gateway.body)}m",
        silence=SILENCE_SECONDS,
        retry=RETRY_SECONDS,
        unauthorized=_error("the gateway has no such key; write Authorization: Bearer KEY", "invalid_api_key"),
        unknown=unknown,
        too_large=_error(f"the request is larger than {gateway.body}", "request_too_large"),
        paths="|".join(f"{path}{_BELOW.get(path, '')}" for path in CLIENT_PATHS),
        units="".join(_location(rack, unit, unknown) for unit in units),
    )


def _location(rack: Rack, unit: ServedUnit, unknown: str) -> str:
    name, head = unit.name, unit.ranks(rack.nodes)[0]
    return resources.file_text(
        "serving",
        "templates/gateway-unit.nginx.conf",
        unit=name,
        unknown=unknown,
        other_path=_error(f"the gateway hands on /v1/{', /v1/'.join(CLIENT_PATHS)} only", "path_not_found"),
        closed=f"{RUN}/{name}.closed",
        api=f"{api_address(rack, unit)}:{unit.api.port}",
        # An empty header is not sent.
        authorization=f"$gateway_key_{name}" if unit.api.key else '""',
        closed_error=_error(f"unit {name} is closed: it takes no new requests", "unit_closed", "server_error"),
        down_error=_error(f"unit {name} is down: its head {head} gives no answer", "unit_down", "server_error"),
        refused_error=_error(
            f"unit {name} refuses the key that the gateway has for it; the operator has to apply the rack",
            "unit_key_refused",
            "server_error",
        ),
    )


def _error(message: str, code: str, kind: str = "invalid_request_error") -> str:
    """An error in the form of OpenAI, as one line that stands in single quotes of nginx."""
    text = json.dumps({"error": {"message": message, "type": kind, "param": None, "code": code}})
    if "'" in text or "$" in text or "\\" in text:
        raise ValueError(f"internal error: {code} cannot be quoted for nginx")
    return text


def _units(rack: Rack) -> list[ServedUnit]:
    return list(served_units(rack).values())


def keys_file(rack: Rack, gateway: ServingGateway, clients: Mapping[str, str], units: Mapping[str, str]) -> PrivateFile:
    """Return the file with all keys.

    Args:
        rack: the rack.
        gateway: its gateway.
        clients: the keys of clients by name.
        units: the keys of the units that have one, by unit.

    Raises:
        ValueError: a key cannot be written, or stands for two clients; the message does not have it.
    """
    place = f"{rack.source}: serving.gateway.keys"
    lines, names = [], dict[str, str]()
    for name in gateway.keys:
        key = clients[name]
        if not _KEY.fullmatch(key):
            raise ValueError(f"{place}.{name}: {KEY_FAULT}")
        if (other := names.setdefault(key, name)) != name:
            raise ValueError(f"{place}.{name}: it is the key of {other}, too; write one of its own")
        # An expression: nginx compares the words of a map without regard to upper and lower case.
        lines.append(f'    "~^(?i:Bearer) +\\Q{key}\\E$" {name};\n')
    text = f'{header(rack.rack)}\nmap $http_authorization $gateway_client {{\n{"".join(lines)}    default "";\n}}\n'
    for unit in _units(rack):
        if unit.api.key is None:
            continue
        if not plain(units[unit.name]):
            raise ValueError(f"{rack.source}: serving.units.{unit.name}.api.key: it has a space or no ASCII character")
        quoted = units[unit.name].replace("\\", "\\\\").replace('"', '\\"')
        # geo is the one directive whose values may have a dollar sign.
        text += f'geo $gateway_key_{unit.name} {{\n    default "Bearer {quoted}";\n}}\n'
    return PrivateFile(KEYS, SecretBytes(text.encode()))


def certificate_file(pem: bytes) -> PrivateFile:
    """Return the file with the private key and the certificates."""
    return PrivateFile(CERTIFICATE, SecretBytes(pem))
