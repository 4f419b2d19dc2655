"""The mailbox against the plainest thing that could be right: two lists that are searched from the front."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ringcast.protocol.matching import ANY, Key, Mailbox, TaggedMailbox

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
        assert sorted(box.unclaimed()) == sorted(item for _, item in model.arrived)


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


# Point-to-point, where receives leave source and tag open.


def fits(receive: Key, message: Key) -> bool:
    return all(wanted in (ANY, own) for wanted, own in zip(receive, message, strict=True))


open_keys = st.tuples(st.integers(ANY, 2), st.integers(ANY, 2))


@given(
    st.lists(
        st.tuples(st.sampled_from(["post", "arrive", "peek", "take", "cancel", "forget"]), keys, open_keys), max_size=60
    )
)
def test_a_tagged_mailbox_does_what_two_lists_do(acts: list[tuple[str, Key, Key]]) -> None:
    box: TaggedMailbox[int, int] = TaggedMailbox()
    posted: list[tuple[Key, int]] = []
    arrived: list[tuple[Key, int]] = []
    for number, (act, own, wanted) in enumerate(acts):
        message = next((each for each in arrived if fits(wanted, each[0])), None)
        if act == "post":
            assert box.post(wanted, number) == (message and message[1])
            arrived.remove(message) if message else posted.append((wanted, number))
        elif act == "arrive":
            receive = next((each for each in posted if fits(each[0], own)), None)
            assert box.arrive(own, number) == (receive and receive[1])
            posted.remove(receive) if receive else arrived.append((own, number))
        elif act == "peek":
            assert box.peek(wanted) == (message and message[1])
        elif act == "take":
            assert box.take(wanted) == (message and message[1])
            arrived = [each for each in arrived if each is not message]
        elif act == "cancel" and posted:
            box.cancel(*posted.pop(number % len(posted)))
        elif act == "forget":
            box.forget(own[0], lambda item: item % 2 == 0)
            arrived = [each for each in arrived if each[0][0] != own[0] or each[1] % 2]
        before = [key for key, _ in arrived if key[0] == own[0]]
        assert box.free(own) == (not posted and own not in before)
        assert not box.free((own[0], ANY)) or not (posted or before)
        assert list(box.unclaimed()) == [item for _, item in arrived]
    for key, item in posted:
        box.cancel(key, item)
    for source in range(3):
        box.forget(source, lambda _: True)
    assert not box._posted
    assert not box._arrived
