"""MPI, as programs for mpi4py know it: `from ringcast import MPI` instead of `from mpi4py import MPI`."""

from ringcast.mpi.buffered import *
from ringcast.mpi.comm import *
from ringcast.mpi.constants import *
from ringcast.mpi.datatype import Datatype as Datatype
from ringcast.mpi.datatype import typealign, typecode
from ringcast.mpi.environment import *
from ringcast.mpi.environment import _set_abort_status as _set_abort_status
from ringcast.mpi.environment import start as _start
from ringcast.mpi.errhandlers import *
from ringcast.mpi.error_classes import *
from ringcast.mpi.exceptions import Add_error_class as Add_error_class
from ringcast.mpi.exceptions import Add_error_code as Add_error_code
from ringcast.mpi.exceptions import Add_error_string as Add_error_string
from ringcast.mpi.exceptions import Exception as Exception
from ringcast.mpi.exceptions import Get_error_class as Get_error_class
from ringcast.mpi.exceptions import Get_error_string as Get_error_string
from ringcast.mpi.exceptions import Remove_error_class as Remove_error_class
from ringcast.mpi.exceptions import Remove_error_code as Remove_error_code
from ringcast.mpi.exceptions import Remove_error_string as Remove_error_string
from ringcast.mpi.grequest import *
from ringcast.mpi.group import *
from ringcast.mpi.handles import _addressof as _addressof
from ringcast.mpi.handles import _handleof as _handleof
from ringcast.mpi.handles import _sizeof as _sizeof
from ringcast.mpi.info import *
from ringcast.mpi.intercomm import *
from ringcast.mpi.locks import _comm_lock as _comm_lock
from ringcast.mpi.locks import _comm_lock_table as _comm_lock_table
from ringcast.mpi.matched import *
from ringcast.mpi.memory import *
from ringcast.mpi.op import *
from ringcast.mpi.pickling import *
from ringcast.mpi.predefined import *
from ringcast.mpi.predefined import _typedict as _typedict
from ringcast.mpi.private import _commctx_inter as _commctx_inter
from ringcast.mpi.private import _commctx_intra as _commctx_intra
from ringcast.mpi.request import *
from ringcast.mpi.sentinels import *
from ringcast.mpi.status import *
from ringcast.mpi.topocomm import *
from ringcast.mpi.topologies import Compute_dims as Compute_dims
from ringcast.mpi.unsupported import *

_typealign, _typecode = typealign, typecode  # for mpi4py.util.dtlib
del typealign, typecode

_start()
