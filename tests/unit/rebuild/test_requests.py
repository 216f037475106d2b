"""What a rebuild is asked for, which commands follow from it, and what is left of it: without a process."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from core.model import Rack, SecretRef
from sparkrack.rebuild import journal as rebuild_journal
from sparkrack.rebuild import phase_commands
from sparkrack.rebuild.journal import (
    CommandFinished,
    CommandStarted,
    Line,
    Past,
    PhaseFinished,
    PhaseStarted,
    RebuildFinished,
    RebuildJournal,
    RebuildResumed,
    RebuildStarted,
    journals,
    newest,
    past,
)
from sparkrack.rebuild.model import Phase, RebuildReport, Request, RequestError, phases, requested
from sparkrack.rebuild.phase_commands import ForwardedOptions
from tests.unit.model.racks import RING, SWITCH, changed, loaded

RACK = loaded(SWITCH)
FILE = Path("/srv/rack.yaml")
RUN = "20260314T091500-3fa2"


def ask(nodes: tuple[str, ...] = (), switch: str | None = None, whole: bool = False, **more: Any) -> Request:
    return requested(more.pop("rack", RACK), FILE, nodes, switch, whole, more.pop("apart", ()))


# The request


@pytest.mark.parametrize(
    ("request_", "kind", "nodes", "switches", "apart", "words"),
    [
        (ask(("spark2", "spark1")), "nodes", ("spark1", "spark2"), (), (), ("spark1", "spark2")),
        (ask(("nodes",)), "nodes", ("spark1", "spark2"), (), (), ("spark1", "spark2")),
        (ask(switch=""), "switch", (), ("crs812",), (), ("--switch", "crs812")),
        (ask(switch="crs812"), "switch", (), ("crs812",), (), ("--switch", "crs812")),
        (ask(whole=True), "all", ("spark1", "spark2"), ("crs812",), (), ("--all",)),
        (
            ask(whole=True, apart=("crs812", "spark1")),
            "all",
            ("spark2",),
            (),
            ("spark1", "crs812"),
            ("--all", "--exclude", "spark1", "--exclude", "crs812"),
        ),
        (
            ask(("spark2",), apart=("spark1",)),
            "nodes",
            ("spark2",),
            (),
            ("spark1",),
            ("spark2", "--exclude", "spark1"),
        ),
    ],
)
def test_a_request_names_its_machines_in_the_order_of_the_rack(
    request_: Request,
    kind: str,
    nodes: tuple[str, ...],
    switches: tuple[str, ...],
    apart: tuple[str, ...],
    words: tuple[str, ...],
) -> None:
    assert (request_.kind, request_.nodes, request_.switches) == (kind, nodes, switches)
    assert (request_.apart, request_.words, request_.machines) == (apart, words, (*nodes, *switches))
    assert (request_.rack, request_.file) == (RACK.rack, "/srv/rack.yaml")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ({}, "choose what is rebuilt: names of nodes, or --switch, or --all; one of the three"),
        ({"nodes": ("spark1",), "switch": ""}, "choose what is rebuilt: "),
        ({"switch": "", "whole": True}, "choose what is rebuilt: "),
        ({"switch": "crs813"}, "crs813 is not a switch of the rack; it has crs812"),
        ({"switch": "crs812", "apart": ("crs812",)}, "crs812 is rebuilt and excluded at once"),
        ({"whole": True, "apart": ("*",)}, "--exclude leaves no machine"),
        ({"switch": "", "rack": loaded(RING)}, "name the switch; the rack has none"),
        ({"switch": "x", "rack": loaded(RING)}, "x is not a switch of the rack; it has none"),
    ],
)
def test_a_request_that_cannot_be_meant_is_refused(words: dict[str, Any], why: str) -> None:
    with pytest.raises(RequestError) as refused:
        ask(**words)
    assert str(refused.value).startswith(why)


def test_a_path_that_no_journal_can_hold_is_refused() -> None:
    with pytest.raises(RequestError, match=r"rack\\udcff\.yaml: the path is not UTF-8 text, so no journal can hold it"):
        requested(RACK, Path("/srv/rack\udcff.yaml"), ("spark1",), None, False)


def test_the_same_rebuild_is_resumed_whatever_units_rack_yaml_has_now() -> None:
    one = ask(("spark1",))
    assert one.resumes(one.model_copy(update={"units": ("qwen",)}))
    assert not one.resumes(ask(("spark2",)))
    assert not one.resumes(ask(("spark1",), apart=("spark2",)))


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (ask(("spark1",)), "wait bootstrap apply reboot verify"),
        (ask(switch=""), "wait bootstrap apply verify"),
        (ask(switch="").model_copy(update={"units": ("qwen",)}), "wait bootstrap apply start verify"),
        (ask(whole=True).model_copy(update={"units": ("qwen",)}), "wait bootstrap apply reboot start verify"),
    ],
)
def test_a_switch_is_not_restarted_and_without_units_none_is_started(request_: Request, expected: str) -> None:
    assert " ".join(phases(request_)) == expected


@pytest.mark.parametrize(("result", "code"), [("done", 0), ("failed", 1), ("interrupted", 1)])
def test_only_a_rebuild_that_is_done_ends_with_0(result: Any, code: int) -> None:
    report = RebuildReport(
        rack="two",
        file="f",
        machines=(),
        run=RUN,
        journal="j",
        resumed=None,
        result=result,
        seconds=0,
        phases=(),
        restarted=(),
        again=None,
    )
    assert report.code == code


# The commands


OPTIONS = ForwardedOptions(
    login="nvidia",
    node_password=SecretRef(env="A"),
    host_keys="keys",
    replace_host_key=True,
    switch_password=SecretRef(file=Path("/sticker")),
    switch_address="10.0.0.9",
    replace_fingerprint=True,
    packages="/npk",
    timeout=20.5,
)
OF_NODES = ("--as", "nvidia", "--node-password-env", "A", "--host-keys", "keys", "--replace-host-key")
OF_SWITCH = (
    *("--switch-password-file", "/sticker", "--switch-address", "10.0.0.9", "--replace-fingerprint"),
    *("--packages", "/npk"),
)


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        ({}, (*OF_NODES, *OF_SWITCH)),
        ({"switch": False}, OF_NODES),
        ({"nodes": False}, OF_SWITCH),
        ({"nodes": False, "switch": False}, ()),
    ],
)
def test_the_options_of_a_rebuild_are_given_as_they_were_written(
    parts: dict[str, bool], expected: tuple[str, ...]
) -> None:
    assert OPTIONS.words(**parts) == (*expected, "--timeout", "20.5")
    assert ForwardedOptions().words(**parts) == ()


def test_each_verb_gets_the_options_that_it_has() -> None:
    request = ask(whole=True)
    rack = ("--rack", "/srv/rack.yaml")
    assert phase_commands.bootstrap_nodes(request, OPTIONS) == (
        *("bootstrap", "nodes", "spark1", "spark2", *rack, "--as", "nvidia", "--password-env", "A"),
        *("--host-keys", "keys", "--replace-host-key", "--timeout", "20.5"),
    )
    of_switch = ("--address", "10.0.0.9", "--password-file", "/sticker", "--replace-fingerprint")
    bootstrap = ("bootstrap", "switch", "crs812", *rack, *of_switch, "--timeout", "20.5")
    assert phase_commands.bootstrap_switch(request, OPTIONS, "crs812") == bootstrap
    upgrade = ("upgrade", "switch", "crs812", "-y", "--no-nodes", *rack, "--packages", "/npk", *of_switch)
    assert phase_commands.upgrade_switch(request, OPTIONS, "crs812", "/npk") == upgrade
    reboot = ("reboot", "-y", *rack, "--limit", "spark1")
    assert phase_commands.reboot(request, "spark1", False) == reboot
    assert phase_commands.reboot(request, "spark1", True) == (*reboot, "--containers")
    assert phase_commands.stop_unit(request, "qwen") == ("serve", "stop", "qwen", *rack)
    assert phase_commands.start_unit(request, "qwen") == ("serve", "start", "qwen", *rack)


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (ask(whole=True), ["apply -y --rack /srv/rack.yaml"]),
        (ask(whole=True, apart=("spark1",)), ["apply -y --rack /srv/rack.yaml --exclude spark1"]),
        (ask(switch=""), ["apply -y --rack /srv/rack.yaml --limit crs812"]),
        (ask(("nodes",)), ["apply -y --rack /srv/rack.yaml --limit spark1 --limit spark2"]),
        (ask(("spark2",), apart=("spark1",)), ["apply -y --rack /srv/rack.yaml --limit spark2"]),
    ],
)
def test_apply_goes_over_what_is_rebuilt(request_: Request, expected: list[str]) -> None:
    assert [" ".join(words) for words in phase_commands.apply(request_, RACK)] == expected


def test_one_node_is_applied_alone_before_keys_and_images_reach_the_others() -> None:
    first, second = phase_commands.apply(ask(("spark2",)), RACK)
    assert first[:6] == ("apply", "-y", "--rack", "/srv/rack.yaml", "--limit", "spark2")
    assert {"access", "fabric", "docker"} <= {*first[7::2]}
    assert not {"images", "switch"} & {*first[7::2]}
    assert second == (
        *("apply", "-y", "--rack", "/srv/rack.yaml", "--limit", "spark1", "--limit", "spark2", "--only", "access"),
    )


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        (ask(whole=True), [""]),
        (ask(whole=True, apart=("spark1",)), [" --exclude spark1"]),
        (ask(switch=""), [" --only switch --only lossless --only fabric"]),
        (
            ask(switch="", apart=("spark1",)),
            [" --only switch --only lossless --only fabric --exclude spark1"],
        ),
        (ask(("nodes",)), [" --limit spark1 --limit spark2"]),
        (ask(("spark2",), apart=("spark1",)), [" --limit spark2 --exclude spark1"]),
        (ask(("spark2",)), [" --limit spark2", " --quiet --limit spark1 --only access"]),
    ],
)
def test_verify_proves_what_was_rebuilt_and_the_keys_of_the_others(request_: Request, expected: list[str]) -> None:
    found = [" ".join(words) for words in phase_commands.verify(request_, RACK)]
    assert found == [f"verify --rack /srv/rack.yaml{words}" for words in expected]


def test_the_keys_of_a_rack_that_leaves_them_alone_are_not_verified() -> None:
    rack = loaded(f"leave: [access]\n{SWITCH}")
    assert len(phase_commands.verify(ask(("spark2",), rack=rack), rack)) == 1


@pytest.mark.parametrize(
    ("request_", "nodes"),
    [
        (ask(("spark2",)), ("spark2",)),
        (ask(switch=""), ("spark1", "spark2")),
        (ask(switch="", apart=("spark1",)), ("spark2",)),
        (ask(whole=True, apart=("spark1", "spark2")), ()),
    ],
)
def test_the_work_of_a_node_is_affected_by_its_own_rebuild_and_that_of_its_switch(
    request_: Request, nodes: tuple[str, ...]
) -> None:
    assert phase_commands.affected_nodes(RACK, request_) == nodes


SERVING = """\
  swap: false
