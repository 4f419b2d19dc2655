"""Shares, played without I/O: every byte is passed on once, whatever readers fail, stall, are refused or lost."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from statistics import mean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringcast.transfer.ranges import Range, Ranges
from ringcast.transfer.shares import Report, Shares, Turn
from support.cases import each, long_but

ENDLESS = 10_000  # turns


@dataclass
class Reader:
    """A reader whose connections read `speed` bytes in a turn; it `fails` when it has read so much."""

    speed: int
    connections: int
    fails: int | None = None
    segments: list[list[int]] = field(default_factory=list)
    asked: list[Range] = field(default_factory=list)
    under_way: list[list[int]] = field(default_factory=list)
    ready: Ranges = field(default_factory=Ranges)
    has: Ranges = field(default_factory=Ranges)
    read: int = 0
    requests: int = 0
    largest: int = 0
    idle: int = 0  # turns
    pause: int = 0  # to be reported
    epoch: int = 0

    @property
    def gone(self) -> bool:
        return self.fails is not None and self.read >= self.fails

    def work(self) -> None:
        before, self.under_way = self.under_way, [] if self.gone else self.segments[: self.requests]
        self.idle = self.idle + 1 if self.under_way and not self.speed else 0
        for segment in self.under_way:
            if not any(segment is other for other in before):
                self.asked.append((segment[0], segment[1]))
            length = min(self.speed, segment[1] - segment[0])
            self.ready.add((segment[0], segment[0] + length))
            segment[0] += length
            self.read += length
        self.segments = [each for each in self.segments if each[0] < each[1]]

    def report(self) -> Report:
        pause, self.pause = self.pause, 0
        return Report(tuple(self.ready), 500 * self.idle, pause, self.epoch, self.gone)

    def take(self, turn: Turn, me: int) -> None:
        for low, high in turn.taken[me]:
            self.segments = [each for each in self.segments if not low <= each[0] < high]
        self.segments += [[*each] for each in turn.given[me]]
        self.largest = max([self.largest, *(stop - start for start, stop in turn.given[me])])
        self.requests, self.ready, self.epoch = turn.requests[me], Ranges(), turn.epoch


class Play:
    """A read of `size` bytes by readers that take turns."""

    def __init__(self, size: int, readers: list[Reader], **options: int) -> None:
        self.size, self.readers, self.options = size, readers, {"shortest": 4, "longest": 64} | options
        self.shares = self.begun()
        self.turns: list[Turn] = []
        self.passed: list[Range] = []

    def begun(self) -> Shares:
        """Begin, or begin again with what each has, as after the loss of one."""
        whole = range(self.size)
        sets = [{*whole} & {place for low, high in reader.has for place in range(low, high)} for reader in self.readers]
        all_have, seen, there = set.intersection(*sets), set[int](), []
        for have, reader in zip(sets, self.readers, strict=True):
            resent = Ranges((place, place + 1) for place in have - all_have - seen)
            seen |= have
            reader.ready, reader.segments, reader.requests = Ranges(resent), [], reader.connections
            there.append(resent)
        every = Ranges((place, place + 1) for place in all_have)
        return Shares(self.size, len(self.readers), self.readers[0].connections, there, every, **self.options)

    def turn(self, lose: int | None = None, hears: int = 0) -> None:
        """Take a turn; one reader is lost in it, and only the first `hears` get its bytes."""
        for reader in self.readers:
            reader.work()
        turn = self.shares.turn([reader.report() for reader in self.readers])
        self.turns.append(turn)
        for number, reader in enumerate(self.readers):
            reader.take(turn, number)
        sent = [each for ranges in turn.sent for each in ranges]
        for number, reader in enumerate(self.readers):
            if lose is None or number < hears:
                for each in sent:
                    reader.has.add(each)
        if lose is None:
            self.passed += sent
        else:
            del self.readers[lose]
            self.shares = self.begun()

    def run(self) -> None:
        while not self.shares.done and self.shares.active and not self.shares.refused:
            assert len(self.turns) < ENDLESS
            self.turn()


SIZES = st.integers(1, 2000)
SPEEDS = st.lists(st.integers(1, 50), min_size=1, max_size=6)


@given(SIZES, SPEEDS, st.integers(1, 4))
def test_every_byte_is_passed_on_once(size: int, speeds: list[int], connections: int) -> None:
    play = Play(size, [Reader(speed, connections) for speed in speeds])
    play.run()
    assert sorted(place for low, high in play.passed for place in range(low, high)) == [*range(size)]
    assert all([*reader.has] == [(0, size)] for reader in play.readers)


@given(SIZES, SPEEDS, st.data())
def test_what_failing_readers_had_is_read_by_others(size: int, speeds: list[int], data: st.DataObject) -> None:
    """Each fails at a place of its own; while one does not, all is read."""
    readers = [Reader(speed, 2, data.draw(st.none() | st.integers(0, size))) for speed in speeds]
    play = Play(size, readers)
    play.run()
    assert play.shares.done or all(reader.gone for reader in readers)
    assert len({*(place for each in play.passed for place in range(*each))}) == sum(h - low for low, h in play.passed)


@given(SIZES, st.lists(st.integers(0, 20), min_size=1, max_size=5), st.integers(1, 9))
def test_a_reader_that_stalls_for_ever_is_done_without(size: int, speeds: list[int], speed: int) -> None:
    play = Play(size, [Reader(each, 2) for each in [speed, *speeds]])
    play.run()
    assert all([*reader.has] == [(0, size)] for reader in play.readers)


@given(SIZES, st.integers(1, 4), st.integers(1, 4), st.sampled_from([4, 16, 64]), st.integers(0, 1 << 32))
def test_no_byte_is_asked_for_a_third_time(size: int, number: int, connections: int, shortest: int, seed: int) -> None:
    """However unsteady the readers are: each has another speed in every turn; none stalls, no server pauses them."""
    rng = random.Random(seed)
    readers = [Reader(1, connections) for _ in range(number)]
    play = Play(size, readers, shortest=shortest)
    while not play.shares.done:
        for reader in readers:
            reader.speed, reader.idle = rng.choice([0, 1, 2, 20, 50]), 0
        play.turn()
    times = Counter(place for reader in readers for low, high in reader.asked for place in range(low, high))
    assert max(times.values()) <= 2


@given(SIZES, st.lists(st.integers(1, 50), min_size=2, max_size=5), st.data())
def test_a_reader_is_lost_at_any_turn(size: int, speeds: list[int], data: st.DataObject) -> None:
    """Some of the others have its last bytes then, as a round that breaks off leaves them."""
    play = Play(size, [Reader(speed, 2) for speed in speeds])
    while not play.shares.done:
        lose = data.draw(st.none() | st.integers(0, len(play.readers) - 1)) if len(play.readers) > 1 else None
        play.turn(lose, data.draw(st.integers(0, len(play.readers))) if lose is not None else 0)
        assert len(play.turns) < ENDLESS
    assert all([*reader.has] == [(0, size)] for reader in play.readers)


@pytest.mark.parametrize("place", long_but(range(0, 60, 6), range(0, 60, 3)))
@each("victim, hears", [(victim, hears) for victim in range(3) for hears in range(4)])
def test_a_death_at_every_turn_leaves_no_gap(place: int, victim: int, hears: int) -> None:
    play = Play(1000, [Reader(speed, 2) for speed in (2, 3, 5)])
    while not play.shares.done:
        dies = len(play.turns) == place
        play.turn(victim if dies else None, hears)
    assert all([*reader.has] == [(0, 1000)] for reader in play.readers)


@each("speeds", [(10, 10, 10, 10), (10, 20, 30, 40), (1, 40, 40, 40), (3, 30)])
def test_shares_follow_the_speed_and_all_end_together(speeds: tuple[int, ...]) -> None:
    size = 100_000
    play = Play(size, [Reader(speed, 4) for speed in speeds], shortest=100, longest=4000)
    play.run()
    turns = size / sum(4 * speed for speed in speeds)
    assert len(play.turns) < 1.15 * turns + 100 / min(speeds) + 5
    for reader, speed in zip(play.readers, speeds, strict=True):
        assert abs(reader.read - size * speed / sum(speeds)) < 0.1 * size / len(speeds) + 2000


def test_a_reader_that_becomes_slow_has_the_rest_taken_over() -> None:
    play = Play(100_000, [Reader(10, 4) for _ in range(4)], shortest=100, longest=4000)
    for _ in range(100):
        play.turn()
    play.readers[2].speed = 0
    play.run()
    assert len(play.turns) < 100 + (100_000 - 16_000) / 120 + 200


def test_segments_are_long_at_first_and_short_at_the_end() -> None:
    play = Play(1_000_000, [Reader(1000, 2) for _ in range(4)], shortest=100, longest=20_000)
    play.run()
    lengths = [stop - start for turn in play.turns for given in turn.given for start, stop in given]
    assert max(lengths) == 20_000
    assert mean(lengths[-8:]) < 10_000


# Servers that refuse.


def test_one_refusal_pauses_all_and_halves_the_requests_once() -> None:
    play = Play(10_000, [Reader(5, 4) for _ in range(8)])
    for number in range(3):
        play.turn()
        for reader in play.readers[number:]:
            reader.pause = 10 * (number + 1)
    requests = [turn.requests for turn in play.turns]
    assert [sum(each) for each in requests] == [32, 16, 8]
    assert [turn.pause for turn in play.turns] == [0, 10, 20]
    play.run()
    assert all([*reader.has] == [(0, 10_000)] for reader in play.readers)


@given(SIZES, SPEEDS, st.integers(1, 4), st.integers(1, 30))
def test_no_more_requests_than_an_earlier_read_has_learnt(
    size: int, speeds: list[int], connections: int, most: int
) -> None:
    readers = [Reader(speed, connections) for speed in speeds]
    play = Play(size, readers)
    play.shares = Shares(size, len(readers), connections, most=most, **play.options)
    play.run()
    assert {sum(turn.requests) for turn in play.turns} == {min(most, connections * len(readers))}
    assert all([*reader.has] == [(0, size)] for reader in readers)


def test_a_refusal_of_a_request_from_before_the_pause_does_not_count() -> None:
    play = Play(10_000, [Reader(5, 4), Reader(5, 4)])
    play.turn()
    play.readers[0].pause = play.readers[1].pause = 10
    late = play.readers[1].epoch
    play.turn()
    assert play.turns[-1].epoch == 1
    play.readers[1].pause, play.readers[1].epoch = 10, late
    play.turn()
    assert (play.turns[-1].pause, sum(play.turns[-1].requests)) == (0, 4)


def test_readers_without_a_request_give_up_their_segments_and_inherit_those_of_a_lost_one() -> None:
    play = Play(10_000, [Reader(5, 1), Reader(5, 1, fails=100), Reader(5, 1)])
    play.turn()
    play.readers[0].pause = 1
    play.turn()
    assert play.turns[-1].requests == (1, 0, 0)
    assert not play.readers[1].segments
    assert not play.readers[2].segments
    play.readers[0].fails = 0
    play.run()
    assert [*play.readers[2].has] == [(0, 10_000)]


def test_a_server_that_only_refuses_ends_the_read() -> None:
    play = Play(10_000, [Reader(0, 4), Reader(0, 4)])
    while not play.shares.refused:
        play.readers[0].pause = 1
        play.turn()
        assert len(play.turns) < 100
    assert not play.shares.done


def test_all_readers_decide_alike() -> None:
    """The decisions follow from the reports alone, at whichever reader they are made."""
    rng, states = random.Random(1), [Shares(5000, 3, 2, shortest=4, longest=64) for _ in range(3)]
    readers = [Reader(rng.randrange(1, 9), 2) for _ in range(3)]
    while not states[0].done:
        for reader in readers:
            reader.work()
        reports = [reader.report() for reader in readers]
        turns = [state.turn(reports) for state in states]
        assert turns[0] == turns[1] == turns[2]
        for number, reader in enumerate(readers):
            reader.take(turns[0], number)
