"""A machine of a unit ends, in order or not, and boots again."""

from __future__ import annotations

from tests.serving.serving_rack import ServingRack


def test_an_unplanned_end_holds_the_unit_until_all_machines_rebooted(rack: ServingRack) -> None:
    rack.up(boot="start")
    rack.start()
    rack.nodes[1].kill()
    rack.wait_for("stopping")
    rack.nodes[1].plug(True)
    rack.nodes[1].boot()
    record = rack.wait_for("held")
    assert record["reason"] == "spark2 ended without a clean shutdown while the unit ran"
    refused = rack.ask_coordinator("up")
    assert refused.returncode == 1
    assert refused.stderr == f"{record['reason']}; reboot spark1, or use --anyway\n"
    assert rack.record()["state"] == "held"
    rack.nodes[0].shut_down()
    rack.nodes[0].plug(True)
    rack.nodes[0].boot()
    rack.wait(lambda: rack.ask_coordinator("status").returncode == 0, "the coordinator answers")
    assert rack.record()["state"] == "held", "a reboot alone starts a unit that is held"
    rack.start()
    assert rack.record()["generation"] == 2


def test_an_unplanned_end_of_the_head_is_held_and_started_anyway(rack: ServingRack) -> None:
    rack.up()
    rack.start()
    rack.nodes[0].kill()
    rack.wait_until_gone()
    rack.nodes[0].plug(True)
    rack.nodes[0].boot()
    record = rack.wait_for("held")
    assert record["reason"] == "spark1 ended without a clean shutdown while the unit ran"
    assert "reboot spark2, or use --anyway" in rack.ask_coordinator("up").stderr
    assert rack.ask_coordinator("up", "--anyway").returncode == 0
    assert rack.wait_for("ready", 2)["unplanned"] == []


def test_a_clean_reboot_holds_or_starts_as_declared(rack: ServingRack) -> None:
    rack.up(boot="start", restart={"times": 0})
    rack.start()
    for node in reversed(rack.nodes):
        node.shut_down()
    for node in rack.nodes:
        node.plug(True)
        node.boot()
    record = rack.wait_for("ready", 2)
    assert record["restarts"] == []
    assert "spark1, spark2 rebooted after a clean shutdown" in rack.reason("gating")
    for node in rack.nodes:
        node.configure(boot="hold")
    for node in rack.nodes:
        node.shut_down()
    for node in rack.nodes:
        node.plug(True)
        node.boot()
    record = rack.wait_for("held")
    assert record["reason"] == "spark1, spark2 rebooted, and boot is hold"
    assert not any(node.processes() for node in rack.nodes)


def test_no_rank_starts_on_a_machine_that_shuts_down(rack: ServingRack) -> None:
    rack.up(restart={"times": 9})
    rack.start()
    (rack.nodes[1].folder / "service/system").write_text("stopping\n")
    rack.nodes[1].systemctl("stop", "sparkrack-serve-toy.service")
    rack.wait_for("stopping")
    rack.wait(lambda: rack.status()["unconfirmed"] == ["spark2"], "spark1 reports that its rank has stopped")
    assert rack.record()["state"] == "stopping"
    assert [node.starts for node in rack.nodes] == [1, 1]
