//! The codes of findings about steps, with the meaning of each. Codes about single files are next to their readers.

use std::collections::BTreeMap;
use supervise_trainers::registry::adapters;

pub use supervise_checkpoint::codes::CODES as FILE_CODES;

/// Finding codes about a step, a set or a configuration of any trainer, in alphabetical order.
pub const STEP_CODES: &[(&str, &str)] = &[
    (
        "another_owner",
        "files of the step belong to a user whom this run does not trust: it is not resumed from",
    ),
    (
        "another_step",
        "a generation that holds another step than its name says",
    ),
    ("cadence", "when this run saves, and what a crash can cost"),
    (
        "cluster_not_asked",
        "the interpreter that would ask the cluster is named by another user's file: a command that only looks does not start it",
    ),
    (
        "composed_by_trainer",
        "the trainer's own interpreter composed the configuration: no table here knows its release, its files or its entry point",
    ),
    ("config_not_passed", "the YAML is read by us and not by the command"),
    (
        "content_missing",
        "a part holds less than a resume needs: it was not saved for one",
    ),
    (
        "contents_bound_together",
        "this version starts only with all contents together",
    ),
    ("copy_of_other_step", "every byte is that of another step"),
    (
        "counter_differs",
        "the schedule counts other steps than the directory's name says",
    ),
    (
        "counters_changed",
        "the step was proven with other counts: this is another step's state",
    ),
    (
        "counters_stand_still",
        "optimizer or schedule count no more than an older step's",
    ),
    (
        "counters_went_back",
        "the directory holds an older state: an older step counted further",
    ),
    ("data_of_other_step", "the dataloader is where it was at another step"),
    ("data_state_missing", "dataloader state of some ranks is missing"),
    (
        "deepspeed_steps",
        "DeepSpeed's directory of this step is not the only one, or not there",
    ),
    ("disk", "what the next saves take, and what is free"),
    ("disk_short", "the next saves do not fit on the disk"),
    (
        "dist_missing",
        "a directory that Megatron should have written holds no checkpoint",
    ),
    (
        "engine_missing",
        "an engine that the run needs was never saved, or its save broke off",
    ),
    (
        "engine_not_of_this_run",
        "the state of an engine that this run does not have: not loaded",
    ),
    (
        "export_empty",
        "the directory of an export without files: its save goes on, or was killed",
    ),
    ("export_unfinished", "an export that was never given its name"),
    (
        "fewer_ranks",
        "a part has fewer files than in another step: fewer ranks saved it, or the last ones are missing",
    ),
    ("file_empty", "a file that a load needs is empty"),
    ("file_not_whole", "a file is not whole"),
    ("finished_run", "what starting a finished run again does"),
    (
        "fsdp_config_missing",
        "rank 0 writes this file after its shards: the save was not finished",
    ),
    (
        "hard_links",
        "parts of the step share their files: a save into one would write into all",
    ),
    ("hf_config_missing", "the model's own configuration is missing"),
    (
        "hf_index_missing",
        "the index of the exported weights is missing: it is written last",
    ),
    ("hf_model_missing", "the exported weights are missing"),
    ("hf_weights_missing", "parts of the exported weights are missing"),
    (
        "husk",
        "only data.pt is left: the trainer's own retention deleted the rest",
    ),
    (
        "integrity_mismatch",
        "the bytes of a file do not have the digest that Megatron's list says",
    ),
    ("keep_all", "every step stays on disk"),
    (
        "keep_one",
        "the trainer deletes the only older step before the new one is proven",
    ),
    (
        "latest_missing",
        "DeepSpeed's pointer is not there: nothing would be loaded",
    ),
    ("layout_unknown", "the files fit no layout that is read here"),
    ("layouts_mixed", "files of several layouts are in one role"),
    ("leftover", "left over from a write that was killed"),
    (
        "linked",
        "a symbolic link where a directory of the only checkpoint belongs",
    ),
    ("manifest_file_missing", "a file that the manifest names is missing"),
    ("manifest_incomplete", "what was to be saved is not in the manifest"),
    ("manifest_missing", "the manifest is missing: it is written last"),
    (
        "migration_unfinished",
        "a conversion from Megatron's first layout was not finished: supervise migrate finishes it",
    ),
    (
        "misplaced",
        "the file was written under another name: it holds what belongs there",
    ),
    (
        "mixed_generations",
        "the state of an engine is of another save than what is kept beside it, or of two saves",
    ),
    (
        "mixed_save_suspected",
        "a file may be of another save: its bytes, its time or the directory it was written for say so, and prove nothing",
    ),
    (
        "mixed_steps",
        "ranks count different steps: their files are of different saves",
    ),
    ("more_findings", "further findings are not listed"),
    (
        "no_data_state",
        "the state of the dataloader is missing: data starts again from the epoch's beginning",
    ),
    (
        "no_room_to_raise",
        "the trainer keeps no more steps than it was told: the disk would not hold them",
    ),
    (
        "no_save_on_demand",
        "the trainer does not save before its machine is taken away",
    ),
    ("no_saves", "the configuration saves no steps"),
    ("no_such_step", "no step of this name is known"),
    ("not_a_directory", "a step's name belongs to something else"),
    (
        "not_a_shared_file_system",
        "the other ranks' files look to be on another machine's own disk",
    ),
    ("not_here", "`run` would be refused on this machine"),
    (
        "not_rehearsed",
        "whether a relaunch would be taken by this release was not tried",
    ),
    ("not_restored", "what this trainer never restores"),
    ("not_saved", "what this configuration never saves"),
    ("not_what_was_proven", "a proven file was replaced by another one"),
    ("nothing_saved", "nothing was saved here yet"),
    ("one_node", "the command starts the ranks of one node of several"),
    (
        "optimizer_missing",
        "the optimizer's state, or a rank's part of it, is not there",
    ),
    ("order_of_times", "files are newer than one that is written after them"),
    (
        "other_content",
        "the file is whole, and holds something else than its place says",
    ),
    ("other_world_sizes", "shards of another world size are left over"),
    (
        "override_unknown",
        "this release of the trainer does not take an override that a relaunch needs",
    ),
    ("part_missing", "no file of a part is here that the trainer saves"),
    ("plain_command", "nothing is known of this command's checkpoints"),
    ("proven_file_missing", "a file that was proven once is gone"),
    ("rank_missing", "files of some ranks are missing"),
    ("ray_cluster", "a Ray cluster that somebody else started is used"),
    ("ray_found", "the Ray cluster that is meant answers"),
    (
        "ray_job",
        "each attempt is a job of its own on a Ray cluster (`ray job submit`)",
    ),
    (
        "ray_own",
        "the driver starts a Ray cluster of its own, which ends with it",
    ),
    ("ray_script", "the script starts a Ray cluster for its trainer"),
    (
        "ray_started",
        "a Ray cluster over the nodes of the job is started for each attempt, and ends with it",
    ),
    (
        "ray_too_small",
        "the Ray cluster that is meant has less than the run asks for",
    ),
    ("restored", "what a resume brings back of an engine"),
    (
        "resume_in_part",
        "a word of the command keeps a resume from loading all state",
    ),
    (
        "resumes_by_itself",
        "the script takes no flags: it has to resume from the newest step by itself, or from the one that a variable names",
    ),
    (
        "rewritten_in_part",
        "some files were written anew since the step was proven, others were not",
    ),
    ("rng_missing", "random states of ranks are not there"),
    ("role_differs", "the manifest speaks of another role"),
    ("role_missing", "nothing of a role is here that the run loads"),
    ("role_not_used", "a role is here that the run does not load"),
    (
        "save_only_model",
        "steps hold weights only: every resume begins the optimizer anew",
    ),
    ("scaler_missing", "the loss scale is not there, and other steps have it"),
    ("schedule_missing", "the learning-rate schedule is not there"),
    ("set_not_whole", "files that belong together are not whole"),
    (
        "setting_unsaid",
        "a setting that a resume needs stands neither in the command nor in its YAML",
    ),
    ("shard_size", "a shard is far smaller than those of the other ranks"),
    (
        "shards_do_not_tile",
        "the parts of all ranks together are not as large as their tensors",
    ),
    ("shards_missing", "shards of some ranks are missing"),
    ("starts_elsewhere", "the first start loads a step of another root"),
    (
        "step_differs",
        "what the step says of itself speaks of another step than the directory's name",
    ),
    ("symlink", "a symbolic link or special file: it is not followed"),
    (
        "trainer_not_asked",
        "only the trainer itself could say what its configuration comes to, and it was not asked, or did not answer",
    ),
    (
        "trainer_seen",
        "the trainer of a command that tells nothing, as it was seen",
    ),
    (
        "transfer_queue_missing",
        "a part of the saved transfer queue is missing",
    ),
    ("transfer_queue_unfinished", "the save of the transfer queue was killed"),
    (
        "transformer_config_missing",
        "Megatron's own configuration is missing: the save was not finished",
    ),
    (
        "unfinished",
        "what is written last is not there: the save goes on, or was killed",
    ),
    ("unknown_format", "no format is known by this name"),
    ("unknown_layout", "its files are in no form that is read here"),
    ("unreadable", "the step cannot be read"),
    (
        "validates_first",
        "a validation runs again at the beginning of every relaunch",
    ),
    (
        "version_unknown",
        "which release of the trainer would run is not known, or nothing is known of that release",
    ),
    (
        "watched_only",
        "no word makes this trainer resume from a step: it is restarted as it is written",
    ),
    (
        "weights_only",
        "only weights were saved: optimizer, schedule and random states begin anew",
    ),
    (
        "world_sizes_mixed",
        "shards of several world sizes, and nothing says which of them counts",
    ),
];

/// All finding codes about a step, a set or a configuration, with the meaning of each.
#[must_use]
pub fn step_codes() -> BTreeMap<&'static str, &'static str> {
    let of_trainers = adapters().flat_map(|a| a.codes());
    STEP_CODES.iter().chain(of_trainers).copied().collect()
}
