"""The desired state of the bench by pyinfra's own operations."""

from io import StringIO

from pyinfra.context import config, host, inventory
from pyinfra.facts.files import File
from pyinfra.facts.server import Command
from pyinfra.operations import files, server

config.SUDO = True

KEY = "/home/ops/.ssh/id_sparkrack"
HOST_KEY = "/etc/ssh/ssh_host_ed25519_key.pub"
fleet = list(inventory.get_group("nodes"))


def public_keys(path: str) -> dict[str, str]:
    """Return the content of a file on each node, by its name."""
    return {one.name: one.get_fact(Command, f"cat {path}").strip() for one in fleet}


if not host.get_fact(File, KEY):
    server.shell(
        name="Make the node's own key pair",
        commands=f"ssh-keygen -q -t ed25519 -N '' -C 'sparkrack {host.name}' -f {KEY}",
        _sudo_user="ops",
    )
files.directory(name="The folder of keys", path="/home/ops/.ssh", user="ops", group="ops", mode="700")
files.file(name="The private key", path=KEY, user="ops", group="ops", mode="600")
files.file(name="The public key", path=f"{KEY}.pub", user="ops", group="ops", mode="644")

keys = {name: " ".join(line.split()[:2]) for name, line in public_keys(f"{KEY}.pub").items()}
pins = {name: " ".join(line.split()[:2]) for name, line in public_keys(HOST_KEY).items()}
lines = [host.data.operator]
lines += [f'from="{",".join(one.data.sources)}",{one.data.options} {keys[one.name]} {one.data.mark}' for one in fleet]
files.put(
    name="Whom the node accepts",
    src=StringIO("\n".join([*lines, ""])),
    dest="/home/ops/.ssh/authorized_keys",
    user="ops",
    group="ops",
    mode="600",
)
known = ["# Written by sparkrack for the rack bench; a change here is overwritten."]
known += [f"{','.join(one.data.called)} {pins[one.name]}" for one in fleet]
files.put(
    name="Whom the node knows",
    src=StringIO("\n".join([*known, ""])),
    dest=host.data.known_hosts,
    user="root",
    group="root",
    mode="644",
)

files.line(
    name="The node's own name on no line of loopback",
    path="/etc/hosts",
    line=rf"^127\.0\.[01]\.1[[:space:]]*{host.name}$",
    present=False,
)
files.block(
    name="The names of the nodes",
    path="/etc/hosts",
    content=[f"{one.data.address} {one.name}" for one in fleet],
    marker="{mark}",
    begin=host.data.hosts_begin,
    end=host.data.hosts_end,
)
files.replace(
    name="RDMA stays on", path="/etc/nccl.conf", text="^NCCL_IB_DISABLE=1", replace=f"{host.data.off}NCCL_IB_DISABLE=1"
)
for folder in host.loop(host.data.folders):
    files.directory(name=f"The folder {folder}", path=folder, user="root", group="root", mode="755")
for file in host.loop(host.data.files):
    files.put(
        name=f"The file {file['path']}",
        src=host.data.contents + file["path"],
        dest=file["path"],
        user="root",
        group="root",
        mode=file["mode"].lstrip("0"),
    )
limit = host.get_fact(Command, "systemctl show --property=DefaultLimitMEMLOCK --value")
if limit != "infinity":
    server.shell(name="Let systemd read its files", commands="systemctl daemon-reload")
for key, value in host.loop(host.data.settings.items()):
    server.sysctl(name=f"The kernel's {key}", key=key, value=int(value))
