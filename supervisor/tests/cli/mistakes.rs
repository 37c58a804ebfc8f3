//! Typical mistakes at the keyboard, and what the program says about each: `tests/mistakes.md`. `UPDATE_GOLDEN=1` writes it.

use crate::bad_input::PPO;
use crate::docs::top;
use crate::world::{World, copy_fixture};
use std::fs;

/// A mistake: its title, the file `ppo.yaml`, and what was typed.
struct Mistake {
    title: &'static str,
    yaml: String,
    typed: &'static str,
}

fn typed(title: &'static str, typed: &'static str) -> Mistake {
    Mistake {
        title,
        yaml: PPO.to_owned(),
        typed,
    }
}

/// With one line of the file replaced, and looked at with `plan`.
fn written(title: &'static str, line: &str, instead: &str) -> Mistake {
    assert!(PPO.contains(line), "{line}");
    Mistake {
        title,
        yaml: PPO.replace(line, instead),
        typed: "plan ppo.yaml",
    }
}

fn mistakes() -> Vec<Mistake> {
    vec![
        typed("Nothing is typed", ""),
        typed("A run is to be resumed", "run --resume ppo.yaml"),
        typed("A run is to be resumed from a step", "run ppo.yaml --resume-from=120"),
        typed(
            "A start over that nobody can be asked about",
            "run ppo.yaml --fresh --detach --set trainer.save_freq=5",
        ),
        typed("A flag that is almost --fresh", "run ppo.yaml --frash"),
        typed("A flag that is almost --detach", "run ppo.yaml --detatch"),
        typed("A step that is no number", "run ppo.yaml --from abc"),
        typed("A time without a unit", "logs ppo.yaml --since 10"),
        typed("A command of other programs: ps", "ps"),
        typed("A command of other programs: ls", "ls"),
        typed("A command of other programs: list", "list"),
        typed("A command of other programs: start", "start ppo.yaml"),
        typed("A command of other programs: restart", "restart ppo.yaml"),
        typed("A command of other programs: rm", "rm ppo.yaml"),
        typed("A YAML in the place of the command", "ppo.yaml --detach"),
        typed("An override as for Hydra", "plan ppo.yaml trainer.save_freq=20"),
        typed("An override as for Hydra, and no file", "plan trainer.save_freq=20"),
        typed(
            "An override of a key that does not exist",
            "plan ppo.yaml --set trainer.sav_freq=20",
        ),
        typed("A setting without its prefix", "plan ppo.yaml --set retries=7"),
        typed(
            "A setting with a misspelled prefix",
            "plan ppo.yaml --set supervizor.retries=7",
        ),
        typed(
            "A misspelled setting in an override",
            "plan ppo.yaml --set supervisor.retrys=7",
        ),
        written("A misspelled block", "supervisor:", "supervizor:"),
        written("A block with two letters swapped", "supervisor:", "supervisro:"),
        written(
            "A misspelled group of settings",
            "  trainer: verl\n",
            "  trainer: verl\n  backof: {initial: 5s}\n",
        ),
        written(
            "Two mistakes at once",
            "  trainer: verl\n",
            "  trainer: verl\n  retrys: 3\n  proof: {depth: deep}\n",
        ),
        written("A misspelled key of the trainer", "  save_freq: 2\n", "  sav_freq: 2\n"),
        written("A key twice", "  save_freq: 2\n", "  save_freq: 2\n  save_freq: 3\n"),
        written("A list that does not end", "  save_freq: 2\n", "  save_freq: [2\n"),
        written(
            "A character that begins no value",
            "  save_freq: 2\n",
            "  save_freq: @two\n",
        ),
        written(
            "A mistake in a line with a secret, which is not shown",
            "  trainer: verl\n",
            "  trainer: verl\n  wandb_api_key: hush-hush\n",
        ),
    ]
}

#[test]
fn a_key_of_the_trainer_is_not_mistaken_for_the_block() {
    for (key, code) in [
        ("supervision: {weight: 0.1}", 0),
        ("supervised: {trainer: x, epochs: 2}", 0),
        ("supervisors: 3", 0),
        ("supervizor: {retries: 3}", 0),
    ] {
        let world = World::new();
        world.write("ppo.yaml", &format!("{PPO}{key}\n"));
        let said = world.run(&["plan", "ppo.yaml"]);
        assert_eq!(said.code, code, "{key}: {said:#?}");
    }
    let without = PPO.replace("supervisor:", "supervision:");
    let world = World::new();
    world.write("ppo.yaml", &format!("{without}  weight: 1\n"));
    let said = world.run(&["plan", "ppo.yaml", "--", "/bin/true"]);
    assert!(!said.err.contains("supervision"), "{said:#?}");
}

#[test]
fn an_excerpt_is_for_people_and_without_colors_in_a_pipe() {
    let world = World::new();
    world.write("ppo.yaml", &format!("{PPO}  retrys: 3\n"));
    let said = world.run(&["plan", "ppo.yaml"]);
    said.refuses(78, &["11 |   retrys: 3\n   |   ^^^^^^\n"]);
    assert!(!said.err.contains('\x1b'), "{said:#?}");
    let said = world.run(&["--color", "always", "plan", "ppo.yaml"]);
    said.refuses(78, &["\x1b[1;31m   |   ^^^^^^\x1b[0m\n"]);
    let said = world.run(&["plan", "ppo.yaml", "--json"]);
    assert!(!said.err.contains("^^^"), "{said:#?}");
}

#[test]
fn every_mistake_is_explained() {
    let mut page = "# Mistakes\n\nWhat the program says about typical mistakes. A test compares it.\n".to_owned();
    for mistake in mistakes() {
        let world = World::new();
        copy_fixture("verl_ppo_fsdp2_w2", &world.path("ckpt"));
        world.write("ppo.yaml", &mistake.yaml);
        let args: Vec<&str> = mistake.typed.split_whitespace().collect();
        let said = world.run(&args);
        assert!(!said.err.contains("panicked"), "{said:#?}");
        assert!(
            !world.path("ckpt/.supervise").exists(),
            "something was started: {said:#?}"
        );
        page.push_str(&format!("\n## {}\n\n", mistake.title));
        if mistake.yaml != PPO {
            page.push_str(&format!("```yaml\n{}```\n\n", mistake.yaml));
        }
        let out: String = match said.out.contains("did you mean") {
            // The rest of a plan differs from machine to machine.
            true => said
                .out
                .split_inclusive('\n')
                .filter(|l| l.contains("did you mean"))
                .collect(),
            false => said.out.clone(),
        };
        let text = format!("{out}{}", said.err).replace(world.dir().as_str(), "/home/you");
        page.push_str(&format!(
            "```text\n$ {}\n{text}[exit code {}]\n```\n",
            format!("supervise {}", mistake.typed).trim_end(),
            said.code
        ));
    }
    let golden = top().join("tests/mistakes.md");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        fs::write(&golden, &page).unwrap();
    }
    let kept = fs::read_to_string(&golden).unwrap();
    let different = kept.lines().zip(page.lines()).find(|(kept, new)| kept != new);
    assert!(
        kept == page,
        "read tests/mistakes.md and accept it with UPDATE_GOLDEN=1: {different:?}"
    );
}
