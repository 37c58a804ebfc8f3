"""A CPU platform for verl, registered through verl's own plugin registry.

Nothing in the verl installation is edited. A rank takes part with

    PYTHONPATH=tests/real VERL_USE_EXTERNAL_MODULES=verl_cpu_platform
    VERL_PLATFORM=cpu VERL_ENGINE_DEVICE=cuda

The last variable is needed because verl's FSDP engine registers itself for the
device names "cuda" and "npu" only. With FAULTS set, the fault hooks are armed
too (see fault_hooks.py).
"""

import contextlib
import os
import types

import torch
from torch.distributed.fsdp import _init_utils as fsdp1
from verl.plugin.platform.platform_base import PlatformBase
from verl.plugin.platform.platform_manager import PlatformRegistry

ZERO_FIGURES = ("memory_", "max_memory_", "reset_peak_")
GENERATOR_CALLS = ("get_rng_state", "set_rng_state", "manual_seed", "initial_seed")


class CpuDevice(types.ModuleType):
    """Answers like `torch.cuda` from `torch.cpu`, with zeroes for every memory figure."""

    def __getattr__(self, name):
        if name.startswith(ZERO_FIGURES):
            return lambda *args, **kwargs: 0
        if name in GENERATOR_CALLS:
            return getattr(torch, name)
        return getattr(torch.cpu, name)

    @staticmethod
    def mem_get_info(*args):
        return (0, 0)

    @staticmethod
    def empty_cache():
        pass

    @staticmethod
    def ipc_collect():
        pass

    @staticmethod
    def manual_seed_all(seed):
        torch.manual_seed(seed)

    @staticmethod
    def get_device_name(*args):
        return "cpu"

    @staticmethod
    def set_device(*args):
        pass


DEVICE = CpuDevice("cpu_device")


@PlatformRegistry.register(platform="cpu")
class PlatformCPU(PlatformBase):
    device_name = property(lambda self: "cpu")
    vendor_name = property(lambda self: "cpu")
    device_module = property(lambda self: DEVICE)

    def is_available(self):
        return True

    def current_device(self):
        return torch.device("cpu")

    def device_count(self):
        return 1

    def set_device(self, device_index):
        pass

    def synchronize(self, device_index=None):
        pass

    def manual_seed(self, seed):
        torch.manual_seed(seed)

    def manual_seed_all(self, seed):
        torch.manual_seed(seed)

    def set_allocator_settings(self, settings):
        pass

    def empty_cache(self):
        pass

    def get_device_capability(self, device_index=0):
        return None, None

    def communication_backend_name(self):
        return "gloo"

    def visible_devices_envvar(self):
        return "CUDA_VISIBLE_DEVICES"

    @contextlib.contextmanager
    def nvtx_range(self, msg):
        yield

    def profiler_start(self):
        pass

    def profiler_stop(self):
        pass

    def ray_resource_name(self):
        return "CPU"

    def ray_resource_options(self, num_gpus):
        return {"num_cpus": num_gpus}

    def ray_noset_envvars(self):
        return []

    def is_ipc_supported(self):
        return False

    def cudart(self):
        return None


ORIGINAL_INIT = torch.distributed.init_process_group


def init_process_group(backend=None, *args, **kwargs):
    """Joins with plain gloo: verl asks for "cpu:gloo,<device>:<backend>", which names the CPU twice here."""
    if backend == "cpu:gloo,cpu:gloo":
        backend = "gloo"
        keep_model_where_it_is()
    return ORIGINAL_INIT(backend, *args, **kwargs)


def keep_model_where_it_is():
    """A save first moves a model it finds on the CPU to the device; for FSDP1 that names the device "cpu:cpu"."""
    from verl.workers.engine.fsdp import transformer_impl

    transformer_impl.load_fsdp_model_to_gpu = lambda *args, **kwargs: None


torch.distributed.init_process_group = init_process_group

# FSDP1 with sync_module_states=True refuses parameters on the CPU, though gloo can broadcast them.
fsdp1._check_module_states_for_sync_module_states = lambda module_states: None

if os.environ.get("FAULTS"):
    import fault_hooks

    fault_hooks.arm_from_env()
