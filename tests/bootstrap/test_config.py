"""Settings of the environment: the valid ones are read, the others refused before anything starts."""

import os
from dataclasses import replace

import pytest

from ringcast.config.worker import WorkerConfig, cache_directory, from_environment, misspelled
from ringcast.errors import ConfigError
from ringcast.net.ports import PortRange
from ringcast.procs.child_processes import RankProcess
from support.places import ROOT

IPC = {"RINGCAST_SIZE": "2", "RINGCAST_RANK": "1", "RINGCAST_CONTROL": "ipc:///tmp/job/control"}
KEY = "x" * 40


def test_without_variables_it_is_a_world_of_one() -> None:
    assert from_environment({}) == WorkerConfig()


@pytest.mark.parametrize(
    "config",
    [
        WorkerConfig(),
        WorkerConfig(
            1, 3, "ipc:///tmp/x/control", transport="shm", hosted=True, nonce=(1 << 64) - 1, directory="/tmp/x"
        ),
        WorkerConfig(2, 5, "tcp://127.0.0.1:1234", nonce=7, key=KEY, transport="tcp", start_timeout=1.5, timeout=2.5),
        WorkerConfig(2, 5, "tcp://127.0.0.1:1234", key=KEY, transport="tcp", near=True, directory="/tmp/job"),
        WorkerConfig(2, 5, "tcp://127.0.0.1:1234", key=KEY, transport="sockets", near=True),
        WorkerConfig(0, 2, "ipc:///tmp/job/control", key=KEY, terminal="/dev/pts/1"),
        WorkerConfig(1, 2, "ipc:///tmp/job/control", file="/tmp/network.toml", debug="info"),
        WorkerConfig(1, 2, "ipc:///tmp/job/control", restart=3),
        WorkerConfig(1, 2, "ipc:///tmp/job/control", pure=True, direct=False),
        WorkerConfig(1, 2, "tcp://127.0.0.1:1234", transport="tcp", security="none", pickle=False),
        WorkerConfig(1, 2, "ipc:///tmp/job/control", iface="^docker,10.0.0.0/8", ports=PortRange(7, 9), advertise="gw"),
        WorkerConfig(1, 2, "ipc:///tmp/job/control", advertise="[2001:db8::1]"),
    ],
)
def test_what_is_written_is_read_back(config: WorkerConfig) -> None:
    assert from_environment(config.environment()) == config


@pytest.mark.parametrize("name", sorted(WorkerConfig().environment()))
def test_a_variable_with_a_letter_left_out_is_found_and_the_right_one_is_not(name: str) -> None:
    short = name[:-2] + name[-1]
    assert misspelled({short: "1", name: "1"}) == [f"{short} is no variable of ringcast; did you mean {name}?"]


@pytest.mark.parametrize("name", ["RINGCAST_", "RINGCAST_MY_PROGRAM", "RINGCAST", "TIMOUT", "OTHER_TIMOUT"])
def test_variables_of_programs_are_left_alone(name: str) -> None:
    assert misspelled({name: "1"}) == []


def test_messages_are_predicted_unless_that_is_switched_off() -> None:
    for value, direct in [("", True), ("1", True), ("0", False)]:
        assert from_environment({"RINGCAST_DIRECT": value}).direct is direct


