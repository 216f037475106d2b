"""What a unit asks of the memory of its nodes, by its keys and options, and which measurements count for it."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from core.model import load
from core.model.model_lock import ModelFile, ModelRecord
from serving import calibration
from serving import fit as serving_fit
from serving.calibration import Calibration, Conditions
from serving.engines.memory_fit import Parallel
from serving.engines.model_shape import ModelConfigError
from serving.options import ServedUnit, served_units
from tests.unit.model.serving_racks import COMMIT, IMAGE_ID, QWEN, SGLANG, loaded, text, unit


def declared(**keys: Any) -> ServedUnit:
    rack = loaded(text({"qwen": unit(QWEN, **keys)}))
    return served_units(rack)["qwen"]


def recorded(*paths: str, texts: dict[str, str] | None = None, revision: str | None = COMMIT) -> ModelRecord:
    files = tuple(ModelFile(path, 10**number, "0" * 64) for number, path in enumerate(paths, 1))
    return ModelRecord("o/m", revision, files, texts or {})


@pytest.mark.parametrize(
    ("paths", "size"),
    [
        ((), None),
        (("config.json",), None),
        (("a.safetensors", "b.safetensors"), 110),
        (("a.safetensors", "b.bin", "c.gguf"), 10),
        (("a.txt", "b.bin", "c.gguf"), 100),
        (("a.txt", "b.txt", "c.gguf"), 1000),
        (("a.safetensors", "consolidated.safetensors"), 10),
        (("consolidated.safetensors", "consolidated-2.safetensors"), 110),
        (("original/a.safetensors", "b.safetensors"), 100),
        (("config.json", "q4/a-1.gguf", "q4/a-2.gguf"), 1100),
    ],
)
def test_the_weights_of_a_model_are_counted_once(paths: tuple[str, ...], size: int | None) -> None:
    assert serving_fit.weight_size(recorded(*paths)) == size


@pytest.mark.parametrize(
    ("texts", "kind"),
    [
        ({"config.json": '{"model_type": "nemotron_h"}'}, "nemotron_h"),
        ({"config.json": "{}"}, ""),
        ({}, ""),
        ({"config.json": "["}, ""),
        ({"config.json": "[]"}, ""),
    ],
)
def test_the_kind_of_a_model_is_that_of_its_configuration(texts: dict[str, str], kind: str) -> None:
    assert serving_fit.model_type(recorded(texts=texts)) == kind


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        ({}, "the record of qwen has no config.json; record the model again"),
        ({"config.json": "["}, "config.json in the record of qwen is not a JSON object; record the model again"),
        (
            {"config.json": "{}", "hf_quant_config.json": "5"},
            "hf_quant_config.json in the record of qwen is not a JSON object; record the model again",
        ),
    ],
)
def test_a_record_without_a_shape_says_so(texts: dict[str, str], reason: str) -> None:
    with pytest.raises(ModelConfigError) as unknown:
        serving_fit.record_shape("qwen", recorded(texts=texts))
    assert str(unknown.value) == reason


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        *((name, "bf16") for name in (None, "auto", "bfloat16", "float16")),
        *((name, "fp8") for name in ("fp8", "fp8_e4m3", "fp8_e5m2")),
    ],
)
def test_keys_and_values_have_the_format_of_the_option(name: str | None, expected: str) -> None:
    keys = {"args": {"kv-cache-dtype": name}} if name else {}
    assert serving_fit.kv_format(declared(**keys)) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("bf16", "bf16"),
        ("mxfp8", "fp8"),
        ("int8_per_token_head", "fp8"),
        *((name, "nvfp4") for name in ("nvfp4", "nvfp4_4over6", "fp4_e2m1", "fp4_mx_block16")),
        ("int2", None),
    ],
)
def test_a_format_of_another_release_is_known_or_none(name: str, expected: str | None) -> None:
    one = declared()
    changed = one.model_copy(update={"args": {"kv-cache-dtype": name}})
    assert serving_fit.kv_format(changed) == expected
    skipped = one.model_copy(update={"args": {"kv-cache-dtype": name, "kv-cache-dtype-skip-layers": "0"}})
    assert serving_fit.kv_format(skipped) == "bf16"


CONDITIONS = Conditions("o/m", COMMIT, IMAGE_ID, "", "", False, "", "", 65536, 8)
MEASURED = Calibration(2, 1, 0.8, 57.0, 30.0, 700_000, measured_with=CONDITIONS)


def test_what_a_unit_is_measured_with_follows_from_its_keys() -> None:
    assert serving_fit.conditions_of(declared(), recorded(), IMAGE_ID) == CONDITIONS
    args = {"quantization": "fp8", "kv-cache-dtype": "fp8", "max-num-batched-tokens": 2048}
    found = serving_fit.conditions_of(
        declared(args=args, parallel={"tensor": 2, "expert": True}, context=4096, sequences=3), recorded(), IMAGE_ID
    )
    assert found == Conditions("o/m", COMMIT, IMAGE_ID, "fp8", "fp8", True, "", "2048", 4096, 3)
    sglang = declared(
        engine="sglang",
        version="0.5.12",
        image=SGLANG,
        args={"speculative-num-steps": 3, "speculative-algorithm": "NEXTN", "chunked-prefill-size": 512},
    )
    found = serving_fit.conditions_of(sglang, recorded(), IMAGE_ID)
    assert (found.batch, found.speculative) == ("512", '{"speculative-algorithm": "NEXTN", "speculative-num-steps": 3}')


def test_a_measurement_does_not_count_for_another_kind_program_or_file(tmp_path: Path) -> None:
    (tmp_path / "fix").mkdir()
    patch = tmp_path / "fix/patch.py"
    patch.write_text("one")

    def found(**keys: Any) -> Conditions:
        path = tmp_path / "rack.yaml"
        path.write_text(text({"one": unit(**keys)}))
        return serving_fit.conditions_of(served_units(load(path))["one"], recorded(), IMAGE_ID)

    files = {"files": {"/workspace/fix": "fix"}}
    before = found(**files, before=["bash", "/workspace/fix/patch.py"])
    assert CONDITIONS.difference(found(kind="embedding")) == "it was measured with kind chat, now embedding"
    assert found(**files).difference(before) == (
        'it was measured with before not given, now ["bash", "/workspace/fix/patch.py"]'
    )
    patch.write_text("other")
    assert before.difference(found(**files, before=["bash", "/workspace/fix/patch.py"])).startswith(
        "it was measured with files "
    )
    assert before.difference(found(files={"/workspace/x": "fix"}, before=["bash", "/workspace/x/patch.py"]))


def test_what_a_unit_of_another_kind_was_measured_with_is_read_again_from_the_lock_file(tmp_path: Path) -> None:
    lock = tmp_path / "rack.lock.json"
    cases: tuple[dict[str, Any], ...] = ({}, {"kind": "embedding"}, {"before": '["a"]', "files": "0" * 16})
    for changes in cases:
        measured = dataclasses.replace(MEASURED, measured_with=dataclasses.replace(CONDITIONS, **changes))
        calibration.record(lock, ["one"], "one", measured)
        assert calibration.read(lock) == {"one": measured}
        written = json.loads(lock.read_text())["units"]["one"]["calibration"]["measured_with"]
        assert {"kind", "before", "files"} & written.keys() == changes.keys(), "what is usual is left out"


def test_a_folder_is_known_by_its_files() -> None:
    one = serving_fit.conditions_of(declared(), recorded("a", "b", revision=None), IMAGE_ID)
    assert one == serving_fit.conditions_of(declared(), recorded("a", "b", revision=None), IMAGE_ID)
    other = serving_fit.conditions_of(declared(), recorded("a", "c", revision=None), IMAGE_ID)
    assert one.revision != other.revision
    assert len(one.revision) == 64


@pytest.mark.parametrize(
    ("measured", "image", "parallel", "reason"),
    [
        (None, IMAGE_ID, Parallel(2, 1), ""),
        (MEASURED, IMAGE_ID, Parallel(2, 1), None),
        (
            dataclasses.replace(MEASURED, measured_with=None),
            IMAGE_ID,
            Parallel(2, 1),
            "it does not say with which model, image and options it was measured",
        ),
        (MEASURED, None, Parallel(2, 1), "the lock file has no ID of the image"),
        (MEASURED, IMAGE_ID, Parallel(4, 1), f"it was measured with {Parallel(2, 1)}, now {Parallel(4, 1)}"),
        (MEASURED, IMAGE_ID, Parallel(2, 2), f"it was measured with {Parallel(2, 1)}, now {Parallel(2, 2)}"),
        (
            MEASURED,
            "sha256:" + "cd" * 32,
            Parallel(2, 1),
            f"it was measured with the image {'ab' * 32}, now {'cd' * 32}",
        ),
    ],
)
def test_a_measurement_counts_for_what_it_was_made_with(
    measured: Calibration | None, image: str | None, parallel: Parallel, reason: str | None
) -> None:
    found = serving_fit.counted_calibration(
        declared(), serving_fit.KnownUnit(recorded(), image=image, measured=measured), parallel
    )
    assert found == ((MEASURED, "") if reason is None else (None, reason))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"source": "o/x"}, "it was measured with the model o/x, now o/m"),
        ({"source": None}, "it was measured with the model not given, now o/m"),
        ({"quantization": "fp8"}, "it was measured with quantization fp8, now not given"),
        ({"expert": True}, "it was measured with parallel.expert True, now False"),
        ({"speculative": "x"}, "it was measured with speculative options x, now not given"),
        ({"batch": "1"}, "it was measured with tokens at once 1, now not given"),
        ({"kv_cache_dtype": "fp8"}, "it was measured with kv-cache-dtype fp8, now not given"),
        ({"context": 65535}, "it was measured with context 65535, now 65536"),
        ({"sequences": 7}, "it was measured with sequences 7, now 8"),
        ({"context": 70000, "sequences": 9}, ""),
    ],
)
def test_the_first_difference_of_a_measurement_is_reported(change: dict[str, Any], reason: str) -> None:
    assert dataclasses.replace(CONDITIONS, **change).difference(CONDITIONS) == reason


@pytest.mark.parametrize(("keys", "overhead"), [({}, 8.0), ({"overhead": "5G"}, 5.0), ({"overhead": "1536M"}, 1.5)])
def test_the_overhead_is_declared_or_the_usual_one(keys: dict[str, Any], overhead: float) -> None:
    demand = serving_fit.demand_of(declared(**keys))
    assert (demand.overhead_gib, demand.context, demand.sequences) == (overhead, 65536, 8)


@pytest.mark.parametrize(
    ("keys", "window"),
    [
        ({}, (8192, 0.0)),
        ({"version": "0.27.0"}, (8192, 0.0)),
        ({"version": "0.28.0"}, (16384, 0.0)),
        ({"args": {"max-num-batched-tokens": 2048}}, (2048, 0.0)),
        ({"args": {"disable-hybrid-kv-cache-manager": True}}, (0, 1.0)),
        ({"args": {"disable-hybrid-kv-cache-manager": False}}, (8192, 0.0)),
    ],
)
def test_what_vllm_reserves_in_layers_with_a_window(keys: dict[str, Any], window: tuple[int, float]) -> None:
    assert serving_fit._window_reserve(declared(**keys)) == window


@pytest.mark.parametrize(
    ("args", "window"),
    [
        ({}, (0, 0.8)),
        ({"swa-full-tokens-ratio": 0.5}, (0, 0.5)),
        ({"disable-hybrid-swa-memory": True}, (0, 1.0)),
        ({"disable-hybrid-swa-memory": False}, (0, 0.8)),
    ],
)
def test_what_sglang_reserves_in_layers_with_a_window(args: dict[str, Any], window: tuple[int, float]) -> None:
    one = declared(engine="sglang", version="0.5.12", image=SGLANG, args=args)
    assert serving_fit._window_reserve(one) == window


@pytest.mark.parametrize(
    ("args", "layers"),
    [
        ({}, 0),
        ({"speculative-config": {"method": "MTP"}}, 1),
        ({"speculative-config": '{"method": "deepseek_mtp"}'}, 1),
        ({"speculative-config": {"method": "mtp", "model": "/opt/d"}}, 0),
        ({"speculative-config": {"method": "ngram"}}, 0),
        ({"speculative-config": "{"}, 0),
        ({"speculative-config": 5}, 0),
        ({"speculative-algorithm": "eagle"}, 1),
        ({"speculative-algorithm": "NEXTN", "speculative-draft-model-path": "/opt/d"}, 0),
        ({"speculative-algorithm": "NEXTN", "speculative-draft-model": "/opt/d"}, 0),
        ({"speculative-algorithm": "EAGLE3"}, 0),
    ],
)
def test_layers_of_the_model_that_draft_are_counted(args: dict[str, Any], layers: int) -> None:
    one = declared().model_copy(update={"args": args})
    assert serving_fit._own_drafts(one) == layers
    assert bool(serving_fit._draft_model(one)) is ("/opt/d" in str(args))


def test_the_usual_split_keeps_the_experts() -> None:
    one = declared(parallel={"tensor": 2, "expert": True})
    assert serving_fit.parallel_of(one) == Parallel(2, 1, True)
    assert serving_fit.usual_parallel(one, 4).expert is True
    assert serving_fit.usual_parallel(declared(), 4).nodes == 4
