"""The error at the start where a rank has a connection to a neighbour, or from it, but not both."""

from __future__ import annotations

import re

import pytest

from ringcast.bootstrap.connectivity import reach
from ringcast.bootstrap.in_process import endpoints
from ringcast.errors import RendezvousError
from support.socket_jobs import opened, until_reached

pytestmark = pytest.mark.usefixtures("nothing_left")

SOON = 0.2  # seconds in which neighbours have to be connected


@pytest.mark.parametrize("secure", [True, False])
@pytest.mark.parametrize("p", [2, 3])
def test_a_neighbour_that_is_reached_and_does_not_reach_back_is_named_as_such(p: int, secure: bool) -> None:
    """Where nothing is encrypted it is not known which of several it is."""
    made = opened(p, secure=secure)
    first, *others = made
    first.connect(range(1, p))
    until_reached(*made)
    with pytest.raises(RendezvousError) as caught:
        reach(endpoints(made)[0], first, SOON)
    theirs = ", ".join(f"rank {peer} at {other.address}" for peer, other in enumerate(others, start=1))
    whom = "there" if p == 2 else "one of these at least"
    expected = (
        f"rank 0 at {first.address} has reached {theirs}, but gets no connection from {whom}: nothing came within"
    )
    assert str(caught.value).startswith(expected)
    for transport in made:
        transport.close()


def test_a_neighbour_that_is_not_reached_comes_first() -> None:
    made = opened(3)
    first, second, third = made
    first.connect([1, 2])
    third.close()
    while not (told := first.unreached()).get(2) or 1 in told:
        second.unreached()
    with pytest.raises(RendezvousError, match=re.escape(f"gets no connection to rank 2 at {third.address}: ")):
        reach(endpoints(made)[0], first, SOON, grace=0.0)
    first.close()
    second.close()
