//! A copy of the YAML without our block, for a trainer that rejects unknown keys.

use crate::error::CliError;
use crate::prepare::discovery::DiscoveredCommand;
use crate::prepare::sources::read_if_there;
use crate::run_order::ConfigCopy;
use camino::Utf8Path;
use supervise_config::without_block;
use supervise_core::id::fnv64;
use supervise_trainers::adapter;
use supervise_trainers::command::CONFIG;
use supervise_trainers::read::ReadOutput;

/// The copy for this run, if its file has a block of ours; the command then names it.
pub(super) fn copy(
    d: &DiscoveredCommand,
    out: &ReadOutput,
    run_dir: &Utf8Path,
    command: &mut [String],
) -> Result<Option<ConfigCopy>, CliError> {
    let (Some(file), Some(composed)) = (&d.sources.file, &d.sources.composed) else {
        return Ok(None);
    };
    let trainer = adapter(out.kind);
    if !trainer.refuses_block() || !d.sources.has_block {
        return Ok(None);
    }
    if composed.layers.len() > 1 {
        return Err(CliError::config(format!(
            "{file}: {} refuses the block `supervisor`, and a copy without it would not find what `defaults` names beside the file",
            trainer.words().name
        ))
        .hint("put the block's content into supervise.yaml beside the file"));
    }
    let text = read_if_there(file)?.unwrap_or_default();
    let text = without_block(&text, "supervisor", file.as_str())?;
    let copy = ConfigCopy {
        dir: run_dir.join("config"),
        name: format!("{:016x}.yaml", fnv64(text.as_bytes())),
        text,
    };
    let path = copy.path();
    for word in command.iter_mut() {
        *word = word.replace(CONFIG, path.as_str());
    }
    Ok(Some(copy))
}
