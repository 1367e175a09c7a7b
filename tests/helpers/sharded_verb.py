"""The command line, with an Accelerate that shards the model over processes on the CPU.

Accelerate itself shards on accelerators only; torch's FSDP2 also works over gloo. So its state is told that this is FSDP.
"""

import sys

from accelerate import Accelerator
from accelerate.state import AcceleratorState
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
from torch.distributed.fsdp import FSDPModule

from steadyscore.cli import main
from steadyscore.training import student


class ShardingAccelerator(Accelerator):
    def __init__(self, **settings):
        super().__init__(**settings)
        AcceleratorState._shared_state |= {
            "distributed_type": DistributedType.FSDP,
            "fsdp_plugin": FullyShardedDataParallelPlugin(),
        }

    def prepare(self, *things):
        prepared = super().prepare(*things)
        units = [module for module in prepared[0].modules() if isinstance(module, FSDPModule)]
        print(f"sharded units: {len(units)}", file=sys.stderr)
        return prepared


if __name__ == "__main__":
    student.Accelerator = ShardingAccelerator
    sys.exit(main())
