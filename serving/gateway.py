"""The gateway of the served units as rack.yaml declares it: nginx's configuration, its service and its keys. Pure.

Only the node of the gateway has it. Its private files are the keys, and the certificate with its private key.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pydantic import SecretBytes

from core.model import Rack
from core.model.fields import mebibytes
from core.model.reachability import first_address
from core.util import resources
from core.util.managed_file import ManagedFile, header, validate_shell, validate_unit
from serving import gateway_router as gateway_router
from serving.desired import UNITS, PrivateFile, plain
from serving.launch import api_address
from serving.options import ServedUnit, ServingGateway, gateway_of, served_units

FOLDER = "/etc/sparkrack/gateway"
RUN = "/run/sparkrack-gateway"
"""Has a file `UNIT.closed` for each closed unit. It is empty after a boot."""
OLD_CACHE = "/var/cache/sparkrack-gateway"
"""Where earlier versions wrote bodies that are larger than 1 MiB."""
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
INSTALLING = f"{FOLDER}/installing"
"""A run has begun to install nginx, and has not disabled the package's own service yet."""
PATHS = (SERVICE_FILE, CONFIGURATION, REACHED, KEYS, CERTIFICATE, PROGRAM)
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
LARGE_BODIES_MIB = 1024
"""Memory for bodies of 1 MB or more, of all requests at a time: nginx holds each until its answer has ended."""
SILENCE_SECONDS = 3600
"""Seconds for which an engine may be silent before or within an answer: a queue, a long prompt."""
RETRY_SECONDS = 30
"""Seconds after which a client may ask again a unit that is closed or down."""
ROUTER_SECONDS = 30
"""Seconds for the router to take a body and to name a unit."""
ROUTER_RETRY_SECONDS = 2
"""Seconds after which a client may ask again when the router gave no answer: systemd starts it again after one."""
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
    units = _list_units(rack)
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
    accepted = f'install -d -m 755 {RUN}; {NGINX} -e stderr -t -q -c "$new"'
    return (
        ManagedFile(PROGRAM, program.encode(), "755", validate_shell()),
        ManagedFile(REACHED, f"{header(rack.rack)}\n{reached}".encode()),
        ManagedFile(CONFIGURATION, _render_configuration(rack, gateway).encode(), validate=accepted),
        ManagedFile(SERVICE_FILE, service.encode(), validate=validate_unit(SERVICE)),
    )


def _render_configuration(rack: Rack, gateway: ServingGateway) -> str:
    units, body = _list_units(rack), mebibytes(gateway.body)
    routed = [path for path in CLIENT_PATHS if path != "models"]
    routes = dict.fromkeys(gateway_router.units_by_model(units).values())
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
        certificate=CERTIFICATE,
        body=f"{body}m",
        large=max(2, LARGE_BODIES_MIB // body),
        large_mib=max(2 * body, LARGE_BODIES_MIB),
        silence=SILENCE_SECONDS,
        retry=RETRY_SECONDS,
        socket=gateway_router.SOCKET,
        router_seconds=ROUTER_SECONDS,
        router_retry=ROUTER_RETRY_SECONDS,
        paths="|".join(f"{path}{_BELOW.get(path, '')}" for path in CLIENT_PATHS),
        routed="|".join(("models(?:/[^?]*)?", *routed)),
        errors="".join(error.text() for error in (*_list_errors(gateway, units), *_unit_errors(rack, units))),
        units="".join(_render_unit_locations(rack, unit) for unit in units),
        routes="".join(text for names in routes for text in _render_route(rack, names)),
    )


def _render_unit_locations(rack: Rack, unit: ServedUnit) -> str:
    engine = _render_engine_location(unit, f"503 $gateway_closed_{unit.name}", f"502 504 =503 @down-{unit.name}")
    api = f"{api_address(rack, unit)}:{unit.api.port}"
    return resources.file_text("serving", "templates/gateway-unit.nginx.conf", unit=unit.name, engine=engine, api=api)


def _render_route(rack: Rack, names: tuple[str, ...]) -> Iterator[str]:
    """Yield the locations that the router names for a model: of units of one slot, each hands on to the next what it
    cannot take, since one of them is up at a time, and `serve use` changes which."""
    steps = [
        gateway_router.route(names),
        *(f"{gateway_router.route(names)}.{number}" for number in range(1, len(names))),
    ]
    for step, name, following in zip(steps, names, [*steps[1:], ""], strict=True):
        unit = served_units(rack)[name]
        closed, failure = f"503 $gateway_closed_{name}", f"502 504 =503 @down-{names[0]}"
        if following:
            closed, failure = "597", f"502 504 597 = @{following}"
        api = f"{api_address(rack, unit)}:{unit.api.port}"
        engine = _render_engine_location(unit, closed, failure)
        yield resources.file_text("serving", "templates/gateway-route.nginx.conf", route=step, engine=engine, api=api)


