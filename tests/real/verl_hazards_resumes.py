"""Cases of verl_hazards.py: where verl resumes, what its switches mean, what Megatron's writers write."""

import contextlib
import io

from verl_hazards_stage import (
    Model,
    files,
    load,
    megatron,
    point,
    raises,
    said,
    save,
    sft,
    steps,
    through,
    trainer,
)


def paths_are_parsed_differently(work):
    """[resume.path_parsing, resume.path, pattern.pointer] PPO takes the last number of a path, SFT the first."""
    from verl.utils.checkpoint.checkpoint_handler import extract_step

    path = work / "global_step_50/run/global_step_2"
    for which in ("v0", "v1"):
        settings = {"resume_mode": "resume_path"}

        def of(text, which=which, settings=settings):
            return load(trainer(which, work, trainer={**settings, "resume_from_path": text}))[0]

        # That it exists is not asked here.
        assert of(str(path)) == 2
        for text in (f"{path}/", f"{path}/actor"):
            with raises(ValueError, "invalid literal for int()"):
                of(text)
        with raises(AssertionError):
            of(None)
        with raises(AssertionError):
            of(str(work))
    assert extract_step(str(path)) == 50
    with raises(AssertionError):
        sft(work, resume_mode="resume_path", resume_from_path=str(path)).load_checkpoint()


def modes_of_a_resume(work):
    """[resume.auto, resume.disable, resume.other_word] Each mode in each trainer."""
    steps(work, 1, 2)
    point(work, "2")
    first = str(work / "global_step_1")
    for which in ("v0", "v1"):
        assert load(trainer(which, work, trainer={"resume_from_path": first}))[0] == 2
        assert load(trainer(which, work, trainer={"resume_mode": "disable"}))[0] == 0
    with raises(UnboundLocalError), contextlib.redirect_stderr(io.StringIO()):
        load(trainer("v1", work, trainer={"resume_mode": "latest"}))
    assert load(trainer("v0", work, trainer={"resume_mode": "latest"}))[0] == 2
    assert sft(work, resume_from_path=first).load_checkpoint() == 1
    assert sft(work).load_checkpoint() == 2
    assert sft(work, resume_mode="disable").load_checkpoint() == 0
    with raises(ValueError, "Invalid resume_mode"):
        sft(work, resume_mode="latest").load_checkpoint()


def another_number_of_ranks(work):
    """[resume.world_size, failure.other_node_count, pattern.shard_missing] FSDP looks for its own number of ranks in the names."""
    one = Model()
    one.save(work)
    one.manager.world_size = 4
    with raises(FileNotFoundError, "model_world_size_4_rank_0.pt"):
        one.load(work)


