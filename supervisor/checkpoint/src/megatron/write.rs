//! Writes the manifest as verl does: sorted keys, two spaces.

use super::{DistManifest, ManifestEntry, SCHEMA};
use serde_json::{Map, Value, json};

impl DistManifest {
    /// Returns the text of the file.
    #[must_use]
    pub fn text(&self) -> String {
        let contents: Map<String, Value> = self.entries.iter().map(|e| (e.name.clone(), e.value())).collect();
        let directories: Map<String, Value> = self
            .directories
            .iter()
            .map(|dir| (dir.clone(), Value::from(described(dir))))
            .collect();
        let value = json!({
            "schema_version": SCHEMA,
            "framework": self.framework,
            "role": self.role,
            "arch": self.arch,
            "global_step": self.global_step,
            "world_size": self.world_size,
            "backend": self.backend,
            "save_contents": self.save_contents,
            "contents": contents,
            "directories": directories,
            "saved_any_dist_ckpt": self.saved_any_dist_ckpt,
        });
        // `serde_json` maps keep their keys sorted.
        format!("{value:#}")
    }
}

impl ManifestEntry {
    fn value(&self) -> Value {
        let mut out = Map::new();
        let mut put = |key: &str, value: Option<&String>| {
            if let Some(value) = value {
                out.insert(key.to_owned(), Value::from(value.as_str()));
            }
        };
        put("format", Some(&self.format));
        put("path", Some(&self.path));
        put("backend", self.backend.as_ref());
        put("key", self.key.as_ref());
        put("peft_adapter_path", self.adapter.as_ref());
        Value::Object(out)
    }
}

fn described(dir: &str) -> &'static str {
    match dir {
        "model/huggingface" => "weights, configuration and tokenizer in Hugging Face's format",
        "model/dist_ckpt" => "weights as Megatron's own shards",
        "optimizer/dist_ckpt" => "optimizer and learning-rate schedule as Megatron's own shards",
        _ => "random states as Megatron's own shards",
    }
}

/// Returns the architecture named in a model's `config.json`.
#[must_use]
pub fn architecture(config: &[u8]) -> Option<String> {
    let config = crate::json::value(config, &crate::InspectLimits::default()).ok()?;
    let first = config.get("architectures")?.list()?.first()?.text()?;
    (first.len() <= super::WORD).then(|| first.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::InspectLimits;
    use crate::source::FileReader;

    #[test]
    fn what_is_written_is_read_back_with_keys_in_order() {
        let entry = |name: &str, path: &str, key: Option<&str>| ManifestEntry {
            name: name.to_owned(),
            format: "megatron_dist_checkpoint".to_owned(),
            path: path.to_owned(),
            key: key.map(str::to_owned),
            ..ManifestEntry::default()
        };
        let manifest = DistManifest {
            schema_version: SCHEMA,
            framework: "megatron".to_owned(),
            role: Some("actor".to_owned()),
            arch: Some("Qwen2ForCausalLM".to_owned()),
            global_step: Some(7),
            world_size: Some(2),
            save_contents: vec!["optimizer".to_owned()],
            entries: vec![
                entry("lr_scheduler", "optimizer/dist_ckpt", Some("lr_scheduler")),
                entry("optimizer", "optimizer/dist_ckpt", None),
            ],
            directories: vec!["optimizer/dist_ckpt".to_owned()],
            saved_any_dist_ckpt: Some(true),
            ..DistManifest::default()
        };
        let text = manifest.text();
        let at = |key: &str| text.find(&format!("\n  \"{key}\"")).unwrap();
        assert!(
            at("arch") < at("backend") && at("backend") < at("contents") && at("schema_version") < at("world_size")
        );
        let bytes = text.as_bytes();
        let mut findings = Vec::new();
        let read = super::super::manifest(
            &FileReader::open(&bytes, 0).unwrap(),
            &InspectLimits::default(),
            &mut findings,
        );
        assert_eq!((read.unwrap(), findings), (manifest, Vec::new()));
    }

    #[test]
    fn an_architecture_is_read_or_not_known() {
        assert_eq!(architecture(br#"{"architectures": ["A"]}"#).as_deref(), Some("A"));
        for text in ["{}", "[]", r#"{"architectures": []}"#, r#"{"architectures": [1]}"#, "x"] {
            assert_eq!(architecture(text.as_bytes()), None, "{text}");
        }
    }
}
