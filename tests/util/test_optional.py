"""The package that an error recommends exists, with the version that pyproject.toml wants."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib

import pytest

from ringcast._util.optional import how_to_install
from support.places import ROOT

EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
OPTIONAL = [requirement for extra in EXTRAS.values() for requirement in extra]


@pytest.mark.parametrize("requirement", OPTIONAL)
def test_the_command_installs_what_the_extra_does(requirement: str) -> None:
    name = re.split("[<>=]", requirement)[0]
    assert how_to_install(name) == f"pip install '{requirement}'"


def test_sources_that_are_not_installed_name_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(name: str) -> list[str]:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr("ringcast._util.optional.requires", missing)
    assert how_to_install("matplotlib") == "pip install 'matplotlib'"


def test_no_text_recommends_an_extra_of_a_package_that_the_index_need_not_have() -> None:
    files = [*(ROOT / "ringcast").rglob("*.py"), *(ROOT / "launcher").rglob("*.py"), *(ROOT / "docs").rglob("*.md")]
    said = re.compile(r"pip install '?ringcast\[")
    told = [str(file) for file in files if said.search(file.read_text()) and file.name != "optional.py"]
    assert not told
