"""Cases of areal_alone.py: single pieces of areal, each called in a process of its own."""

import concurrent.futures
import inspect
import os
import signal
import threading
import time
from pathlib import Path
from types import SimpleNamespace

import areal_stage as stage

NAMES = {"experiment_name": "real", "trial_name": "t0"}


def directories_come_first(folder):
    """[disk.directories_come_first, export.empty_first] Whoever asks for a path creates it: a directory proves nothing."""
    from areal.utils.saver import Saver

    checkpoint = Path(Saver.get_recover_checkpoint_path("real", "t0", str(folder)))
    export = Path(Saver.get_model_save_path("real", "t0", str(folder), 1, 2, 3))
    assert checkpoint.is_dir() and export.name == "epoch1epochstep2globalstep3" and not any(export.iterdir())


def frequencies(folder):
    """[config.no_frequency, config.frequency] Every Nth step, the end of an epoch; with none of the three, nothing is ever saved."""
    from areal.utils.timeutil import EpochStepTimeFreqCtl

    def saved(*frequency):
        control = EpochStepTimeFreqCtl(*frequency)
        return [step for step in range(1, 9) if control.check(epochs=int(step % 4 == 0), steps=1)]

    assert saved(None, 3, None) == [3, 6] and saved(1, None, None) == [4, 8] and saved(None, None, None) == []


def critic_saves_twice(folder):
    """[export.critic_twice] Actor and critic share one counter: freq_steps=2 exports only the critic, at every step."""
    from areal.utils.timeutil import EpochStepTimeFreqCtl

    control = EpochStepTimeFreqCtl(None, 2, None)
    assert [control.check(0, 1) for _ in range(4)] == [False, True, False, True]


def mode_on(folder):
    """[config.mode_on] `mode: on` without quotes, as areal's documentation writes it, is a boolean and refused."""
    from areal.api.cli_args import RecoverConfig
    from omegaconf import OmegaConf

    made = OmegaConf.merge(OmegaConf.structured(RecoverConfig), OmegaConf.create("{mode: on, fileroot: /x}"), NAMES)
    with raises(ValueError, "Invalid recover mode 'True'"):
        OmegaConf.to_object(made)


def unknown_key(folder):
    """[config.unknown_key] A key that areal does not know is fatal: so would a block of ours be."""
    from areal.api.cli_args import SFTConfig, to_structured_cfg
    from omegaconf import OmegaConf, errors

    with raises(errors.ConfigKeyError, "supervisor"):
        to_structured_cfg(OmegaConf.create({"supervisor": {"retries": 3}}), SFTConfig)


def no_scheduler(folder):
    """[config.no_scheduler] Without a launcher and without scheduler.type it starts nothing."""
    from areal.trainer.sft_trainer import SFTTrainer

    with raises(NotImplementedError, "Unknown scheduler type"):
        SFTTrainer._init_scheduler(SimpleNamespace(config=SimpleNamespace(scheduler=SimpleNamespace(type=None))))


def load_errors_are_no_exceptions(folder):
    """[load.base_exception] What a damaged checkpoint raises is no Exception, so that no `except Exception` sees it."""
    from torch.distributed.checkpoint.api import CheckpointException

    assert not issubclass(CheckpointException, Exception)


def controller_hangs(folder):
    """[load.hang_in_controller, process.two_hours] Under a controller, such an error kills the engine's thread; nobody is answered."""
    from areal.infra.rpc.guard import engine_blueprint
    from torch.distributed.checkpoint.api import CheckpointException

    began = threading.Event()

    def load():
        began.set()
        raise CheckpointException("torn", {})

    pool = concurrent.futures.ThreadPoolExecutor(1)
    answer = pool.submit(engine_blueprint._submit_to_engine_thread, "load", load)
    assert began.wait(30)
    engine_blueprint._engine_thread.join(30)
    assert not answer.done()
    with raises(RuntimeError, "Engine thread is dead"):
        engine_blueprint._submit_to_engine_thread("load", load)


def not_found_is_swallowed(folder):
    """[load.not_found] A file that is not found anywhere in a load is a warning; counters are already those of the old run."""
    from areal.utils import recover

    handler, used = handler_of(folder)
    info = recover.RecoverInfo(step(2), {"a": 1}, {}, {}, {}, handler.freq_ctl.state_dict())
    info.dump(handler.recover_info_path("real", "t0", str(folder)))

    def lost(meta):
        raise FileNotFoundError("shard")

    parts = [SimpleNamespace(load_state_dict=used.append) for _ in range(4)]
    assert handler.load(SimpleNamespace(load=lost), *parts) is None and used[0] == {"a": 1}


