//! Hides secrets wherever settings, commands, environments and texts are shown or stored.
//!
//! Secrets are found by name (`WANDB_API_KEY=…`, `--token …`, `{api_key: …}`) and by value: logins and signatures in URLs, webhook
//! addresses, strings that look like a token (`hf_…`, `sk-…`, `ghp_…`) or a private key, and values that this process received under the
//! name of a secret. Hidden text becomes `***`.

mod excerpt;
mod flags;
mod forms;
mod keys;
mod known;
mod lines;
mod logins;
mod names;
mod needles;
mod places;
mod shapes;
mod text;
mod tree;
mod values;

pub use excerpt::line_without_secret;
pub use known::{know_secret, know_values, known_needles, known_secrets};
pub use lines::{LineRedactor, redact_lines};
use names::{Sense, sense};
pub use needles::NeedleSet;
pub use text::{redact_text, redacted};
pub use tree::redacted_yaml;

/// Returns the value, or `***` if the name looks like a secret's. Anything that looks like a secret inside the value is hidden too.
pub fn redact(name: &str, value: &str) -> String {
    match is_secret_value(name, value) {
        true => "***".to_owned(),
        false => redact_text(value),
    }
}

/// Whether a value is hidden because of its name. If the name could also be that of a column, the value decides.
fn is_secret_value(name: &str, value: &str) -> bool {
    let is_value = !value.is_empty() && value != "null";
    match sense(name) {
        Sense::Surely if places::is_place(name, value) => false,
        Sense::Surely => is_value,
        Sense::Perhaps => known::is_hidden(value, false),
        Sense::Not => false,
    }
}

/// Whether an option's value is certainly a secret: `--token`.
fn is_option(name: &str) -> bool {
    sense(name) == Sense::Surely
}

/// Redacts one word of a command: `key=secret` and `--key=secret`.
pub fn redact_word(word: &str) -> String {
    match word.split_once('=') {
        Some((key, value)) if !key.contains("://") && is_secret_value(key, value) => {
            format!("{}=***", redact_text(key))
        }
        // A known value may contain `=` itself.
        _ => redact_text(word),
    }
}

/// Redacts a command: each word, and the word after `--token`.
pub fn redact_words(words: &[String]) -> Vec<String> {
    let mut out = Vec::with_capacity(words.len());
    let mut flag: Option<&str> = None;
    for word in words {
        let value = flag.filter(|_| !word.starts_with('-'));
        out.push(match value.is_some_and(|flag| is_secret_value(flag, word)) {
            true => "***".to_owned(),
            false => redact_word(word),
        });
        flag = Some(word.as_str()).filter(|word| word.starts_with('-') && !word.contains('='));
    }
    out
}

/// Like [`redact_words`], for a command that is parsed again later: a path stays as it is, whatever its name looks like, because it says
/// where the checkpoints are.
pub fn redact_call(words: &[String]) -> Vec<String> {
    let is_path = |word: &str| {
        let value = word.split_once('=').map_or(word, |(_, value)| value);
        value.starts_with(['/', '.', '~']) && !value.contains("://")
    };
    let safe = redact_words(words);
    words
        .iter()
        .zip(safe)
        .map(|(word, safe)| match is_path(word) && safe != "***" {
            true => word.clone(),
            false => safe,
        })
        .collect()
}

/// From now on, [`redact_text`] hides everything that [`redact_words`] hides in this command: a trainer prints its arguments.
pub fn know_words(words: &[String]) {
    know_plain(words);
    // A word passed to a shell contains words of its own.
    for word in words.iter().filter(|word| word.contains(char::is_whitespace)) {
        let inner = word.split_whitespace();
        let inner: Vec<String> = inner
            .map(|w| w.trim_matches(['"', '\'', ';', ',']).to_owned())
            .collect();
        know_plain(&inner);
    }
}

fn know_plain(words: &[String]) {
    let assigned = words.iter().filter_map(|word| word.split_once('='));
    let named = words.windows(2).filter_map(|two| match two {
        [name, value] if name.starts_with('-') && !name.contains('=') && !value.starts_with('-') => {
            Some((name.as_str(), value.as_str()))
        }
        _ => None,
    });
    for (name, value) in assigned.chain(named) {
        know_secret(name, value.trim_matches(['"', '\'']));
    }
}

#[cfg(test)]
mod tests {
    use super::{redact, redact_text, redact_words};

