"""What the container of a unit has beside its image: further models, files beside rack.yaml, a program before the
engine, and what is accepted with a reason."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from core.model import ConfigError, Rack, load, model_lock
from core.model.model_lock import ModelFile, ModelRecord
from roles.rdma.options import socket_addresses
from serving import desired, rules, unit_files
from serving.desired import LockedUnit
from serving.engines.memory_fit import Parallel
from serving.engines.vllm import INSIDE_AUTOTUNE
from serving.fit import fitting_counts, parallel_of, record_shape, unit_fit, weight_size
from serving.launch import RankLaunch, launches
from serving.options import served_units
from serving.unit_kinds import surplus_ranks
from sparkrack.serving.export import lws, ray
from sparkrack.serving.export.source import ExportError, export_source
from tests.serving.serve_modules import serve_causes
from tests.unit.model.serving_racks import CONFIGS, QWEN, machines, put, record, refusals, text, unit
from tests.unit.roles.serving_units import PINS, RECORD, content

P = "serving.units.qwen"
SCRIPT = "#!/bin/sh\necho fixed\n"


def rack_file(**keys: Any) -> str:
    return text({"qwen": unit(QWEN, **keys)})


@pytest.fixture
def patches(tmp_path: Path) -> Path:
    """A folder beside a rack file, with a program and a module."""
    folder = tmp_path / "patches/glm"
    (folder / "vllm").mkdir(parents=True)
    (folder / "run.sh").write_text(SCRIPT)
    (folder / "run.sh").chmod(0o755)
    (folder / "vllm/fix.py").write_text("x = 1\n")
    return folder


def mounting(tmp_path: Path, **keys: Any) -> Rack:
    return load(put(tmp_path, rack_file(**{"files": {"/workspace/fix": "patches/glm"}, **keys})))


def faults(tmp_path: Path, **keys: Any) -> list[str]:
    """The problems of a unit in a rack file of this folder, as `LINE'S KEY PATH: what; right`."""
    file = rack_file(**keys)
    try:
        load(put(tmp_path, file))
    except ConfigError as error:
        lines = file.splitlines()
        return [
            f"{lines[fault.line - 1].strip().partition(':')[0] if fault.line else '-'} {fault.path}: "
            f"{fault.what}; {fault.right}".replace(f"{tmp_path}/", "")
            for fault in error.faults
        ]
    return []


def ranks(rack: Rack) -> tuple[RankLaunch, ...]:
    return launches(rack, served_units(rack)["qwen"], socket_addresses(rack), "100G", None)


def volumes(launch: RankLaunch) -> list[str]:
    return [launch.docker[place + 1] for place, word in enumerate(launch.docker) if word == "--volume"]


def locked(rack: Rack, **records: ModelRecord) -> LockedUnit:
    return desired.locked_unit(rack, served_units(rack)["qwen"], PINS, {"qwen": RECORD, **records})


def gate(found: LockedUnit, node: str = "n0") -> dict[str, Any]:
    read: dict[str, Any] = json.loads(content(desired.files(found, node), "qwen.gate.json"))
    return read


# Further models


def test_a_further_model_is_mounted_on_all_ranks_and_in_each_gate(tmp_path: Path) -> None:
    rack = load(put(tmp_path, rack_file(also=["other"])))
    for launch in ranks(rack):
        assert "/srv/models/other:/models/other:ro" in volumes(launch)
    draft = ModelRecord("o/d", "1" * 40, (ModelFile("model.safetensors", 5, "a" * 64),), {})
    for node in ("n0", "n1"):
        (wanted,) = gate(locked(rack, other=draft), node)["also"]
        assert (wanted["name"], wanted["folder"]) == ("other", "/srv/models/other")
        assert wanted["files"] == {"model.safetensors": 5}


def test_other_bytes_of_a_further_model_are_another_version_of_the_unit(tmp_path: Path) -> None:
    rack = load(put(tmp_path, rack_file(also=["other"])))
    versions = {
        desired.declared_version(
            locked(rack, other=ModelRecord("o/d", "1" * 40, (ModelFile("m.safetensors", 5, digit * 64),), {}))
        )
        for digit in "ab"
    }
    assert len(versions) == 2


def test_a_further_model_without_a_record_is_a_blocker(tmp_path: Path) -> None:
    rack = load(put(tmp_path, rack_file(also=["other"])))
    (line,) = desired.blockers(rack, served_units(rack)["qwen"], PINS, {"qwen": RECORD})
    assert line.endswith(
        "serving.units.qwen.also.0: the lock file has no files of other; run `sparkrack apply --only models`"
    )


@pytest.mark.parametrize(
    ("also", "place", "expected"),
    [
        (["othre"], "0", "othre is not one of models; did you mean other?"),
        (["qwen"], "0", "qwen is the model of the unit; list every further model once"),
        (["other", "other"], "1", "other is listed twice; list every further model once"),
    ],
)
def test_a_further_model_that_is_not_declared_once_is_refused(also: list[str], place: str, expected: str) -> None:
    (found,) = refusals(rack_file(also=also))
    assert found.startswith(f"{P}.also.{place} @ - ")
    assert found.endswith(expected)


DRAFTS = {"speculative-config": {"method": "eagle3", "model": "/models/other", "num_speculative_tokens": 3}}


def test_a_draft_model_is_counted_with_its_weights_and_its_cache(tmp_path: Path) -> None:
    declared = served_units(load(put(tmp_path, rack_file(also=["other"], args=DRAFTS))))["qwen"]
    main, other = model("Qwen3-235B-A22B", 124 * 10**9), model("Qwen3-235B-A22B", 2**31)
    shape, size = record_shape("qwen", main), weight_size(main)
    alone = unit_fit(declared, shape, size, parallel_of(declared))
    found = unit_fit(declared, shape, size, parallel_of(declared), further={"other": other})
    assert found.fit.weights - alone.fit.weights == pytest.approx(1.0), "2 GiB on two slices"
    assert found.fit.kv == pytest.approx(2 * alone.fit.kv)
    assert found.fit.token_bytes == pytest.approx(2 * alone.fit.token_bytes)
    assert not found.fit.unknown
    whole = served_units(
        load(
            put(
                tmp_path,
                rack_file(
                    also=["other"],
                    args={"speculative-config": {**DRAFTS["speculative-config"], "draft_tensor_parallel_size": 1}},
                ),
            )
        )
    )["qwen"]
    on_each = unit_fit(whole, shape, size, parallel_of(whole), further={"other": other})
    assert on_each.fit.weights - alone.fit.weights == pytest.approx(2.0)


def test_what_is_not_known_of_a_further_model_makes_the_sum_unknown(tmp_path: Path) -> None:
    declared = served_units(load(put(tmp_path, rack_file(also=["other"], args=DRAFTS))))["qwen"]
    shape = record_shape("qwen", model("Qwen3-235B-A22B", 1000))
    for other, reason in (
        (None, "the lock file has no record of other; `sparkrack apply` fetches the model and records it"),
        (model("", 0), "the lock file has no weights of other"),
        (model("GLM-5.3-Flash", 1000), "other: the architecture glm5_next is not one whose memory is known here"),
    ):
        found = unit_fit(declared, shape, 1000, parallel_of(declared), further={"other": other})
        assert found.verdict == "unknown"
        assert reason in found.fit.unknown.values()


def model(config: str, size: int) -> ModelRecord:
    texts = {file.name: file.read_text() for file in (CONFIGS / config).glob("*.json")} if config else {}
    files = (ModelFile("model.safetensors", size, "0" * 64),) if size else (ModelFile("config.json", 1, "0" * 64),)
    return ModelRecord("o/m", "0" * 40, files, texts)


# Files beside rack.yaml


def test_a_folder_is_mounted_read_only_from_a_folder_of_its_digest_on_each_rank(tmp_path: Path, patches: Path) -> None:
    rack = mounting(tmp_path)
    (mount,) = unit_files.mounts(served_units(rack)["qwen"])
    for launch in ranks(rack):
        assert f"/etc/sparkrack/serve/qwen.files/{mount.digest}:/workspace/fix:ro" in volumes(launch)
    top = f"/etc/sparkrack/serve/qwen.files/{mount.digest}"
    for node in ("n0", "n1"):
        found = {file.path: (file.content, file.mode) for file in desired.files(locked(rack), node)}
        assert found[f"{top}/run.sh"] == (SCRIPT.encode(), "755")
        assert found[f"{top}/vllm/fix.py"] == (b"x = 1\n", "644")


def test_a_single_file_is_mounted_by_itself(tmp_path: Path, patches: Path) -> None:
    rack = mounting(tmp_path, files={"/workspace/fix.py": "patches/glm/vllm/fix.py"})
    (mount,) = unit_files.mounts(served_units(rack)["qwen"])
    assert f"/etc/sparkrack/serve/qwen.files/{mount.digest}/fix.py:/workspace/fix.py:ro" in volumes(ranks(rack)[0])


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "vllm/fix.py").write_text("x = 2\n"),
        lambda folder: (folder / "run.sh").chmod(0o644),
        lambda folder: (folder / "run.sh").rename(folder / "ran.sh"),
        lambda folder: (folder / "more").write_text(""),
    ],
)
def test_a_change_of_a_file_is_a_changed_unit(tmp_path: Path, patches: Path, change: Callable[[Path], object]) -> None:
    before = locked(mounting(tmp_path))
    version, arguments = desired.declared_version(before), content(desired.files(before, "n0"), "qwen.args")
    change(patches)
    after = locked(mounting(tmp_path))
    assert desired.declared_version(after) != version
    assert content(desired.files(after, "n0"), "qwen.args") != arguments


def test_the_same_files_are_the_same_unit_wherever_they_are(tmp_path: Path, patches: Path) -> None:
    before = desired.declared_version(locked(mounting(tmp_path)))
    other = tmp_path / "elsewhere"
    other.mkdir()
    (tmp_path / "patches").rename(other / "patches")
    os.utime(other / "patches/glm/run.sh", ns=(1, 1))
    assert desired.declared_version(locked(mounting(other))) == before


def link(folder: Path) -> None:
    (folder / "link").symlink_to("run.sh")


def folder_link(folder: Path) -> None:
    (folder / "link").symlink_to("vllm")


@pytest.mark.parametrize(
    ("files", "change", "expected"),
    [
        (
            {"/workspace/fix": "patches/none"},
            None,
            "cannot be read: patches/none: No such file or directory; ",
        ),
        ({"/workspace/fix": "../x"}, None, "../x is outside the folder of the rack file; write the path of a file"),
        ({"/workspace/fix": "patches/.."}, None, "patches/.. is the folder of the rack file; write the path of a file"),
        ({"/workspace/fix": "patches/glm"}, link, "glm/link is a symbolic link; replace it by the file itself"),
        ({"/workspace/fix": "patches/glm"}, folder_link, "glm/link is a symbolic link; replace it by the file"),
        ({"/workspace/fix": "patches/glm/link"}, link, "link is a symbolic link, or behind one; copy"),
        (
            {"/workspace/fix": "patches/glm/link/fix.py"},
            folder_link,
            "fix.py is a symbolic link, or behind one; copy",
        ),
        (
            {"/workspace/fix": "patches/glm"},
            lambda folder: os.mkfifo(folder / "pipe"),
            "glm/pipe is neither a file nor a folder; remove it",
        ),
        (
            {"/workspace/fix": "patches/glm"},
            lambda folder: (folder / "a b").touch(),
            "glm/a b has a name that is not sent to a node; use letters, digits and",
        ),
        (
            {"/workspace/fix": "patches/glm"},
            lambda folder: os.truncate(folder / "run.sh", unit_files.MOST_BYTES),
            "have 64 MiB, at most 64 are sent to each node; leave out what is not needed",
        ),
        (
            {"/workspace/fix": "patches/glm"},
            lambda folder: [(folder / f"{number}").touch() for number in range(unit_files.MOST_FILES)],
            "have 202 files, at most 200 are sent to each node; name a folder with less",
        ),
        (
            {"/workspace/fix": "patches/empty"},
            lambda folder: (folder.parent / "empty/inner").mkdir(parents=True),
            "empty has no files; add them, or remove the entry",
        ),
        *(
            ({place: "patches/glm"}, None, f"{place} would hide {taken}, or lie in it: ")
            for place, taken in (
                ("/models/qwen/x", "/models"),
                ("/proc/x", "/proc"),
                ("/etc", "/etc/sparkrack"),
                ("/tmp", INSIDE_AUTOTUNE),  # noqa: S108,
            )
        ),
        (
            {"/workspace/fix": "patches/glm", "/workspace/fix/a": "patches/glm"},
            None,
            "/workspace/fix and /workspace/fix/a are one inside the other, and the outer one is read-only; write",
        ),
        ({"workspace": "patches/glm"}, None, "is not the path of a file or a folder in a container; write it"),
        ({"/a/../b": "patches/glm"}, None, "is not the path of a file or a folder in a container; write it"),
    ],
)
def test_files_that_cannot_be_mounted_are_refused_where_they_are_declared(
    tmp_path: Path, patches: Path, files: dict[str, str], change: Callable[[Path], object] | None, expected: str
) -> None:
    if change:
        change(patches)
    found = faults(tmp_path, files=files)
    assert found
    where, _, what = found[0].partition(": ")
    assert where.split()[1].startswith(f"{P}.files")
    assert where.split()[0] in (*files, "files")
    assert what.startswith(expected)


def test_a_secret_is_not_mounted_with_the_files_beside_it(tmp_path: Path, patches: Path) -> None:
    (patches / "api.key").write_text("sk-quiet-horse-1234567890")
    key = {"port": 8000, "listen": "management", "key": {"file": "patches/glm/api.key"}}
    expected = (
        f"/workspace/fix {P}.files./workspace/fix: api.key is a secret that rack.yaml refers to, and would be on each "
        "node; keep it in another folder"
    )
    assert faults(tmp_path, files={"/workspace/fix": "patches/glm"}, api=key) == [expected]
    single = {"/workspace/key": "patches/glm/api.key"}
    assert len(faults(tmp_path, files=single, api=key)) == 1
    assert faults(tmp_path, files={"/workspace/fix": "patches/glm/vllm"}, api=key) == []


def test_a_name_beside_a_mounted_folder_is_not_inside_it(tmp_path: Path, patches: Path) -> None:
    assert faults(tmp_path, files={"/workspace/fix": "patches/glm", "/workspace/fix2": "patches/glm"}) == []
    assert faults(tmp_path, files={"/models2": "patches/glm"}) == []


def test_an_argument_names_a_file_of_the_mounted_ones(tmp_path: Path, patches: Path) -> None:
    files = {"/workspace/fix": "patches/glm"}
    (patches / "t.jinja").write_text("x")
    assert faults(tmp_path, files=files, args={"chat-template": "/workspace/fix/t.jinja"}) == []
    rack = mounting(tmp_path, args={"chat-template": "/workspace/fix/t.jinja"})
    assert "file:/workspace/fix/t.jinja" in gate(locked(rack))["container"]["looks"]
    assert faults(tmp_path, files=files, args={"chat-template": "/workspace/fix/u.jinja"}) == [
        (
            f"chat-template {P}.args.chat-template: /workspace/fix/u.jinja is not in the container: glm has no "
            "u.jinja; correct the path, or add the file there"
        )
    ]


def test_a_file_that_goes_after_the_rack_was_loaded_is_a_blocker(tmp_path: Path, patches: Path) -> None:
    rack = mounting(tmp_path, files={"/workspace/fix.py": "patches/glm/vllm/fix.py"})
    (patches / "vllm/fix.py").unlink()
    (line,) = desired.blockers(rack, served_units(rack)["qwen"], PINS, {"qwen": RECORD})
    assert "serving.units.qwen.files: cannot be read: " in line


# The program before the engine


def test_the_program_before_runs_on_each_rank_and_becomes_the_engine(tmp_path: Path, patches: Path) -> None:
    words = ["bash", "/workspace/fix/run.sh", "a b", "$HOME", "it's", "{x}"]
    without = ranks(mounting(tmp_path))
    for launch, engine in zip(ranks(mounting(tmp_path, before=words)), without, strict=True):
        assert launch.argv[:2] == ("sh", "-c")
        assert launch.argv[4:] == engine.argv
        assert launch.docker[launch.docker.index("--entrypoint") + 1] == "sh"
        program = launch.argv[2].replace("/workspace/fix/run.sh", str(patches / "show.sh"))
        (patches / "show.sh").write_text("printf '%s\\n' before \"$@\"\n")
        done = subprocess.run(
            ["sh", "-c", program, "before", "printf", "%s\n", "engine", "x y"], capture_output=True, text=True
        )
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.splitlines() == ["before", *words[2:], "engine", "x y"]


@pytest.mark.parametrize(("end", "code"), [("exit 3", 3), ("kill -9 $$", 137), ("exec /nowhere", 127)])
def test_a_program_before_that_fails_is_the_reason_and_no_engine_starts(
    tmp_path: Path, patches: Path, end: str, code: int
) -> None:
    (patches / "run.sh").write_text(f"echo 'error: no module b12x' >&2\n{end}\n")
    launch = ranks(mounting(tmp_path, before=["sh", "/workspace/fix/run.sh"]))[0]
    program = launch.argv[2].replace("/workspace/fix", str(patches))
    done = subprocess.run(["sh", "-c", program, "before", "echo", "engine"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (code, "")
    reason = serve_causes.explain(done.returncode, done.stderr.splitlines())
    assert reason == (
        f"the program that runs before the engine failed (sparkrack: the program of before ended with {code}); "
        "its own lines are above in the log"
    )


def test_the_gate_looks_for_the_program_before(tmp_path: Path, patches: Path) -> None:
    rack = mounting(tmp_path, before=["bash", "/workspace/fix/run.sh"])
    for node in ("n0", "n1"):
        looks = gate(locked(rack), node)["container"]["looks"]
        assert {"program:bash", "file:/workspace/fix/run.sh"} <= {*looks}


def test_an_empty_program_before_is_refused() -> None:
    (found,) = refusals(rack_file(before=[]))
    assert found.startswith(f"{P}.before @ before: is an empty list; write a program and its arguments")


def test_an_exported_unit_has_all_mounts_and_the_program_before(tmp_path: Path, patches: Path) -> None:
    files = {"/workspace/fix": "patches/glm", "/workspace/fix.py": "patches/glm/vllm/fix.py"}
    rack = mounting(tmp_path, files=files, also=["other"], before=["sh", "/workspace/fix/run.sh"])
    source = export_source(rack, served_units(rack)["qwen"], None, "")
    pod = lws._render_pod(source, 0)["spec"]
    (container,) = pod["containers"]
    names = [one["name"] for one in pod["volumes"]]
    assert len(names) == len(set(names)) == 8
    mounted = {one["mountPath"] for one in container["volumeMounts"]}
    assert {"/models/qwen", "/models/other", "/workspace/fix", "/workspace/fix.py", "/cache"} <= mounted
    assert container["args"][:2] == ["sh", "-c"]
    rack = mounting(tmp_path, engine="vllm-ray", before=["sh", "/workspace/fix/run.sh"])
    with pytest.raises(ExportError, match="a cluster of Ray runs no program before the engine"):
        ray.ray_files(export_source(rack, served_units(rack)["qwen"], None, ""))


# What is accepted with a reason

FORK = {
    "gdn-decode-kernel": "fused",
    "fork-flag": True,
    "fork-list": ["a", "b"],
    "fork-json": {"a": [1]},
    "fork-maps": [{"a": 1, "b": 2}, "c"],
    "fork-dash": "-1x",
}
REASONS = dict.fromkeys(FORK, "the fork of the image has it")


def test_an_option_of_a_fork_is_refused_with_what_to_write_and_accepted_with_a_reason(tmp_path: Path) -> None:
    (found,) = refusals(rack_file(args={"gdn-decode-kernel": "fused"}))
    assert found == (
        f"{P}.args.gdn-decode-kernel @ gdn-decode-kernel: --gdn-decode-kernel is not an option of vLLM 0.19.1; did you "
        "mean --dbo-decode-token-threshold? or give the reason why the image has it at accept.gdn-decode-kernel"
    )
    (found,) = refusals(rack_file(args={"zzzz": "fused"}))
    assert found.endswith("vLLM 0.19.1; remove it, or give the reason why the image has it at accept.zzzz")
    rack = load(put(tmp_path, rack_file(args={**FORK, "kv-cache-dtype": "fp8"}, accept=REASONS)))
    for launch in ranks(rack):
        words = " ".join(launch.argv)
        assert (
            ' --kv-cache-dtype fp8 --gdn-decode-kernel fused --fork-flag --fork-list a b --fork-json {"a":[1]} '
            '--fork-maps {"a":1,"b":2} c --fork-dash=-1x'
        ) in words


def test_a_value_that_the_table_does_not_know_is_accepted_with_a_reason(tmp_path: Path) -> None:
    args = {"kv-cache-dtype": "fork4"}
    assert len(refusals(rack_file(args=args))) == 1
    rack = load(put(tmp_path, rack_file(args=args, accept={"kv-cache-dtype": "the fork of the image has it"})))
    assert "--kv-cache-dtype fork4" in " ".join(ranks(rack)[0].argv)


@pytest.mark.parametrize(
    ("keys", "key", "expected"),
    [
        ({}, "gdn-decode-kernel", "there is neither args.gdn-decode-kernel nor env.gdn-decode-kernel"),
        (
            {"args": {"kv-cache-dtype": "fp8"}},
            "kv-cache-dtype",
            "vLLM 0.19.1 takes args.kv-cache-dtype, and the container has what it names",
        ),
        ({"env": {"A": "1"}}, "A", "the container has what env.A names"),
        (
            {"args": {"chat-template": "/models/qwen/t.jinja"}},
            "chat-template",
            "vLLM 0.19.1 takes args.chat-template, and the container has what it names",
        ),
    ],
)
def test_an_entry_that_accepts_nothing_is_refused(keys: dict[str, Any], key: str, expected: str) -> None:
    found = refusals(rack_file(**keys, accept={key: "a reason"}))
    assert found == [f"{P}.accept.{key} @ {key}: accepts nothing: {expected}; remove it"]


def test_an_option_that_the_launcher_sets_is_never_accepted() -> None:
    found = refusals(rack_file(args={"host": "10.77.0.11"}, accept={"host": "a reason"}))
    assert sorted(line.partition(": ")[2] for line in found) == [
        "--host follows from where the unit listens; remove it from args",
        "accepts nothing: args.host is an option that the launcher sets, which nothing accepts; remove it",
    ]


def test_an_option_without_a_known_opposite_is_refused() -> None:
    (found,) = refusals(rack_file(args={"fork-flag": False}, accept={"fork-flag": "a reason"}))
    assert found.endswith("--fork-flag has no opposite that is known; remove it from args")


@pytest.mark.parametrize("reason", ["", " ", "a\nb"])
def test_an_entry_without_a_reason_of_one_line_is_refused(reason: str) -> None:
    (found,) = refusals(rack_file(args={"fork-flag": True}, accept={"fork-flag": reason}))
    assert f"{P}.accept.fork-flag @ " in found


def padded_rack(**keys: Any) -> str:
    three = {"nodes": ["n0", "n1", "n2"], "parallel": {"tensor": 3}}
    return text({"qwen": unit(QWEN, **three, **keys)}, machines(3))


def test_a_split_that_an_image_pads_for_is_accepted_with_a_reason() -> None:
    records = {"qwen": record("Qwen3-235B-A22B", 124 * 10**9)}
    found = refusals(padded_rack(), records)
    assert found
    assert all(line.startswith(f"{P}.parallel @ parallel: ") for line in found)
    assert "64 attention heads are not divisible by TP=3; write another split" in found[0]
    assert found[0].endswith("; or give the reason why the image takes it, as by padding, at accept.parallel.tensor")
    accept = {"parallel.tensor": "the image pads 64 heads to 66"}
    assert refusals(padded_rack(accept=accept), records) == []
    assert refusals(padded_rack(accept=accept)) == [], "without a record nothing is known of its heads"


def test_a_split_that_divides_needs_no_padding() -> None:
    records = {"qwen": record("Qwen3-235B-A22B", 124 * 10**9)}
    assert refusals(rack_file(accept={"parallel.tensor": "a reason"}), records) == [
        f"{P}.accept.parallel.tensor @ parallel.tensor: accepts nothing: qwen divides by the split; remove it"
    ]


def test_padding_accepts_no_other_split_and_too_few_layers_never(tmp_path: Path) -> None:
    declared = served_units(load(put(tmp_path, padded_rack(accept={"parallel.tensor": "padded"}))))["qwen"]
    shape = record_shape("qwen", model("Qwen3-235B-A22B", 1000))
    assert not unit_fit(declared, shape, 1000, parallel_of(declared)).fit.blockers
    assert unit_fit(declared, shape, 1000, Parallel(6, 1)).fit.blockers
    assert 3 in fitting_counts(declared, shape, 1000), "by stages"


def test_check_names_what_was_accepted(tmp_path: Path) -> None:
    keys: dict[str, Any] = {
        "args": {"gdn-decode-kernel": "fused"},
        "accept": {"gdn-decode-kernel": "the fork has it", "parallel.tensor": "the image pads"},
    }
    path = put(tmp_path, padded_rack(**keys), {"qwen": record("Qwen3-235B-A22B", 124 * 10**9)})
    rack = load(path)
    records = model_lock.read(path.with_name("rack.lock.json"))
    notes = [f"{one.what}; {one.right}" for one in rules.notes(rack, records, {}, {})]
    assert "--gdn-decode-kernel is not an option of vLLM 0.19.1; accepted: the fork has it" in notes
    assert (
        "64 attention heads are not divisible by TP=3, and the sum has no memory for padding; accepted: the image pads"
    ) in notes


# More ranks than there are


@pytest.mark.parametrize(
    ("engine", "key", "value", "args", "needs"),
    [
        ("vllm", "data-parallel-size", 2, {}, "4 GPUs"),
        ("vllm", "data-parallel-size", "2", {}, "4 GPUs"),
        ("vllm", "data-parallel-size", 1, {}, ""),
        ("vllm", "data-parallel-size", "x", {}, ""),
        ("vllm", "prefill-context-parallel-size", 3, {}, "6 GPUs"),
        ("vllm", "decode-context-parallel-size", 2, {}, ""),
        ("sglang", "dp-size", 8, {}, "16 GPUs"),
        ("sglang", "dp-size", 8, {"enable-dp-attention": True}, ""),
        ("vllm", "data-parallel-size", 2, {"enable-dp-attention": True}, "4 GPUs"),
        ("vllm", "tensor-parallel-size", 8, {}, ""),
    ],
)
def test_the_ranks_that_an_option_needs_are_counted(
    engine: Any, key: str, value: object, args: dict[str, object], needs: str
) -> None:
    found = surplus_ranks(engine, key, value, args, 2)
    assert (needs in found[0]) if needs and found else (found is None and not needs)
