"""The files of a release agree with pyproject.toml: the recipe for conda, the workflow, the citation."""

from __future__ import annotations

import re
import tomllib
from typing import Any

import pytest
import yaml

from ringcast.version import __version__
from support.places import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
CONDA_NAMES = {"msgpack": "msgpack-python"}  # packages that conda-forge names differently
WORKFLOWS = sorted((ROOT / ".github/workflows").glob("*.yml"))


def recipe() -> Any:
    """Return the recipe, with the variables of its first line and of conda-build."""
    text = (ROOT / "conda/meta.yaml").read_text()
    (version,) = re.findall(r'^{% set version = "(.*)" %}$', text, re.MULTILINE)
    text = re.sub("^{%.*%}$", "", text, flags=re.MULTILINE).replace("{{ version }}", version)
    return yaml.safe_load(text.replace("{{ PYTHON }}", "python"))


def for_conda(requirement: str) -> str:
    """Return a requirement as conda writes it: `name >=version`."""
    name, relation, version = re.fullmatch(r"([\w-]+)([<>=]+)([\w.]+)", requirement).groups()
    return f"{CONDA_NAMES.get(name, name)} {relation}{version}"


def test_the_recipe_is_of_this_version() -> None:
    assert recipe()["package"] == {"name": PROJECT["project"]["name"], "version": __version__}
    assert recipe()["source"]["url"].endswith(f"/ringcast-{__version__}.tar.gz")


def test_the_recipe_requires_what_the_project_does() -> None:
    python = f"python {PROJECT['project']['requires-python']}"
    wanted = {for_conda(requirement) for requirement in PROJECT["project"]["dependencies"]}
    assert set(recipe()["requirements"]["run"]) == wanted | {python, "__linux"}
    build = {for_conda(requirement) for requirement in PROJECT["build-system"]["requires"]}
    assert set(recipe()["requirements"]["host"]) == build | {python, "pip"}


def test_the_recipe_has_the_projects_commands() -> None:
    scripts = {f"{name} = {entry}" for name, entry in PROJECT["project"]["scripts"].items()}
    assert set(recipe()["build"]["entry_points"]) == scripts


def test_the_recipe_says_what_the_project_says() -> None:
    assert recipe()["about"]["summary"] == PROJECT["project"]["description"]


def test_the_changelog_has_this_version() -> None:
    assert re.search(rf"^## \[{re.escape(__version__)}\] - (unreleased|\d{{4}}-\d\d-\d\d)$", changelog(), re.MULTILINE)


def changelog() -> str:
    return (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_a_workflow_has_jobs_of_steps_that_run_or_use_something(path: Any) -> None:
    workflow = yaml.safe_load(path.read_text())
    assert workflow["permissions"] == {"contents": "read"}
    assert True in workflow  # `on`, which YAML takes for a truth value
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    for step in steps:
        assert ("run" in step) != ("uses" in step), step
        assert re.fullmatch(r"[\w-]+/[\w.-]+@(v\d+|release/v\d+)", step.get("uses", "some/action@v1")), step
    programs = re.findall(r"(?<![\w/])\.ci/\w[\w-]*", " ".join(step.get("run", "") for step in steps))
    assert all((ROOT / program).is_file() for program in programs)


def test_the_release_is_built_and_checked_as_by_hand() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/release.yml").read_text())["jobs"]
    assert "make dist" in [step.get("run") for step in jobs["build"]["steps"]]
    assert jobs["publish"]["needs"] == "build"
    assert jobs["publish"]["permissions"] == {"id-token": "write"}  # nobody's password is kept anywhere
