"""`sparkrack up` shows one plan, asks once, goes through the phases, and finds a rack that is up with nothing to do."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from core.util.command_error import DeclinedError
from core.util.event import Event, EventKind
from sparkrack.engine.plan import HostPlan, HostState, Message, OperationPlan, Plan
from sparkrack.rebuild.bring_up import BringUp
from sparkrack.rebuild.model import Phase
from tests.own_terminal import Terminal
from tests.tiers import sampled
from tests.unit.rebuild.rebuild_folder import Workdir, after
from tests.unit.rebuild.test_reboot_reasons import status
from tests.unit.rebuild.test_runner import Rebuilt, whole

NOW = datetime(2026, 3, 14, tzinfo=UTC)
CALLS = ["bootstrap nodes", "bootstrap switch", "plan", "status", "apply", "status", "verify"]
"""What a run calls on a rack with something to apply and nothing to restart."""
UNIT = """\
images:
- registry.example/vllm:0.19.0
models:
  qwen:
    source: Qwen/Qwen3-0.6B
    revision: main
serving:
  units:
    qwen:
      engine: vllm
      version: 0.19.0
      image: registry.example/vllm:0.19.0
      model: qwen
      nodes:
      - spark1
      context: 4096
      memory: 0.5
"""


def plan(state: HostState) -> str:
    event = Message.of(Event(EventKind.FILE, subject="/etc/x"))
    steps = (OperationPlan(role="memory", title="x", commands=1, events=(event,)),)
    hosts = tuple(HostPlan(name=name, kind="node", state=state, operations=steps) for name in ("spark1", "spark2"))
    made = Plan(rack="two", file="f", revision="", made=NOW, roles=("memory",), hosts=hosts)
    return made.model_dump_json(by_alias=True)


def unit_state(state: str) -> str:
    unit = {"unit": "qwen", "head": "spark1", "desired_state": "up", "state": state, "reason": "", "restarts": {}}
    unit["restarts"] = {"allowed": 1, "within": 60}
    found = {"schema": "sparkrack.serve-status/1", "rack": "two", "file": "f", "made": "2026-03-14T09:15:00Z"}
    return json.dumps({**found, "units": [unit]})


class UpFolder(Workdir):
    """The folder of an operator who brings a rack up: the plan has changes until apply has run."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.verb = "up"
        self.changed()

    def changed(self) -> None:
        """Have the plan changes until the next apply."""
        (self.folder / "plan.json").write_text(plan(HostState.CHANGES))
        self.does("plan", exit=2)
        self.does("apply", then={"plan.json": plan(HostState.IN_SYNC), "verbs/plan": "{}"})

    def killed_in(self, verb: str, *words: str) -> None:
        """The same, and the verb does afterwards as before."""
        behaviour = self.folder / "verbs" / verb
        before = behaviour.read_text() if behaviour.exists() else "{}"
        super().killed_in(verb, *words)
        behaviour.write_text(before)

    def asked(self, answer: str) -> subprocess.CompletedProcess[str]:
        """Run on a terminal, and answer its question as soon as it is there. Return the screen as stdout.

        Python can miss a signal that comes just before it begins to read: Ctrl-C is pressed again after 5 s.
        """
        with Terminal(self.command(), self.environment) as terminal:
            while terminal.read_more():
                missed = terminal.shown.endswith("[y/N]: ^C") and terminal.is_silent_for(5)
                if missed or terminal.shown.endswith("[y/N]: "):
                    terminal.type_keys(answer.encode())
            return subprocess.CompletedProcess(terminal.process.args, terminal.finish(), terminal.shown, "")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[UpFolder]:
    made = UpFolder(tmp_path)
    yield made
    made.close()


def test_a_run_asks_once_after_its_plan_and_goes_to_the_end(folder: UpFolder) -> None:
    done = folder.asked("y\n")
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("[y/N]") == 1
    asked = done.stdout.index("Bring the rack up? [y/N]")
    assert done.stdout.index("sparkrack plan") < asked < done.stdout.index("sparkrack apply")
    assert folder.verbs() == CALLS
    (shown,) = [words for words in folder.calls if words[0] == "plan"]
    (applied,) = [words for words in folder.calls if words[0] == "apply"]
    assert applied == ["apply", after(shown, "--out")[0], "--rack", str(folder.rack)], "what was shown is applied"
    assert not list(folder.journals[0].parent.glob("*.plan")), "the plan is removed"
    assert "--quiet" in folder.calls[-1], "the result of verify is one line"


