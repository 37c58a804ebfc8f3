//! Reads a Python script as text: to learn what a launch script starts, nothing that trains may be run.
//!
//! Guesses from text err in both directions. A script that trains but does not look like it, because another module
//! does the work, runs for as long as `learn_step` allows; one that looks like it but only prepares is named and
//! refused.

use crate::python_command::is_python;
use crate::started_file::started_file;
use std::collections::BTreeSet;

/// Classes that train tokenizers, which is preparation.
const OF_TOKENIZERS: [&str; 4] = ["BpeTrainer", "UnigramTrainer", "WordLevelTrainer", "WordPieceTrainer"];
/// Packages used in training loops that call `backward`, and with models that `fit`.
const LOOPS: [&str; 4] = ["accelerate", "deepspeed", "torch", "unsloth"];
const FITS: [&str; 5] = [
    "keras",
    "lightning",
    "pytorch_lightning",
    "tensorflow",
    "torch_geometric",
];

/// Python source without comments and string contents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlainCode(String);

impl PlainCode {
    /// Strips comments and string contents.
    #[must_use]
    pub fn of(text: &str) -> Self {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(at) = rest.find(['#', '"', '\'']) {
            let (before, after) = rest.split_at(at);
            out.push_str(before);
            rest = match after.starts_with('#') {
                true => after.find('\n').map_or("", |end| after.get(end..).unwrap_or_default()),
                false => {
                    out.push_str("''");
                    behind_string(after)
                }
            };
        }
        out.push_str(rest);
        Self(out)
    }

    /// Returns true if it imports a package or something from it.
    #[must_use]
    pub fn imports(&self, package: &str) -> bool {
        let of = |line: &str| {
            let names = match (line.strip_prefix("import "), line.strip_prefix("from ")) {
                (Some(names), _) => names,
                (None, Some(rest)) => rest.split_whitespace().next().unwrap_or_default(),
                (None, None) => return false,
            };
            names.split(',').any(|name| {
                let name = name.split_whitespace().next().unwrap_or_default();
                name.split('.').next() == Some(package)
            })
        };
        self.0
            .lines()
            .flat_map(|line| line.split(';'))
            .any(|line| of(line.trim_start()))
    }

    /// Returns true if it calls a method of this name.
    #[must_use]
    pub fn calls(&self, method: &str) -> bool {
        let mut parts = self.0.split('.').skip(1);
        parts.any(|part| {
            let part = part.trim_start_matches([' ', '\\', '\n']);
            part.strip_prefix(method)
                .is_some_and(|rest| rest.trim_start().starts_with('('))
        })
    }

    fn names(&self) -> BTreeSet<&str> {
        let ends = |c: char| !(c.is_alphanumeric() || c == '_');
        self.0.split(ends).collect()
    }

    /// Returns true if it names a trainer class and calls `train()`: `SFTTrainer(…).train()`.
    #[must_use]
    pub fn has_trainer(&self) -> bool {
        let is_one = |name: &&str| name.ends_with("Trainer") && !OF_TOKENIZERS.contains(name);
        self.calls("train") && self.names().iter().any(is_one)
    }

    /// Returns true if it has its own training loop, or a model that fits itself.
    #[must_use]
    pub fn has_loop(&self) -> bool {
        let imports = |all: &[&str]| all.iter().any(|package| self.imports(package));
        self.calls("backward") && imports(&LOOPS) || self.calls("fit") && imports(&FITS)
    }
}

/// Where a call's Python code is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CalledCode {
    Text(String),
    /// In one of these files, relative to its working directory; empty if unknown.
    Files(Vec<String>),
}

/// Finds the code that a call starts.
#[must_use]
pub fn called_code(call: &[String]) -> CalledCode {
    let base = call
        .first()
        .map_or("", |first| first.rsplit('/').next().unwrap_or(first));
    if is_python(base) {
        match code_switch(call.get(1..).unwrap_or_default()) {
            Some(('c', text)) => return CalledCode::Text(text.to_owned()),
            Some((_, module)) if started_file(call).is_none() => {
                let path = module.replace('.', "/");
                return CalledCode::Files(vec![format!("{path}.py"), format!("{path}/__main__.py")]);
            }
            _ => {}
        }
    }
    let known = started_file(call).map(|file| file.path.to_owned());
    let named = || call.iter().find(|word| word.ends_with(".py")).cloned();
    let file = known.or_else(named).filter(|file| file.ends_with(".py"));
    CalledCode::Files(file.into_iter().collect())
}

/// The interpreter's `-c` or `-m` switch with its value; `None`: a file follows the switches.
fn code_switch(words: &[String]) -> Option<(char, &str)> {
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        if word == "--check-hash-based-pycs" {
            words.next()?;
            continue;
        }
        let letters = word.strip_prefix('-')?;
        let at = letters.find(['c', 'm', 'W', 'X']);
        let Some((at, switch)) = at.and_then(|at| Some((at, letters[at..].chars().next()?))) else {
            continue;
        };
        let joined = &letters[at + 1..];
        let value = if joined.is_empty() { words.next()? } else { joined };
        if matches!(switch, 'c' | 'm') {
            return Some((switch, value));
        }
    }
    None
}

