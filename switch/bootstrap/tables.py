"""What first contact reads and writes beyond the menus of a run, and the names it gives.

Paths and arguments: RouterOS 7.23 command tree (`/console/inspect`); properties of certificates: MikroTik
manual, 'Certificates'. These menus stand apart from those a run compares and a backup keeps: keys and
certificates are not put back from rows, and the address is the way in.
"""

from __future__ import annotations

from switch.menus import BRIDGE, ETHERNET, GROUP, SERVICE, USER, Field, Menu
from switch.menus.menu import FACT, FLAG, STATE
from switch.values import Kind

FACTORY_USER = "admin"
FACTORY_ADDRESS = "192.168.88.1"
"""Both: MikroTik manual, 'Default configurations'."""

PLACEHOLDER = "0" * 64
"""The fingerprint of a rack.yaml whose switch was not met yet; no certificate has it."""

CERTIFICATE_NAME = "sparkrack"
"""Of the certificate that is made; `sparkrack-2` and so on when that name is taken by one that is unfit."""

OWNER_GROUP = "sparkrack"
OWNER_POLICY = "local,ftp,reboot,read,write,policy,test,password,sensitive,api,rest-api"
"""What our user may do, and nobody else's way in: no ssh, telnet, web, winbox, sniff, romon.

read, write, policy (users, scripts), test, password and sensitive are what a run and its dead man need, ftp
and reboot what backups and putting them back do (MikroTik manual, 'User'). rest-api is there to be given to
the reader: that a user cannot give what it does not have is inferred. local is the console port, the way
back in when the network is not.
"""

CERTIFICATE = Menu(
    "/certificate",
    key=("name",),
    fields={
        "name": Field(),
        "common-name": Field(),
        "subject-alt-name": Field(default=""),
        "key-size": Field(),
        "days-valid": Field(Kind.COUNT, default="365"),
        "key-usage": Field(Kind.LIST),
        "fingerprint": FACT,
        "private-key": Field(Kind.FLAG, default="no", read_only=True),
        "expired": Field(Kind.FLAG, default="no", read_only=True),
        "revoked": Field(Kind.FLAG, default="no", read_only=True),
    },
)
ADDRESS = Menu(
    "/ip/address",
    key=("address",),
    hidden=("dynamic", "yes"),  # handed out by DHCP, or of a VPN: nobody's to set
    fields={
        "address": Field(),
        "interface": Field(),
        "disabled": FLAG,
        "dynamic": Field(Kind.FLAG, default="no", read_only=True),
    },
)
CLOCK = Menu("/system/clock", key=(), fields={"date": STATE, "time": STATE})

READ = (BRIDGE, CERTIFICATE, SERVICE, GROUP, USER, ADDRESS, CLOCK)
"""Everything that needs are judged by; the unit itself is read with any of them."""

GATE = (ETHERNET, *READ)
"""Everything that tells whether it is the switch that is meant, besides."""
