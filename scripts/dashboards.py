"""Makes the dashboards for a Grafana, with Grafana's own types: sparkrack/watch/files/dashboard-*.json.

Run it after a change, `.venv/bin/python scripts/dashboards.py [FOLDER]`; a test compares the files with what it makes.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

REPOSITORY = Path(__file__).parent.parent
sys.path.insert(0, str(REPOSITORY))
# Files of this form are read by every Grafana; those of its successor by Grafana 12 alone.
warnings.filterwarnings("ignore", "Prefer using dashboardv2", DeprecationWarning)

from grafana_foundation_sdk.builders import common as common_builders  # noqa: E402
from grafana_foundation_sdk.builders import dashboard, prometheus, timeseries  # noqa: E402
from grafana_foundation_sdk.cog.encoder import JSONEncoder  # noqa: E402
from grafana_foundation_sdk.models.common import (  # noqa: E402
    DataSourceRef,
    GraphThresholdsStyleMode,
    LegendDisplayMode,
    LegendPlacement,
    TooltipDisplayMode,
    VisibilityMode,
)
from grafana_foundation_sdk.models.dashboard import (  # noqa: E402
    DashboardCursorSync,
    DashboardLinkType,
    Threshold,
    ThresholdsMode,
    VariableRefresh,
)

from sparkrack.watch.dashboards import FILES, SOURCE  # noqa: E402
from sparkrack.watch.history import LEG_BITS, leg_bytes, threshold, unit_tokens  # noqa: E402

FOLDER = REPOSITORY / "sparkrack/watch/files"
_SOURCE = DataSourceRef(type_val="prometheus", uid=SOURCE)
_HALF, _LEG, _UNIT = "{{node}} {{device}}", "{{leg}}", "{{unit}}"
_BOOTS = 'time() - node_boot_time_seconds{job="node"} < 600'
_ALERTS = 'ALERTS{alertstate="firing",severity=~"page|ticket"}'
_LINKED = "and on(node, device) sparkrack_half_info"


def panel(title: str, unit: str, *lines: tuple[str, str], alert: str = "", factor: float = 1.0) -> timeseries.Panel:
    """Return a picture.

    Args:
        title: its title.
        unit: of its values, as Grafana calls it.
        lines: expressions, each with the names of its lines.
        alert: the alert whose limit is drawn: the number in its rule, multiplied by `factor`.
    """
    made = (
        timeseries.Panel()
        .title(title)
        .unit(unit)
        .datasource(_SOURCE)
        .height(8)
        .span(12)
        .show_points(VisibilityMode.AUTO)
        .legend(
            common_builders.VizLegendOptions()
            .display_mode(LegendDisplayMode.TABLE)
            .placement(LegendPlacement.BOTTOM)
            .show_legend(True)
            .calcs(["min", "max", "lastNotNull"])
        )
        .tooltip(common_builders.VizTooltipOptions().mode(TooltipDisplayMode.MULTI))
    )
    for letter, (expression, legend) in zip("ABCDEFGH", lines, strict=False):
        query = prometheus.Dataquery().ref_id(letter).datasource(_SOURCE).expr(expression).legend_format(legend)
        made = made.with_target(query)
    if alert:
        limit = threshold(alert) * factor
        steps = [Threshold(color="transparent", value=None), Threshold(color="red", value=limit)]
        made = (
            made.description(f"The dashed line is the limit of {alert}: docs/runbooks/watch.md#{alert.lower()}")
            .thresholds(dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps))
            .thresholds_style(common_builders.GraphThresholdsStyleConfig().mode(GraphThresholdsStyleMode.DASHED))
        )
    return made


def quantiles(title: str, series: str) -> timeseries.Panel:
    """Return a picture of a time that both engines measure: of half of the requests, and of all but one in twenty."""
    rates = f"rate(vllm:{series}_bucket[5m]) or rate(sglang:{series}_bucket[5m])"
    return panel(
        title,
        "s",
        *(
            (
                f"histogram_quantile({part}, sum by (unit, le) ({rates}))",
                f"{_UNIT}, {part:.0%}",
            )
            for part in (0.5, 0.95)
        ),
    )


def rack() -> Iterator[timeseries.Panel]:
    """All nodes side by side."""
    yield panel("Nodes that answer", "bool_yes_no", ('up{job="node"}', "{{node}}"))
    yield panel(
        "Alerts that fire",
        "none",
        ('sum by (alertname, node) (ALERTS{alertstate="firing",severity!="none"})', "{{alertname}} {{node}}"),
    )
    yield panel(
        "Clock of the GPU",
        "hertz",
        ("max by (node) (sparkrack_gpu_sm_clock_hertz)", "{{node}}"),
        ("max by (node) (sparkrack_gpu_declared_clock_cap_hertz)", "{{node}}, declared cap"),
        alert="ClockStuckLow",
    )
    yield panel("Power of the GPU", "watt", ("max by (node) (sparkrack_gpu_power_watts)", "{{node}}"))
    yield panel(
        "Margin of the GPU to its thermal limit",
        "celsius",
        ("min by (node) (sparkrack_gpu_tlimit_margin_celsius)", "{{node}}"),
        alert="GpuMarginGone",
    )
    yield panel("Hottest zone", "celsius", ("max by (node) (node_thermal_zone_temp)", "{{node}}"), alert="HotZone")
    yield panel(
        "Memory available",
        "bytes",
        ('node_memory_MemAvailable_bytes{job="node"}', "{{node}}"),
        ("max by (node) (sparkrack_memory_floor_bytes)", "{{node}}, floor of the guard"),
    )
    yield panel(
        "All tasks wait for memory",
        "percentunit",
        ('rate(node_pressure_memory_stalled_seconds_total{job="node"}[2m])', "{{node}}"),
        alert="MemoryStalls",
    )


def node() -> Iterator[timeseries.Panel]:
    """One node that is chosen; $node in the expressions is its name."""
    own = '{node="$node"}'
    yield panel(
        "Clock of the GPU",
        "hertz",
        (f"sparkrack_gpu_sm_clock_hertz{own}", "clock"),
        (f"sparkrack_gpu_declared_clock_cap_hertz{own}", "declared cap"),
        alert="ClockStuckLow",
    )
    yield panel(
        "What holds the clock of the GPU down",
        "percentunit",
        (f"sparkrack_gpu_clock_event{own} > 0", "{{reason}}"),
        alert="GpuSlowdown",
    )
    yield panel("Load of the GPU", "percentunit", (f"sparkrack_gpu_utilization_ratio{own}", "load"))
    yield panel("Power of the GPU", "watt", (f"sparkrack_gpu_power_watts{own}", "power"))
    yield panel(
        "Temperatures",
        "celsius",
        (f"node_thermal_zone_temp{own}", "zone {{zone}}"),
        (f"sparkrack_gpu_temperature_celsius{own}", "GPU"),
        alert="HotZone",
    )
    yield panel(
        "Memory available",
        "bytes",
        (f"node_memory_MemAvailable_bytes{own}", "available"),
        (f"sparkrack_memory_floor_bytes{own}", "floor of the guard"),
    )
    yield panel(
        "Processor",
        "percentunit",
        ('1 - avg(rate(node_cpu_seconds_total{node="$node",mode="idle"}[2m]))', "busy"),
    )
    yield panel("Load", "none", ('node_load1{job="node",node="$node"}', "load"))
    yield panel(
        "Disk available",
        "bytes",
        ('node_filesystem_avail_bytes{node="$node",mountpoint="/"}', "/"),
        alert="DiskFull",
    )
    yield panel("Disk written", "Bps", (f"rate(node_disk_written_bytes_total{own}[2m])", "{{device}}"))


def fabric() -> Iterator[timeseries.Panel]:
    """The interfaces of the nodes."""
    yield panel("Links", "bool_on_off", (f'(node_network_carrier{{job="node"}} {_LINKED})', _HALF))
    yield panel(
        "Speed of the links",
        "bps",
        (f'8 * node_network_speed_bytes{{job="node"}} {_LINKED}', _HALF),
        ("max by (node) (sparkrack_half_declared_bits_per_second)", "{{node}}, declared"),
    )
    yield panel("RDMA received", "Bps", ("rate(node_infiniband_port_data_received_bytes_total[2m])", _HALF))
    yield panel("RDMA sent", "Bps", ("rate(node_infiniband_port_data_transmitted_bytes_total[2m])", _HALF))
    yield panel(
        "Changes of carrier in 15 minutes",
        "none",
        (f"increase(node_network_carrier_changes_total[15m]) {_LINKED}", _HALF),
        alert="LinkFlaps",
    )
    yield panel(
        "Pause frames received",
        "pps",
        ("rate(node_ethtool_received_prio3_pause[2m])", f"{_HALF}, priority 3"),
        ("rate(node_ethtool_received_global_pause[2m])", f"{_HALF}, all priorities"),
        alert="PauseStorm",
    )
    yield panel(
        "Frames discarded",
        "pps",
        ("rate(node_ethtool_received_discards_phy[5m])", f"{_HALF}, by the port"),
        ("rate(node_ethtool_received_out_of_buffer[5m])", f"{_HALF}, without a buffer"),
    )
    yield panel(
        "Errors that FEC does not correct", "pps", ("rate(node_ethtool_received_pcs_symbol_err_phy[5m])", _HALF)
    )
    yield panel(
        "Errors of RDMA",
        "pps",
        (
            'rate(sparkrack_rdma_hw_total{counter=~"packet_seq_err|out_of_sequence|local_ack_timeout_err"}[5m])',
            f"{_HALF} {{{{counter}}}}",
        ),
        alert="RdmaSequenceErrors",
    )
    yield panel("Lanes of PCIe", "none", ("sparkrack_pcie_link_width", _HALF), alert="PcieDownshift")


def switch() -> Iterator[timeseries.Panel]:
    """The switches and their legs."""
    sensor = "{{switch}} {{sensor}}"
    yield panel("Temperature", "celsius", ("sparkrack_switch_temperature_celsius", sensor), alert="SwitchHot")
    yield panel("Fans", "rotrpm", ("sparkrack_switch_fan_rpm", "{{switch}} {{fan}}"))
    yield panel(
        "Power supplies",
        "none",
        ("sum by (switch) (sparkrack_switch_psu_ok)", "{{switch}}, in order"),
        ("max by (switch) (sparkrack_switch_psus_expected)", "{{switch}}, expected"),
    )
    yield panel(
        "Age of the reading",
        "s",
        ("time() - max by (switch) (sparkrack_switch_reading_timestamp_seconds)", "{{switch}}"),
        alert="SwitchReaderStopped",
    )
    yield panel(
        "Links",
        "bps",
        (LEG_BITS, _LEG),
    )
    yield panel("Traffic to the node", "Bps", (leg_bytes("rx"), _LEG))
    yield panel("Traffic from the node", "Bps", (leg_bytes("tx"), _LEG))
    yield panel(
        "Pause frames",
        "pps",
        ("sum by (leg, direction) (rate(sparkrack_switch_leg_pause_frames_total[5m]))", f"{_LEG}, {{{{direction}}}}"),
    )
    yield panel("Frames dropped", "pps", ("sum by (leg) (rate(sparkrack_switch_leg_drops_total[5m]))", _LEG))
    yield panel("Errors", "pps", ("sum by (leg) (rate(sparkrack_switch_leg_errors_total[5m]))", _LEG))


def engines() -> Iterator[timeseries.Panel]:
    """The served units."""
    yield panel("Tokens generated a second", "none", (unit_tokens("generation"), _UNIT))
    yield panel("Tokens of prompts a second", "none", (unit_tokens("prompt"), _UNIT))
    yield quantiles("Time to the first token", "time_to_first_token_seconds")
    yield quantiles("Time between two tokens", "inter_token_latency_seconds")
    yield quantiles("Time of a request", "e2e_request_latency_seconds")
    yield panel(
        "Requests",
        "none",
        ("sum by (unit) (vllm:num_requests_running or sglang:num_running_reqs)", f"{_UNIT}, running"),
        ("sum by (unit) (vllm:num_requests_waiting or sglang:num_queue_reqs)", f"{_UNIT}, waiting"),
        alert="QueueGrows",
    )
    yield panel(
        "Cache in use",
        "percentunit",
        ("max by (unit) (vllm:kv_cache_usage_perc or sglang:token_usage)", _UNIT),
        alert="KvCacheFull",
    )
    yield panel(
        "Preemptions a second",
        "none",
        ("sum by (unit) (rate(vllm:num_preemptions_total[5m]))", _UNIT),
        alert="Preemptions",
    )
    hits, queries = (f"sum by (unit) (rate(vllm:prefix_cache_{name}_total[5m]))" for name in ("hits", "queries"))
    yield panel("Tokens of prompts that were in the cache", "percentunit", (f"{hits} / {queries}", _UNIT))
    yield panel("State of the units", "none", ("sparkrack_unit_state == 1", "{{unit}} {{state}}"))


def blackbox() -> Iterator[timeseries.Panel]:
    """What will tell why a node died."""
    declared = "and on(node, part) sparkrack_blackbox_declared"
    received = 'label_replace(sparkrack_journal_received_timestamp_seconds, "node", "$1", "sender", "(.+)")'
    yield panel("Parts that are active", "bool_yes_no", (f"sparkrack_blackbox_armed {declared}", "{{node}} {{part}}"))
    yield panel(
        "Age of the newest sample of the recorder",
        "s",
        ("time() - sparkrack_recorder_last_sample_timestamp_seconds", "{{node}}"),
        alert="RecorderStale",
    )
    yield panel(
        "Samples of the recorder a second",
        "none",
        ("rate(sparkrack_recorder_samples_total[2m])", "{{node}}, taken"),
        ("rate(sparkrack_recorder_dropped_samples_total[2m])", "{{node}}, dropped"),
    )
    yield panel("The recorder reaches its peer", "bool_yes_no", ("sparkrack_recorder_peer_connected", "{{node}}"))
    yield panel(
        "How far the journal on another node is behind",
        "s",
        (f"sparkrack_journal_newest_timestamp_seconds - on(node) max by (node) ({received})", "{{node}}"),
        alert="RemoteJournalStale",
    )
    yield panel(
        "Age of the last message of the kernel on another node",
        "s",
        ("time() - sparkrack_netconsole_received_timestamp_seconds", "{{sender}} on {{node}}"),
        alert="NetconsoleSilent",
    )
    yield panel("The boot before ended with a shutdown", "bool_yes_no", ("sparkrack_boot_clean", "{{node}}"))
    yield panel("Records of a panic", "none", ("sparkrack_crash_records", "{{node}} {{place}}"))
    yield panel(
        "Events in the log of the kernel in an hour",
        "none",
        ("increase(sparkrack_kernel_events_total[1h]) > 0", "{{node}} {{event}}"),
    )
    yield panel(
        "Time until a certificate ends",
        "s",
        ("sparkrack_certificate_expiry_timestamp_seconds - time()", "{{node}} {{certificate}}"),
        alert="CertificateEnds",
    )
    yield panel(
        "Age of what a node exports of itself",
        "s",
        ("time() - sparkrack_node_metrics_timestamp_seconds", "{{node}}"),
        alert="NodeMetricsStale",
    )
    yield panel(
        "Age of the last drill",
        "s",
        ("time() - max by (host, level) (sparkrack_drill_timestamp_seconds)", "{{host}} {{level}}"),
    )


CONTENTS = {
    "rack": rack,
    "node": node,
    "fabric": fabric,
    "switch": switch,
    "engines": engines,
    "blackbox": blackbox,
}
TITLES = {"blackbox": "Black box", "engines": "Served units"}


def document(name: str) -> str:
    """Return the dashboard of this name, as Grafana reads it."""
    made = (
        dashboard.Dashboard(TITLES.get(name, name.title()))
        .uid(f"sparkrack-{name}")
        .tags(["sparkrack"])
        .readonly()
        .refresh("15s")
        .time("now-6h", "now")
        .timezone("browser")
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .link(
            dashboard.DashboardLink("sparkrack").type(DashboardLinkType.DASHBOARDS).tags(["sparkrack"]).keep_time(True)
        )
    )
    for title, colour, expression, words in (
        ("Boots", "blue", _BOOTS, "{{node}} was booted"),
        ("Alerts", "red", _ALERTS, "{{alertname}} {{node}}"),
    ):
        made = made.annotation(
            dashboard.AnnotationQuery()
            .name(title)
            .datasource(_SOURCE)
            .enable(True)
            .icon_color(colour)
            .expr(expression)
            .step("60s")
            .title_format(words)
        )
    if name == "node":
        made = made.with_variable(
            dashboard.QueryVariable("node")
            .label("Node")
            .datasource(_SOURCE)
            .query('label_values(up{job="node"}, node)')
            .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        )
    for number, one in enumerate(CONTENTS[name](), 1):
        made = made.with_panel(one.id(number))
    return JSONEncoder(sort_keys=True, indent=1).encode(made.build()) + "\n"


if __name__ == "__main__":
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    for name, file in FILES.items():
        (folder / Path(file).name).write_text(document(name))
