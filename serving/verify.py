"""Verify the units of a node: files by sha256sum, services by systemctl, and an answer that only an engine gives."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from hashlib import sha256
from ipaddress import ip_network

import pytest

from core.advisories.advisories import NGINX, advisory_line, known_against, version_key
from core.model import CONTAINER_SLICE, Node, Rack, image_lock, model_lock
from core.model.errors import printable_line
from core.model.fields import seconds
from core.model.lock_file import lock_path
from core.ssh.client import Machine
from core.ssh.root_shell import COMMAND_SECONDS, UnreachableError
from core.util.managed_file import ManagedFile
from core.verify.fabric_use import FabricUse
from core.verify.reporter import CheckReporter
from serving import (
    all_reduce,
    all_reduce_run,
    allowed_addresses,
    desired,
    gateway,
    gateway_router,
    programs,
    unit_kinds,
)
from serving.engines.registry import ENGINES
from serving.launch import FABRIC_ENVIRONMENT, UNIT_FILES, joins_by_ray
from serving.options import ServedUnit, ServingGateway, rdma_is_measured, served_units

_RAY_WITH_TOKENS = (2, 52)
"""The first release of Ray that reads RAY_AUTH_MODE (its documentation, 'Ray token authentication')."""

# The program of the coordinator asks, so that the key is read from its file and is in no argument.
_ASK = """\
import json, sys
sys.path.insert(0, {folder!r})
import serve_answers, serve_probe, serve_unit
unit, limit, found = serve_unit.load_unit({file!r}), {limit}, {{}}
def ask(path, body):
    return serve_probe.post(unit, serve_probe.ApiRequest(unit, limit), path, body)
def status(key):
    return serve_probe.ApiRequest(unit, limit).send({method!r}, {path!r}, {body!r}, key)[0]
try:
    dimension = serve_probe.prove(unit, serve_probe.ApiRequest(unit, limit), unit.probe.dimension)
    proven = [serve_answers.proven_words(unit.probe, dimension)]
    if unit.probe.kind == "chat":
        serve_answers.judge_chat(*ask("/v1/chat/completions", serve_answers.chat_body(unit.model)))
        proven.append(serve_answers.CHAT_WORDS)
    key = serve_probe.read_key(unit)
    found = {{"proven": ", ".join(proven), "open": status(None)}}
    found |= {{"keyed": status(key) if key else None, "wrong": status("x" * 24) if key else None}}
except serve_unit.ServeError as error:
    found = {{"fault": str(error)}}
print(json.dumps(found))
"""

# Not a completion, so that nothing is computed: an engine that guards this path answers 401 before it reads the body.
_ASK_PAST_KEY = """\
import json, sys
sys.path.insert(0, {folder!r})
import serve_probe, serve_unit
unit = serve_unit.load_unit({file!r})
try:
    print(serve_probe.ApiRequest(unit, {limit}).send("POST", "/invocations", {{}})[0])
except serve_unit.ServeError as error:
    sys.exit(str(error))
"""

# How many programs of BPF judge the packets that arrive for each populated control group of a unit: those of the slice
# and its own (BPF_PROG_QUERY of bpf(2), BPF_CGROUP_INET_INGRESS).
_FILTERS = """\
import ctypes, os, platform, struct, sys
call = ctypes.CDLL(None, use_errno=True).syscall
number = {{"x86_64": 321, "aarch64": 280}}[platform.machine()]
def programs(folder):
    handle = os.open(folder, os.O_RDONLY)
    try:
        query = ctypes.create_string_buffer(struct.pack("=IIIIQII", handle, 0, 0, 0, 0, 0, 0), 64)
        if call(ctypes.c_long(number), ctypes.c_long(16), query, ctypes.c_long(64)):
            sys.exit("bpf: " + os.strerror(ctypes.get_errno()))
        return struct.unpack_from("=I", query, 24)[0]
    finally:
        os.close(handle)
top = {folder!r}
for folder, _, _ in os.walk(top):
    if open(folder + "/cgroup.procs").read().strip():
        print(programs(top) + (programs(folder) if folder != top else 0), folder[len(top):] or "/")
