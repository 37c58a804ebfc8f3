//! Reads a run's configuration from its command and YAML: `TrainingArguments`, whichever program takes them.

use super::HF;
use super::arguments::TrainingArguments;
use super::arrange::RESUME_ONLY_MODEL;
use super::call;
use super::names::{self, HfRootName};
use super::program::{self, KnownProgram};
use super::ranks::{self, LaunchFacts};
use super::saving::Saving;
use crate::adapter::AdapterPayload;
use crate::command;
use crate::kit::{MetricsTool, home_path};
use crate::read::{ReadInput, ReadOutput};
use camino::Utf8PathBuf;
use supervise_config::{ConfigError, ConfigNode, ConfigValue, ErrorKind};
use supervise_core::checkpoint::{Finding, StateKind};
use supervise_core::id::Step;
use supervise_core::spec::{GangSpec, ResumeIntent};

const REPORT_TO: &str = "report_to";
const ADD_VERSION: &str = "add_version";

fn trackers(said: &TrainingArguments, input: &ReadInput<'_>) -> Vec<MetricsTool> {
    let mut names: Vec<&str> = said.text(REPORT_TO).into_iter().collect();
    let list = input
        .composed
        .and_then(|c| c.tree.get(REPORT_TO))
        .map(|node| &node.value);
    if let Some(ConfigValue::List(items)) = list {
        names.extend(items.iter().filter_map(ConfigNode::as_str));
    }
    let flag = input
        .command
        .iter()
        .position(|word| word.trim_start_matches('-') == REPORT_TO);
    let behind = input
        .command
        .iter()
        .skip(flag.map_or(usize::MAX, |at| at.saturating_add(1)));
    names.extend(behind.take_while(|word| !word.starts_with('-')).map(String::as_str));
    let mut out: Vec<MetricsTool> = Vec::new();
    // All that are installed.
    if names.contains(&"all") {
        names = vec!["wandb", "swanlab"];
    }
    for tracker in names.into_iter().filter_map(MetricsTool::of) {
        if !out.contains(&tracker) {
            out.push(tracker);
        }
    }
    out
}

pub(crate) fn read(input: &ReadInput<'_>) -> Result<ReadOutput, Vec<ConfigError>> {
    let said = TrainingArguments::of(input);
    let mut out = ReadOutput::blank(HF);
    if let Some(composed) = input.composed {
        out.tree = composed.tree.clone();
    }
    out.command = named(input);
    out.facts.settings = input.set.to_vec();
    out.facts.trackers = trackers(&said, input);
    out.name = said.text("run_name").map(str::to_owned);
    let mut wrong = Vec::new();
    out.root = output_dir(&said, input).map_err(|e| wrong.push(e)).unwrap_or_default();
    wrong.extend(versions(&said, input).err());
    wrong.extend(cannot_resume(&said, input).err());
    let style = call::style(input.command);
    let told = style != call::ArgStyle::None || input.composed.is_some();
    let saving = match program::is(input.command, KnownProgram::Axolotl) {
        true => Saving::of_axolotl(&said),
        false => Saving::of(&said, told),
    };
    out.cadence.every = saving.every();
    out.facts.own = AdapterPayload::new(saving);
    out.last_step = said.number("max_steps").map(Step);
    // The best step may be an old one, and must be retained.
    let keeps_best = said.is("load_best_model_at_end");
    out.keep = said
        .number("save_total_limit")
        .and_then(|n| u32::try_from(n).ok())
        .filter(|_| !keeps_best);
    // A save on demand also stops the training, which does not finish it.
    let on_demand = said.is("enable_jit_checkpoint");
    out.has_tail = true;
    out.may_end_early = !on_demand;
    out.saves_at_stop = on_demand;
    out.facts.keep = out
        .keep
        .map(|n| ("save_total_limit".to_owned(), n))
        .into_iter()
        .collect();
    out.world = ranks::world(LaunchFacts {
        words: input.command,
        said: &|key| said.text(key).map(str::to_owned),
        env: input.env,
        file: &|name| (input.file)(&input.cwd.join(name)),
    });
    if let Some(workers) = input.workers {
        out.gang = GangSpec::ranks(workers);
        out.world = Some(workers);
    }
    match resume(&said, input) {
        Ok(wish) => out.resume = wish,
        Err(e) => wrong.push(e),
    }
    if !wrong.is_empty() {
        return Err(wrong);
    }
    if said.is("ignore_data_skip") {
        out.not_restored.push(StateKind::DataOrder);
    }
    // If set in a file, it cannot be disabled for a resume.
    if said.is(RESUME_ONLY_MODEL) && !call::settings(input.command).contains_key(RESUME_ONLY_MODEL) {
        out.not_restored
            .extend([StateKind::Optimizer, StateKind::LrSchedule, StateKind::Rng]);
    }
    out.findings = findings(&said, &out, style);
    if style == call::ArgStyle::None && !input.set.is_empty() {
        let keys: Vec<&str> = input.set.iter().filter_map(|said| said.split('=').next()).collect();
        let detail = format!(
            "{} of --set: told, not passed on, for the command shows no flags of TrainingArguments; it is believed that the script does so by itself",
            keys.join(", ")
        );
        out.findings.push(Finding::warning("told_not_passed_on", detail));
    }
    if input.kind.is_none() && call::is_called_by_flags(input.command) {
        out.findings.push(Finding::note(
            "known_by_flags",
            "the command's flags alone say that it is Hugging Face's Trainer: where it is not, give --set supervisor.trainer=plain",
        ));
    }
    Ok(out)
}

