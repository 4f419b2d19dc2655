"""Names that people try, as from MPI: the error says the one that works."""

from __future__ import annotations

import subprocess
import sys

import pytest

import ringcast
from ringcast import Communicator, UsageError
from ringcast.topology.graph import Topology

THEIRS = {
    "Get_rank": "rank",
    "Get_size": "size",
    "Bcast": "bcast",
    "Allreduce": "allreduce",
    "Iallreduce": "iallreduce",
    "Allreduce_init": "allreduce_init",
    "Reduce_scatter_block": "reduce_scatter",
    "Gatherv": "gatherv",
    "ssend": "send",
    "Issend": "isend",
    "Isend": "isend",
    "Sendrecv": "sendrecv",
    "Split_type": "split_by_host",
    "Create_cart": "cart",
    "Dup": "dup",
    "Barrier": "barrier",
}


@pytest.fixture(scope="module")
def comm() -> Communicator:
    (comm,) = ringcast.run(lambda comm: comm, 1, backend="threads")
    return comm


@pytest.mark.parametrize("name", THEIRS)
def test_a_name_of_mpi_is_answered_with_that_of_ringcast(comm: Communicator, name: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(comm, name)
    assert str(caught.value) == f"a communicator has no attribute {name!r}; ringcast calls it comm.{THEIRS[name]}"
    assert hasattr(Communicator, THEIRS[name])


def test_calls_between_neighbours_are_those_of_a_topology(comm: Communicator) -> None:
    for name in "Neighbor_alltoallv", "Ineighbor_allgather":
        with pytest.raises(AttributeError, match=rf"; ringcast has comm.graph\(...\).{name.lower()} and comm.cart"):
            getattr(comm, name)
        assert hasattr(Topology, name.lower())


def test_any_other_name_is_only_refused(comm: Communicator) -> None:
    for name in "alreduce", "Foo", "_secret":
        with pytest.raises(AttributeError) as caught:
            getattr(comm, name)
        assert str(caught.value) == f"a communicator has no attribute {name!r}"
        assert not hasattr(comm, name)


@pytest.mark.parametrize("name", ["allreduce", "rank", "ibcast", "send", "split"])
def test_a_method_of_the_module_is_one_of_a_communicator(name: str) -> None:
    with pytest.raises(AttributeError) as caught:
        getattr(ringcast, name)
    assert str(caught.value) == (
        f"module 'ringcast' has no attribute {name!r}, but communicators have it: comm = ringcast.init(); comm.{name}"
    )


def test_a_name_that_nothing_has_is_only_refused() -> None:
    for name in "alreduce", "_call", "__path_of__":
        with pytest.raises(AttributeError) as caught:
            getattr(ringcast, name)
        assert str(caught.value) == f"module 'ringcast' has no attribute {name!r}"


def test_a_module_of_the_package_is_imported_without_numpy() -> None:
    program = "import sys; from ringcast import errors, wire; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_a_communicator_comes_from_init() -> None:
    for arguments in (), (0,):
        with pytest.raises(UsageError, match=r"call ringcast.init\(\), which returns one$"):
            Communicator(*arguments)  # type: ignore[arg-type]
