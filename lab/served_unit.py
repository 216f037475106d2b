"""A unit of two nodes in the rack file of a lab, and a client of it.

`python -m lab.served_unit declare`: add the unit to the rack.yaml of the lab.
`python -m lab.served_unit chat QUESTION`, inside the lab's network: ask it for a chat completion, and print the answer.
The engine is a stand-in in an image of the lab; the model has a configuration and no weights. The client is on the
operator's machine, which the unit accepts.
"""

from __future__ import annotations

import json
import re
import secrets
import sys
from pathlib import Path

import requests

from core.model import load
from lab.paths import LabPaths
from serving.launch import api_address
from serving.options import served_units

UNIT, IMAGE, ENGINE, VERSION = "toy", "vllm/vllm-openai:v0.19.1", "vllm", "0.19.1"
ANSWER_SECONDS = 60
CONFIG = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 256,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "num_hidden_layers": 4,
    "intermediate_size": 512,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
    "torch_dtype": "bfloat16",
}
SECTIONS = """
models: {{{unit}: {{path: {model}}}}}
serving:
  units:
    {unit}:
      engine: {engine}
      version: {version}
      image: {image}
      model: {unit}
      nodes: [{ranks}]
      parallel: {{tensor: 2}}
      context: 1024
      memory: 0.15
      env: {{STANDIN_GRACE_SECONDS: "1"}}
      api: {{listen: management, key: {{file: {key}}}, direct: [10.77.0.1/32]}}
      shm: 1G
      probe: {{answer: {{ask: "2+2=", say: "4"}}}}
"""


def rack_text(text: str, folder: Path, ranks: tuple[str, str]) -> str:
    """Return a rack file of the lab with the unit, its image and its model.

    Args:
        text: the rack file; it has images, and no models and units.
        folder: gets the model and the key of the unit.
        ranks: the nodes of the unit, the head first.
    """
    model = folder / "model"
    model.mkdir(exist_ok=True)
    (model / "config.json").write_text(json.dumps(CONFIG))
    (model / "model.safetensors").write_bytes(bytes(1 << 20))
    key = key_file(folder)
    key.touch(mode=0o600)
    key.write_text(f"sk-{secrets.token_hex(16)}\n")
    text, added = re.subn(r"^images:\n( *)- ", rf"\g<0>{IMAGE}\n\1- ", text, flags=re.MULTILINE)
    if added != 1:
        raise ValueError("the rack file has no list of images")
    names = {"unit": UNIT, "engine": ENGINE, "version": VERSION, "image": IMAGE, "model": model, "key": key}
    return text + SECTIONS.format(**names, ranks=", ".join(ranks))


def key_file(folder: Path) -> Path:
    """Return the file of the API key of the unit."""
    return folder / f"{UNIT}.key"


def chat(rack_file: Path, question: str) -> str:
    """Return the answer of the unit to a message of a user. Raises requests.RequestException."""
    rack = load(rack_file)
    unit = served_units(rack)[UNIT]
    answer = requests.post(
        f"http://{api_address(rack, unit)}:{unit.api.port}/v1/chat/completions",
        json={"model": unit.model, "messages": [{"role": "user", "content": question}], "max_tokens": 8},
        headers={"Authorization": f"Bearer {key_file(rack_file.parent).read_text().strip()}"},
        timeout=ANSWER_SECONDS,
    )
    answer.raise_for_status()
    return str(answer.json()["choices"][0]["message"]["content"])


def main(words: list[str]) -> None:
    """Run one of the two commands on the lab of this folder."""
    rack_file = LabPaths.here().rack
    match words:
        case ["declare"]:
            head, worker = list(load(rack_file).nodes)[:2]
            rack_file.write_text(rack_text(rack_file.read_text(), rack_file.parent, (head, worker)))
            print(f"{rack_file.name}: unit {UNIT} on {head} and {worker}, {ENGINE} {VERSION}, tensor: 2")
        case ["chat", question]:
            print(f"{question} -> {chat(rack_file, question)}")
        case _:
            raise SystemExit("served_unit: declare, or chat QUESTION")


if __name__ == "__main__":
    main(sys.argv[1:])
