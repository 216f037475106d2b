"""Watch: metrics of every node, alerts, and a place that keeps both.

Every node has prometheus-node-exporter, and a timer by which it exports what it knows of itself: how its boot before
ended, whether its black box is armed, what it receives of others, what RDMA carried, its models. One of them, the
server, has Prometheus and Alertmanager, with alert rules that are written for this rack: the floor of its memory, its
caps, its cables. All three are packages of the distribution. Exporters answer the rack only; Prometheus and
Alertmanager listen on loopback of the server. The server also reads the switches that have a reader, once a minute.
Where the server is a machine outside of the rack, the role manages the exporters, and `sparkrack watch --files` writes
the configuration of the server. Without the section `watch` the role does nothing. A server that is dead sends no
alert: `notify.heartbeat` names who notices that outside of the rack.
"""

from __future__ import annotations

from core.model.role import Role
from roles.watch.options import WatchOptions, check

ROLE = Role(
    __name__,
    title="Watch",
    promise=(
        "node_exporter on every node; Prometheus and Alertmanager on the server, with alert rules written for this"
        " rack, both on loopback of the server only"
    ),
    proof="`systemctl`, `ss`, the APIs of Prometheus and Alertmanager",
    options=WatchOptions,
    opt_in=True,
    rules=check,
)
