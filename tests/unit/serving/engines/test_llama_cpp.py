"""llama.cpp on one node: its command by build, what is refused, its files, and what the gate looks for."""

from __future__ import annotations

import json
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from core.model import load
from core.model.image_lock import Pin
from core.model.model_lock import read
from roles.rdma.options import socket_addresses
from serving import desired
from serving.engines.command_line import judge
from serving.engines.llama_cpp import START, readme
from serving.engines.option_table import table
from serving.launch import RankLaunch, launches
from serving.options import served_units
from serving.rules import notes
from tests.unit.model.serving_racks import IMAGE_ID, VLLM, loaded, put, record, refusals, text, unit

GGUF = "Q4_K_M/qwen-00001-of-00003.gguf"
BUILDS = ("b10001", "b10502", "b11010", "b11236", "b11434")


def llama(**keys: Any) -> dict[str, Any]:
    """A unit of one node that nothing is wrong with."""
    whole = {"engine": "llama.cpp", "version": "b11434", "nodes": ["n1"], "parallel": None, "memory": None, "kv": "20G"}
    return unit(**{**whole, "context": 32768, "sequences": 4, "gguf": GGUF, **keys})


def launch(**keys: Any) -> RankLaunch:
    rack = loaded(text({"one": llama(**keys)}))
    (found,) = launches(rack, served_units(rack)["one"], socket_addresses(rack), "100G", None)
    return found


def files(*paths: str) -> dict[str, Any]:
    return {**record(), "files": {path: {"size": 10 * 2**30, "sha256": "0" * 64} for path in paths}}


PARTS = [f"Q4_K_M/qwen-0000{number}-of-00003.gguf" for number in (1, 2, 3)]


def pairs(words: Sequence[str]) -> dict[str, str]:
    return dict(pairwise(words))


def test_each_size_is_written_so_that_none_is_set_by_free_memory() -> None:
    found = launch(api={"key": {"env": "KEY"}})
    assert found.argv[:4] == ("sh", "-c", START, "llama-server")
    given = pairs(found.argv)
    assert given["--model"] == f"/models/qwen/{GGUF}"
    assert given["--alias"] == "qwen"
    assert (given["--ctx-size"], given["--parallel"]) == (str(32768 * 4), "4")
    assert (given["--fit"], given["--cache-ram"], given["--n-gpu-layers"]) == ("off", "0", "999")
    assert given["--flash-attn"] == "on"
    assert "--metrics" in found.argv
    assert found.argv[-6:] == (*("--host", "127.0.0.1", "--port", "8000", "--api-key-file", "/run/sparkrack/key"),)
    assert "/etc/sparkrack/serve/one.key:/run/sparkrack/key:ro" in found.docker


@pytest.mark.parametrize("build", BUILDS)
def test_the_line_is_taken_by_the_build_that_it_is_made_for(build: str) -> None:
    found = launch(version=build, args={"cache-type-k": "q8_0", "threads": 8, "n-gpu-layers": "40", "no-perf": True})
    verdict = judge("llama.cpp", build, found.argv[4:])
    assert verdict.problems == ()
    assert ("--no-mmap" in found.argv) == (build == "b10001"), "from b11010 on the server ends at it"
    assert ("--load-mode" in found.argv) == (build != "b10001")
    assert [word for word in found.argv if word == "--n-gpu-layers"] == ["--n-gpu-layers"]


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"nodes": ["n0", "n1"], "parallel": {"tensor": 2}}, "joins nodes by RPC, which has no key and no time limit"),
        ({"gguf": None}, "llama.cpp reads one file of the model, and none is named; write gguf, like"),
        ({"gguf": "../x.gguf"}, "is not the path of a GGUF file in the model"),
        ({"gguf": "/x.gguf"}, "is not the path of a GGUF file in the model"),
        ({"gguf": "x.safetensors"}, "is not the path of a GGUF file in the model"),
        ({"gguf": "q-00002-of-00003.gguf"}, "is not the first part of the model; write the one with -00001-of-"),
        ({"memory": 0.8, "kv": None}, "llama.cpp takes no share of a node"),
        ({"env": {"LLAMA_ARG_CTX_SIZE": "9"}}, "sets an option of llama-server past what is checked; write the option"),
        ({"args": {"ctx-size": 9}}, "follows from the keys context and sequences of the unit; remove it from args"),
        ({"args": {"rpc": "a:1"}}, "hands layers to workers without a key"),
        ({"args": {"no-mmap": True}}, "a mapped file is in memory twice"),
        ({"args": {"sleep-idle-seconds": 9}}, "CVE-2026-43631"),
        ({"args": {"hf-repo": "a/b"}}, "names a model that is not the one of the unit"),
        ({"args": {"flash-atn": "on"}}, "did you mean --flash-attn?"),
        ({"args": {"cache-type-k": "fp8"}}, "takes one of bf16, f16"),
        ({"args": {"threads": "many"}}, "takes a whole number"),
        ({"version": "b9999"}, "its options are unknown; the table has releases from b10001 to b11434"),
        ({"version": "0.1.2"}, "is not a version; write it as b10001"),
        ({"engine": "vllm", "version": "0.19.1"}, "has gguf, which llama.cpp alone reads"),
    ],
)
def test_what_no_start_can_serve_is_refused_with_its_line(keys: dict[str, Any], expected: str) -> None:
    (found,) = refusals(text({"one": llama(**keys)}))
    assert expected in found
    assert " @ " in found