def _render_engine_location(unit: ServedUnit, on_closed: str, on_failure: str) -> str:
    return resources.file_text(
        "serving",
        "templates/gateway-engine.nginx.conf",
        unit=unit.name,
        closed=f"{RUN}/{unit.name}.closed",
        on_closed=on_closed,
        on_failure=on_failure,
        # An empty header is not sent.
        authorization=f"$gateway_key_{unit.name}" if unit.api.key else '""',
    )


@dataclass(frozen=True)
class _GatewayError:
    """An error of the gateway: the name of its variable, its code, its sentence, and its type for each API."""

    name: str
    code: str
    message: str
    openai: str = "invalid_request_error"
    anthropic: str = "not_found_error"

    def text(self) -> str:
        """Return the map of nginx with its body in both forms."""
        forms: dict[str, object] = {
            "anthropic": {"type": "error", "error": {"type": self.anthropic, "message": self.message}},
            "default": {"error": {"message": self.message, "type": self.openai, "param": None, "code": self.code}},
        }
        lines = "".join(f"        {form} '{self._quote_for_nginx(content)}\\n';\n" for form, content in forms.items())
        return f"    map $gateway_form $gateway_{self.name} {{\n{lines}    }}\n"

    def _quote_for_nginx(self, content: object) -> str:
        text = json.dumps(content)
        if "'" in text or "$" in text or "\\" in text:
            raise ValueError(f"internal error: {self.code} cannot be quoted for nginx")
        return text


def _list_errors(gateway: ServingGateway, units: Sequence[ServedUnit]) -> Iterator[_GatewayError]:
    names = ", ".join(unit.name for unit in units) or "none"
    routed = ", ".join(f"/v1/{path}" for path in CLIENT_PATHS)
    yield _GatewayError(
        "unauthorized",
        "invalid_api_key",
        "the gateway has no such key; write Authorization: Bearer KEY, or x-api-key: KEY",
        anthropic="authentication_error",
    )
    message = f"nothing has this path; write /v1/... or /UNIT/v1/..., units: {names}"
    yield _GatewayError("unit_not_found", "unit_not_found", message)
    yield _GatewayError("path_not_found", "path_not_found", f"the gateway hands on {routed} only")
    message = f"the gateway takes {routed}, written so; what names no model is below /UNIT/v1, units: {names}"
    yield _GatewayError("not_routed", "path_not_found", message)
    message = f"the request is larger than {gateway.body}"
    yield _GatewayError("too_large", "request_too_large", message, anthropic="request_too_large")
    message = "requests of 1 MB or more, or of unknown length, fill the memory that the gateway has for them; try again"
    yield _GatewayError("busy", "gateway_busy", message, "server_error", "overloaded_error")
    message = "the part of the gateway that finds the unit of a model gives no answer; /UNIT/v1 does not need it"
    yield _GatewayError("router_down", "router_down", message, "server_error", "api_error")


def _unit_errors(rack: Rack, units: Sequence[ServedUnit]) -> Iterator[_GatewayError]:
    for unit in units:
        name, head = unit.name, unit.ranks(rack.nodes)[0]
        for error, message, anthropic in (
            ("closed", f"unit {name} is closed: it takes no new requests", "overloaded_error"),
            ("down", f"unit {name} is down: its head {head} gives no answer", "overloaded_error"),
            (
                "refused",
                f"unit {name} refuses the key that the gateway has for it; the operator has to apply the rack",
                "api_error",
            ),
        ):
            code = "unit_key_refused" if error == "refused" else f"unit_{error}"
            yield _GatewayError(f"{error}_{name}", code, message, "server_error", anthropic)


def _list_units(rack: Rack) -> list[ServedUnit]:
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
    bearers, others, names = "", "", dict[str, str]()
    for name in gateway.keys:
        key = clients[name]
        if not _KEY.fullmatch(key):
            raise ValueError(f"{place}.{name}: {KEY_FAULT}")
        if (other := names.setdefault(key, name)) != name:
            raise ValueError(f"{place}.{name}: it is the key of {other}, too; write one of its own")
        # An expression: nginx compares the words of a map without regard to upper and lower case.
        bearers += f'    "~^(?i:Bearer) +\\Q{key}\\E$" {name};\n'
        others += f'    "~^\\Q{key}\\E$" {name};\n'
    text = (
        f"{header(rack.rack)}\n"
        f"map $http_authorization $gateway_client {{\n{bearers}    default $gateway_other_client;\n}}\n"
        # Clients of Anthropic's API send their key so.
        f'map $http_x_api_key $gateway_other_client {{\n{others}    default "";\n}}\n'
    )
    for unit in _list_units(rack):
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
