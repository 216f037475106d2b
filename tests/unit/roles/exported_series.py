"""The series that the programs of a node really export, as a scrape labels them, and the alerts that fire over them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from ruamel.yaml import YAML

from core.model import Rack
from roles.watch import rules, scrape
from serving import desired as serving_desired
from tests.serving.serve_modules import serve_unit
from tests.serving.stepped_unit import SteppedUnit
from tests.unit.model.serving_racks import unit as serving_unit
from tests.unit.ops.shells import write
from tests.unit.roles import recorder_runs, serving_units
from tests.unit.roles.healthy_watch import HEALTHY, Series, groups
from tests.unit.roles.promtool_rules import judged, values
from tests.unit.roles.recorder_runs import node as files_of_a_node
from tests.unit.roles.recorder_runs import recording, until
from tests.unit.roles.serving_units import locked
from tests.unit.roles.test_watch_node_metrics import ran

REALLY_WRITTEN = {"NodeRebootedWithoutCleanShutdown", "BlackBoxDisarmed", "GpuSlowdown", "NodeMetricsUnread"}
"""Alerts that fire over what the programs write of the node that stands for both: it was not shut down, its black box
is not armed, nvidia-smi names a thermal reason, and there is no systemd to ask.
"""


def written_by_a_node(folder: Path) -> list[Path]:
    """The real files of recorder and node metrics: of a boot that did not end cleanly, with a unit that starts."""
    root, file = files_of_a_node(folder / "root"), folder / "sparkrack-recorder.prom"
    with recording(folder, "--metrics", file, "--clock-cap", 2200):
        until(lambda: file.exists() and "sparkrack_gpu_sm_clock_hertz" in file.read_text())
    boot = recorder_runs.BOOT
    write(root, f"/var/lib/sparkrack/blackbox/boots/{boot}/evidence.json", '{"clean": false, "pstore": []}')
    unit, served = "/etc/sparkrack/serve/qwen.json", locked(serving_unit())
    write(root, unit, serving_units.content(serving_desired.files(served, "n0"), "one.json"))
    (folder / "unit").mkdir()
    kept = SteppedUnit(folder / "unit")
    assert kept.lifecycle.set_desired_state("up", False, kept.clock)[0]
    write(root, "/var/lib/sparkrack/serve/qwen.rank.json", '{"state": "running"}')
    serve_unit.write_record(str(root / "var/lib/sparkrack/serve/qwen.json"), kept.saved)
    done, metrics = ran(root)
    assert done.returncode == 0, done.stderr
    return [file, metrics]


def scraped(exported: str, *targets: Mapping[str, str], now: float) -> Series:
    """The series of a text that targets export, with the labels of their scrape, and how they go on from the second
    `now`, which is 0 for promtool: what tells its own time is renewed.
    """
    found: Series = {}
    for family in text_string_to_metric_families(exported):
        for one in family.samples:
            time_of_it = one.name.endswith("_timestamp_seconds")
            value = f"{one.value - now:.0f}+15" if time_of_it else f"{one.value:.16g}"
            for target in targets:
                assert not one.labels.keys() & target.keys(), f"{one}: the scrape would rename its label"
                labels = ",".join(f'{key}="{text}"' for key, text in {**one.labels, **target}.items())
                assert f"{one.name}{{{labels}}}" not in found, f"{one} is exported twice"
                found[f"{one.name}{{{labels}}}"] = value
    return found


def firing(folder: Path, real: Series, found: Rack) -> set[str]:
    """The alerts of a rack that fire after 12 minutes over real series, and those of HEALTHY that no program here
    writes. Fails for a rule that cannot be evaluated, and a series that is exported and recorded.
    """
    written = {name.partition("{")[0] for name in real}
    recorded = {rule["record"] for group in groups(found) for rule in group["rules"] if "record" in rule}
    assert not written & recorded
    others = {name: value for name, value in HEALTHY.items() if name.partition("{")[0] not in written}
    input_series = [{"series": name, "values": values(value, 12)} for name, value in {**others, **real}.items()]
    names = rules.alert_names(found)
    looked = [{"eval_time": "12m", "alertname": name, "exp_alerts": []} for name in names]
    said = judged(folder, {"interval": "15s", "input_series": input_series, "alert_rule_test": looked}, found)
    assert not [line for line in said.splitlines() if "err:" in line], said
    return set(re.findall(r"alertname: (\w+), time: 12m", said))


def scrape_labels(found: Rack) -> list[dict[str, str]]:
    """The labels that a scrape of each node adds to what the node exports."""
    document = YAML(typ="safe").load(scrape.prometheus_file(found).content.decode())
    (job,) = [one for one in document["scrape_configs"] if one["job_name"] == "node"]
    return [{"job": "node", "instance": target["targets"][0], **target["labels"]} for target in job["static_configs"]]
