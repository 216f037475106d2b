"""The menus this switch has. A new menu is a ``Menu`` in one of these files and its name in ``MENUS``."""

from __future__ import annotations

from lab.routeros_emulator.menu import EmulatedMenu
from lab.routeros_emulator.menus.arp import ARP
from lab.routeros_emulator.menus.backup import BACKUP
from lab.routeros_emulator.menus.bonding import BONDING
from lab.routeros_emulator.menus.bridge import BRIDGE, BRIDGE_PORT
from lab.routeros_emulator.menus.bridge_host import BRIDGE_HOST
from lab.routeros_emulator.menus.bridge_vlan import BRIDGE_VLAN
from lab.routeros_emulator.menus.certificate import CERTIFICATE
from lab.routeros_emulator.menus.clock import CLOCK_MENU
from lab.routeros_emulator.menus.console import CONSOLE, ROOT
from lab.routeros_emulator.menus.dns import DNS
from lab.routeros_emulator.menus.ethernet import ETHERNET
from lab.routeros_emulator.menus.fetch import TOOL
from lab.routeros_emulator.menus.file import FILE
from lab.routeros_emulator.menus.group import GROUP
from lab.routeros_emulator.menus.interface import INTERFACE
from lab.routeros_emulator.menus.ip import ADDRESS, SERVICE
from lab.routeros_emulator.menus.lists import LISTS, MEMBERS
from lab.routeros_emulator.menus.log import LOG
from lab.routeros_emulator.menus.logging import ACTION, LOGGING
from lab.routeros_emulator.menus.neighbor import NEIGHBOR
from lab.routeros_emulator.menus.neighbor import SETTINGS as DISCOVERY
from lab.routeros_emulator.menus.ntp import CLIENT_MENU, SERVER_MENU
from lab.routeros_emulator.menus.qos import MONITOR, PRIORITY_FLOW_CONTROL, QOS_PROFILE, SETTINGS
from lab.routeros_emulator.menus.qos_map import MAP_IP, MAP_VLAN, QOS_MAP
from lab.routeros_emulator.menus.qos_port import QOS_PORT
from lab.routeros_emulator.menus.qos_queue import QOS_TX_MANAGER, TX_QUEUE
from lab.routeros_emulator.menus.safe_mode import HISTORY, SAFE_MODE
from lab.routeros_emulator.menus.scheduler import SCHEDULER_MENU
from lab.routeros_emulator.menus.script import SCRIPT_MENU
from lab.routeros_emulator.menus.snmp import COMMUNITY, SNMP
from lab.routeros_emulator.menus.switch_chip import SWITCH
from lab.routeros_emulator.menus.system import DEVICE_MODE, HEALTH, IDENTITY, PACKAGE, RESOURCE, ROUTERBOARD, SYSTEM
from lab.routeros_emulator.menus.tools import BANDWIDTH_SERVER, MAC_PING, MAC_SERVER, MAC_WINBOX
from lab.routeros_emulator.menus.user import ACTIVE, USER

MENUS: tuple[EmulatedMenu, ...] = (
    ETHERNET,
    BONDING,
    BRIDGE,
    BRIDGE_PORT,
    BRIDGE_VLAN,
    BRIDGE_HOST,
    INTERFACE,
    SWITCH,
    MONITOR,
    SETTINGS,
    QOS_PROFILE,
    QOS_MAP,
    MAP_IP,
    MAP_VLAN,
    PRIORITY_FLOW_CONTROL,
    QOS_TX_MANAGER,
    TX_QUEUE,
    QOS_PORT,
    ADDRESS,
    CERTIFICATE,
    SERVICE,
    ARP,
    DEVICE_MODE,
    SYSTEM,
    IDENTITY,
    RESOURCE,
    ROUTERBOARD,
    PACKAGE,
    GROUP,
    USER,
    ACTIVE,
    HISTORY,
    SAFE_MODE,
    SCHEDULER_MENU,
    SCRIPT_MENU,
    LOG,
    HEALTH,
    BACKUP,
    CLOCK_MENU,
    CLIENT_MENU,
    SERVER_MENU,
    LOGGING,
    ACTION,
    DNS,
    DISCOVERY,
    NEIGHBOR,
    SNMP,
    COMMUNITY,
    LISTS,
    MEMBERS,
    TOOL,
    MAC_SERVER,
    MAC_WINBOX,
    MAC_PING,
    BANDWIDTH_SERVER,
    FILE,
    CONSOLE,
    ROOT,
)
