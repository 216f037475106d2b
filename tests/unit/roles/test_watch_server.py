"""The server of the role watch as pure functions: what is written, reloaded or restarted, and what is never shown."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from core.model import Rack
from core.model.declared_secrets import declared_secrets, secret_value
from core.model.fields import seconds
from core.model.secrets import SecretRef
from core.ops import apt
from core.ops.host_facts import HostReading
from core.ops.operation import Changeset
from core.probes.systemd_units import SystemdUnit
from roles.watch import apply, desired, notifications, rules, scrape
from roles.watch.facts import (
    METRICS_FILES,
    MODES,
    NOTIFICATIONS,
    OVERRIDES,
    OWN,
    PASSWORDS,
    PATHS,
    UNITS,
    FactsAndSecret,
    WatchFacts,
)
from tests.generated import REPOSITORY
from tests.unit.model.serving_racks import VLLM
from tests.unit.roles.watch_tools import HOOK, call, rack, written


@dataclass(frozen=True)
class Package:
    """A package and its unit, as the node has them."""

    unit: SystemdUnit
    pending: bool = False
    installed: bool = True


RUNNING = Package(SystemdUnit("loaded", "active", "enabled"))
URL = "http://hooks.example.org/s3cret"
NONE = "LoadState=not-found\nActiveState=inactive\nUnitFileState=\nNeedDaemonReload=no\n\n"
NO_UNITS = "".join(
    f"Id=sparkrack-{name}.{kind}\n{NONE}" for name in ("switch-reader", "node-metrics") for kind in ("service", "timer")
)
NOTIFY = "{server: spark1, notify: {webhook: {env: WATCH_WEBHOOK}}}"


def answer(units: dict[str, Package]) -> str:
    blocks = [
        f"Id={desired.unit(package)}\nLoadState={one.unit.load}\nActiveState={one.unit.active}\n"
        f"UnitFileState={one.unit.file}\nNeedDaemonReload={'yes' if one.unit.reload else 'no'}\n"
        for package, one in units.items()
    ]
    marks = "".join(f" watch-{package}" for package, one in units.items() if one.pending)
    installed = "".join(f" {package}" for package, one in units.items() if one.installed)
    return "\n".join(blocks) + f"\nmarks:{marks}\ninstalled:{installed}\npython: yes\n"


def server(
    found: Rack,
    changed: dict[str, bytes | None] | None = None,
    wrong: str = "",
    overrides: str = "",
    **units: Package,
) -> WatchFacts:
    """The facts of a server that has all as declared, but for these files, and units by package (`_` for `-`).
    `wrong`: what stands for mode and owner of the file of Alertmanager. `overrides`: lines of drop-ins of others."""
    node = found.nodes["spark1"]
    files: dict[str, bytes | None] = dict.fromkeys(PATHS)
    files |= {
        file.path: file.content
        for file in (
            desired.exporter_dropin(found, node),
            desired.prometheus_dropin(found),
            desired.alertmanager_dropin(found),
            rules.rule_file(found),
            scrape.prometheus_file(found),
        )
    }
    files |= changed or {}
    digest = hashlib.sha256(notifications.alertmanager_text(found, {HOOK: URL})).hexdigest()
    states = dict.fromkeys(desired.PACKAGES, RUNNING) | {key.replace("_", "-"): one for key, one in units.items()}
    modes = "".join(f"644 root:root {path}\n" for path in PATHS if files[path] is not None)
    texts = {
        UNITS: answer(states),
        MODES: modes,
        NOTIFICATIONS: f"{wrong or '640 root:prometheus'} {digest} {desired.NOTIFICATIONS}\n",
        OWN: NO_UNITS,
        PASSWORDS: "",
        OVERRIDES: overrides,
        METRICS_FILES: "",
    }
    return WatchFacts(HostReading({**files, **{key: text.encode() for key, text in texts.items()}}, {}), found, node)


def changes(facts: WatchFacts, url: str = URL) -> list[Changeset]:
    wanted = notifications.alertmanager_text(facts.rack, {HOOK: url})
    return [
        apply.run_exporter.changeset(facts),
        apply.run_prometheus.changeset(facts),
        apply.run_alertmanager.changeset(FactsAndSecret(facts, wanted)),
    ]


def texts(changeset: Changeset) -> list[str]:
    return [str(command).partition("; export LC_ALL=C; ")[2] for command in changeset.commands]


def test_a_server_as_declared() -> None:
    assert all(one.in_sync_reason for one in changes(server(rack(NOTIFY))))


def test_new_rules_are_read_while_it_runs() -> None:
    _, prometheus, _ = changes(server(rack(NOTIFY), {desired.RULES: b"groups: []\n"}))
    assert [event.message for event in prometheus.events] == [f"modify {desired.RULES}", "reload prometheus.service"]
    last = "systemctl reload prometheus.service || systemctl restart prometheus.service"
    assert texts(prometheus)[-1] == f"{last}; rm -f /run/sparkrack/watch-prometheus.pending"
    # The mark comes before the file: a run that dies between is seen by the next.
    mark, file = (
        next(place for place, text in enumerate(texts(prometheus)) if word in text)
        for word in (": > /run/sparkrack/watch-prometheus.pending", f'mv -fT "$new" {desired.RULES}')
    )
    assert mark < file


def test_new_arguments_restart_it() -> None:
    facts = server(rack(NOTIFY), {desired.dropin(desired.PROMETHEUS): b"[Service]\n"})
    _, prometheus, _ = changes(facts)
    assert prometheus.events[-1].message == "restart prometheus.service"
    assert texts(prometheus)[-1].startswith("systemctl daemon-reload; systemctl restart prometheus.service; ")


def test_files_of_a_run_that_died_are_read() -> None:
    """By a restart: among what it had written may be arguments that systemd has read since."""
    _, prometheus, alertmanager = changes(
        server(
            rack(NOTIFY),
            prometheus=replace(RUNNING, pending=True),
            prometheus_alertmanager=replace(RUNNING, pending=True),
        )
    )
    assert [event.message for event in prometheus.events] == ["restart prometheus.service: it has not read its files"]
    assert [event.message for event in alertmanager.events] == [
        "restart prometheus-alertmanager.service: it has not read its files"
    ]
    assert "systemctl restart prometheus.service; rm -f " in texts(prometheus)[-1]


def test_a_program_that_is_about_to_start_again_is_restarted() -> None:
    """systemd refuses to reload it."""
    facts = server(
        rack(NOTIFY),
        {desired.RULES: b"groups: []\n"},
        prometheus=replace(RUNNING, unit=replace(RUNNING.unit, active="activating")),
    )
    _, prometheus, _ = changes(facts)
    assert prometheus.events[-1].message == "restart prometheus.service"


def test_a_package_that_was_installed_by_half_is_installed() -> None:
    """Its unit is there before its user is."""
    unpacked = replace(RUNNING, unit=SystemdUnit("loaded", "inactive", "disabled"), installed=False)
    _, prometheus, _ = changes(server(rack(NOTIFY), prometheus=unpacked))
    assert [event.message for event in prometheus.events] == [
        "install prometheus",
        "enable prometheus.service",
        "start prometheus.service",
    ]
    assert any("dpkg --audit" in text for text in texts(prometheus))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "/etc/systemd/system/prometheus.service.d/zzz.conf:ExecStart=/bin/prometheus --web.listen-address=:9090",
            "/etc/systemd/system/prometheus.service.d/zzz.conf sets ExecStart = ",
        ),
        ("/run/systemd/system/prometheus-alertmanager.service.d/zzz.conf:MemoryMax=", " sets MemoryMax = "),
        (
            "/etc/systemd/system/sparkrack-node-metrics.timer.d/override.conf:OnUnitInactiveSec=1h",
            "override.conf changes sparkrack-node-metrics.timer, which is a unit of this role; remove that file",
        ),
    ],
)
def test_a_drop_in_of_others_that_changes_ours_is_reported(line: str, said: str) -> None:
    for changeset in changes(server(rack(NOTIFY), overrides=f"{line}\n")):
        (blocker,) = changeset.blockers
        assert said in blocker


@pytest.mark.parametrize(
    "line",
    [
        # Ours is read after it.
        "/etc/systemd/system/prometheus.service.d/override.conf:ExecStart=/usr/bin/prometheus",
        # Nothing that ours sets.
        "/etc/systemd/system/prometheus.service.d/zzz.conf:CPUQuota=50%",
        # It reads no switch.
        "/etc/systemd/system/sparkrack-switch-reader.timer.d/zzz.conf:OnCalendar=hourly",
    ],
)
def test_a_drop_in_of_others_that_changes_nothing_of_ours(line: str) -> None:
    assert all(one.in_sync_reason for one in changes(server(rack(NOTIFY), overrides=f"{line}\n")))


@pytest.mark.parametrize(
    ("wrong", "url"), [("644 root:prometheus", URL), ("640 root:root", URL), ("", "http://hooks.example.org/n3w")]
)
def test_the_file_with_secrets_is_written_and_never_shown(wrong: str, url: str) -> None:
    """Also where others may read it."""
    _, _, alertmanager = changes(server(rack(NOTIFY), wrong=wrong), url)
    assert [event.message for event in alertmanager.events] == [
        f"rewrite {desired.NOTIFICATIONS}",
        "reload prometheus-alertmanager.service",
    ]
    assert "hooks.example.org" not in repr(alertmanager.events)
    put = texts(alertmanager)[2]
    assert 'chown root:prometheus "$new"; chmod 640 "$new"; amtool check-config "$new" > /dev/null 2>&1 || {' in put
    assert "hooks.example.org" not in put


def test_a_secret_that_cannot_be_fetched_names_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("WATCH_WEBHOOK", raising=False)
    with pytest.raises(ValueError, match=r"watch\.notify\.webhook: environment variable WATCH_WEBHOOK is not set"):
        secret_value(rack(NOTIFY), HOOK)


def test_secrets_of_the_section_are_known() -> None:
    email = "{to: a@b.c, sender: a@b.c, smarthost: 'mail:25', user: a, password: {env: MAIL}}"
    found = rack(f"{{notify: {{webhook: {{env: WATCH_WEBHOOK}}, email: {email}}}}}")
    known = {secret.ref: secret.path for secret in declared_secrets(found)}
    assert known[HOOK] == ("watch", "notify", "webhook")
    assert known[SecretRef(env="MAIL")] == ("watch", "notify", "email", "password")
    assert set(notifications.secrets(found)) == {HOOK, SecretRef(env="MAIL")}


@pytest.mark.parametrize(
    "section",
    [
        "{}",
        NOTIFY,
        "{server: 10.77.0.50, notify: {email: {to: a@b.c, sender: a@b.c, smarthost: 'mail:25'}}}",
        "{notify: {email: {to: a@b.c, sender: a@b.c, smarthost: 'mail:25', user: a, password: {env: WATCH_WEBHOOK}}}}",
    ],
)
def test_the_files_are_sound(section: str, tmp_path: Path) -> None:
    """By Prometheus' and Alertmanager's own tools."""
    written(tmp_path, rack(section), {HOOK: URL})
    for words in (
        ("promtool", "check", "rules", tmp_path / "sparkrack-rules.yml"),
        ("promtool", "check", "config", tmp_path / "sparkrack.yml"),
        ("amtool", "check-config", tmp_path / "sparkrack-alertmanager.yml"),
    ):
        done = call(*words)
        assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_is_installed_where_it_is_a_package_of_its_own() -> None:
    text = apply._install_promtool().get_raw_value()
    begin, _, script = text.partition("command -v promtool > /dev/null && exit 0\n")
    assert begin.startswith("set -eu; ")
    assert script == apt.install_script("promtool", downgrade=False, held=False)
    assert "\nset -- promtool '' '*'\n" in script


def test_the_server_is_a_node_without_a_cap() -> None:
    """spark1 is of a vendor with a cap."""
    for section, name in (("{}", "spark2"), ("{server: spark1}", "spark1")):
        found = desired.server(rack(section))
        assert found is not None
        assert found.name == name
    assert desired.server(rack("{server: 10.77.0.50}")) is None
    assert str(desired.server_address(rack("{server: 10.77.0.50}"))) == "10.77.0.50"


UNIT = """
images: ["%s"]
models: {qwen: {source: Qwen/Qwen3, revision: main}}
serving:
  units:
    one: {engine: ENGINE, version: 0.19.1, image: "%s", model: qwen, nodes: [spark1], context: 4096, memory: 0.8,
      api: {listen: LISTEN}, state: STATE, args: {ARGS}}