def damaged_files_fail_every_launch(work):
    """[resume.incomplete, crash.power, crash.disk_full] A missing shard, a cut one, one that an exception closed in the middle."""
    import torch

    one = Model()
    one.save(work)
    shard = work / "optim_world_size_1_rank_0.pt"
    whole = shard.read_bytes()
    shard.write_bytes(whole[: len(whole) // 2])
    with raises(Exception):
        one.load(work)
    shard.unlink()
    with raises(FileNotFoundError):
        one.load(work)

    # A valid archive in which tensors are missing: torch closes it when a write fails.
    class Full(io.FileIO):
        def write(self, data):
            if self.tell() > len(whole) // 2 and b"PK\x01\x02" not in bytes(data)[:64] and len(data) > 512:
                raise OSError(28, "No space left on device")
            return super().write(data)

    with contextlib.suppress(Exception), Full(shard, "w") as full:
        torch.save({"a": torch.zeros(4096), "b": torch.ones(1 << 16)}, full)
    with raises(Exception):
        torch.load(shard, weights_only=False)


def the_data_starts_again(work):
    """[resume.data_order] Without its state the data begins anew, with a warning and nothing else."""
    steps(work, 3)
    for which in ("v0", "v1"):
        settings = {"resume_mode": "resume_path", "resume_from_path": str(work / "global_step_3")}
        one = trainer(which, work, trainer=settings)
        step, words = load(one)
        assert step == 3 and "No dataloader state found at" in words, words
        assert len(list(one.train_dataloader)) == 4


def an_epochs_end_trains_nothing(work):
    """[resume.epoch_boundary, failure.sft_epoch_boundary, failure.ppo_epoch_boundary] What is left of the next epoch after a resume at the end of one."""
    at_end = sft(work)
    # It saves inside the loop, before the loop finds that nothing is left.
    through(at_end.train_dataloader)
    at_end.save_checkpoint(4)
    resumed = sft(work)
    assert resumed.load_checkpoint() == 4
    assert list(resumed.train_dataloader) == []
    # v0 leaves the state aside there, and trains.
    one = trainer("v0", work / "ppo", step=4)
    through(one.train_dataloader)
    save(one)
    again = trainer("v0", work / "ppo")
    assert load(again)[0] == 4
    assert len(list(again.train_dataloader)) == 4


def remote_directories(work):
    """[switch.default_hdfs_dir, pattern.hdfs] v0 raises at any resume but `disable`, v1 passes over it."""
    steps(work, 2)
    point(work, "2")
    remote = {"default_hdfs_dir": "hdfs://host/x"}
    with raises(NotImplementedError, "load from hdfs is not implemented yet"):
        load(trainer("v0", work, trainer=remote))
    assert load(trainer("v0", work, trainer={**remote, "resume_mode": "disable"}))[0] == 0
    assert load(trainer("v1", work, trainer=remote))[0] == 2


def one_to_keep_by_another_name(work):
    """[switch.remove_previous_ckpt] The deprecated switch means one to keep, whatever else is set."""
    for which in ("v0", "v1"):
        settings = {"max_actor_ckpt_to_keep": 5, "remove_previous_ckpt_in_save": True}
        one = trainer(which, work / which, step=1, trainer=settings)
        with said():
            save(one)
        assert [keep for _, keep in one.actor_rollout_wg.saved] == [1]


def when_a_critic_is_trained(work):
    """[switch.critic] `critic.enable`, else whether advantages are estimated by GAE."""
    from omegaconf import OmegaConf

    from verl.trainer.ppo.utils import need_critic

    cases = (("gae", None, True), ("grpo", None, False), ("grpo", True, True), ("gae", False, False))
    for estimator, enable, wanted in cases:
        both = {"algorithm": {"adv_estimator": estimator}, "critic": {"enable": enable}}
        with contextlib.redirect_stdout(io.StringIO()):
            assert need_critic(OmegaConf.create(both)) is wanted, (estimator, enable)


def what_is_saved(work):
    """[switch.save_contents, layout.ppo] Only what is listed becomes a file; configuration and tokenizer always do."""
    one = Model(contents=["model"])
    one.save(work)
    shards = [name for name in files(work) if name.endswith(".pt")]
    assert shards == ["model_world_size_1_rank_0.pt"] and (work / "huggingface/config.json").exists()


def only_adapters_are_saved(work):
    """[switch.save_lora_only] The base model is in no file of such a step, and a load needs it from elsewhere."""
    import torch

    one = Model()
    one.manager.checkpoint_config = {"save_lora_only": True}
    one.model.peft_config = {}
    plain = one.model.state_dict
    one.model.state_dict = lambda: {f"lora_{n}" if n < 2 else k: v for n, (k, v) in enumerate(plain().items())}
    one.save(work)
    state = torch.load(work / "model_world_size_1_rank_0.pt", weights_only=False)
    assert sorted(state) == ["lora_0", "lora_1"] and len(plain()) > 2


def overrides_are_strict(work):
    """[switch.overrides, pattern.configuration, exit.override] An unknown key, a comma, a quoted list."""
    from hydra import compose, initialize_config_module
    from hydra.errors import HydraException

    def of(*overrides):
        return compose("sft_trainer_engine", overrides=list(overrides))

    with initialize_config_module("verl.trainer.config", version_base=None):
        with raises(HydraException, "Could not override 'trainer.sav_freq'"):
            of("trainer.sav_freq=1")
        with raises(HydraException):
            of("checkpoint.save_contents=model,optimizer")
        with raises(HydraException):
            of("checkpoint.async_save=False")
        assert of("++checkpoint.async_save=False").checkpoint.async_save is False
        text = of("checkpoint.load_contents=\"['model']\"").checkpoint.load_contents
        assert text == "['model']" and "model" in text
        assert of("trainer.save_freq=1", "trainer.save_freq=2").trainer.save_freq == 2


def writers_and_contents(work):
    """[combination.bridge_model, combination.bridge_hf, combination.bridge_both, combination.shards_model, combination.shards_hf, combination.neither, combination.both_model, combination.both_both, combination.both_hf, combination.no_weights] What each writes, by verl's own manifest."""
    hub, shards = "model/huggingface", "model/dist_ckpt"
    for bridge, dist, weights, wanted in (
        (True, False, ["model"], {"model": hub}),
        (True, False, ["hf_model"], {"model": hub, "hf_model": hub}),
        (True, False, ["model", "hf_model"], {"model": hub, "hf_model": hub}),
        (False, True, ["model"], {"model": shards}),
        (False, True, ["hf_model"], None),
        (False, False, ["model"], None),
        (True, True, ["model"], {"model": shards}),
        (True, True, ["model", "hf_model"], {"model": shards, "hf_model": hub}),
        (True, True, ["hf_model"], {"model": hub, "hf_model": hub}),
        (True, False, [], {}),
    ):
        contents = [*weights, "optimizer", "extra"]
        if wanted is None:
            with raises(ValueError):
                megatron(contents, bridge, dist)
            continue
        manifest = megatron(contents, bridge, dist)._build_checkpoint_manifest(str(work), 1, True)
        found = {name: entry["path"] for name, entry in manifest["contents"].items() if "model" in name}
        assert found == wanted, (bridge, dist, weights, found)
        assert manifest["contents"]["optimizer"]["path"] == "optimizer/dist_ckpt"


def adapters_of_megatron(work):
    """[combination.adapters] Shards of the adapters, an export of them, and a resume from the export alone refused."""
    manager = megatron(peft_cls=object())
    contents = manager._build_checkpoint_manifest(str(work), 1, True)["contents"]
    assert contents["model"]["peft_adapter_path"] == "model/huggingface/adapter"
    assert contents["peft_adapters"]["path"] == "model/dist_ckpt"
    (work / "model/huggingface/adapter").mkdir(exist_ok=True)
    (work / "model/huggingface/adapter/adapter_config.json").write_text("{}")
    with raises(RuntimeError, "Found exported HF PEFT adapter"):
        manager._raise_for_unsupported_peft_checkpoint_layout(str(work), str(work / "model/dist_ckpt"))
