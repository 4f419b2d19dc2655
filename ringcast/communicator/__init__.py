"""What a program calls: the Communicator, put together from parts of one idea each."""

from ringcast.communicator.communicator import Communicator

__all__ = ["Communicator"]
