"""How a client asks a served unit: its address, the name of its model, and a line of shell that works from here."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from shlex import join, quote

from core.model import Rack, SecretRef
from serving import unit_kinds
from serving.desired import served_name
from serving.gateway import CERTIFICATE
from serving.launch import api_address
from serving.options import ServedUnit, gateway_of

CHAT_TOKENS = 64
"""The longest answer that the line asks for."""


@dataclass(frozen=True)
class UnitRequest:
    """`address`: without the path of a request. `line`: of bash or zsh; no secret is in it."""

    address: str
    model: str
    line: str


def unit_request(rack: Rack, unit: ServedUnit) -> UnitRequest:
    """Return how a unit is asked: by the gateway where this machine reaches it, else by ssh on the head of the unit."""
    model = served_name(unit)
    path, body, _ = unit_kinds.request(unit)
    if unit.kind == "chat":
        path = "/v1/chat/completions"
        body = {"messages": [{"role": "user", "content": "Who are you?"}], "max_tokens": CHAT_TOKENS}
    text = json.dumps({"model": model, **body}, separators=(",", ":"))
    gateway = gateway_of(rack)
    if gateway and gateway.listen == "management":
        address = f"https://{rack.nodes[gateway.node].address}" + ("" if gateway.port == 443 else f":{gateway.port}")
        if gateway.certificate:
            trusted = quote(_shorten_path(gateway.certificate.chain))
        else:
            trusted = f"<({join([*_ssh_words(rack, gateway.node), 'sudo', 'cat', CERTIFICATE])})"
        header = f"<({_bearer_command(next(iter(gateway.keys.values())))})"
        line = f"curl -sS --cacert {trusted} -H @{header} {join(_curl_words(address + path, text))}"
        return UnitRequest(f"{address}/v1", model, line)
    head = unit.ranks(rack.nodes)[0]
    address = f"http://{api_address(rack, unit)}:{unit.api.port}"
    if unit.api.key:
        curl = join(["curl", "-sS", "-H", "@-", *_curl_words(address + path, text)])
        line = f"{_bearer_command(unit.api.key)} | {join([*_ssh_words(rack, head), curl])}"
    else:  # stdin is free for the body, which then is not quoted for two shells
        line = f"{join([*_ssh_words(rack, head), 'curl', '-sS', *_curl_words(address + path, '@-')])} <<< {quote(text)}"
    return UnitRequest(f"{address}/v1 on {head}", model, line)


def _curl_words(url: str, body: str) -> list[str]:
    return [url, "-H", "Content-Type:application/json", "-d", body]


def _bearer_command(key: SecretRef) -> str:
    """Return the command that prints the header with a key; the key is not an argument of a program."""
    command = key.command or ("cat", _shorten_path(Path(str(key.file))))
    value = f"${key.env}" if key.env else f"$({join(command)})"
    return f"printf 'Authorization: Bearer %s' \"{value}\""


def _shorten_path(file: Path) -> str:
    """Return the path from the working folder where the file is below it: the line is run where it was printed."""
    here = Path.cwd()
    return str(file.relative_to(here)) if file.is_relative_to(here) else str(file)


def _ssh_words(rack: Rack, node: str) -> list[str]:
    access = rack.access
    port = () if access.port == 22 else ("-p", str(access.port))
    files = ("-i", _shorten_path(access.key), "-o", f"UserKnownHostsFile={_shorten_path(access.known_hosts)}")
    return ["ssh", *files, *port, f"{access.user}@{rack.nodes[node].address}"]
