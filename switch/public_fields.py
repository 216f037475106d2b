"""Allow-list of fields that are safe to publish unredacted. Every other value that is not a number, time or yes-no
counts as private. Pure.

Words: RouterOS 7.23 command tree and MikroTik manual, pages of the menus.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_FIELDS = """
    version build-time factory-software cpu architecture-name board-name platform
    model firmware-type factory-firmware current-firmware upgrade-firmware
    default-name arp arp-timeout advertise speed fec-mode rx-flow-control tx-flow-control bandwidth cable-settings
    combo-mode loop-protect loop-protect-status sfp-rate-select
    mtu protocol-mode priority port-cost-mode frame-types ether-type max-learned-entries igmp-version
    multicast-router edge point-to-point learn horizon mvrp-applicant-state mvrp-registrar-state status role
    edge-port edge-port-discovery point-to-point-port external-fdb-status port-id designated-port-id
    schedule trust-l2 trust-l3 lossless-buffers lossless-traffic-class shared-buffers multicast-buffers
    wred-threshold queue-buffers pause-threshold resume-threshold traffic-class
    mode protocol lldp-med-net-policy-vlan freq-drift
    target remote-protocol remote-log-format syslog-time-format syslog-facility syslog-severity topics
    trap-generators security authentication-protocol encryption-protocol
    proto tls-version policy inactivity-policy via
    date start-date start-time days vlan-ids untagged-ids
    auto-negotiation rate fec supported sfp-supported advertising link-partner-advertising type
    sfp-type sfp-cmis-revision sfp-cmis-module-state sfp-connector-type sfp-encoding sfp-vendor-name
    sfp-vendor-part-number sfp-vendor-revision sfp-power-class eeprom-checksum
"""

FIELDS = frozenset(_FIELDS.split())
"""Fields that hold words of RouterOS or of a module's maker, and nothing of the owner's."""

FIXED = frozenset({"/system/package", "/ip/service"})
"""Menus whose rows RouterOS names itself."""

_PRIVATE = """
    comment contact location source event password passphrase secret token psk pin engine eeprom date debug software
    email prefix regex common fingerprint key
"""

PRIVATE = re.compile(rf"(.*-)?({'|'.join(_PRIVATE.split())})(-.*)?")
"""Names of fields that are always hidden, except for those of FIELDS: a number may be a PIN, too."""

_PORT = r"ether\d+|(sfp56|qsfp56-dd|qsfp56|sfp28|qsfp28|sfp-sfpplus)-?\d+(-\d+)?|switch\d+(-cpu)?|bridge\d*|lo"

KNOWN: Mapping[str, re.Pattern[str]] = {
    "identity": re.compile("MikroTik"),
    "user": re.compile("admin"),
    "group": re.compile("read|write|full|sparkrack-reader"),
    "skin": re.compile("default"),
    "community": re.compile("public"),
    "interface": re.compile(rf"!?({_PORT}|all|none|static|dynamic)"),
    "action": re.compile("memory|disk|echo|remote|sparkrack"),
    "class": re.compile("default|disabled|offline|roce|cnp|pfc-tc3"),
    "certificate": re.compile("none"),
    "vrf": re.compile("main"),
}
"""Names that every unit has, or that this project gives, by what they name."""

KIND_OF_ROW: Mapping[str, str] = {
    "/system/identity": "identity",
    "/user": "user",
    "/user/active": "user",
    "/user/group": "group",
    "/snmp/community": "community",
    "/system/script": "script",
    "/system/scheduler": "schedule",
    "/system/logging/action": "action",
    "/interface/ethernet/switch/qos/profile": "class",
    "/interface/ethernet/switch/qos/priority-flow-control": "class",
}
"""What the field `name` names, by menu; an interface in all others."""

KIND_OF_FIELD: Mapping[str, str] = {
    "user": "user",
    "owner": "user",
    "group": "group",
    "skin": "skin",
    "trap-community": "community",
    "action": "action",
    "certificate": "certificate",
    "vrf": "vrf",
    **dict.fromkeys(("profile", "map", "pfc", "tx-manager", "mirror-profile"), "class"),
    **dict.fromkeys(("interface", "on-interface", "bridge", "switch", "hw-offload-group", "parent"), "interface"),
    **dict.fromkeys(("tagged", "untagged", "current-tagged", "current-untagged"), "interface"),
    **dict.fromkeys(("discover-interface-list", "allowed-interface-list", "trap-interfaces"), "interface"),
}
"""Fields that hold names of rows, or lists of them."""

PLAIN = re.compile(
    r"|".join(
        (
            r"|true|false|yes|no|auto|none|unlimited|default|disabled|enabled",
            r"-?\d+(\.\d+)?(bps|[kKMGT]bps|[kKMGT]|C|V|W|mA|dBm|nm|km|m|%|dB)?",
            r"0x[0-9A-Fa-f]{1,8}",
            r"(\d+w)?(\d+d)?(\d+h)?(\d+m)?(\d+s)?(\d+ms)?",
            r"(\d+d)?\d\d:\d\d:\d\d",
            r"\d{4}-\d\d-\d\d( \d\d:\d\d:\d\d)?",
        )
    )
)
"""Values without information about their owner: numbers, rates, durations, moments, flags."""

COUNTER = re.compile(r"(driver-)?(rx|tx)-.*|(rs|fc)-fec-.*|pfc\d-use|queue\d-.*|byte-use|link-downs")
"""Names of counters of traffic; a number in such a field is left out."""
