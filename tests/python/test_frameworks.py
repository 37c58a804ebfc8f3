"""The callbacks, on stand-ins for their frameworks."""

import os
import sys
import tempfile
import types
import unittest
from pathlib import Path
from unittest import mock

import supervise


class Frameworks(unittest.TestCase):
    def setUp(self):
        held = tempfile.TemporaryDirectory()
        self.addCleanup(held.cleanup)
        self.root = Path(held.name).resolve()
        base = type("Base", (), {})
        pl = types.ModuleType("lightning.pytorch")
        pl.Callback = base
        lightning = types.ModuleType("lightning")
        lightning.pytorch = pl
        transformers = types.ModuleType("transformers")
        transformers.TrainerCallback = base
        modules = {"lightning": lightning, "lightning.pytorch": pl, "transformers": transformers}
        for name in ("supervise.lightning", "supervise.huggingface"):
            sys.modules.pop(name, None)
        faked = mock.patch.dict(sys.modules, modules)
        faked.start()
        self.addCleanup(faked.stop)
        env = mock.patch.dict(os.environ, {"SUPERVISE_ATTEMPT": "a/1/1", "SUPERVISE_SAVES": str(self.root)})
        env.start()
        self.addCleanup(env.stop)
        self.lines = []
        written = mock.patch.object(supervise._report, "_write", self.lines.append)
        written.start()
        self.addCleanup(written.stop)
        reporter = mock.patch.object(supervise._report, "_reporter", supervise._report._Reporter())
        reporter.start()
        self.addCleanup(reporter.stop)
        # Nothing is said at the end of these tests.
        exits = mock.patch.object(supervise._report.atexit, "register")
        exits.start()
        self.addCleanup(exits.stop)

    def marks(self):
        # The last number is the time of the newest file.
        return sorted(p.name.rpartition("-")[0] for p in self.root.iterdir() if p.name.startswith("saved."))

    def test_the_package_imports_no_framework(self):
        self.assertNotIn("supervise.huggingface", sys.modules)
        self.assertNotIn("supervise.lightning", sys.modules)
        with self.assertRaises(AttributeError):
            supervise.keras  # noqa: B018

    def test_hugging_face(self):
        callback = supervise.huggingface.TrainerCallback()
        state = types.SimpleNamespace(global_step=4, max_steps=8, is_world_process_zero=True)
        args = types.SimpleNamespace(output_dir=str(self.root))
        callback.on_log(args, state, None, logs={"loss": 0.5, "note": "x"})
        callback.on_step_end(args, state, types.SimpleNamespace(should_save=False))
        (self.root / "checkpoint-4").mkdir()
        (self.root / "checkpoint-4/model.safetensors").write_bytes(b"12")
        callback.on_save(args, state, None)
        self.assertEqual(self.lines, ["supervise: step=4/8 loss=0.5"])
        self.assertEqual(self.marks(), ["saved.checkpoint-4.4-1-2"])
        state.is_world_process_zero = False
        state.global_step = 9
        callback.on_step_end(args, state, types.SimpleNamespace(should_save=False))
        supervise._report._reporter.flush()
        self.assertEqual(len(self.lines), 1)

    def test_lightning(self):
        def save(filepath, weights_only=False, **others):
            Path(filepath).write_bytes(b"123")

        trainer = types.SimpleNamespace(
            save_checkpoint=save, global_step=6, global_rank=0, max_steps=-1, estimated_stepping_batches=float("inf"), logged_metrics={"loss": 1.5}
        )
        callback = supervise.lightning.Callback()
        callback.setup(trainer, None, "fit")
        callback.setup(trainer, None, "validate")
        callback.on_train_batch_end(trainer, None, None, None, 1)
        trainer.save_checkpoint(str(self.root / "step=6.ckpt"))
        trainer.save_checkpoint(str(self.root / "weights.ckpt"), True)
        trainer.save_checkpoint(str(self.root / "weights.ckpt"), weights_only=True)
        self.assertEqual(self.lines, ["supervise: step=6 loss=1.5"])
        self.assertEqual(self.marks(), ["saved.step=6.ckpt.6-1-3"])
        trainer.estimated_stepping_batches, trainer.global_step = 50, 7
        callback.on_train_batch_end(trainer)
        supervise._report._reporter.flush()
        self.assertEqual(self.lines[-1], "supervise: step=7/50 loss=1.5")


if __name__ == "__main__":
    unittest.main()
