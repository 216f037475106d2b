"""`sparkrack serve bench`, with a head that is a shell of this machine, and a container that is a folder of it."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from core.util.paths import state_folder
from serving.engines.bench_tool import BenchCase
from sparkrack.cli.main import sparkrack
from sparkrack.serving import bench_record
from tests.unit.model.serving_racks import NEMOTRON, machines, text, unit
from tests.unit.serving.engines.bench_results import sglang_result, vllm_result

KEY = "sk-quiet-horse-1234567890"
IMAGE_ID = f"sha256:{'0123456789abcdef' * 4}"
SSH = """\
#!/bin/sh
[ ! -e "$NODE/off" ] || { echo "ssh: connect: No route to host" >&2; exit 255; }
sed -u "s#/usr/local/lib/sparkrack#$NODE#g" | PATH="$NODE/bin:$PATH" sh
"""
DOCKER = """\
#!/bin/sh
echo "docker $*" >> "$NODE/docker.log"
[ -e "$NODE/container" ] || { echo "Error: No such container: $2" >&2; exit 1; }
case $1 in
inspect) echo "$(cat "$NODE/container") $(cat "$NODE/image")";;
exec)
    shift 2
    # In the container, where python3 is that of the image.
    export PATH="$NODE/image-bin:$PATH" VLLM_API_KEY="$(cat "$NODE/key")"
    for word; do shift; set -- "$@" "$(printf %s "$word" | sed "s#/tmp/sparkrack-bench#$NODE/tmp#g; \
s#/run/sparkrack/key.yaml#$NODE/key.yaml#g")"; done
    exec "$@";;
esac
"""
TOOL = """\
#!/bin/sh
echo "${OPENAI_API_KEY:-none} $*" >> "$NODE/calls"
[ ! -e "$NODE/fails" ] || { echo "Traceback"; echo "$(cat "$NODE/fails")"; exit 3; }
for word; do
    case $last in --result-dir) folder=$word;; --result-filename) out=$folder/$word;; --output-file) out=$word;;
    --max-concurrency) many=$word;; --random-input-len) long=$word;; esac
    last=$word
done
[ ! -e "$NODE/restarts" ] || echo other > "$NODE/container"
cat "$NODE/results/$many-$long" > "$out"
"""
PYTHON = """\
#!/bin/sh
case "$1 $2" in
"-c import importlib.metadata"*) echo 0.19.1+nv26.4;;
"-m sglang.bench_serving") shift 2; exec vllm "$@";;
*) exec /usr/bin/python3 "$@";;
esac
"""
COORDINATOR = """\
#!/bin/sh
[ "$2" = status ] || exit 9
cat "$NODE/status" || { echo "serve-coordinator: the coordinator does not answer" >&2; exit 1; }
"""


class Head:
    """The head of a unit, and the command about it."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, keys: dict[str, Any], nodes: int) -> None:
        self.folder = folder
        (folder / "rack.yaml").write_text(text({"qwen": keys}, machines(nodes)))
        for name, content in {
            "desk/ssh": SSH,
            "bin/docker": DOCKER,
            "image-bin/vllm": TOOL,
            "image-bin/python3": PYTHON,
            "serve/serve_coordinator.py": COORDINATOR,
        }.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(content)
            (folder / name).chmod(stat.S_IRWXU)
        (folder / "container").write_text("c0ffee")
        (folder / "image").write_text(IMAGE_ID)
        (folder / "key").write_text("")
        (folder / "results").mkdir()
        self.is_in("ready")
        for concurrency in (1, 4):
            for tokens in (1024, 8192, 16384, 65536):
                self.measures(BenchCase(concurrency, tokens))
        monkeypatch.setenv("PATH", f"{folder}/desk:{os.environ['PATH']}")
        monkeypatch.setenv("NODE", str(folder))
        monkeypatch.setenv("XDG_STATE_HOME", str(folder / "state"))

    def is_in(self, state: str, generation: int = 7, reason: str = "a reason") -> None:
        found = {"state": state, "generation": generation, "reason": reason}
        (self.folder / "status").write_text(json.dumps(found))

    def measures(self, case: BenchCase, sglang: bool = False, **changes: Any) -> None:
        made = (sglang_result if sglang else vllm_result)(case, **changes)
        (self.folder / "results" / f"{case.concurrency}-{case.input_tokens}").write_text(made)

    def bench(self, *words: str) -> Result:
        command = ["serve", "bench", "qwen", "--rack", f"{self.folder}/rack.yaml", *words]
        return CliRunner().invoke(sparkrack, command)

    def record(self, *words: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.bench("--json", *words).stdout)
        return found

    @property
    def calls(self) -> list[str]:
        path = self.folder / "calls"
        return path.read_text().splitlines() if path.exists() else []

    @property
    def kept(self) -> list[str]:
        folder = self.folder / "state/sparkrack/served/bench/qwen"
        return sorted(path.name for path in folder.glob("*"))


