"""`sparkrack verify`: how it ends, and what it prints and writes. With machines that do not answer it is the whole
command; where something was proven, the proof is made up."""

from __future__ import annotations

import importlib
import json
import os
import re
import socket
import stat
import xml.etree.ElementTree as ET
from base64 import b64decode
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from core.model import Rack
from core.verify.checked_roles import CHECKED_ROLES, verify_files
from core.verify.outcomes import Outcome
from sparkrack.cli.main import sparkrack
from sparkrack.topology import report_drawing
from sparkrack.topology.observed import Observations
from sparkrack.topology.render_svg import DrawingError
from tests.generated import REPOSITORY
from tests.unit.cli.runs import Ended, command
from tests.unit.model.racks import DIRECT, SWITCH, changed
from tests.unit.topology.answers import Answers, Change, answers
from tests.unit.verify.reports import DEAD, failed, fine, passed, skipped


@pytest.fixture
def closed() -> int:
    """A port of this machine without a listener."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return int(taken.getsockname()[1])


def silent_rack(folder: Path, text: str, closed: int) -> Path:
    """A rack whose machines are this machine's loopback, where nothing listens."""
    text = text.replace("10.77.0.", "127.77.0.")
    (folder / "known_hosts").touch()
    rack = folder / "rack.yaml"
    rack.write_text(text)
    return rack


@pytest.fixture
def direct(tmp_path: Path, closed: int) -> Path:
    text = changed(DIRECT, ("known_hosts: known_hosts}", f"known_hosts: known_hosts, port: {closed}}}"))
    return silent_rack(tmp_path, text, closed)


@pytest.fixture
def switched(tmp_path: Path, closed: int) -> Path:
    port = ("known_hosts: known_hosts\n", f"known_hosts: known_hosts\n  port: {closed}\n")
    text = changed(SWITCH, port, ("    user: sparkrack", f"    port: {closed}\n    user: sparkrack"))
    return silent_rack(tmp_path, text, closed)


def verify(rack: Path, *words: str | Path, word: str = "unused") -> Ended:
    ended = command("sparkrack", "verify", "--rack", rack, *words, CRS812_PASSWORD=word)
    assert "Traceback" not in ended.text, ended.text
    assert "INTERNALERROR" not in ended.text, ended.text
    return ended


def test_a_name_that_is_not_in_the_rack(switched: Path) -> None:
    ended = verify(switched, "--limit", "spark1", "--limit", "spark9")
    assert ended.code == 1
    assert (
        ended.stderr
        == "Error: --limit spark9: not in the rack; there are spark1, spark2, crs812; did you mean spark2?\n"
    )
    assert ended.stdout == ""


def test_nodes_that_do_not_answer(direct: Path, tmp_path: Path) -> None:
    junit, html = tmp_path / "reports/out.xml", tmp_path / "reports/out.html"
    ended = verify(direct, "--junit", junit, "--html", html, "--json")
    assert ended.code == 1, ended.text
    printed = json.loads(ended.stdout)
    assert (printed["schema"], printed["verdict"], printed["passed"], printed["failed"]) == (
        "sparkrack.verify/2",
        "unknown",
        0,
        0,
    )
    assert {failure["host"] for failure in printed["failures"]} == {"left", "right"}
    assert all(failure["unknown"] for failure in printed["failures"])
    assert {value["reached"] for value in printed["reach"]} == {None}
    assert "Connection refused" in ended.stderr
    assert re.search(r"^0 passed, 0 failed, \d+ unknown$", ended.stderr, re.MULTILINE)
    assert len(ET.parse(junit).getroot()) == 2  # noqa: S314 - pytest wrote it
    assert "? unknown" in html.read_text()


def test_one_node_that_does_not_answer(switched: Path) -> None:
    ended = verify(switched, "--limit", "spark2")
    assert ended.code == 1, ended.text
    assert "Connection refused" in ended.text


def test_a_switch_that_does_not_answer(switched: Path) -> None:
    ended = verify(switched, "--limit", "crs812", word="hunter2")
    assert ended.code == 1, ended.text
    assert "refused" in ended.text
    assert "hunter2" not in ended.text


