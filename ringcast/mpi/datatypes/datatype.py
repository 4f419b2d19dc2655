"""Datatypes: the items of C and Fortran, and the types that programs build of them."""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any, Self

import numpy as np

from ringcast._util.safe_text import safe_text
from ringcast.mpi.base import constants
from ringcast.mpi.base.constants import (
    COMBINER_CONTIGUOUS,
    COMBINER_DARRAY,
    COMBINER_DUP,
    COMBINER_F90_COMPLEX,
    COMBINER_F90_INTEGER,
    COMBINER_F90_REAL,
    COMBINER_HINDEXED,
    COMBINER_HINDEXED_BLOCK,
    COMBINER_HVECTOR,
    COMBINER_INDEXED,
    COMBINER_INDEXED_BLOCK,
    COMBINER_NAMED,
    COMBINER_RESIZED,
    COMBINER_STRUCT,
    COMBINER_SUBARRAY,
    COMBINER_VECTOR,
    ORDER_C,
)
from ringcast.mpi.base.exceptions import ERR_COUNT, ERR_TYPE, Exception
from ringcast.mpi.data import layout
from ringcast.mpi.data.definition import OF_CODE, Definition, fortran_90, numpy_dtype, of_size, pair_of
from ringcast.mpi.data.distribution import owned, slab
from ringcast.mpi.data.layout import Layout
from ringcast.mpi.data.packing import Packing
from ringcast.mpi.handles.attributes import Attributes
from ringcast.mpi.handles.handle import Handle, forget

_INT_MAX = 2**31 - 1
_PREDEFINED = (COMBINER_NAMED, COMBINER_F90_REAL, COMBINER_F90_COMPLEX, COMBINER_F90_INTEGER)
_COMBINERS = {
    number: name.removeprefix("COMBINER_") for name, number in vars(constants).items() if name.startswith("COMBINER_")
}