def critic_is_not_loaded(folder):
    """[resume.critic, crash.critic_behind] Actor and critic are saved; only the actor is loaded."""
    from areal.trainer.rl_trainer import PPOTrainer

    source = inspect.getsource(PPOTrainer)
    assert 'to_save["critic"] = self.critic' in source
    call = source.split("self.recover_handler.load(")[1].split(")")[0]
    assert call.split(",")[0].strip() == "self.actor" and "critic" not in call


def names_are_deleted_by_name(folder):
    """[resume.names_by_name, resume.orphans_names] An old worker that ends deletes the record of the new one."""
    from areal.utils.name_resolve import NameEntryNotFoundError, NfsNameRecordRepository

    old, new = (NfsNameRecordRepository(str(folder)) for _ in range(2))
    old.add("u/real/t0/workers/actor/0", "host:1")
    new.add("u/real/t0/workers/actor/0", "host:2", replace=True)
    old.reset()
    with raises(NameEntryNotFoundError):
        new.get("u/real/t0/workers/actor/0")
    new.add("u/real/t0/gen_servers/a", "host:3")
    (folder / "u/real/t0/gen_servers/a/ENTRY.tmp.1").touch()
    assert new.get_subtree("u/real/t0/gen_servers") == []


def launcher_never_ends_well(folder):
    """[process.exit_code, process.tee] The old launcher takes a success for a failure, and cannot tell them: the status is tee's."""
    from areal.infra.utils.launcher import JobException

    for command in ("true", "false"):
        launcher, state = launch(folder, command)
        with raises(JobException):
            launcher.wait(check_status=tuple(state), remove_status=())
        assert launcher._jobs[f"{command}/0"].wait() == 0
        launcher._jobs.clear()


def launcher_leaves_orphans(folder):
    """[process.orphans] A launcher that is killed leaves its shell, its tee and its trainer alive."""
    seconds = str(70_000 + os.getpid())
    child = stage.fork(lambda: (launch(folder, f"sleep {seconds}"), time.sleep(60)), {}, folder / "launcher.log")
    wait_for(lambda: len(found(seconds)) >= 2)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    left = found(seconds)
    try:
        assert len(left) >= 2, left
    finally:
        for pid in left:
            os.kill(pid, signal.SIGKILL)


def no_handler_of_signals(folder):
    """[process.signals] The trainers handle no signal: SIGTERM ends the controller and leaves its workers."""
    from areal.trainer import rl_trainer, sft_trainer

    assert not any("signal." in inspect.getsource(module) for module in (rl_trainer, sft_trainer))


def launch(folder, command):
    os.environ["CUDA_VISIBLE_DEVICES"] = "0"
    from areal.infra.launcher.local import JobState, LocalLauncher

    launcher = LocalLauncher("real", "t0", str(folder))
    launcher.submit(command.split()[0], command)
    return launcher, JobState


def found(argument):
    """Processes with this argument in their command line; not those that look for it."""
    lines = {int(p): command(p) for p in os.listdir("/proc") if p.isdigit()}
    return [pid for pid, line in lines.items() if f"sleep {argument}" in line.replace("\0", " ")]


def command(pid):
    try:
        return Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
    except OSError:
        return ""


def wait_for(condition):
    until = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


def handler_of(folder):
    from areal.api.cli_args import RecoverConfig
    from areal.utils.recover import RecoverHandler

    config = RecoverConfig(**NAMES, fileroot=str(folder), mode="auto", freq_steps=1)
    return RecoverHandler(config, SimpleNamespace(steps_per_epoch=8)), []


def step(done):
    from areal.api import StepInfo

    return StepInfo(epoch=0, epoch_step=done, global_step=done, steps_per_epoch=8)


class raises:
    """What is done in it raises this."""

    def __init__(self, kind, words=""):
        self.kind, self.words = kind, words

    def __enter__(self):
        return self

    def __exit__(self, kind, error, _):
        assert kind is not None and issubclass(kind, self.kind) and self.words in str(error), f"{error!r}"
        return True