"""


@pytest.mark.parametrize(
    ("server_of", "engine", "listen", "desired_state", "arguments", "asked"),
    [
        ("spark2", "vllm", "management", "up", "", "10.77.0.11:8000"),
        ("spark2", "vllm", "fabric", "up", "", "192.168.100.1:8000"),
        ("spark1", "vllm", "local", "up", "", "127.0.0.1:8000"),
        ("spark2", "vllm", "local", "up", "", ""),
        ("10.77.0.50", "vllm", "fabric", "up", "", ""),
        ("10.77.0.50", "vllm", "management", "up", "", ""),
        ("10.77.0.50", "vllm", "management, direct: [10.77.0.50/32]", "up", "", "10.77.0.11:8000"),
        ("spark2", "vllm", "management", "down", "", ""),
    ],
)
def test_units_that_are_asked(
    server_of: str, engine: str, listen: str, desired_state: str, arguments: str, asked: str
) -> None:
    text = UNIT % (VLLM, VLLM)
    for old, new in (("ENGINE", engine), ("LISTEN", listen), (": STATE", f": {desired_state}"), ("ARGS", arguments)):
        text = text.replace(old, new)
    found = rack(f"{{server: {server_of}}}", ("memory:\n  swap: false\n", f"memory:\n  swap: false\n{text}"))
    config = scrape.prometheus_file(found).content.decode()
    assert ("job_name: vllm" in config) == bool(asked)
    if asked:
        assert f"- {asked}\n    labels:\n      unit: one\n      node: spark1\n" in config


def longest_wait(found: Rack) -> int:
    """Seconds from the death of a node to the message at the receiver, at most: the sum of what the files say."""
    config = YAML(typ="safe", pure=True).load(scrape.prometheus_file(found).content)
    job = next(one for one in config["scrape_configs"] if one["job_name"] == "node")
    groups = YAML(typ="safe", pure=True).load(rules.rule_file(found).content)["groups"]
    alert = next(rule for group in groups for rule in group["rules"] if rule.get("alert") == "NodeSilent")
    route = YAML(typ="safe", pure=True).load(notifications.alertmanager_text(found, {HOOK: URL}))["route"]
    scrapes, evaluations = (seconds(config["global"][f"{what}_interval"]) for what in ("scrape", "evaluation"))
    pending = -(-seconds(alert["for"]) // evaluations) * evaluations
    return scrapes + seconds(job["scrape_timeout"]) + evaluations + pending + seconds(route["group_wait"])


def test_a_node_that_dies_is_reported_in_time() -> None:
    """90 s with the default interval, with a reserve; docs/roles/watch.md names the sums."""
    assert longest_wait(rack(NOTIFY)) == 75
    page = (REPOSITORY / "docs/roles/watch.md").read_text()
    for interval, named in (("5s", "within 75 s"), ("60s", "with 60 s")):
        wait = longest_wait(rack(NOTIFY.replace("{server", f"{{interval: {interval}, server")))
        assert f"{wait} s with " in page
        assert named in page
