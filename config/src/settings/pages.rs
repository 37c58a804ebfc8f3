//! Renders the settings for users and editors: a commented defaults file, a page, a JSON Schema.

use serde_json::{Map, Value, json};

use super::schema::{SettingKind, SettingRow, below, top, words};

const WHERE: &str = "\
Copy what you want to change into one of these, later ones win:
  /etc/supervise/config.yaml
  $XDG_CONFIG_HOME/supervise/config.yaml
  supervise.yaml beside the trainer's YAML, or the files that `--settings FILE` names instead
  a `supervisor:` block in the trainer's YAML
  environment variables: SUPERVISE_RETRIES=3, SUPERVISE_GRACE__STOP=45s (two underscores for a dot)
  flags of the command line: --set supervisor.grace.stop=45s
`supervise config show` prints every value and where it came from.

Settings name programs. A file that nobody named on the command line is read only if it belongs to you or root and nobody else may
write it: otherwise nothing starts, and the error says the command that accepts it. One that its group may write is read and told
of, but refused for root. `run` and `plan` list the files that were read.

Durations have units: 90s, 5m, 1h30m, 250ms. Sizes have units: 256MiB, 2GB.
";

const EDITORS: &str = "\
An editor with a YAML language server checks and completes a settings file after `supervise config schema > supervise.schema.json`, where
the file begins with this line:

```yaml
# yaml-language-server: $schema=supervise.schema.json
```
";

