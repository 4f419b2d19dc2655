"""The predefined datatypes by name."""

from ringcast.mpi.data.definition import NAMED as _NAMED
from ringcast.mpi.data.definition import OF_CODE as _OF_CODE
from ringcast.mpi.data.definition import PAIRS as _PAIRS
from ringcast.mpi.datatypes.datatype import Datatype as _Datatype
from ringcast.mpi.handles.handle import predefined as _predefined


def _named(name: str, mpi_name: str = "") -> _Datatype:
    handle = _Datatype._of_state(_NAMED[mpi_name or name])
    _predefined(handle, name)
    return handle


def _pair(name: str, value: str) -> _Datatype:
    handle = _Datatype._of_state(_PAIRS[value])
    _predefined(handle, name)
    return handle


DATATYPE_NULL = _Datatype()
_predefined(DATATYPE_NULL, "DATATYPE_NULL")
PACKED = _named("PACKED")
BYTE = _named("BYTE")
AINT = _named("AINT")
OFFSET = _named("OFFSET")
COUNT = _named("COUNT")
CHAR = _named("CHAR")
WCHAR = _named("WCHAR")
SIGNED_CHAR = _named("SIGNED_CHAR")
SHORT = SIGNED_SHORT = _named("SHORT")
INT = SIGNED_INT = _named("INT")
LONG = SIGNED_LONG = _named("LONG")
LONG_LONG = SIGNED_LONG_LONG = _named("LONG_LONG", "LONG_LONG_INT")
UNSIGNED_CHAR = _named("UNSIGNED_CHAR")
UNSIGNED_SHORT = _named("UNSIGNED_SHORT")
UNSIGNED = UNSIGNED_INT = _named("UNSIGNED")
UNSIGNED_LONG = _named("UNSIGNED_LONG")
UNSIGNED_LONG_LONG = _named("UNSIGNED_LONG_LONG")
FLOAT = FLOAT32_T = _named("FLOAT")
DOUBLE = FLOAT64_T = _named("DOUBLE")
LONG_DOUBLE = _named("LONG_DOUBLE")
C_BOOL = BOOL = _named("C_BOOL")
INT8_T = SINT8_T = _named("INT8_T")
INT16_T = SINT16_T = _named("INT16_T")
INT32_T = SINT32_T = _named("INT32_T")
INT64_T = SINT64_T = _named("INT64_T")
UINT8_T = _named("UINT8_T")
UINT16_T = _named("UINT16_T")
UINT32_T = _named("UINT32_T")
UINT64_T = _named("UINT64_T")
FLOAT16_T = _named("FLOAT16_T")
BFLOAT16_T = DATATYPE_NULL
C_COMPLEX = C_FLOAT_COMPLEX = _named("C_COMPLEX")
C_DOUBLE_COMPLEX = _named("C_DOUBLE_COMPLEX")
C_LONG_DOUBLE_COMPLEX = _named("C_LONG_DOUBLE_COMPLEX")
CXX_BOOL = _named("CXX_BOOL")
CXX_FLOAT_COMPLEX = _named("CXX_FLOAT_COMPLEX")
CXX_DOUBLE_COMPLEX = _named("CXX_DOUBLE_COMPLEX")
CXX_LONG_DOUBLE_COMPLEX = _named("CXX_LONG_DOUBLE_COMPLEX")
SHORT_INT = _pair("SHORT_INT", "SHORT")
INT_INT = TWOINT = _pair("INT_INT", "INT")
LONG_INT = _pair("LONG_INT", "LONG")
FLOAT_INT = _pair("FLOAT_INT", "FLOAT")
DOUBLE_INT = _pair("DOUBLE_INT", "DOUBLE")
LONG_DOUBLE_INT = _pair("LONG_DOUBLE_INT", "LONG_DOUBLE")
CHARACTER = _named("CHARACTER")
LOGICAL = F_BOOL = _named("LOGICAL")
INTEGER = F_INT = _named("INTEGER")
REAL = F_FLOAT = _named("REAL")
DOUBLE_PRECISION = F_DOUBLE = _named("DOUBLE_PRECISION")
COMPLEX = F_COMPLEX = F_FLOAT_COMPLEX = _named("COMPLEX")
DOUBLE_COMPLEX = F_DOUBLE_COMPLEX = _named("DOUBLE_COMPLEX")
LOGICAL1 = LOGICAL2 = LOGICAL4 = LOGICAL8 = LOGICAL16 = DATATYPE_NULL
INTEGER1 = _named("INTEGER1")
INTEGER2 = _named("INTEGER2")
INTEGER4 = _named("INTEGER4")
INTEGER8 = _named("INTEGER8")
INTEGER16 = DATATYPE_NULL
REAL2 = DATATYPE_NULL
REAL4 = _named("REAL4")
REAL8 = _named("REAL8")
REAL16 = _named("REAL16")
COMPLEX4 = DATATYPE_NULL
COMPLEX8 = _named("COMPLEX8")
COMPLEX16 = _named("COMPLEX16")
COMPLEX32 = _named("COMPLEX32")

_typedict = {code: _Datatype._of_state(_definition) for code, _definition in _OF_CODE.items()}
"""The datatypes by the codes of array modules. Packages look into it, though mpi4py does not document it."""