"""

# The key of a client is read from its file there, so that it is in no argument.
_ASK_GATEWAY = """\
import http.client, json, re, ssl
host, port, limit, asked, found = {host!r}, {port}, {limit}, {asked!r}, {{}}
context = ssl.create_default_context()
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
key = re.search(r"\\\\Q(.+)\\\\E", open({keys!r}).read())[1]
own = re.search("-----BEGIN CERTIFICATE.+?END CERTIFICATE-----", open({certificate!r}).read(), re.DOTALL)[0]
def status(path, body=None, key=None):
    connection = http.client.HTTPSConnection(host, port, timeout=limit, context=context)
    try:
        connection.connect()
        shown = connection.sock.getpeercert(True)
        found["certificate"] = shown == ssl.PEM_cert_to_DER_cert(own)
        headers = {{"Authorization": "Bearer " + key}} if key else {{}}
        headers["Content-Type"] = "application/json"
        connection.request("POST" if body else "GET", path, json.dumps(body) if body else None, headers)
        answer = connection.getresponse()
        return [answer.status, answer.read(65536).decode(errors="replace")]
    finally:
        connection.close()
try:
    for name, (path, body) in asked.items():
        found[name] = {{
            "without a key": status("/%s/v1/models" % name)[0],
            "with another key": status("/%s/v1/models" % name, key="x" * 24)[0],
            "for its metrics": status("/%s/metrics" % name, key=key)[0],
            "directly": status("/%s%s" % (name, path), body, key),
            "by its model": status(path, body, key),
        }}
    found["models"] = status("/v1/models", key=key)
except OSError as error:
    found["fault"] = str(error)