/// Renders the settings as YAML, each with its comment and its default. This is also the lowest layer.
pub fn defaults_yaml(trainers: &[&'static str]) -> String {
    let head = format!("The supervisor's settings, each with its default.\n\n{WHERE}");
    let mut out = format!("# {}", head.trim_end().replace('\n', "\n# ")).replace("# \n", "#\n") + "\n";
    for row in top() {
        out.push('\n');
        yaml_row(row, "", trainers, &mut out);
    }
    out
}

fn yaml_row(row: &SettingRow, indent: &str, trainers: &[&'static str], out: &mut String) {
    for line in about(row, trainers) {
        out.push_str(&format!("{indent}# {line}\n"));
    }
    out.push_str(format!("{indent}{}: {}", row.name, row.default).trim_end());
    out.push('\n');
    for inner in below(row.kind) {
        yaml_row(inner, "  ", trainers, out);
    }
}

/// The lines of a comment, and one line for each allowed word.
fn about(row: &SettingRow, trainers: &[&'static str]) -> Vec<String> {
    let lines = row.doc.iter().map(|line| line.trim().to_owned());
    let words = match row.kind {
        SettingKind::FailureLines(_) => Vec::new(),
        kind => words(kind, trainers),
    };
    let words = words.iter().map(|(word, meaning)| match *meaning {
        "" => format!("- `{word}`"),
        meaning => format!("- `{word}`: {}", meaning.trim()),
    });
    lines.chain(words).collect()
}

/// Renders the settings as Markdown.
pub fn settings_md(trainers: &[&'static str]) -> String {
    let mut out = format!("# Settings\n\n```text\n{WHERE}```\n\n{EDITORS}");
    for row in top() {
        md_row(row, "", trainers, &mut out);
    }
    out
}

fn md_row(row: &SettingRow, group: &str, trainers: &[&'static str], out: &mut String) {
    let key = format!("{group}{}", row.name);
    let heading = if group.is_empty() { "##" } else { "###" };
    out.push_str(&format!("\n{heading} `{key}`\n\n"));
    if !matches!(row.kind, SettingKind::Group(_)) {
        out.push_str(&format!("{}, default `{}`.\n", form(row.kind, trainers).0, row.default));
    }
    out.push_str(&about(row, trainers).join("\n"));
    out.push('\n');
    for inner in below(row.kind) {
        md_row(inner, &format!("{key}."), trainers, out);
    }
}

/// Renders the JSON Schema of a settings file (draft 2020-12). It accepts slightly more than the checks do: `1m1h` is rejected later.
pub fn json_schema(trainers: &[&'static str]) -> Value {
    let mut schema =
        json!({"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Settings of supervise"});
    if let Value::Object(schema) = &mut schema {
        schema.extend(group_schema(top(), trainers));
    }
    schema
}

fn group_schema(rows: &[SettingRow], trainers: &[&'static str]) -> Map<String, Value> {
    let property = |row: &SettingRow| {
        let mut schema = match row.kind {
            SettingKind::Group(rows) => group_schema(rows, trainers),
            kind => match form(kind, trainers).1 {
                Value::Object(schema) => schema,
                _ => Map::new(),
            },
        };
        schema.insert("description".to_owned(), json!(about(row, trainers).join("\n")));
        if !row.default.is_empty() {
            let default = serde_json::from_slice(row.default.as_bytes()).unwrap_or_else(|_| json!(row.default));
            schema.insert("default".to_owned(), default);
        }
        (row.name.to_owned(), Value::Object(schema))
    };
    let properties: Map<String, Value> = rows.iter().map(property).collect();
    Map::from_iter([
        ("type".to_owned(), json!(["object", "null"])),
        ("additionalProperties".to_owned(), json!(false)),
        ("properties".to_owned(), Value::Object(properties)),
    ])
}

/// Describes the form of a setting in words, and as a JSON Schema.
fn form(kind: SettingKind, trainers: &[&'static str]) -> (String, Value) {
    let number = r"[0-9]+(\.[0-9]*)?";
    match kind {
        SettingKind::Bool => ("`true` or `false`".to_owned(), json!({"type": "boolean"})),
        SettingKind::Whole { min, max } => (
            format!("A whole number from {min} to {max}"),
            json!({"type": "integer", "minimum": min, "maximum": max}),
        ),
        SettingKind::OptionalWhole { min, max } => (
            format!("A whole number from {min} to {max}, or `null`"),
            json!({"type": ["integer", "null"], "minimum": min, "maximum": max}),
        ),
        SettingKind::Number { min, max } => (
            format!("A number from {min} to {max}"),
            json!({"type": "number", "minimum": min, "maximum": max}),
        ),
        SettingKind::Duration => (
            "A duration".to_owned(),
            json!({"type": "string", "pattern": format!(r"^\s*({number}(ms|s|m|h|d)\s*)+$")}),
        ),
        SettingKind::OptionalLoss => (
            "A duration of at least `10s`, or `null`".to_owned(),
            json!({"type": ["string", "null"], "pattern": format!(r"^\s*({number}(ms|s|m|h|d)\s*)+$")}),
        ),
        SettingKind::Limit => (
            "A duration, `auto` or `never`".to_owned(),
            json!({"type": "string", "pattern": format!(r"^(auto|never|\s*({number}(ms|s|m|h|d)\s*)+)$")}),
        ),
        SettingKind::Pattern => (
            "A regular expression with one group, or `null`".to_owned(),
            json!({"type": ["string", "null"], "minLength": 1}),
        ),
        SettingKind::Size => (
            "A size".to_owned(),
            json!({"type": "string", "pattern": format!(r"^\s*{number}\s*([KMGTkmgt][Ii]?)?[Bb]\s*$")}),
        ),
        SettingKind::OptionalSize => (
            "A size, or `null`".to_owned(),
            json!({"type": ["string", "null"], "pattern": format!(r"^\s*{number}\s*([KMGTkmgt][Ii]?)?[Bb]\s*$")}),
        ),
        SettingKind::Choice(_) | SettingKind::Trainer => {
            let words: Vec<&str> = words(kind, trainers).into_iter().map(|(word, _)| word).collect();
            ("One word".to_owned(), json!({"enum": words}))
        }
        SettingKind::Choices(_) => {
            let words: Vec<&str> = words(kind, trainers).into_iter().map(|(word, _)| word).collect();
            (
                "A list of words".to_owned(),
                json!({"type": "array", "items": {"enum": words}}),
            )
        }
        SettingKind::OptionalAddress => (
            "An address, or `null`".to_owned(),
            json!({"type": ["string", "null"], "pattern": r"^https?://[^\s]+$"}),
        ),
        SettingKind::OptionalText => (
            "A path, or `null`".to_owned(),
            json!({"type": ["string", "null"], "minLength": 1}),
        ),
        SettingKind::OptionalVersion => (
            "A version in quotes, or `null`".to_owned(),
            json!({"type": ["string", "null"], "pattern": r"^[0-9]+\.[0-9][A-Za-z0-9.+_!-]*$", "maxLength": 64}),
        ),
        SettingKind::Command => (
            "A list of words, one string, or `null`".to_owned(),
            json!({"type": ["string", "array", "null"], "minLength": 1, "items": {"type": "string"}, "minItems": 1}),
        ),
        SettingKind::Gpus => (
            "`auto`, `none` or a list of whole numbers".to_owned(),
            json!({"anyOf": [{"enum": ["auto", "none"]}, {"type": "array", "items": {"type": "integer", "minimum": 0}}]}),
        ),
        SettingKind::Globals => (
            "A list of names".to_owned(),
            json!({"type": "array", "items": {"type": "string", "pattern": r"^(\*|([^\s.*]+\.)+([^\s.*]+|\*))$"}}),
        ),
        SettingKind::Users => (
            "A list of user numbers".to_owned(),
            json!({"type": "array", "items": {"type": "integer", "minimum": 0, "maximum": u32::MAX}}),
        ),
        SettingKind::Variables => (
            "A mapping of names to strings or whole numbers".to_owned(),
            json!({"type": ["object", "null"], "propertyNames": {"pattern": "^[A-Za-z_][A-Za-z0-9_]*$"},
                "additionalProperties": {"type": ["string", "integer"]}}),
        ),
        SettingKind::Answers(_) => {
            let words: Vec<&str> = words(kind, trainers).into_iter().map(|(word, _)| word).collect();
            let word = json!({"enum": words});
            (
                "A mapping of classes or families (`mem.*`) to words".to_owned(),
                json!({"type": ["object", "null"], "additionalProperties": {"anyOf": [word,
                    {"type": "object", "additionalProperties": word}]}}),
            )
        }
        SettingKind::FailureLines(_) => {
            let words: Vec<&str> = words(kind, trainers).into_iter().map(|(word, _)| word).collect();
            let item = json!({"type": "object", "required": ["pattern", "class"], "additionalProperties": false, "properties": {
                "pattern": {"type": "string", "minLength": 1},
                "class": {"type": "string", "pattern": r"^[a-z]+\.[a-z0-9_]+$"},
                "action": {"enum": words},
                "advice": {"type": "string"},
                "costs_retry": {"type": "boolean"},
                "blames_checkpoint": {"type": "boolean"},
                "examples": {"type": "array", "items": {"type": "string"}, "maxItems": 32},
                "lookalikes": {"type": "array", "items": {"type": "string"}, "maxItems": 32}}});
            (
                "A list of patterns with their classes".to_owned(),
                json!({"type": ["array", "null"], "items": item, "maxItems": 32}),
            )
        }
        SettingKind::Group(rows) => (String::new(), Value::Object(group_schema(rows, trainers))),
    }
}
