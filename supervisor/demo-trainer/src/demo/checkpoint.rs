//! Saving a checkpoint as verl's FSDP manager does: plain writes to final names in verl's
//! order, `fsdp_config.json` before the other ranks are done, the tracker truncated and
//! then written, old role directories deleted and their husks left. A critic is saved after
//! the actor, by a manager of its own that keeps its own number.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use serde_json::json;

use crate::torch_file::{self, Value};

use super::console::say;
use super::data::Order;
use super::failure::Failure;
use super::gang::Gang;
use super::network::Network;
use super::settings::{Contents, Settings};
use super::shards::Shards;

/// The name of the tracker file.
pub const TRACKER: &str = "latest_checkpointed_iteration.txt";
/// The directory of the policy's weights.
pub const ACTOR: &str = "actor";
/// The directory of a critic's weights.
pub const CRITIC: &str = "critic";

/// Place of one rank's part of the state in a role directory.
pub fn shard_path(role: &Path, part: &str, world: usize, rank: usize) -> PathBuf {
    role.join(format!("{part}_world_size_{world}_rank_{rank}.pt"))
}

/// Saves checkpoints, and remembers in memory which ones this process saved.
#[derive(Debug)]
pub struct Saver {
    root: PathBuf,
    roles: Vec<Role>,
    contents: Contents,
    pause: Duration,
    marked: bool,
}

/// The directories of one role, each of which one manager saves and deletes.
#[derive(Debug)]
struct Role {
    name: &'static str,
    keep: Option<usize>,
    saved: Vec<PathBuf>,
}

/// Contents saved.
#[derive(Debug)]
pub struct State<'a> {
    /// The shape of the network.
    pub network: &'a Network,
    /// This rank's weights and optimizer.
    pub shards: &'a Shards,
    /// The order of samples, at rank 0.
    pub order: Option<&'a Order>,
}

impl Saver {
    /// A saver that has saved nothing yet.
    pub fn new(settings: &Settings) -> Self {
        let role = |name, keep| Role {
            name,
            keep,
            saved: Vec::new(),
        };
        let actor = role(ACTOR, settings.keep);
        let critic = settings.critic.then(|| role(CRITIC, settings.keep_critic));
        Saver {
            root: settings.root.clone(),
            roles: [actor].into_iter().chain(critic).collect(),
            contents: settings.save_contents.clone(),
            pause: Duration::from_millis(settings.save_ms),
            marked: settings.fsdp_config,
        }
    }

    /// The directory of a step.
    pub fn step_path(&self, step: u64) -> PathBuf {
        self.root.join(format!("global_step_{step}"))
    }

    /// The tracker's path.
    pub fn tracker(&self) -> PathBuf {
        self.root.join(TRACKER)
    }

    /// Saves a step, all ranks together.
    pub fn save(&mut self, gang: &mut Gang, step: u64, state: &State<'_>) -> Result<(), Failure> {
        for role in 0..self.roles.len() {
            self.save_role(role, gang, step, state)?;
        }
        if let Some(order) = state.order {
            let path = self.step_path(step).join("data.pt");
            torch_file::write(&path, &order.to_value()).map_err(raise(&path))?;
            self.write_tracker(step)?;
        }
        Ok(())
    }

    fn save_role(&mut self, role: usize, gang: &mut Gang, step: u64, state: &State<'_>) -> Result<(), Failure> {
        let folder = self.begin(role, gang, step)?;
        let (rank, world) = (gang.rank, gang.world);
        type Content = fn(&Shards) -> Value;
        let parts: [(&str, &str, &str, Content); 3] = [
            ("model", "model", "model", Shards::model_value),
            ("optimizer", "optim", "optim", Shards::optimizer_value),
            ("extra", "extra_state", "extra_state", Shards::extra_value),
        ];
        for (content, part, word, value) in parts {
            if self.contents.has(content) {
                let path = shard_path(&folder, part, world, rank);
                torch_file::write(&path, &value(state.shards)).map_err(raise(&path))?;
                say(&format!("[Rank {rank}] Saved {word} to {}", path.display()))?;
            }
            if content == "model" {
                thread::sleep(self.pause);
            }
        }
        if rank == 0 {
            write_configs(&folder, state.network, world, self.marked)?;
        }
        gang.barrier()?;
        if rank == 0 {
            self.roles[role].register(folder)?;
        }
        gang.barrier()
    }

