"""The mailbox against the plainest thing that could be right: two lists that are searched from the front."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ringcast.protocol.matching import Key, Mailbox

keys = st.tuples(st.integers(0, 2), st.integers(0, 2))


class Model:
    def __init__(self) -> None:
        self.posted: list[tuple[Key, int]] = []
        self.arrived: list[tuple[Key, int]] = []

    def meet(self, waiting: list[tuple[Key, int]], other: list[tuple[Key, int]], key: Key, mine: int) -> int | None:
        found = self.take(waiting, key)
        if found is None:
            other.append((key, mine))
        return found

    @staticmethod
    def take(waiting: list[tuple[Key, int]], key: Key) -> int | None:
        for i, (other, item) in enumerate(waiting):
            if other == key:
                del waiting[i]
                return item
        return None


@given(st.lists(st.tuples(st.sampled_from(["post", "arrive", "take"]), keys), max_size=60))
def test_a_mailbox_does_what_two_lists_do(acts: list[tuple[str, Key]]) -> None:
    box: Mailbox[int, int] = Mailbox()
    model = Model()
    for number, (act, key) in enumerate(acts):
        if act == "post":
            assert box.post(key, number) == model.meet(model.arrived, model.posted, key, number)
        elif act == "arrive":
            assert box.arrive(key, number) == model.meet(model.posted, model.arrived, key, number)
        else:
            assert box.take_posted(key) == model.take(model.posted, key)
        assert sorted(box.unclaimed()) == sorted(model.arrived)


def test_first_come_first_served_under_one_key() -> None:
    box: Mailbox[str, str] = Mailbox()
    for name in ("first", "second"):
        assert box.arrive((1, 0), name) is None
    assert [box.post((1, 0), "receive") for _ in range(3)] == ["first", "second", None]
    assert box.arrive((1, 0), "third") == "receive"


def test_keys_differ_by_source_and_by_ordinal() -> None:
    box: Mailbox[str, str] = Mailbox()
    box.arrive((0, 1), "message")
    assert box.post((1, 0), "a") is None
    assert box.post((0, 0), "b") is None
    assert box.post((0, 1), "c") == "message"


@given(st.lists(keys))
def test_nothing_is_left_when_all_have_met(pairs: list[Key]) -> None:
    box: Mailbox[int, int] = Mailbox()
    for number, key in enumerate(pairs):
        box.post(key, number)
    for key in pairs:
        assert box.arrive(key, 0) is not None
    assert list(box.unclaimed()) == []
    assert not box._posted
    assert not box._arrived
