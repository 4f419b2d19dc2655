"""One rank of `ringcast.run` with processes: `-m ringcast.bootstrap.worker FOLDER` calls the function there."""

import pickle
import sys
from pathlib import Path

import cloudpickle

from ringcast.bootstrap.world import init


def work(folder: Path) -> None:
    """Call the function in `folder/call`; leave its result in `folder`, which is ours alone."""
    with open(folder / "call", "rb") as file:
        sys.path[:] = pickle.load(file)  # the function may need modules that lie beside the caller's script
        fn, args = pickle.load(file)
    comm = init()
    try:
        result = cloudpickle.dumps(fn(comm, *args))
    except SystemExit as error:
        sys.excepthook(SystemExit, error, error.__traceback__)  # of a function it is an error: the launcher is to hear
        raise
    (folder / f"result-{comm.rank}").write_bytes(result)


if __name__ == "__main__":
    work(Path(sys.argv[1]))