@pytest.mark.parametrize("answer", ["n\n", "\n", "\x03", "\x04"], ids=["no", "enter", "ctrl-c", "end"])
def test_a_declined_plan_changes_nothing_and_is_asked_again(folder: UpFolder, answer: str) -> None:
    done = folder.asked(answer)
    assert done.returncode == 1, done.stdout
    assert folder.verbs() == CALLS[:4]
    assert "declined; nothing of this plan was done" in done.stdout
    assert "Next, to resume: sparkrack up --rack" in done.stdout
    assert folder.asked("y\n").returncode == 0
    assert folder.verbs()[4:] == CALLS[2:], "the first contact is not repeated"


def test_no_terminal_and_no_consent_is_refused_before_anything(folder: UpFolder) -> None:
    done = folder.run()
    assert (done.returncode, folder.calls) == (1, [])
    assert "there is no terminal for a prompt; pass -y" in done.stderr


LEFT = {
    "bootstrap": CALLS,
    "plan": CALLS[2:],
    "apply": CALLS[2:],
    "reboot": ["plan", "status", "status", "reboot", "verify"],
    "verify": ["plan", "status", "status", "verify"],
}
"""What is called by the run after the one that was killed in that verb; `reboot`: a node asks for a restart."""


@pytest.mark.parametrize("verb", sampled(LEFT, 2))
def test_killed_in_a_verb_it_resumes_with_the_same_command(folder: UpFolder, verb: str) -> None:
    folder.status(spark1=False, spark2=verb == "reboot")
    folder.killed_in(verb, "-y")
    assert (folder.folder / "ended").read_text() == f"{verb} {int(signal.SIGTERM)}\n"
    before = len(folder.calls)
    done = folder.run("-y")
    assert done.returncode == 0, done.stderr
    assert folder.verbs(before) == LEFT[verb]
    assert len(folder.journals) == 1


def test_a_rack_that_is_up_ends_at_once(folder: UpFolder) -> None:
    assert folder.run("-y").returncode == 0
    before = len(folder.calls)
    done = folder.run("-y")
    assert (done.returncode, folder.verbs(before)) == (0, ["plan", "status"]), done.stderr
    assert done.stdout.splitlines()[-1].startswith("nothing to do: in sync, and verified at ")
    assert len(folder.journals) == 1


@pytest.mark.parametrize("what", ["changes", "restart", "unknown", "unfinished", "fresh"])
def test_a_rack_that_is_not_up_any_more_is_gone_through_again(folder: UpFolder, what: str) -> None:
    if what == "unfinished":
        folder.does("verify", exit=1)
    folder.run("-y")
    folder.does("verify", exit=0)
    if what == "changes":
        folder.changed()
    elif what == "restart":
        folder.status(spark1=False, spark2=True)
    elif what == "unknown":
        folder.does("plan", exit=1)
    before = len(folder.calls)
    done = folder.run("-y", *(("--fresh",) if what == "fresh" else ()))
    assert "nothing to do" not in done.stdout
    assert folder.verbs(before)[-1] == ("plan" if what == "unknown" else "verify")
    assert done.returncode == (1 if what == "unknown" else 0), done.stderr


def test_a_recipe_becomes_a_unit_that_is_started_and_told_how_to_be_asked(folder: UpFolder) -> None:
    (folder.folder / "import.yaml").write_text(UNIT)
    (folder.folder / "serve.json").write_text(unit_state("absent"))
    done = folder.run("-y", "--serve", "qwen-recipe")
    assert done.returncode == 0, done.stderr + done.stdout
    assert folder.calls[0] == ["serve", "import", "qwen-recipe", "--rack", str(folder.rack)]
    assert folder.verbs()[1:] == [*CALLS[:4], "serve status --rack", "apply", "status", "serve start qwen", "verify"]
    assert "nodes:\n      - spark1\n" in folder.rack.read_text()
    lines = done.stdout.splitlines()
    assert done.stderr.splitlines()[-1] == f"Next: sparkrack serve status qwen --rack {folder.rack}"
    assert lines[-2] == "unit qwen: http://127.0.0.1:8000/v1 on spark1, model qwen"
    assert lines[-1].startswith("  ssh -i ")
    assert "start unit qwen, and wait until an answer has proven it" in done.stdout
    (folder.folder / "serve.json").write_text(unit_state("ready"))
    before, text = len(folder.calls), folder.rack.read_text()
    again = folder.run("-y", "--serve", "qwen-recipe")
    assert "stands in" in again.stdout
    assert folder.verbs(before) == ["serve import qwen-recipe", "plan", "status", "serve status --rack"], again.stdout
    assert (folder.rack.read_text(), again.stdout.splitlines()[-2:]) == (text, lines[-2:])


