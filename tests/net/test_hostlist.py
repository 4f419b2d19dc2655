"""Hosts as the user names them, and the placement of ranks on them: laws over all small cases."""

import doctest
from collections import Counter
from itertools import product
from pathlib import Path

import pytest

from ringcast.net import hostlist
from ringcast.net.hostlist import Host, HostError, How, listed, oversubscribed, parse_hosts, place, read_hostfile

CASES = [slots for nodes in range(1, 5) for slots in product(range(1, 4), repeat=nodes)]
HOWS: tuple[How, ...] = ("block", "cyclic")


def named(slots: tuple[int, ...]) -> list[Host]:
    return [Host(f"h{i}", each) for i, each in enumerate(slots)]


def test_the_examples_in_docstrings_are_true() -> None:
    result = doctest.testmod(hostlist)
    assert result.attempted > 0
    assert result.failed == 0


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("a", [("a", 1)]),
        ("a:4,b", [("a", 4), ("b", 1)]),
        ("b:1, a:2 ,b:3", [("b", 4), ("a", 2)]),
        ("n-1.cluster_x:16", [("n-1.cluster_x", 16)]),
        ("me@a:2,a", [("me@a", 2), ("a", 1)]),
        ("10.0.0.1:2", [("10.0.0.1", 2)]),
        ("[fe80::1]:4", [("fe80::1", 4)]),
        ("[FE80:0::1],[fe80::1]", [("fe80::1", 2)]),
        ("me@[fe80::1%eth0]:4", [("me@fe80::1%eth0", 4)]),
        ("h[08-10,2]:3,b", [("h08", 3), ("h09", 3), ("h10", 3), ("h2", 3), ("b", 1)]),
        ("me@r[1-2]n[0-1]", [("me@r1n0", 1), ("me@r1n1", 1), ("me@r2n0", 1), ("me@r2n1", 1)]),
    ],
)
def test_lists_of_hosts(text: str, hosts: list[tuple[str, int]]) -> None:
    assert parse_hosts(text) == tuple(Host(*host) for host in hosts)


@pytest.mark.parametrize("item", ["a:0", "a:", "a:-1", "a:x", "a:1.5", "a:99999", "a:9999999999", "a:٤", "[::1]:0"])
def test_slots_that_are_no_number_are_refused(item: str) -> None:
    with pytest.raises(HostError, match="no number of slots; expected is 1 to 65536"):
        parse_hosts(f"fine,{item}")


@pytest.mark.parametrize("sign", " \t\n;|&$`'\"\\<>(){}*?!#~=%/+:@-")
def test_a_name_is_never_an_option_nor_has_a_sign_that_a_shell_or_ssh_takes_for_more(sign: str) -> None:
    for name in (f"-{sign}a", f"a{sign} b", f"{sign}-oProxyCommand=x", f"-oX@{sign}a", f"me@-{sign}"):
        with pytest.raises(HostError):
            parse_hosts(name)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "a host is missing"),
        ("a,,b", "a host is missing"),
        ("a,-oProxyCommand=x", "'-oProxyCommand=x' is no host"),
        ("a b", "'a b' is no host"),
        ("é", "'é' is no host"),
        ("@a", "'@a' is no host"),
        ("h[3-1]", r"'h\[3-1\]': '3-1' is no range of numbers"),
        ("h[1-70000]", r"'h\[1-70000\]' means more than 65536 hosts"),
        ("h[x]", r"'h\[x\]' is no host"),
        ("fe80::1", "'fe80::1' is no host|IPv6 address is written in brackets"),
        ("a:4:4", "IPv6 address is written in brackets"),
        ("[a]", r"'\[a\]': \[a\] is no IPv6 address"),
        ("[fe80::1", "is no host"),
        ("[fe80::1]4", "is no host"),
    ],
)
def test_errors_quote_the_item(text: str, words: str) -> None:
    with pytest.raises(HostError, match=words):
        parse_hosts(text)


def test_hostfiles() -> None:
    text = "# our machines\n\na slots=4   # the large one\r\nb\n\tc:2\n[::1] slots=3\na\n"
    assert read_hostfile(text, "f") == (Host("a", 5), Host("b", 1), Host("c", 2), Host("::1", 3))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("a slots=0", "'slots=0': '0' is no number of slots"),
        ("a slots=", "'slots=': '' is no number of slots"),
        ("a slots = 4", "'slots = 4': after the host nothing but slots=NUMBER is expected"),
        ("a 4", "'4': after the host nothing but"),
        ("a slots=2 max_slots=4", "no max_slots here; slots= says"),
        ("a max-slots=4", "no max_slots here; slots= says"),
        ("a slots=2 b", "'slots=2 b': after the host"),
        ("a:2 slots=2", "'a:2 slots=2' gives the slots twice"),
        ("a,b", "'a,b' is no host"),
        ("-oX slots=1", "'-oX' is no host"),
    ],
)
def test_errors_of_hostfiles_say_where(line: str, words: str) -> None:
    with pytest.raises(HostError, match=rf"^nodes\.txt:3: .*{words}"):
        read_hostfile(f"a\n# comment\n{line}\nb\n", "nodes.txt")


