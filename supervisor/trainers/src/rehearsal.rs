//! Trying a launch in advance: Hydra composes and prints the trainer's configuration, and exits.
//!
//! The output is compared with our overrides. One that this release does not know, or that another setting overrides,
//! is found before a failure makes the relaunch necessary.

use crate::LaunchPlan;
use crate::command;
use crate::hydra::{self, OverrideAction};
use crate::verl::call;
use crate::verl::read::GROUPS;
use supervise_config::{ConfigTree, ConfigValue, parse_trainer_yaml, python_str, redact};
use supervise_core::spec::RunSpec;
use supervise_core::spec::script::CallOrder;

/// Lines of other output allowed before the configuration.
const NOISE: usize = 500;
/// Lines tried as its beginning.
const ATTEMPTS: usize = 20;
/// Bytes of a configuration: verl's has about 40,000.
const LONGEST: usize = 1 << 20;
const TOLD: usize = 20;

/// Arguments after the interpreter that make an entry point print its configuration instead of training; `None` if
/// the command names no entry point.
#[must_use]
pub fn rehearsed(argv: &[String]) -> Option<Vec<String>> {
    let mut words = composes(argv)?;
    words.push("--resolve".to_owned());
    Some(words)
}

/// The same with interpolations unresolved: their values may differ at each start, or be secret.
pub(crate) fn composes(argv: &[String]) -> Option<Vec<String>> {
    let (_, at) = command::entry(argv)?;
    let named = argv.get(at.checked_sub(1)?)?;
    let mut words = match named.ends_with(".py") {
        true => vec![named.clone()],
        false => vec!["-m".to_owned(), named.clone()],
    };
    words.extend(argv.iter().skip(at).cloned());
    words.extend(["--cfg", "job"].map(str::to_owned));
    Some(words)
}

/// The call of a launch with our additions, and as the user wrote it.
///
/// # Errors
/// Why our additions do not fit the learned call.
pub fn calls(spec: &RunSpec, plan: &LaunchPlan) -> Result<(Vec<String>, Vec<String>), String> {
    if let (Some(learnt), Some(order)) = (&spec.learnt, &plan.call) {
        let plain = CallOrder {
            ours: Vec::new(),
            ..call::call_order(learnt, &[])
        };
        let filled = |order: &CallOrder| call::fill(&learnt.command, order, false).map(|filled| filled.words);
        return Ok((filled(order)?, filled(&plain)?));
    }
    let config = spec.config_file.as_ref().map(|p| p.as_str());
    Ok((plan.argv.clone(), command::fill(&spec.command, &[], config)))
}

/// Returns true if an override sets this key.
#[must_use]
pub fn sets(overrides: &[String], key: &str) -> bool {
    overrides.iter().any(|o| command::override_key(o) == key)
}

/// Overrides missing in the printed configuration, as text; `None`: none was printed.
#[must_use]
pub fn differences(overrides: &[String], printed: &str) -> Option<Vec<String>> {
    let tree = configuration(printed)?;
    let changes: Vec<hydra::HydraOverride> = overrides.iter().filter_map(|o| hydra::parse(o).ok()).collect();
    // The last override of a key wins.
    let counts =
        |(n, change): &(usize, &hydra::HydraOverride)| changes[n + 1..].iter().all(|later| later.key != change.key);
    let told = changes
        .iter()
        .enumerate()
        .filter(counts)
        .filter_map(|(_, change)| difference(&tree, change));
    Some(told.take(TOLD).collect())
}

