"""Strings that mean something to a shell, a path or a terminal, in every place of rack.yaml that takes a string: they
are refused, but where any string is right. A place that this file does not know makes it fail."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from io import StringIO
from typing import Any

import pytest
from ruamel.yaml import YAML

from core.model import ConfigError
from core.model.schema import rack_model
from tests.tiers import crossed
from tests.unit.model.racks import KEPT, RING, loaded

HOSTILE = (
    *("$(touch /tmp/x)", "`id`", "a'; id; '", 'a"; id; "', "a\nb", "a b; id", "../../etc/passwd", "a|b", "a>b", "a*"),
    *("a\\", "a\0b", "\x1b[31ma", "\u202ea", "", "{{ 7 }}", "%s%n", "--option=$(id)"),
)
MORE = """
preflight: {bios: {asus: "0104"}, disk_free: 20G}
driver: {version: "580.159", kernel: 6.17.0-1021-nvidia}
memory: {floor: 3G}
blackbox: {watchdog: 60s, panic: {after: 10s}, journal: {sync: 1s, keep: 2G},
  server: spark1, remote: tls, netconsole: plain, recorder: {keep: 10m}, kdump: {reserve: 512M}}
time: {ntp: [ntp.example.org], time_zone: Europe/Berlin}
watch: {server: spark2, interval: 15s, keep: {size: 8G}, notify: {email: {to: a@example.org, sender: b@example.org,
  smarthost: "mail.example.org:587", user: a}}, allow: [10.9.0.0/16]}
docker: {memory: 100G, log_size: 50M}
images: ["scitrera/dgx-spark-sglang:0.5.12"]
models: {qwen: {source: Qwen/Qwen3, revision: main, files: ["*.json"]}, own: {path: /data/models/own},
  m3: {path: /data/models/m3}, m4: {path: /data/models/m4}, m5: {path: /data/models/m5}}
serving:
  gateway: {node: spark1, certificate: {chain: gateway.pem, key: {file: gateway.key}}, keys: {alice: {file: a.key}},
  body: 8M}
  units:
    one: {engine: vllm, version: 0.19.1, image: "scitrera/dgx-spark-sglang:0.5.12", model: qwen, nodes: [spark1],
      context: 4096, memory: 0.8, env: {NCCL_NET_PLUGIN: none}, state: down, slot: main, restart: {within: 6h},
      cache: 20G, shm: 16G, probe: {every: 60s, limit: 60s, ready: 30m, answer: {ask: 2 + 2 =, say: four}},
      overhead: 8G, drain: 30s, fit: {override: seen to run}, also: [own],
      files: {/workspace/rack.yaml: rack.yaml}, before: [cat, x],
      accept: {parallel.tensor: the image pads}}
    three: {engine: custom, version: "0.6", image: "scitrera/dgx-spark-sglang:0.5.12", model: m3, nodes: [spark1],
      context: 4096, state: down, api: {key: {env: KEY}}, custom: {command: [run, "{host}", "{port}", well],
      key: {option: --key-file}, progress: [a:steps], requests: [a:b, a:c], weights: 60G}}
    five: {engine: custom, version: "0.6", image: "scitrera/dgx-spark-sglang:0.5.12", model: m5, nodes: [spark1,
      spark2], parallel: {tensor: 2}, context: 4096, state: down, api: {key: {env: KEY}}, custom: {command: [run,
      "{host}", "{port}", well], worker_command: [work, well], key: {variable: ENGINE_KEY}, weights: 60G}}
    four: {engine: llama.cpp, version: b11434, image: "scitrera/dgx-spark-sglang:0.5.12", model: m4, nodes: [spark1],
      context: 4096, kv: 20G, state: down, gguf: q4/model.gguf}
    two: {engine: vllm, version: 0.19.1, image: "scitrera/dgx-spark-sglang:0.5.12", model: own, nodes: [spark2],
      context: 4096, kv: 20G, state: down, api: {listen: management, direct: [10.9.0.0/16]}}
