"""The system menus beyond cages: what the factory leaves, what may be written, how it is printed again."""

from __future__ import annotations

from pathlib import Path

import pytest

from lab.routeros_emulator.errors import TrapError
from tests.emulator.in_process_device import Bench


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def refused(bench: Bench, *words: str) -> str:
    with pytest.raises(TrapError) as raised:
        bench.ask(*words)
    return raised.value.message


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("/system/clock", {"time-zone-name": "manual", "time-zone-autodetect": "true", "gmt-offset": "+00:00"}),
        ("/system/ntp/client", {"enabled": "false", "mode": "unicast", "servers": "", "status": "stopped"}),
        ("/ip/dns", {"servers": "", "allow-remote-requests": "false", "cache-max-ttl": "1w", "cache-size": "2048"}),
        ("/ip/neighbor/discovery-settings", {"discover-interface-list": "static", "protocol": "cdp,lldp,mndp"}),
        ("/ip/neighbor/discovery-settings", {"mode": "tx-and-rx", "lldp-dcbx": "false", "discover-interval": "30s"}),
        ("/snmp", {"enabled": "false", "trap-version": "1", "trap-community": "public", "src-address": "::"}),
        ("/snmp/community", {"name": "public", "security": "none", "addresses": "::/0", "default": "true"}),
        ("/tool/mac-server", {"allowed-interface-list": "all"}),
        ("/tool/mac-server/mac-winbox", {"allowed-interface-list": "all"}),
        ("/tool/mac-server/ping", {"enabled": "true"}),
        ("/tool/bandwidth-server", {"enabled": "true", "authenticate": "true", "max-sessions": "100"}),
    ],
)
def test_the_factory_state(bench: Bench, path: str, wanted: dict[str, str]) -> None:
    row = bench.one(path)
    assert row == row | wanted


def test_rows_of_the_factory(bench: Bench) -> None:
    rules = [(row["topics"], row["action"], row["default"]) for row in bench.rows("/system/logging")]
    assert rules == [
        *(("info", "memory", "true"), ("error", "memory", "true")),
        *(("warning", "memory", "true"), ("critical", "echo", "true")),
    ]
    actions = {row["name"]: row for row in bench.rows("/system/logging/action")}
    assert list(actions) == ["memory", "disk", "echo", "remote"]
    remote = {"target": "remote", "remote": "0.0.0.0", "remote-port": "514", "remote-log-format": "default"}  # noqa: S104
    assert actions["remote"] == actions["remote"] | remote
    assert "memory-lines" not in actions["remote"]
    assert [row["name"] for row in bench.rows("/interface/list")] == ["all", "none", "dynamic", "static"]
    assert bench.rows("/ip/neighbor") == []
    assert {row["name"] for row in bench.rows("/system/health")} >= {"cpu-temperature", "psu2-state"}