    #[test]
    fn secrets_are_hidden_and_nothing_else() {
        for name in [
            "WANDB_API_KEY",
            "HF_TOKEN",
            "AWS_SECRET_ACCESS_KEY",
            "DB_PASSWORD",
            "env.OPENAI_APIKEY",
            "apiKey",
            "key",
            "PGPASSWORD",
            "wandb_key",
            "api_keys",
            "Authorization",
            "DB_PASS",
            "PASS",
            "MYSQL_PWD",
            "env.DB_PWD",
            "mysqlPwd",
            "MYTOKEN",
            "MY_KEYS",
            "MY_SECRETS",
            "DB_PASSWORDS",
            "CLIENTSECRET",
            "OPENAI_APIKEYS",
        ] {
            assert_eq!(redact(name, "hush"), "***", "{name}");
        }
        for name in [
            "tokenizer",
            "actor.ppo_max_token_len_per_gpu",
            "pad_token",
            "MAX_TOKENS",
            "data.prompt_key",
            "reward_fn_key",
            "monkey",
            "PATH",
            "author",
            "gang.gpus",
            "keys",
            "COMPASS",
            "BYPASS",
            "SSH_ASKPASS",
            "forward_pass",
            "pass_rate",
            "val/pass@8",
            "PWD",
            "OLDPWD",
            "env.PWD",
            "supervisor.env.OLDPWD",
            "HYDRA_ORIG_PWD",
            "SSH_AUTH_SOCK",
            "TOKENIZERS_PARALLELISM",
            "NUM_TOKENS",
            "TOTAL_TOKENS",
            "total_tokens",
            "eostoken",
            "batch_keys",
        ] {
            assert_eq!(redact(name, "shown"), "shown", "{name}");
        }
    }

    #[test]
    fn settings_of_trainers_that_only_sound_like_secrets_keep_their_values() {
        // Names from verl, AReaL, TRL, LLaMA-Factory, ms-swift and Transformers.
        for name in [
            "data.prompt_key",
            "data.answer_key",
            "data.image_key",
            "data.video_key",
            "data.reward_fn_key",
            "data.multiturn.messages_key",
            "data.multiturn.tools_key",
            "data.multiturn.enable_thinking_key",
            "data.response_key",
            "data.tokenizer_key",
            "reward_model.reward_fn_key",
            "ground_truth_key",
            "extra_info_key",
            "question_key",
            "actor.key_value_heads",
            "num_key_value_heads",
            "key_layernorm.weight",
            "attn.qkv_key",
            "attn.key_proj",
            "key_value_cache_dtype",
            "dataset.chosen_key",
            "rejected_key",
            "sort_key",
            "cache_key",
            "primary_key",
            "override_key",
            "state_dict_key",
            "monkey",
            "turkey",
            "max_tokens",
            "max_new_tokens",
            "num_speculative_tokens",
            "total_tokens",
            "image_token",
            "think_token",
            "eot_token",
            "tokenizer.bos_token",
            "decoder_start_token",
            "token_level_scores",
            "token_in_token_out",
            "passkey_length",
        ] {
            for value in ["Ground-Truth-1", "answer", "MixedCase"] {
                assert_eq!(redact(name, value), value, "{name}");
                assert_eq!(redact_text(&format!("{name}={value}")), format!("{name}={value}"));
            }
        }
        // For an unknown name, the value decides.
        assert_eq!(redact("data.foo_key", "column"), "column");
        assert_eq!(redact("data.foo_key", "Final Answer 1"), "Final Answer 1");
        assert_eq!(redact("data.foo_key", "9aF3kLm2Qx7"), "***");
        for name in [
            "api_key",
            "trainer.wandb_key",
            "hub_token",
            "hf_token",
            "secret_access_key",
            "AWS_ACCESS_KEY_ID",
            "openai_key",
            "client_secret",
            "auth_token",
            "MY_KEY",
            "push_to_hub_token",
            "TOKEN",
            "session_token",
        ] {
            assert_eq!(redact(name, "answer"), "***", "{name}");
        }
    }

    #[test]
    fn passwords_in_urls_are_hidden() {
        assert_eq!(redact("PROXY", "http://me:pw@host:80/x"), "http://***@host:80/x");
        assert_eq!(redact("PROXY", "http://host:80/x@y"), "http://host:80/x@y");
        assert_eq!(redact("P", "a http://u:p@h b://c:d@e"), "a http://***@h b://***@e");
    }

    #[test]
    fn values_that_are_secrets_are_hidden_by_their_shape() {
        let hex = "0123456789abcdef0123456789abcdef01234567";
        for secret in [
            "hf_abcdefghijklmnopqrstuvwxyzABCDEFGH",
            "sk-proj-abcdEFGH1234abcdEFGH1234",
            "sk-1234567890abcdefghij",
            "ghp_abcdefghijklmnopqrstuvwxyz0123456789",
            "github_pat_11ABCDEFG0abcdefghij_klmnopqrst",
            "AKIAIOSFODNN7EXAMPLE",
            "xoxb-123456789012-abcdefGHIJKL",
            "xoxb-12345678",
            "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
        ] {
            for text in [
                secret.to_owned(),
                format!("a {secret} b"),
                format!("x='{secret}'"),
                format!("{{\"a\": \"{secret}\"}}"),
                format!("http://host/?q={secret}&r=1"),
                format!("http://host/%3Fq%3D{secret}"),
                format!("for \\n{secret}\\n"),
                format!("\\u0027{secret}\\u0027, \\x27{secret}"),
                format!("\x1b[1;31m{secret}\x1b[0m and \\x1b[33m{secret}\\x1b[0m"),
            ] {
                let shown = redact_text(&text);
                assert!(!shown.contains(secret) && shown.contains("***"), "{text}: {shown}");
                assert_eq!(redact_text(&shown), shown, "a second time changes nothing");
            }
        }
        for (text, shown) in [
            ("x_ghp_ABCDEFGHIJKLMNOPqrst1234", "x_***"),
            (r"https:\/\/user:passw0rd@host\/x", r"https:\/\/***@host\/x"),
            ("{'password': b'passw0rd'}", "{'password': b'***'}"),
            ("sent Bearer abcdefghijklmnop1234567 to it", "sent Bearer *** to it"),
            (
                "the Bearer authentication-scheme is missing",
                "the Bearer authentication-scheme is missing",
            ),
            (
                "flask-sk-learn, task-abcdefghijklmnopqrstu",
                "flask-sk-learn, task-abcdefghijklmnopqrstu",
            ),
        ] {
            assert_eq!(redact_text(text), shown);
        }
        assert_eq!(redact_text(&format!("wandb login {hex} now")), "wandb login *** now");
        assert_eq!(redact_text(&format!("commit {hex}")), format!("commit {hex}"));
    }

