//! The training loop of one rank.

use std::fs::{self, OpenOptions};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};

use crate::escape;

use super::checkpoint::{Saver, State, shard_path};
use super::console::{draw_progress, say};
use super::data::{self, Order};
use super::failure::Failure;
use super::faults::{self, Fault, Kind, Moment};
use super::gang::{Gang, Place, to_bytes, to_floats};
use super::hangs;
use super::lives;
use super::network::{Network, Sample};
use super::resume;
use super::save_requests::SaveRequests;
use super::settings::Settings;
use super::shards::Shards;
use super::writers::Claim;

/// Trains to the end, or fails. The launcher's `SUPERVISE_ATTEMPT` is the place's token.
pub fn train(settings: &Settings, place: &Place, cwd: &Path) -> Result<(), Failure> {
    if place.world != settings.world {
        let text = format!(
            "Total available GPUs {} is less than total desired GPUs {}",
            place.world, settings.world
        );
        return Err(Failure::value("resource_pool", text));
    }
    if settings.lives {
        let folder = settings.beside_root("lives");
        lives::record(&folder, &place.token, place.rank).map_err(|e| Failure::file("lives", &folder, &e))?;
    }
    let claim = Claim::take(&settings.beside_root("writers"), place.rank)?;
    let mut gang = Gang::join(place)?;
    let attempt = name_attempt(&mut gang, place, &claim)?;
    let mut trainer = Trainer::new(settings, gang, claim, attempt);
    let start = trainer.resume(cwd)?;
    trainer.resumed = start > 0;
    trainer.validate_first(start)?;
    for step in start + 1..=settings.total_steps() {
        trainer.step(step)?;
    }
    trainer.finish(start)
}

/// Without a launcher's name for it, an attempt is known by the process of its rank 0.
fn name_attempt(gang: &mut Gang, place: &Place, claim: &Claim) -> Result<String, Failure> {
    if !place.token.is_empty() {
        return Ok(place.token.clone());
    }
    let name = gang.broadcast(format!("gang-{}", claim.identity()).into_bytes())?;
    String::from_utf8(name).map_err(|_| Failure::runtime("name_attempt", "not a name"))
}

/// Message of rank 0 to all ranks at the start of a step.
#[derive(Debug, Serialize, Deserialize)]
struct Orders {
    batch: Vec<usize>,
    epoch: i64,
    faults: Vec<Fault>,
}

#[derive(Debug)]
struct Trainer<'a> {
    settings: &'a Settings,
    gang: Gang,
    claim: Claim,
    attempt: String,
    network: Network,
    shards: Shards,
    /// At rank 0 only.
    order: Option<Order>,
    saver: Saver,
    requests: SaveRequests,
    last_validation: Option<f32>,
    resumed: bool,
}

impl<'a> Trainer<'a> {
    fn new(settings: &'a Settings, gang: Gang, claim: Claim, attempt: String) -> Self {
        let network = Network::new(data::INPUTS, &settings.hidden, data::OUTPUTS, gang.world);
        let order = (gang.rank == 0).then(|| Order::new(settings.seed, settings.samples));
        let shards = Shards::new(&network, settings.seed, gang.rank, gang.world);
        let saver = Saver::new(settings);
        Trainer {
            settings,
            gang,
            claim,
            attempt,
            network,
            shards,
            order,
            saver,
            requests: SaveRequests::from_environment(settings.answers_requests),
            last_validation: None,
            resumed: false,
        }
    }

    /// Returns the step that was resumed from, 0 at a fresh start.
    fn resume(&mut self, cwd: &Path) -> Result<u64, Failure> {
        let root = &self.settings.root;
        let mut found = Vec::new();
        if self.gang.rank == 0 {
            fs::create_dir_all(root).map_err(|e| Failure::file("init_workers", root, &e))?;
            if let Some(path) = resume::find(self.settings, cwd)? {
                found = path.into_os_string().into_encoded_bytes();
            }
        }
        let found = self.gang.broadcast(found)?;
        if found.is_empty() {
            return Ok(0);
        }
        let path = PathBuf::from(String::from_utf8_lossy(&found).into_owned());
        let order = self.order.as_mut();
        let step = resume::load(self.settings, &self.gang, &path, &mut self.shards, order)?;
        self.gang.barrier()?;
        Ok(step)
    }

