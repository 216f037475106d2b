"""`sparkrack serve export`: where files go, what is refused, and that no secret is in them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from sparkrack.cli.main import sparkrack
from sparkrack.serving.export.files import FORMATS
from tests.unit.model.serving_racks import NEMOTRON, VLLM, machines, put, text, unit

SECRET = "a-key-that-no-file-has"
KEY = {"port": 30000, "listen": "management", "key": {"file": "one.key"}}
RAY = unit(engine="vllm-ray", api=KEY)


def rack_file(folder: Path, keys: dict[str, Any], hosts: str = "", *, pinned: bool = True, **sections: Any) -> Path:
    """A rack file whose unit `one` has these keys, its key, and a lock file with its image."""
    path = put(folder, text({"one": keys}, hosts, **sections))
    (folder / "one.key").write_text(SECRET)
    if pinned:
        pin = {"digest": f"sha256:{'a' * 64}", "id": f"sha256:{'b' * 64}"}
        path.with_name(f"{path.stem}.lock.json").write_text(json.dumps({"images": {keys["image"]: pin}}))
    return path


def export(path: Path, form: str, *words: str, name: str = "one") -> Result:
    return CliRunner().invoke(sparkrack, ["serve", "export", name, "--format", form, *words, "--rack", str(path)])


def error(found: Result) -> str:
    """The one line of a refusal, before the command that is proposed next."""
    assert found.exit_code == 1, found.output
    assert isinstance(found.exception, SystemExit)
    assert found.stdout == ""
    line, *rest = found.stderr.splitlines()
    assert len(rest) <= 1
    return line.removeprefix("Error: ")


def test_one_file_goes_to_stdout(tmp_path: Path) -> None:
    path = rack_file(tmp_path, unit())
    found = export(path, "lws")
    assert found.exit_code == 0, found.output
    assert found.stdout.startswith("# Unit one of the rack served")
    assert "sparkrack serve export one" in found.stdout


@pytest.mark.parametrize(
    ("form", "names"),
    [
        ("lws", ["one.lws.yaml"]),
        ("ray", ["one.ray.yaml", "one.ray-serve.sh"]),
    ],
)
def test_files_go_to_a_folder_and_stay_without_force(form: str, names: list[str], tmp_path: Path) -> None:
    path = rack_file(tmp_path, RAY)
    folder = tmp_path / "new" / "folder"
    found = export(path, form, "--output", str(folder))
    assert found.exit_code == 0, found.output
    assert found.stdout.splitlines() == [f"{folder / name}: written" for name in names]
    assert sorted(one.name for one in folder.iterdir()) == sorted(names)
    assert {one.name: one.stat().st_mode & 0o777 for one in folder.iterdir()} == {
        name: 0o755 if name.endswith(".sh") else 0o644 for name in names
    }
    last = folder / names[-1]
    before = last.read_text()
    for one in folder.iterdir():
        if one != last:
            one.unlink()
    last.write_text("mine")
    assert error(export(path, form, "--output", str(folder))) == (
        f"{last} exists; --force writes over it; nothing was written"
    )
    assert [one.name for one in folder.iterdir()] == [last.name]
    assert last.read_text() == "mine"
    assert export(path, form, "--output", str(folder), "--force").exit_code == 0
    assert last.read_text() == before


def test_a_link_is_not_written_through(tmp_path: Path) -> None:
    path = rack_file(tmp_path, unit())
    (tmp_path / "one.lws.yaml").symlink_to(tmp_path / "nowhere")
    assert "exists; --force" in error(export(path, "lws", "--output", str(tmp_path)))
    assert not (tmp_path / "nowhere").exists()


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    path = rack_file(tmp_path, unit())
    (tmp_path / "file").write_text("")
    assert "cannot be written" in error(export(path, "lws", "--output", str(tmp_path / "file")))


@pytest.mark.parametrize(
    "keys", [RAY, unit(api=KEY), unit(NEMOTRON, nodes=["n0", "n1"], parallel={"tensor": 2}, api=KEY)]
)
@pytest.mark.parametrize("form", FORMATS)
def test_no_secret_is_exported(form: str, keys: dict[str, Any], tmp_path: Path) -> None:
    path = rack_file(tmp_path, keys)
    found = export(path, form, "--output", str(tmp_path / "out"))
    if form == "ray" and keys["engine"] != "vllm-ray":
        assert error(found).endswith(f"{keys['engine']} does not use Ray; export lws")
        return
    assert found.exit_code == 0, found.output
    whole = found.output + "".join(one.read_text() for one in (tmp_path / "out").iterdir())
    assert SECRET not in whole
    assert "one.key.yaml" in whole if keys["engine"] == "sglang" else "one.key.env" in whole


def test_each_head_names_the_rack_and_what_is_missing(tmp_path: Path) -> None:
    path = rack_file(tmp_path, RAY)
    for form in FORMATS:
        assert export(path, form, "--output", str(tmp_path / "out")).exit_code == 0
    files = list((tmp_path / "out").iterdir())
    assert len(files) == 3
    for file in files:
        comments = [line for line in file.read_text().splitlines() if line.startswith("# ")]
        assert f"# From {path.name}, a file that is not in git. Later changes of it do not reach this file." in comments
        for what in ("gates", "memory guard", "health", "failure"):
            assert any(line.startswith(f"# - {what}: ") for line in comments), (file, what)


def test_an_unknown_unit_is_named_with_its_nearest(tmp_path: Path) -> None:
    path = rack_file(tmp_path, unit())
    assert error(export(path, "lws", name="onne")) == f"{path} has no unit onne; its units are one; did you mean one?"
    assert error(export(path, "lws", name="zzz")) == f"{path} has no unit zzz; its units are one"
    path.write_text(machines(2))
    assert error(export(path, "lws")) == f"{path} has no unit one; it has no serving section"


def test_several_files_need_a_folder(tmp_path: Path) -> None:
    path = rack_file(tmp_path, RAY)
    assert error(export(path, "ray")) == (
        "ray needs 2 files (one.ray.yaml, one.ray-serve.sh); name a folder with --output"
    )


@pytest.mark.parametrize(
    ("form", "keys", "hosts", "sections", "key", "what"),
    [
        ("ray", unit(), "", {}, "engine", "vllm does not use Ray; export lws"),
        (
            "ray",
            unit(engine="vllm-ray", nodes=["n0"], parallel={"tensor": 1}),
            *("", {}, "nodes", "vLLM needs no Ray on one node; export lws"),
        ),
        (
            "ray",
            unit(engine="vllm-ray"),
            machines(2).replace("access: {", "access: {port: 2222, ", 1),
            *({}, "engine", "Ray connects to port 22 only, and access.port is 2222; export lws"),
        ),
        (
            "lws",
            unit(nodes=["n0", "n1", "n2", "n3"], parallel={"tensor": 4}),
            machines(4, "ring"),
            *({}, "nodes", "Kubernetes gives no worker its own node, so ranks of a ring would not follow its cables"),
        ),
    ],
)
def test_what_a_system_cannot_run_is_refused_with_its_line(
    form: str, keys: dict[str, Any], hosts: str, sections: dict[str, Any], key: str, what: str, tmp_path: Path
) -> None:
    path = rack_file(tmp_path, keys, hosts, **sections)
    (line,) = (
        n for n, one in enumerate(path.read_text().splitlines(), 1) if one.strip().startswith(f"{key}:") and n > 9
    )
    assert error(export(path, form)) == f"{path}:{line}: serving.units.one.{key}: {what}"


def test_kubernetes_needs_the_image_of_the_lock_file(tmp_path: Path) -> None:
    path = rack_file(tmp_path, RAY, pinned=False)
    found = error(export(path, "lws"))
    assert found.startswith(f"{path}:")
    assert found.endswith(
        f"serving.units.one.image: the lock file has no record of {VLLM}, and Kubernetes pulls an image by itself; "
        "run `sparkrack apply --only images`"
    )
    assert export(path, "ray", "--output", str(tmp_path / "out")).exit_code == 0
    for file in (tmp_path / "out").iterdir():
        assert f"# Image: {VLLM}, by its name: the lock file has no ID\n" in file.read_text()


def test_an_image_without_a_registry_is_not_pulled(tmp_path: Path) -> None:
    path = rack_file(tmp_path, unit())
    lock = path.with_name(f"{path.stem}.lock.json")
    lock.write_text(json.dumps({"images": {VLLM: {"digest": None, "id": f"sha256:{'b' * 64}"}}}))
    found = export(path, "lws")
    assert found.exit_code == 0, found.output
    assert found.stdout.count("imagePullPolicy: Never") == 2
    assert found.stdout.count(f'image: "{VLLM}"') == 2


def test_a_name_that_kubernetes_does_not_take_is_refused(tmp_path: Path) -> None:
    path = put(tmp_path, text({"one_": unit()}))
    pin = {"digest": None, "id": f"sha256:{'b' * 64}"}
    path.with_name(f"{path.stem}.lock.json").write_text(json.dumps({"images": {VLLM: pin}}))
    assert error(export(path, "lws", name="one_")).endswith(
        "serving.units.one_: one_ ends with '_', and a name of Kubernetes with no '-'; rename the unit"
    )