    /// Saves a step until all ranks are killed in the midst of it: the victim's model shard
    /// is cut in half, rank 0 is ahead of it, the tracker is between truncate and write.
    pub fn save_torn(&mut self, gang: &mut Gang, step: u64, state: &State<'_>, victim: usize) -> Result<(), Failure> {
        let role = self.begin(0, gang, step)?;
        let path = shard_path(&role, "model", gang.world, gang.rank);
        let bytes = torch_file::encode(&state.shards.model_value());
        let length = if gang.rank == victim {
            bytes.len() / 2
        } else {
            bytes.len()
        };
        fs::write(&path, &bytes[..length]).map_err(raise(&path))?;
        if gang.rank == 0 {
            write_configs(&role, state.network, gang.world, self.marked)?;
            fs::File::create(self.tracker()).map_err(raise(&self.tracker()))?;
        }
        gang.barrier()
    }

    fn begin(&mut self, role: usize, gang: &mut Gang, step: u64) -> Result<PathBuf, Failure> {
        let folder = self.step_path(step).join(self.roles[role].name);
        if gang.rank == 0 {
            say(&format!("Saving checkpoint to {}", self.step_path(step).display()))?;
            self.roles[role].make_room()?;
        }
        fs::create_dir_all(&folder).map_err(raise(&folder))?;
        gang.barrier()?;
        Ok(folder)
    }

    fn write_tracker(&self, step: u64) -> Result<(), Failure> {
        let path = self.tracker();
        let file = fs::File::create(&path);
        file.and_then(|mut f| f.write_all(step.to_string().as_bytes()))
            .map_err(raise(&path))
    }
}

impl Role {
    /// Before a save: with a keep of two or more, the oldest go first.
    fn make_room(&mut self) -> Result<(), Failure> {
        match self.keep {
            Some(keep) if keep >= 2 && self.saved.len() >= keep => self.forget(keep - 1),
            _ => Ok(()),
        }
    }

    fn register(&mut self, folder: PathBuf) -> Result<(), Failure> {
        self.saved.push(folder);
        self.keep.map_or(Ok(()), |keep| self.forget(keep))
    }

    /// Deletes the oldest directories down to `left`, errors ignored.
    fn forget(&mut self, left: usize) -> Result<(), Failure> {
        let surplus = self.saved.len().saturating_sub(left);
        for path in self.saved.drain(..surplus) {
            say(&format!(
                "Checkpoint manager remove previous save local path: {}",
                path.display()
            ))?;
            let _ = fs::remove_dir_all(&path);
        }
        Ok(())
    }
}

fn write_configs(role: &Path, network: &Network, world: usize, marked: bool) -> Result<(), Failure> {
    let huggingface = role.join("huggingface");
    let model = json!({
        "architectures": ["DemoPerceptron"],
        "model_type": "demo_perceptron",
        "layer_widths": network.widths(),
        "torch_dtype": "float32",
    });
    let sharding = json!({"FSDP_version": 1, "world_size": world});
    fs::create_dir_all(&huggingface).map_err(raise(&huggingface))?;
    let marker = marked.then(|| (role.join("fsdp_config.json"), sharding));
    for (path, value) in [(huggingface.join("config.json"), model)].into_iter().chain(marker) {
        fs::write(&path, indented(&value)).map_err(raise(&path))?;
    }
    Ok(())
}

/// JSON indented by four, as Python's `json.dump(…, indent=4)` writes it.
fn indented(value: &serde_json::Value) -> Vec<u8> {
    use serde::Serialize as _;
    let mut bytes = Vec::new();
    let formatter = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, formatter);
    // Writing plain values to memory cannot fail.
    let _ = value.serialize(&mut serializer);
    bytes
}

fn raise(path: &Path) -> impl Fn(std::io::Error) -> Failure {
    let path = path.to_owned();
    move |e| Failure::file("save_checkpoint", &path, &e)
}