@pytest.fixture
def head(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Head:
    return Head(tmp_path, monkeypatch, unit(), 2)


def test_the_matrix_that_the_unit_can_serve(head: Head) -> None:
    done = head.bench()
    assert done.exit_code == 0, done.output
    lines = [line.rstrip() for line in done.stdout.splitlines()]
    assert lines[:8] == [
        "qwen: vllm 0.19.1+nv26.4, image sha256:0123456789ab",
        "requests at once  input  output  tokens/s    TTFT     p99  TPOT   p99  against baseline",
        "               1   8192     256     16.98  8123.4  8311.9  58.1  61.7  -",
        "               1  16384     256     16.98  8123.4  8311.9  58.1  61.7  -",
        "               1  65536     256         -       -       -     -     -  skipped",
        "               4   8192     256     16.98  8123.4  8311.9  58.1  61.7  -",
        "               4  16384     256     16.98  8123.4  8311.9  58.1  61.7  -",
        "               4  65536     256         -       -       -     -     -  skipped",
    ]
    assert "1 x 65536 tokens: skipped: needs a context of 66048 tokens, the unit has 65536" in lines
    assert "no baseline: measure with --save to keep one" in lines
    assert len(head.calls) == 8, "a warm-up and a measurement of each of the four"
    assert head.calls[0].count("--num-prompts 1 ") == 1
    assert head.calls[1].count("--num-prompts 4 ") == 1
    seeds = [call.partition("--seed ")[2].split()[0] for call in head.calls]
    assert len(set(seeds)) == 8, "a prompt that was sent before is in the prefix cache"
    assert len(head.kept) == 1
    assert not (head.folder / "tmp").exists(), "the folder in the container is removed"


def test_the_record_that_is_kept_is_what_json_prints(head: Head) -> None:
    done = head.bench("--json", "--quick")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    (name,) = head.kept
    assert json.loads((head.folder / "state/sparkrack/served/bench/qwen" / name).read_text()) == found
    assert {key: value for key, value in found.items() if key not in ("made", "file", "cases")} == {
        "schema": "sparkrack.serve-bench/1",
        "rack": "served",
        "revision": "",
        "unit": "qwen",
        "model": "qwen",
        "nodes": ["n0", "n1"],
        "engine": "vllm",
        "engine_version": "0.19.1+nv26.4",
        "image": "nvcr.io/nvidia/vllm:26.04-py3",
        "image_id": IMAGE_ID,
        "kind": "quick",
        "unit_kind": "chat",
        "busy": False,
        "saved": False,
        "baseline": None,
    }
    (case,) = found["cases"]
    assert (case["concurrency"], case["input_tokens"], case["requests"], case["state"]) == (1, 1024, 4, "measured")
    assert (case["output_throughput"], case["ttft_median_ms"], case["tpot_p99_ms"]) == (16.98, 8123.4, 61.7)


@pytest.mark.parametrize(
    ("changes", "slower", "code"),
    [
        ({}, [], 0),
        ({"output_throughput": 16.98 * 0.951, "median_ttft_ms": 8123.4 * 1.049}, [], 0),
        ({"output_throughput": 16.98 * 0.949}, ["output_throughput"], 2),
        ({"median_ttft_ms": 8123.4 * 1.051}, ["ttft_median_ms"], 2),
        ({"output_throughput": 1.0, "median_ttft_ms": 9e9}, ["output_throughput", "ttft_median_ms"], 2),
        ({"output_throughput": 100.0, "median_ttft_ms": 1.0, "p99_ttft_ms": 9e9}, [], 0),
    ],
)
def test_what_is_more_than_5_percent_slower_is_marked(
    head: Head, changes: dict[str, Any], slower: list[str], code: int
) -> None:
    assert head.bench("--quick", "--save").exit_code == 0
    head.measures(BenchCase(1, 1024), **changes)
    done = head.bench("--quick")
    assert done.exit_code == code, done.output
    assert done.stdout.count("SLOWER") == len(slower)
    assert [one["slower"] for one in head.record("--quick")["cases"]] == [slower]


def test_save_replaces_the_baseline_and_still_compares(head: Head) -> None:
    head.bench("--save")
    head.measures(BenchCase(4, 8192), output_throughput=10.0)
    found = head.record("--save")
    marked = [(one["concurrency"], one["input_tokens"]) for one in found["cases"] if one["slower"]]
    assert (marked, found["saved"]) == ([(4, 8192)], True)
    assert head.bench("--save").exit_code == 0
    head.measures(BenchCase(4, 8192), output_throughput=5.0)
    assert head.bench("--save").exit_code == 2


def test_the_newest_records_are_kept_and_the_baseline(head: Head, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_record, "MAX_RECORDS", 2)
    head.bench("--quick", "--save")
    first = head.kept[0]
    for _ in range(2):
        assert head.bench("--quick").exit_code == 0
    assert len(head.kept) == 3
    assert first not in head.kept
    assert "baseline-quick.json" in head.kept


def test_a_short_measurement_has_its_own_baseline(head: Head) -> None:
    head.bench("--save")
    assert head.record("--quick")["baseline"] is None
    head.bench("--quick", "--save")
    assert {"baseline-full.json", "baseline-quick.json"} <= set(head.kept)
    assert head.record("--quick")["baseline"]["engine_version"] == "0.19.1+nv26.4"


def test_a_baseline_that_cannot_be_read_stops_before_measuring(head: Head) -> None:
    head.bench("--quick", "--save")
    path = head.folder / "state/sparkrack/served/bench/qwen/baseline-quick.json"
    path.write_text(path.read_text().replace("serve-bench/1", "serve-bench/0"))
    before = len(head.calls)
    done = head.bench("--quick")
    assert done.exit_code == 1
    assert f"{path}: is not a baseline: schema" in done.output
    assert "--save to replace it" in done.output
    assert len(head.calls) == before
    assert head.bench("--quick", "--save").exit_code == 0
    assert head.bench("--quick").exit_code == 0


@pytest.mark.parametrize("state", ["down", "gating", "starting", "stuck", "held", "stopping"])
def test_a_unit_that_is_not_ready_is_refused(head: Head, state: str) -> None:
    head.is_in(state)
    done = head.bench()
    assert done.exit_code == 1
    assert f"n0: unit qwen is {state}: a reason; it can be measured when it is ready or busy" in done.output
    assert (head.calls, head.kept) == ([], [])


def test_a_busy_unit_is_measured_with_a_warning(head: Head) -> None:
    head.is_in("busy")
    done = head.bench("--quick", "--json")
    assert done.exit_code == 0
    assert "unit qwen is busy" in done.stderr
    assert json.loads(done.stdout)["busy"] is True


@pytest.mark.parametrize(
    ("damage", "reason"),
    [
        ("status", "n0: the state of unit qwen is unknown: serve-coordinator: the coordinator does not answer"),
        ("container", "n0: Error: No such container"),
        ("image-bin/python3", "n0: "),
    ],
)
def test_what_does_not_answer_is_refused(head: Head, damage: str, reason: str) -> None:
    (head.folder / damage).unlink()
    if damage == "image-bin/python3":
        (head.folder / damage).write_text("#!/bin/sh\nexit 1\n")
        (head.folder / damage).chmod(stat.S_IRWXU)
    done = head.bench()
    assert done.exit_code == 1
    assert reason in done.output
    assert head.kept == []


def test_an_unreachable_head_is_refused(head: Head) -> None:
    (head.folder / "off").touch()
    done = head.bench()
    assert (done.exit_code, head.kept) == (1, [])
    assert "n0: cannot be asked: ssh: connect: No route to host" in done.output


def test_after_a_failed_measurement_the_others_are_skipped_and_the_record_is_kept(head: Head) -> None:
    head.bench("--save")
    baseline = head.folder / "state/sparkrack/served/bench/qwen/baseline-full.json"
    before = baseline.read_text()
    head.measures(BenchCase(1, 16384), completed=3)
    done = head.bench("--save")
    assert done.exit_code == 1
    assert "1 x 16384 tokens: failed: 3 of 4 requests were answered" in done.output
    assert "4 x 8192 tokens: skipped: an earlier measurement failed" in done.output
    assert baseline.read_text() == before, "what is not complete is not a baseline"
    assert len(head.kept) == 3


def test_a_tool_that_fails_is_reported_with_its_last_line(head: Head) -> None:
    (head.folder / "fails").write_text("ValueError: no such tokenizer")
    done = head.bench("--quick")
    assert done.exit_code == 1
    assert "1 x 1024 tokens: failed: vllm failed (exit 3): ValueError: no such tokenizer" in done.output
    assert not (head.folder / "tmp").exists()


def test_a_start_during_the_measurement_is_noticed(head: Head) -> None:
    (head.folder / "restarts").touch()
    done = head.bench("--quick")
    assert done.exit_code == 1
    assert "unit qwen was started again during the measurement" in done.output


def test_only_one_measurement_at_a_time(head: Head) -> None:
    (head.folder / "tmp").mkdir()
    (head.folder / "tmp/pid").write_text(str(os.getpid()))
    done = head.bench("--quick")
    assert done.exit_code == 1
    assert "another measurement of unit qwen runs" in done.output
    assert (head.folder / "tmp/pid").exists()
    (head.folder / "tmp/pid").write_text("4194304")
    assert head.bench("--quick").exit_code == 0, "what a dead one left is removed"


def test_the_key_of_vllm_is_in_the_environment_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head = Head(tmp_path, monkeypatch, unit(api={"key": {"file": "qwen.key"}}), 2)
    (tmp_path / "key").write_text(KEY)
    assert head.bench("--quick").exit_code == 0
    assert [call.split()[0] for call in head.calls] == [KEY, KEY]
    assert all(KEY not in call.partition(" ")[2] for call in head.calls)
    assert KEY not in (tmp_path / "docker.log").read_text()


def test_the_key_of_sglang_is_read_in_the_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head = Head(tmp_path, monkeypatch, unit(NEMOTRON, api={"key": {"file": "qwen.key"}}), 8)
    head.measures(BenchCase(1, 1024), sglang=True)
    (tmp_path / "key.yaml").write_text(f"api-key: {json.dumps(KEY)}\n")
    done = head.bench("--quick")
    assert done.exit_code == 0, done.output
    assert [call.split()[0] for call in head.calls] == [KEY, KEY]
    assert all("--dataset-name random-ids" in call and KEY not in call.partition(" ")[2] for call in head.calls)
    assert KEY not in (tmp_path / "docker.log").read_text()
    kept = (state_folder("served") / "bench/qwen" / head.kept[0]).read_text()
    assert KEY not in kept + done.output, "the tool writes it into its result"


def test_the_address_is_that_where_the_head_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    head = Head(tmp_path, monkeypatch, unit(api={"listen": "management", "port": 8123}), 2)
    head.bench("--quick")
    assert all("--base-url http://10.77.0.11:8123 " in call for call in head.calls)


@pytest.mark.parametrize(
    ("keys", "reason"),
    [
        (
            {"kind": "embedding", "context": 128},
            "unit qwen can serve no measurement: 1 x 128 tokens needs a context of 160",
        ),
        ({"context": 512}, "unit qwen can serve no measurement: 1 x 1024 tokens needs a context of 1536 tokens"),
        ({"version": "0.10.2", "nodes": ["n0"], "parallel": None}, "its tool sends a prompt twice"),
    ],
)
def test_what_cannot_be_measured_is_refused_before_any_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, keys: dict[str, Any], reason: str
) -> None:
    head = Head(tmp_path, monkeypatch, unit(**keys), 2)
    (tmp_path / "off").touch()
    done = head.bench("--quick")
    assert done.exit_code == 1
    assert reason in done.output
