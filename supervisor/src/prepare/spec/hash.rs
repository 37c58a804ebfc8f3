//! The hash that tells whether a configuration changed.

use crate::path_access;
use crate::prepare::discovery::DiscoveredCommand;
use supervise_config::settings::DegradedResume;
use supervise_core::id::fnv64;
use supervise_trainers::read::ReadOutput;
use supervise_trainers::started_file::started_file;

/// Number of bytes of a script that are hashed.
const SCRIPT: u64 = 1 << 20;

/// Hashes what the trainer is given, its release, and trusted globals: another hash resets remembered failures.
pub(super) fn config_hash(out: &ReadOutput, d: &DiscoveredCommand, version: Option<&str>) -> u64 {
    let mut text = version.map_or_else(String::new, |v| format!("version {v}\0"));
    for (path, node) in out.tree.leaves() {
        text.push_str(&path);
        text.push('\0');
        let value = supervise_config::python_str(&node.value);
        // A stored script call is known only without its secrets.
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
    // A script whose text shows nothing may plan more steps now.
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
    if let Some(found) = &d.sources.declared {
        text.push_str(&format!("declared {}\0", found.declaration.digest()));
    }
    // Trusting a global answers a question that ended the run, so the next start is not the same again.
    let proof = &d.sources.settings.proof;
    for name in &proof.trust_globals {
        text.push_str(&format!("trust {name}\0"));
    }
    if proof.trust_unsafe {
        text.push_str("trust unsafe\0");
    }
    if proof.trust_reported {
        text.push_str("trust reported\0");
    }
    for user in &proof.trust_owners {
        text.push_str(&format!("trust owner {user}\0"));
    }
    // So does permission to lose a part of the state.
    if d.sources.settings.degraded_resume == DegradedResume::ModelOnly {
        text.push_str("degraded model_only\0");
    }
    fnv64(text.as_bytes())
}
