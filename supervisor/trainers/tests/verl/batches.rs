//! Batches that verl divides by its ranks, as each of its releases does: what does not divide is told before a step is cut for other ranks.

use super::reading::Case;

/// Words of a release on a command.
fn words(version: &'static str, command: &'static str) -> Vec<String> {
    Case {
        command,
        version: Some(version),
        ..Case::default()
    }
    .good()
    .indivisible
}

/// The same of three ranks.
fn three(version: &'static str, command: &'static str) -> Vec<String> {
    Case {
        command,
        workers: Some(3),
        version: Some(version),
        ..Case::default()
    }
    .good()
    .indivisible
}

macro_rules! ppo {
    ($n:literal, $more:literal) => {
        concat!(
            "python3 -m verl.trainer.main_ppo trainer.default_local_dir=/r trainer.save_freq=1 algorithm.adv_estimator=grpo ",
            "trainer.nnodes=1 trainer.n_gpus_per_node=",
            $n,
            " ",
            $more
        )
    };
}

const RELEASES: [&str; 8] = ["0.4.0", "0.4.1", "0.5.0", "0.6.1", "0.7.0", "0.7.1", "0.8.0", "0.9.1"];

/// The releases that say something, and what all of them say.
#[track_caller]
fn refused_by(command: &'static str, releases: &[&str], word: &str) {
    for release in RELEASES {
        let said = words(release, command);
        match releases.contains(&release) {
            true => assert!(
                said.len() == 1 && said[0].contains(word),
                "{release}: {said:?} is not {word:?}"
            ),
            false => assert_eq!(said, Vec::<String>::new(), "{release}"),
        }
    }
}

#[test]
fn what_divides_is_nobodys_trouble() {
    let command = ppo!(
        4,
        "data.train_batch_size=8 actor_rollout_ref.actor.ppo_mini_batch_size=8 actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2"
    );
    refused_by(command, &[], "");
    // Nor is what verl has where nobody says anything: 1024, 256, and engines of two.
    refused_by(ppo!(4, ""), &[], "");
}

#[test]
fn what_nobody_says_counts_too() {
    for release in RELEASES {
        let said = words(release, ppo!(6, ""));
        let want = [
            "data.train_batch_size=1024 is no multiple of 6: data.train_batch_size=1026",
            "actor_rollout_ref.actor.ppo_mini_batch_size=256 is no multiple of 6: actor_rollout_ref.actor.ppo_mini_batch_size=258",
        ];
        assert_eq!(said, want, "{release}");
        let odd = ppo!(
            3,
            "data.train_batch_size=6 actor_rollout_ref.actor.ppo_mini_batch_size=6"
        );
        let said = words(release, odd);
        assert!(
            said.len() == 1 && said[0].contains("tensor_model_parallel_size=2 does not divide 3 ranks"),
            "{said:?}"
        );
        assert!(said[0].ends_with("tensor_model_parallel_size=1"), "{said:?}");
    }
}

#[test]
fn samples_of_a_step_divide_by_the_ranks() {
    let command = ppo!(
        4,
        "data.train_batch_size=6 actor_rollout_ref.actor.ppo_mini_batch_size=4"
    );
    refused_by(
        command,
        &RELEASES,
        "data.train_batch_size=6 is no multiple of 4: data.train_batch_size=8",
    );
    // Answers count: six questions, two answers each.
    let command = ppo!(
        4,
        "data.train_batch_size=6 actor_rollout_ref.rollout.n=2 actor_rollout_ref.actor.ppo_mini_batch_size=4"
    );
    refused_by(command, &[], "");
    // Pieces that are cut by tokens: only the first releases insist.
    let command = ppo!(
        4,
        "data.train_batch_size=6 actor_rollout_ref.actor.use_dynamic_bsz=True actor_rollout_ref.actor.ppo_mini_batch_size=4"
    );
    refused_by(
        command,
        &["0.4.0", "0.4.1", "0.5.0"],
        "data.train_batch_size=6 is no multiple of 4",
    );
}

