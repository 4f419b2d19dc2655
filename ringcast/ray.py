"""Make ringcast a backend of `ray.util.collective`, for arrays of numpy and CPU tensors of torch in actors and tasks.

`import ringcast.ray` registers the backend "ringcast" in a process: the driver's, and each that is to be a rank.
docs/use/ray.md has programs.

>>> import ringcast.ray
>>> ray.util.collective.is_backend_available("ringcast")
True
"""

from __future__ import annotations

from ringcast.errors import UsageError

try:
    import ray
except ImportError as error:
    raise ImportError("ringcast.ray is for programs of Ray, which is missing: pip install 'ray>=2.56'") from error
try:
    from ray.util.collective import is_backend_available, register_collective_backend
except ImportError as error:
    raise UsageError(
        f"Ray {ray.__version__} takes no collective backends of others; its releases from 2.56 on do: "
        "pip install 'ray>=2.56' (ringcast.on_ray works with older ones too)"
    ) from error

from ringcast.adapters.ray_group import NAME, RingcastGroup

__all__ = ["register"]


def register() -> None:
    """Register the backend in this process, unless it is registered; the import of this module does so.

    As "ringcast.ray.register" it can be the `worker_process_setup_hook` in the runtime_env of a job: then all processes
    of the job register it.

    >>> ringcast.ray.register()
    """
    if not is_backend_available(NAME):
        register_collective_backend(NAME, RingcastGroup)


register()