images: [nvcr.io/nvidia/vllm:26.04-py3]
models: {qwen: {source: Qwen/Small}}
serving:
  units:
    alone: {engine: vllm, version: 0.19.1, image: 'nvcr.io/nvidia/vllm:26.04-py3', model: qwen, nodes: [spark1],
      context: 65536, memory: 0.8, state: down}
    one: {engine: vllm, version: 0.19.1, image: 'nvcr.io/nvidia/vllm:26.04-py3', model: qwen, nodes: [spark1, spark2],
      parallel: {tensor: 2}, context: 65536, memory: 0.8, state: up}
"""
SERVED: Rack = loaded(changed(SWITCH, ("  swap: false\n", SERVING)))
LEFT_ALONE: Rack = loaded(
    changed(SWITCH, ("  swap: false\n", SERVING), ("rack: two\n", "rack: two\nleave: [serving]\n"))
)


@pytest.mark.parametrize(
    ("request_", "units", "besides", "started"),
    [
        (ask(("spark2",)), ["one"], ("spark1",), ("one",)),
        (ask(("spark1",)), ["alone", "one"], ("spark2",), ("one",)),
        (ask(switch="", apart=("spark1", "spark2")), ["one"], ("spark1", "spark2"), ("one",)),
        (ask(switch=""), ["alone", "one"], (), ("one",)),
    ],
)
def test_units_with_a_rank_on_an_affected_node_or_over_the_switch_are_affected(
    request_: Request, units: list[str], besides: tuple[str, ...], started: tuple[str, ...]
) -> None:
    assert list(phase_commands.affected_units(SERVED, request_)) == units
    assert phase_commands.asked_besides(SERVED, request_) == besides
    assert phase_commands.units_to_start(SERVED, request_) == started
    assert phase_commands.affected_units(RACK, request_) == {}
    assert phase_commands.units_to_start(RACK, request_) == ()
    assert phase_commands.units_to_start(LEFT_ALONE, request_) == ()


@pytest.mark.parametrize("request_", [ask(whole=True), ask(switch="")])
def test_apply_of_a_switch_asks_no_node_of_a_rack_that_serves(request_: Request) -> None:
    assert phase_commands.apply(request_, SERVED)[0][-1] == "--no-nodes"


# The journal

STARTED = RebuildStarted(run=RUN, who="ana@desk", request=ask(whole=True))
LINES: tuple[Line, ...] = (
    STARTED,
    PhaseStarted(run=RUN, phase=Phase.BOOTSTRAP),
    CommandStarted(run=RUN, words=("bootstrap", "switch", "crs812")),
    CommandFinished(run=RUN, exit=0, seconds=1.0),
    PhaseFinished(run=RUN, phase=Phase.BOOTSTRAP, result="failed", seconds=2.5),
    RebuildFinished(run=RUN, result="failed"),
    RebuildResumed(run=RUN, who="ana@desk", phase=Phase.BOOTSTRAP),
    PhaseStarted(run=RUN, phase=Phase.BOOTSTRAP),
    PhaseFinished(run=RUN, phase=Phase.BOOTSTRAP, result="done", seconds=0.5),
    PhaseStarted(run=RUN, phase=Phase.REBOOT),
    CommandFinished(run=RUN, exit=0, seconds=1.0, machine="spark1"),
    CommandFinished(run=RUN, exit=1, seconds=1.0, machine="spark2"),
)


def written(folder: Path, *lines: Line, run: str = RUN) -> Path:
    one = RebuildJournal(folder, run)
    for line in lines:
        one.write(line)
    one.close()
    return one.path


def test_what_an_earlier_process_has_done_is_read_from_its_journal(tmp_path: Path) -> None:
    found = past(written(tmp_path, *LINES))
    assert found == Past(tmp_path / f"{RUN}.ndjson", found.lines if found else ())
    assert found
    assert (found.began.who, found.finished, set(found.done)) == ("ana@desk", False, {Phase.BOOTSTRAP})
    assert found.restarted == ("spark1",)
    assert (found.tries(Phase.BOOTSTRAP), found.tries(Phase.REBOOT), found.tries(Phase.VERIFY)) == (2, 1, 0)
    assert (found.seconds(Phase.BOOTSTRAP), found.seconds(Phase.REBOOT)) == (3.0, 0)
    assert found.called("bootstrap", "switch", "crs812")
    assert found.called("bootstrap")
    assert not found.called("bootstrap", "nodes")
    assert not found.called("switch")


def test_only_a_rebuild_that_ended_well_is_finished(tmp_path: Path) -> None:
    found = past(written(tmp_path, *LINES, RebuildFinished(run=RUN, result="done")))
    assert found
    assert found.finished


@pytest.mark.parametrize(
    "lines",
    [
        (),
        LINES[1:],
        (STARTED, PhaseStarted(run="20260314T091500-0000", phase=Phase.WAIT)),
    ],
)
def test_a_journal_without_its_first_line_or_of_another_run_is_not_read(
    tmp_path: Path, lines: tuple[Line, ...]
) -> None:
    assert past(written(tmp_path, *lines)) is None


def test_an_incomplete_last_line_is_cut_off_before_the_next_is_written(tmp_path: Path) -> None:
    path = written(tmp_path, STARTED)
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"run"')
    found = past(path)
    assert found
    assert found.lines == past_of(whole)
    written(tmp_path, PhaseStarted(run=RUN, phase=Phase.WAIT))
    events = [json.loads(line)["event"] for line in path.read_bytes().splitlines()]
    assert events == ["began", "phase"]
    path.write_bytes(b'{"run"')
    RebuildJournal(tmp_path, RUN).close()
    assert path.read_bytes() == b""


def past_of(text: bytes) -> tuple[Line, ...]:
    return tuple(rebuild_journal._ANY.validate_json(line) for line in text.splitlines())


def test_each_line_is_on_the_disk_before_the_next_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", synced.append)
    one = RebuildJournal(tmp_path, RUN)
    assert len(synced) == 1, "the folder"
    one.write(STARTED)
    one.write(LINES[1])
    assert synced[1:] == [one._file] * 2
    one.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        one.write(STARTED)


def test_a_journal_is_written_to_its_end_and_for_its_owner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.write
    monkeypatch.setattr(os, "write", lambda file, data: real(file, data[:7]))
    path = written(tmp_path, STARTED)
    monkeypatch.undo()
    assert past(path)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_link_in_place_of_a_journal_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").touch()
    (tmp_path / f"{RUN}.ndjson").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic"):
        RebuildJournal(tmp_path, RUN)


def test_the_newest_journals_are_kept_with_their_logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebuild_journal, "MAX_JOURNALS", 3)
    assert newest(tmp_path) is None
    for number in range(4):
        path = written(tmp_path, run=f"2026031{number}T091500-3fa2")
        path.with_suffix(".log").touch()
    (tmp_path / "not of ours!.ndjson").touch()
    assert [path.stem[:8] for path in journals(tmp_path)] == ["20260311", "20260312", "20260313"]
    assert len(list(tmp_path.glob("*.log"))) == 3
    written(tmp_path, run="20260312T091500-3fa2")
    assert len(journals(tmp_path)) == 3, "a journal that is resumed replaces none"
    assert newest(tmp_path) == (tmp_path / "20260313T091500-3fa2.ndjson", None)
