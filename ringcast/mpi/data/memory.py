"""Memory for programs: `MPI.buffer`, and memory that MPI allocates."""

from __future__ import annotations

from operator import index
from typing import Any, Self

import numpy as np

from ringcast.mpi.base.exceptions import ERR_ARG, Exception
from ringcast.mpi.base.sentinels import BOTTOM
from ringcast.mpi.data.exporters import address_of, at_address, exported
from ringcast.mpi.data.layout import Bytes

__all__ = ["Aint_add", "Aint_diff", "Alloc_mem", "Free_mem", "Get_address", "buffer", "memory"]


class buffer(np.ndarray[Any, np.dtype[np.uint8]]):
    """Memory of bytes, with an address; an array of numpy, as that has Python's buffer protocol."""

    obj: Any = None
    address: int = 0
    _of_device = False
    _released = False

    def __new__(cls, *buf: Any) -> Self:
        """Return the memory of an object; without one, no memory."""
        return cls.frombuffer(*buf) if buf else cls._over(at_address(0, 0, False, None), 0, None)

    @classmethod
    def _over(cls, bytes_: Bytes, address: int, obj: Any, of_device: bool = False) -> Self:
        self = bytes_.view(cls)
        self.address, self.obj, self._of_device = address, obj, of_device
        return self

    @staticmethod
    def allocate(nbytes: int, clear: bool = False) -> buffer:
        """Return new memory."""
        if index(nbytes) < 0:
            raise ValueError(f"expecting a number of bytes from 0 on, got {nbytes}")
        return buffer.frombuffer((np.zeros if clear else np.empty)(index(nbytes), np.uint8))

    @classmethod
    def frombuffer(cls, buf: Any, readonly: bool = False) -> Self:
        """Return the memory of an object."""
        found, _, of_device = exported(buf, writes=False)
        self = cls._over(found, address_of(found), buf, of_device)
        return self.toreadonly() if readonly else self

    @classmethod
    def fromaddress(cls, address: int, nbytes: int, readonly: bool = False) -> Self:
        """Return the memory at an address."""
        if index(nbytes) < 0 or (nbytes and not address):
            raise ValueError(f"there are no {nbytes} bytes at address {address}")
        if not 0 <= index(address) <= (1 << 64) - nbytes:
            raise OverflowError(f"{address} is not an address of {nbytes} bytes")
        return cls._over(at_address(address, nbytes, readonly, None), address, None)

    def toreadonly(self) -> Self:
        """Return the same memory, which cannot be written."""
        other = self._over(self.view(np.ndarray), self.address, self.obj, self._of_device)
        other.flags.writeable = False
        return other

    def release(self) -> None:
        """Give the memory back when nothing else refers to it and this is gone."""
        self.address, self.obj, self._released = 0, None, True

    def cast(self, format: str, shape: list[int] | tuple[int, ...] | None = None) -> memoryview:
        """Return a view of items and dimensions."""
        self._check_host()
        whole = memoryview(self)  # type: ignore[arg-type]
        return whole.cast(format) if shape is None else whole.cast(format, shape)  # type: ignore[call-overload,no-any-return]

    def tobytes(self, order: Any = None) -> bytes:
        """Return a copy as bytes."""
        self._check_host()
        return super().tobytes()

    @property
    def nbytes(self) -> int:
        """Number of bytes."""
        return 0 if self._released else super().nbytes

    @property
    def readonly(self) -> bool:
        """Whether it cannot be written."""
        return not self._released and not self.flags.writeable

    @property
    def format(self) -> str:
        """Format of the items."""
        return "B"

    def __len__(self) -> int:
        return self.nbytes

    def __eq__(self, other: object) -> bool:
        return self is other

    def __ne__(self, other: object) -> bool:
        return self is not other

    __hash__ = object.__hash__  # type: ignore[assignment]

    def __getitem__(self, item: Any) -> Any:
        if not isinstance(item, slice):
            self._check_host()
            return int(super().__getitem__(index(item)))
        part = super().__getitem__(self._contiguous(item))
        return self._over(part, self.address + item.indices(len(self))[0], self.obj, self._of_device)

    def __setitem__(self, item: Any, value: Any) -> None:
        self._check_host()
        if self.readonly:
            raise TypeError("the memory is read-only")
        if not isinstance(item, slice):
            super().__setitem__(index(item), value)
            return
        room = self.view(np.ndarray)[self._contiguous(item)]
        if isinstance(value, int):
            room[:] = value
            return
        given = exported(value, writes=False)[0]
        if given.nbytes != room.nbytes:
            raise ValueError(f"expecting {room.nbytes} bytes, got {given.nbytes}")
        room[:] = given

    def __delitem__(self, item: Any) -> None:
        raise NotImplementedError("memory has a fixed length")

    def _contiguous(self, item: slice) -> slice:
        if item.step not in (None, 1):
            raise IndexError("a slice of memory has step 1")
        return item

    def _check_host(self) -> None:
        if self._of_device:
            raise BufferError("the object says that this is memory of a device")


memory = buffer


def Alloc_mem(size: int, info: Any = None) -> buffer:
    """Return new memory."""
    if index(size) < 0:
        raise Exception(ERR_ARG, f"expected a number of bytes from 0 on, got {size}")
    return buffer.allocate(size)


def Free_mem(mem: buffer) -> None:
    """Give memory back; it is freed when the program has no more references to it or its parts."""
    mem.release()


def Get_address(location: Any) -> int:
    """Return the address of the memory of an object."""
    if location is None or location is BOTTOM:
        return 0
    return address_of(exported(location, writes=False)[0])


def Aint_add(base: int, disp: int) -> int:
    """Return the address `disp` bytes behind another."""
    return index(base) + index(disp)


def Aint_diff(addr1: int, addr2: int) -> int:
    """Return the bytes from the second address to the first."""
    return index(addr1) - index(addr2)