def test_a_secret_that_is_missing(switched: Path) -> None:
    ended = verify(switched, "--limit", "crs812", word="")
    assert ended.code == 1, ended.text
    assert "CRS812_PASSWORD" in ended.text


MEMORY = "roles/memory/verify.py"
Prove = Callable[..., list[Outcome]]


class Made:
    """A proof that is made up, and what it was asked for."""

    def __init__(self, outcomes: list[Outcome]) -> None:
        self.outcomes = outcomes
        self.asked: list[tuple[object, ...]] = []

    def __call__(self, _rack: object, files: list[Path], machines: list[str], *more: object) -> list[Outcome]:
        self.asked.append((files, machines, *more))
        return self.outcomes


class Observed:
    """Observations of links that are as declared, until `change`; and what they were asked for."""

    def __init__(self, change: Change | None = None) -> None:
        self.change = change
        self.asked: list[tuple[list[str], list[str]]] = []

    def __call__(self, rack: Rack, limit: Iterable[str], excluded: Iterable[str], _progress: object) -> Observations:
        self.asked.append((sorted(limit), sorted(excluded)))
        reported = answers(rack)
        if self.change:
            self.change(reported)
        return reported.seen()


def run(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    outcomes: list[Outcome],
    *words: str,
    rack: str = SWITCH,
    links: Callable[..., Observations] | None = None,
) -> tuple[Result, Made]:
    (folder / "rack.yaml").write_text(rack)
    made = Made(outcomes)
    monkeypatch.setattr(report_drawing, "collect_observations", links or Observed())
    monkeypatch.setattr(importlib.import_module("sparkrack.cli.verify"), "run_checks", made)
    monkeypatch.setenv("COLUMNS", "200")
    return CliRunner().invoke(sparkrack, ["verify", "--rack", str(folder / "rack.yaml"), *words]), made


