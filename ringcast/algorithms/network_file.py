"""Write the constants of a measured network to a file (`ringcast calibrate`), and read it (launcher and `init`).

The file is TOML: `transport` names the measured transport, the table `network` has the fields of
`ringcast.algorithms.network.Network` but `ranks_per_cpu`, which a job knows of its host. All keys are required, and no
others are allowed, so that a misspelled key is an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ringcast._util import input_files
from ringcast._util.dataclass import dataclass
from ringcast._util.output_files import write_whole
from ringcast.algorithms.network import NETWORKS, Network
from ringcast.errors import ConfigError


@dataclass(frozen=True, slots=True)
class _Key:
    """A constant: its meaning, and the range of accepted values.

    The model divides by alpha and beta: a value near 0 would cut a message into a million blocks of a byte.
    """

    unit: str
    least: float
    most: float
    whole: bool = False

    @property
    def expected(self) -> str:
        kind = "a whole number of " if self.whole else ""
        return f"{kind}{self.unit}, {self.least:g} to {self.most:g}"


_KEYS: Mapping[str, _Key] = {
    "alpha": _Key("seconds per round", 1e-8, 10.0),
    "beta": _Key("seconds per byte", 1e-13, 1e-3),
    "gamma": _Key("seconds per byte combined", 0, 1e-3),
    "frame": _Key("seconds per frame of a message", 0, 1.0),
    "grant": _Key("seconds more per round that is granted", 0, 10.0),
    "beta_long": _Key("seconds more per byte of a message beyond the first 64 kB", 0, 1e-3),
    "local": _Key("seconds per byte between ranks of one host, where hosts have several", 0, 1e-3),
    "link_beta": _Key("seconds per byte of a link, beyond the first 64 kB, at the least", 0, 1e-3),
    "lookahead": _Key("bytes that may be missing when the next message is granted or sent", 0, 1e9, whole=True),
}


def read(path: str | Path, transport: str) -> Network:
    """Return the constants in the file `path`, which must be of the job's `transport`.

    Raises:
        ConfigError: the file cannot be read or used; the text names the file, and the invalid key.
    """
    content = _parse(path)
    _check_names(path, content, ("transport", "network"), "")
    known = ", ".join(NETWORKS)
    if content["transport"] not in list(NETWORKS):
        raise ConfigError(f"{path}: transport = {content['transport']!r}: expected one of {known}")
    if content["transport"] != transport:
        found = f"it is for {content['transport']}, but this job uses {transport}"
        raise ConfigError(f"{path}: transport: {found}; measure it with ringcast calibrate, or leave the file out")
    table = content["network"]
    if not isinstance(table, dict):
        raise ConfigError(f"{path}: network: expected a table, [network], got {table!r}")
    _check_names(path, table, tuple(_KEYS), "network.")
    constants: dict[str, Any] = {name: _number(path, name, table[name]) for name in _KEYS}
    return Network(**constants)


def write(path: str | Path, network: Network, transport: str, remarks: Sequence[str] = ()) -> None:
    """Write the file that `read` reads, whole or not at all.

    Args:
        path: of the file.
        network: the constants.
        transport: the measured one.
        remarks: lines of comment for the head of the file.

    Raises:
        OSError: the file cannot be written; nothing is left behind.
    """
    write_whole(path, lambda file: file.write(text(network, transport, remarks).encode()))


def text(network: Network, transport: str, remarks: Sequence[str] = ()) -> str:
    """Return the content of the file; numbers are rounded to five digits, and raised to the least that `read` accepts.

    >>> print(text(NETWORKS["ipc"], "ipc").splitlines()[3])
    alpha = 0.00012  # seconds per round
    """
    lines = [*(f"# {remark}" for remark in remarks), f'transport = "{transport}"', "", "[network]"]
    for name, key in _KEYS.items():
        number = max(getattr(network, name), key.least)
        lines.append(f"{name} = {number if key.whole else format(number, '.5g')}  # {key.unit}")
    return "\n".join(lines) + "\n"


def _parse(path: str | Path) -> dict[str, Any]:
    import tomllib  # takes 4 ms; a job without a file does not need it

    try:
        return tomllib.loads(input_files.read(path).decode())
    except OSError as error:
        raise ConfigError(f"{path}: the configuration file cannot be read: {error.strerror}") from None
    except ValueError as error:  # also for text that is not UTF-8
        raise ConfigError(f"{path}: the configuration file is not TOML: {error}") from None


def _check_names(path: str | Path, table: Mapping[str, Any], names: Sequence[str], prefix: str) -> None:
    expected = ", ".join(prefix + name for name in names)
    for name in table:
        if name not in names:
            raise ConfigError(f"{path}: {prefix}{name}: there is no such key; expected {expected}")
    for name in names:
        if name not in table:
            raise ConfigError(f"{path}: {prefix}{name} is missing; expected {expected}")


def _number(path: str | Path, name: str, value: Any) -> float:
    key = _KEYS[name]
    number = isinstance(value, int if key.whole else int | float) and not isinstance(value, bool)
    if not number or not key.least <= value <= key.most:  # nan is in no range
        raise ConfigError(f"{path}: network.{name} = {value!r}: expected {key.expected}")
    return int(value) if key.whole else float(value)
