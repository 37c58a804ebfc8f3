

def areal_door(door, module):
    begin = module.RecoverHandler.__init__

    def ours(self, *args, **named):
        begin(self, *args, **named)
        check = self.freq_ctl.check

        def either(*counts, **more):
            due = check(*counts, **more)
            info = sys._getframe(1).f_locals.get("step_info")
            # Counted from 0; `supervise` counts from 1.
            step = None if info is None else info.global_step + 1
            return door.asked(step) or due

        self.freq_ctl.check = either

    module.RecoverHandler.__init__ = ours


open_door({"areal.utils.recover": areal_door})