def test_roles_that_are_left_alone_are_not_proven(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    text = changed(SWITCH, ("rack: two", "rack: two\nleave: [memory, docker]"))
    ended, made = run(monkeypatch, tmp_path, fine(), "--json", rack=text)
    assert ended.exit_code == 0, ended.output
    (asked,) = made.asked
    files = {path.parent.name for path in asked[0]}  # type: ignore[attr-defined]
    assert "fabric" in files
    assert files.isdisjoint({"memory", "docker"})
    printed = json.loads(ended.stdout)
    assert [one for one in printed["skipped"] if one["role"] in ("memory", "docker")] == [
        {"role": role, "text": "the rack file leaves this role alone"} for role in ("memory", "docker")
    ]
    ended, made = run(monkeypatch, tmp_path, [], "--only", "memory", rack=text)
    assert (ended.exit_code, made.asked) == (1, [])
    assert "nothing was proven" in ended.output


BAD, DARK = failed("spark1", "memory", "spark1: swap is on"), failed("spark2", "memory", DEAD, unknown=True)


@pytest.mark.parametrize(
    ("outcomes", "words", "code", "last"),
    [
        (fine(), [], 0, f"{len(fine())} passed, 0 failed"),
        ([*fine(), BAD], [], 2, f"{len(fine())} passed, 1 failed"),
        ([*fine(), BAD], ["--quiet"], 2, f"{len(fine())} passed, 1 failed"),
        ([*fine(), BAD], ["--brief"], 2, f"{len(fine())} passed, 1 failed"),
        ([*fine(), BAD], ["--json"], 2, f"{len(fine())} passed, 1 failed"),
        ([*fine(), DARK], [], 1, f"{len(fine())} passed, 0 failed, 1 unknown"),
        ([*fine(), BAD, DARK], [], 1, f"{len(fine())} passed, 1 failed, 1 unknown"),
        ([], [], 1, "nothing was proven"),
        ([skipped("spark1", "memory", "not declared")], [], 1, "nothing was proven"),
        (
            fine(),
            ["--limit", "spark9"],
            1,
            "Error: --limit spark9: not in the rack; there are spark1, spark2, crs812; did you mean spark2?",
        ),
        (
            fine(),
            ["--exclude", "spark9"],
            1,
            "Error: --exclude spark9: not in the rack; there are spark1, spark2, crs812; did you mean spark2?",
        ),
        (fine(), ["--limit", "spark1", "--exclude", "spark1"], 1, "Error: --limit and --exclude leave no machine"),
        (fine(), ["--only", "nothing"], 1, ""),
        (
            fine(),
            ["--html", "/proc/version/report.html"],
            1,
            "Error: /proc/version/report.html: no folder for it: File exists",
        ),
        (
            fine(),
            ["--junit", "/proc/version/out.xml"],
            1,
            "Error: /proc/version/out.xml: no folder for it: File exists",
        ),
    ],
)
def test_how_it_ends(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, outcomes: list[Outcome], words: list[str], code: int, last: str
) -> None:
    ended, _ = run(monkeypatch, tmp_path, outcomes, *words)
    assert ended.exit_code == code, ended.output
    reported = ended.stderr if "--json" in words or ended.stderr else ended.stdout
    assert reported.rstrip("\n").endswith(last)


def test_a_fault_of_writing_is_known_before_the_proof(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    _, made = run(monkeypatch, tmp_path, fine(), "--html", "/proc/version/report.html")
    assert made.asked == []


def test_what_is_not_a_file_is_not_replaced_by_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    # As /dev/null is none; but that one would be gone for the whole machine if this failed.
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    ended, made = run(monkeypatch, tmp_path, fine(), "--html", str(pipe))
    assert (ended.exit_code, made.asked, pipe.is_fifo()) == (1, [], True)
    assert ended.stderr == f"Error: {pipe}: is not a file, and would be replaced by one\n"


def test_which_machines_are_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for words, machines, excluded in (
        ([], ["spark1", "spark2", "crs812"], []),
        (["--limit", "spark2", "--limit", "spark2"], ["spark2"], []),
        (["--limit", "@routeros/crs812"], ["crs812"], []),
        (["--limit", "crs812", "--limit", "spark1"], ["spark1", "crs812"], []),
        (["--exclude", "spark2"], ["spark1", "crs812"], ["spark2"]),
        (["--limit", "spark1", "--limit", "crs812", "--exclude", "@routeros/crs812"], ["spark1"], ["crs812"]),
    ):
        _, made = run(monkeypatch, tmp_path, fine(), *words)
        ((_, asked, _, _, apart, *_),) = made.asked
        assert (asked, apart) == (machines, set(excluded)), words


def test_json_alone_is_on_standard_output(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ended, _ = run(monkeypatch, tmp_path, [*fine(), BAD], "--json")
    assert json.loads(ended.stdout)["failures"][0]["reason"] == "spark1: swap is on"
    assert "checks passed" in ended.stderr


NOTED = passed("spark1", "rdma", notes=("a note",))


@pytest.mark.parametrize(
    ("words", "seen", "unseen"),
    [
        ([], ["checks passed", "failed memory: spark1: swap is on", "skipped images: no", "note rdma: a note"], []),
        (["--brief"], ["checks passed"], ["swap is on"]),
        (["--quiet"], ["failed memory: spark1: swap is on"], ["checks passed", "skipped", "a note"]),
        (["--quiet", "--brief"], [], ["checks passed", "skipped", "a note", "swap is on"]),
    ],
)
def test_how_much_is_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str], seen: list[str], unseen: list[str]
) -> None:
    ended, _ = run(monkeypatch, tmp_path, [*fine(), BAD, NOTED, skipped("spark1", "images", "no")], *words)
    assert [text for text in seen if text not in ended.stdout] == []
    assert [text for text in unseen if text in ended.stdout] == []
    assert "\x1b" not in ended.stdout, "no terminal, no colours"


def test_quiet_and_nothing_wrong_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert run(monkeypatch, tmp_path, fine(), "--quiet")[0].output == f"{len(fine())} passed, 0 failed\n"


def test_words_of_a_machine_are_no_markup(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    ended, _ = run(monkeypatch, tmp_path, [failed("spark1", "memory", "[bold]x[/bold] [/] \x1b[31m")], "--quiet")
    assert ended.stdout.splitlines()[0] == "failed memory: [bold]x[/bold] [/] \\x1b[31m"


def test_a_page_is_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    html = tmp_path / "new/report.html"
    ended, _ = run(monkeypatch, tmp_path, [*fine(), BAD], "--html", str(html))
    assert ended.exit_code == 2
    assert "swap is on" in html.read_text()
    assert stat.S_IMODE(html.stat().st_mode) == 0o644


def test_a_link_to_a_page_stays_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "link.html").symlink_to("real.html")
    run(monkeypatch, tmp_path, fine(), "--html", str(tmp_path / "link.html"))
    assert (tmp_path / "link.html").is_symlink()
    assert "As declared" in (tmp_path / "real.html").read_text()


def test_a_missing_dot_does_not_cost_the_page(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def render(_: object) -> str:
        raise DrawingError("there is no program dot")

    monkeypatch.setattr(report_drawing, "render", render)
    html = tmp_path / "report.html"
    ended, _ = run(monkeypatch, tmp_path, fine(), "--html", str(html))
    assert ended.exit_code == 0
    assert "No picture: there is no program dot." in html.read_text()


def slow(reported: Answers) -> None:
    reported.monitor["qsfp56-dd-1-3"]["rate"] = "50Gbps"


def links_of(html: Path) -> str:
    text = html.read_text()
    return " ".join(re.sub("<[^>]*>", " ", text[text.index('id="picture"') : text.index('id="pairs"')]).split())


def test_the_picture_of_the_page_compares_the_links(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    html, links = tmp_path / "report.html", Observed(slow)
    ended, _ = run(monkeypatch, tmp_path, fine(), "--html", str(html), links=links)
    assert (ended.exit_code, links.asked) == (0, [([], [])])
    shown = links_of(html)
    assert "spark1/1 – crs812/qsfp56-dd-1-1 ✓ fine" in shown
    assert "actual: 100G, MTU 9000, switch hears the node on qsfp56-dd-1-1" in shown
    assert "spark2/1 – crs812/qsfp56-dd-1-3 ✗ mismatch" in shown
    assert "mismatch: leg qsfp56-dd-1-3 is at 50G, wanted 100G" in shown
    assert "ompared with" not in shown
    (picture,) = re.findall(r'class="light" src="data:image/svg\+xml;base64,([^"]*)"', html.read_text())
    assert "2 links: 1 fine, 1 mismatch, 0 unknown" in b64decode(picture).decode()


def test_links_are_observed_where_the_run_may_look(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    html = str(tmp_path / "report.html")
    for words, asked in (
        (["--limit", "spark2"], [(["spark2"], [])]),
        (["--exclude", "spark2"], [(["crs812", "spark1"], ["spark2"])]),
        (["--only", "memory"], []),
        (["--only", "switch"], [([], [])]),
    ):
        links = Observed()
        run(monkeypatch, tmp_path, fine(), "--html", html, *words, links=links)
        assert links.asked == asked, words
    links = Observed()
    run(monkeypatch, tmp_path, fine(), links=links)
    assert links.asked == [], "there is no page"


def test_links_that_are_not_compared_have_a_reason(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full(*_: object) -> Observations:
        raise OSError(28, "No space left on device", "/tmp/x")  # noqa: S108 - no file is made

    html = tmp_path / "report.html"
    run(monkeypatch, tmp_path, fine(), "--html", str(html), links=full)
    why = "the observation ended with an error: /tmp/x: No space left on device"
    assert f"Not compared with the actual links: {why}." in links_of(html)
    run(monkeypatch, tmp_path, fine(), "--html", str(html), "--only", "memory")
    assert "Not compared with the actual links: this run checked neither the fabric nor the switch." in links_of(html)


def test_each_role_is_checked_by_the_file_of_its_own_package() -> None:
    found = {key: verify_files((key,)) for key in CHECKED_ROLES}
    assert found["memory"] == [REPOSITORY / "roles/memory/verify.py"]
    assert [path for paths in found.values() for path in paths] == verify_files()
    assert len(set(verify_files())) == len(CHECKED_ROLES)
    assert all(path.is_file() for path in verify_files())
