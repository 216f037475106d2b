"""llama.cpp on one node: its command by build, what is refused, its files, and what the gate looks for."""

from __future__ import annotations

import importlib.util
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
from serving.engines.llama_cpp import START
from serving.engines.option_table import table
from serving.launch import RankLaunch, launches
from serving.options import served_units
from serving.rules import notes
from sparkrack.serving.check_units import check_units
from tests.generated import REPOSITORY
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


def files(*paths: str, model: str = "qwen", **keys: Any) -> dict[str, Any]:
    """The record of a model as rack.yaml declares it, with files of 10 GiB each."""
    listed = {path: {"size": 10 * 2**30, "sha256": "0" * 64} for path in paths}
    return {**record(), "source": f"owner/{model}", "files": listed, **keys}


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
    models = {"qwen": files(*PARTS), "other": files("draft.gguf", model="other")}
    draft = {"also": ["other"], "args": {"spec-draft-model": "/models/other/draft.gguf"}}
    assert refusals(text({"one": llama(kv="60G", **draft)}), models) == []
    (found,) = refusals(text({"one": llama(kv="75G", **draft)}), models)
    assert "qwen needs 123.0 GiB a node (weights 40.0, keys and values 75.0, overhead 8.0)" in found


def locked(folder: Path, keys: dict[str, Any], models: dict[str, Any]) -> desired.LockedUnit:
    path = put(folder, text({"one": keys}), models)
    rack = load(path)
    records = read(path.with_name("rack.lock.json"))
    return desired.locked_unit(rack, served_units(rack)["one"], {VLLM: Pin(None, IMAGE_ID)}, records)


LISTS = {
    "lora": "/models/qwen/a.gguf,/models/qwen/b.gguf",
    "lora-scaled": "/models/qwen/c.gguf:0.5,/models/qwen/a.gguf:1",
    "control-vector-scaled": "/models/qwen/d.gguf:-0.25",
}


def test_each_file_of_a_list_is_looked_for_by_the_gate_and_counted(tmp_path: Path) -> None:
    models = {"qwen": files(*PARTS, *(f"{name}.gguf" for name in "abcd"))}
    gate: Any = json.loads(
        json.dumps(desired.gate_configuration(locked(tmp_path, llama(args=LISTS, overhead="4G"), models), "n1"))
    )
    assert gate["container"]["looks"][2:] == [f"file:/models/qwen/{name}.gguf" for name in "abcd"]
    assert gate["memory"]["bytes"] == (30 + 40 + 20 + 4) * 2**30
    (found,) = refusals(text({"one": llama(kv="35G", args=LISTS)}), models)
    assert "qwen needs 113.0 GiB a node (weights 70.0, keys and values 35.0, overhead 8.0)" in found


@pytest.mark.parametrize(
    ("args", "place", "right"),
    [
        ({"lora": "/models/qwen/a.gguf,/srv/b.gguf"}, "/srv/b.gguf", "list it at files"),
        ({"lora-scaled": "/models/qwen/a.gguf:1,b.gguf:0.5"}, "b.gguf", "list the file at files"),
        ({"lora-scaled": "/models/other/b.gguf:0.5"}, "/models/other/b.gguf", "write also: [other]"),
        *(
            ({option: "x.gguf"}, "x.gguf", "list the file at files")
            for option in ("mmproj", "lora", "control-vector", "spec-draft-model")
        ),
        ({"chat-template-file": "t.jinja"}, "t.jinja", "list the file at files"),
        ({"path": "/srv/www"}, "/srv/www", "list it at files"),
    ],
)
def test_a_file_that_an_option_names_and_no_mount_has_is_refused(args: dict[str, Any], place: str, right: str) -> None:
    (found,) = refusals(text({"one": llama(args=args)}))
    assert f": {place} is " in found
    assert right in found


@pytest.mark.parametrize(
    ("args", "key", "missing"),
    [
        ({"mmproj": "/models/qwen/none.gguf"}, "mmproj", "none.gguf"),
        ({"lora": "/models/qwen/Q4_K_M/a.gguf"}, "lora", "Q4_K_M/a.gguf"),
        ({"chat-template-file": "/models/qwen/../qwen/t.jinja"}, "chat-template-file", "t.jinja"),
    ],
)
@pytest.mark.parametrize("accept", [False, True])
def test_a_file_beside_the_model_that_the_lock_file_lacks_is_refused(
    args: dict[str, Any], key: str, missing: str, accept: bool
) -> None:
    reasons = {"accept": {key: "in the image"}} if accept else {}
    found = refusals(text({"one": llama(args=args, **reasons)}), {"qwen": files(*PARTS)})
    what = (
        f"is not in the container: the lock file has no {missing} of qwen; correct the path, or list the file at "
        "models.qwen.files"
    )
    assert [line for line in found if what in line], found
    assert refusals(text({"one": llama(args=args)})) == [], "before the model is fetched it is not known"


