"""Recipes and mods are found by name in the folders of registries, and nothing outside of them."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from sparkrack.serving.recipe_registry import (
    Registry,
    find_mod,
    find_recipe,
    folder_registries,
    implied_registries,
    named_source,
    registries_of,
)
from sparkrack.serving.recipe_text import RecipeError


def add_recipe(folder: Path, name: str) -> None:
    path = folder / f"{name}.yaml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("model: acme/Tiny\n")


def add_mod(folder: Path, name: str, text: str = "echo\n") -> None:
    (folder / name).mkdir(parents=True)
    (folder / name / "run.sh").write_text(text)


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """A folder as eugr has it: recipes, some in folders, and mods."""
    root = tmp_path / "plain"
    for name in ("tiny", "4x/tiny-large", "4x/glm", "8x/glm"):
        add_recipe(root / "recipes", name)
    add_mod(root / "mods", "fix")
    return root


@pytest.fixture
def declared(tmp_path: Path) -> Path:
    """A folder as sparkrun has it, with two registries in its manifest."""
    root = tmp_path / "declared"
    add_recipe(root / "official-recipes", "family/tiny")
    add_recipe(root / "tests/recipes", "new")
    add_mod(root / "official-mods", "fix", "echo official\n")
    add_mod(root / "tests/mods", "fix", "echo tests\n")
    (root / ".sparkrun").mkdir()
    (root / ".sparkrun/registry.yaml").write_text(
        "registries:\n- {name: official, recipes: official-recipes, mods: official-mods}\n"
        "- {name: tests, recipes: tests/recipes, mods: tests/mods, visible: no}\n"
        "- {name: out, recipes: ../plain/recipes}\n"
    )
    return root


def test_a_folder_without_a_manifest_is_one_registry(plain: Path) -> None:
    (found,) = folder_registries(plain, "eugr")
    assert found == Registry("eugr", plain, plain / "recipes", plain / "mods")
    assert folder_registries(plain)[0].name == "plain"


def test_the_registries_of_a_manifest_lie_inside_its_folder(declared: Path, plain: Path) -> None:
    assert plain.is_dir()
    assert [one.name for one in folder_registries(declared)] == ["official", "tests"]


@pytest.mark.parametrize(
    ("name", "registry", "path"),
    [
        ("tiny-large", "plain", "recipes/4x/tiny-large.yaml"),
        ("4x/glm", "plain", "recipes/4x/glm.yaml"),
        ("8x/glm.yaml", "plain", "recipes/8x/glm.yaml"),
        ("new", "tests", "tests/recipes/new.yaml"),
        ("@official/tiny", "official", "official-recipes/family/tiny.yaml"),
        ("@plain/tiny", "plain", "recipes/tiny.yaml"),
    ],
)
def test_a_recipe_is_found_by_its_name(name: str, registry: str, path: str, plain: Path, declared: Path) -> None:
    found = find_recipe(name, (*folder_registries(plain), *folder_registries(declared)))
    assert found.registry is not None
    assert found.path == found.registry.folder / path
    assert found.registry.name == registry
    assert len(found.registries) == 3


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("tiny", "is the name of several recipes; write one of @plain/tiny, @official/family/tiny, or the path"),
        ("glm", "is the name of several recipes; write one of @plain/4x/glm, @plain/8x/glm, or the path of its file"),
        ("tiny-larg", "is neither a file nor a recipe of plain, official, tests; did you mean tiny-large"),
        ("zzz", "is neither a file nor a recipe of plain, official, tests; name another registry with --registry"),
        ("@other/tiny", "is not a file, and no registry is called other; name one with --registry"),
    ],
)
def test_a_name_that_is_not_one_recipe_is_refused(name: str, problem: str, plain: Path, declared: Path) -> None:
    with pytest.raises(RecipeError) as caught:
        find_recipe(name, (*folder_registries(plain), *folder_registries(declared)))
    assert str(caught.value).startswith(problem)


def test_a_mod_is_looked_for_beside_the_recipe_then_in_its_registry_then_in_the_others(
    plain: Path, declared: Path
) -> None:
    registries = (*folder_registries(plain), *folder_registries(declared))

    def content(recipe: str, mod: str) -> bytes:
        found = find_mod(mod, find_recipe(recipe, registries))
        assert found is not None
        return found[1]["run.sh"]

    assert content("new", "mods/fix") == b"echo tests\n"
    assert content("@official/tiny", "fix") == b"echo official\n"
    assert content("@official/tiny", "@tests/fix") == b"echo tests\n"
    assert content("@plain/tiny", "fix") == b"echo\n"
    add_mod(plain / "mods", "only", "echo only\n")
    assert content("new", "only") == b"echo only\n"
    add_mod(declared / "tests/recipes/mods", "fix", "echo beside\n")
    assert content("new", "mods/fix") == b"echo beside\n"


@pytest.mark.parametrize(
    "reference", ["../../plain/mods/fix", "mods/../../plain/mods/fix", "/etc", "@official/../../x"]
)
def test_a_mod_outside_of_its_registry_is_not_found(reference: str, plain: Path, declared: Path) -> None:
    assert (plain / "mods/fix/run.sh").is_file()
    assert find_mod(reference, find_recipe("new", folder_registries(declared))) is None


def test_a_link_in_a_mod_is_refused(plain: Path) -> None:
    (plain / "mods/fix/secret").symlink_to("/etc/passwd")
    with pytest.raises(RecipeError, match=r"^mods: fix/secret is a link; put the file itself there$"):
        find_mod("fix", find_recipe("tiny", folder_registries(plain)))


def test_a_mod_whose_folder_is_a_link_out_of_its_registry_is_not_found(plain: Path, tmp_path: Path) -> None:
    add_mod(tmp_path / "elsewhere", "other")
    (plain / "mods/other").symlink_to(tmp_path / "elsewhere/other")
    assert find_mod("other", find_recipe("tiny", folder_registries(plain))) is None


def test_a_recipe_that_is_a_link_out_of_its_registry_is_not_found(plain: Path, tmp_path: Path) -> None:
    add_recipe(tmp_path / "elsewhere", "own")
    (plain / "recipes/own.yaml").symlink_to(tmp_path / "elsewhere/own.yaml")
    with pytest.raises(RecipeError, match=r"^is neither a file nor a recipe of plain; "):
        find_recipe("own", folder_registries(plain))


def test_a_file_has_the_registry_of_the_folder_around_it(plain: Path, declared: Path, tmp_path: Path) -> None:
    found = named_source(str(plain / "recipes/4x/glm.yaml"), (), tmp_path)
    assert found.registry == folder_registries(plain)[0]
    found = named_source(str(plain / "recipes/tiny.yaml"), (str(declared),), tmp_path)
    assert found.registry is None
    assert [one.name for one in found.registries] == ["official", "tests"]
    (tmp_path / "alone.yaml").write_text("")
    assert implied_registries(tmp_path / "alone.yaml") == ()


def test_a_name_without_a_registry_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=r"^is not a file, and no registry is given; name one with --registry$"):
        named_source("tiny", (), tmp_path)


def test_a_registry_is_cloned_from_its_url(plain: Path, tmp_path: Path) -> None:
    git = ["git", "-C", str(plain), "-c", "user.name=x", "-c", "user.email=x@example.org"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "all"]):
        subprocess.run([*git, *words], check=True)
    (found,) = registries_of([f"eugr={plain.as_uri()}"], tmp_path / "clones")
    assert found.name == "eugr"
    assert (found.recipes / "tiny.yaml").is_file()
    assert tmp_path / "clones" in found.folder.parents
    assert registries_of([plain.as_uri()], tmp_path / "again")[0].name == "plain"


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        ("absent", "absent: is not a folder; name one with --registry"),
        ("file:///absent/x", "file:///absent/x: cannot be cloned: "),
        ("ext::sh -c true", "ext::sh -c true: is not a folder; name one with --registry"),
        ("ext://sh", "ext://sh: cannot be cloned: "),
    ],
)
def test_a_registry_that_is_not_there_is_refused(option: str, problem: str, tmp_path: Path) -> None:
    with pytest.raises(RecipeError) as caught:
        registries_of([option], tmp_path)
    assert str(caught.value).startswith(problem)