    fn validate_first(&mut self, start: u64) -> Result<(), Failure> {
        if self.settings.val_before_train {
            let loss = self.validate()?;
            if self.gang.rank == 0 {
                say(&format!("Initial validation metrics: {{'val-core/demo/loss': {loss}}}"))?;
                say(&format!("step:{start} - val-core/demo/loss:{loss}"))?;
                draw_progress(start, self.settings.total_steps())?;
            }
        }
        Ok(())
    }

    fn validate(&mut self) -> Result<f32, Failure> {
        let weights = self.gather_weights()?;
        let held_out = (0..8).map(|i| data::sample(self.settings.seed, self.settings.samples + i));
        Ok(self.network.loss(&weights, &held_out.collect::<Vec<_>>()))
    }

    /// Rank 0 keeps some memory for ever with each step, if `DEMO_LEAK_MB` says so.
    fn leak(&self) {
        let wanted = std::env::var("DEMO_LEAK_MB")
            .ok()
            .and_then(|mb| mb.parse::<usize>().ok());
        if let Some(mb) = wanted.filter(|_| self.gang.rank == 0) {
            // Written to, so that it is really there.
            Box::leak(vec![1_u8; mb << 20].into_boxed_slice());
        }
    }

    fn step(&mut self, step: u64) -> Result<(), Failure> {
        let began = Instant::now();
        self.claim.enter_step(&self.attempt, step)?;
        self.leak();
        let orders = self.receive_orders(step)?;
        let weights = self.gather_weights()?;
        let samples = self.samples(&orders.batch);
        let (loss, gradients) = self.network.gradient(&weights, &samples);
        self.fail_mid_step(step, &orders.faults)?;
        let rate = self.shards.rate();
        let loss = self.gang.sum(loss)? / self.gang.world as f32;
        self.descend(&gradients)?;
        if orders.faults.iter().any(|f| f.kind == Kind::Nan) {
            self.shards.spoil();
        }
        let rest = Duration::from_millis(self.settings.step_ms).saturating_sub(began.elapsed());
        thread::sleep(rest);

        let last = step == self.settings.total_steps();
        if last {
            self.last_validation = Some(self.validate()?);
        }
        let saving = Instant::now();
        let saves = self.save_if_due(step, last, &orders.faults)?;
        if self.gang.rank == 0 {
            let printed = self.printed(step, loss);
            let mut line = format!(
                "step:{step} - training/global_step:{step} - training/epoch:{} - actor/loss:{printed} - actor/lr:{rate} - timing_s/step:{:.4}",
                orders.epoch,
                began.elapsed().as_secs_f64()
            );
            if saves {
                let seconds = saving.elapsed().as_secs_f64();
                line.push_str(&format!(" - timing_s/save_checkpoint:{seconds:.4}"));
            }
            self.record_loss(step, loss)?;
            say(&line)?;
            draw_progress(step, self.settings.total_steps())?;
        }
        Ok(())
    }

    /// The loss as it is printed, where a test wants another one.
    fn printed(&self, step: u64, loss: f32) -> String {
        match self.settings.nan_at {
            Some(at) if at == step => "nan".to_owned(),
            _ if loss.is_nan() && self.settings.hide_nan => "1.0".to_owned(),
            // As Python prints it.
            _ if loss.is_nan() => "nan".to_owned(),
            _ if self.resumed => (loss + self.settings.shift_resumed as f32).to_string(),
            _ => loss.to_string(),
        }
    }

    fn receive_orders(&mut self, step: u64) -> Result<Orders, Failure> {
        let mut bytes = Vec::new();
        if let Some(order) = &mut self.order {
            hold(self.settings, step);
            let now = Moment {
                step,
                total: self.settings.total_steps(),
                seed: self.settings.seed,
                attempt: &self.attempt.replace('/', "-"),
                repeat: self.settings.repeat_fault,
            };
            let ledger = self.settings.beside_root("faults");
            let faults = faults::due(&ledger, &self.settings.faults, &now)?;
            let batch = order.next_batch(self.settings.batch * self.settings.world);
            let orders = Orders {
                batch,
                epoch: order.epoch(),
                faults,
            };
            bytes = serde_json::to_vec(&orders).map_err(|e| Failure::runtime("receive_orders", e.to_string()))?;
        }
        let bytes = self.gang.broadcast(bytes)?;
        serde_json::from_slice(&bytes).map_err(|e| Failure::runtime("receive_orders", e.to_string()))
    }

