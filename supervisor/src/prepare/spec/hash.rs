//! The hash that makes a configuration another one.

use crate::path_access;
use crate::prepare::discovery::DiscoveredCommand;
use supervise_config::settings::DegradedResume;
use supervise_core::id::fnv64;
use supervise_trainers::read::ReadOutput;
use supervise_trainers::started_file::started_file;

/// Bytes of a script that count.
const SCRIPT: u64 = 1 << 20;

/// A hash over what the trainer is given, which release of it that is, and whom we trust: another one resets
/// remembered failures.
pub(super) fn config_hash(out: &ReadOutput, d: &DiscoveredCommand, version: Option<&str>) -> u64 {
    let mut text = version.map_or_else(String::new, |v| format!("version {v}\0"));
    for (path, node) in out.tree.leaves() {
        text.push_str(&path);
        text.push('\0');
        let value = supervise_config::python_str(&node.value);
        // What a script says is known without its secrets alone where it is read back.
        text.push_str(&match d.learnt {
            Some(_) => supervise_config::redact(&path, &value),
            None => value,
        });
        text.push('\n');
    }
    let script = d.learnt.iter().flat_map(|_| &d.sources.command);
    let command = match d.learnt {
        Some(_) => supervise_config::redact_call(&out.command),
        None => out.command.clone(),
    };
    for word in command.iter().chain(script) {
        text.push_str(word);
        text.push('\0');
    }
    // A script that tells nothing by its words may plan more steps now.
    if d.learnt.is_none() && out.root.is_none() {
        let file = started_file(&out.command).map(|f| d.sources.cwd.join(f.path));
        if let Some(Ok((script, _))) = file.map(|file| path_access::read_small(&file, SCRIPT)) {
            text.push_str(&script);
            text.push('\0');
        }
    }
    for (name, value) in &d.sources.settings.env {
        text.push_str(&format!("{name}={value}\0"));
    }
    // Trust is an answer to a question that ended the run: the next start is not the same again.
    let proof = &d.sources.settings.proof;
    for name in &proof.trust_globals {
        text.push_str(&format!("trust {name}\0"));
    }
    if proof.trust_unsafe {
        text.push_str("trust unsafe\0");
    }
    for user in &proof.trust_owners {
        text.push_str(&format!("trust owner {user}\0"));
    }
    // So is leave to lose a part of the state.
    if d.sources.settings.degraded_resume == DegradedResume::ModelOnly {
        text.push_str("degraded model_only\0");
    }
    fnv64(text.as_bytes())
}
