"""A Slurm allocation as its environment tells it; the variables below are what Slurm 22.05 has set. The real one is in
test_slurm.py."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from ipaddress import ip_address
from types import SimpleNamespace
from typing import Any

import pytest

from ringcast.net.hostlist import Host
from ringcast.net.interfaces import in_brackets, own_addresses
from ringcast.net.ssh import SSH
from ringcast_launcher.hosts.agent import seen_from
from ringcast_launcher.hosts.ssh import own_address, remote_argv, starter_environment
from ringcast_launcher.plan import nested_launch, slurm
from ringcast_launcher.plan.job import JobError
from support.patience import patience
from support.places import ROOT

SALLOC = {
    "SLURM_JOB_ID": "7",
    "SLURM_JOB_NODELIST": "n[08-10]",
    "SLURM_TASKS_PER_NODE": "2(x2),1",
    "SLURM_JOB_CPUS_PER_NODE": "8(x2),4",
    "SLURM_NTASKS": "5",
    "SLURM_NNODES": "3",
}
ONE_TASK = {"SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_NODEID": "0", "SLURM_GTIDS": "0", "SLURM_TASK_PID": "99"}
BATCH = SALLOC | ONE_TASK | {"SLURMD_NODENAME": "n08", "SLURM_CPUS_ON_NODE": "8"}
STEP = BATCH | {"SLURM_STEP_ID": "0", "SLURM_STEP_NUM_TASKS": "1", "SLURM_TASKS_PER_NODE": "1", "SLURM_NTASKS": "1"}
TASK = STEP | {"SLURM_STEP_NUM_TASKS": "4", "SLURM_TASKS_PER_NODE": "2,1(x2)", "SLURM_NTASKS": "4"}


@pytest.mark.parametrize("env", [SALLOC, BATCH, BATCH | {"SLURM_STEP_ID": "4294967290"}])
def test_the_tasks_of_each_node_are_its_slots(env: dict[str, str]) -> None:
    assert slurm.allocation(env) == (Host("n08", 2), Host("n09", 2), Host("n10", 1))


def test_in_a_step_of_one_task_the_slots_are_those_of_the_allocation() -> None:
    assert [host.slots for host in slurm.allocation(STEP)] == [8, 8, 4]
    assert [host.slots for host in slurm.allocation(STEP | {"SLURM_CPUS_PER_TASK": "3"})] == [2, 2, 1]
    assert [host.slots for host in slurm.allocation(STEP | {"SLURM_CPUS_PER_TASK": "6"})] == [1, 1, 1]


@pytest.mark.parametrize("env", [{}, {"SLURM_CONF": "/etc/slurm.conf"}, {"SLURM_JOB_ID": "7"}])
def test_outside_of_an_allocation_there_is_none(env: dict[str, str]) -> None:
    assert slurm.allocation(env) == ()


OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "4"}


@pytest.mark.parametrize(
    ("env", "another", "words"),
    [
        (TASK, {"SLURM_PROCID": "3"}, r"^Slurm has .* 4 times.*: srun -n 4 python PROGRAM"),
        (OPEN_MPI, {"OMPI_COMM_WORLD_RANK": "3"}, r"^Open MPI has .* 4 times.*: mpirun -n 4 python PROGRAM"),
    ],
)
def test_of_several_launchers_the_first_one_says_what_is_wrong(
    env: dict[str, str], another: dict[str, str], words: str
) -> None:
    with pytest.raises(JobError, match=words):
        nested_launch.check(env)
    with pytest.raises(JobError, match=r"^$"):
        nested_launch.check(env | another)
    with pytest.raises(JobError, match="SLURM_STEP_ID='x': must be a whole number"):
        nested_launch.check(BATCH | {"SLURM_STEP_ID": "x"})
    nested_launch.check(env | {"RINGCAST_SIZE": "1"})
    nested_launch.check({})


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"SLURM_TASKS_PER_NODE": "2(x2),"}, "SLURM_TASKS_PER_NODE='2\\(x2\\),' is no list of numbers"),
        ({"SLURM_TASKS_PER_NODE": "2", "SLURM_JOB_CPUS_PER_NODE": ""}, "Slurm gives 3 nodes but not their tasks"),
        ({"SLURM_JOB_NODELIST": "n[1-"}, "'n\\[1-' is not a list of Slurm's nodes"),
    ],
)
def test_what_makes_no_sense_is_an_error(wrong: dict[str, str], words: str) -> None:
    with pytest.raises(JobError, match=words):
        slurm.allocation(BATCH | wrong)


def test_srun_starts_the_agent_without_a_shell_and_without_the_options_of_other_steps() -> None:
    argv = remote_argv("n09", slurm.SRUN, {"PYTHONPATH": "/a b"})
    assert argv[0] == "srun"
    assert argv[argv.index("--nodelist=n09") + 1 :][:3] == ["env", "PYTHONPATH=/a b", sys.executable]
    options = {"SLURM_LABELIO": "1", "SLURM_CPUS_PER_TASK": "2", "SRUN_CPUS_PER_TASK": "2", "HOME": "/root"}
    found = starter_environment(slurm.SRUN, SALLOC | options)
    assert found == {"SLURM_JOB_ID": "7", "HOME": "/root", "SLURM_EXIT_ERROR": "255"}
    assert starter_environment(SSH, options) == options


def test_the_agents_step_does_not_hide_the_job_from_workers() -> None:
    step = STEP | {"HOME": "/root", "SLURM_CPUS_ON_NODE": "6"}
    worker = {**slurm.of_agent(step), **slurm.passed_on(BATCH)}
    assert worker == SALLOC | {"HOME": "/root", "SLURMD_NODENAME": "n08", "SLURM_CPUS_ON_NODE": "6"}
    assert slurm.of_job(BATCH) == SALLOC | {"SLURMD_NODENAME": "n08", "SLURM_CPUS_ON_NODE": "8"}


def test_srun_hands_on_what_ssh_has_told_but_its_own_word_counts() -> None:
    told = {"SSH_CONNECTION": "10.9.9.9 4711 10.0.0.1 22"}
    assert seen_from(told) == "10.9.9.9"
    assert seen_from(told | {"SLURM_LAUNCH_NODE_IPADDR": "10.0.0.1"}) == "10.0.0.1"
    assert seen_from({}) == ""


def agents(*seen: str) -> list[Any]:
    """Agents of hosts that see the launcher at these addresses."""
    return [SimpleNamespace(host=f"n{i}", hello=SimpleNamespace(launcher=address)) for i, address in enumerate(seen)]


def test_the_launcher_is_at_a_loopback_address_only_if_all_nodes_are_on_its_machine() -> None:
    assert own_address(agents("127.0.0.1", "127.0.0.1"), "") == "127.0.0.1"
    other = next(
        (
            str(own.address)
            for own in own_addresses()
            if own.address.is_global
            or (own.address.is_private and not own.address.is_loopback and not own.address.is_link_local)
        ),
        None,
    )
    if other is not None:
        assert own_address(agents("127.0.0.1", other), "") == in_brackets(ip_address(other))


def dry_run(*options: str, env: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-m", "ringcast_launcher", *options, "--dry-run", "python", "-c", "pass")
    own = {name: value for name, value in os.environ.items() if not name.startswith(("SLURM", "RINGCAST"))}
    root = ROOT
    return subprocess.run(
        command, env=own | dict(env), cwd=root, capture_output=True, text=True, timeout=patience(60), check=False
    )


def test_in_an_allocation_the_options_after_the_program_are_its_own() -> None:
    command = (sys.executable, "-m", "ringcast_launcher", "--dry-run", sys.executable, "-n", "100", "-N", "-H", "x")
    done = subprocess.run(
        command, env=os.environ | SALLOC, capture_output=True, text=True, timeout=patience(60), check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "5 ranks on 3 hosts" in done.stdout
    outside = {name: value for name, value in os.environ.items() if not name.startswith("SLURM")}
    done = subprocess.run(command, env=outside, capture_output=True, text=True, timeout=patience(60), check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("ringcast-launch: options come before the program: ringcast-launch -n 100 ")


def test_the_node_of_the_launcher_needs_no_agent_but_a_login_node_is_not_used() -> None:
    batch, salloc = dry_run(env=BATCH), dry_run(env=SALLOC)
    for done in batch, salloc:
        assert "5 ranks on 3 hosts:\n  n08  ranks 0-1\n  n09  ranks 2-3\n  n10  rank 4\n" in done.stdout
    assert [f"start host n{n}: srun" in batch.stdout for n in ("08", "09", "10")] == [False, True, True]
    assert [f"start host n{n}: srun" in salloc.stdout for n in ("08", "09", "10")] == [True, True, True]


def test_fewer_ranks_and_what_comes_before_the_allocation() -> None:
    assert "3 ranks on 2 hosts:\n  n08  ranks 0-1\n  n09  rank 2\n" in dry_run("-n", "3", env=SALLOC).stdout
    assert "to start host" not in dry_run("-H", "localhost:4", env=BATCH).stdout
    assert "to start host n09: rsh n09 'sh -c" in dry_run("--rsh-agent", "rsh", env=BATCH).stdout


def test_hosts_that_are_named_are_started_by_srun_if_that_is_asked_for() -> None:
    said = dry_run("-H", "localhost,n09", "--rsh-agent", "srun", env=BATCH).stdout
    assert "to start host n09: srun --quiet " in said
    assert "start host n08" not in said


def test_several_launchers_in_a_step_end_with_one_message() -> None:
    first, second = dry_run("-n", "2", env=TASK), dry_run("-n", "2", env=TASK | {"SLURM_PROCID": "1"})
    assert (first.returncode, second.returncode) == (2, 2)
    assert first.stderr.startswith("ringcast-launch: Slurm has started this launcher 4 times")
    assert second.stdout + second.stderr == ""