GIVEN = ("--context", "4096", "--sequences", "8", "--memory", "0.5")
"""What a recipe may leave to its reader."""


def test_what_a_recipe_does_not_say_is_given_to_up(folder: UpFolder) -> None:
    """A resumed run needs it no more: the unit stands in rack.yaml."""
    (folder.folder / "import.yaml").write_text(UNIT)
    (folder.folder / "serve.json").write_text(unit_state("absent"))
    folder.does("verify", exit=1)
    done = folder.run("-y", "--serve", "qwen-recipe", *GIVEN)
    assert folder.calls[0] == ["serve", "import", "qwen-recipe", "--rack", str(folder.rack), *GIVEN]
    assert f"Next, to resume: sparkrack up --serve qwen -y --rack {folder.rack} --timeout 20\n" in done.stderr


@pytest.mark.parametrize("words", [GIVEN[:2], ("--serve", "qwen", *GIVEN[4:])])
def test_what_no_recipe_takes_is_refused(folder: UpFolder, words: tuple[str, ...]) -> None:
    folder.rack.write_text(folder.rack.read_text() + UNIT)
    done = folder.run("-y", *words)
    assert done.returncode == 1
    assert f"{words[-2]}: is for a recipe; change the unit in {folder.rack}" in " ".join(done.stderr.split())
    assert folder.calls == []


def test_a_refused_recipe_names_the_options_of_up(folder: UpFolder) -> None:
    folder.does("serve", exit=1)
    (folder.folder / "import.yaml").write_text("")
    done = folder.run("-y", "--serve", "qwen-recipe")
    assert done.returncode == 1
    assert "up takes --context, --sequences and --memory" in done.stderr


def test_a_recipe_with_which_the_file_is_not_valid_leaves_it_as_it_was(folder: UpFolder) -> None:
    before = folder.rack.read_text()
    (folder.folder / "import.yaml").write_text(UNIT.replace("context: 4096", "context: never"))
    done = folder.run("-y", "--serve", "qwen-recipe")
    assert done.returncode == 1
    assert "serving.units.qwen.context" in done.stderr
    assert (folder.rack.read_text(), folder.verbs()) == (before, ["serve import qwen-recipe"])


@pytest.mark.parametrize("away", [False, True])
def test_a_dry_run_calls_nothing_that_changes(folder: UpFolder, away: bool) -> None:
    folder.works = True
    if away:
        folder.marked("spark2", "foreign")
    (folder.folder / "import.yaml").write_text(UNIT)
    before = folder.rack.read_text()
    done = folder.run("--dry", "--serve", "qwen-recipe")
    assert done.returncode == 2, done.stderr
    assert folder.rack.read_text() == before
    assert folder.verbs() == ["serve import qwen-recipe", *(["bootstrap nodes"] if away else ["plan", "status"])]
    if away:
        assert folder.calls[-1][:3] == ["bootstrap", "nodes", "spark2"]
        assert folder.calls[-1][-1] == "--dry"
    assert folder.journals == []


# In this process


def brought_up(folder: Path, **more: Any) -> Rebuilt:
    one = Rebuilt(folder, whole(), make=BringUp, **more)
    one.commands.output = [status(spark1=False, spark2=False)]
    return one


def test_what_runs_is_left_alone(tmp_path: Path) -> None:
    """No node is asked what runs there: each command refuses by itself what would end it."""
    one = brought_up(tmp_path)
    one.found = {}
    assert one.run() == "failed", "no plan was kept"
    assert [call.split()[0] for call in one.commands.called] == ["bootstrap", "bootstrap", "plan"]
    assert one.rebuild.next is Phase.APPLY


def test_a_plan_without_changes_is_neither_asked_about_nor_applied(tmp_path: Path) -> None:
    def refuse(_: str) -> None:
        raise DeclinedError

    one = brought_up(tmp_path, ask=refuse)
    one.journal.path.with_suffix(".plan").write_text(plan(HostState.IN_SYNC))
    assert one.run() == "done"
    assert [call.split()[0] for call in one.commands.called][2:] == ["plan", "status", "status", "verify"]
    assert "nothing to apply, to restart or to start" in one.said