@pytest.mark.parametrize(
    ("words", "path", "wanted"),
    [
        (
            ["/system/clock/set", "=time-zone-name=Asia/Kolkata", "=time-zone-autodetect=no"],
            "/system/clock",
            {"time-zone-name": "Asia/Kolkata", "time-zone-autodetect": "false", "gmt-offset": "+05:30"},
        ),
        (
            ["/system/ntp/client/set", "=enabled=yes", "=servers=10.77.0.1,ntp.example"],
            "/system/ntp/client",
            {"enabled": "true", "servers": "10.77.0.1,ntp.example", "status": "waiting"},
        ),
        (["/ip/dns/set", "=servers=10.77.0.1,2001:DB8::1"], "/ip/dns", {"servers": "10.77.0.1,2001:db8::1"}),
        (["/ip/dns/set", "=servers="], "/ip/dns", {"servers": ""}),
        (["/ip/dns/set", "=cache-size=4096KiB"], "/ip/dns", {"cache-size": "4096"}),
        (
            ["/ip/neighbor/discovery-settings/set", "=protocol=lldp", "=lldp-dcbx=yes", "=discover-interval=60"],
            "/ip/neighbor/discovery-settings",
            {"protocol": "lldp", "lldp-dcbx": "true", "discover-interval": "1m"},
        ),
        (
            ["/ip/neighbor/discovery-settings/set", "=discover-interface-list=!dynamic", "=protocol="],
            "/ip/neighbor/discovery-settings",
            {"discover-interface-list": "!dynamic", "protocol": ""},
        ),
        (
            ["/tool/mac-server/set", "=allowed-interface-list=none"],
            "/tool/mac-server",
            {"allowed-interface-list": "none"},
        ),
        (["/tool/mac-server/ping/set", "=enabled=no"], "/tool/mac-server/ping", {"enabled": "false"}),
        (["/tool/bandwidth-server/set", "=enabled=no"], "/tool/bandwidth-server", {"enabled": "false"}),
        (["/snmp/set", "=enabled=yes", "=contact=noc"], "/snmp", {"enabled": "true", "contact": "noc"}),
    ],
)
def test_what_is_written_is_printed(bench: Bench, words: list[str], path: str, wanted: dict[str, str]) -> None:
    bench.ask(*words)
    row = bench.one(path)
    assert row == row | wanted


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["/system/clock/set", "=time-zone-name=Mars/Olympus"], "input does not match any value of time-zone-name"),
        (["/system/clock/set", "=gmt-offset=+01:00"], "unknown parameter gmt-offset"),
        (["/system/clock/set", "=time=25:00:00"], "invalid value for argument time"),
        (["/system/ntp/client/set", "=servers=a b"], "invalid value for argument servers"),
        (["/system/ntp/client/set", "=status=ok"], "unknown parameter status"),
        (["/system/ntp/client/servers/add"], "missing =address="),
        (["/ip/dns/set", "=servers=head"], "invalid value for argument servers"),
        (["/ip/dns/set", "=dynamic-servers=1.1.1.1"], "unknown parameter dynamic-servers"),
        (
            ["/ip/neighbor/discovery-settings/set", "=protocol=lldp,fdp"],
            "input does not match any value of protocol",
        ),
        (
            ["/ip/neighbor/discovery-settings/set", "=discover-interface-list=LAN"],
            "input does not match any value of discover-interface-list",
        ),
        (
            ["/tool/mac-server/set", "=allowed-interface-list=LAN"],
            "input does not match any value of allowed-interface-list",
        ),
        (["/tool/mac-server/print", "=colour=x"], "unknown parameter colour"),
        (["/system/logging/add", "=topics=info", "=action=none"], "input does not match any value of action"),
        (["/system/logging/remove", "=.id=*1"], "failure: can not remove default entry"),
        (
            ["/system/logging/action/add", "=name=my head", "=target=remote"],
            "failure: action name can contain only letters and numbers",
        ),
        (["/system/logging/action/add", "=name=head", "=target=paper"], "input does not match any value of target"),
        (
            ["/system/logging/action/add", "=name=remote", "=target=remote"],
            "failure: action with the same name already exists",
        ),
        (["/snmp/community/remove", "=numbers=public"], "failure: can not remove default community"),
        (["/snmp/community/add", "=name=x", "=security=secret"], "input does not match any value of security"),
        (["/snmp/set", "=trap-community=none"], "input does not match any value of trap-community"),
        (["/interface/list/remove", "=numbers=all"], "failure: can not remove builtin list"),
        (["/interface/list/set", "=numbers=none", "=name=x"], "failure: can not change builtin list"),
        (["/system/health/set", "=state-after-reboot=enabled"], "no such command"),
    ],
)
def test_refusals(bench: Bench, words: list[str], message: str) -> None:
    assert refused(bench, *words) == message


def test_ntp_servers_are_one_list_from_both_sides(bench: Bench) -> None:
    bench.ask("/system/ntp/client/servers/add", "=address=10.0.0.1")
    assert bench.one("/system/ntp/client")["servers"] == "10.0.0.1"
    before = len(bench.device.history.actions)
    bench.ask("/system/ntp/client/set", "=servers=10.0.0.2,10.0.0.3")
    assert [row["address"] for row in bench.rows("/system/ntp/client/servers")] == ["10.0.0.2", "10.0.0.3"]
    assert len(bench.device.history.actions) == before + 1
    bench.ask("/system/ntp/client/servers/disable", "=.id=*2")
    assert bench.one("/system/ntp/client")["servers"] == "10.0.0.3"
    bench.ask("/system/ntp/client/set", "=servers=")
    assert bench.rows("/system/ntp/client/servers") == []


