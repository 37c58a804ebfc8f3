//! Defaults of AReaL's own classes, for the keys read here (1.0.4).

use supervise_config::{
    ConfigError, ConfigNode, ConfigTree, ConfigValue, MapKey, ValueOrigin, edit_distance, parse_scalar,
};

/// Key and default as YAML; `???` is mandatory.
const DEFAULTS: &[(&str, &str)] = &[
    ("experiment_name", "???"),
    ("trial_name", "???"),
    ("cluster.name_resolve.type", "nfs"),
    ("cluster.name_resolve.nfs_record_root", "/tmp/areal/name_resolve"),
    ("cluster.name_resolve.etcd3_addr", "localhost:2379"),
    ("cluster.name_resolve.ray_actor_name", "ray_kv_store"),
    ("cluster.cluster_name", "local"),
    ("cluster.fileroot", "/tmp/areal/"),
    ("cluster.n_nodes", "32"),
    ("cluster.n_gpus_per_node", "8"),
    ("allocation_mode", "''"),
    ("seed", "1"),
    ("enable_offload", "false"),
    ("total_train_epochs", "1"),
    ("total_train_steps", "null"),
    ("total_train_n_seqs", "null"),
    ("tokenizer_path", "''"),
    ("train_dataset.path", "???"),
    ("train_dataset.type", "???"),
    ("train_dataset.split", "train"),
    ("train_dataset.batch_size", "1"),
    ("train_dataset.shuffle", "true"),
    ("train_dataset.num_workers", "0"),
    ("train_dataset.drop_last", "true"),
    ("saver.mode", "auto"),
    ("evaluator.eval_before_train", "false"),
    ("recover.mode", "disabled"),
    ("recover.retries", "3"),
    ("recover.no_save_optim", "false"),
    ("recover.no_load_optim", "false"),
    ("stats_logger.experiment_name", "???"),
    ("stats_logger.trial_name", "???"),
    ("stats_logger.fileroot", "???"),
    ("stats_logger.wandb.mode", "disabled"),
    ("stats_logger.wandb.id_suffix", "train"),
    ("scheduler.type", "null"),
];

/// Fields common to saver, evaluator and recover.
const TIMER: &[(&str, &str)] = &[
    ("experiment_name", "???"),
    ("trial_name", "???"),
    ("fileroot", "???"),
    ("freq_epochs", "null"),
    ("freq_steps", "null"),
    ("freq_secs", "null"),
];

const ENGINE: &[(&str, &str)] = &[
    ("experiment_name", "???"),
    ("trial_name", "???"),
    ("path", "''"),
    ("backend", "???"),
    ("_version", "v1"),
    ("dtype", "bfloat16"),
    ("use_lora", "false"),
    ("optimizer", "null"),
    ("weight_update_mode", "xccl"),
    ("megatron.async_save", "false"),
    ("megatron.use_checkpoint_opt_param_scheduler", "true"),
    ("ppo_n_minibatches", "4"),
];

const OPTIMIZER: &[(&str, &str)] = &[("lr_scheduler_type", "constant"), ("warmup_steps_proportion", "0.001")];

const ROLLOUT: &[(&str, &str)] = &[("backend", "???"), ("_version", "v1"), ("max_head_offpolicyness", "0")];

/// Sections whose keys are all known here: AReaL exits at start on any other key.
pub(super) const CLOSED: &[(&str, &[&str])] = &[
    ("recover", &["mode", "retries", "no_save_optim", "no_load_optim"]),
    ("saver", &["mode"]),
    ("evaluator", &["eval_before_train"]),
    (
        "cluster",
        &["name_resolve", "cluster_name", "fileroot", "n_nodes", "n_gpus_per_node"],
    ),
    (
        "scheduler",
        &[
            "type",
            "endpoint",
            "deploy_mode",
            "functioncall_service_domain",
            "reward_functioncall_config",
            "reward_model_path",
            "reward_model_service_url",
        ],
    ),
];

/// Sections that also have the keys of [`TIMER`].
const TIMERS: [&str; 3] = ["saver", "evaluator", "recover"];

/// The defaults below a configuration. Which apply depends on the sections it has.
pub(super) fn beneath(theirs: &ConfigTree) -> Result<ConfigTree, ConfigError> {
    let origin = ValueOrigin::Default { of: "AReaL".to_owned() };
    let mut tree = ConfigTree::empty(origin.clone());
    let is_map = |key: &str| theirs.get(key).is_some_and(|n| matches!(n.value, ConfigValue::Map(_)));
    let mut add = |prefix: &str, keys: &[(&str, &str)]| -> Result<(), ConfigError> {
        for (key, value) in keys {
            let path = if prefix.is_empty() {
                (*key).to_owned()
            } else {
                format!("{prefix}.{key}")
            };
            let value = match *value {
                "''" => ConfigValue::Str(String::new()),
                text => parse_scalar(text).unwrap_or(ConfigValue::Null),
            };
            tree.add(&path, ConfigNode::new(value, origin.clone()))?;
        }
        Ok(())
    };
    add("", DEFAULTS)?;
    for timer in TIMERS {
        add(timer, TIMER)?;
    }
    let engines = ["actor", "critic", "ref"];
    for engine in engines.into_iter().filter(|e| *e == "actor" || is_map(e)) {
        add(engine, ENGINE)?;
        let optimizer = format!("{engine}.optimizer");
        if is_map(&optimizer) {
            // The null that means "no training" is replaced.
            add(&optimizer, OPTIMIZER)?;
        }
    }
    if is_map("rollout") {
        add("rollout", ROLLOUT)?;
    }
    Ok(tree)
}

pub(super) fn unknown(tree: &ConfigTree) -> Vec<String> {
    let mut out = Vec::new();
    for (section, known) in CLOSED {
        let Some(ConfigValue::Map(map)) = tree.get(section).map(|n| &n.value) else {
            continue;
        };
        let is_known =
            |key: &str| known.contains(&key) || TIMERS.contains(section) && TIMER.iter().any(|(name, _)| *name == key);
        let names = map.iter().filter_map(|(key, _)| match key {
            MapKey::Str(name) if is_known(name) => None,
            other => Some(format!("{section}.{other}")),
        });
        out.extend(names);
    }
    out
}

pub(super) fn nearest(key: &str) -> Option<String> {
    let (section, name) = key.rsplit_once('.')?;
    let (_, known) = CLOSED.iter().find(|(of, _)| *of == section)?;
    let timer = TIMER
        .iter()
        .map(|(name, _)| *name)
        .filter(|_| TIMERS.contains(&section));
    let scored = known
        .iter()
        .copied()
        .chain(timer)
        .map(|other| (edit_distance(name, other), other));
    let (slips, other) = scored.min()?;
    (slips * 3 <= name.len()).then(|| format!("{section}.{other}"))
}
