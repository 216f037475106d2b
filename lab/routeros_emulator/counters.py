"""The names of a port's counters.

``COUNTERS`` come with every row of a plain print of /interface/ethernet (schema of RouterOS 7.23),
``QOS_COUNTERS`` with those of /interface/ethernet/switch/qos/port (MikroTik manual, the switch's own chip).
"""

from __future__ import annotations

_NAMES = """
    driver-rx-byte driver-rx-packet driver-tx-byte driver-tx-packet rx-bytes rx-packet rx-too-short
    rx-64 rx-65-127 rx-128-255 rx-256-511 rx-512-1023 rx-1024-1518 rx-1519-max rx-too-long rx-broadcast
    rx-pause rx-multicast rx-fcs-error rx-align-error rx-fragment rx-overflow rx-control rx-unknown-op
    rx-length-error rx-code-error rx-carrier-error rx-jabber rx-drop rx-ip-header-checksum-error
    rx-tcp-checksum-error rx-udp-checksum-error rx-unicast rx-error-events rx-1024-max tx-bytes
    tx-packet tx-too-short tx-64 tx-65-127 tx-128-255 tx-256-511 tx-512-1023 tx-1024-1518 tx-1519-max
    tx-too-long tx-broadcast tx-pause tx-multicast tx-underrun tx-collision tx-excessive-collision
    tx-multiple-collision tx-single-collision tx-excessive-deferred tx-deferred tx-late-collision
    tx-total-collision tx-pause-honored tx-drop tx-jabber tx-fcs-error tx-control tx-fragment
    tx-carrier-sense-error tx-unicast tx-1024-max rs-fec-codewords rs-fec-corrected rs-fec-uncorrected
    rs-fec-symbol-error fc-fec-rx-block fc-fec-block-corrected fc-fec-block-uncorrected tx-queue0-packet
    tx-queue0-byte tx-queue1-packet tx-queue1-byte tx-queue2-packet tx-queue2-byte tx-queue3-packet
    tx-queue3-byte tx-queue4-packet tx-queue4-byte tx-queue5-packet tx-queue5-byte tx-queue6-packet
    tx-queue6-byte tx-queue7-packet tx-queue7-byte tx-drop-packet tx-drop-byte tx-drop-queue0-packet
    tx-drop-queue0-byte tx-drop-queue1-packet tx-drop-queue1-byte tx-drop-queue2-packet
    tx-drop-queue2-byte tx-drop-queue3-packet tx-drop-queue3-byte tx-drop-queue4-packet
    tx-drop-queue4-byte tx-drop-queue5-packet tx-drop-queue5-byte tx-drop-queue6-packet
    tx-drop-queue6-byte tx-drop-queue7-packet tx-drop-queue7-byte
"""

COUNTERS = tuple(_NAMES.split())

_EIGHT = """
    pfc{0}-use tx-queue{0}-packet tx-queue{0}-byte tx-drop-queue{0}-packet tx-drop-queue{0}-byte
    queue{0}-byte-use queue{0}-byte-max
"""
QOS_COUNTERS = (
    *("tx-packet", "tx-bytes", "byte-use", "rx-pause", "tx-pause", "tx-drop-packet", "tx-drop-byte"),
    *(name.format(queue) for name in _EIGHT.split() for queue in range(8)),
)
