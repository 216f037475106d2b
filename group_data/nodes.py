"""How pyinfra talks to every node. What differs between them comes from rack.yaml, through inventory.py."""

from core.ops.ssh_transport import nodelay_transport

__all__ = [
    "ssh_allow_agent",
    "ssh_config_file",
    "ssh_look_for_keys",
    "ssh_paramiko_connect_kwargs",
    "ssh_strict_host_key_checking",
]

# Only the key that rack.yaml names is offered, and only hosts that its known_hosts knows are talked to.
ssh_allow_agent = False
ssh_look_for_keys = False
ssh_config_file = "/dev/null"
ssh_strict_host_key_checking = "yes"
ssh_paramiko_connect_kwargs = {"transport_factory": nodelay_transport}
