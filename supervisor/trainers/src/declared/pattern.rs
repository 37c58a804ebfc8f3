//! Names of files and directories with placeholders: `model_{world}_rank_{rank}.pt`.
//!
//! Numbers are canonical (`step-04` is no `step-{step}`), and matching takes bounded time for any pattern and any name.

use std::collections::BTreeMap;

/// Longest pattern, in bytes, and most wildcards in it.
const LONGEST: usize = 200;
const STARS: usize = 4;
/// Comparisons after which a name does not match.
const BUDGET: u32 = 20_000;

/// A number in a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Placeholder {
    Step,
    World,
    Rank,
    Tp,
    Pp,
    Ep,
    Mp,
    N,
}

impl Placeholder {
    pub(super) const ALL: [Self; 8] = [
        Self::Step,
        Self::World,
        Self::Rank,
        Self::Tp,
        Self::Pp,
        Self::Ep,
        Self::Mp,
        Self::N,
    ];

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Step => "step",
            Self::World => "world",
            Self::Rank => "rank",
            Self::Tp => "tp",
            Self::Pp => "pp",
            Self::Ep => "ep",
            Self::Mp => "mp",
            Self::N => "n",
        }
    }
}

/// Numbers of a name by placeholder.
pub(super) type NameNumbers = BTreeMap<Placeholder, u64>;

#[derive(Debug, Clone, PartialEq, Eq)]
enum PatternToken {
    Text(String),
    Number {
        place: Placeholder,
        /// At least so many digits.
        width: usize,
        /// How much less than the number the name says.
        less: u64,
    },
    Role,
    /// Anything within one name.
    Star,
    /// Anything.
    Path,
}

/// Why a text is no pattern, and what to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PatternError {
    pub(super) what: String,
    pub(super) fix: String,
}

fn error<T>(what: impl Into<String>, fix: impl Into<String>) -> Result<T, PatternError> {
    Err(PatternError {
        what: what.into(),
        fix: fix.into(),
    })
}

/// A name with placeholders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct NamePattern {
    text: String,
    tokens: Vec<PatternToken>,
}

/// What is known before a name is compared.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct KnownValues<'a> {
    pub(super) step: Option<u64>,
    pub(super) role: &'a str,
}

impl NamePattern {
    /// Parses a pattern that may use these words in braces.
    pub(super) fn parse(text: &str, words: &[&str]) -> Result<Self, PatternError> {
        if text.len() > LONGEST {
            return error(
                format!("a pattern of {} bytes", text.len()),
                format!("use at most {LONGEST}"),
            );
        }
        check_path(text)?;
        let mut tokens: Vec<PatternToken> = Vec::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '*', '}']) {
            let (before, after) = rest.split_at(at);
            if !before.is_empty() {
                tokens.push(PatternToken::Text(before.to_owned()));
            }
            let (token, left) = token(after, words)?;
            let is_number = |t: &PatternToken| matches!(t, PatternToken::Number { .. });
            if is_number(&token) && tokens.last().is_some_and(is_number) {
                return error(
                    format!("{text}: two numbers without anything between them"),
                    "separate them",
                );
            }
            tokens.push(token);
            rest = left;
        }
        if !rest.is_empty() {
            tokens.push(PatternToken::Text(rest.to_owned()));
        }
        let out = Self {
            text: text.to_owned(),
            tokens,
        };
        out.check()?;
        Ok(out)
    }

    fn check(&self) -> Result<(), PatternError> {
        let is_star = |t: &&PatternToken| matches!(t, PatternToken::Star | PatternToken::Path);
        if self.tokens.iter().filter(is_star).count() > STARS {
            return error(
                format!("{}: more than {STARS} wildcards", self.text),
                "name more of the file",
            );
        }
        let says = |t: &PatternToken| match t {
            PatternToken::Text(text) => text.contains(|c: char| c.is_alphanumeric()),
            PatternToken::Number { .. } => true,
            PatternToken::Role | PatternToken::Star | PatternToken::Path => false,
        };
        if !self.tokens.iter().any(says) {
            return error(
                format!("{} matches every file", self.text),
                "add the part of the name that never changes",
            );
        }
        Ok(())
    }

    pub(super) fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn has_role(&self) -> bool {
        self.tokens.contains(&PatternToken::Role)
    }

    /// The numbers in a name that matches as a whole.
    pub(super) fn find(&self, name: &str, known: KnownValues<'_>) -> Option<NameNumbers> {
        let mut numbers = NameNumbers::new();
        numbers.extend(known.step.map(|step| (Placeholder::Step, step)));
        let mut budget = BUDGET;
        matches(&self.tokens, name, known.role, &mut numbers, &mut budget).then_some(numbers)
    }

    /// The name with these values; `x` stands for what a wildcard matches.
    pub(super) fn fill(&self, numbers: &NameNumbers, role: &str) -> String {
        let mut out = String::new();
        for token in &self.tokens {
            match token {
                PatternToken::Text(text) => out.push_str(text),
                PatternToken::Number { place, width, less } => {
                    let number = numbers.get(place).copied().unwrap_or_default().saturating_sub(*less);
                    out.push_str(&format!("{number:0width$}"));
                }
                PatternToken::Role => out.push_str(role),
                PatternToken::Star | PatternToken::Path => out.push('x'),
            }
        }
        out
    }
}

