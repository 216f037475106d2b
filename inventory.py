"""Who is in the rack: pyinfra's groups `nodes` and `switches`, from the file that RACK names, else rack.yaml."""

from pyinfra.api.exceptions import InventoryError

import core.ops.patch_ssh_connector as _connector  # noqa: F401 - limits on what a node may take and say
from core.model import ConfigError, SecretError
from core.model.loader import current as _current
from core.ops.ssh_transport import ssh_data as _ssh_data

try:
    _rack = _current()
except (ConfigError, SecretError) as _error:
    # pyinfra shows the text of this error and nothing else; any other kind would be a traceback.
    raise InventoryError(f"the rack cannot be used\n{_error}") from None

nodes = [(name, {**_ssh_data(_rack, name), "rack": _rack, "node": node}) for name, node in _rack.nodes.items()]
switches = [
    (
        f"@routeros/{name}",
        {
            "rack": _rack,
            "switch": switch,
            "routeros_address": str(switch.address),
            "routeros_port": switch.port,
            "routeros_user": switch.user,
            "routeros_password": switch.password,
            "routeros_tls_sha256": switch.tls.sha256 if switch.tls else False,
        },
    )
    for name, switch in _rack.switches.items()
]
