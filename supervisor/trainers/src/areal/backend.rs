//! How an engine is spread over ranks, in AReaL's notation: `fsdp:d4t2`, `megatron:(attn:d1p2t4|ffn:d1p2e4)`.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum EngineBackend {
    Fsdp,
    Archon,
    Megatron,
    /// sglang or vllm: generation only.
    Inference,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Backend {
    pub(super) kind: EngineBackend,
    pub(super) data: u32,
    pub(super) pipeline: u32,
    pub(super) tensor: u32,
    pub(super) context: u32,
    pub(super) expert: u32,
}

impl Backend {
    pub(super) fn world(&self) -> Option<u32> {
        self.data
            .checked_mul(self.pipeline)?
            .checked_mul(self.tensor)?
            .checked_mul(self.context)
    }

    pub(super) fn canonical(&self) -> (&'static str, String) {
        let name = match self.kind {
            EngineBackend::Fsdp => "fsdp",
            EngineBackend::Archon => "archon",
            EngineBackend::Megatron => "megatron",
            EngineBackend::Inference => "inference",
        };
        let more = [
            ('p', self.pipeline),
            ('t', self.tensor),
            ('c', self.context),
            ('e', self.expert),
        ];
        let more = more
            .into_iter()
            .filter(|(_, n)| *n > 1)
            .map(|(letter, n)| format!("{letter}{n}"));
        (name, format!("{name}:d{}{}", self.data, more.collect::<String>()))
    }

    pub(super) fn is_megatron(&self) -> bool {
        self.kind == EngineBackend::Megatron
    }
}

/// Parses one; the error says what is wrong.
pub(super) fn parse(text: &str) -> Result<Backend, String> {
    let text: String = text.chars().filter(|c| !c.is_whitespace()).collect();
    if text.contains('+') {
        return Err("one engine is needed here, not several with `+`".to_owned());
    }
    let (name, rest) = text
        .split_once(':')
        .ok_or("the name of a backend is needed in front: `fsdp:d4`")?;
    let name = match name.split_once('[') {
        Some((name, alias)) if is_alias(alias) => name,
        Some(_) => return Err(format!("`{name}` is not the name of a backend")),
        None => name,
    };
    let kind = match name {
        "fsdp" => EngineBackend::Fsdp,
        "archon" => EngineBackend::Archon,
        "megatron" => EngineBackend::Megatron,
        "sglang" | "vllm" => EngineBackend::Inference,
        _ => {
            return Err(format!(
                "`{name}` is not a backend of AReaL's (fsdp, megatron, archon; sglang, vllm)"
            ));
        }
    };
    let inner = rest
        .strip_prefix('(')
        .map_or(rest, |r| r.strip_suffix(')').unwrap_or(r));
    let found = match inner.split_once('|') {
        Some((attention, experts)) if kind != EngineBackend::Inference => {
            let attention = attention.strip_prefix("attn:").ok_or("`attn:` is missing")?;
            let experts = experts.strip_prefix("ffn:").ok_or("`ffn:` is missing")?;
            let experts = dims(experts, "detp", kind)?;
            Backend {
                expert: experts.expert,
                ..dims(attention, "cdtp", kind)?
            }
        }
        Some(_) => return Err("it generates only: `attn` and `ffn` have no meaning".to_owned()),
        None if kind == EngineBackend::Inference => dims(rest, "dtp", kind)?,
        None => dims(rest, "pdtce", kind)?,
    };
    if kind == EngineBackend::Fsdp && (found.pipeline > 1 || found.expert > 1) {
        return Err("FSDP knows data, tensor and context parallelism only".to_owned());
    }
    Ok(found)
}

fn is_alias(text: &str) -> bool {
    let name = text.strip_suffix(']').unwrap_or_default();
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// `d4p2t2`: letters of `allowed`, each with a number above zero.
fn dims(text: &str, allowed: &str, kind: EngineBackend) -> Result<Backend, String> {
    let mut out = Backend {
        kind,
        data: 1,
        pipeline: 1,
        tensor: 1,
        context: 1,
        expert: 1,
    };
    let mut rest = text;
    let wrong = || format!("`{text}` is not understood: letters with numbers are needed, such as d4t2");
    if rest.is_empty() {
        return Err(wrong());
    }
    while let Some(letter) = rest.chars().next() {
        let digits: &str = rest[letter.len_utf8()..]
            .split(|c: char| !c.is_ascii_digit())
            .next()
            .unwrap_or_default();
        if !allowed.contains(letter) || digits.starts_with('0') {
            return Err(wrong());
        }
        let number: u32 = digits.parse().map_err(|_| wrong())?;
        match letter {
            'd' => out.data = number,
            'p' => out.pipeline = number,
            't' => out.tensor = number,
            'c' => out.context = number,
            _ => out.expert = number,
        }
        rest = &rest[letter.len_utf8() + digits.len()..];
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_counted_from_what_shares_a_batch() {
        for (text, kind, world) in [
            ("fsdp:d4", EngineBackend::Fsdp, 4),
            ("fsdp:d2t2c2", EngineBackend::Fsdp, 8),
            ("fsdp[actor]: d4 t2", EngineBackend::Fsdp, 8),
            ("megatron:d2p2t2e4", EngineBackend::Megatron, 8),
            ("megatron:(attn:d1p12t4|ffn:d1p12e4)", EngineBackend::Megatron, 48),
            ("archon:d2", EngineBackend::Archon, 2),
            ("sglang:d4t2", EngineBackend::Inference, 8),
        ] {
            let read = parse(text).unwrap();
            assert_eq!((read.kind, read.world()), (kind, Some(world)), "{text}");
        }
    }

    #[test]
    fn one_spread_is_written_in_one_way() {
        for (text, written) in [
            ("fsdp:d2", "fsdp:d2"),
            ("fsdp[actor]:t2", "fsdp:d1t2"),
            ("fsdp: c1 t2 d2", "fsdp:d2t2"),
            ("megatron:(attn:d1p2t4|ffn:d1p2e4)", "megatron:d1p2t4e4"),
        ] {
            assert_eq!(parse(text).unwrap().canonical().1, written, "{text}");
        }
    }

    #[test]
    fn what_areal_refuses_is_refused() {
        for text in [
            "d4",
            "fsdp",
            "fsdp:",
            "fsdp:d0",
            "fsdp:d4p2",
            "fsdp:e2",
            "sglang:c2",
            "tensorflow:d4",
            "sglang:d4+fsdp:d4",
            "fsdp.d4",
            "fsdp:x4",
            "fsdp:d",
            "sglang:(attn:d1|ffn:d1)",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
