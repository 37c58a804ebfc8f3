"""Writes checkpoints in the layout of verl's PPO trainer with the FSDPCheckpointManager of an older verl (0.4.0 to 0.9.1).

usage: gang.sh N python verl_fsdp_old.py OUT MODEL VERL [--steps 2] [--strategy fsdp2|fsdp] [--critic]

VERL is a folder with that release's wheel unpacked (install_verl_versions.sh, install_old_verl.sh). Model, training and names are those of
verl_fsdp_manager.py; only the manager is the older one.
"""

import inspect
import os
import sys
from types import SimpleNamespace

VERL = os.path.abspath(sys.argv.pop(3))
sys.path.insert(0, VERL)
for name in ("VERL_USE_EXTERNAL_MODULES", "VERL_PLATFORM", "VERL_ENGINE_DEVICE"):
    os.environ.pop(name, None)


class CheckpointConfig(dict):
    """What is saved and loaded."""


def main():
    # What else the managers' package imports asks for names that newer libraries do not have; nothing of it is used.
    nothing = SimpleNamespace(check_exclude_modules=None, check_target_modules=None, normalize_model_name=None)
    sys.modules["verl.utils.model"] = nothing
    sys.modules["verl.workers.engine"] = SimpleNamespace(BaseEngine=object)
    # Of the package of configurations, the script takes one plain holder; releases before 0.6 have none there.
    sys.modules["verl.trainer.config"] = SimpleNamespace(CheckpointConfig=CheckpointConfig)
    import verl.utils.checkpoint.fsdp_checkpoint_manager as managers
    from omegaconf import OmegaConf

    assert managers.__file__.startswith(VERL), managers.__file__
    manager = managers.FSDPCheckpointManager
    takes = inspect.signature(manager.__init__).parameters

    def build(checkpoint_config, **rest):
        if "checkpoint_contents" in takes:
            return manager(checkpoint_contents=checkpoint_config["save_contents"], **rest)
        return manager(checkpoint_config=OmegaConf.create(dict(checkpoint_config)), **rest)

    managers.FSDPCheckpointManager = build
    import verl_fsdp_manager

    verl_fsdp_manager.main()


if __name__ == "__main__":
    main()