/// The command with a placeholder for the YAML, which may be replaced by a copy.
fn named(input: &ReadInput<'_>) -> Vec<String> {
    let named = call::configs_in(input.command).into_iter();
    let is_it = |word: &String| Some(input.cwd.join(word).as_path()) == input.config_file;
    let file = input.composed.and_then(|_| {
        let own = call::config_in(input.command);
        own.or_else(|| named.clone().find(is_it))
    });
    let marked = |word: &String| match &file {
        Some(file) if word == file => command::CONFIG.to_owned(),
        Some(file) => match word.strip_suffix(file.as_str()).filter(|head| head.ends_with('=')) {
            Some(head) => format!("{head}{}", command::CONFIG),
            None => word.clone(),
        },
        None => word.clone(),
    };
    input.command.iter().map(marked).collect()
}

/// A path is a request for the first start; `True` is what the supervisor does anyway.
fn resume(said: &TrainingArguments, input: &ReadInput<'_>) -> Result<ResumeIntent, ConfigError> {
    let wish = said.text(call::RESUME).filter(|_| input.recovery);
    let Some(text) = wish.filter(|text| !matches!(text.to_lowercase().as_str(), "true" | "false")) else {
        return Ok(ResumeIntent::Auto);
    };
    let path = input.cwd.join(text);
    match path.file_name().map(names::root_name) {
        Some(HfRootName::Step(step)) => Ok(ResumeIntent::Path { path, step }),
        _ => Err(refused(
            call::RESUME,
            format!(
                "{text} is not named checkpoint-N: of what step it is, and whether a newer one is to go before it, is not known"
            ),
            "move or rename it to checkpoint-N, N being the global_step in its trainer_state.json; or remove resume_from_checkpoint: the newest proven step is found without it",
        )),
    }
}

/// The output directory as the trainer resolves it: `~` is the home directory.
fn output_dir(said: &TrainingArguments, input: &ReadInput<'_>) -> Result<Option<Utf8PathBuf>, ConfigError> {
    let default = || default_dir(input.command);
    let Some(text) = said.text(call::OUTPUT_DIR).or_else(default) else {
        return Ok(None);
    };
    match home_path(input.cwd, input.env, text) {
        Some(path) => Ok(Some(path)),
        None => Err(refused(
            call::OUTPUT_DIR,
            format!("the home directory that {text} begins with is not known"),
            "write the whole path",
        )),
    }
}

