"""The menus this switch has. A new menu is a ``Menu`` in one of these files and its name in ``MENUS``."""

from __future__ import annotations

from ..menu import Menu
from .arp import ARP
from .backup import BACKUP
from .bridge import BRIDGE, BRIDGE_PORT
from .bridge_host import BRIDGE_HOST
from .bridge_vlan import BRIDGE_VLAN
from .certificate import CERTIFICATE
from .clock import CLOCK_MENU
from .console import CONSOLE, ROOT
from .dns import DNS
from .ethernet import ETHERNET
from .file import FILE
from .group import GROUP
from .interface import INTERFACE
from .ip import ADDRESS, SERVICE
from .lists import LISTS, MEMBERS
from .log import LOG
from .logging import ACTION, LOGGING
from .neighbor import NEIGHBOR
from .neighbor import SETTINGS as DISCOVERY
from .ntp import CLIENT_MENU, SERVER_MENU
from .qos import MONITOR, PRIORITY_FLOW_CONTROL, QOS_PROFILE, SETTINGS
from .qos_map import MAP_IP, MAP_VLAN, QOS_MAP
from .qos_port import QOS_PORT
from .qos_queue import QOS_TX_MANAGER, TX_QUEUE
from .safe_mode import HISTORY, SAFE_MODE
from .scheduler import SCHEDULER_MENU
from .script import SCRIPT_MENU
from .snmp import COMMUNITY, SNMP
from .switch_chip import SWITCH
from .system import DEVICE_MODE, HEALTH, IDENTITY, PACKAGE, RESOURCE, ROUTERBOARD
from .tools import BANDWIDTH_SERVER, MAC_PING, MAC_SERVER, MAC_WINBOX
from .user import ACTIVE, USER

MENUS: tuple[Menu, ...] = (
    ETHERNET,
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
    MAC_SERVER,
    MAC_WINBOX,
    MAC_PING,
    BANDWIDTH_SERVER,
    FILE,
    CONSOLE,
    ROOT,
)