def test_the_transport_follows_the_control_plane() -> None:
    tcp = IPC | {"RINGCAST_CONTROL": "tcp://127.0.0.1:1234", "RINGCAST_KEY": KEY}
    for nothing in {}, {"RINGCAST_TRANSPORT": ""}, {"RINGCAST_TRANSPORT": "auto"}:
        found = [from_environment({**each, **nothing}) for each in (IPC, tcp)]
        assert [(each.transport, each.near) for each in found] == [("shm", True), ("sockets", True)]
        assert [from_environment(each.environment()) for each in found] == found
    found = [from_environment({**each, "RINGCAST_TRANSPORT": "shm"}) for each in (IPC, tcp)]
    assert [(each.transport, each.near) for each in found] == [("shm", False)] * 2
    found = [from_environment({**each, "RINGCAST_TRANSPORT": "zeromq"}) for each in (IPC, tcp)]
    assert [(each.transport, each.near) for each in found] == [("ipc", False), ("tcp", True)]
    found = [from_environment({**each, "RINGCAST_TRANSPORT": "tcp", "RINGCAST_KEY": KEY}) for each in (IPC, tcp)]
    assert [(each.transport, each.near) for each in found] == [("tcp", False)] * 2


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"RINGCAST_SIZE": "0"}, "RINGCAST_SIZE=0"),
        ({"RINGCAST_SIZE": "two"}, "RINGCAST_SIZE='two'"),
        ({"RINGCAST_RANK": "2"}, r"RINGCAST_RANK=2: must be in 0\.\.1"),
        ({"RINGCAST_CONTROL": ""}, "RINGCAST_CONTROL=''"),
        ({"RINGCAST_CONTROL": "http://host"}, "RINGCAST_CONTROL='http://host'"),
        ({"RINGCAST_CONTROL": "tcp://127.0.0.1:1"}, "RINGCAST_KEY: tcp needs"),
        ({"RINGCAST_TRANSPORT": "udp"}, "RINGCAST_TRANSPORT='udp'"),
        ({"RINGCAST_TRANSPORT": "tcp"}, "RINGCAST_KEY: tcp needs"),
        ({"RINGCAST_NONCE": "-5"}, "RINGCAST_NONCE=-5"),
        ({"RINGCAST_NONCE": str(1 << 64)}, "64 bits"),
        ({"RINGCAST_TIMEOUT": "0"}, "RINGCAST_TIMEOUT='0': must be more than 0"),
        ({"RINGCAST_TIMEOUT": "soon"}, "RINGCAST_TIMEOUT='soon'"),
        ({"RINGCAST_START_TIMEOUT": "-1"}, "RINGCAST_START_TIMEOUT='-1'"),
        ({"RINGCAST_IFACE": "eth0,"}, "RINGCAST_IFACE: interfaces 'eth0,': an item is empty"),
        ({"RINGCAST_PORTS": "9-7"}, "RINGCAST_PORTS='9-7': expected FIRST-LAST"),
        (
            {"RINGCAST_PORTS": "7-9", "RINGCAST_CONTROL": "tcp://127.0.0.1:10", "RINGCAST_KEY": KEY},
            "RINGCAST_CONTROL='tcp://127.0.0.1:10': its port is not within RINGCAST_PORTS=7-9",
        ),
        ({"RINGCAST_ADVERTISE": "host:7"}, "RINGCAST_ADVERTISE='host:7': must be a host name or an address"),
        ({"RINGCAST_ADVERTISE": "a b"}, "RINGCAST_ADVERTISE='a b'"),
        ({"RINGCAST_SECURITY": "off"}, "RINGCAST_SECURITY='off': must be curve or none"),
        ({"RINGCAST_NO_PICKLE": "yes"}, "RINGCAST_NO_PICKLE='yes': must be 0 or 1"),
        ({"RINGCAST_NO_PICKLE": "2"}, "RINGCAST_NO_PICKLE='2': must be 0 or 1"),
        ({"RINGCAST_DETERMINISTIC": "-1"}, "RINGCAST_DETERMINISTIC='-1': must be 0 or 1"),
        ({"RINGCAST_DETERMINISTIC": "yes"}, "RINGCAST_DETERMINISTIC='yes': must be 0 or 1"),
        ({"RINGCAST_PURE": "yes"}, "RINGCAST_PURE='yes': must be 0 or 1"),
        ({"RINGCAST_DIRECT": "off"}, "RINGCAST_DIRECT='off': must be 0 or 1"),
        ({"RINGCAST_DEBUG": "all"}, "RINGCAST_DEBUG='all': must be info"),
    ],
)
def test_what_cannot_work_is_refused_by_name(wrong: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        from_environment(IPC | wrong)


@pytest.mark.parametrize("transport", ["auto", "zeromq", "shm", "ipc", "sockets", "tcp"])
@pytest.mark.parametrize("control", ["ipc:///tmp/job/control", "tcp://127.0.0.1:1234"])
def test_a_child_of_a_rank_is_known_although_the_key_has_left_the_environment(control: str, transport: str) -> None:
    parent = RankProcess(nonce=7, rank=1, pid=os.getppid(), file=5, inode=99)
    env = IPC | {"RINGCAST_CONTROL": control, "RINGCAST_TRANSPORT": transport, "RINGCAST_NONCE": "7"}
    assert from_environment(env | {"RINGCAST_JOINED": str(parent)}).parent == parent
    for other in replace(parent, nonce=8), replace(parent, rank=0), replace(parent, pid=os.getpid()):
        rank = env | {"RINGCAST_JOINED": str(other), "RINGCAST_KEY": KEY}
        assert from_environment(rank).parent is None


def test_the_environment_is_read_in_one_module_and_arguments_by_commands() -> None:
    def using(word: str) -> set[str]:
        package = ROOT / "ringcast"
        return {str(path.relative_to(package)) for path in package.rglob("*.py") if word in path.read_text()}

    hand_it_on = "commands/bench/", "mpi4py/"
    others = {path for path in using("os.environ") if not path.startswith(hand_it_on)}
    assert others == {"config/worker.py", "bootstrap/world.py"}  # the second only takes out the key, and sets a tag
    assert not using("getenv")
    assert {path for path in using("argparse") if not path.startswith("commands/")} == set()


def test_the_cache_is_where_the_user_says_or_in_the_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert cache_directory({"XDG_CACHE_HOME": "/scratch/cache"}) == "/scratch/cache"
    for none in {}, {"XDG_CACHE_HOME": ""}, {"XDG_CACHE_HOME": "relative"}:  # which is to be ignored
        assert cache_directory(none) == "/home/me/.cache"
