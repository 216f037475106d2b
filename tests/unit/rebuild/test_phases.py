"""Which verbs a rebuild calls, with which words, and what it says at the end."""

from __future__ import annotations

import json
import shlex

import pytest

from tests.commands import parsed
from tests.unit.rebuild.desk import Desk, after

ALL = ["wait", "bootstrap", "apply", "reboot", "verify"]


def test_the_whole_rack(desk: Desk) -> None:
    done = desk.run("--all")
    assert done.returncode == 0, done.stderr
    assert desk.verbs() == ["bootstrap nodes", "bootstrap switch", "apply", "status", "verify"]
    assert desk.entered() == ALL
    nodes, switch, apply, _, verify = desk.calls
    assert nodes == ["bootstrap", "nodes", "spark1", "spark2", "--rack", str(desk.rack), "--patience", "20"]
    assert switch == ["bootstrap", "switch", "crs812", "--rack", str(desk.rack), "--patience", "20"]
    assert apply == ["apply", "-y", "--rack", str(desk.rack)]
    assert verify == ["verify", "--rack", str(desk.rack)]
    lines = done.stdout.splitlines()
    assert lines[-1].startswith("done: spark1, spark2, crs812 in ")
    table = lines[next(at for at, line in enumerate(lines) if line.startswith("phase ")) + 1 :]
    assert [line.split()[:2] for line in table[: len(ALL)]] == [[phase, "done"] for phase in ALL]


def test_a_node_alone_reaches_the_others_only_for_keys(desk: Desk) -> None:
    assert desk.run("spark2").returncode == 0
    bootstrap, alone, together, _, mine, others = desk.calls
    assert bootstrap[:3] == ["bootstrap", "nodes", "spark2"]
    assert after(alone, "--limit") == ["spark2"]
    assert {"access", "driver", "fabric", "docker"} <= set(after(alone, "--only"))
    assert not {"images", "switch"} & set(after(alone, "--only"))
    assert after(together, "--limit") == ["spark1", "spark2"]
    assert after(together, "--only") == ["access"], "no images are declared"
    assert after(mine, "--limit") == ["spark2"]
    assert (after(others, "--limit"), after(others, "--only")) == (["spark1"], ["access"])


def test_roles_that_the_rack_leaves_alone_are_not_asked_for(desk: Desk) -> None:
    desk.rack.write_text("leave: [access, driver, memory]\n" + desk.rack.read_text())
    assert desk.run("spark2").returncode == 0
    assert desk.verbs() == ["bootstrap nodes", "apply", "status", "verify"]
    assert not {"access", "driver", "memory"} & set(after(desk.calls[1], "--only"))
    assert {"preflight", "fabric", "docker"} <= set(after(desk.calls[1], "--only"))


def test_a_node_that_is_not_there_is_left_out(desk: Desk) -> None:
    assert desk.run("spark2", "--exclude", "spark1").returncode == 0
    assert desk.verbs() == ["bootstrap nodes", "apply", "status", "verify"]
    assert after(desk.calls[1], "--limit") == ["spark2"]
    assert after(desk.calls[1], "--only") == []
    assert after(desk.calls[3], "--exclude") == ["spark1"]


def test_the_switch_alone(desk: Desk) -> None:
    done = desk.run("--switch", "--switch-password-file", "sticker", "--replace-fingerprint")
    assert done.returncode == 0, done.stderr
    assert desk.verbs() == ["bootstrap switch", "apply", "verify"]
    assert desk.entered() == ["wait", "bootstrap", "apply", "verify"]
    assert after(desk.calls[0], "--password-file") == ["sticker"]
    assert "--replace-fingerprint" in desk.calls[0]
    assert after(desk.calls[1], "--limit") == ["crs812"]
    assert after(desk.calls[2], "--only") == ["switch", "lossless", "fabric"]


def test_a_switch_that_takes_our_login_gets_no_first_contact(desk: Desk) -> None:
    desk.works = True
    done = desk.run("--switch")
    assert done.returncode == 0, done.stderr
    assert desk.verbs() == ["apply", "verify"]
    assert "crs812: takes our login over the pinned certificate; no first contact is needed" in done.stdout


def test_options_go_to_the_verb_they_are_about(desk: Desk) -> None:
    nodes = ("--as", "nvidia", "--node-password-env", "A", "--host-keys", "keys", "--replace-host-key")
    switch = ("--switch-password-env", "B", "--switch-address", "127.77.0.2")
    assert desk.run("--all", *nodes, *switch).returncode == 0
    first, second = desk.calls[:2]
    assert first[6:] == [
        *("--as", "nvidia", "--password-env", "A", "--host-keys", "keys", "--replace-host-key"),
        *("--patience", "20"),
    ]
    assert second[5:] == ["--address", "127.77.0.2", "--password-env", "B", "--patience", "20"]


