"""`sparkrack serve check` and `serve render` of the units in rack.yaml, with what the lock file beside it has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from sparkrack.cli.main import sparkrack
from tests.unit.model.serving_racks import COMMIT, MEASURED_WITH, Records, machines, put, record, text, unit

OLD = {"tensor": 2, "pipeline": 1, "share": 0.87, "weights": 57.64, "kv": 30.0, "kv_tokens": 700000}
GOOD = {**OLD, "measured_with": MEASURED_WITH}
QWEN = record("Qwen3-235B-A22B", 124 * 10**9)
FP8 = {"kv-cache-dtype": "fp8"}


def serve(tmp_path: Path, words: list[str], file: str, models: Records = None, units: Records = None) -> Result:
    path = put(tmp_path, file, models, units)
    return CliRunner().invoke(sparkrack, ["serve", *words, "--rack", str(path)])


def units_of(found: Result) -> dict[str, dict[str, Any]]:
    report = json.loads(found.stdout)
    assert report["schema"] == "sparkrack.serve-units/1"
    return {one["unit"]: one for one in report["units"]}


def test_a_unit_is_computed_from_its_keys_and_the_lock_file(tmp_path: Path) -> None:
    found = serve(tmp_path, ["check"], text({"qwen": unit(args=FP8)}), {"qwen": QWEN})
    assert found.exit_code == 0, found.output
    assert [line.rstrip() for line in found.stdout.splitlines()] == [
        "unit  nodes  split  weights   kv  state  overhead  host  GiB a node  allowed  fits  tokens left",
        "qwen      2  TP=2      57.7  2.9    0.0       8.0   0.0        68.7     97.4  yes        639687",
        "qwen: weights from the lock file; overhead 8.0 GiB, a default that nothing measured",
        "A GB10 node has 121.69 GiB; the memory of a unit is the share of it that its engine may take",
    ]


def test_a_crash_kernel_is_part_of_the_sum(tmp_path: Path) -> None:
    file = text({"qwen": unit(args=FP8)}, blackbox={"kdump": {"reserve": "2G"}})
    found = serve(tmp_path, ["check"], file, {"qwen": QWEN})
    assert found.exit_code == 0, found.output
    assert found.stdout.splitlines()[-1] == (
        "A GB10 node has 121.69 GiB, of which blackbox.kdump reserves 2.00; the memory of a unit is the share of what "
        "is left that its engine may take"
    )
    report = json.loads(serve(tmp_path, ["check", "--json"], file, {"qwen": QWEN}).stdout)
    assert (report["reserved"], report["units"][0]["allowed"]) == (2.0, 95.752)


@pytest.mark.parametrize(
    ("keys", "lock", "overhead", "source", "weights"),
    [
        ({}, {}, 8.0, "default", 57.742),
        ({"overhead": "12G"}, {}, 12.0, "declared", 57.742),
        ({"overhead": "12G"}, {"qwen": {"calibration": GOOD}}, 18.128, "measured", 57.742),
        ({"overhead": "12G"}, {"qwen": {"calibration": {**GOOD, "reserved": 0.5}}}, 17.693, "measured", 57.742),
        ({"overhead": "12G"}, {"qwen": {"calibration": {**GOOD, "reserved": -0.5}}}, 12.0, "declared", 57.742),
        ({"overhead": "12G"}, {"qwen": {"calibration": {**GOOD, "reserved": 400}}}, 12.0, "declared", 57.742),
        ({"overhead": "12G"}, {"qwen": {"calibration": {**GOOD, "tensor": 4}}}, 12.0, "declared", 57.742),
        ({"overhead": "12G"}, {"other": {"calibration": GOOD}}, 12.0, "declared", 57.742),
        ({"overhead": "12G"}, {"qwen": {"calibration": {**GOOD, "kv_tokens": 0}}}, 12.0, "declared", 57.742),
    ],
)
def test_the_overhead_is_measured_or_declared_or_a_default(
    keys: dict[str, Any], lock: dict[str, Any], overhead: float, source: str, weights: float, tmp_path: Path
) -> None:
    file = text({"qwen": unit(args=FP8, **keys)})
    one = units_of(serve(tmp_path, ["check", "--json"], file, {"qwen": QWEN}, lock))["qwen"]
    assert (one["overhead"], one["overhead_from"], one["weights"]) == (overhead, source, weights)


CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "another model": ({}, {"source": "o/other"}, "it was measured with the model o/other, now owner/qwen"),
    "another revision": (
        {},
        {"revision": "f" * 40},
        f"it was measured with the revision of the model {'f' * 40}, now {COMMIT}",
    ),
    "another image": (
        {},
        {"image": "sha256:" + "cd" * 32},
        f"it was measured with the image {'cd' * 32}, now {'ab' * 32}",
    ),
    "another quantization": (
        {"args": {**FP8, "quantization": "gptq_marlin"}},
        {},
        "it was measured with quantization not given, now gptq_marlin",
    ),
    "another format of the cache": (
        {"args": {}},
        {},
        "it was measured with kv-cache-dtype fp8, now not given",
    ),
    "another context": ({"context": 131072}, {}, "it was measured with context 65536, now 131072"),
    "more sequences": ({"sequences": 16}, {}, "it was measured with sequences 8, now 16"),
    "a draft model since then": (
        {
            "args": {**FP8, "speculative-config": {"method": "eagle3", "model": "/opt/draft"}},
            "accept": {"speculative-config": "the image has a draft"},
        },
        {},
        (
            'it was measured with speculative options not given, now {"speculative-config": {"method": "eagle3", '
            '"model": "/opt/draft"}}'
        ),
    ),
    "a larger batch": (
        {"args": {**FP8, "max-num-batched-tokens": 32768}},
        {},
        "it was measured with tokens at once not given, now 32768",
    ),
    "experts that are spread": (
        {"parallel": {"tensor": 2, "expert": True}},
        {},
        "it was measured with parallel.expert False, now True",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_calibration_counts_for_what_it_was_measured_with_only(change: str, tmp_path: Path) -> None:
    keys, conditions, reason = CHANGES[change]
    lock = {"qwen": {"calibration": {**OLD, "measured_with": {**MEASURED_WITH, **conditions}}}}
    file = text({"qwen": unit(**{"args": FP8, **keys})})
    found = serve(tmp_path, ["check"], file, {"qwen": QWEN}, lock)
    assert f"qwen: the calibration in the lock file does not count: {reason}" in found.stdout.splitlines()
    one = units_of(serve(tmp_path, ["check", "--json"], file, {"qwen": QWEN}, lock))["qwen"]
    assert (one["overhead_from"], one["not_calibrated"]) == ("default", reason)


@pytest.mark.parametrize(("tokens", "kv"), [(700_000, 1.469), (200_000, 4.915), (2_000_000, 0.983)])
def test_a_calibration_covers_a_smaller_demand(tokens: int, kv: float, tmp_path: Path) -> None:
    """Half of the measured length needs at least half of its cache, and what is computed: 1.469 GiB; never more than
    the measured length did."""
    file = text({"qwen": unit(args=FP8, context=32768, sequences=4)})
    lock = {"qwen": {"calibration": {**GOOD, "kv_tokens": tokens}}}
    one = units_of(serve(tmp_path, ["check", "--json"], file, {"qwen": QWEN}, lock))["qwen"]
    assert (one["overhead_from"], one["not_calibrated"], one["kv"]) == ("measured", "", kv)


@pytest.mark.parametrize("entry", [OLD, {**OLD, "measured_with": {"source": "o/m"}}, {**OLD, "measured_with": 5}])
def test_a_calibration_of_an_older_release_does_not_count_and_says_so(entry: dict[str, Any], tmp_path: Path) -> None:
    file = text({"qwen": unit(args=FP8)})
    one = units_of(serve(tmp_path, ["check", "--json"], file, {"qwen": QWEN}, {"qwen": {"calibration": entry}}))["qwen"]
    assert one["overhead_from"] == "default"
    assert one["not_calibrated"] == "it does not say with which model, image and options it was measured"


def test_weights_are_never_less_than_the_files_have(tmp_path: Path) -> None:
    small = {**GOOD, "weights": 20.0}
    file = text({"qwen": unit(args=FP8)})
    one = units_of(serve(tmp_path, ["check", "--json"], file, {"qwen": QWEN}, {"qwen": {"calibration": small}}))["qwen"]
    assert one["weights"] == 57.742
    given = 0.87 * 121.69 - 30.0
    assert one["weights"] + one["overhead"] == pytest.approx(given, abs=0.01), "the sum is what the engine was given"


def test_host_memory_is_a_part_of_the_sum(tmp_path: Path) -> None:
    file = text({"qwen": unit(memory=0.7, args={**FP8, "cpu-offload-gb": 10})})
    found = serve(tmp_path, ["check"], file, {"qwen": QWEN})
    row = "qwen      2  TP=2      57.7  2.9    0.0       8.0  10.0        78.7     85.2  yes"
    assert found.stdout.splitlines()[1].startswith(row)


def test_what_makes_a_sum_unknown_is_shown_and_is_not_a_success(tmp_path: Path) -> None:
    models = {"qwen": record("GLM-5.3-Flash", 182 * 10**9)}
    file = text({"qwen": unit(args=FP8)})
    found = serve(tmp_path, ["check"], file, models)
    assert found.exit_code == 1
    assert [line.rstrip() for line in found.stdout.splitlines()[1:4]] == [
        "qwen      2  TP=2      84.8   -      -       8.0   0.0        92.8     97.4  unknown            -",
        "qwen: weights from the lock file; overhead 8.0 GiB, a default that nothing measured",
        "qwen: unknown: the architecture glm5_next is not one whose memory is known here",
    ]
    accepted = text({"qwen": unit(args=FP8, fit={"override": "runs since May"})})
    found = serve(tmp_path, ["check"], accepted, models)
    assert found.exit_code == 0
    assert "known here; accepted: runs since May" in found.stdout
    large = serve(tmp_path, ["check", "--node-count", "1"], file, models)
    assert "qwen: no: needs more than 177.5 GiB a node, 97.4 GiB are allowed" in large.stdout.splitlines()


def test_what_the_lock_file_does_not_have_is_unknown_and_no_success(tmp_path: Path) -> None:
    found = serve(tmp_path, ["check"], text({"qwen": unit()}), {})
    assert found.exit_code == 1
    assert "qwen: unknown: the lock file has no record of qwen" in found.stdout.splitlines()
    one = units_of(serve(tmp_path, ["check", "--json"], text({"qwen": unit()})))["qwen"]
    assert (one["fits"], one["total"], one["overhead_from"]) == ("unknown", None, None)


def test_what_is_accepted_by_hand_is_reported_with_its_reason(tmp_path: Path) -> None:
    keys = unit(memory=0.5, args=FP8, fit={"override": "seen to run"})
    found = serve(tmp_path, ["check"], text({"qwen": keys}), {"qwen": QWEN})
    assert found.exit_code == 0
    line = "qwen: accepted: needs 68.7 GiB a node, 60.8 GiB are allowed; accepted: seen to run"
    assert line in found.stdout.splitlines()


def test_another_number_of_nodes_has_its_usual_split(tmp_path: Path) -> None:
    file = text({"qwen": unit(args=FP8)}, machines(4))
    found = serve(tmp_path, ["check", "qwen", "--node-count", "3", "--json"], file, {"qwen": QWEN})
    assert found.exit_code == 0
    one = units_of(found)["qwen"]
    assert (one["nodes"], one["tensor_parallel"], one["pipeline_parallel"]) == (3, 1, 3)
    one = units_of(serve(tmp_path, ["check", "qwen", "--node-count", "1", "--json"], file, {"qwen": QWEN}))["qwen"]
    assert (one["fits"], one["reason"]) == (
        "no",
        "needs 129.4 GiB a node, 97.4 GiB are allowed; fits on 2, 3, 4, 5, 6, 7, 8",
    )


@pytest.mark.parametrize(
    ("config", "weights", "nodes", "fits"),
    [
        ("Qwen3-235B-A22B", 124, 1, "no"),
        ("Qwen3-235B-A22B", 124, 2, "yes"),
        ("Meta-Llama-3.1-405B", 217, 2, "no"),
        ("Meta-Llama-3.1-405B", 217, 4, "yes"),
        ("DeepSeek-V4-Flash", 158, 1, "no"),
        ("DeepSeek-V4-Flash", 158, 2, "yes"),
        ("NVIDIA-Nemotron-3-Ultra-550B-A55B-NVFP4", 326, 2, "no"),
        ("NVIDIA-Nemotron-3-Ultra-550B-A55B-NVFP4", 326, 4, "yes"),
        ("MiniMax-M2.5", 230, 8, "no"),
        ("gemma-4-31B", 62, 1, "unknown"),
        ("Kimi-K2.5", 594, 4, "no"),
        ("Kimi-K2.5", 594, 8, "yes"),
    ],
)
def test_models_fit_on_the_nodes_that_they_are_known_to_run_on(
    config: str, weights: int, nodes: int, fits: str, tmp_path: Path
) -> None:
    models = {"qwen": record(config, weights * 10**9)}
    # The unit itself is accepted, so that the file loads; the verdict is that of the number of nodes.
    file = text({"qwen": unit(nodes=["n0"], parallel=None, memory=0.85, args=FP8, fit={"override": "tested"})})
    found = serve(tmp_path, ["check", "qwen", "--node-count", str(nodes), "--json"], file, models)
    assert units_of(found)["qwen"]["fits"] == fits, found.stdout
    assert found.exit_code == (0 if fits == "yes" else 1)


def test_a_declared_model_is_judged_by_the_options(tmp_path: Path) -> None:
    file = text({"qwen": unit()})
    found = serve(tmp_path, ["check", "--model", "qwen", "--node-count", "2"], file, {"qwen": QWEN})
    assert found.exit_code == 0
    assert found.stdout.splitlines()[0] == (
        "235.1 billion parameters, 124.0 GB of weights (from the lock file); 131072 tokens in fp8, 4 sequences"
    )
    report = json.loads(serve(tmp_path, ["check", "--model", "qwen", "--json"], file, {"qwen": QWEN}).stdout)
    assert (report["config"], report["weights_from"], report["weight_bytes"]) == ("qwen", "lock file", 124 * 10**9)
    report = json.loads(
        serve(tmp_path, ["check", "--model", "qwen", "--weights", "1GB", "--json"], file, {"qwen": QWEN}).stdout
    )
    assert (report["weights_from"], report["weight_bytes"]) == ("option", 10**9)


@pytest.mark.parametrize(
    ("words", "code", "expected"),
    [
        (["check", "qwem"], 1, "rack.yaml has no unit qwem; its units are qwen; did you mean qwen?"),
        (["check", "--model", "qwem"], 1, "rack.yaml has no model qwem; its models are qwen, nemotron, other"),
        (
            ["check", "--model", "other"],
            1,
            "rack.lock.json has no record of other; `sparkrack apply` fetches the model and records it",
        ),
        (["check", "qwen", "--model", "qwen"], 1, "UNIT, --config and --model exclude each other; name one"),
        (["check", "--context", "5"], 1, "--context is for --config and --model; a unit has its own in rack.yaml"),
        (["render", "qwem"], 1, "rack.yaml has no unit qwem; its units are qwen; did you mean qwen?"),
        (["render", "qwen", "--node", "n7"], 1, "n7 is not a node of unit qwen; its nodes are n0, n1"),
    ],
)
def test_what_is_not_declared_is_one_line(words: list[str], code: int, expected: str, tmp_path: Path) -> None:
    found = serve(tmp_path, words, text({"qwen": unit()}), {"qwen": QWEN})
    assert found.exit_code == code
    assert found.stderr.splitlines()[-1].endswith(expected)


def test_a_rack_without_units_is_one_line(tmp_path: Path) -> None:
    found = serve(tmp_path, ["check"], machines(2))
    assert found.exit_code == 1
    assert found.stderr.splitlines()[-1].endswith(
        "rack.yaml has no serving section; name a model with --model or --config"
    )


def test_what_each_node_runs_is_printed_an_argument_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEY", "sk-abcdef")
    keys = unit(version="0.21.0", env={"NCCL_DEBUG": "INFO"}, api={"listen": "management", "key": {"env": "KEY"}})
    found = serve(tmp_path, ["render", "qwen"], text({"qwen": keys}))
    assert found.exit_code == 0, found.output
    assert [line for line in found.stdout.splitlines() if not line.startswith(" ")] == [
        "n0: rank 0 of 2, the head",
        "n1: rank 1 of 2",
    ]
    assert "sk-abcdef" not in found.output
    only = serve(tmp_path, ["render", "qwen", "--node", "n1"], text({"qwen": keys})).stdout.splitlines()
    assert only[:4] == ["n1: rank 1 of 2", "  command:", "    vllm", "    serve"]
    assert only.index("    --headless") < only.index("  docker run:")
    assert "    NCCL_DEBUG=INFO" in only[only.index("  environment:") :]


def test_the_image_is_that_of_the_lock_file(tmp_path: Path) -> None:
    path = put(tmp_path, text({"qwen": unit()}))
    identity = "sha256:" + "cd" * 32
    lock = {"images": {unit()["image"]: {"digest": None, "id": identity}}}
    (tmp_path / "rack.lock.json").write_text(json.dumps(lock))
    found = CliRunner().invoke(sparkrack, ["serve", "render", "qwen", "--rack", str(path)])
    assert f"    {identity}" in found.stdout.splitlines()
