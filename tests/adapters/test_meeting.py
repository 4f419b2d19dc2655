"""Ranks without a launcher meet through a store, communicate, and leave; those that die are named."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from ringcast.adapters import meeting, presence
from ringcast.adapters.meeting import Plan, meet
from ringcast.communicator import Communicator
from ringcast.errors import PeerFailed, RendezvousError
from ringcast.procs.credentials import Credentials
from support import gatherings
from support.key_values import Folder
from support.patience import patience

SOON = 2.0  # seconds until a death is known


def total(comm: Communicator) -> float:
    return float(comm.allreduce(np.array(comm.rank + 1.0)))


@pytest.mark.parametrize("transport", ["auto", "sockets", "tcp"])
@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_ranks_meet_and_leave_nothing(
    size: int, transport: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nothing_left: None
) -> None:
    monkeypatch.setenv("RINGCAST_TRANSPORT", transport)
    assert gatherings.threads(total, tmp_path, size) == [size * (size + 1) / 2] * size


def test_ranks_of_one_host_share_memory(tmp_path: Path) -> None:
    def transport(comm: Communicator) -> str:
        return type(comm._group.endpoint.transport).__name__

    assert gatherings.threads(transport, tmp_path, 3) == ["ShmTransport"] * 3


def test_other_settings_of_the_process_have_no_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"RANK": "7", "SIZE": "9", "CONTROL": "ipc:///nowhere", "HOSTED": "1", "DIR": "/no"}.items():
        monkeypatch.setenv(f"RINGCAST_{name}", value)
    for name in "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT":  # torchrun's
        monkeypatch.setenv(name, "3")
    assert gatherings.threads(total, tmp_path, 2) == [3.0] * 2


def test_wishes_of_the_process_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGCAST_TIMEOUT", "17")
    monkeypatch.setenv("RINGCAST_DETERMINISTIC", "1")
    found = gatherings.threads(lambda comm: (comm.timeout, comm._group.deterministic), tmp_path, 2)
    assert found == [(17.0, True)] * 2


def test_groups_follow_each_other_and_live_at_once(tmp_path: Path, nothing_left: None) -> None:
    folders = [tmp_path / name for name in "abc"]
    for folder in folders:
        folder.mkdir()

    def work(comm: Communicator) -> list[float]:
        with meet(Folder(folders[1]), 1 - comm.rank, 2) as second:
            found = [total(comm), float(second.bcast(np.array(comm.rank), root=0)), total(comm)]
        with meet(Folder(folders[2]), comm.rank, 2, threads="multiple") as third:
            return [*found, total(third), total(comm)]

    assert gatherings.threads(work, folders[0], 2) == [[3.0, 1.0, 3.0, 3.0, 3.0]] * 2


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_rank_that_does_not_come_is_named_in_time(missing: int, tmp_path: Path, nothing_left: None) -> None:
    limit = patience(0.5)
    before = time.monotonic()
    there = {0, 1, 2} - {missing}
    errors = gatherings.threads(total, tmp_path, 3, among=there, timeout=limit)
    assert time.monotonic() - before < patience(5)
    for rank in there:
        assert isinstance(errors[rank], RendezvousError)
        assert f"rank {missing} of 3 did not come within {limit:g} s" in str(errors[rank])


def test_a_rank_that_came_and_ended_is_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meeting, "JOIN", patience(2))
    Folder(tmp_path).set("ringcast/here/2", presence.own(3).pack())
    errors = gatherings.threads(total, tmp_path, 3, among=(0, 1), timeout=patience(0.5))
    for error in errors[:2]:
        assert isinstance(error, RendezvousError)
        assert "rank 2 of 3 did not join" in str(error)


def test_rank_0_that_came_and_ended_is_missed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(meeting, "JOIN", 0.1)
    Folder(tmp_path).set("ringcast/here/0", presence.own(2).pack())
    error = gatherings.threads(total, tmp_path, 2, among=(1,), timeout=0.5)[1]
    assert "all 2 ranks have come, but rank 0 has not said how they meet within 0.5 s" in str(error)


def test_other_numbers_of_ranks_are_an_error_on_all(tmp_path: Path) -> None:
    small = Folder(tmp_path)
    small.set("ringcast/here/1", presence.own(3).pack())
    error = gatherings.threads(total, tmp_path, 2, among=(0,))[0]
    assert "rank 1 expects 3 ranks, but rank 0 expects 2" in str(error)
    with pytest.raises(RendezvousError, match=r"rank 1: rank 0 ended the meeting: rank 1 expects 3 ranks"):
        meet(small, 1, 3)
    small.set("ringcast/plan", Plan("tcp://127.0.0.1:1", 1, "", "shm", 2).pack())
    with pytest.raises(RendezvousError, match=r"rank 1 expects 3 ranks, but rank 0 expects 2"):
        meet(small, 1, 3)


def test_a_rank_that_comes_twice_is_refused(tmp_path: Path) -> None:
    def work(comm: Communicator) -> list[Any]:
        return gatherings.threads(total, tmp_path, 2, among=(1,), timeout=5) if comm.rank else []

    _, (_, error) = gatherings.threads(work, tmp_path, 2)
    assert isinstance(error, RendezvousError)
    assert "rank 1 has joined already" in str(error)


@pytest.mark.parametrize("content", [b"", b"null", b"[1]", b"\xff", b'["a", 1, "", "", {}, ""]'])
def test_what_others_have_written_is_refused(content: bytes, tmp_path: Path) -> None:
    store = Folder(tmp_path)
    store.set("ringcast/plan", content)
    with pytest.raises(RendezvousError, match=r"rank 1: the store's ringcast/plan is none of ringcast's"):
        meet(store, 1, 2)
    store.set("ringcast/here/1", content)
    with pytest.raises(RendezvousError, match=r"rank 0: the store's ringcast/here/1 is none of ringcast's"):
        meet(store, 0, 2)


def test_an_error_of_rank_0_reaches_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise RendezvousError("there is no port")

    monkeypatch.setattr(meeting, "serve", refuse)
    errors = gatherings.threads(total, tmp_path, 2)
    assert str(errors[0]) == "there is no port"
    assert str(errors[1]) == "rank 1: rank 0 ended the meeting: there is no port"


@pytest.mark.parametrize(
    ("rank", "size", "options"),
    [(0, 0, {}), (2, 2, {}), (-1, 2, {}), (0, 2, {"timeout": 0}), (0, 2, {"timeout": float("nan")}),
     (0, 2, {"timeout": float("inf")}), (0, 2, {"threads": "many"})],
)  # fmt: skip
def test_arguments_that_make_no_sense_are_refused(
    rank: int, size: int, options: dict[str, Any], tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="expected"):
        meet(Folder(tmp_path), rank, size, **options)
    assert not list(tmp_path.iterdir())


def test_no_text_shows_the_key() -> None:
    assert "secret" not in repr(Plan(key="secret"))


def test_memory_is_shared_only_where_all_can() -> None:
    who = Credentials(1, 1, 1, 1, 0, 0, 0)
    here = presence.Presence(2, "here", who)
    assert presence.share_memory([here, here])
    assert not presence.share_memory([here, presence.Presence(2, "there", who)])
    assert not presence.share_memory([here, presence.Presence(2, "here", None)])
    assert not presence.share_memory([here, presence.Presence(2, "here", who._replace(pid_namespace=2))])
    assert not presence.on_one_system([presence.Presence(2, "", who)] * 2)


WAIT = """
comm = meet(Folder(folder), rank, size)
comm.barrier()
print("met", flush=True)
try:
    if rank == int(os.environ["VICTIM"]):
        sys.stdin.read()
    comm.allreduce(np.ones(10))
