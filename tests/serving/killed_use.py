"""`sparkrack serve use` as a program that ends itself by SIGKILL at a step."""

KILLED_USE = """\
import os, signal, sys
from core.model.yaml_editor import FileSnapshot
from sparkrack.cli.main import sparkrack
from sparkrack.serving import unit_run
from sparkrack.serving.coordinator import UnitCoordinator
unit_run.POLL_SECONDS = 0.5
at, put, ask, seen = sys.argv[1], FileSnapshot.put, UnitCoordinator._run_question, []
def passed(step):
    if step == at:
        os.kill(os.getpid(), signal.SIGKILL)
def killed_around_a_desired_state(self, *words):
    name = self.unit.name
    if words[0] != "status":
        passed(f"before {words[0]} of {name}")
        answer = ask(self, *words)
        passed(f"after {words[0]} of {name}")
        seen.append((name, words[0]))
        return answer
    answer = ask(self, *words)
    # A start of a second may lie between two polls: then the unit is killed once it is ready.
    for state, steps in (("down", ["down"]), ("starting", ["starting"]), ("ready", ["starting", "ready"])):
        if f'"state": "{state}"' in answer and any(one[0] == name for one in seen):
            for step in steps:
                passed(f"{name} is {step}")
    return answer
def killed_around_a_change(self, place, value):
    passed(f"before {value} in rack.yaml")
    found = put(self, place, value)
    passed(f"after {value} in rack.yaml")
    return found
UnitCoordinator._run_question, FileSnapshot.put = killed_around_a_desired_state, killed_around_a_change
sparkrack(["serve", "use", "-y", *sys.argv[2:]])
"""
"""Arguments: the step, such as `after down of toy`, `toy is starting`, `before up in rack.yaml`; those of the verb."""