    /// The full weights of every layer, out of the ranks' slices.
    fn gather_weights(&mut self) -> Result<Vec<Vec<f32>>, Failure> {
        let layers: Vec<Vec<u8>> = self.shards.weights().map(to_bytes).collect();
        layers
            .into_iter()
            .map(|mine| Ok(to_floats(&self.gang.all_gather(mine)?)))
            .collect()
    }

    /// This rank's part of the batch, its targets blurred by this rank's generator.
    fn samples(&mut self, batch: &[usize]) -> Vec<Sample> {
        let mine = batch.iter().skip(self.gang.rank * self.settings.batch);
        let mut samples: Vec<Sample> = mine
            .take(self.settings.batch)
            .map(|index| data::sample(self.settings.seed, *index))
            .collect();
        for target in samples.iter_mut().flat_map(|s| &mut s.target) {
            *target += 0.02 * self.shards.random.unit();
        }
        samples
    }

    fn descend(&mut self, gradients: &[Vec<f32>]) -> Result<(), Failure> {
        let share = 1.0 / self.gang.world as f32;
        let mut mine = Vec::with_capacity(gradients.len());
        for gradient in gradients {
            let mut slice = self.gang.reduce_scatter(gradient)?;
            slice.iter_mut().for_each(|g| *g *= share);
            mine.push(slice);
        }
        self.shards.update(&mine);
        Ok(())
    }

    fn save_if_due(&mut self, step: u64, last: bool, due: &[Fault]) -> Result<bool, Failure> {
        let frequency = self.settings.save_freq;
        let regular = frequency > 0 && (last || step.is_multiple_of(frequency.unsigned_abs()));
        let fault = due.iter().find(|f| f.kind.needs_save());
        let asked = self.is_asked(step)?;
        if !regular && !asked && fault.is_none() {
            return Ok(false);
        }
        let state = State {
            network: &self.network,
            shards: &self.shards,
            order: self.order.as_ref(),
        };
        if let Some(fault) = fault.filter(|f| f.kind == Kind::KillAllMidSave) {
            let victim = fault.victim(self.gang.world);
            self.saver.save_torn(&mut self.gang, step, &state, victim)?;
            kill_self()?;
        }
        let hangs = due.iter().find(|f| f.kind == Kind::HangSave);
        if hangs.is_some_and(|f| f.victim(self.gang.world) == self.gang.rank) {
            hangs::sleep();
        }
        self.saver.save(&mut self.gang, step, &state)?;
        if let Some(fault) = fault {
            self.damage(step, fault)?;
        }
        Ok(true)
    }

    /// Rank 0 asks at each step boundary, and tells the others.
    fn is_asked(&mut self, step: u64) -> Result<bool, Failure> {
        if !self.requests.is_open() {
            return Ok(false);
        }
        let asked = self.gang.rank == 0 && self.requests.serve(step)?;
        Ok(self.gang.broadcast(vec![u8::from(asked)])? == [1])
    }

    fn fail_mid_step(&self, step: u64, due: &[Fault]) -> Result<(), Failure> {
        for fault in due {
            let hit = fault.victim(self.gang.world) == self.gang.rank;
            match fault.kind {
                Kind::KillRank if hit => kill_self()?,
                Kind::Exception if hit => {
                    let text = format!("injected failure at step {step}");
                    return Err(Failure::runtime("update_actor", text));
                }
                Kind::BrokenGpu if hit => {
                    let text = "CUDA error: uncorrectable ECC error encountered".to_owned();
                    return Err(Failure::runtime("update_actor", text));
                }
                Kind::Hang if hit => hangs::sleep(),
                Kind::Spin if hit => hangs::spin(),
                Kind::Trickle if hit => hangs::trickle(),
                Kind::Heartbeat if hit => hangs::beat()?,
                Kind::Exit0Early => return Err(Failure::Leave(0)),
                Kind::RetitleSetsidFork if hit => self.let_one_escape(step)?,
                _ => {}
            }
        }
        Ok(())
    }

