"""The forms of a call are derived from the method that blocks: its arguments, its words, the place in the program."""

from __future__ import annotations

import _thread
import inspect
import pickle
import runpy
import sys
import threading
import traceback
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FunctionType, GenericAlias
from typing import Any, get_type_hints

import pytest

from ringcast import MPI, ArgumentError, Communicator, Grid, Persistent, Request, Topology, UsageError
from ringcast.algorithms.network import NETWORKS
from ringcast.collectives.explain import Explanation
from ringcast.collectives.stage import Group
from ringcast.communicator.nonblocking import CALLS, NonblockingCalls
from ringcast.communicator.persistent import PersistentCalls
from ringcast.requests.forms import calls_of
from ringcast.topology.neighbor_calls import NeighborCalls
from ringcast.topology.nonblocking import NonblockingNeighborCalls
from ringcast.topology.persistent import PersistentNeighborCalls
from ringcast.transfer.report import CopyReport, Progress
from support.jobs import Job
from support.patience import patience
from support.places import ROOT

SCRIPT = runpy.run_path(str(ROOT / "docs/scripts/make_stubs.py"))
BETWEEN_NEIGHBORS = (*calls_of(NeighborCalls),)
FORMS: dict[str, tuple[FunctionType, FunctionType, type]] = {
    f"{kind.__name__}.{name.format(call.__name__)}": (call, vars(kind)[name.format(call.__name__)], result)
    for kind, name, result, calls in (
        (NonblockingCalls, "i{}", Request, CALLS),
        (PersistentCalls, "{}_init", Persistent, CALLS),
        (NonblockingNeighborCalls, "i{}", Request, BETWEEN_NEIGHBORS),
        (PersistentNeighborCalls, "{}_init", Persistent, BETWEEN_NEIGHBORS),
    )
    for call in calls
}
MPI_COMMUNICATORS = [kind for kind in vars(MPI).values() if isinstance(kind, type) and issubclass(kind, MPI.Comm)]
# Communicator's modules import them only for type checkers, as a rank starts sooner without them.
LOADED_WHEN_CALLED = {kind.__name__: kind for kind in (CopyReport, Explanation, Grid, Path, Progress, Topology)}


@pytest.fixture
def comm() -> Iterator[Communicator]:
    job = Job("threads", 1)
    yield Communicator(Group(job.endpoints[0], 3, NETWORKS["threads"]), 60)
    job.close()


@pytest.mark.parametrize("module", SCRIPT["FORMS"])
def test_a_stub_is_what_the_script_writes(module: str) -> None:
    assert SCRIPT["path_of"](module).read_text() == SCRIPT["text_of"](module), "run docs/scripts/make_stubs.py"


def test_the_script_names_a_stub_that_is_out_of_date(monkeypatch: pytest.MonkeyPatch) -> None:
    check = SCRIPT["main"]
    monkeypatch.setattr(sys, "argv", ["make_stubs.py", "--check"])
    check()
    monkeypatch.setitem(check.__globals__, "text_of", lambda _: "")
    with pytest.raises(SystemExit, match=r"out of date: nonblocking.pyi, persistent.pyi, .*make_stubs.py"):
        check()


def test_every_call_has_both_forms() -> None:
    names = {"bcast", "scatter", "scatterv", "gather", "gatherv", "allgather", "allgatherv", "merge_sorted", "alltoall"}
    names |= {
        "alltoallv",
        "shift",
        "reduce",
        "allreduce",
        "reduce_scatter",
        "scan",
        "exscan",
        "barrier",
        "send",
        "recv",
    }
    assert {call.__name__ for call in CALLS} == names
    assert all(hasattr(Communicator, f"i{name}") and hasattr(Communicator, f"{name}_init") for name in names)


@pytest.mark.parametrize("name", FORMS)
def test_a_form_has_the_arguments_of_its_call_but_for_the_timeout(name: str) -> None:
    call, form, result = FORMS[name]
    of_call, of_form = inspect.signature(call), inspect.signature(form)
    wanted = [parameter for parameter in of_call.parameters.values() if parameter.name != "timeout"]
    assert [*of_form.parameters.values()] == wanted
    assert of_form.return_annotation == GenericAlias(result, (of_call.return_annotation,))
    assert form.__annotations__ == {one.name: one.annotation for one in wanted if one.name != "self"} | {
        "return": of_form.return_annotation
    }


