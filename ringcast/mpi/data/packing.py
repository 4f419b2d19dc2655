"""Packing: elements of a datatype one behind the other in memory of the program, as they are or as external32."""

from __future__ import annotations

from operator import index
from typing import Any

from ringcast._util.safe_text import safe_text
from ringcast.mpi.base.exceptions import ERR_ARG, ERR_COMM, ERR_COUNT, ERR_TRUNCATE, ERR_TYPE, Exception
from ringcast.mpi.data import external32
from ringcast.mpi.data.definition import Definition
from ringcast.mpi.data.elements import Elements
from ringcast.mpi.data.exporters import exported
from ringcast.mpi.data.layout import Bytes


class Packing:
    """Pack the elements of a datatype into contiguous memory, and unpack them."""

    def _known(self) -> Definition:
        raise NotImplementedError

    def Pack(self, inbuf: Any, outbuf: Any, position: int, comm: Any) -> int:
        """Put the elements of a buffer behind `position`, and return the position behind them."""
        _check_comm(comm)
        return _put(self._elements(inbuf, writes=False).packed(), outbuf, position)

    def Unpack(self, inbuf: Any, position: int, outbuf: Any, comm: Any) -> int:
        """Fill a buffer with the elements behind `position`, and return the position behind them."""
        _check_comm(comm)
        elements = self._elements(outbuf, writes=True)
        data, position = _taken(inbuf, position, elements.nbytes)
        elements.store(data)
        return position

    def Pack_size(self, count: int, comm: Any) -> int:
        """Return the number of bytes of `count` packed elements."""
        _check_comm(comm)
        return _checked(count) * self._known().layout.size

    def Pack_external(self, datarep: str, inbuf: Any, outbuf: Any, position: int) -> int:
        """Put the elements of a buffer behind `position` as external32, and return the position behind them."""
        _check_representation(datarep)
        return _put(external32.encoded(self._elements(inbuf, writes=False)), outbuf, position)

    def Unpack_external(self, datarep: str, inbuf: Any, position: int, outbuf: Any) -> int:
        """Fill a buffer with the elements behind `position`, and return the position behind them."""
        _check_representation(datarep)
        elements = self._elements(outbuf, writes=True)
        data, position = _taken(inbuf, position, elements.count * external32.size_of(elements.definition))
        elements.store(external32.decoded(data, elements))
        return position

    def Pack_external_size(self, datarep: str, count: int) -> int:
        """Return the number of bytes of `count` elements in external32."""
        _check_representation(datarep)
        return _checked(count) * external32.size_of(self._known())

    def _elements(self, buffer: Any, *, writes: bool) -> Elements:
        """Return as many elements as a buffer has."""
        definition, memory = self._known(), exported(buffer, writes=writes)[0]
        if not definition.committed:
            raise Exception(ERR_TYPE, "the datatype has not been committed")
        extent = definition.layout.extent
        if extent <= 0:
            raise ValueError(f"message: cannot infer count, datatype extent {extent}")
        return Elements.placed(memory, 0, memory.nbytes // extent, definition)


def _put(data: Bytes, buffer: Any, position: int) -> int:
    memory, position = exported(buffer, writes=True)[0], _checked(position)
    end = position + data.nbytes
    if end > memory.nbytes:
        raise Exception(ERR_TRUNCATE, f"expected {end} bytes for the packed data, got {memory.nbytes}")
    memory[position:end] = data
    return end


def _taken(buffer: Any, position: int, nbytes: int) -> tuple[Bytes, int]:
    memory, position = exported(buffer, writes=False)[0], _checked(position)
    end = position + nbytes
    if end > memory.nbytes:
        raise Exception(ERR_TRUNCATE, f"expected {end} bytes that are packed, got {memory.nbytes}")
    return memory[position:end], end


def _checked(number: int) -> int:
    number = index(number)
    if number < 0:
        raise Exception(ERR_COUNT, f"expected a number from 0 on, got {number}")
    return number


def _check_comm(comm: Any) -> None:
    if not comm:
        raise Exception(ERR_COMM, "the communicator is COMM_NULL")


def _check_representation(datarep: str) -> None:
    if datarep != "external32":
        raise Exception(ERR_ARG, f"expected the representation external32, got {safe_text(datarep)}")