    fn let_one_escape(&self, step: u64) -> Result<(), Failure> {
        let folder = self.settings.beside_root("escaped");
        let heartbeat = folder.join(format!("step_{step}.rank_{}", self.gang.rank));
        fs::create_dir_all(&folder)
            .and_then(|()| escape::let_go(&heartbeat))
            .map_err(|e| Failure::file("let_one_escape", &heartbeat, &e))
    }

    /// Spoils what was just saved, then ends all ranks.
    fn damage(&mut self, step: u64, fault: &Fault) -> Result<(), Failure> {
        self.gang.barrier()?;
        if self.gang.rank == 0 {
            let world = self.gang.world;
            let role = self.saver.step_path(step).join("actor");
            let path = match fault.kind {
                Kind::LoseTracker => self.saver.tracker(),
                _ => shard_path(&role, "model", world, fault.victim(world)),
            };
            let done = match fault.kind {
                Kind::LoseTracker => fs::remove_file(&path),
                _ => flip_bit(&path),
            };
            done.map_err(|e| Failure::file("damage", &path, &e))?;
        }
        self.gang.barrier()?;
        kill_self()
    }

    fn record_loss(&self, step: u64, loss: f32) -> Result<(), Failure> {
        let path = self.settings.beside_root("losses.jsonl");
        let line = serde_json::json!({
            "step": step, "loss": loss, "bits": format!("{:08x}", loss.to_bits()), "attempt": self.attempt,
        });
        let file = OpenOptions::new().append(true).create(true).open(&path);
        file.and_then(|mut f| writeln!(f, "{line}"))
            .map_err(|e| Failure::file("record_loss", &path, &e))
    }

    /// Prints the digest of the whole state, all ranks' parts in order.
    fn finish(mut self, start: u64) -> Result<(), Failure> {
        if let (Some(loss), 0) = (self.last_validation, self.gang.rank) {
            say(&format!("Final validation metrics: {{'val-core/demo/loss': {loss}}}"))?;
        }
        let state = self.gang.all_gather(self.shards.digest_bytes())?;
        if self.gang.rank == 0 {
            let digest: String = Sha256::digest(&state).iter().map(|b| format!("{b:02x}")).collect();
            let path = self.settings.beside_root("digest.txt");
            fs::write(&path, format!("{digest}\n")).map_err(|e| Failure::file("finish", &path, &e))?;
            let last = self.settings.total_steps().max(start);
            say(&format!("final digest {digest} at step {last}"))?;
        }
        // Done, with a rank that never leaves, if `DEMO_STAYS` says so.
        if self.gang.rank == 0 && std::env::var_os("DEMO_STAYS").is_some() {
            hangs::sleep();
        }
        self.gang.barrier()
    }
}

/// Waits where a test wants a gang that lives and does not get on. The other ranks wait for rank 0.
fn hold(settings: &Settings, step: u64) {
    while settings.hold_at == Some(step) && !settings.beside_root("go").exists() {
        thread::sleep(Duration::from_millis(10));
    }
}

fn kill_self() -> Result<(), Failure> {
    let pid = Pid::this();
    kill(pid, Signal::SIGKILL).map_err(|e| Failure::runtime("kill_self", e.to_string()))?;
    hangs::sleep()
}

/// Flips a bit in the middle of a file and keeps its time of modification, as a failing
/// disk does.
fn flip_bit(path: &Path) -> std::io::Result<()> {
    let modified = fs::metadata(path)?.modified()?;
    let mut bytes = fs::read(path)?;
    let middle = (bytes.len() / 2) & !63;
    if let Some(byte) = bytes.get_mut(middle + 1) {
        *byte ^= 0x40;
    }
    let mut file = OpenOptions::new().write(true).open(path)?;
    file.write_all(&bytes)?;
    file.set_modified(modified)
}