fn check_path(text: &str) -> Result<(), PatternError> {
    if text.is_empty() {
        return error("an empty name", "name the file");
    }
    if text.starts_with('/') || text.split('/').any(|part| matches!(part, "" | "..")) {
        return error(
            format!("{text} leaves the step"),
            "name the file relative to the step's directory, without `..`",
        );
    }
    if text.split('/').any(|part| part == ".") || text.chars().any(char::is_control) {
        return error(
            format!("{text:?} is no name of a file"),
            "write it without `.` parts and control characters",
        );
    }
    Ok(())
}

/// Parses the token that begins here; returns what follows it.
fn token<'t>(text: &'t str, words: &[&str]) -> Result<(PatternToken, &'t str), PatternError> {
    if let Some(rest) = text.strip_prefix("**") {
        return Ok((PatternToken::Path, rest));
    }
    if let Some(rest) = text.strip_prefix('*') {
        return Ok((PatternToken::Star, rest));
    }
    let Some((inside, rest)) = text.strip_prefix('{').and_then(|t| t.split_once('}')) else {
        return error(
            format!("{text}: a brace without its partner"),
            "write placeholders as {step}",
        );
    };
    if inside == "*" {
        return Ok((PatternToken::Star, rest));
    }
    let (name, width) = match inside.split_once(':') {
        Some((name, width)) => (name, Some(width)),
        None => (inside, None),
    };
    let (name, less) = match name.split_once('-') {
        Some((name, less)) => (name, Some(less)),
        None => (name, None),
    };
    let known: Vec<String> = words.iter().map(|w| format!("{{{w}}}")).collect();
    if !words.contains(&name) {
        let near = super::source::nearest(name, words);
        let fix = near.map_or_else(
            || format!("use {}", known.join(", ")),
            |near| format!("did you mean {{{near}}}?"),
        );
        return error(format!("{{{name}}} is no placeholder here"), fix);
    }
    if name == "role" {
        return Ok((PatternToken::Role, rest));
    }
    let Some(place) = Placeholder::ALL.into_iter().find(|p| p.word() == name) else {
        return error(format!("{{{name}}} is no number"), format!("use {}", known.join(", ")));
    };
    let width = match width {
        None => Some(1),
        Some(width) => width
            .strip_prefix('0')
            .and_then(|w| w.parse().ok())
            .filter(|w| (2..=20).contains(w)),
    };
    let less = less.map_or(Some(0), |less| less.parse().ok().filter(|n| *n <= 1000));
    match (width, less) {
        (Some(width), Some(less)) => Ok((PatternToken::Number { place, width, less }, rest)),
        _ => error(
            format!("{{{inside}}} is no placeholder"),
            "write {step:07} for seven digits, {step-1} for one less",
        ),
    }
}

