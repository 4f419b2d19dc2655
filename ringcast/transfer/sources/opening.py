"""Open a source by its name: a path, an http(s) or file URL, or a URL that fsspec knows."""

from __future__ import annotations

from collections.abc import Callable
from urllib.request import url2pathname

from ringcast._util.printable import printable
from ringcast.errors import TransferError
from ringcast.transfer.origin import shown, url_of
from ringcast.transfer.sources.base import Connection, Source, Unreadable, without_secrets

_OWN = ("http", "https", "file")


def open_source(source: str, uses: Callable[[Connection], object] = lambda _: None) -> Source:
    """Open a source; `uses` is called with a connection that this needs, which can be interrupted.

    Raises:
        Trouble: it cannot be opened here.
    """
    if needs_fsspec(source):
        from ringcast.transfer.sources.remote import RemoteSource, url_to_fs  # fsspec: if needed

        return RemoteSource(*url_to_fs(source))
    try:
        url = url_of(source)
    except TransferError as error:
        raise Unreadable(str(error).partition(": ")[2]) from None
    if url is not None and url.scheme != "file":
        from ringcast.transfer.sources.http import HttpSource  # http and ssl: if needed

        return HttpSource(source, uses)
    from ringcast.transfer.sources.local import LocalSource

    return LocalSource(source if url is None else url2pathname(url.path))


def needs_fsspec(source: str) -> bool:
    """Return whether only fsspec opens a source."""
    scheme, colon, _ = source.partition("://")
    return bool(colon) and scheme.lower() not in _OWN


def name_for_people(source: str) -> str:
    """Return the name of a source in messages, without user, password and query.

    >>> name_for_people("s3://key:secret@bucket/model.bin?token=1")
    's3://bucket/model.bin?…'
    """
    scheme, colon, _ = source.partition("://")
    if not colon:
        return printable(source)
    try:
        return shown(source) if scheme.lower() in _OWN else without_secrets(printable(source))
    except TransferError:
        return f"{printable(scheme)}://…"
