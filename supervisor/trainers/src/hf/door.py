

def transformers_door(door, module):
    class SaveOnRequest(module.TrainerCallback):
        asks = False

        def on_train_begin(self, args, state, control, **more):
            try:
                group = process_group()
                self.asks = args.world_size == (1 if group is None else group[2])
                self.follow_flag(args, state)
            except Exception as e:
                print(f"supervise: no saves on request: {e!r}", file=sys.stderr, flush=True)

        def follow_flag(self, args, state):
            """At a resume, Trainer takes the interval in trainer_state.json and not its own argument."""
            every = args.save_steps
            if self.strategy(args) == "steps" and 0 < every < 1:
                every = -int(-state.max_steps * every // 1)
            if self.strategy(args) == "steps" and every >= 1 and state.save_steps != every:
                state.save_steps = int(every)

        def strategy(self, args):
            return str(getattr(args.save_strategy, "value", args.save_strategy))

        def on_step_end(self, args, state, control, **more):
            if not self.asks or not door.asked(state.global_step):
                return
            last = state.global_step >= state.max_steps or control.should_training_stop or control.should_epoch_stop
            if self.strategy(args) == "epoch" and (last or state.epoch == int(state.epoch)):
                # Trainer saves this step itself, once the epoch has ended.
                return
            control.should_save = True

    if not isinstance(module.DEFAULT_CALLBACKS, list):
        raise TypeError("DEFAULT_CALLBACKS")
    module.DEFAULT_CALLBACKS.append(SaveOnRequest)


open_door({"transformers.trainer": transformers_door})
