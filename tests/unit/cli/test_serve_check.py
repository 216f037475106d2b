"""`sparkrack serve check` computes from a configuration whether a model fits, and connects to nothing."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import CliRunner, Result

from sparkrack.cli.main import sparkrack
from tests.generated import REPOSITORY

CONFIGS = REPOSITORY / "tests/unit/serving/engines/model_configs"


def serve_check(*words: str) -> Result:
    return CliRunner().invoke(sparkrack, ["serve", "check", *words])


def test_the_sum_and_the_verdict_of_each_number_of_nodes() -> None:
    found = serve_check("--config", str(CONFIGS / "Qwen3-235B-A22B"), "--weights", "124GB")
    assert found.exit_code == 0
    assert found.stdout.splitlines() == [
        "235.1 billion parameters, 124.0 GB of weights (as given); 131072 tokens in fp8, 4 sequences",
        "nodes  split  weights    kv  state  overhead  GiB a node  fits  tokens left",
        "    1  TP=1     115.5  11.8    0.0       8.0       135.2  no              0",
        "    2  TP=2      57.7   5.9    0.0       8.0        71.6  yes        845643",
        "    3  PP=3      39.7   4.0    0.0       8.0        51.7  yes       1895214",
        "    4  TP=4      28.9   2.9    0.0       8.0        39.8  yes       3110589",
        "    8  TP=8      14.4   2.9    0.0       8.0        25.4  yes       3754705",
        "1 node: no: needs 135.2 GiB a node, 109.5 GiB are 90% of 121.69 GiB",
        "It fits on 2, 3, 4, 8 nodes (yes up to 85%, tight up to 90% of 121.69 GiB)",
    ]


def test_a_model_that_does_not_fit_is_exit_1_and_says_where_it_would() -> None:
    found = serve_check("--config", str(CONFIGS / "GLM-5-FP8"), "--node-count", "2")
    assert found.exit_code == 1
    assert found.stdout.splitlines()[-1] == (
        "It does not fit (yes up to 85%, tight up to 90% of 121.69 GiB); it fits on 8"
    )


def test_json_has_the_same_figures() -> None:
    found = serve_check("--config", str(CONFIGS / "Qwen3-235B-A22B"), "--weights", "124GB", "--json")
    report = json.loads(found.stdout)
    assert report["schema"] == "sparkrack.serve-check/1"
    assert (report["weight_bytes"], report["weights_from"]) == (124_000_000_000, "option")
    two = next(one for one in report["fits"] if one["nodes"] == 2)
    assert (two["verdict"], two["tensor_parallel"], two["total"]) == ("yes", 2, 71.62)


def test_what_is_not_a_configuration_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"architectures": ["X"]}')
    found = serve_check("--config", str(tmp_path))
    assert found.exit_code == 1
    where, what = f"Error: {tmp_path.name}", "num_hidden_layers is missing or is not a number"
    assert found.stderr.splitlines() == [f"{where}: {what}; give the config.json of a language model"]


def test_a_size_without_its_unit_is_refused() -> None:
    found = serve_check("--config", str(CONFIGS / "gpt-oss-20b"), "--weights", "124")
    assert found.exit_code == 1
    assert "'124' is not a size with its unit, such as 124GB or 115GiB" in found.stderr


def test_what_is_not_known_of_a_model_is_unknown_and_no_success() -> None:
    found = serve_check("--config", str(CONFIGS / "GLM-5.3-Flash"))
    assert found.exit_code == 1
    lines = found.stdout.splitlines()
    assert lines[0] == ("an unknown number of parameters, weights of unknown size; 131072 tokens in fp8, 4 sequences")
    assert lines[-2:] == [
        "1, 2, 3, 4, 8 nodes: unknown: the architecture glm5_next is not one whose memory is known here",
        "Whether it fits is unknown (yes up to 85%, tight up to 90% of 121.69 GiB)",
    ]
    report = json.loads(serve_check("--config", str(CONFIGS / "GLM-5.3-Flash"), "--json").stdout)
    assert (report["parameters"], report["weight_bytes"]) == (None, None)
    assert {(one["verdict"], one["weights"], one["kv"]) for one in report["fits"]} == {("unknown", None, None)}


def test_with_the_size_of_the_weights_their_format_is_not_needed(tmp_path: Path) -> None:
    config = json.loads((CONFIGS / "Qwen3-235B-A22B/config.json").read_text())
    config["quantization_config"] = {"quant_method": "exl3"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    without = serve_check("--config", str(tmp_path), "--node-count", "4")
    assert without.exit_code == 1
    assert "the format exl3 of the weights is not known here; give the size of all weight files" in without.stdout
    assert serve_check("--config", str(tmp_path), "--node-count", "4", "--weights", "124GB").exit_code == 0
