"""A custom engine: placeholders of its command, what is refused and where, its key, its metrics, its sizes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from core.model import load
from core.model.image_lock import Pin
from core.model.model_lock import read
from roles.rdma.options import socket_addresses
from serving import desired
from serving.desired import LockedUnit
from serving.launch import RankLaunch, launches
from serving.options import served_units
from serving.rules import notes
from sparkrack.serving.check_units import check_units
from sparkrack.serving.export.lws import lws_files
from sparkrack.serving.export.source import ExportError, Place, export_source, placed
from tests.unit.model.serving_racks import IMAGE_ID, VLLM, loaded, put, record, refusals, text, unit

COMMAND = [
    *("python", "-m", "tensorfold", "serve", "{model}", "--tp", "{nodes}", "--rank", "{rank}", "--master", "{head}"),
    *("--host", "{host}", "--port", "{port}", "--name", "{name}", "--parallel", "{sequences}", "--context={context}"),
]
CUSTOM: dict[str, Any] = {
    "command": COMMAND,
    "key": {"option": "--api-key-file"},
    "progress": ["tensorfold:steps_total"],
    "requests": ["tensorfold:running", "tensorfold:waiting"],
    "weights": "60G",
}


def custom(changes: dict[str, Any] | None = None, **keys: Any) -> dict[str, Any]:
    """A unit of two nodes with a custom engine that nothing is wrong with."""
    section = {key: value for key, value in {**CUSTOM, **(changes or {})}.items() if value is not None}
    whole = {"engine": "custom", "version": "0.6", "memory": None, "api": {"key": {"env": "KEY"}}, "custom": section}
    return unit(**{**whole, **keys})


def ranks(keys: dict[str, Any]) -> tuple[RankLaunch, ...]:
    rack = loaded(text({"one": keys}))
    return launches(rack, served_units(rack)["one"], socket_addresses(rack), "100G", None)


def locked(folder: Path, keys: dict[str, Any]) -> LockedUnit:
    path = put(folder, text({"one": keys}), {"qwen": record("Qwen3-235B-A22B", 10**9)})
    rack = load(path)
    records = read(path.with_name("rack.lock.json"))
    return desired.locked_unit(rack, served_units(rack)["one"], {VLLM: Pin(None, IMAGE_ID)}, records)


def test_each_placeholder_has_its_value_on_each_rank() -> None:
    head, worker = ranks(custom())
    assert head.argv == (
        *("python", "-m", "tensorfold", "serve", "/models/qwen", "--tp", "2", "--rank", "0", "--master", "10.77.0.11"),
        *("--host", "127.0.0.1", "--port", "8000", "--name", "qwen", "--parallel", "8", "--context=65536"),
        *("--api-key-file", "/run/sparkrack/key"),
    )
    assert worker.argv == (*head.argv[:8], "1", *head.argv[9:-2])
    assert "/etc/sparkrack/serve/one.key:/run/sparkrack/key:ro" in head.docker
    assert not [word for word in worker.docker if "one.key" in word]


def test_the_workers_have_a_command_of_their_own() -> None:
    words = ["worker", "--join", "{head}:{meeting}"]
    head, worker = ranks(custom({"worker_command": words, "command": ["serve", "{host}:{port}"]}))
    assert (head.argv[:2], worker.argv) == (("serve", "127.0.0.1:8000"), ("worker", "--join", "10.77.0.11:29501"))
    assert worker.docker[worker.docker.index("--entrypoint") + 1] == "worker"


def test_braces_that_are_no_placeholder_stay_as_they_are() -> None:
    words = ["run", '{"draft": {"tokens": 3}}', "${HOME}", "{}", "{host}", "{port}", "{rank}"]
    head, _ = ranks(custom({"command": words}))
    assert head.argv[1:4] == ('{"draft": {"tokens": 3}}', "${HOME}", "{}")


KNOWN = "write one of {model}, {name}, {rank}, {nodes}, {head}, {meeting}, {host}, {port}, {context}, {sequences}"
PLACE = "serving.units.one.custom.command.20"


@pytest.mark.parametrize(
    ("changes", "keys", "expected"),
    [
        (
            {"command": [*COMMAND, "{modle}"]},
            {},
            [f"{PLACE} @ - '{{modle}}': {{modle}} is not a placeholder; {KNOWN}"],
        ),
        (
            {"command": [*COMMAND[:-6], "--x"]},
            {},
            ["has no {port}, so the engine would not listen where it is asked for; add the option of its port"],
        ),
        (
            {"command": ["run", "{port}", "{rank}"]},
            {},
            ["has no {host}, so the engine would not listen where it is asked for; add the option of its host"],
        ),
        (
            {"command": ["run", "{port}", "{host}"]},
            {},
            ["is the same on each of 2 nodes; add {rank}, or write worker_"],
        ),
        ({"worker_command": ["work"]}, {"nodes": ["n0"], "parallel": None}, ["the unit has one node; remove it"]),
        ({"key": None}, {}, ["the engine would not get its key: no option and no variable is declared for it; write"]),
        ({}, {"api": {}}, ["there is no key at api.key; write one there, or remove custom.key"]),
        ({"key": {}}, {}, ["does not say how the engine gets its key; write option or variable, one of them"]),
        ({"key": {"option": "key file"}}, {}, ["is not the name of an option; write it with its dashes"]),
        ({"key": {"variable": "A B"}}, {}, ["custom.key.variable"]),
        (
            {"command": [*COMMAND, "--auth-token", "abcdef"]},
            {},
            ["a secret does not belong in this file, nor into the"],
        ),
        ({"command": [*COMMAND, "--auth-token=abcdef"]}, {}, ["a secret does not belong in this file, nor into the"]),
        ({"command": [*COMMAND, "hf_" + "aB3" * 11]}, {}, ["a secret does not belong in this file; remove it"]),
        ({"command": []}, {}, ["custom.command"]),
        ({"command": [*COMMAND, "a\nb"]}, {}, ["is not a text of one line"]),
        (
            {"progress": ["steps total"]},
            {},
            ["is not the name of a metric; write it as /metrics has it, without labels"],
        ),
        (
            {"requests": ["a"]},
            {},
            ["is not two gauges; write that of the requests that run"],
        ),
        ({}, {"version": "$(id)"}, ["is not a version; write letters, digits and . _ + -, like 0.6.2"]),
        ({}, {"args": {"tp": 2}}, ["custom has no table of options that could judge it; write it in the command"]),
        (
            {},
            {"engine": "vllm", "version": "0.19.1"},
            ["has custom, and an engine that is known; write engine: custom"],
        ),
        ({"weights": None}, {}, ["has neither memory nor kv"]),
        ({"weights": "110G"}, {}, ["qwen needs 118.0 GiB a node (weights 110.0, overhead 8.0), and may have 109.5"]),
    ],
)
def test_what_is_wrong_is_refused_with_its_line(
    changes: dict[str, Any], keys: dict[str, Any], expected: list[str]
) -> None:
    found = refusals(text({"one": custom(changes, **keys)}))
    assert len(found) == len(expected), found
    for line, part in zip(found, expected, strict=True):
        assert part in line
        assert " @ " in line, "it has the line of the file"


def test_a_custom_engine_without_its_section_is_refused() -> None:
    (found,) = refusals(text({"one": custom(custom=None)}))
    assert "has a custom engine, and no command for it; write custom: {command: [" in found


@pytest.mark.parametrize(
    ("engine", "part"),
    [
        ("tensorrt-llm", "starts its ranks by mpirun"),
        ("TRT-LLM", "starts its ranks by mpirun"),
        ("ollama", "loads and unloads models by request"),
        ("llama.cpp-rpc", "a worker that is frozen hangs the head"),
    ],
)
def test_an_engine_that_is_not_served_is_refused_by_its_name_with_the_reason(engine: str, part: str) -> None:
    (found,) = refusals(text({"one": unit(engine=engine)}))
    assert found.startswith("serving.units.one.engine @ engine: ")
    assert part in found
    assert "; write " in found


def test_the_unit_file_has_the_declared_metrics_and_the_key_is_in_a_file_alone(tmp_path: Path) -> None:
    one = locked(tmp_path, custom())
    assert desired.configuration(one)["metrics"] == {
        "counters": ["tensorfold:steps_total"],
        "gauges": [],
        "requests": ["tensorfold:running", "tensorfold:waiting"],
    }
    secrets = {
        Path(file.path).name: file.content.get_secret_value()
        for file in desired.private_files(one, "n0", "k1", "x" * 32)
    }
    assert (secrets["one.key"], secrets["one.token"]) == (b"k1\n", b"k1\n")


def test_a_key_by_a_variable_is_in_the_file_of_variables(tmp_path: Path) -> None:
    one = locked(tmp_path, custom({"key": {"variable": "TENSORFOLD_API_KEY"}}))
    secrets = {
        Path(file.path).name: file.content.get_secret_value()
        for file in desired.private_files(one, "n0", "k1", "x" * 32)
    }
    assert secrets["one.key"] == b"TENSORFOLD_API_KEY=k1\n"
    head, _ = ranks(custom({"key": {"variable": "TENSORFOLD_API_KEY"}}))
    assert "--api-key-file" not in head.argv
    assert head.docker[head.docker.index("/etc/sparkrack/serve/one.key") - 1] == "--env-file"


def test_the_gate_looks_for_the_program_and_for_the_declared_memory(tmp_path: Path) -> None:
    one = locked(tmp_path, custom({"worker_command": ["work", "{rank}"]}, overhead="4G"))
    for node, program in (("n0", "program:python"), ("n1", "program:work")):
        gate: Any = json.loads(json.dumps(desired.gate_configuration(one, node)))
        assert gate["container"]["looks"] == [program, "settings:/etc/nccl.conf"]
        assert gate["container"]["shell"] is True
        docker = gate["container"]["docker"]
        assert docker[docker.index("--entrypoint") + 1] == "sh"
        memory = {"bytes": (60 + 4) * 2**30, "floor": 3 * 2**30}
        assert gate["memory"] == memory, "weights and overhead, and the floor of the guard"


@pytest.mark.parametrize(
    "words",
    [
        ["--draft", "/models/other"],
        ["--draft=/models/other"],
        ['{"draft": {"path": "/models/other"}}'],
        ["--draft", "{model}/../other"],
    ],
)
def test_a_model_that_the_command_names_is_mounted_or_refused_and_the_gate_looks_for_it(
    words: list[str], tmp_path: Path
) -> None:
    changes = {"command": [*COMMAND, *words]}
    (found,) = refusals(text({"one": custom(changes)}))
    assert found.startswith(f"serving.units.one.custom.command.{len(COMMAND) + len(words) - 1} @ ")
    assert found.endswith("other is not in the container; write also: [other]")
    lock = {"qwen": record("Qwen3-235B-A22B", 10**9), "other": record("Qwen3-235B-A22B", 10**9)}
    path = put(tmp_path, text({"one": custom(changes, also=["other"])}), lock)
    rack = load(path)
    records = read(path.with_name("rack.lock.json"))
    one = desired.locked_unit(rack, served_units(rack)["one"], {VLLM: Pin(None, IMAGE_ID)}, records)
    gate: Any = desired.gate_configuration(one, "n0")
    assert gate["container"]["looks"] == ["program:python", "file:/models/other", "settings:/etc/nccl.conf"]


def test_other_paths_of_the_command_are_those_of_the_image() -> None:
    words = ["--table", "/opt/table.bin", "--cache={model}", "--kind", "owner/name", "--url", "http://a/models/x"]
    worker = ["work", "{rank}", "/models/none/x"]
    assert refusals(text({"one": custom({"command": [*COMMAND, *words]})})) == []
    (found,) = refusals(text({"one": custom({"worker_command": worker})}))
    assert "custom.worker_command.2" in found
    assert "/models/none/x is not in the container; declare the model in models" in found
    accepted = {"custom": "the image has it"}
    assert refusals(text({"one": custom({"worker_command": worker}, accept=accepted)})) == []
    (idle,) = refusals(text({"one": custom(accept=accepted)}))
    assert "accepts nothing: the container has what custom names; remove it" in idle


def test_an_option_that_a_custom_engine_does_not_get_is_refused() -> None:
    (found,) = refusals(text({"one": custom(parallel={"tensor": 2, "expert": True})}))
    assert "parallel.expert" in found
    assert "custom gets no option for it; remove it" in found


def test_a_sum_of_a_node_is_shown_at_what_the_unit_declares() -> None:
    units = {
        "one": unit(memory=0.6, api={"port": 8001}, model="other"),
        "two": custom({"weights": "60G"}),
    }
    (found,) = refusals(text(units))
    assert found.startswith("serving.units.two.custom.weights @ ")
    assert "take 141.0 GiB together" in found


def test_the_probe_of_an_export_asks_a_custom_engine_for_no_path_that_it_may_not_have() -> None:
    keys = custom(nodes=["n1"], parallel=None)
    rack = loaded(text({"one": keys}))
    (file,) = lws_files(export_source(rack, served_units(rack)["one"], Pin("sha256:" + "a" * 64, IMAGE_ID), ""))
    assert "path: /health" not in file.text
    assert "tcpSocket" in file.text


def test_an_export_names_the_units_with_which_its_pods_would_want_one_gpu() -> None:
    beside = unit(nodes=["n1"], parallel=None, memory=0.2, model="other", api={"port": 8001})
    for units, named in (({}, False), ({"two": beside}, True), ({"two": {**beside, "nodes": ["n0"]}}, False)):
        rack = loaded(text({"one": custom(nodes=["n1"], parallel=None, custom=CUSTOM | {"weights": "20G"}), **units}))
        pin = Pin("sha256:" + "a" * 64, IMAGE_ID)
        (file,) = lws_files(export_source(rack, served_units(rack)["one"], pin, ""))
        assert ("It shares nodes with two, and each asks for the GPU of a node" in file.text) is named


def test_each_address_of_a_word_of_an_export_is_a_place() -> None:
    words = ["--peers", "{head}:1,{head}:2", "--own={head}"]
    rack = loaded(text({"one": custom({"command": [*COMMAND, *words]})}))
    source = export_source(rack, served_units(rack)["one"], Pin(None, IMAGE_ID), "")
    made = placed(source, 1)
    assert (Place.HEAD, ":1,", Place.HEAD, ":2") in made
    assert ("--own=", Place.HEAD) in made
    assert "192.0.2." not in repr(made)


def test_the_sum_of_the_declared_sizes_is_what_check_shows() -> None:
    rack = loaded(text({"one": custom(overhead="4G")}))
    (found,) = check_units(rack, served_units(rack).values(), None).units
    assert (found.fits, found.weights, found.overhead, found.total, found.reason) == ("yes", 60, 4, 64, "")
    rack = loaded(text({"one": custom({"weights": "110G"}, fit={"override": "it ran"})}))
    (found,) = check_units(rack, served_units(rack).values(), None).units
    assert found.weights_from == "declared"
    (note,) = [one for one in notes(rack, {}, {}, {}) if one.path[-1] == "model"]
    assert note.right == "accepted by fit.override: it ran"
    assert (found.fits, found.reason) == ("accepted", "needs 118.0 GiB a node, 109.5 GiB are allowed; accepted: it ran")
    rack = loaded(text({"one": custom({"weights": None}, memory=0.8)}))
    (found,) = check_units(rack, served_units(rack).values(), None).units
    assert (found.fits, found.weights) == ("unknown", None)


def test_metrics_that_need_no_key_are_scraped_and_none_that_are_not_declared() -> None:
    for changes, there in (({}, True), ({"progress": None, "requests": None}, False)):
        rack = loaded(text({"one": custom(changes)}))
        assert served_units(rack)["one"].has_open_metrics is there


def test_a_custom_engine_of_several_nodes_is_not_exported_with_the_rank_of_one_worker_for_all() -> None:
    rack = loaded(text({"one": custom()}))
    source = export_source(rack, served_units(rack)["one"], Pin(None, IMAGE_ID), "")
    with pytest.raises(ExportError, match="Kubernetes gives all workers one command"):
        lws_files(source)


def test_a_tool_call_needs_no_parser_that_a_custom_engine_does_not_have() -> None:
    assert refusals(text({"one": custom(probe={"tool": True})})) == []


def test_check_says_what_is_lost() -> None:
    def said(keys: dict[str, Any]) -> dict[str, str]:
        rack = loaded(text({"one": keys}))
        return {".".join(map(str, note.path[3:])): f"{note.what}; {note.right}" for note in notes(rack, {}, {}, {})}

    whole = said(custom())
    assert "no table judges the options of a custom engine" in whole["engine"]
    assert whole["model"].startswith("whether qwen fits is as true as the sizes that are declared: weights 60.0")
    assert not {"custom.progress", "custom.requests"} & whole.keys()
    bare = said(custom({"progress": None, "requests": None, "weights": None}, memory=0.8))
    assert "whether qwen fits is unknown" in bare["model"]
    assert "may look stuck" in bare["custom.progress"]
    assert "a stop cannot tell whether requests are left" in said(custom({"requests": None}))["custom.requests"]