    #[test]
    fn a_secret_of_a_command_is_hidden_wherever_it_stands() {
        super::know_words(
            &[
                "--api-key",
                "k3y-of-Mine-zz",
                "--hub_token=t0ken-of-Mine",
                "--epochs",
                "3",
                "--key",
            ]
            .map(str::to_owned),
        );
        let said = "login with k3y-of-Mine-zz failed; args --hub_token t0ken-of-Mine --epochs 3";
        assert_eq!(
            redact_text(said),
            "login with *** failed; args --hub_token *** --epochs 3"
        );
    }

    #[test]
    fn addresses_that_let_anybody_in_are_hidden() {
        for (text, shown) in [
            (
                "https://hooks.slack.com/services/T0/B0/xyz",
                "https://hooks.slack.com/***",
            ),
            (
                "to https://discord.com/api/webhooks/1/abc, then",
                "to https://discord.com/api/webhooks/***, then",
            ),
            (
                "https://tok3n-of-a-person-0123@github.com/x",
                "https://***@github.com/x",
            ),
            ("redis://:p/w@h:6379/0", "redis://***@h:6379/0"),
            ("ssh://git@host/x", "ssh://git@host/x"),
            (
                "s3://b/k?X-Amz-Signature=abc123&y=1",
                "s3://b/k?X-Amz-Signature=***&y=1",
            ),
            ("Authorization: Bearer abc.def-123456", "Authorization: ***"),
            (
                "curl -H 'Authorization: Basic dXNlcjpwdw=='",
                "curl -H 'Authorization: ***'",
            ),
            ("env={WANDB_API_KEY: hush1,A:b}", "env={WANDB_API_KEY: ***,A:b}"),
            (
                r#"{\"api_key\": \"hush\", \"b\": 1}"#,
                r#"{\"api_key\": \"***\", \"b\": 1}"#,
            ),
            ("export HF_TOKEN=hush; python x", "export HF_TOKEN=***; python x"),
            ("MYTOKEN=hush DB_PASS=hush b", "MYTOKEN=*** DB_PASS=*** b"),
            ("MYSQL_PWD=hush MY_KEYS=hush,", "MYSQL_PWD=*** MY_KEYS=***,"),
            ("MY_SECRETS=hush PWD=/a/b", "MY_SECRETS=*** PWD=/a/b"),
        ] {
            assert_eq!(redact_text(text), shown);
        }
        for plain in [
            "trainer.default_local_dir: a directory is needed",
            "/ckpt/sk-qwen7b-grpo-v2/global_step_4",
            "data.prompt_key=prompt, token_level=3",
            "the password: it is not said",
            "a.api_key: there is no such setting",
            "https://host:8265/x@y and C:\\x",
            "ask-the-1234567890abcdefghij",
            "PASS: 12 of 12, TOTAL_TOKENS=123456 OLDPWD=/a1 BYPASS=yes1",
            "NUM_TOKENS: 4096, SSH_AUTH_SOCK=/run/agent.1, the token: a1",
        ] {
            assert_eq!(redact_text(plain), plain);
        }
    }

    #[test]
    fn a_known_value_with_a_sign_in_it_is_hidden_in_a_command() {
        super::know_secret("SIGN_TOKEN", "s1gn/of+Mine=x02");
        assert_eq!(super::redact_word("s1gn/of+Mine=x02"), "***");
        assert_eq!(super::redact_word("lr=s1gn/of+Mine=x02"), "lr=***");
    }

    #[test]
    fn a_command_hides_the_word_after_a_secret_flag() {
        let words = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let shown = redact_words(&words(
            "x --api-key hush --max-tokens 5 --token --flag -v a=1 +env.HF_TOKEN=hush",
        ));
        assert_eq!(
            shown.join(" "),
            "x --api-key *** --max-tokens 5 --token --flag -v a=1 +env.HF_TOKEN=***"
        );
    }
}
