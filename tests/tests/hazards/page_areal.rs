//! What there has to be on the page about AReaL.

use super::page::{Page, Section};

/// The page about AReaL.
pub(crate) const PAGE: Page = Page {
    trainer: "AReaL",
    name: "areal",
    cases: "areal_alone",
    sections: SECTIONS,
    not_yet: NOT_YET,
};

const SECTIONS: &[Section] = &[
    (
        "disk",
        "What is on disk",
        "",
        &[
            "directories_come_first",
            "one_inode",
            "old_metadata_stays",
            "leftover_shards",
            "no_step",
            "stats_behind",
            "data_list",
            "newer_layout",
        ],
    ),
    (
        "crash",
        "What a crash in a save leaves behind",
        "A save is: the shards of each engine, in place; its `.metadata`; six files of `recover_info`, in place, the place in the data last.",
        &[
            "step",
            "shard_torn",
            "mixture",
            "mixture_unknown",
            "all_shards",
            "unlinked",
            "critic_behind",
            "ahead",
            "info_torn",
            "info_mixed",
            "data_behind",
            "disk_full",
            "megatron_sync",
            "megatron_async",
        ],
    ),
    (
        "load",
        "How a load fails",
        "",
        &[
            "base_exception",
            "dies_each_time",
            "hang_in_controller",
            "not_found",
            "crc",
        ],
    ),
    (
        "rule",
        "What no load looks at",
        "",
        &[
            "info_files",
            "step_info",
            "data_state",
            "info_times",
            "info_swapped",
            "metadata",
            "shard",
            "tiling",
            "times",
            "times_put_back",
            "older_shard",
            "identity",
            "bytes",
            "megatron_times",
        ],
    ),
    (
        "protect",
        "Keeping the only checkpoint",
        "",
        &["hard_links", "generations", "put_back", "raced", "room"],
    ),
    (
        "resume",
        "Where it resumes, and what comes back",
        "",
        &[
            "first_epoch",
            "scratch_in_silence",
            "scratch_in_silence_kept",
            "no_counters",
            "overwrites",
            "finished",
            "user",
            "identity",
            "world_size",
            "critic",
            "schedule",
            "second_epoch",
            "frequency",
            "rng",
            "drawn_prompts",
            "names_by_name",
            "orphans_names",
            "clean_start",
            "retries",
        ],
    ),
    (
        "config",
        "Configuration",
        "",
        &[
            "mode_on",
            "mode_off",
            "unknown_key",
            "suffix",
            "override",
            "frequency",
            "no_frequency",
            "no_scheduler",
            "fileroot",
            "v2",
            "megatron_optimizer",
            "megatron_lora",
        ],
    ),
    (
        "export",
        "Hugging Face exports",
        "",
        &["empty_first", "not_resumed", "critic_twice", "weight_update"],
    ),
    (
        "process",
        "Processes",
        "",
        &[
            "exit_code",
            "tee",
            "orphans",
            "signals",
            "two_hours",
            "close_blocks",
            "detached",
            "slurm_states",
        ],
    ),
    (
        "signal",
        "What is printed",
        "",
        &[
            "step",
            "saved",
            "recovering",
            "alarm",
            "failed",
            "completes",
            "colours",
            "configuration",
        ],
    ),
];

/// Hazards that no test shows yet, with what is known.
const NOT_YET: &[(&str, &str)] = &[
    (
        "signal.configuration",
        "A configuration that it refuses ends it with 1 at each launch; its words are known to the diagnosis, by a test of its own",
    ),
    (
        "disk.newer_layout",
        "Builds after August 2026 keep generations of their own, and name the newest in a file `LATEST`",
    ),
    (
        "load.base_exception",
        "What a damaged checkpoint raises is no `Exception`: no handler of AReaL's sees it",
    ),
    (
        "load.hang_in_controller",
        "Under a controller the same error is never answered: it waits for two hours, and every call after that fails",
    ),
    (
        "resume.names_by_name",
        "Records of workers are deleted by their name: an old worker that ends deletes that of the new one",
    ),
    (
        "resume.orphans_names",
        "A new launch deletes all records of the trial: two runs of one name destroy each other",
    ),
    (
        "resume.clean_start",
        "To begin anew on purpose, `recover_info` has to be deleted by hand",
    ),
    (
        "process.exit_code",
        "The old launchers never end with 0: success looks like failure",
    ),
    (
        "process.tee",
        "The exit status of their jobs is that of `tee`: always 0",
    ),
    (
        "process.orphans",
        "A controller that is killed leaves its workers, with their GPUs and ports",
    ),
    (
        "process.signals",
        "The trainers handle no signal: SIGTERM ends the controller and leaves its workers",
    ),
    (
        "process.two_hours",
        "Every wait between processes lasts two hours before it fails",
    ),
    (
        "process.detached",
        "The second version starts its workers in sessions of their own",
    ),
    (
        "process.slurm_states",
        "A job that Slurm preempted or whose node failed is an unknown state, and ends the launcher",
    ),
];