def test_a_log_action_has_the_fields_of_its_target(bench: Bench) -> None:
    bench.ask("/system/logging/action/add", "=name=head", "=target=remote", "=remote=10.77.0.1")
    row = bench.one("/system/logging/action", "?name=head")
    assert (row["remote"], row["syslog-facility"], row["default"]) == ("10.77.0.1", "daemon", "false")
    bench.ask("/system/logging/add", "=topics=!debug,info", "=action=head")
    assert bench.one("/system/logging", "?action=head")["topics"] == "!debug,info"
    assert "in use" in refused(bench, "/system/logging/action/remove", "=numbers=head")
    bench.ask("/system/logging/action/set", "=numbers=head", "=target=memory")
    row = bench.one("/system/logging/action", "?name=head")
    assert row["memory-lines"] == "1000"
    assert "remote" not in row


def test_an_interface_list_has_members(bench: Bench) -> None:
    bench.ask("/interface/list/add", "=name=MGMT", "=include=none")
    bench.ask("/interface/list/member/add", "=list=MGMT", "=interface=ether1")
    bench.ask("/tool/mac-server/set", "=allowed-interface-list=MGMT")
    bench.ask("/interface/ethernet/set", "=numbers=ether1", "=name=mgmt1")
    assert bench.one("/interface/list/member")["interface"] == "mgmt1"
    assert "already have such list member" in refused(
        bench, "/interface/list/member/add", "=list=MGMT", "=interface=mgmt1"
    )


def test_the_time_of_day_is_reported_in_the_zone(bench: Bench) -> None:
    bench.ask("/system/clock/set", "=date=2030-06-30", "=time=23:30:00")
    bench.ask("/system/clock/set", "=time-zone-name=Europe/Berlin")
    row = bench.one("/system/clock")
    assert (row["date"], row["time"][:5], row["dst-active"]) == ("2030-07-01", "01:30", "true")
    assert bench.device.clock.stamp().startswith("2030-07-01 01:30")


def test_the_zone_survives_a_restart_and_an_unroll_takes_it_back(bench: Bench, tmp_path: Path) -> None:
    bench.ask("/system/clock/set", "=time-zone-name=Asia/Tokyo")
    assert f"{Bench(tmp_path).device.clock.now():%z}" == "+0900"
    bench.ask("/safe-mode/take")
    bench.ask("/system/clock/set", "=time-zone-name=Asia/Kolkata")
    bench.ask("/safe-mode/unroll")
    assert f"{bench.device.clock.now():%z}" == "+0900"


def test_firmware_may_lag_behind(tmp_path: Path) -> None:
    row = Bench(tmp_path, firmware="7.19.1").one("/system/routerboard")
    assert (row["current-firmware"], row["upgrade-firmware"]) == ("7.19.1", "7.24.6")


@pytest.mark.parametrize(
    ("version", "known", "unknown"),
    [
        ("7.17.2", ["bsd-syslog"], ["remote-log-format", "remote-protocol"]),
        ("7.20.8", ["remote-log-format", "remote-protocol"], ["bsd-syslog"]),
    ],
)
def test_fields_come_and_go_with_versions(tmp_path: Path, version: str, known: list[str], unknown: list[str]) -> None:
    bench = Bench(tmp_path, version=version)
    row = bench.one("/system/logging/action", "?name=remote")
    assert set(known) <= row.keys()
    assert not set(unknown) & row.keys()
    for name in unknown:
        assert (
            refused(bench, "/system/logging/action/set", "=numbers=remote", f"={name}=udp")
            == f"unknown parameter {name}"
        )


def test_7_17_has_no_safe_mode_for_the_api(tmp_path: Path) -> None:
    assert refused(Bench(tmp_path, version="7.17.2"), "/safe-mode/take") == "no such command prefix"


def test_7_24_calls_the_addresses_of_a_service_otherwise(tmp_path: Path) -> None:
    bench = Bench(tmp_path, version="7.24 (stable)")
    assert refused(bench, "/ip/service/set", "=numbers=api", "=address=10.0.0.0/8") == "unknown parameter address"
    bench.ask("/ip/service/set", "=numbers=api", "=available-from=10.0.0.0/8")
    row = bench.one("/ip/service", "?available-from=10.0.0.0/8")
    assert row["name"] == "api"
    assert "address" not in row
    bench.ask("/ip/neighbor/discovery-settings/set", "=dying-gasp=yes")
    older = tmp_path / "older"
    older.mkdir()
    assert "unknown" in refused(
        Bench(older, version="7.23.8 (long-term)"), "/ip/neighbor/discovery-settings/set", "=dying-gasp=yes"
    )
    assert refused(
        Bench(older, version="7.23.8 (long-term)"), "/ip/service/set", "=numbers=api", "=available-from=10.0.0.0/8"
    ) == ("unknown parameter available-from")