@pytest.mark.parametrize("text", ["", "\n\n", "# nothing\n"])
def test_a_hostfile_without_hosts_is_an_error(text: str) -> None:
    with pytest.raises(HostError, match=r"^nodes\.txt: there is no host in it; a line is `host slots=4`"):
        read_hostfile(text, "nodes.txt")


def check(slots: tuple[int, ...], size: int | None, how: How, per_node: int | None = None) -> list[int]:
    """Check what holds for every placement; return how many ranks each host has."""
    hosts = named(slots)
    places = place(hosts, size, how, per_node)
    assert [each.rank for each in places] == list(range(len(places)))
    assert all(each.host == hosts[each.node].name for each in places)
    counts = Counter(each.node for each in places)
    assert sorted(counts) == list(range(len(counts)))
    for node, count in counts.items():
        here = [each for each in places if each.node == node]
        assert [each.local_rank for each in here] == list(range(count))
        assert {each.local_size for each in here} == {count}
    if how == "block":
        assert [each.node for each in places] == sorted(each.node for each in places)
    else:  # nobody gets one more while another, who has room, has one less
        for each in places:
            before = Counter(other.node for other in places[: each.rank])
            assert all(before[n] >= min(counts[n], before[each.node]) for n in counts)
            assert all(before[n] > before[each.node] or counts[n] <= before[each.node] for n in range(each.node))
    return [counts[node] for node in range(len(slots))]


@pytest.mark.parametrize("how", HOWS)
def test_up_to_as_many_ranks_as_slots(how: How) -> None:
    for slots in CASES:
        assert check(slots, None, how) == list(slots)
        for size in range(1, sum(slots) + 1):
            counts = check(slots, size, how)
            assert sum(counts) == size
            assert all(count <= each for count, each in zip(counts, slots, strict=True))
            assert not oversubscribed(named(slots), size)
            if how == "block":
                used = sum(1 for count in counts if count)
                assert counts[: used - 1] == list(slots[: used - 1])
            else:
                most = max(counts)
                assert all(count >= min(each, most - 1) for count, each in zip(counts, slots, strict=True))


@pytest.mark.parametrize("how", HOWS)
def test_more_ranks_than_slots_are_spread_in_proportion(how: How) -> None:
    for slots in CASES:
        total = sum(slots)
        for size in range(total + 1, 3 * total + 2):
            counts = check(slots, size, how)
            assert sum(counts) == size
            assert all(count >= each for count, each in zip(counts, slots, strict=True))
            assert all(abs(count * total - size * each) < total for count, each in zip(counts, slots, strict=True))
            assert oversubscribed(named(slots), size)


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("per_node", [1, 2, 3])
def test_so_many_on_each_host(per_node: int, how: How) -> None:
    for slots in CASES:
        counts = check(slots, None, how, per_node)
        assert counts == check(slots, per_node * len(slots), how, per_node) == [per_node] * len(slots)


def test_placements_that_cannot_be() -> None:
    hosts = parse_hosts("a:2,b:2")
    with pytest.raises(HostError, match="2 ranks on each of 2 hosts are 4, not 5; give only one of them"):
        place(hosts, 5, per_node=2)
    with pytest.raises(HostError, match="0 ranks: at least one is needed"):
        place(hosts, 0)
    with pytest.raises(HostError, match="0 ranks per host: at least one is needed"):
        place(hosts, per_node=0)
    with pytest.raises(HostError, match="there is no host to run on"):
        place(())


def test_lists_and_files_and_what_is_wrong_with_them(tmp_path: Path) -> None:
    file = tmp_path / "hosts"
    file.write_text("a slots=2\n\n# more\nb\n")
    assert listed(None, None) == ()
    assert listed(["a:2", "b"], None) == listed(None, str(file)) == (Host("a", 2), Host("b", 1))
    file.write_text("a slots=2\n\nb slots=x\n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    for hosts, name, words in (
        (["a"], "f", "either -H or --hostfile"),
        (["a:0"], None, "-H .*a:0"),
        (None, str(file), f"{file}:3: "),
        (None, str(tmp_path / "none"), f"--hostfile {tmp_path}/none: No such file"),
        (None, str(tmp_path), f"--hostfile {tmp_path}: Is a directory"),
        (None, str(tmp_path / "binary"), "it is no text"),
    ):
        with pytest.raises(HostError, match=words):
            listed(hosts, name)