except ringcast.PeerFailed as error:
    print(error.peer, error.cause, flush=True)
"""


@pytest.mark.parametrize("transport", ["auto", "sockets"])
@pytest.mark.parametrize("victim", [0, 2])
def test_a_rank_that_is_killed_is_named_on_the_others(victim: int, transport: str, tmp_path: Path) -> None:
    env = {"VICTIM": str(victim), "RINGCAST_TRANSPORT": transport}
    ranks = [gatherings.process(WAIT, tmp_path, rank, 3, **env) for rank in range(3)]
    for rank in ranks:
        assert rank.stdout is not None
        assert rank.stdout.readline() == "met\n"
    before = time.monotonic()
    ranks[victim].kill()
    said = [rank.communicate(timeout=patience(30)) for rank in ranks]
    assert time.monotonic() - before < patience(SOON)
    for rank, (out, err) in enumerate(said):
        assert not err
        assert out.split()[:1] == ([] if rank == victim else [str(victim)])


def test_a_program_that_ends_leaves_with_its_error(tmp_path: Path) -> None:
    program = """
    comm = meet(Folder(folder), rank, size)
    if rank == 1:
        raise ValueError("no data")
    comm.barrier()
    """
    ranks = [gatherings.process(program, tmp_path, rank, 2) for rank in range(2)]
    said = [rank.communicate(timeout=patience(60)) for rank in ranks]
    assert said[1][1].endswith("ValueError: no data\n")
    assert "rank 0: peer rank 1" in said[0][1]
    assert "it left the job after ValueError: no data" in said[0][1]


def test_no_process_remains_and_no_command_shows_the_key(tmp_path: Path) -> None:
    program = "comm = meet(Folder(folder), rank, size); print('met', flush=True); sys.stdin.read()"
    ranks = [gatherings.process(program, tmp_path, rank, 2) for rank in range(2)]
    for rank in ranks:
        assert rank.stdout is not None
        assert rank.stdout.readline() == "met\n"
    plan = meeting._unpack(Folder(tmp_path).get("ringcast/plan", 0))
    assert plan is not None
    lines = {each.pid: each.info["cmdline"] or [] for each in psutil.process_iter(["cmdline"])}
    assert not any(plan.key in word for line in lines.values() for word in line)
    port = int(plan.control.rpartition(":")[2])
    listening = [each for each in psutil.net_connections("tcp") if each.laddr[1] == port and each.status == "LISTEN"]
    server = [psutil.Process(pid) for pid in {each.pid for each in listening}]
    assert len(server) == 1
    for rank in ranks:
        assert rank.communicate(timeout=patience(60)) == ("", "")
    _, alive = psutil.wait_procs(server, timeout=patience(10))
    assert alive == []


def test_peers_learn_of_a_failure_by_its_type(tmp_path: Path) -> None:
    def work(comm: Communicator) -> None:
        if comm.rank == 0:
            comm.__exit__(ValueError, ValueError("no data"), None)
        else:
            comm.barrier()

    error = gatherings.threads(work, tmp_path, 2)[1]
    assert isinstance(error, PeerFailed)
    assert error.peer == 0
