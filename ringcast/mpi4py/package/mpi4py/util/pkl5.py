"""Communicators whose objects travel by pickle's protocol 5, without copies and of any size: here these are all."""

from mpi4py import MPI

Comm, Intracomm, Intercomm = MPI.Comm, MPI.Intracomm, MPI.Intercomm
Request, Message, Status = MPI.Request, MPI.Message, MPI.Status
Pickle, pickle = MPI.Pickle, MPI.pickle

__all__ = ["Comm", "Intercomm", "Intracomm", "Message", "Pickle", "Request", "Status", "pickle"]
