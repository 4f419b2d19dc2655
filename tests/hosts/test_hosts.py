"""Jobs on several hosts over real ssh: the places of ranks, their settings, and secrets that no other process sees."""

from __future__ import annotations

import re
import shlex
import socket

import pytest

from support.beds import on
from support.fleets import Fleet, finished, last_line, until, variables
from support.places import EXAMPLES
from support.sources import first_columns

pytestmark = pytest.mark.usefixtures("nothing_on_hosts")

PLACE = """
import os, socket
names = "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK"
print(socket.gethostname(), *(os.environ[name] for name in names))
"""
UP = """
import os, sys, time
print("up", flush=True)
while not os.path.exists(sys.argv[1]):
    time.sleep(0.02)
"""


def places(hosts: Fleet, *arguments: str, warning: str = "") -> list[str]:
    """Return "host size local_rank local_size node" for each rank of a job."""
    done = hosts.launch("--output", "none", *arguments, hosts.program(PLACE))
    told = [line for line in done.stderr.splitlines(keepends=True) if "no rank called ringcast.init" not in line]
    assert (done.returncode, "".join(told)) == (0, warning)
    rows = sorted((line.split() for line in done.stdout.splitlines()), key=lambda row: int(row[1]))
    assert [int(row[1]) for row in rows] == list(range(len(rows)))
    return [" ".join([host, *rest]) for host, _, *rest in rows]


@pytest.mark.smoke
def test_block_fills_one_host_after_the_other(hosts: Fleet) -> None:
    assert places(hosts, "-H", "h0:2,h1:2,h2:1,h3:2") == [
        *("h0 7 0 2 0", "h0 7 1 2 0", "h1 7 0 2 1", "h1 7 1 2 1"),
        *("h2 7 0 1 2", "h3 7 0 2 3", "h3 7 1 2 3"),
    ]


def test_cyclic_deals_the_ranks_round(hosts: Fleet) -> None:
    assert places(hosts, "-H", "h2:2,h0:1,h1:2", "--placement", "cyclic") == [
        *("h2 5 0 2 0", "h0 5 0 1 1", "h1 5 0 2 2"),
        *("h2 5 1 2 0", "h1 5 1 2 2"),
    ]


def test_a_job_that_leaves_out_the_host_of_the_launcher(hosts: Fleet) -> None:
    file = hosts.folder / "hostfile"
    file.write_text("# two of them\nh3 slots=4\nh1\n")
    assert places(hosts, "--hostfile", str(file), "-N", "1") == ["h3 2 0 1 0", "h1 2 0 1 1"]
    assert places(hosts, "--hostfile", str(file), "-n", "3") == ["h3 3 0 3 0", "h3 3 1 3 0", "h3 3 2 3 0"]


def test_more_ranks_than_slots_are_told(hosts: Fleet) -> None:
    told = (
        "ringcast-launch: there are more ranks than slots: the hosts have 2 slots for 3 ranks, which share the "
        "processors; name more slots (HOST:SLOTS) to say that this is wanted, or more hosts\n"
    )
    found = places(hosts, "-H", "h0,h1", "-n", "3", warning=told)
    assert sorted(row.split()[0] for row in found) in (["h0", "h0", "h1"], ["h0", "h1", "h1"])


def test_a_dry_run_tells_all_and_starts_nothing(hosts: Fleet) -> None:
    starter = hosts.folder / "starter"
    starter.write_text(f"#!/bin/sh\ntouch '{hosts.folder}/was-started'\n")
    starter.chmod(0o755)
    options = ["--dry-run", "-x", "COLOUR=dark blue", "-H", "h0:2,h9:1", "--rsh-agent", shlex.quote(str(starter))]
    done = hosts.launch(*options, hosts.program(PLACE))
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("3 ranks on 2 hosts:\n  h0  ranks 0-1\n  h9  rank 2\n")
    assert f"to start host h9: {shlex.quote(str(starter))} h9 " in done.stdout
    first, other, passed = re.split("\nof rank 2 on h9: |\nand on other hosts, as here: ", done.stdout)
    assert {"  COLOUR=dark blue", "  LOCAL_WORLD_SIZE=2", "  RANK=0"} < set(first.splitlines())
    assert other.startswith("GROUP_RANK=1 LOCAL_WORLD_SIZE=1 RANK=2")
    assert re.search(r"\bPATH=", passed)
    assert "COLOUR" not in other + passed
    assert "KEY" not in done.stdout
    assert not (hosts.folder / "was-started").exists()