fn difference(tree: &ConfigTree, change: &hydra::HydraOverride) -> Option<String> {
    let key = &change.key;
    let is_group = change.package.is_some() || key.contains('/') || GROUPS.contains(&key.as_str());
    if is_group || key == "hydra" || key.starts_with("hydra.") {
        return None;
    }
    let found = tree.get(key).map(|node| &node.value);
    // The text is stored: it must not contain a value that may be secret.
    let text = match change.text.split_once('=') {
        Some((name, value)) => format!("{name}={}", redact(key, value)),
        None => supervise_config::redact_text(&change.text),
    };
    match (change.action, &change.value, found) {
        (OverrideAction::Delete, _, Some(_)) => Some(format!("`{text}`: it is still there")),
        (OverrideAction::Delete, _, None) => None,
        (_, Some(_), None) => Some(format!("`{text}`: the composed configuration has no such key")),
        (_, Some(wanted), Some(found)) if !is_same(wanted, found) => Some(format!(
            "`{text}`: the composed configuration has {}",
            redact(key, &python_str(found))
        )),
        _ => None,
    }
}

/// A mapping may hold more than was set, and interpolations are printed resolved.
fn is_same(wanted: &ConfigValue, found: &ConfigValue) -> bool {
    match (wanted, found) {
        (ConfigValue::Map(_), _) => true,
        _ if wanted.is_interpolation() => true,
        (ConfigValue::Float(_) | ConfigValue::Int(_), ConfigValue::Float(_) | ConfigValue::Int(_)) => {
            python_str(wanted).parse::<f64>().ok() == python_str(found).parse::<f64>().ok()
        }
        _ => python_str(wanted) == python_str(found),
    }
}

/// Finds the configuration in the output, after anything that modules printed.
#[must_use]
pub fn configuration(printed: &str) -> Option<ConfigTree> {
    beginnings(printed).find_map(parsed)
}

fn beginnings(printed: &str) -> impl Iterator<Item = &str> {
    let lines = std::iter::once(0).chain(printed.match_indices('\n').map(|(at, _)| at + 1));
    let texts = lines.filter_map(|at| printed.get(at..)).take(NOISE);
    let may_be = |text: &&str| text.len() <= LONGEST && begins(text);
    texts.filter(may_be).take(ATTEMPTS)
}