def test_only_a_node_that_asks_for_it_is_restarted(desk: Desk) -> None:
    desk.status(spark1=False, spark2=True)
    desk.runs("spark1", 0)
    done = desk.run("--all")
    assert done.returncode == 0, done.stderr
    (reboot,) = [words for words in desk.calls if words[0] == "reboot"]
    assert reboot == ["reboot", "--rolling", "--rack", str(desk.rack), "--limit", "spark2"]
    assert "restarted: spark2" in done.stdout
    assert desk.verbs()[-2:] == ["reboot", "verify"]


def test_a_node_that_does_not_say_whether_it_wants_a_restart_ends_it(desk: Desk) -> None:
    desk.status(spark1=False, spark2=None)
    done = desk.run("--all")
    assert done.returncode == 1
    assert "spark2: whether it should be restarted cannot be told" in done.stdout
    assert "reboot" not in desk.verbs()
    assert "verify" not in desk.verbs()


def test_a_verb_that_fails_ends_it_and_the_command_goes_on(desk: Desk) -> None:
    desk.does("apply", exit=1)
    done = desk.run("spark2", "--node-password-env", "A")
    assert done.returncode == 1
    assert "[3/5] apply: failed, " in done.stdout
    assert "sparkrack apply ended with 1" in done.stdout
    again = f"failed; to go on: sparkrack rebuild spark2 --rack {desk.rack} --node-password-env A --patience 20"
    assert done.stdout.splitlines()[-1] == again
    desk.does("apply")
    before = len(desk.calls)
    assert desk.run("spark2", "--node-password-env", "A").returncode == 0
    assert desk.verbs(before) == ["apply", "apply", "status", "verify", "verify"]


def test_a_proof_that_fails_is_no_success(desk: Desk) -> None:
    desk.does("verify", exit=2)
    done = desk.run("--all")
    assert done.returncode == 1
    assert "sparkrack verify ended with 2" in done.stdout


def test_json_is_all_that_stdout_has(desk: Desk) -> None:
    done = desk.run("--all", "--json")
    told = json.loads(done.stdout)
    assert told["schema"] == "sparkrack.rebuild/1"
    assert (told["result"], told["again"], told["resumed"]) == ("done", None, None)
    assert [phase["phase"] for phase in told["phases"]] == ALL
    assert "apply speaks" in done.stderr
    assert told["journal"] == str(desk.journals[0])


def test_a_password_is_in_no_word_no_journal_and_no_output(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A", "canary-of-the-nodes")
    (desk.folder / "sticker").write_text("canary-of-the-switch\n")
    desk.does("bootstrap", exit=1)
    words = ("--node-password-env", "A", "--switch-password-file", str(desk.folder / "sticker"))
    done = desk.run("--all", *words, "--json")
    desk.does("bootstrap")
    again = desk.run("--all", *words)
    kept = [path.read_text() for path in (desk.folder / "state").rglob("*") if path.is_file()]
    for text in (done.stdout, done.stderr, again.stdout, again.stderr, json.dumps(desk.calls), *kept):
        assert "canary" not in text
    assert again.returncode == 0
    assert len(kept) == 2, "a journal and a lock"


def test_a_machine_that_never_answers(desk: Desk) -> None:
    desk.away("spark2")
    done = desk.run("spark2", "--patience", "0")
    assert done.returncode == 1
    assert "spark2: no answer within 0 s; look at power, cable and address" in done.stdout
    assert desk.calls == []


@pytest.mark.parametrize("which", [("--all",), ("spark2",), ("--switch",)])
def test_every_command_that_is_called_exists(desk: Desk, which: tuple[str, ...]) -> None:
    desk.status(spark1=True, spark2=True)
    every = ("--as", "nvidia", "--host-keys", "keys", "--replace-host-key", "--replace-fingerprint")
    secrets = ("--node-password-env", "A", "--switch-password-env", "B", "--switch-address", "127.77.0.2")
    assert desk.run(*which, *every, *secrets, "--containers", "spark1").returncode == 0
    assert desk.calls
    for words in desk.calls:
        parsed(words)


def test_the_command_that_goes_on_exists(desk: Desk) -> None:
    desk.does("apply", exit=1)
    last = desk.run("--all", "--containers", "spark1", "--as", "nvidia").stdout.splitlines()[-1]
    words = shlex.split(last.partition("to go on: sparkrack ")[2])
    assert words[:2] == ["rebuild", "--all"]
    parsed(words)