@pytest.mark.parametrize("change", [{"source": "owner/before"}, {"chosen": ["*.json"]}, {"requested": "v1"}])
def test_a_record_of_what_rack_yaml_declared_before_refuses_no_file(change: dict[str, Any]) -> None:
    """`sparkrack apply` fetches the model and records it again, which a refusal would prevent."""
    units = {"one": llama(args={"mmproj": "/models/qwen/mmproj.gguf"})}
    assert len(refusals(text(units), {"qwen": files("config.json")})) == 2
    assert refusals(text(units), {"qwen": files("config.json", **change)}) == []


def test_a_folder_beside_the_model_is_there_when_it_has_a_file_and_is_not_counted() -> None:
    units = {"one": llama(kv="70G", args={"media-path": "/models/qwen/media"})}
    assert refusals(text(units), {"qwen": files(*PARTS, "media/a.png")}) == []
    assert len(refusals(text(units), {"qwen": files(*PARTS, "media.png")})) == 1


@pytest.mark.parametrize("option", ["log-file", "log-prompts-dir", "slot-save-path", "lookup-cache-dynamic"])
def test_a_file_that_the_server_writes_need_not_be_there(option: str, tmp_path: Path) -> None:
    keys = llama(args={option: "/srv/x"})
    assert refusals(text({"one": keys})) == []
    gate: Any = desired.gate_configuration(locked(tmp_path, keys, {"qwen": files(*PARTS)}), "n1")
    assert not [look for look in gate["container"]["looks"] if "/srv" in look]


def test_a_unit_that_pools_has_the_usual_overhead_of_units_that_pool(tmp_path: Path) -> None:
    models = {"qwen": files(*PARTS)}
    beside = {"two": unit(nodes=["n1"], parallel=None, memory=0.6, model="other", api={"port": 8001})}
    assert refusals(text({"one": llama(kind="embedding", kv="1G"), **beside}), models) == []
    (refused,) = refusals(text({"one": llama(kv="1G"), **beside}), models)
    assert "together (one 39.0, two 73.0)" in refused
    for keys, fits, overhead, note in (
        ({}, "unknown", 1.0, "what an engine that pools takes beside weights and cache is not known here"),
        ({"overhead": "2G"}, "yes", 2.0, "as true as the sizes that are declared: weights 30.0, keys and values 1.0"),
    ):
        path = put(tmp_path, text({"one": llama(kind="embedding", kv="1G", **keys)}), models)
        rack = load(path)
        (found,) = check_units(rack, served_units(rack).values(), None).units
        assert (found.fits, found.weights, found.overhead, found.total) == (fits, 30.0, overhead, 31.0 + overhead)
        records = read(path.with_name("rack.lock.json"))
        assert [note in one.what for one in notes(rack, records, {}, {}) if one.path[-1] == "model"] == [True]
        made: Any = desired.gate_configuration(locked(tmp_path, llama(kind="embedding", kv="1G", **keys), models), "n1")
        assert made["memory"]["bytes"] == (31 + overhead) * 2**30


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
    place = REPOSITORY / "scripts/engine_readme.py"
    spec = importlib.util.spec_from_file_location(place.stem, place)
    assert spec
    assert spec.loader
    readme: Any = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(readme)
    found = readme.options(
        "| `-kvo, --kv-offload, -nkvo, --no-kv-offload` | whether (default: enabled)<br/>(env: X) |\n"
        "| `--mmproj-auto, --no-mmproj, --no-mmproj-auto` | whether to use (default: enabled) |\n"
        "| `--no-host` | bypass the host buffer |\n"
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
        "--mmproj-auto": "on",
        "--no-mmproj": "off",
        "--no-mmproj-auto": "off",
        "--no-host": "on",
    }
    assert found["--flash-attn"].choices == ("auto", "off", "on")
    assert (found["-t"].kind, found["--temp"].kind) == ("int", "float")
    assert "-c" not in found