fn default_dir(command: &[String]) -> Option<&'static str> {
    match program::program(command)?.program {
        KnownProgram::Trl => Some("trainer_output"),
        KnownProgram::Axolotl => Some("./model-out"),
        KnownProgram::Swift | KnownProgram::LlamaFactory => None,
    }
}

/// Programs that always start fresh, whatever they have saved: refused before the first launch, not after the first
/// crash.
fn cannot_resume(said: &TrainingArguments, input: &ReadInput<'_>) -> Result<(), ConfigError> {
    let found = program::program(input.command).filter(|_| input.recovery);
    let once = "or run it once, without relaunches: --no-recovery";
    match found.map(|found| found.program) {
        Some(KnownProgram::Axolotl) if !said.is("auto_resume_from_checkpoints") => Err(refused(
            "auto_resume_from_checkpoints",
            "axolotl looks for its checkpoints only if auto_resume_from_checkpoints is true: a relaunch would begin anew and write over them"
                .to_owned(),
            &format!("set auto_resume_from_checkpoints: true in its YAML, {once}"),
        )),
        Some(KnownProgram::LlamaFactory) if is_value_head(said) => {
            let stage = said.text("stage").unwrap_or_default();
            Err(refused(
                "stage",
                format!("LLaMA-Factory cannot resume stage {stage} with finetuning_type full: it does not find the value head in its own checkpoint"),
                &format!("set finetuning_type: lora, {once}"),
            ))
        }
        _ => Ok(()),
    }
}

fn is_value_head(said: &TrainingArguments) -> bool {
    let full = said.text("finetuning_type") == Some("full");
    full && matches!(said.text("stage"), Some("rm" | "ppo"))
}

/// ms-swift creates a new directory at every start unless configured not to.
fn versions(said: &TrainingArguments, input: &ReadInput<'_>) -> Result<(), ConfigError> {
    let is_off = |text: &str| matches!(text.to_lowercase().as_str(), "false" | "no" | "f" | "n" | "0");
    if !input.recovery || !program::is(input.command, KnownProgram::Swift) || said.text(ADD_VERSION).is_some_and(is_off)
    {
        return Ok(());
    }
    Err(refused(
        ADD_VERSION,
        "ms-swift saves into a new directory, output_dir/v0-TIME, at every start: no start would find what the one before saved".to_owned(),
        "add --add_version false",
    ))
}

fn refused(key: &str, message: String, hint: &str) -> ConfigError {
    ConfigError::new(ErrorKind::BadValue, message)
        .with_key(key)
        .with_hint(hint)
}

fn findings(said: &TrainingArguments, out: &ReadOutput, style: call::ArgStyle) -> Vec<Finding> {
    let mut found = Vec::new();
    if said.is("save_only_model") {
        found.push(Finding::warning(
            "save_only_model",
            "save_only_model: steps hold no optimizer and no schedule; a resume begins both anew, and is refused unless degraded_resume allows it",
        ));
    }
    if said.is(call::PUSH_TO_HUB) {
        found.push(Finding::warning(
            "hub_upload",
            "push_to_hub uploads output_dir. In a Python that supervise starts by these flags, or by none, it leaves .supervise out; a script, a container or a YAML with this switch uploads the workers' output and command lines with it: upload after the run instead (hf upload REPO DIR --exclude '.supervise/*')",
        ));
    }
    if out.saves_at_stop {
        found.push(Finding::warning(
            "saves_at_stop",
            "enable_jit_checkpoint: at SIGTERM each rank saves by itself, 3 s later and in the middle of a step; a rank that hears it later than another may hang, and the step it leaves may not be whole: the run then goes on from an older one",
        ));
    }
    if out.facts.own.get() == Some(&Saving::Never) {
        found.push(Finding::warning(
            "no_saves",
            "save_strategy is no: nothing is saved, and a crash costs the whole run",
        ));
    }
    if style == call::ArgStyle::None && out.root.is_none() {
        found.push(Finding::note(
            "resumes_by_itself",
            "the command shows no flags of TrainingArguments: it is started as it is written, the newest proven step is left as the newest in the output directory, and the script has to resume from it (resume_from_checkpoint=True)",
        ));
    }
    found
}
