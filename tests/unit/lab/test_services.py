"""What nodes find on the operator's address, and how they learn of it."""

from __future__ import annotations

import json
from http.client import HTTPConnection
from pathlib import Path
from threading import Thread

import pytest
from ruamel.yaml import YAML

from lab import repository, services
from lab.image.build import Base
from lab.image.kernel import Kernel
from lab.keys import make_key
from lab.layout import Layout
from lab.node import VirtualNode
from lab.paths import LabPaths
from tests.unit.model.racks import SWITCH, loaded

LAYOUT = Layout(loaded(SWITCH))


@pytest.fixture
def built(tmp_path: Path) -> Base:
    base = Base(tmp_path / "base", Kernel(tmp_path / "kernel"))
    base.repository.mkdir(parents=True)
    (base.repository / "Packages").write_text("first\n")
    return base


def test_a_node_is_reported_where_packages_and_images_are(tmp_path: Path) -> None:
    paths = LabPaths(tmp_path)
    make_key(paths.key, "operator")
    node = VirtualNode(next(iter(LAYOUT.rack.nodes)), LAYOUT, paths)
    node.prepare()
    operator = LAYOUT.operator.ip
    assert f"URIs: http://{operator}:8090/\n" in (node.shared / "seed/lab.sources").read_text()
    text = (node.shared / "seed/daemon.json").read_text()
    assert json.loads(text) == {
        "registry-mirrors": [f"http://{operator}:5000"],
        "insecure-registries": [f"{operator}:5000"],
    }
    # laid out as no program would, so that who changes it shows whether he keeps that
    assert text not in [json.dumps(json.loads(text), indent=width) + "\n" for width in (None, 1, 2, 4)]


def test_a_lab_keeps_its_packages(built: Base, tmp_path: Path) -> None:
    paths = LabPaths(tmp_path / "lab")
    services.prepare(LAYOUT, paths, built)
    (built.repository / "Packages").write_text("of another recipe\n")
    services.prepare(LAYOUT, paths, built)
    assert (paths.packages / "Packages").read_text() == "first\n"


def test_a_copy_that_was_cut_short_is_made_again(built: Base, tmp_path: Path) -> None:
    paths = LabPaths(tmp_path / "lab")
    side = paths.packages.with_suffix(".new")
    side.mkdir(parents=True)
    (side / "half").touch()
    services.prepare(LAYOUT, paths, built)
    assert [path.name for path in paths.packages.iterdir()] == ["Packages"]


def test_the_registry_keeps_to_the_labs_folder(built: Base, tmp_path: Path) -> None:
    paths = LabPaths(tmp_path / "a lab: with {odd} words")
    services.prepare(LAYOUT, paths, built)
    config = YAML(typ="safe").load(paths.images / "registry.yaml")
    assert config["storage"]["filesystem"]["rootdirectory"] == str(paths.images / "store")
    assert config["http"]["addr"] == LAYOUT.registry


def test_each_process_is_known_from_others(built: Base, tmp_path: Path) -> None:
    made = services.services(LAYOUT, LabPaths(tmp_path), built)
    assert [service.address[1] for service in made] == [8090, 5000]
    for service in made:
        assert str(service.mark) in service.command
        others = [word for other in made if other is not service for word in other.command]
        assert str(service.mark) not in others


def test_the_repository_serves_its_folder_in_silence(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "Packages").write_text("here\n")
    with repository.server("127.0.0.1", 0, str(tmp_path)) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        connection = HTTPConnection("127.0.0.1", server.server_port, timeout=60)
        for path, status in (("/Packages", 200), ("/missing", 404)):
            connection.request("GET", path)
            answer = connection.getresponse()
            assert (answer.status, "here" in answer.read().decode()) == (status, status == 200)
        connection.close()
        server.shutdown()
    assert capfd.readouterr().err == ""
