"""Steps as LLaMA-Factory's own trainer writes them (`USE_V1=1`, llamafactory 0.9.5), by its coordinator of checkpoints.

usage: gang.sh RANKS python llama_v1_writer.py OUT STEP...

llamafactory must be on PYTHONPATH. The model is a random Qwen2 of hidden size 4; there is neither FSDP nor DeepSpeed. A step has `metadata.json`,
`model/`, `optimizer/state_dict.pt`, `scheduler.pt`, a file a rank in `dataloader/` and `rng_state/`, and `CHECKPOINT_COMPLETE`, written last.
"""

import sys
from pathlib import Path
from types import SimpleNamespace

import torch
from llamafactory.v1.accelerator.interface import DistributedInterface
from llamafactory.v1.core.utils.checkpoint import TrainingCheckpointCoordinator
from torchdata.stateful_dataloader import StatefulDataLoader
from transformers import Qwen2Config, Qwen2ForCausalLM


if not torch.cuda.is_available():
    # This build of torch knows of devices that the machine does not have.
    torch.accelerator.synchronize = lambda: None


def main(out: Path, steps: list[int]) -> None:
    DistributedInterface(None)
    torch.manual_seed(0)
    config = Qwen2Config(vocab_size=64, hidden_size=4, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1, num_key_value_heads=1)
    model = Qwen2ForCausalLM(config)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 / (1 + step))
    batches = StatefulDataLoader(list(range(64)), batch_size=4)
    data = iter(batches)
    args = SimpleNamespace(output_dir=str(out), dist_config=None, save_ckpt_as_hf=False, save_total_limit=None)
    trainer = SimpleNamespace(
        args=args,
        model=model,
        optimizer=optimizer,
        lr_scheduler=schedule,
        train_batch_generator=batches,
        renderer=SimpleNamespace(processor=SimpleNamespace(save_pretrained=lambda folder: None)),
        global_step=0,
        num_training_steps=max(steps),
    )
    for step in range(1, max(steps) + 1):
        ids = torch.tensor([next(data).tolist()])
        model(input_ids=ids, labels=ids).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        schedule.step()
        trainer.global_step = step
        if step in steps:
            TrainingCheckpointCoordinator(trainer).save(epoch=0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), [int(step) for step in sys.argv[2:]])
