//! Resuming as verl's PPO trainer does, with its faith in the tracker.
//!
//! `auto` reads one small file: where it is missing or names nothing, training starts
//! from scratch without a complaint; where it is empty, every relaunch raises. No
//! checksum is looked at. Only the parts in `load_contents` are loaded, yet the step
//! counter always jumps to the checkpoint's step.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::torch_file::{self, TorchFileError, Value};

use super::checkpoint::{ACTOR, CRITIC, TRACKER, shard_path};
use super::console::say;
use super::data::Order;
use super::failure::Failure;
use super::gang::Gang;
use super::settings::Settings;
use super::shards::Shards;

/// Finds the checkpoint to resume from, as the settings say; the work of rank 0.
pub fn find(settings: &Settings, cwd: &Path) -> Result<Option<PathBuf>, Failure> {
    let found = match settings.resume_mode.as_str() {
        "disable" => None,
        "auto" => latest(&settings.root)?,
        "resume_path" => {
            let path = settings.resume_from_path.as_deref().unwrap_or_default();
            if !path.contains("global_step_") {
                return Err(Failure::Exception {
                    class: "AssertionError",
                    message: "resume ckpt must specify the global_steps".to_owned(),
                    function: "_load_checkpoint",
                });
            }
            Some(cwd.join(path))
        }
        other => {
            let text = format!("cannot access local variable 'global_step_folder' ({other})");
            return Err(Failure::Exception {
                class: "UnboundLocalError",
                message: text,
                function: "_load_checkpoint",
            });
        }
    };
    if found.is_none() {
        say("Training from scratch")?;
    }
    Ok(found)
}

/// The step in a checkpoint's path: everything behind the last `global_step_`.
pub fn step_of(path: &Path) -> Result<u64, Failure> {
    let text = path.to_string_lossy();
    let number = text.rsplit("global_step_").next().unwrap_or_default();
    parse_int("_load_checkpoint", number)
}

/// Loads this rank's state, and at rank 0 the order of samples.
pub fn load(
    settings: &Settings,
    gang: &Gang,
    path: &Path,
    shards: &mut Shards,
    order: Option<&mut Order>,
) -> Result<u64, Failure> {
    let step = step_of(path)?;
    if gang.rank == 0 {
        say(&format!(
            "Resuming from {}, setting global step to {step}",
            path.display()
        ))?;
    }
    for role in [ACTOR, CRITIC].into_iter().filter(|r| *r == ACTOR || settings.critic) {
        load_role(settings, gang, &path.join(role), shards)?;
    }
    if let Some(order) = order {
        load_order(settings, path, step, order)?;
    }
    Ok(step)
}

fn load_role(settings: &Settings, gang: &Gang, role: &Path, shards: &mut Shards) -> Result<(), Failure> {
    type Restore = fn(&mut Shards, &Value) -> Option<()>;
    let parts: [(&str, &str, Restore); 3] = [
        ("model", "model", Shards::restore_model),
        ("optimizer", "optim", Shards::restore_optimizer),
        ("extra", "extra_state", Shards::restore_extra),
    ];
    for (content, part, restore) in parts {
        if settings.load_contents.has(content) {
            let file = shard_path(role, part, gang.world, gang.rank);
            let value = torch_file::read(&file).map_err(|e| raise(&file, &e))?;
            restore(shards, &value).ok_or_else(|| {
                let text = format!("Error(s) in loading state_dict: {part} does not fit");
                Failure::runtime("load_state_dict", text)
            })?;
            say(&format!("[Rank {}] Loaded {part} from {}", gang.rank, file.display()))?;
        }
    }
    Ok(())
}

fn load_order(settings: &Settings, path: &Path, step: u64, order: &mut Order) -> Result<(), Failure> {
    let file = path.join("data.pt");
    match torch_file::read(&file) {
        Ok(value) => {
            *order = Order::from_value(&value)
                .ok_or_else(|| Failure::runtime("load_state_dict", "dataloader state does not fit"))?;
        }
        Err(TorchFileError::Io(e)) if e.kind() == io::ErrorKind::NotFound => {
            say(&format!(
                "Warning: No dataloader state found at {}, will start from scratch",
                file.display()
            ))?;
            order.skip_to_epoch((step / settings.steps_per_epoch()) as i64);
        }
        Err(e) => return Err(raise(&file, &e)),
    }
    Ok(())
}

/// The checkpoint that the tracker names. The `%s` is part of verl's output.
fn latest(root: &Path) -> Result<Option<PathBuf>, Failure> {
    let tracker = root.join(TRACKER);
    let text = match fs::read_to_string(&tracker) {
        Ok(text) => text,
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            say(&format!(
                "Checkpoint tracker file does not exist: {}",
                tracker.display()
            ))?;
            return Ok(None);
        }
        Err(e) => return Err(Failure::file("find_latest_ckpt_path", &tracker, &e)),
    };
    let step = parse_int("find_latest_ckpt_path", &text)?;
    let path = root.join(format!("global_step_{step}"));
    if !path.exists() {
        say(&format!("Checkpoint does not exist: %s {}", path.display()))?;
        return Ok(None);
    }
    say(&format!("Found checkpoint: %s {}", path.display()))?;
    Ok(Some(path))
}

fn parse_int(function: &'static str, text: &str) -> Result<u64, Failure> {
    text.trim().parse().map_err(|_| {
        let quoted = text.replace('\n', "\\n");
        Failure::value(function, format!("invalid literal for int() with base 10: '{quoted}'"))
    })
}

fn raise(path: &Path, error: &TorchFileError) -> Failure {
    match error {
        TorchFileError::Io(e) => Failure::file("load_checkpoint", path, e),
        TorchFileError::Pickle(_) => Failure::Exception {
            class: "_pickle.UnpicklingError",
            message: error.to_string(),
            function: "load_checkpoint",
        },
        _ => Failure::runtime("load_checkpoint", error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tracker_is_trusted() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("global_step_6")).unwrap();
        assert_eq!(latest(root.path()).unwrap(), None);
        let write = |text: &str| fs::write(root.path().join(TRACKER), text).unwrap();
        write("8");
        assert_eq!(latest(root.path()).unwrap(), None);
        write("6\n");
        assert_eq!(latest(root.path()).unwrap(), Some(root.path().join("global_step_6")));
        write("");
        let failure = latest(root.path()).unwrap_err();
        assert_eq!(failure.exit_code(), 1);
        assert!(failure.report().contains("ValueError: invalid literal for int()"));
    }

    #[test]
    fn a_role_behind_the_step_is_an_error() {
        assert_eq!(step_of(Path::new("/a/global_step_1/global_step_20")).unwrap(), 20);
        assert!(step_of(Path::new("/a/global_step_20/actor")).is_err());
    }
}