#[test]
fn a_share_divides_into_pieces() {
    let command = ppo!(
        4,
        "data.train_batch_size=12 actor_rollout_ref.actor.ppo_mini_batch_size=12 actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2"
    );
    refused_by(
        command,
        &RELEASES,
        "ppo_micro_batch_size_per_gpu=2 does not divide the 3 samples of a rank: actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=1",
    );
    // Pieces that are not used trouble the workers that verl had before its engines.
    let command = ppo!(
        4,
        "data.train_batch_size=12 actor_rollout_ref.actor.use_dynamic_bsz=True actor_rollout_ref.actor.ppo_mini_batch_size=12 actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2"
    );
    let old = ["0.4.0", "0.4.1", "0.5.0", "0.6.1", "0.7.0", "0.7.1"];
    refused_by(command, &old, "does not divide the 3 samples of a rank");
    let command = ppo!(
        4,
        "+trainer.use_legacy_worker_impl=disable data.train_batch_size=12 actor_rollout_ref.actor.use_dynamic_bsz=True actor_rollout_ref.actor.ppo_mini_batch_size=12 actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=2"
    );
    refused_by(command, &["0.4.0", "0.4.1"], "does not divide the 3 samples of a rank");
    // The older name is of all ranks together.
    let command = ppo!(
        4,
        "data.train_batch_size=8 actor_rollout_ref.actor.ppo_mini_batch_size=8 actor_rollout_ref.actor.ppo_micro_batch_size=2"
    );
    refused_by(
        command,
        &old,
        "ppo_micro_batch_size=2 is 0 for each of 4 and does not divide the 2 samples of a rank: actor_rollout_ref.actor.ppo_micro_batch_size=4",
    );
}

#[test]
fn engines_of_rollouts_share_the_ranks() {
    let command = ppo!(
        4,
        "data.train_batch_size=8 actor_rollout_ref.actor.ppo_mini_batch_size=8 actor_rollout_ref.rollout.data_parallel_size=4"
    );
    let three = ["0.6.1", "0.7.0", "0.7.1", "0.8.0", "0.9.1"];
    refused_by(
        command,
        &three,
        "tensor_model_parallel_size=2 times data_parallel_size=4 does not divide 4 ranks: actor_rollout_ref.rollout.tensor_model_parallel_size=1",
    );
}

#[test]
fn both_trainers_of_sft_divide_theirs() {
    let old = "python3 -m verl.trainer.fsdp_sft_trainer trainer.default_local_dir=/r";
    let new = "python3 -m verl.trainer.sft_trainer trainer.default_local_dir=/r trainer.save_freq=1";
    // Before 0.5 it cannot resume at all.
    for release in ["0.5.0", "0.6.1", "0.7.0"] {
        assert_eq!(
            three(release, old)[0],
            "data.train_batch_size=256 is no multiple of 3: data.train_batch_size=258"
        );
        // Four in a piece are its own; it knows no pieces by tokens.
        let six = "python3 -m verl.trainer.fsdp_sft_trainer trainer.default_local_dir=/r data.train_batch_size=18";
        assert_eq!(
            three(release, six),
            [
                "data.micro_batch_size_per_gpu=4 does not divide the 6 samples of a rank: data.micro_batch_size_per_gpu=3"
            ]
        );
    }
    let pieces = "python3 -m verl.trainer.sft_trainer trainer.default_local_dir=/r trainer.save_freq=1 data.train_batch_size=18 data.use_dynamic_bsz=False";
    let tokens =
        "python3 -m verl.trainer.sft_trainer trainer.default_local_dir=/r trainer.save_freq=1 data.train_batch_size=18";
    for release in ["0.6.1", "0.7.0", "0.7.1", "0.8.0", "0.9.1"] {
        assert_eq!(
            three(release, new)[0],
            "data.train_batch_size=256 is no multiple of 3: data.train_batch_size=258"
        );
        assert_eq!(three(release, tokens), Vec::<String>::new(), "{release}");
        assert_eq!(
            three(release, pieces).len(),
            usize::from(release != "0.6.1"),
            "{release}"
        );
    }
}
