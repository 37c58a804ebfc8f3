//! Encodes strings so that they pass through Hydra and OmegaConf unchanged.

/// Encodes a string as an override's value: the trainer gets exactly this string. Pass the result as one word of the
/// command, without a shell. (Only `???` keeps its meaning of "to be filled in"; OmegaConf cannot escape it.)
pub fn encode_str(text: &str) -> String {
    let mut out = String::from("'");
    let mut slashes = 0;
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        if c == '\\' {
            slashes += 1;
            continue;
        }
        let escaped = c == '\'' || c == '$' && rest.peek() == Some(&'{');
        let written = if escaped { 2 * slashes + 1 } else { slashes };
        out.push_str(&"\\".repeat(written));
        out.push(c);
        slashes = 0;
    }
    out.push_str(&"\\".repeat(2 * slashes));
    out.push('\'');
    out
}

/// Encodes a list of strings as an override's value.
pub fn encode_list(items: &[&str]) -> String {
    let items: Vec<String> = items.iter().map(|item| encode_str(item)).collect();
    format!("[{}]", items.join(","))
}