print(json.dumps(found))
"""


@pytest.fixture(autouse=True)
def _only_if_declared(rack: Rack) -> None:
    if not served_units(rack):
        pytest.skip("rack.yaml declares no units")


def _units_of_node(rack: Rack, node: Node) -> list[ServedUnit]:
    found = [unit for unit in served_units(rack).values() if node.name in unit.ranks(rack.nodes)]
    if not found:
        pytest.skip(f"no unit of rack.yaml is on {node.name}")
    return found


def _headed_units_that_are_up(rack: Rack, node: Node) -> list[ServedUnit]:
    """The units that are up, and of which this node is the head."""
    found = [
        unit for unit in _units_of_node(rack, node) if unit.ranks(rack.nodes)[0] == node.name and unit.state == "up"
    ]
    if not found:
        pytest.skip(f"{node.name} is the head of no unit that is up")
    return found


def _units_that_are_up(rack: Rack, node: Node) -> list[ServedUnit]:
    """The units of this node that are up."""
    found = [unit for unit in _units_of_node(rack, node) if unit.state == "up"]
    if not found:
        pytest.skip(f"no unit on {node.name} is up")
    return found


def _read_file_states(machine: Machine, paths: list[str]) -> dict[str, str]:
    """Mode, owner and hash of each of these files, by path; a file that is missing has none."""
    done = machine.run(
        f'for f in {shlex.join(paths)}; do [ ! -e "$f" ] || '
        'echo "$(stat -c "%a %U:%G" "$f") $(sha256sum < "$f" | cut -d" " -f1) $f"; done'
    )
    assert done.rc == 0, done.stderr.strip()
    rows = (line.rpartition(" ") for line in str(done.stdout).splitlines())
    return {path: state for state, _, path in rows}


def _run_python(machine: Machine, text: str, name: str) -> str:
    """Return what a program prints on a node. `name`: what it is about, for the reason of a failure."""
    done = machine.run(f"python3 -B -c {shlex.quote(text)}")
    assert done.rc == 0, f"{name}: {(done.stderr.strip().splitlines() or ['?'])[-1]}"
    return str(done.stdout)


def _list_file_faults(node: Node, machine: Machine, files: list[ManagedFile]) -> list[str]:
    found = _read_file_states(machine, [file.path for file in files])
    faults = []
    for file in files:
        wanted = f"{file.mode} root:root {sha256(file.content).hexdigest()}"
        if file.path not in found:
            faults.append(f"{node.name}: {file.path} is missing")
        elif found[file.path] != wanted:
            faults.append(f"{node.name}: {file.path} is {found[file.path][:30]}, wanted {wanted[:30]}")
    return faults


def _service_faults(node: Node, machine: Machine, service: str) -> list[str]:
    """Return why a service does not run now and at each boot."""
    found = machine.run(f"systemctl is-active {service}; systemctl is-enabled {service}").stdout.split()
    if found == ["active", "enabled"]:
        return []
    return [f"{node.name}: {service} is {' and '.join(found) or 'unknown'}, wanted active, enabled"]


def test_the_programs_are_those_of_this_release(
    node: Node, machine: Machine, rack: Rack, report: CheckReporter
) -> None:
    """Content, mode and owner of each."""
    _units_of_node(rack, node)
    report.judge(_list_file_faults(node, machine, list(programs.programs())))


def test_the_files_are_those_of_the_rack(node: Node, machine: Machine, rack: Rack, report: CheckReporter) -> None:
    """Content, mode and owner of each file of each unit, from rack.yaml and its lock file."""
    lock = lock_path(rack.source)
    pins, records = image_lock.read(lock), model_lock.read_declared(lock, rack.models)
    files: list[ManagedFile] = []
    for unit in _units_of_node(rack, node):
        blockers = desired.blockers(rack, unit, pins, records)
        assert not blockers, f"{node.name}: {blockers[0]}"
        files += desired.files(desired.locked_unit(rack, unit, pins, records), node.name)
    report.judge(_list_file_faults(node, machine, files))


def test_secrets_are_readable_by_root_only(node: Node, machine: Machine, rack: Rack, report: CheckReporter) -> None:
    """The lease secret, the token of Ray where Ray joins the nodes, and on the head the key; no other node has that."""
    faults = []
    for unit in _units_of_node(rack, node):
        keyed = unit.api.key is not None and unit.ranks(rack.nodes)[0] == node.name
        joined = desired.path(unit, "ray") in desired.shared_secrets(unit, len(unit.ranks(rack.nodes)))
        found = _read_file_states(machine, [desired.path(unit, ending) for ending in ("secret", "ray", "key", "token")])
        for ending, wanted in (("secret", True), ("ray", joined), ("key", keyed), ("token", keyed)):
            path = desired.path(unit, ending)
            state = found.get(path, "missing").rpartition(" ")[0] or "missing"
            if state != (right := "600 root:root" if wanted else "missing"):
                faults.append(f"{node.name}: {path} is {state}, wanted {right}")
    mode = machine.run(f"stat -c '%a %U:%G' {UNIT_FILES}").stdout.strip()
    if mode != "700 root:root":
        faults.append(f"{node.name}: {UNIT_FILES} is {mode or 'missing'}, wanted 700 root:root")
    report.judge(faults)


def test_all_nodes_of_a_unit_share_its_lease_secret(
    node: Node, machines: dict[str, Machine], machine: Machine, rack: Rack, excluded: frozenset[str]
) -> None:
    """The hash on this node is that of the head, also of the token of Ray."""
    for unit in _units_of_node(rack, node):
        head = unit.ranks(rack.nodes)[0]
        if head in excluded:
            pytest.skip(f"{head}, the head of unit {unit.name}, is excluded")
        for path in desired.shared_secrets(unit, len(unit.ranks(rack.nodes))):
            here, there = (
                _read_file_states(one, [path]).get(path, " ").rpartition(" ")[2] for one in (machine, machines[head])
            )
            assert here, f"{node.name}: {path} is missing"
            assert here == there, f"{node.name}: {path} is not that of {head}"


def test_agent_and_coordinator_run_and_start_at_boot(
    node: Node, machine: Machine, rack: Rack, report: CheckReporter
) -> None:
    """systemd reports them as active and enabled; the service of a rank is not enabled."""
    report.judge(
        fault
        for unit in _units_of_node(rack, node)
        for suffix in (("-agent", "-coordinator") if unit.ranks(rack.nodes)[0] == node.name else ("-agent",))
        for fault in _service_faults(node, machine, desired.service_name(unit, suffix))
    )


def test_each_unit_is_up_or_down_as_declared(node: Node, machine: Machine, rack: Rack, report: CheckReporter) -> None:
    """What its coordinator answers."""
    faults = []
    for unit in _units_of_node(rack, node):
        if unit.ranks(rack.nodes)[0] != node.name:
            continue
        asked = machine.run(f"PYTHONDONTWRITEBYTECODE=1 {programs.COORDINATOR} {desired.path(unit, 'json')} status")
        assert asked.rc == 0, f"{node.name}: unit {unit.name}: {asked.stderr.strip()}"
        status = json.loads(asked.stdout)
        wanted = ("ready", "busy") if unit.state == "up" else ("down",)
        if status["state"] not in wanted:
            what = f"{status['state']} ({status['reason']})"
            faults.append(f"{node.name}: unit {unit.name} is {what}, wanted {' or '.join(wanted)}")
    report.judge(faults)


def _make_unit_request(unit: ServedUnit, limit: float) -> tuple[str, str]:
    """Return the program that asks a unit, and the path that it asks with and without the key. `limit`: seconds."""
    path, body, _ = ("/v1/models", None, "") if ENGINES[unit.engine].known_paths else unit_kinds.request(unit)
    text = _ASK.format(
        folder=programs.FOLDER,
        file=desired.path(unit, "json"),
        limit=limit,
        method="POST" if body else "GET",
        path=path,
        body={"model": desired.served_name(unit), **body} if body else None,
    )
    return text, path


def test_each_unit_answers_as_its_kind_asks(node: Node, machine: Machine, rack: Rack, report: CheckReporter) -> None:
    """The head asks its own API: a completion must begin with the answer of rack.yaml, or be a clean text where that
    has none; a chat completion must be a clean text; of three embeddings the near pair must be nearer; a ranking must
    have the right document first. With a key the API refuses a request without it, and one with another key: asked for
    its models, or what proves its kind where the engine is not known to have such a list.
    """
    faults = []
    for unit in _headed_units_that_are_up(rack, node):
        # A command has its own limit, and the program asks up to five times.
        limit = min(seconds(unit.probe.limit), COMMAND_SECONDS // 6)
        known = ENGINES[unit.engine].known_paths
        text, path = _make_unit_request(unit, limit)
        name = f"{node.name}: unit {unit.name}"
        found = json.loads(_run_python(machine, text, name))
        if "fault" in found:
            faults.append(f"{name}: {found['fault']}")
            continue
        report.note(f"{name}: {found['proven']}")
        if unit.api.key is None:
            if found["open"] != 200:
                faults.append(f"{name}: {path} has HTTP status {found['open']}, wanted 200")
        else:
            refused = (401,) if known else (401, 403)
            faults += [
                f"{name}: {how} {path} has HTTP status {found[kind]}, wanted {' or '.join(map(str, right))}"
                for kind, how, right in (
                    ("open", "without the key", refused),
                    ("wrong", "with another key", refused),
                    ("keyed", "with the key", (200,)),
                )
                if found[kind] not in right
            ]
    report.judge(faults)


# What each RDMA device of NCCL has sent and received, in words of four bytes.
_COUNTERS = (
    f"sed -n 's/^NCCL_IB_HCA==*//p' {FABRIC_ENVIRONMENT} | tr , '\\n' | while read -r d; do "
    'for c in xmit rcv; do echo "$d $(cat "/sys/class/infiniband/$d/ports/1/counters/port_${c}_data")"; done; done'
)


def _words_moved(machine: Machine) -> dict[str, int]:
    """The words that each device of a node has moved."""
    done = machine.run(_COUNTERS)
    found: dict[str, int] = {}
    for line in str(done.stdout).splitlines():
        device, _, words = line.partition(" ")
        assert words.isdigit(), f"the counters of {device} cannot be read: {done.stderr.strip()}"
        found[device] = found.get(device, 0) + int(words)
    return found


def test_the_ranks_of_each_unit_use_rdma(
    node: Node,
    machines: dict[str, Machine],
    machine: Machine,
    rack: Rack,
    excluded: frozenset[str],
    report: CheckReporter,
) -> None:
    """The RDMA devices of each node of a unit move bytes while its head asks it, as its kind does."""
    if not rdma_is_measured(rack):
        pytest.skip("rack.yaml has serving.rdma_proof: none")
    faults = []
    units = [unit for unit in _headed_units_that_are_up(rack, node) if len(unit.ranks(rack.nodes)) > 1]
    if not units:
        pytest.skip(f"{node.name} is the head of no unit of several nodes")
    for unit in units:
        names = unit.ranks(rack.nodes)
        if away := excluded & set(names):
            pytest.skip(f"{', '.join(sorted(away))} of unit {unit.name} is excluded")
        before = {name: _words_moved(machines[name]) for name in names}
        limit = min(seconds(unit.probe.limit), COMMAND_SECONDS // 6)
        text, _ = _make_unit_request(unit, limit)
        if fault := json.loads(_run_python(machine, text, f"{node.name}: unit {unit.name}")).get("fault"):
            faults.append(f"{node.name}: unit {unit.name}: {fault}")
            continue
        for name in names:
            after = _words_moved(machines[name])
            if not after:
                faults.append(f"{name}: unit {unit.name}: no device in NCCL_IB_HCA of {FABRIC_ENVIRONMENT}")
            elif not any(words > before[name].get(device, 0) for device, words in after.items()):
                what = f"{', '.join(after)} moved 0 bytes during a request"
                faults.append(f"{name}: unit {unit.name}: the ranks do not use RDMA: {what}")
    report.judge(faults)


def test_each_rank_is_in_its_slice(node: Node, machine: Machine, rack: Rack, report: CheckReporter) -> None:
    """Where the kernel counts the container of each unit that is up."""
    faults = []
    for unit in _units_that_are_up(rack, node):
        name = f"sparkrack-{unit.name}"
        asked = machine.run(
            f"pid=$(docker inspect {name} --format '{{{{.State.Pid}}}}') && cut -d: -f3- \"/proc/$pid/cgroup\""
        )
        right = f"/{CONTAINER_SLICE}/{desired.slice_name(unit)}/"
        if asked.rc:
            faults.append(f"{node.name}: container {name}: {asked.stderr.strip() or 'it does not run'}")
        elif not asked.stdout.startswith(right):
            faults.append(f"{node.name}: container {name} is in {asked.stdout.strip()}, wanted below {right}")
    report.judge(faults)


def test_the_kernel_closes_each_rank_to_other_machines(
    node: Node, machine: Machine, rack: Rack, report: CheckReporter
) -> None:
    """systemd has the addresses of rack.yaml for the slice of each unit that is up, and the kernel judges what arrives
    for each control group in it.
    """
    faults = []
    for unit in _units_that_are_up(rack, node):
        name = desired.slice_name(unit)
        shown = machine.run(f"systemctl show --property=IPAddressAllow --property=IPAddressDeny {name}")
        assert shown.rc == 0, f"{node.name}: {shown.stderr.strip()}"
        rows = dict(line.partition("=")[::2] for line in str(shown.stdout).splitlines())
        allowed = {ip_network(word) for word in rows.get("IPAddressAllow", "").split()}
        wanted = {ip_network(word) for word in ("127.0.0.0/8", "::1/128")}
        wanted |= {ip_network(source) for source in allowed_addresses.rank_sources(rack, unit, node.name)}
        denied = {ip_network(word) for word in rows.get("IPAddressDeny", "").split()}
        if denied != {ip_network("0.0.0.0/0"), ip_network("::/0")}:
            faults.append(f"{node.name}: {name} is open to all addresses; run `sparkrack apply --only serving`")
        elif allowed != wanted:
            odd = ", ".join(sorted(map(str, allowed ^ wanted)))
            faults.append(f"{node.name}: the addresses that reach {name} differ from those of rack.yaml: {odd}")
        text = _FILTERS.format(folder=f"/sys/fs/cgroup/{CONTAINER_SLICE}/{name}")
        asked = _run_python(machine, text, f"{node.name}: {name}")
        faults += [
            f"{node.name}: no program of the kernel judges the packets for {name}{place}"
            for count, place in (line.split(" ", 1) for line in asked.splitlines())
            if count == "0"
        ]
    report.judge(faults)


def test_what_answers_past_the_gateway_without_a_key(
    node: Node, machine: Machine, rack: Rack, report: CheckReporter
) -> None:
    """Whether /invocations asks for the key, where `api.direct` lets machines reach an engine itself. It is reported,
    and is not a fault: rack.yaml declares it.
    """
    units = [unit for unit in _headed_units_that_are_up(rack, node) if unit.api.direct]
    if not units:
        pytest.skip("no unit has api.direct")
    for unit in units:
        text = _ASK_PAST_KEY.format(folder=programs.FOLDER, file=desired.path(unit, "json"), limit=COMMAND_SECONDS // 2)
        name = f"{node.name}: unit {unit.name}"
        status, networks = _run_python(machine, text, name).strip(), ", ".join(map(str, unit.api.direct or ()))
        if status in ("401", "403", "404"):
            report.note(f"{name}: /invocations without a key has HTTP status {status}")
        else:
            report.note(
                f"{name}: /invocations answers {networks} without a key (HTTP status {status}), past the gateway"
            )


def test_ray_of_the_image_asks_for_the_token(node: Node, machine: Machine, rack: Rack, report: CheckReporter) -> None:
    """The Ray in the container of the head is 2.52 or later. An older one is reported, and is not a fault: the slice
    closes it.
    """
    units = [unit for unit in _headed_units_that_are_up(rack, node) if joins_by_ray(unit, len(unit.ranks(rack.nodes)))]
    if not units:
        pytest.skip("Ray joins the nodes of no unit")
    for unit in units:
        asked = machine.run(f"docker exec sparkrack-{unit.name} ray --version")
        found = re.search(r"\b(\d+)\.(\d+)\.\d+", str(asked.stdout))
        name = f"{node.name}: unit {unit.name}"
        if asked.rc or not found:
            report.note(f"{name}: the image does not say which Ray it has, so whether it asks for the token is unknown")
        elif (int(found[1]), int(found[2])) < _RAY_WITH_TOKENS:
            report.note(f"{name}: Ray {found[0]} asks for no token, which 2.52 and later do; its slice alone closes it")
        else:
            report.note(f"{name}: Ray {found[0]} asks for the token")


def test_an_all_reduce_over_the_ranks_is_as_fast_as_their_links(
    node: Node,
    machines: Mapping[str, Machine],
    rack: Rack,
    bandwidth: bool,
    excluded: frozenset[str],
    fabric_use: FabricUse,
    report: CheckReporter,
) -> None:
    """Containers of the image of each unit that this node heads run one of 64 MiB, while nothing uses the GPUs of its
    nodes. The best result with an image is kept on the head.
    """
    units = [unit for unit in _units_of_node(rack, node) if unit.ranks(rack.nodes)[0] == node.name]
    units = [unit for unit in units if len(unit.ranks(rack.nodes)) > 1 and ENGINES[unit.engine].package]
    if not units:
        pytest.skip(f"{node.name} is the head of no unit of several nodes with an engine of Python")
    if not bandwidth:
        pytest.skip("an all-reduce is measured with --bandwidth: it fills the fabric for some seconds")
    lock = lock_path(rack.source)
    pins, records = image_lock.read(lock), model_lock.read_declared(lock, rack.models)
    faults, unknown = [], []
    for unit in units:
        name, ranks = f"{node.name}: unit {unit.name}", unit.ranks(rack.nodes)
        wire = all_reduce.wire_between(fabric_use.measured(), ranks)
        why, is_unknown = "", False
        if away := excluded & set(ranks):
            why = f"{', '.join(sorted(away))} is excluded"
        elif blockers := desired.blockers(rack, unit, pins, records):
            why, is_unknown = blockers[0], True
        else:
            try:
                with fabric_use.alone():
                    wire = all_reduce.wire_between(fabric_use.measured(), ranks)
                    done = all_reduce_run.measure(desired.locked_unit(rack, unit, pins, records), machines, wire)
            except all_reduce_run.BusyError as error:
                why = str(error)
            except (all_reduce_run.NotMeasuredError, UnreachableError) as error:
                why, is_unknown = str(error), True
        if why:
            report.measured(all_reduce.not_measured(rack, unit, wire, why))
            if is_unknown:
                unknown.append(f"{name}: no all-reduce: {why}")
            else:
                report.note(f"{name}: no all-reduce: {why}")
            continue
        report.measured(done.record)
        if done.finding.good:
            report.note(f"{name}: {done.finding.words}")
        else:
            faults.append(f"{name}: {done.finding.words}")
        unknown += [f"{name}: {one}" for one in done.unknown]
    report.judge(faults, unknown)


def _gateway_of_node(rack: Rack, node: Node) -> ServingGateway:
    declared = gateway.declared(rack, node.name)
    if declared is None:
        pytest.skip(f"{node.name} is not the node of the gateway")
    return declared


def test_the_files_of_the_gateway_are_those_of_the_rack(
    node: Node, machine: Machine, rack: Rack, report: CheckReporter
) -> None:
    """Content, mode and owner of each; keys and certificate are readable by root only."""
    declared = _gateway_of_node(rack, node)
    made = (*gateway.files(rack, declared), *gateway_router.files(rack, declared))
    faults = _list_file_faults(node, machine, list(made))
    found = _read_file_states(machine, [gateway.KEYS, gateway.CERTIFICATE])
    for path in (gateway.KEYS, gateway.CERTIFICATE):
        state = found.get(path, "missing").rpartition(" ")[0] or "missing"
        if state != "600 root:root":
            faults.append(f"{node.name}: {path} is {state}, wanted 600 root:root")
    report.judge(faults)


@pytest.mark.parametrize("service", [gateway.SERVICE, gateway_router.SERVICE])
def test_the_gateway_runs_and_starts_at_boot(node: Node, machine: Machine, rack: Rack, service: str) -> None:
    """systemd reports nginx and its router as active and enabled."""
    _gateway_of_node(rack, node)
    faults = _service_faults(node, machine, service)
    assert not faults, faults[0]


def test_nginx_of_the_gateway_has_no_known_weakness(
    node: Node, machine: Machine, rack: Rack, report: CheckReporter
) -> None:
    """No advisory is known against the installed package, and the process that runs is that of the package."""
    _gateway_of_node(rack, node)
    version = str(machine.run(f"dpkg-query -W -f '${{Version}}' {gateway.PACKAGE}").stdout).strip()
    known = known_against(NGINX, version)
    faults = [f"{node.name}: {advisory_line(row, version)}" for row in known if row.fault]
    if version_key(version) is None:
        report.note(f"{node.name}: the version of nginx is unknown, so no advisory is looked up")
    # apt restarts the service of its package alone.
    pid = f"$(systemctl show --property=MainPID --value {gateway.SERVICE})"
    if str(machine.run(f"readlink /proc/{pid}/exe").stdout).strip().endswith("(deleted)"):
        faults.append(
            f"{node.name}: the gateway runs an nginx that was replaced; `systemctl restart {gateway.SERVICE}`"
        )
    report.judge(faults)


def test_the_gateway_answers_for_each_unit(node: Node, machine: Machine, rack: Rack, report: CheckReporter) -> None:
    """Over TLS with its certificate: 401 without the key of a client, 404 beside /v1, an answer with a key at the path
    of the unit and by the name of its model, 503 of a unit that is declared down, and the list of the models.
    """
    declared = _gateway_of_node(rack, node)
    units = served_units(rack)
    requests = {unit.name: unit_kinds.request(unit) for unit in units.values()}
    asked = {
        name: (path, {"model": desired.served_name(units[name]), **body}) for name, (path, body, _) in requests.items()
    }
    text = _ASK_GATEWAY.format(
        host=gateway.address(rack, declared),
        port=declared.port,
        limit=COMMAND_SECONDS // (5 * max(1, len(units)) + 2),
        asked=asked,
        keys=gateway.KEYS,
        certificate=gateway.CERTIFICATE,
    )
    found = json.loads(_run_python(machine, text, node.name))
    assert "fault" not in found, f"{node.name}: the gateway does not answer: {found['fault']}"
    faults = (
        [] if found.pop("certificate", True) else [f"{node.name}: the gateway has another certificate than its file"]
    )
    by_model = gateway_router.units_by_model(units.values())
    status, body = found.pop("models")
    listed = [model["id"] for model in json.loads(body)["data"]] if status == 200 else []
    if listed != list(by_model):
        what = f"has {', '.join(listed)}" if listed else f"has HTTP status {status} ({printable_line(body)[:200]})"
        faults.append(f"{node.name}: /v1/models {what}, wanted {', '.join(by_model)}")
    for name, answers in found.items():
        same = by_model[desired.served_name(units[name])]
        path, _, word = requests[name]
        for how, up in (
            ("directly", units[name].state == "up"),
            ("by its model", any(units[one].state == "up" for one in same)),
        ):
            (status, body), wanted = answers.pop(how), 200 if up else 503
            if status != wanted or (up and word not in body):
                what = f"has HTTP status {status} ({printable_line(body)[:200]}), wanted {wanted}"
                faults.append(f"{node.name}: {path} of unit {name} {how} {what}")
        right = {"without a key": 401, "with another key": 401, "for its metrics": 404}
        faults += [
            f"{node.name}: a request {how} to unit {name} has HTTP status {answers[how]}, wanted {wanted}"
            for how, wanted in right.items()
            if answers[how] != wanted
        ]
    report.judge(faults)
