"""What `pip install` brings: the listed packages are those on disk, and nothing lands beside them."""

import importlib
import importlib.metadata
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import anabranch

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
SETUPTOOLS = PROJECT["tool"]["setuptools"]
TOP_LEVEL = ("overlay", "transport", "security", "tools")


def packages_on_disk() -> set[str]:
    found = {"anabranch"}
    for top in TOP_LEVEL:
        for init in (ROOT / top).rglob("__init__.py"):
            found.add(".".join(("anabranch", *init.parent.relative_to(ROOT).parts)))
    return found


def test_the_packages_that_are_installed_are_those_on_disk() -> None:
    listed = SETUPTOOLS["packages"]
    assert len(listed) == len(set(listed))
    assert set(listed) == packages_on_disk(), "list the package in pyproject.toml"


def test_no_module_lies_in_a_directory_that_is_no_package() -> None:
    homes = {path.parent for top in TOP_LEVEL for path in (ROOT / top).rglob("*.py")}
    assert [str(home) for home in sorted(homes) if not (home / "__init__.py").exists()] == []


def test_every_top_level_package_is_mapped_and_linked_for_static_tools() -> None:
    assert SETUPTOOLS["package-dir"] == {
        "anabranch": "src/anabranch",
        **{f"anabranch.{t}": t for t in TOP_LEVEL},
    }
    links = {path.name: path for path in (ROOT / "src" / "anabranch").iterdir() if path.is_symlink()}
    assert set(links) == set(TOP_LEVEL)
    for name, link in links.items():
        assert os.readlink(link) == f"../../{name}"  # noqa: PTH115 - as it is stored, not resolved
    others = {path.name for path in (ROOT / "src").iterdir()} - {"anabranch"}
    assert not [name for name in others if not name.endswith(".egg-info")]


def test_what_setuptools_would_install_lies_below_anabranch() -> None:
    setuptools = pytest.importorskip("setuptools")
    here = Path.cwd()
    try:
        os.chdir(ROOT)
        distribution = setuptools.Distribution(
            {
                "packages": SETUPTOOLS["packages"],
                "package_dir": SETUPTOOLS["package-dir"],
                "script_name": "none",
            }
        )
        command = distribution.get_command_obj("build_py")
        command.build_lib = "out"
        command.ensure_finalized()
        modules = {(package, module) for package, module, _ in command.find_all_modules()}
    finally:
        os.chdir(here)
    assert {package.split(".")[0] for package, _ in modules} == {"anabranch"}
    assert ("anabranch.overlay", "node") in modules
    on_disk = {
        path.relative_to(ROOT).with_suffix("") for top in TOP_LEVEL for path in (ROOT / top).rglob("*.py")
    }
    installed = {
        Path(*package.split(".")[1:], module) for package, module in modules if package != "anabranch"
    }
    assert installed == on_disk


def test_a_wheel_holds_anabranch_and_nothing_beside_it(tmp_path: Path) -> None:
    version = importlib.metadata.version("setuptools").split(".")[0] if has_setuptools() else "0"
    if int(version) < 77:
        pytest.skip("building needs setuptools 77 in the environment")
    source = tmp_path / "source"
    skip = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in (*TOP_LEVEL, "src"):
        shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=skip)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    done = subprocess.run(
        [*build, "-w", tmp_path, source], capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("anabranch-*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0].split("-")[0] for name in names} == {"anabranch"}
    assert {"anabranch/py.typed", "anabranch/overlay/node.py", "anabranch/tools/cli.py"} <= set(names)
    assert not [name for name in names if "test" in name.split("/")[1:2]]


def has_setuptools() -> bool:
    try:
        importlib.metadata.version("setuptools")
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def in_a_fresh_process(code: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    "module",
    ["anabranch", "anabranch.overlay.node", "anabranch.overlay.records", "anabranch.transport.simulator"],
)
def test_importing_a_part_does_not_load_zeromq(module: str) -> None:
    in_a_fresh_process(
        f"import {module}, sys; assert 'zmq' not in sys.modules and 'typer' not in sys.modules"
    )


def test_every_public_name_resolves_and_is_its_own() -> None:
    assert len(anabranch.__all__) == len(set(anabranch.__all__))
    assert list(anabranch.__all__) == sorted(anabranch.__all__)
    for name in anabranch.__all__:
        value = getattr(anabranch, name)
        assert value.__name__ == name
        assert value.__module__.startswith("anabranch.")
    assert set(anabranch.__all__) <= set(dir(anabranch))
    with pytest.raises(AttributeError, match="Nonsense"):
        _ = anabranch.Nonsense  # type: ignore[attr-defined]


def test_the_version_is_said_once() -> None:
    assert anabranch.__version__ == PROJECT["project"]["version"]


def test_the_command_exists() -> None:
    module, _, function = PROJECT["project"]["scripts"]["anabranch"].partition(":")
    assert callable(getattr(importlib.import_module(module), function))


def test_the_package_says_that_it_is_typed() -> None:
    assert (ROOT / "src" / "anabranch" / "py.typed").exists()
    assert "py.typed" in SETUPTOOLS["package-data"]["anabranch"]


def test_the_package_runs_as_the_command() -> None:
    command = [sys.executable, "-m", "anabranch", "--version"]
    told = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert told.stdout == f"anabranch {anabranch.__version__}\n"