def test_output_of_other_hosts(hosts: Fleet) -> None:
    program = hosts.program("import os, sys\nprint('out', os.environ['RANK'])\nprint('err', file=sys.stderr)")
    folder = hosts.folder / "output"
    done = hosts.launch("-q", "-H", "h0,h1,h2", program)
    assert sorted(done.stdout.splitlines()) == [f"[{r}] out {r}" for r in range(3)]
    assert sorted(done.stderr.splitlines()) == [f"[{r}] err" for r in range(3)]
    done = hosts.launch("-q", "-H", "h1,h2:2", "--output", f"file={folder}/%h/rank-%R", program)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert {str(file.relative_to(folder)): sorted(file.read_text().split()) for file in folder.glob("*/*")} == {
        f"{host}/rank-{rank}": [str(rank), "err", "out"] for rank, host in enumerate(["h1", "h2", "h2"])
    }
    done = hosts.launch("-H", "h1,h2", "--output", f"dir={folder}/d", program)
    assert {file.name: file.read_text() for file in (folder / "d").iterdir()} == {
        **{f"rank-{r}.out": f"out {r}\n" for r in range(2)},
        **{f"rank-{r}.err": "err\n" for r in range(2)},
    }


def test_much_output_of_other_hosts_arrives_whole(hosts: Fleet) -> None:
    program = hosts.program("import os\nfor i in range(60000): print(os.environ['RANK'], i, 'x' * 50)")
    lines = hosts.launch("--output", "none", "-H", "h1,h2", program).stdout.splitlines()
    for rank in "01":
        mine = [line for line in lines if line.startswith(rank)]
        assert mine == [f"{rank} {i} {'x' * 50}" for i in range(60000)]


def test_only_what_is_needed_travels_and_no_secret_is_seen(hosts: Fleet) -> None:
    go = hosts.folder / "go"
    secrets = {"SECRET": "geheim-0815", "AWS_TOKEN": "geheim-0816"}
    mine = {"MINE": "passed on"}
    arguments = ["-v", "-H", "h0,h1,h2", "-x", "MINE", hosts.program(UP), str(go)]
    with hosts.started(*arguments, **secrets, **mine) as process:
        workers = until(lambda: len(found := [hosts.workers(i) for i in range(3)]) == 3 and all(found) and found)
        for i, (worker,) in enumerate(workers):
            until(lambda worker=worker: "program.py" in hosts.processes()[worker])
            found = variables(worker)
            assert (found["MINE"], found["OMP_NUM_THREADS"], found["RANK"]) == ("passed on", "1", str(i))
            assert (found.get("SECRET"), found.get("AWS_TOKEN")) == ((None, None) if i else tuple(secrets.values()))
        key = variables(workers[0][0])["RINGCAST_KEY"]
        assert len(key) == 40
        for pid, command in hosts.processes().items():
            assert key not in command
            assert "geheim" not in command
            assert "passed on" not in command
            assert key not in variables(pid).values() or [pid] in workers
        for file in hosts.temporary.rglob("*"):
            assert not file.is_file() or key.encode() not in file.read_bytes()
        go.touch()
        done = finished(process)
    assert done.returncode == 0
    assert key not in done.stdout + done.stderr


def test_a_directory_that_one_host_does_not_have(hosts: Fleet) -> None:
    directory = hosts.folder / "cover" / "work"
    directory.mkdir(parents=True)
    program = hosts.program(PLACE)
    on(hosts.bed, 2, "mount", "-t", "tmpfs", "tmpfs", str(directory.parent))
    done = hosts.launch("-H", "h0,h1,h2", "--wdir", str(directory), program)
    on(hosts.bed, 2, "umount", str(directory.parent))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"ringcast-launch: host h2: there is no directory {directory} (--wdir names another)\n"
    done = hosts.launch("-H", "h0,h1,h2", "--wdir", str(directory), "python", "-c", "import os; print(os.getcwd())")
    assert sorted(done.stdout.splitlines()) == [f"[{r}] {directory}" for r in range(3)]