class Datatype(Packing, Attributes, Handle):
    """A datatype: type and place of the items of a buffer."""

    _state: Definition | None

    def __reduce__(self) -> Any:
        state = self._state
        if state is None or state.combiner == COMBINER_NAMED:
            return super().__reduce__()
        return _made_again, (type(self), *self.decode(), state.committed)

    @property
    def _attributes(self) -> dict[int, Any]:
        return self._known().attributes

    def _known(self) -> Definition:
        if self._state is None:
            raise Exception(ERR_TYPE, "the datatype is DATATYPE_NULL")
        return self._state

    # sizes

    def Get_size(self) -> int:
        """Return the bytes of data of an element."""
        return self._known().layout.size

    def Get_extent(self) -> tuple[int, int]:
        """Return lower bound and extent."""
        known = self._known().layout
        return known.lb, known.extent

    def Get_true_extent(self) -> tuple[int, int]:
        """Return lower bound and extent of the data without gaps at the ends."""
        known = self._known().layout
        return known.true_lb, known.true_ub - known.true_lb

    size = property(Get_size, doc="Bytes of data.")
    extent = property(lambda self: self._known().layout.extent, doc="Bytes from one element to the next.")
    lb = property(lambda self: self._known().layout.lb, doc="Lower bound.")
    ub = property(lambda self: self._known().layout.ub, doc="Upper bound.")
    true_extent = property(lambda self: self.Get_true_extent()[1], doc="Bytes from the first to the last of the data.")
    true_lb = property(lambda self: self._known().layout.true_lb, doc="First byte of the data.")
    true_ub = property(lambda self: self._known().layout.true_ub, doc="End of the data.")

    # constructors

    def _derived(
        self,
        made: Layout,
        combiner: int,
        arguments: dict[str, Any],
        counts: Sequence[int] | None = None,
        integers: Sequence[int] = (),
    ) -> Self:
        definition = Definition(made, combiner, arguments, [self._known()])
        definition.counts = list(arguments.values() if counts is None else counts)
        definition.integers = list(integers)
        return self._of_state(definition)

    def Dup(self) -> Self:
        """Return a datatype that is the same, and is freed on its own."""
        known, attributes = self._known(), self._copied_attributes()
        made = self._derived(known.layout, COMBINER_DUP, {})
        definition = made._known()
        definition.code, definition.committed, definition.attributes = known.code, known.committed, attributes
        return made

    Create_dup = Dup

    def Create_contiguous(self, count: int) -> Self:
        """Return `count` elements, one after the other."""
        count = _count(count)
        if count > _INT_MAX:  # integers that describe a type are ints in MPI 3.1
            whole, rest = divmod(count, _INT_MAX)
            parts = [self.Create_vector(whole, _INT_MAX, _INT_MAX), self.Create_contiguous(rest)]
            return self.Create_struct([1, 1], [0, whole * _INT_MAX * self.extent], parts)
        made = layout.blocks(self._known().layout, [0], [count])
        return self._derived(made, COMBINER_CONTIGUOUS, {"count": count})

    def Create_vector(self, count: int, blocklength: int, stride: int) -> Self:
        """Return `count` blocks of `blocklength` elements, which begin `stride` elements from each other."""
        return self._vector(COMBINER_VECTOR, count, blocklength, stride, self._known().layout.extent)

    def Create_hvector(self, count: int, blocklength: int, stride: int) -> Self:
        """Return `count` blocks of `blocklength` elements, which begin `stride` bytes from each other."""
        return self._vector(COMBINER_HVECTOR, count, blocklength, stride, 1)

    def _vector(self, combiner: int, count: int, blocklength: int, stride: int, unit: int) -> Self:
        count, blocklength, stride = _count(count), _count(blocklength), _number(stride)
        base = self._known().layout
        if stride * unit == blocklength * base.extent or not blocklength:
            layout.check_fits(count * blocklength)
            made = layout.blocks(base, [0], [count * blocklength])
        else:
            layout.check_fits(max(0, count - 1) * stride * unit)  # before so many numbers are made
            places = np.arange(count, dtype=np.int64)
            made = layout.blocks(base, places, np.full(count, blocklength, np.int64), stride * unit)
        return self._derived(made, combiner, {"count": count, "blocklength": blocklength, "stride": stride})

    def Create_indexed(self, blocklengths: Sequence[int], displacements: Sequence[int]) -> Self:
        """Return blocks of elements at displacements in elements."""
        return self._indexed(COMBINER_INDEXED, blocklengths, displacements, self._known().layout.extent)

    def Create_hindexed(self, blocklengths: Sequence[int], displacements: Sequence[int]) -> Self:
        """Return blocks of elements at displacements in bytes."""
        return self._indexed(COMBINER_HINDEXED, blocklengths, displacements, 1)

    def _indexed(self, combiner: int, blocklengths: Sequence[int], displacements: Sequence[int], unit: int) -> Self:
        lengths = [_count(length) for length in _list(blocklengths)]
        places = _list(displacements, len(lengths))
        made = layout.blocks(self._known().layout, places, lengths, unit)
        arguments = {"blocklengths": lengths, "displacements": places}
        return self._derived(made, combiner, arguments, [len(lengths), *lengths, *places])

    def Create_indexed_block(self, blocklength: int, displacements: Sequence[int]) -> Self:
        """Return blocks of the same number of elements at displacements in elements."""
        return self._indexed_block(COMBINER_INDEXED_BLOCK, blocklength, displacements, self._known().layout.extent)

    def Create_hindexed_block(self, blocklength: int, displacements: Sequence[int]) -> Self:
        """Return blocks of the same number of elements at displacements in bytes."""
        return self._indexed_block(COMBINER_HINDEXED_BLOCK, blocklength, displacements, 1)

    def _indexed_block(self, combiner: int, blocklength: int, displacements: Sequence[int], unit: int) -> Self:
        length, places = _count(blocklength), _list(displacements)
        made = layout.blocks(self._known().layout, places, [length] * len(places), unit)
        arguments = {"blocklength": length, "displacements": places}
        return self._derived(made, combiner, arguments, [len(places), length, *places])

    @classmethod
    def Create_struct(
        cls, blocklengths: Sequence[int], displacements: Sequence[int], datatypes: Sequence[Datatype]
    ) -> Self:
        """Return blocks of elements of several datatypes at displacements in bytes."""
        lengths = [_count(length) for length in _list(blocklengths)]
        places = _list(displacements, len(lengths))
        if len(datatypes) != len(lengths):
            raise ValueError(f"expecting {len(lengths)} datatypes, got {len(datatypes)}")
        bases = [datatype._known() for datatype in datatypes]
        made = layout.struct([base.layout for base in bases], places, lengths)
        arguments = {"blocklengths": lengths, "displacements": places}
        definition = Definition(made, COMBINER_STRUCT, arguments, bases)
        definition.counts = [len(lengths), *lengths, *places]
        return cls._of_state(definition)

    def Create_subarray(
        self, sizes: Sequence[int], subsizes: Sequence[int], starts: Sequence[int], order: int = ORDER_C
    ) -> Self:
        """Return a part of an array of several dimensions."""
        sizes = _list(sizes)
        subsizes, starts = _list(subsizes, len(sizes)), _list(starts, len(sizes))
        made = slab(self._known().layout, sizes, subsizes, starts, order)
        arguments = {"sizes": sizes, "subsizes": subsizes, "starts": starts, "order": order}
        return self._derived(made, COMBINER_SUBARRAY, arguments, [*sizes, *subsizes, *starts], [len(sizes), order])

    def Create_darray(
        self,
        size: int,
        rank: int,
        gsizes: Sequence[int],
        distribs: Sequence[int],
        dargs: Sequence[int],
        psizes: Sequence[int],
        order: int = ORDER_C,
    ) -> Self:
        """Return the part of a rank in an array that is distributed over a grid of ranks."""
        gsizes = _list(gsizes)
        distribs, dargs, psizes = (_list(numbers, len(gsizes)) for numbers in (distribs, dargs, psizes))
        made = owned(self._known().layout, size, rank, gsizes, distribs, dargs, psizes, order)
        arguments = {
            "size": size, "rank": rank, "gsizes": gsizes, "distribs": distribs, "dargs": dargs, "psizes": psizes,
            "order": order,
        }  # fmt: skip
        integers = [size, rank, len(gsizes), *distribs, *dargs, *psizes, order]
        return self._derived(made, COMBINER_DARRAY, arguments, gsizes, integers)

    def Create_resized(self, lb: int, extent: int) -> Self:
        """Return the datatype with another lower bound and extent."""
        lb, extent = _number(lb), _number(extent)
        made = layout.resized(self._known().layout, lb, extent)
        return self._derived(made, COMBINER_RESIZED, {"lb": lb, "extent": extent})

    Resized = Create_resized

    @classmethod
    def Create_f90_integer(cls, r: int) -> Self:
        """Return the integer of `r` decimal digits."""
        return cls._of_state(fortran_90(COMBINER_F90_INTEGER, (("r", index(r)),)))

    @classmethod
    def Create_f90_real(cls, p: int, r: int) -> Self:
        """Return the real number of `p` decimal digits and a decimal exponent up to `r`."""
        return cls._of_state(fortran_90(COMBINER_F90_REAL, (("p", index(p)), ("r", index(r)))))

    @classmethod
    def Create_f90_complex(cls, p: int, r: int) -> Self:
        """Return the complex number of `p` decimal digits and a decimal exponent up to `r`."""
        return cls._of_state(fortran_90(COMBINER_F90_COMPLEX, (("p", index(p)), ("r", index(r)))))

    @classmethod
    def Get_value_index(cls, value: Datatype, index: Datatype) -> Self:
        """Return the predefined datatype of such pairs, or DATATYPE_NULL."""
        return cls._of_state(pair_of(value._known(), index._known()))

    @classmethod
    def Match_size(cls, typeclass: int, size: int) -> Self:
        """Return the predefined datatype of Fortran of a class and size."""
        return cls._of_state(of_size(typeclass, size))

    def Commit(self) -> Self:
        """Allow the datatype in messages."""
        self._known().committed = True
        return self

    def Free(self) -> None:
        """Set the handle to DATATYPE_NULL; calls under way end as they began."""
        if self._known().combiner == COMBINER_NAMED:
            raise Exception(ERR_TYPE, f"{self._known().name} is predefined and cannot be freed")
        self._delete_attributes()
        forget(self._state)
        self._state = None

    # how it was made

    def Get_envelope(self) -> tuple[int, int, int, int, int]:
        """Return the numbers of integers, addresses, counts and datatypes in the contents, and the combiner."""
        known = self._known()
        if known.combiner == COMBINER_NAMED:
            return 0, 0, 0, 0, COMBINER_NAMED
        return len(known.integers), 0, len(known.counts), len(known.bases), known.combiner

    def Get_contents(self) -> tuple[list[int], list[int], list[int], list[Datatype]]:
        """Return the integers, addresses, counts and datatypes that describe the datatype."""
        known = self._known()
        if known.combiner == COMBINER_NAMED:
            raise Exception(ERR_TYPE, f"{known.name} is predefined and has no contents")
        return list(known.integers), [], list(known.counts), [Datatype._of_state(base) for base in known.bases]

    def decode(self) -> tuple[Datatype, str, dict[str, Any]]:
        """Return the base, the name of the constructor without `Create_`, and its arguments."""
        known = self._known()
        if known.combiner == COMBINER_NAMED:
            return self, "NAMED", {}
        arguments = {name: list(value) if isinstance(value, list) else value for name, value in known.arguments.items()}
        bases = [Datatype._of_state(base) for base in known.bases]
        if known.combiner == COMBINER_STRUCT:
            arguments["datatypes"] = bases
        base = bases[0] if bases and known.combiner != COMBINER_STRUCT else Datatype()
        return base, _COMBINERS[known.combiner], arguments

    envelope = property(Get_envelope, doc="The numbers of integers, addresses, counts and datatypes; the combiner.")
    contents = property(Get_contents, doc="Integers, addresses, counts and datatypes.")
    combiner = property(lambda self: self._known().combiner, doc="The constructor of the datatype, as a constant.")

    @property
    def is_named(self) -> bool:
        """Whether this is a predefined datatype with a name."""
        return self._known().combiner == COMBINER_NAMED

    @property
    def is_predefined(self) -> bool:
        """Whether the datatype is predefined."""
        return self._state is None or self._state.combiner in _PREDEFINED

    # names and codes

    def Get_name(self) -> str:
        """Return the name."""
        return "MPI_DATATYPE_NULL" if self._state is None else self._state.name

    def Set_name(self, name: str) -> None:
        """Set the name."""
        self._known().name = name

    name = property(Get_name, Set_name, doc="Name of the datatype.")

    @classmethod
    def fromcode(cls, code: str) -> Self:
        """Return the predefined datatype of a code, as of Python's `struct` module or numpy's type strings."""
        found = OF_CODE.get(code)
        if found is None:
            raise ValueError(f"cannot map code {safe_text(code)} to MPI datatype")
        return cls._of_state(found)

    def tocode(self) -> str:
        """Return the code."""
        code = None if self._state is None else self._state.code
        if code is None:
            raise ValueError("cannot map to character code or type string")
        return code

    @property
    def typechar(self) -> str:
        """Character of numpy for the type: V if it is no item."""
        if self._state is None:
            return ""
        code = self._state.code
        return "V" if code is None else code if len(code) == 1 else np.dtype(code).char

    @property
    def typestr(self) -> str:
        """Type string of numpy without byte order: V and the extent if it is no item."""
        if self._state is None:
            return ""
        code = self._state.code
        return f"V{self.extent}" if code is None else numpy_dtype(code).str[1:]