fn matches(tokens: &[PatternToken], name: &str, role: &str, numbers: &mut NameNumbers, budget: &mut u32) -> bool {
    if *budget == 0 {
        return false;
    }
    *budget -= 1;
    let Some((first, rest)) = tokens.split_first() else {
        return name.is_empty();
    };
    match first {
        PatternToken::Text(text) => name
            .strip_prefix(text.as_str())
            .is_some_and(|left| matches(rest, left, role, numbers, budget)),
        PatternToken::Role => name
            .strip_prefix(role)
            .is_some_and(|left| matches(rest, left, role, numbers, budget)),
        PatternToken::Number { place, width, less } => {
            let end = name.bytes().take_while(u8::is_ascii_digit).count();
            let (digits, left) = name.split_at(end);
            let canonical = digits.len() >= *width && (digits.len() == *width || !digits.starts_with('0'));
            let Some(number) = digits
                .parse::<u64>()
                .ok()
                .filter(|_| canonical)
                .and_then(|n| n.checked_add(*less))
            else {
                return false;
            };
            let before = numbers.get(place).copied();
            if before.is_some_and(|before| before != number) {
                return false;
            }
            numbers.insert(*place, number);
            let found = matches(rest, left, role, numbers, budget);
            if !found && before.is_none() {
                numbers.remove(place);
            }
            found
        }
        PatternToken::Star | PatternToken::Path => {
            let within = match first {
                PatternToken::Star => name.find('/').unwrap_or(name.len()),
                _ => name.len(),
            };
            let ends = name.char_indices().map(|(at, _)| at).chain([name.len()]);
            for end in ends.take_while(|end| *end <= within) {
                if matches(rest, &name[end..], role, numbers, budget) {
                    return true;
                }
            }
            false
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORDS: [&str; 4] = ["step", "world", "rank", "role"];

    fn found(pattern: &str, name: &str) -> Option<Vec<u64>> {
        let known = KnownValues {
            role: "policy",
            ..KnownValues::default()
        };
        let numbers = NamePattern::parse(pattern, &WORDS).unwrap().find(name, known)?;
        Some(numbers.into_values().collect())
    }

    #[test]
    fn a_name_matches_as_a_whole_and_in_canonical_digits() {
        for (pattern, name, numbers) in [
            ("step-{step}", "step-4", Some(vec![4])),
            ("step-{step}", "step-0", Some(vec![0])),
            ("step-{step}", "step-04", None),
            ("step-{step}", "step-4.aside", None),
            ("step-{step}", "step-", None),
            ("step-{step}", "step-99999999999999999999", None),
            ("iter_{step:07}", "iter_0000004", Some(vec![4])),
            ("iter_{step:07}", "iter_12345678", Some(vec![12_345_678])),
            ("iter_{step:07}", "iter_00000004", None),
            ("iter_{step:07}", "iter_4", None),
            ("d_{step-1}.pt", "d_3.pt", Some(vec![4])),
            ("{role}/m_{world}_{rank}.pt", "policy/m_2_1.pt", Some(vec![2, 1])),
            ("{role}/m_{world}_{rank}.pt", "critic/m_2_1.pt", None),
            ("{rank}/m_{rank}.pt", "1/m_1.pt", Some(vec![1])),
            ("{rank}/m_{rank}.pt", "1/m_2.pt", None),
            ("{*}step={step}.ckpt", "epoch=0-step=4.ckpt", Some(vec![4])),
            ("a*.pt", "a/b.pt", None),
            ("a**.pt", "a/b.pt", Some(vec![])),
        ] {
            assert_eq!(found(pattern, name), numbers, "{pattern} and {name}");
        }
    }

    #[test]
    fn what_is_no_pattern_says_what_to_write() {
        for (pattern, fix) in [
            ("", "name the file"),
            ("/etc/passwd", "without `..`"),
            ("../data_{step}.pt", "without `..`"),
            ("a//b", "without `..`"),
            ("./a", "`.` parts"),
            ("a\n", "control characters"),
            ("*", "never changes"),
            ("**", "never changes"),
            ("{role}/**", "never changes"),
            ("a*b*c*d*e*f", "name more"),
            ("{worldsize}.pt", "did you mean {world}?"),
            ("{colour}.pt", "use {step}, {world}, {rank}, {role}"),
            ("{step", "write placeholders"),
            ("step}", "write placeholders"),
            ("{step:7}", "{step:07}"),
            ("{step:099999999999}", "{step:07}"),
            ("{step}{rank}", "separate them"),
        ] {
            let error = NamePattern::parse(pattern, &WORDS).unwrap_err();
            assert!(error.fix.contains(fix), "{pattern}: {error:?}");
        }
        let long = NamePattern::parse(&"a".repeat(201), &WORDS).unwrap_err();
        assert!(long.fix.contains("200"), "{long:?}");
    }

    #[test]
    fn wildcards_take_bounded_time() {
        let pattern = NamePattern::parse("**a**a**a**ab", &WORDS).unwrap();
        assert_eq!(pattern.find(&"a".repeat(4000), KnownValues::default()), None);
    }

    #[test]
    fn a_name_is_filled_as_it_is_read() {
        let pattern = NamePattern::parse("{role}/it_{step:03}_{rank}", &WORDS).unwrap();
        let numbers = NameNumbers::from([(Placeholder::Step, 7), (Placeholder::Rank, 12)]);
        assert_eq!(pattern.fill(&numbers, "policy"), "policy/it_007_12");
    }
}
