"""ringcast as a backend of `torch.distributed`: importing this registers it.

    import torch.distributed as dist
    import ringcast.torch

    dist.init_process_group("ringcast")

See docs/use/torch.md.
"""

from __future__ import annotations

import torch.distributed as dist

from ringcast.torch.groups import CPU, NAME, create, process_group
from ringcast.torch.rendezvous import find_job

__all__ = ["process_group"]

dist.Backend.register_backend(NAME, create, extended_api=True, devices=[CPU.type])
find_job()
