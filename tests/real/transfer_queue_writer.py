"""Saves a queue with the real TransferQueue: two units of storage in Ray actors, as verl's asynchronous modes have them.

usage: transfer_queue_writer.py OUT STEP [SSD]        (OUT: `.../transfer_queue`; SSD: a folder in which units keep large values)
"""

import sys
from pathlib import Path

import numpy as np
import ray
import torch
import transfer_queue as tq
from omegaconf import OmegaConf
from tensordict import TensorDict

ROWS = 6


def main():
    out, step = Path(sys.argv[1]), int(sys.argv[2])
    storage = {"num_data_storage_units": 2, "total_storage_size": 64}
    if len(sys.argv) > 3:
        storage["ssd_offload"] = {"enabled": True, "path": sys.argv[3], "threshold_bytes": 64}
    out.parent.mkdir(parents=True, exist_ok=True)
    ray.init(address="local", num_cpus=6, include_dashboard=False, log_to_driver=False)
    tq.init(OmegaConf.create({"backend": {"storage_backend": "SimpleStorage", "SimpleStorage": storage}}))
    fields = TensorDict(
        {
            "input_ids": torch.arange(ROWS * 16).reshape(ROWS, 16),
            "responses": torch.nested.as_nested_tensor([torch.arange(3 + row) for row in range(ROWS)], layout=torch.jagged),
            "old_log_probs": torch.rand(ROWS, 16, dtype=torch.bfloat16),
        },
        batch_size=[ROWS],
    )
    fields["raw_prompt"] = np.array([[{"role": "user", "content": f"prompt {row}"}] for row in range(ROWS)], dtype=object)
    tags = [{"uid": f"u{row}", "status": "finished" if row < 4 else "pending"} for row in range(ROWS)]
    tq.kv_batch_put(keys=[f"u{row}_0" for row in range(ROWS)], partition_id="train", fields=fields, tags=tags)
    tq.save_checkpoint(out, metadata={"global_steps": step})
    tq.close()
    ray.shutdown()


if __name__ == "__main__":
    main()