/// The rest of a text after the string it begins with.
fn behind_string(text: &str) -> &str {
    let quote = text.get(..1).unwrap_or_default();
    let long = quote.repeat(3);
    let (end, mut rest) = match text.strip_prefix(&long) {
        Some(rest) => (long.as_str(), rest),
        None => (quote, text.get(1..).unwrap_or_default()),
    };
    loop {
        let Some(at) = rest.find(['\\', '\n', '"', '\'']) else {
            return "";
        };
        let here = rest.get(at..).unwrap_or_default();
        if let Some(behind) = here.strip_prefix(end) {
            return behind;
        }
        // A short string cannot span lines: the quote did not open one.
        if end.len() == 1 && here.starts_with('\n') {
            return here;
        }
        let mut chars = here.chars();
        if chars.next() == Some('\\') {
            chars.next();
        }
        rest = chars.as_str();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_trains_by_its_code_and_not_by_its_words() {
        for (text, trains) in [
            ("from trl import SFTTrainer\nSFTTrainer(model).train()\n", true),
            ("from trl import SFTTrainer as T\nT(model).train()\n", true),
            (
                "from transformers import (\n  Trainer,\n)\nt = Trainer(\n)\nt . train (\n)\n",
                true,
            ),
            ("from mine import OurTrainer\nOurTrainer().train()\n", true),
            ("import os, torch\nloss.backward()\n", true),
            ("import torch.nn as nn; x = 1\n(loss\n  .backward())\n", true),
            ("from accelerate import Accelerator\naccelerator.backward(loss)\n", true),
            ("import pytorch_lightning as pl\npl.Trainer().fit(model)\n", true),
            (
                "x = 'it\\'s' # \"\nfrom trl import SFTTrainer\nSFTTrainer().train()\n",
                true,
            ),
            // Preparation only.
            (
                "from transformers import AutoTokenizer\nAutoTokenizer.from_pretrained('m').train_new_from_iterator(x, 9)\n",
                false,
            ),
            (
                "from transformers import PreTrainedTokenizerFast\nfrom tokenizers.trainers import BpeTrainer\ntokenizer.train(files, BpeTrainer())\n",
                false,
            ),
            (
                "from sklearn.cluster import KMeans\nimport torch\nKMeans().fit(x)\n",
                false,
            ),
            ("import torch\ntorch.save(torch.zeros(1), 'x')\n", false),
            // Names in comments and strings.
            ("from trl import SFTTrainer\n# SFTTrainer(model).train()\n", false),
            (
                "\"\"\"\nfrom trl import SFTTrainer\nSFTTrainer(model).train()\n\"\"\"\n",
                false,
            ),
            ("import torch\nprint('loss.backward()')\n", false),
            ("r'''\n\\''' \nimport torch\nx.backward()\n'''", false),
            ("", false),
            ("'", false),
            ("'''\\", false),
        ] {
            let code = PlainCode::of(text);
            assert_eq!(code.has_trainer() || code.has_loop(), trains, "{text}: {code:?}");
        }
    }

    #[test]
    fn the_code_of_a_call_is_found() {
        for (call, files) in [
            ("python3 -u t.py a.py", "t.py"),
            ("torchrun --nproc_per_node 2 t.py", "t.py"),
            ("torchrun --odd x t.py", "t.py"),
            ("deepspeed --num_gpus 2 t.py --x", "t.py"),
            ("python3 -m pkg.train --x", "pkg/train.py pkg/train/__main__.py"),
            ("python3 -um pkg", "pkg.py pkg/__main__.py"),
            ("python3 -W ignore -m pkg", "pkg.py pkg/__main__.py"),
            ("python3 -Wignore -Xdev -X dev -m pkg", "pkg.py pkg/__main__.py"),
            ("python3 -W ignore t.py", "t.py"),
            ("python3 -W", ""),
            ("python3 -m torch.distributed.run --nproc_per_node 2 t.py", "t.py"),
            ("python3 -", ""),
            ("python3", ""),
            ("ray start --head", ""),
        ] {
            let call: Vec<String> = call.split(' ').map(str::to_owned).collect();
            let files: Vec<String> = files.split_whitespace().map(str::to_owned).collect();
            assert_eq!(called_code(&call), CalledCode::Files(files), "{call:?}");
        }
        let text = ["python3", "-u", "-c", "import torch", "x"].map(str::to_owned);
        assert_eq!(called_code(&text), CalledCode::Text("import torch".to_owned()));
    }

    #[test]
    fn any_text_comes_to_an_end() {
        for text in ["#", "'\\", "\"\"\"\u{e9}\\\u{e9}", "''''", "\"'\n'\"", "a'\u{1f600}'b"] {
            let _ = PlainCode::of(text);
        }
        assert_eq!(PlainCode::of("a'\u{1f600}'b"), PlainCode("a''b".to_owned()));
    }
}