def _count(number: int) -> int:
    number = _number(number)
    if number < 0:
        raise Exception(ERR_COUNT, f"the count is {number}")
    return number


def _number(number: int) -> int:
    """Return a count or a displacement, which MPI has as a number of 64 bits."""
    number = index(number)
    if not -(1 << 63) <= number < 1 << 63:
        raise OverflowError(f"{number} is not a number of 64 bits")
    return number


def _list(numbers: Sequence[int], expected: int | None = None) -> list[int]:
    if expected is not None and len(numbers) != expected:
        raise ValueError(f"expecting {expected} items, got {len(numbers)}")
    return [_number(number) for number in numbers]


def _made_again(
    kind: type[Datatype], base: Datatype, constructor: str, arguments: dict[str, Any], committed: bool
) -> Datatype:
    """Return a datatype as pickle wrote it."""
    made: Datatype = getattr(kind(base), f"Create_{constructor.lower()}")(**arguments)
    return made.Commit() if committed else made


def typecode(datatype: Datatype) -> str | None:
    """Return the code of a datatype; None if it is no item."""
    return datatype._known().code


def typealign(datatype: Datatype) -> int | None:
    """Return the alignment of an item or pair; None for other datatypes."""
    known = datatype._known()
    return known.layout.alignment if known.dtype is not None or known.code else None
