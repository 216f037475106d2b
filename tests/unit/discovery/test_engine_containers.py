"""Units of another rack.yaml and engines that were started by hand: reported and suggested, without their secrets."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from serving import desired
from serving.options import serving_of
from sparkrack.discovery.engine_containers import QUESTION, Engines, engine_gaps, parse_engines, suggestions
from sparkrack.discovery.yaml_writer import text
from tests.serving.serve_modules import serve_unit
from tests.unit.discovery.worlds import world
from tests.unit.model.racks import SWITCH, loaded
from tests.unit.model.serving_racks import unit
from tests.unit.roles.serving_units import locked

DOCKER = """#!/bin/sh
case $1 in
ps) /bin/cat "$0.ids" ;;
inspect) [ "$4" ] || exit 1; /bin/cat "$0.containers" ;;
top) [ ! -e "$0.top" ] || /bin/cat "$0.top" ;;
esac
"""


def container(name: str, *argv: str, image: str = "vllm/vllm-openai:v0.19.0") -> str:
    return "container " + json.dumps([f"id-{name}", f"/{name}", image, argv[0], list(argv[1:])])


BY_HAND = container(
    "my-llm",
    "/opt/nvidia/nvidia_entrypoint.sh",
    *("vllm", "serve", "Qwen/Qwen3-8B", "--max-model-len", "4096", "--api-key", "canary-key"),
)


@pytest.mark.parametrize(
    "argv",
    [
        ("vllm", "serve", "m"),
        ("/usr/bin/vllm", "serve", "m"),
        ("python3", "-m", "vllm.entrypoints.openai.api_server", "--model", "m"),
        ("python3", "-m", "sglang.launch_server", "--model-path", "m"),
        ("bash", "-c", "pip list && vllm serve m"),
    ],
)
def test_an_engine_is_known_by_its_command(argv: tuple[str, ...]) -> None:
    (found,) = parse_engines(container("a", *argv)).containers
    assert found.argv == argv


@pytest.mark.parametrize(
    "command",
    [
        "vllm serve Qwen/Qwen3-8B --port 8000",
        "/usr/bin/python3 /usr/local/bin/vllm serve m",
        "python3 -m sglang.launch_server --model-path m",
        "/app/llama-server -m x.gguf",
        "trtllm-serve m",
        "/bin/bash /opt/nim/start_server.sh",
    ],
)
def test_an_engine_that_was_started_in_a_sleeping_container_is_known(command: str) -> None:
    """As the launchers of eugr and sparkrun start it: `sleep infinity`, then `docker exec`."""
    rows = ["process id-a 1 sleep infinity", f"process id-a 17 {command}", "process id-a 90 VLLM::EngineCore"]
    (found,) = parse_engines("\n".join([container("a", "sleep", "infinity"), *rows])).containers
    assert (found.name, found.argv) == ("a", tuple(command.split()))


def test_processes_without_an_engine_make_no_engine() -> None:
    rows = ["process id-a 1 sleep infinity", "process id-b 2 vllm serve m"]
    assert parse_engines("\n".join([container("a", "sleep", "infinity"), *rows])) == Engines()


@pytest.mark.parametrize("argv", [("nginx",), ("sleep", "infinity"), ("cat", "notes-on-vllm", "serve")])
def test_other_containers_are_not_reported(argv: tuple[str, ...]) -> None:
    assert parse_engines(container("a", *argv)) == Engines()


@pytest.mark.parametrize(
    "line",
    ["x", "container", "container {}", "container [1]", "unit", "unit a b c", "unit a e30= e30=", "unit 1 2 3 4"],
)
def test_other_output_is_unknown(line: str) -> None:
    with pytest.raises((ValueError, TypeError)):
        parse_engines(line)


def test_an_engine_that_was_started_by_hand_is_reported_and_suggested() -> None:
    engines = {"spark1": parse_engines(BY_HAND)}
    (gap,) = map(str, engine_gaps(engines))
    assert gap == (
        "nodes.spark1: container my-llm (image vllm/vllm-openai:v0.19.0) runs an engine: "
        "/opt/nvidia/nvidia_entrypoint.sh vllm serve Qwen/Qwen3-8B --max-model-len 4096 --api-key ***; "
        "it stays as it is, and no key of the file declares it"
    )
    lines = suggestions(engines)
    assert "container my-llm of spark1 as a unit:" in lines
    assert "      source: Qwen/Qwen3-8B" in lines
    assert "canary-key" not in "\n".join(lines)


def test_an_engine_that_is_not_a_unit_is_suggested_with_the_reason() -> None:
    lines = suggestions({"spark1": parse_engines(container("a", "vllm", "serve", "m", image="local"))})
    assert "  none: container: local is in no registry; push the image to one and give --image" in lines


def test_the_file_has_the_suggestion_as_a_comment_and_stays_valid() -> None:
    found = world(loaded(SWITCH))
    found.say("spark1", "engines", BY_HAND)
    sheet = found.sheet()
    assert any("container my-llm" in str(gap) for gap in sheet.unrepresentable)
    assert "#       source: Qwen/Qwen3-8B" in text(sheet)
    assert serving_of(found.adopted()) is None


def test_an_unknown_answer_is_a_gap() -> None:
    found = world(loaded(SWITCH))
    found.say("spark1", "engines", code=9)
    assert any("engines: unknown: its tool ended with 9" in str(gap) for gap in found.sheet().unrepresentable)


def ask(folder: Path) -> subprocess.CompletedProcess[str]:
    """The question, to a node that is a folder."""
    script = QUESTION.replace("/etc/sparkrack", f"{folder}/etc/sparkrack").replace("/run/docker.pid", f"{folder}/pid")
    environment = {"PATH": f"{folder}:/usr/bin:/bin"}
    return subprocess.run(["sh", "-c", script], capture_output=True, text=True, env=environment, check=False)


def write_unit_files(folder: Path, unit: desired.LockedUnit, without: str = "") -> Path:
    """Write the files of a unit that the role writes, below a folder that stands for /. Returns the unit file.

    `without`: a key that the unit file does not have.
    """
    there = folder / "etc/sparkrack/serve"
    there.mkdir(parents=True)
    for file in desired.files(unit, unit.nodes[0]):
        if Path(file.path).parent.name == "serve":
            (there / Path(file.path).name).write_bytes(file.content)
    made = there / "one.json"
    kept = {key: value for key, value in json.loads(made.read_text()).items() if key != without}
    made.write_text(json.dumps(kept))
    return made


def test_the_files_of_a_unit_describe_it(tmp_path: Path) -> None:
    """By the files that the role writes."""
    unit = locked()
    write_unit_files(tmp_path, unit)
    done = ask(tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    (found,) = parse_engines(done.stdout).units
    assert (found.name, found.nodes, found.image, found.engine) == ("one", unit.nodes, unit.unit.image, "vllm")
    (gap,) = map(str, engine_gaps({name: parse_engines(done.stdout) for name in unit.nodes}))
    assert gap.startswith(
        f"serving.units.one: {', '.join(unit.nodes)} have files of it from another rack.yaml: vllm on"
    )


LIKE_VLLM = {
    "command": ["serve", "{host}:{port}", "{rank}"],
    "progress": ["vllm:steps_total"],
    "weights": "20G",
}


@pytest.mark.parametrize(
    ("keys", "engine"),
    [
        ({"engine": "vllm-ray"}, "vllm-ray"),
        ({"engine": "custom", "version": "1", "memory": None, "custom": LIKE_VLLM}, "custom"),
    ],
)
def test_the_file_of_a_unit_names_its_engine_whatever_its_metrics_are_called(
    keys: dict[str, Any], engine: str, tmp_path: Path
) -> None:
    file = write_unit_files(tmp_path, locked(unit(**keys)))
    (found,) = parse_engines(ask(tmp_path).stdout).units
    assert (found.engine, serve_unit.load_unit(str(file)).engine) == (engine, engine)


def test_the_file_of_a_unit_of_an_earlier_version_is_read_without_its_engine(tmp_path: Path) -> None:
    file = write_unit_files(tmp_path, locked(), without="engine")
    (gap,) = map(str, engine_gaps({"spark1": parse_engines(ask(tmp_path).stdout)}))
    assert gap.startswith("serving.units.one: spark1 has files of it from another rack.yaml: an engine on n0, n1,")
    assert serve_unit.load_unit(str(file)).name == "one"


def test_the_container_of_a_unit_is_not_reported_a_second_time(tmp_path: Path) -> None:
    write_unit_files(tmp_path, locked())
    reported = ask(tmp_path).stdout + container("sparkrack-one", "vllm", "serve", "m")
    assert parse_engines(reported).containers == ()


def test_a_node_without_any_prints_nothing(tmp_path: Path) -> None:
    done = ask(tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_containers_of_a_docker_that_runs(tmp_path: Path) -> None:
    """A shell with the name of dockerd stands for it."""
    (tmp_path / "dockerd").symlink_to("/bin/sh")
    docker = tmp_path / "docker"
    docker.write_text(DOCKER)
    docker.chmod(0o755)
    with subprocess.Popen([str(tmp_path / "dockerd"), "-c", "read -r x; :"], stdin=subprocess.PIPE) as daemon:
        (tmp_path / "pid").write_text(str(daemon.pid))
        (tmp_path / "docker.ids").write_text("")
        assert ask(tmp_path).stdout == ""
        (tmp_path / "docker.ids").write_text("aa\n")
        (tmp_path / "docker.containers").write_text(f"{BY_HAND}\n")
        assert [one.name for one in parse_engines(ask(tmp_path).stdout).containers] == ["my-llm"]
        (tmp_path / "docker.ids").write_text("id-a\n")
        (tmp_path / "docker.containers").write_text(f"{container('a', 'sleep', 'infinity')}\n")
        (tmp_path / "docker.top").write_text("    PID COMMAND\n   4711 sleep infinity\n   4712 vllm serve m\n")
        (found,) = parse_engines(ask(tmp_path).stdout).containers
        assert (found.name, found.argv) == ("a", ("vllm", "serve", "m"))


def test_no_variable_of_a_container_leaves_the_node() -> None:
    assert "Env" not in QUESTION