"""
PARTS = 3
"""Each place is tried with a third of them in the first tier."""
FREE = {
    *("access.key", "access.known_hosts", "switches.*.password.file", "switches.*.reader.password.file"),
    *("switches.*.snmp.authentication.file", "switches.*.snmp.encryption.file"),
    *("models.*.path", "models.*.token.file", "serving.units.*.api.key.file"),
    *("serving.gateway.certificate.chain", "serving.gateway.certificate.key.file", "serving.gateway.keys.*.file"),
    *("watch.notify.webhook.file", "watch.notify.email.password.file", "watch.notify.heartbeat.file"),
    *("serving.units.*.env.*", "serving.units.*.fit.override", "serving.units.*.accept.*", "models.*.files.*"),
    "serving.units.*.before.*",
    *("serving.units.*.probe.answer.ask", "serving.units.*.probe.answer.say"),
    *("serving.units.*.custom.command.*", "serving.units.*.custom.worker_command.*"),
}
"""Paths of the operator's own machine: opened, or handed to ssh as one word; never part of a shell text. And what the
program passes on or prints as one line, or compares with names of files."""
WORDS = (
    "password.command.*",
    "authentication.command.*",
    "encryption.command.*",
    "token.command.*",
    "key.command.*",
    "keys.*.command.*",
    "webhook.command.*",
    "heartbeat.command.*",
)
"""A program of the operator and its words, run without a shell: whatever he wants it to be."""
DERIVED = {
    "source",
    "nodes.*.name",
    "switches.*.name",
    "switches.*.cages.*.name",
    "models.*.name",
    "serving.units.*.name",
}
"""Filled in by the loader."""

Path = tuple[str | int, ...]
Document = dict[str, Any]


def document(secret: dict[str, Any]) -> Document:
    """A rack with every key; its secrets are declared in one way of three."""
    whole: Document = YAML(typ="safe").load(KEPT + MORE)
    switch = whole["switches"]["crs812"]
    # Not the same object: YAML would write it once, with an anchor.
    switch["password"], switch["reader"]["password"] = copy.deepcopy(secret), copy.deepcopy(secret)
    switch["snmp"] |= {"authentication": copy.deepcopy(secret), "encryption": copy.deepcopy(secret)}
    whole["models"]["qwen"]["token"] = copy.deepcopy(secret)
    whole["watch"]["notify"]["webhook"] = copy.deepcopy(secret)
    whole["watch"]["notify"]["heartbeat"] = copy.deepcopy(secret)
    whole["watch"]["notify"]["email"]["password"] = copy.deepcopy(secret)
    whole["serving"]["units"]["one"]["api"] = {"key": copy.deepcopy(secret)}
    whole["serving"]["gateway"]["certificate"]["key"] = copy.deepcopy(secret)
    whole["serving"]["gateway"]["keys"]["alice"] = copy.deepcopy(secret)
    return whole


RACKS = [
    # Where there is a switch, there is no pool.
    YAML(typ="safe").load(RING),
    *[document(secret) for secret in ({"env": "PASSWORD"}, {"file": "password"}, {"command": ["pass", "show"]})],
]


def strings(node: object, path: Path = ()) -> Iterator[Path]:
    """Every place of a document where a string stands."""
    if isinstance(node, dict):
        for key, value in node.items():
            yield from strings(value, (*path, key))
    elif isinstance(node, list):
        for number, value in enumerate(node):
            yield from strings(value, (*path, number))
    elif isinstance(node, str):
        yield path


def place(path: Path) -> str:
    """A place as the schema names it: what the user calls things is a star."""
    at = [str(part) for part in path]
    for number, part in enumerate(at):
        if path[number] != part or (
            number
            and at[number - 1]
            in (*("nodes", "switches", "ports", "cages", "bios", "models", "units", "env", "keys", "accept"), "files")
        ):
            at[number] = "*"
    return ".".join(at)


def schema(node: dict[str, Any], path: str, known: dict[str, Any]) -> Iterator[str]:
    """Every place of the model that takes a string which is not one of a few words."""
    if "$ref" in node:
        yield from schema(known[node["$ref"].rpartition("/")[2]], path, known)
    if node.get("type") == "string" and not {"enum", "const"} & node.keys():
        yield path.removeprefix(".")
    for name, child in node.get("properties", {}).items():
        yield from schema(child, f"{path}.{name}", known)
    for key in ("items", "additionalProperties"):
        if isinstance(node.get(key), dict):
            yield from schema(node[key], f"{path}.*", known)
    for key in ("anyOf", "oneOf", "allOf", "prefixItems"):
        for child in node.get(key, []):
            yield from schema(child, path, known)


def with_string(rack: Document, path: Path, text: str) -> str:
    """The document as YAML, another string in one place."""
    changed: Any = copy.deepcopy(rack)
    at = changed
    for part in path[:-1]:
        at = at[part]
    at[path[-1]] = text
    out = StringIO()
    YAML(typ="safe", pure=True).dump(changed, out)
    return out.getvalue()


PLACES = {place(path): (rack, path) for rack in RACKS for path in strings(rack)}


@pytest.mark.filterwarnings("ignore::pydantic.json_schema.PydanticJsonSchemaWarning")
def test_every_place_is_known() -> None:
    model = rack_model().model_json_schema()
    assert set(schema(model, "", model["$defs"])) - DERIVED <= PLACES.keys()


@pytest.mark.parametrize(("where", "part"), crossed(sorted(PLACES), range(PARTS)))
def test_it_is_refused(where: str, part: int) -> None:
    rack, path = PLACES[where]
    loaded(with_string(rack, path, _value_at(rack, path)))
    if where in FREE or where.endswith(WORDS):
        assert not refused(with_string(rack, path, "$(touch /tmp/x)"))
    else:
        assert [text for text in HOSTILE[part::PARTS] if not refused(with_string(rack, path, text))] == []


def refused(text: str) -> bool:
    """Whether it is, in words that no terminal obeys."""
    try:
        loaded(text)
    except ConfigError as error:
        return str(error).replace("\n", "").isprintable()
    return False


@pytest.mark.parametrize("where", ["nodes", "switches", "models", "serving.units"])
@pytest.mark.parametrize("text", HOSTILE)
def test_nothing_is_called_so(where: str, text: str) -> None:
    rack = copy.deepcopy(RACKS[1])
    named = rack
    for key in where.split("."):
        named = named[key]
    named[text] = named.pop(next(iter(named)))
    out = StringIO()
    YAML(typ="safe", pure=True).dump(rack, out)
    with pytest.raises(ConfigError):
        loaded(out.getvalue())


def _value_at(rack: Document, path: Path) -> str:
    at: Any = rack
    for part in path:
        at = at[part]
    return str(at)
