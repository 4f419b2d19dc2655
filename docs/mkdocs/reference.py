"""The pages of the API reference: of every public name of ringcast, by the room that it comes from."""

from __future__ import annotations

import ringcast
from ringcast.communicator.nonblocking import NonblockingCalls
from ringcast.communicator.persistent import PersistentCalls

PAGES = {  # of the reference: title, and what it says first
    "start": ("Starting and running", "How a program becomes a rank, or calls ranks."),
    "communicator": ("Communicator", "All collectives and messages, in the form that blocks."),
    "nonblocking": ("Calls that do not block", "Each call returns a `Request` at once."),
    "persistent": ("Persistent calls", "Each call is prepared once, and then started any number of times."),
    "topology": ("Topologies", "Grids and graphs of ranks, and calls between neighbours."),
    "requests": ("Requests and messages", "Waiting for calls; what is known of a message."),
    "operators": ("Operators", "What reductions combine values with."),
    "errors": ("Errors", "All errors are `RingcastError`s, which name the rank and say what to do."),
    "schedules": ("Schedules, algorithms, transports", "The data that a collective is, and what works on it."),
}
ROOMS = {"communicator": "communicator", "topology": "topology", "requests": "requests", "collectives": "requests"}
ROOMS |= {"ops": "operators", "errors": "errors"}  # all others are for starting
BELOW = (
    "ringcast.schedules.schedule",
    "ringcast.algorithms",
    "ringcast.algorithms.cost",
    "ringcast.analysis.verify",
    "ringcast.analysis.simulate",
    "ringcast.analysis.rounds",
    "ringcast.analysis.diagram",
    "ringcast.analysis.bounds",
    "ringcast.transports.base",
)
FORMS = {"nonblocking": NonblockingCalls, "persistent": PersistentCalls}  # of the calls of a communicator


def pages() -> dict[str, str]:
    """Return the text of each page, by name."""
    return {name: "\n\n".join([f"# {title}", first, *_items(name)]) + "\n" for name, (title, first) in PAGES.items()}


def _items(page: str) -> list[str]:
    """Return what a page shows."""
    if page == "schedules":
        return [_item(name, "show_root_full_path", "true") for name in BELOW]
    if page in FORMS:
        return [_item(f"{FORMS[page].__module__}.{FORMS[page].__name__}")]
    names = [name for name in ringcast.__all__ if ROOMS.get(_room(name), "start") == page]
    if page == "communicator":
        forms = "|".join(name for kind in FORMS.values() for name in vars(kind) if not name.startswith("_"))
        return [_item(f"ringcast.{name}", "filters", f'["!^_", "!^({forms})$"]') for name in names]
    return [_item(f"ringcast.{name}") for name in names]


def _room(name: str) -> str:
    """Return the room that a public name comes from."""
    return ringcast._HOMES[name].split(".")[0]


def _item(path: str, *option: str) -> str:
    lines = [f"::: {path}"]
    if option:
        lines += ["    options:", f"      {option[0]}: {option[1]}"]
    return "\n".join(lines)
