"""A folder of an operator, two nodes behind real ssh and a switch behind its real API: what `init` and `adopt` read."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from click.testing import CliRunner
from pydantic import SecretStr

from core.model import Rack, load
from core.routeros.api import ApiSession
from sparkrack.cli.main import sparkrack
from tests.emulator.emulator_process import USER, Crs812Process
from tests.emulator.switch_runs import waits_for
from tests.unit.discovery.shellnode import ShellNode, key_file
from tests.unit.discovery.worlds import World
from tests.unit.model.racks import SWITCH, changed, loaded

HAND = loaded(
    changed(SWITCH, ("vendor: asus", "vendor: asus\n    host: 10"), ("vendor: lenovo", "vendor: lenovo\n    host: 11"))
)
"""Two nodes as NVIDIA's playbook numbers them."""
LEGS = [f"qsfp56-dd-1-{lane}" for lane in (1, 3, 5, 7)]
COMPANIONS = [f"qsfp56-dd-1-{lane}" for lane in (2, 4, 6, 8)]


@dataclass
class Site:
    """A folder, two nodes and a switch."""

    folder: Path
    world: World
    nodes: dict[str, ShellNode]
    switch: Crs812Process

    @property
    def out(self) -> Path:
        return self.folder / "rack.yaml"

    @property
    def vouched(self) -> Path:
        file = self.folder / "host-keys"
        lines = [f"{name} {node.host_key.fingerprint}" for name, node in self.nodes.items()]
        file.write_text("\n".join(lines) + "\n")
        return file

    def words(self, verb: str, *more: str, switch: bool = True, vouched: bool = True) -> list[str]:
        port = str(next(iter(self.nodes.values())).port)
        named = [word for name in self.nodes for word in ("--node", f"{name}={self._address_of(name)}")]
        words = [verb, "--out", str(self.out), *named, "--ssh-port", port, "--key", str(key_file(self.folder))]
        if switch:
            words += ["--switch", "127.0.0.1", "--api-port", str(self.switch.tls_port), "--switch-password-env", "CRS"]
            words += ["--fingerprint", self.switch.fingerprint]
        if vouched:
            words += ["--host-keys", str(self.vouched)]
        return [*words, *more]

    def run(self, verb: str, *more: str, password: str | None = None, **how: bool) -> tuple[int, str]:
        environment = {"CRS": self.switch.password if password is None else password}
        ended = CliRunner().invoke(sparkrack, self.words(verb, *more, **how), env=environment)
        assert ended.exception is None or isinstance(ended.exception, SystemExit), repr(ended.exception)
        assert self.switch.password not in ended.output
        return ended.exit_code, ended.output

    def _address_of(self, name: str) -> str:
        return f"127.0.88.{11 + list(self.nodes).index(name)}"

    def untouched(self) -> None:
        """Nothing was written, here or on the switch."""
        assert not self.out.exists()
        assert not (self.folder / "known_hosts").exists()
        assert self.switch.writes() == 0

    @property
    def rack(self) -> Rack:
        return load(self.out)


def by_hand(switch: Crs812Process, companions: bool) -> None:
    """Configure a cage for four legs at 100G with manual commands."""
    with ApiSession(
        "127.0.0.1", switch.plain_port, tls=None, user=USER, password=SecretStr(switch.password)
    ) as session:
        rows = session.talk("/interface/ethernet/print", "=.proplist=.id,default-name")
        ids = {row["default-name"]: row[".id"] for row in rows}
        sizes = ("=l2mtu=9500", "=mtu=9000")
        for name in COMPANIONS if companions else ():
            session.talk("/interface/ethernet/set", f"=.id={ids[name]}", *sizes)
        for name in LEGS:
            forced = ("=auto-negotiation=no", "=speed=100G-baseCR2", "=fec-mode=fec91")
            session.talk("/interface/ethernet/set", f"=.id={ids[name]}", *forced, *sizes)
        session.talk("/system/identity/set", "=name=rack-switch")


def settled(site: Site) -> None:
    waits_for(lambda: all(site.switch.links()[name] == "link-ok" for name in LEGS[:2]))
