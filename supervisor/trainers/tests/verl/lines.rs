//! Sightings in verl's output: genuine logs of the SFT trainer, and the lines of PPO under Ray's prefixes.

use std::path::Path;
use supervise_core::event::TrainerPhase;
use supervise_core::event::scan::{RuleKind, Scanner};
use supervise_core::id::WorkerId;
use supervise_core::observe::numbers::TrainingMetric;
use supervise_core::spec::TrainerKind;
use supervise_trainers::adapter;

type Seen = Vec<(RuleKind, Option<u64>)>;

fn seen(kind: TrainerKind, text: &str) -> Seen {
    let mut scanner = Scanner::new(adapter(kind).rules()).unwrap();
    let lines = text.lines().enumerate();
    lines
        .flat_map(|(n, line)| scanner.all(WorkerId(0), n as u64 + 1, line.as_bytes()))
        .filter(|hit| hit.kind != RuleKind::Exception)
        .map(|hit| (hit.kind, hit.sighting.number))
        .collect()
}

fn log(name: &str) -> Seen {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../tests/fixtures/logs")
        .join(name);
    #[expect(clippy::disallowed_methods, reason = "a fixture")]
    let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    seen(supervise_trainers::verl::SFT, &String::from_utf8_lossy(&bytes))
}

fn save(step: u64) -> [(RuleKind, Option<u64>); 3] {
    [
        (RuleKind::Step, Some(step)),
        (RuleKind::Enters(TrainerPhase::Save), Some(step)),
        (RuleKind::Enters(TrainerPhase::Step), None),
    ]
}

#[test]
fn a_healthy_sft_log_is_steps_saves_and_an_end() {
    let mut wanted = vec![(RuleKind::Total, Some(2))];
    wanted.extend(save(1));
    wanted.extend(save(2));
    wanted.push((RuleKind::End, None));
    assert_eq!(log("sft_healthy.rank0.log"), wanted);
    assert_eq!(log("sft_healthy.rank1.log"), []);
}

#[test]
fn a_resume_is_seen_at_every_log_level() {
    let loaded = (RuleKind::Resumed, Some(2));
    assert_eq!(
        log("sft_resumed.rank0.log")[..2],
        [(RuleKind::Total, Some(4)), loaded.clone()]
    );
    assert_eq!(log("sft_resumed.rank0.log")[2..5], save(3));
    assert_eq!(
        log("sft_resumed_info.rank0.log")[..4],
        [
            (RuleKind::Total, Some(4)),
            loaded.clone(),
            (RuleKind::Total, Some(4)),
            loaded
        ]
    );
}

#[test]
fn a_start_from_nothing_is_seen() {
    for name in ["sft_tracker_astray.rank0.log", "sft_tracker_missing.rank0.log"] {
        assert!(log(name).contains(&(RuleKind::Scratch, None)), "{name}");
    }
    for name in [
        "sft_healthy.rank0.log",
        "sft_resumed.rank0.log",
        "sft_retention.rank0.log",
    ] {
        assert!(!log(name).contains(&(RuleKind::Scratch, None)), "{name}");
    }
}

#[test]
fn a_run_without_an_end_is_told_from_a_finished_one() {
    // Resumed at the end of the only epoch: nothing is trained, and the exit code is 0.
    let nothing = log("sft_epoch_end.rank0.log");
    assert_eq!(nothing.last(), Some(&(RuleKind::Resumed, Some(2))));
    // A finished run that is started again trains one more step.
    let again = log("sft_finished_again.rank0.log");
    assert_eq!(again[0], (RuleKind::Total, Some(2)));
    assert!(again.contains(&(RuleKind::Step, Some(3))));
    assert_eq!(again.last(), Some(&(RuleKind::End, None)));
}

#[test]
fn no_failed_start_looks_like_progress() {
    for name in [
        "bad_override",
        "bad_path",
        "tracker_empty",
        "missing_shard",
        "torn_shard",
        "other_world",
    ] {
        let seen = log(&format!("sft_{name}.rank0.log"));
        let progress = |kind: &RuleKind| matches!(kind, RuleKind::Step | RuleKind::End | RuleKind::Enters(_));
        assert!(!seen.iter().any(|(kind, _)| progress(kind)), "{name}: {seen:?}");
    }
}

#[test]
fn a_killed_run_ends_inside_its_save_without_an_end() {
    let seen = log("sft_killed_in_save.rank0.log");
    assert!(!seen.iter().any(|(kind, _)| *kind == RuleKind::End));
    assert_eq!(seen.last(), Some(&(RuleKind::Enters(TrainerPhase::Save), Some(3))));
}

