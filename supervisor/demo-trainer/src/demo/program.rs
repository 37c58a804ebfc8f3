//! The demo trainer as a program: one rank of a gang.
//!
//! ```text
//! --config demo.yaml [key=value | +key=value | ++key=value | ~key]…
//! ```

use std::io::Write as _;

use super::failure::Failure;
use super::gang::Place;
use super::settings::Settings;
use super::trainer;

/// Trains as the arguments and the environment say. Returns the exit code.
pub fn run(arguments: &[String]) -> u8 {
    let Err((code, report)) = start(arguments) else {
        return 0;
    };
    let _ = std::io::stderr().write_all(report.as_bytes());
    code
}

fn start(arguments: &[String]) -> Result<(), (u8, String)> {
    let usage = |text: String| (1, format!("{text}\n"));
    let (config, overrides) = split(arguments).map_err(usage)?;
    let cwd = std::env::current_dir().map_err(|e| usage(e.to_string()))?;
    let yaml = match &config {
        Some(path) => Some(
            std::fs::read_to_string(path).map_err(|e| usage(format!("Cannot find primary config '{path}': {e}")))?,
        ),
        None => None,
    };
    let settings = Settings::read(yaml.as_deref(), &overrides, &cwd).map_err(usage)?;
    let place = place(&settings).map_err(usage)?;
    trainer::train(&settings, &place, &cwd).map_err(|failure: Failure| (failure.exit_code(), failure.report()))
}

fn split(arguments: &[String]) -> Result<(Option<String>, Vec<String>), String> {
    let mut config = None;
    let mut overrides = Vec::new();
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        if argument == "--config" {
            config = Some(rest.next().ok_or("--config needs a file")?.clone());
        } else if let Some(path) = argument.strip_prefix("--config=") {
            config = Some(path.to_owned());
        } else {
            overrides.push(argument.clone());
        }
    }
    Ok((config, overrides))
}

/// A process without a gang in its environment is a gang of one only where one is wanted.
fn place(settings: &Settings) -> Result<Place, String> {
    let number = |name: &str, default: usize| match std::env::var(name) {
        Ok(text) => text.parse().map_err(|_| format!("{name}={text} is not a number")),
        Err(_) => Ok(default),
    };
    let address = std::env::var("MASTER_ADDR").unwrap_or_else(|_| "127.0.0.1".to_owned());
    let place = Place {
        rank: number("RANK", 0)?,
        world: number("WORLD_SIZE", 1)?,
        address: format!("{address}:{}", number("MASTER_PORT", 29500)?),
        token: std::env::var("SUPERVISE_ATTEMPT").unwrap_or_default(),
    };
    if place.rank >= place.world || place.world > settings.world.max(place.world).min(256) {
        return Err(format!("rank {} of {} makes no sense", place.rank, place.world));
    }
    Ok(place)
}