/// Returns true if a mapping may begin here, with a name and a colon.
fn begins(text: &str) -> bool {
    let name = text.trim_start_matches(|c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.'));
    name.len() < text.len() && (name.starts_with(": ") || name.starts_with(":\n"))
}

/// Parses a configuration as printed or stored.
#[must_use]
pub fn parsed(text: &str) -> Option<ConfigTree> {
    let node = parse_trainer_yaml(text, "printed").ok()?;
    let is_one = node.child("trainer").is_some_and(|t| t.as_map().is_some());
    is_one.then(|| ConfigTree::new(node))
}

/// The last error, by its first line, skipping Hydra's advice on full errors, its indented lists and OmegaConf's
/// location lines.
#[must_use]
pub fn last_complaint(errors: &str) -> &str {
    let added = [
        "Set the environment variable HYDRA_FULL_ERROR",
        "full_key: ",
        "object_type=",
        "reference_type=",
    ];
    let lines = || errors.lines().rev().filter(|line| !line.trim().is_empty());
    let mut is_below = false;
    for line in lines() {
        let is_indented = line.starts_with([' ', '\t']);
        let heads_list = is_below && line.ends_with(':');
        if !is_indented && !heads_list && !added.iter().any(|a| line.starts_with(a)) {
            return line.trim();
        }
        is_below = is_indented;
    }
    lines().next().unwrap_or_default().trim()
}

/// The key that Hydra rejects as unknown, from the end of its error output.
#[must_use]
pub fn refused_key(errors: &str) -> Option<&str> {
    let starts = [
        "Could not override '",
        "Could not append to config. An item is already at '",
        "Could not delete from config. '",
        "Error parsing override '",
    ];
    errors
        .lines()
        .rev()
        .find_map(|line| starts.iter().find_map(|s| line.trim().strip_prefix(s)))
        .and_then(|rest| rest.split('\'').next())
        .map(command::override_key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn an_entry_point_is_asked_for_its_configuration() {
        let asked = |text: &str| rehearsed(&words(text)).map(|w| w.join(" "));
        assert_eq!(
            asked("torchrun --nproc-per-node 8 -m verl.trainer.sft_trainer a=1 b=2").as_deref(),
            Some("-m verl.trainer.sft_trainer a=1 b=2 --cfg job --resolve")
        );
        assert_eq!(
            asked("python3 -u verl/trainer/main_ppo.py --config-name=x a=1").as_deref(),
            Some("verl/trainer/main_ppo.py --config-name=x a=1 --cfg job --resolve")
        );
        assert_eq!(asked("bash run.sh a=1"), None);
    }

    #[test]
    fn what_was_not_taken_is_told() {
        let printed =
            "WARNING: noise: here\nnoise\ntrainer:\n  n: 5\n  lr: 1.0e-06\n  path: /a b\n  list:\n  - x\n  - y\n";
        let fits = [
            "trainer.n=3",
            "trainer.n=5",
            "++trainer.lr=1e-6",
            "trainer.path='/a b'",
            "trainer.list=['x','y']",
            "~gone",
        ];
        assert_eq!(differences(&fits.map(str::to_owned), printed), Some(Vec::new()));
        let not = [
            "trainer.n=6",
            "trainer.new=1",
            "~trainer.path",
            "optim=x",
            "hydra.run.dir=x",
        ];
        let told = differences(&not.map(str::to_owned), printed).unwrap();
        assert_eq!(told.len(), 3, "{told:?}");
        assert!(told[0].contains("has 5") && told[1].contains("no such key") && told[2].contains("still there"));
        assert_eq!(differences(&[], "no configuration\nat all\n"), None);
        assert_eq!(differences(&[], "trainer: {n: [1\n"), None);
    }

    #[test]
    fn much_noise_is_not_read_for_ever() {
        let answer = "trainer:\n  n: 5\n";
        let lines = "INFO 11-23 said: something\nWARNING [x]: y\n".repeat(200);
        assert!(configuration(&(lines + answer)).is_some());
        let many: String = (0..5000).map(|n| format!("key_{n}: 1\n")).collect::<String>() + "]\n";
        assert_eq!(beginnings(&many).count(), ATTEMPTS);
        assert!(configuration(&many).is_none());
        assert!(configuration(&(answer.to_owned() + &"# long\n".repeat(200_000))).is_none());
    }

    #[test]
    fn the_refused_key_is_named() {
        let errors = "noise\nCould not override 'trainer.nope'.\nTo append to your config use +trainer.nope=1\n";
        assert_eq!(refused_key(errors), Some("trainer.nope"));
        assert_eq!(refused_key("ModuleNotFoundError: no ray"), None);
        let advice = "Cannot find primary config\nSet the environment variable HYDRA_FULL_ERROR=1 for more\n\n";
        assert_eq!(last_complaint(advice), "Cannot find primary config");
        let places = "Cannot find primary config 'nope'. Check that it's in your config search path.\n\nConfig search path:\n\t\
                      provider=hydra, path=pkg://hydra.conf\n\tprovider=schema, path=structured://\n";
        assert!(last_complaint(places).starts_with("Cannot find primary config 'nope'"));
        for (errors, first) in [
            (
                "Traceback (most recent call last):\n  File \"a.py\", line 1\nomegaconf.errors.ConfigKeyError: Key '--cfg' not in 'Config'\n    \
                 full_key: --cfg\n    object_type=Config\n",
                "omegaconf.errors.ConfigKeyError: Key '--cfg' not in 'Config'",
            ),
            (
                "In 'ppo_trainer': Could not find 'actor/x'\n\nAvailable options in 'actor':\n\tdp_actor\n\nConfig search path:\n\tprovider=hydra\n",
                "In 'ppo_trainer': Could not find 'actor/x'",
            ),
            (
                "Key 'x' is not in struct\nfull_key: x\nobject_type=dict\n",
                "Key 'x' is not in struct",
            ),
            ("  only this\n", "only this"),
            ("ValueError: why\nand more:\n", "and more:"),
            ("", ""),
        ] {
            assert_eq!(last_complaint(errors), first, "{errors}");
        }
    }
}