def test_the_fit_counts_all_parts_of_the_file_and_nothing_else() -> None:
    small = {"qwen": files(*PARTS, "Q8_0/qwen-00001-of-00002.gguf", "config.json")}
    rack = loaded(text({"one": llama()}), small)
    (note,) = [one for one in notes(rack, {}, {}, {}) if one.path[-1] == "model"]
    assert "unknown" in note.what, "the lock file of these notes is empty"
    assert refusals(text({"one": llama()}), small) == []
    (found,) = refusals(
        text({"one": llama(kv="75G", args={"mmproj": "/models/qwen/mmproj.gguf"})}),
        {"qwen": files(*PARTS, "mmproj.gguf")},
    )
    assert "qwen needs 123.0 GiB a node (weights 40.0, keys and values 75.0, overhead 8.0)" in found


def test_the_fit_counts_the_files_of_a_further_model_that_args_name() -> None:
    models = {"qwen": files(*PARTS), "other": files("draft.gguf")}
    draft = {"also": ["other"], "args": {"spec-draft-model": "/models/other/draft.gguf"}}
    assert refusals(text({"one": llama(kv="60G", **draft)}), models) == []
    (found,) = refusals(text({"one": llama(kv="75G", **draft)}), models)
    assert "qwen needs 123.0 GiB a node (weights 40.0, keys and values 75.0, overhead 8.0)" in found


def test_two_units_of_one_model_need_another_name_of_it_at_the_gateway() -> None:
    gateway = {"node": "n1", "keys": {"alice": {"env": "ALICE"}}}
    units = {
        "one": llama(kv="2G", api={"listen": "management"}),
        "two": llama(kv="2G", api={"port": 8001, "listen": "management"}),
    }
    (found,) = refusals(text({}, serving={"units": units, "gateway": gateway}))
    assert "write another name in models for its model, and that name at model, or one slot" in found


def test_a_file_that_the_lock_file_lacks_is_refused() -> None:
    (found,) = refusals(text({"one": llama()}), {"qwen": files(*PARTS[:2])})
    assert "serving.units.one.gguf @ gguf: " in found
    assert "the lock file has no Q4_K_M/qwen-00003-of-00003.gguf of qwen" in found
    assert "write one that it has, like Q4_K_M/qwen-00001-of-00003.gguf" in found


def test_the_gate_wants_a_cuda_device_and_the_sum_of_the_sizes(tmp_path: Path) -> None:
    path = put(tmp_path, text({"one": llama(overhead="4G")}), {"qwen": files(*PARTS)})
    rack = load(path)
    one = served_units(rack)["one"]
    locked = desired.locked_unit(rack, one, {VLLM: Pin(None, IMAGE_ID)}, read(path.with_name("rack.lock.json")))
    gate: Any = json.loads(json.dumps(desired.gate_configuration(locked, "n1")))
    assert gate["container"]["looks"] == ["program:llama-server", "devices:llama-server"]
    assert gate["memory"] == {"bytes": (30 + 20 + 4) * 2**30, "floor": 3 * 2**30}
    made: Any = desired.configuration(locked)
    assert made["probe"]["named"] is True
    assert made["metrics"]["counters"] == ["llamacpp:n_decode_total"]


def test_its_metrics_are_scraped_only_without_a_key() -> None:
    for api, there in (({}, True), ({"key": {"env": "KEY"}}, False)):
        rack = loaded(text({"one": llama(api=api)}))
        assert served_units(rack)["one"].has_open_metrics is there


def test_the_tables_are_those_of_builds_that_take_other_names() -> None:
    known = table("llama.cpp")
    assert tuple(known.releases) == BUILDS
    assert [build for build in BUILDS if "--no-mmap" in known.of(build)] == ["b10001", "b10502"]
    assert known.judging("b11300") == "b11236"


def test_a_row_of_the_readme_gives_each_of_its_names() -> None:
    found = readme.options(
        "| `-kvo, --kv-offload, -nkvo, --no-kv-offload` | whether (default: enabled)<br/>(env: X) |\n"
        "| `-fa, --flash-attn [on\\|off\\|auto]` | set use ('on', 'off') |\n"
        "| `-t, --threads N` | number (default: -1)<br/> |\n"
        "| `--temp N` | temperature (default: 0.80) |\n"
        "| `-c` and no table |\n"
    )
    assert {name: option.kind for name, option in found.items() if option.count == 0} == {
        "-kvo": "on",
        "--kv-offload": "on",
        "-nkvo": "off",
        "--no-kv-offload": "off",
    }
    assert found["--flash-attn"].choices == ("auto", "off", "on")
    assert (found["-t"].kind, found["--temp"].kind) == ("int", "float")
    assert "-c" not in found
