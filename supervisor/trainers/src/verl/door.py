

class Every(int):
    """A save interval: `step % every == 0` also holds at a step that a request asks to save. In a pickle it is a plain number."""

    def __new__(cls, every, door):
        new = int.__new__(cls, every)
        new.door, new.step, new.wish = door, None, False
        return new

    def __rmod__(self, step):
        if step != self.step:
            self.step, self.wish = step, self.door.asked(int(step))
        every = int(self)
        return 0 if self.wish or every > 0 and step % every == 0 else 1

    def __gt__(self, other):
        # Whether the trainer saves regularly is asked together with the remainder.
        return True

    def __reduce__(self):
        return int, (int(self),)


def sft_door(door, module):
    """The trainer itself runs as `__main__`: it is the one that loads through this handler."""
    load = module.CheckpointHandler.load_checkpoint

    def ours(self, *args, **named):
        out = load(self, *args, **named)
        trainer = sys._getframe(1).f_locals.get("self")
        if getattr(trainer, "ckpt_handler", None) is self and type(getattr(trainer, "save_freq", None)) is int:
            trainer.save_freq = Every(trainer.save_freq, door)
        else:
            print("supervise: no saves on request: this trainer has no save_freq", file=sys.stderr, flush=True)
        return out

    module.CheckpointHandler.load_checkpoint = ours


def expiry_door(door, module):
    """Trainers before v1 ask this once a step, in their driver alone."""
    expires = module.should_save_ckpt_esi

    def ours(*args, **named):
        expired = expires(*args, **named)
        trainer = sys._getframe(1).f_locals.get("self")
        return door.asked(getattr(trainer, "global_steps", None)) or expired

    module.should_save_ckpt_esi = ours


def v1_door(door, module):
    """The end of a step comes right after the place where this trainer saves."""
    fit = module.PPOTrainer.fit

    def ours(self, *args, **named):
        try:
            watch(self)
        except Exception as e:
            print(f"supervise: no saves on request: {e!r}", file=sys.stderr, flush=True)
        return fit(self, *args, **named)

    def watch(trainer):
        save, end, saved = trainer._save_checkpoint, trainer.on_step_end, []

        def saves():
            saved[:] = [trainer.global_steps]
            return save()

        def ends():
            if door.asked(trainer.global_steps) and saved != [trainer.global_steps]:
                began = time.perf_counter()
                trainer._save_checkpoint()
                trainer.timing_raw["save_checkpoint"] = time.perf_counter() - began
            return end()

        trainer._save_checkpoint, trainer.on_step_end = saves, ends

    module.PPOTrainer.fit = ours


open_door(
    {
        "verl.utils.checkpoint.checkpoint_handler": sft_door,
        "verl.utils.checkpoint.checkpoint_manager": expiry_door,
        "verl.trainer.ppo.v1.trainer_base": v1_door,
    },
    in_ray=IN_RAY,
)
