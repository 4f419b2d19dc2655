"""The Communicator, as a program calls it: one class, made of a part for each idea."""

from ringcast.communicator.communicator import Communicator

__all__ = ["Communicator"]