def test_another_starter_and_a_login_that_says_something(hosts: Fleet) -> None:
    starter = hosts.folder / "starter"
    starter.write_text("""#!/bin/sh
[ "$1" = --quick ] || exit 9
exec ssh "$2" "echo Welcome to; hostname; echo careful >&2; printf 'no end of line'; $3"
""")
    starter.chmod(0o755)
    found = places(hosts, "-H", "h1,h2", "--rsh-agent", f"{shlex.quote(str(starter))} --quick")
    assert found == ["h1 2 0 1 0", "h2 2 0 1 1"]


def logins_of(hosts: Fleet, own: str) -> list[str]:
    """Return the options for a starter by which each host has its own RINGCAST_ADVERTISE; $1 is its name."""
    starter = hosts.folder / "natted"
    starter.write_text(f'#!/bin/sh\nexec ssh "$1" "RINGCAST_ADVERTISE={own} $2"\n')
    starter.chmod(0o755)
    return ["--rsh-agent", shlex.quote(str(starter))]


def test_each_host_says_by_itself_how_its_ranks_are_reached(hosts: Fleet) -> None:
    program = hosts.program("import ringcast\nringcast.init().barrier()\n")
    own = {"RINGCAST_ADVERTISE": "h0"}
    done = hosts.launch(*logins_of(hosts, "$1"), "-v", "-H", "h0,h1", program, **own)
    assert done.returncode == 0, done.stderr
    assert sorted(re.findall(r"rank (\d) joined: tcp://([^:]*):", done.stderr)) == [("0", "h0"), ("1", "h1")]
    done = hosts.launch("-v", "-H", "h0,h1", program, **own)
    assert f"rank 1 joined: tcp://{hosts.bed.hosts[1].address}:" in done.stderr


def test_a_host_whose_own_address_is_none(hosts: Fleet) -> None:
    done = hosts.launch(*logins_of(hosts, "h1:7"), "-H", "h0,h1", "true")
    assert (done.returncode, done.stderr) == (
        2,
        "ringcast-launch: host h1: RINGCAST_ADVERTISE='h1:7': must be a host name or an address, without a port\n",
    )


def test_a_module_a_program_and_a_host_by_address(hosts: Fleet) -> None:
    done = hosts.launch("-H", f"h0,{hosts.bed.hosts[1].address}", "--output", "none", "hostname")
    assert sorted(done.stdout.split()) == ["h0", "h1"]
    done = hosts.launch("-H", "h3", "--output", "none", "-m", "this")
    assert "Beautiful is better than ugly." in done.stdout


def test_identifiers_on_four_hosts(hosts: Fleet) -> None:
    tree = hosts.folder / "tree"
    tree.mkdir()
    for n in range(1, 12):
        (tree / f"f{n}.py").write_text("if True:\n    def common(self): common.rare\n" * n**2)
    arguments = ["--path", str(tree), "--top", "3"]
    done = hosts.launch("-H", "h0:2,h1:2,h2:2,h3:2", "--output", "none", str(EXAMPLES / "identifiers.py"), *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    squares = sum(k * k for k in range(1, 12))
    lines = first_columns(done.stdout, 2)
    assert (lines["common", f"{2 * squares:,}"], lines["rare", str(squares)]) == (1, 1)
    size = sum(file.stat().st_size for file in tree.glob("*.py"))
    assert first_columns(done.stdout, 5)["all", "11", f"{size:,}", f"{3 * squares:,}", "0"] == 1
    assert re.search(r"11 files .* shared by 8 ranks", done.stdout)
    assert done.stdout.endswith("equal to the one-process count\n")


def test_two_jobs_share_a_range_of_ports(hosts: Fleet) -> None:
    program = hosts.program("import ringcast\ncomm = ringcast.init()\nprint(comm.allreduce(comm.rank))")
    both = ["-H", "h0,h1", "--port-range", "21000-21011", "--output", "none", program]
    with hosts.started(*both) as one, hosts.started(*both) as other:
        for done in (finished(one), finished(other)):
            assert (done.returncode, done.stdout, done.stderr) == (0, "1\n1\n", "")


def test_the_name_of_the_own_host_is_not_reached_by_ssh(hosts: Fleet) -> None:
    assert socket.gethostname() not in ("h0", "h1")
    done = hosts.launch("-H", "h0:2", "--rsh-agent", "/nowhere", "--output", "none", "hostname")
    assert done.stdout == "h0\nh0\n"
    done = hosts.launch("-H", "h1", "--rsh-agent", "/nowhere", "hostname")
    assert (done.returncode, last_line(done)) == (
        127,
        "ringcast-launch: /nowhere cannot be started: No such file or directory",
    )