def test_a_form_has_its_result_as_a_type() -> None:
    assert get_type_hints(Communicator.ibarrier)["return"] == Request[None]
    assert get_type_hints(Communicator.send_init)["return"] == Persistent[None]


@pytest.mark.parametrize(
    "kind", [Communicator, Topology, Grid, Request, Persistent, *MPI_COMMUNICATORS], ids=lambda kind: kind.__qualname__
)
def test_annotations_can_be_evaluated(kind: type) -> None:
    for name, value in inspect.getmembers_static(kind):
        method = getattr(value, "fget", value)  # of a property
        if not name.startswith("_") and isinstance(method, FunctionType):
            get_type_hints(method, localns=LOADED_WHEN_CALLED)


@pytest.mark.parametrize("name", FORMS)
def test_a_form_is_found_by_its_name(name: str) -> None:
    call, form, _ = FORMS[name]
    assert form.__qualname__ == name
    assert form.__name__ == form.__code__.co_name == name.rpartition(".")[2]
    assert pickle.loads(pickle.dumps(form)) is form
    assert inspect.getsource(form) == inspect.getsource(call)


@pytest.mark.parametrize("name", FORMS)
def test_a_form_tells_meaning_and_cost_of_its_call(name: str) -> None:
    call, form, _ = FORMS[name]
    text, meant = inspect.getdoc(form) or "", inspect.getdoc(call) or ""
    first, *more = meant.split("\n\n")
    assert f"`{call.__name__}`: {first[0].lower()}{first[1:]}" in text
    assert all(paragraph in text for paragraph in more if paragraph.startswith("Cost: "))
    assert f".{form.__name__}(" in text.partition(">>> ")[2]


@pytest.mark.parametrize(
    ("arguments", "options", "wrong"),
    [
        ((), {}, "missing 1 required positional argument: 'value'"),
        ((1, 2, 3, 4), {}, "takes from 2 to 3 positional arguments but 5 were given"),
        ((1,), {"outs": 1}, "got an unexpected keyword argument 'outs'"),
        ((1,), {"timeout": 1}, "got an unexpected keyword argument 'timeout'"),
        ((1,), {"timeout": None}, "got an unexpected keyword argument 'timeout'"),
    ],
)
def test_wrong_arguments_are_an_error_of_the_form(
    comm: Communicator, arguments: tuple[Any, ...], options: dict[str, Any], wrong: str
) -> None:
    for name, form in (
        ("NonblockingCalls.iallreduce", comm.iallreduce),
        ("PersistentCalls.allreduce_init", comm.allreduce_init),
    ):
        with pytest.raises(TypeError) as caught:
            form(*arguments, **options)
        assert str(caught.value).startswith(f"{name}() {wrong}")


def test_an_error_shows_the_line_of_the_program_and_the_form(comm: Communicator) -> None:
    with pytest.raises(ArgumentError) as caught:
        comm.iallreduce(1, out=[1])  # type: ignore[call-overload]
    program, form = traceback.extract_tb(caught.value.__traceback__)[:2]
    assert (program.filename, form.name) == (__file__, "iallreduce")


def test_a_request_names_the_line_that_made_the_call(comm: Communicator) -> None:
    grid = comm.cart([1])
    calls: list[Callable[[], Any]] = [
        lambda: comm.ibarrier(),
        lambda: comm.barrier_init(),
        lambda: grid.ineighbor_allgather(1),
        lambda: grid.neighbor_allgather_init(1),
    ]
    for call in calls:
        request = call()
        place = f"at test_forms.py:{call.__code__.co_firstlineno}, "
        assert place in repr(request)
        if not isinstance(request, Persistent):
            request.wait()


def test_a_form_can_be_called_without_a_line_of_a_program(comm: Communicator) -> None:
    """As the first function of a thread, which C calls."""
    comm.progress_thread()
    ended, form = threading.Event(), comm.ibarrier
    kept = weakref.ref(form, lambda _: ended.set())
    _thread.start_new_thread(form, ())
    del form
    assert ended.wait(patience(60))
    assert kept() is None
    with pytest.raises(UsageError, match=r"a request was dropped without wait: ibarrier;"):
        comm.barrier()