#[test]
fn ppo_lines_are_seen_behind_rays_prefixes() {
    for (line, kind, number) in [
        (
            "(TaskRunnerV1 pid=71) step:12 - actor/loss:0.5 - training/global_step:12",
            RuleKind::Step,
            Some(12),
        ),
        (
            "\x1b[36m(TaskRunner pid=9, ip=10.0.0.1)\x1b[0m step:3 - val-core/acc:0.1",
            RuleKind::Step,
            Some(3),
        ),
        (
            "(TaskRunnerV1 pid=71) Training Progress:   5%|5         | 5/100 [00:01<00:02]step:6 - a:1",
            RuleKind::Step,
            Some(6),
        ),
        (
            "(TaskRunnerV1 pid=71) Training Progress:   5%|5         | 5/100 [00:01<00:02,  1.0it/s]",
            RuleKind::Total,
            Some(100),
        ),
        (
            "(TaskRunnerV1 pid=71) [2026-01-01 00:00:00,1][verl.trainer][INFO] - Total training steps: 435",
            RuleKind::Total,
            Some(435),
        ),
        (
            "(TaskRunnerV1 pid=71) INFO:Saving checkpoint to /r/global_step_1x/global_step_20",
            RuleKind::Enters(TrainerPhase::Save),
            Some(20),
        ),
        (
            "(TaskRunner pid=71) local_global_step_folder: /r/global_step_20",
            RuleKind::Enters(TrainerPhase::Save),
            Some(20),
        ),
        (
            "(TaskRunnerV1 pid=71) Resuming from /r/global_step_20, setting global step to 20",
            RuleKind::Resumed,
            Some(20),
        ),
        (
            "(TaskRunner pid=71) Setting global step to 20",
            RuleKind::Resumed,
            Some(20),
        ),
        (
            "(WorkerDict pid=8, ip=10.0.0.2) [Rank 0] Loaded model from /a/global_step_3/x/global_step_20/actor/model_world_size_2_rank_0.pt",
            RuleKind::Resumed,
            Some(20),
        ),
        ("(TaskRunnerV1 pid=71) Training from scratch", RuleKind::Scratch, None),
        (
            "(TaskRunnerV1 pid=71)              'resume_from_path': '/r/global_step_20',",
            RuleKind::ResumePath,
            None,
        ),
        (
            "(TaskRunnerV1 pid=71) Checkpoint tracker file does not exist: /r/latest_checkpointed_iteration.txt",
            RuleKind::Scratch,
            None,
        ),
        (
            "(TaskRunnerV1 pid=71) Checkpoint does not exist: %s /r/global_step_20",
            RuleKind::Scratch,
            None,
        ),
        (
            "(TaskRunnerV1 pid=71) 'Final validation metrics: {}'",
            RuleKind::End,
            None,
        ),
    ] {
        assert_eq!(seen(supervise_trainers::verl::PPO, line), [(kind, number)], "{line}");
    }
}

#[test]
fn other_lines_are_not_taken_for_those() {
    for line in [
        "global_step:12 - x",
        "training/step:12 - x",
        "step:12, loss 3",
        "perf/max_step:3 - a",
        "Initial validation metrics: {}",
        "[Rank 3] Loaded model from /r/global_step_20/actor/model_world_size_4_rank_3.pt",
        "Saving checkpoint callback",
        "worker step_id:12 - done",
    ] {
        assert_eq!(seen(supervise_trainers::verl::PPO, line), [], "{line}");
    }
}

#[test]
fn a_training_record_has_its_numbers_and_a_validation_before_it_has_none() {
    let numbers = |kind, line: &str| {
        let hit = Scanner::new(adapter(kind).rules())
            .unwrap()
            .line(WorkerId(0), 1, line.as_bytes());
        hit.unwrap().numbers
    };
    let sft = "Epoch 1/2:  12%|#  | 1/8 [00:01<00:07]step:2 - perf/cpu_memory_used_gb:1.4 - train/loss:4.17 - train/grad_norm:0.65 - train/lr:0.001";
    let read = numbers(supervise_trainers::verl::SFT, sft).unwrap();
    assert_eq!(
        (read.get(TrainingMetric::Loss), read.get(TrainingMetric::GradNorm)),
        (Some(4.17), Some(0.65))
    );
    let ppo = "(TaskRunner pid=7) step:3 - actor/pg_loss:np.float64(-0.02) - actor/entropy:0.4 - critic/score/mean:0.5 - response_length/mean:17.5 - response_length/max:20";
    let read = numbers(supervise_trainers::verl::PPO, ppo).unwrap();
    let all = [
        TrainingMetric::Loss,
        TrainingMetric::Reward,
        TrainingMetric::Entropy,
        TrainingMetric::Length,
        TrainingMetric::GradNorm,
    ];
    assert_eq!(
        all.map(|m| read.get(m)),
        [Some(-0.02), Some(0.5), Some(0.4), Some(17.5), None]
    );
    let validation = "step:2 - val-core/openai/gsm8k/reward/mean@1:0.25 - val-aux/num_turns/mean:2";
    assert_eq!(numbers(supervise_trainers::verl::PPO, validation), None);
    assert!(numbers(supervise_trainers::verl::PPO, "step:3 - training/global_step:3").is_some());
}
