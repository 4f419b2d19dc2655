"""MPI, as programs for mpi4py know it: `from ringcast import MPI` instead of `from mpi4py import MPI`."""

from ringcast.mpi.base.constants import *
from ringcast.mpi.base.error_classes import *
from ringcast.mpi.base.exceptions import Add_error_class as Add_error_class
from ringcast.mpi.base.exceptions import Add_error_code as Add_error_code
from ringcast.mpi.base.exceptions import Add_error_string as Add_error_string
from ringcast.mpi.base.exceptions import Exception as Exception
from ringcast.mpi.base.exceptions import Get_error_class as Get_error_class
from ringcast.mpi.base.exceptions import Get_error_string as Get_error_string
from ringcast.mpi.base.exceptions import Remove_error_class as Remove_error_class
from ringcast.mpi.base.exceptions import Remove_error_code as Remove_error_code
from ringcast.mpi.base.exceptions import Remove_error_string as Remove_error_string
from ringcast.mpi.base.sentinels import *
from ringcast.mpi.collectives.locks import _comm_lock as _comm_lock
from ringcast.mpi.collectives.locks import _comm_lock_table as _comm_lock_table
from ringcast.mpi.communicators.comm import *
from ringcast.mpi.communicators.group import *
from ringcast.mpi.communicators.intercomm import *
from ringcast.mpi.communicators.private import _commctx_inter as _commctx_inter
from ringcast.mpi.communicators.private import _commctx_intra as _commctx_intra
from ringcast.mpi.communicators.topocomm import *
from ringcast.mpi.communicators.topologies import Compute_dims as Compute_dims
from ringcast.mpi.data.memory import *
from ringcast.mpi.data.pickling import *
from ringcast.mpi.datatypes.datatype import Datatype as Datatype
from ringcast.mpi.datatypes.datatype import typealign, typecode
from ringcast.mpi.datatypes.op import *
from ringcast.mpi.datatypes.predefined import *
from ringcast.mpi.datatypes.predefined import _typedict as _typedict
from ringcast.mpi.environment import *
from ringcast.mpi.environment import _set_abort_status as _set_abort_status
from ringcast.mpi.environment import start as _start
from ringcast.mpi.handles.errhandlers import *
from ringcast.mpi.handles.handle import _addressof as _addressof
from ringcast.mpi.handles.handle import _handleof as _handleof
from ringcast.mpi.handles.handle import _sizeof as _sizeof
from ringcast.mpi.handles.info import *
from ringcast.mpi.handles.status import *
from ringcast.mpi.messages.buffered import *
from ringcast.mpi.messages.matched import *
from ringcast.mpi.requests.grequest import *
from ringcast.mpi.requests.request import *
from ringcast.mpi.unsupported import *
from ringcast.mpi.windows.win import *

_typealign, _typecode = typealign, typecode  # for mpi4py.util.dtlib
del typealign, typecode

_start()
