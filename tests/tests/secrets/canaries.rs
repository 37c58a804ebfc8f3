//! The canaries, and the trainer that prints them.

/// Variables of the supervisor's environment whose names are those of secrets. The values have no known form.
const VARIABLES: [&str; 20] = [
    "WANDB_API_KEY",
    "HF_TOKEN",
    "OPENAI_API_KEY",
    "ANTHROPIC_API_KEY",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
    "DB_PASSWORD",
    "DB_PASS",
    "MYSQL_PWD",
    "MY_SECRET",
    "SIGNING_KEY",
    "CLIENT_SECRET",
    "REDIS_PASSWORD",
    "GITLAB_TOKEN",
    "SLACK_TOKEN",
    "AZURE_KEY",
    "JWT_SECRET",
    "SMTP_PASSWORD",
    "API_KEYS",
    "SERVICE_CREDENTIALS",
];

/// Lines of the trainer's that no process of ours was given the values of, and what must not be seen of each.
const BY_FORM: [(&str, &str); 34] = [
    (
        "-----BEGIN RSA PRIVATE KEY-----\nMIICanaryBodyLineOne0123\nq1Canary=\n-----END RSA PRIVATE KEY-----",
        "MIICanaryBodyLineOne0123",
    ),
    (
        "-----BEGIN PRIVATE KEY-----\nCanaryShort2=\n-----END PRIVATE KEY-----",
        "CanaryShort2=",
    ),
    (
        r#"{"pem": "-----BEGIN PRIVATE KEY-----\nMIICanaryInJson3\n-----END PRIVATE KEY-----"}"#,
        "MIICanaryInJson3",
    ),
    ("Cookie: sid=canary4Cookie; theme=dark", "canary4Cookie"),
    ("< Set-Cookie: sid=\"canary5 Set\"; Path=/", "canary5 Set"),
    ("Authorization: Basic Y2FuYXJ5Ng==", "Y2FuYXJ5Ng"),
    ("Proxy-Authorization: Digest canary7-Digest", "canary7-Digest"),
    ("X-Api-Key: canary8-Header1", "canary8-Header1"),
    ("('Set-Cookie', 'sid=canary9Tuple')", "canary9Tuple"),
    ("url https://me:canary10-Pw@host/x", "canary10-Pw"),
    ("url https%3A%2F%2Fme%3Acanary11-Pw%40host%2Fx", "canary11-Pw"),
    ("s3://b/k?X-Amz-Signature=canary12abcdef&y=1", "canary12abcdef"),
    ("aws AKIACANARY13ABCDEFGH here", "AKIACANARY13ABCDEFGH"),
    ("hub hf_canary14abcdefghijklmnop here", "hf_canary14abcdefghijklmnop"),
    (
        "wandb: key 0123456789abcdef0123456789abcdef01234567",
        "0123456789abcdef0123456789abcdef01234567",
    ),
    (
        "openai sk-proj-canary16ABCDEF1234567890 here",
        "sk-proj-canary16ABCDEF1234567890",
    ),
    (
        "github ghp_canary17ABCDEFGHIJKLMNOPQRSTUV here",
        "ghp_canary17ABCDEFGHIJKLMNOPQRSTUV",
    ),
    (
        "github github_pat_11CANARY18abcdefghij_klm here",
        "github_pat_11CANARY18abcdefghij_klm",
    ),
    ("gitlab glpat-canary19-ABCDEFGH here", "glpat-canary19-ABCDEFGH"),
    ("slack xoxb-123456-canary20ABCDEF here", "xoxb-123456-canary20ABCDEF"),
    (
        "jwt eyJhbGciOiJ1.eyJzdWIiOiIy.c2lnbmF0dXJl here",
        "eyJhbGciOiJ1.eyJzdWIiOiIy.c2lnbmF0dXJl",
    ),
    ("hook https://hooks.slack.com/services/T0/B0/canary22", "T0/B0/canary22"),
    ("hook https://discord.com/api/webhooks/1/canary23", "1/canary23"),
    (
        "starting sh -c 'serve --api-key canary24-Flag --port 1'",
        "canary24-Flag",
    ),
    ("starting serve --password=canary25-Flag --port 1", "canary25-Flag"),
    ("['serve', '--hf-token', 'canary26 Flag', '--port']", "canary26 Flag"),
    ("login(token='canary27-Quoted', force=True)", "canary27-Quoted"),
    (r#"{"token": "canary28-Json", "step": 1}"#, "canary28-Json"),
    (r#"{\"client_secret\": \"canary29\\u00e9-Json\"}"#, "canary29"),
    (
        r#"{"private_key": "-----BEGIN PRIVATE KEY-----\nMIICanaryAccount30\n-----END PRIVATE KEY-----\n", "a": 1}"#,
        "MIICanaryAccount30",
    ),
    (
        "-----BEGIN PGP PRIVATE KEY BLOCK-----\nVersion: 2\n\nCanary31Body\n=aB1c\n-----END PGP PRIVATE KEY BLOCK-----",
        "Canary31Body",
    ),
    ("login with token=Canary32Plain failed", "Canary32Plain"),
    ("signed X-Amz-Signature=ca0a0e33b1c2 now", "ca0a0e33b1c2"),
    ("+ curl -s -u me:canary34-Pw https://h/x", "canary34-Pw"),
];

pub(crate) struct Canaries {
    variables: Vec<(&'static str, String)>,
    pub(crate) flag: String,
    pub(crate) setting: String,
    exported: String,
    /// All that must not be seen, with the class it is of.
    forbidden: Vec<(String, String)>,
}

fn percent(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.~".contains(&b);
    text.bytes()
        .map(|b| match plain(b) {
            true => char::from(b).to_string(),
            false => format!("%{b:02X}"),
        })
        .collect()
}

pub(crate) fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::new();
    for three in bytes.chunks(3) {
        let all = (0..3).fold(0_usize, |n, at| {
            n << 8 | usize::from(three.get(at).copied().unwrap_or(0))
        });
        for at in 0..4 {
            out.push(match at <= three.len() {
                true => char::from(DIGITS[all >> (18 - 6 * at) & 63]),
                false => '=',
            });
        }
    }
    out
}

fn hex(text: &str) -> String {
    text.bytes().map(|b| format!("{b:02x}")).collect()
}

impl Canaries {
    pub(crate) fn plant() -> Self {
        let value = |n: u32| {
            format!(
                "cA{n:02}n/{:07x}+{:07x}=x{n:02}",
                n.wrapping_mul(40_503) & 0xfff_ffff,
                n.wrapping_mul(2_654_435_761) >> 4
            )
        };
        let mut variables: Vec<(&str, String)> = VARIABLES.into_iter().zip((1..).map(value)).collect();
        // One with everything that has an escape.
        variables.push(("ODD_PASSWORD", "o\"dd\\ca'nary/é-0".to_owned()));
        let mut canaries = Self {
            variables,
            flag: "canary-Of-The-Flag-77".to_owned(),
            setting: "canary-Of-The-Setting-78".to_owned(),
            exported: "canary-Of-The-Script-79".to_owned(),
            forbidden: Vec::new(),
        };
        let mut forbid = |class: &str, text: &str| canaries.forbidden.push((class.to_owned(), text.to_owned()));
        for (name, value) in &canaries.variables {
            forbid(name, value);
        }
        forbid("flag", &canaries.flag);
        forbid("setting", &canaries.setting);
        forbid("exported", &canaries.exported);
        for (n, (_, text)) in BY_FORM.iter().enumerate() {
            forbid(&format!("form {}", n + 1), text);
        }
        for n in 0..3 {
            let encoded = base64(format!("{}{}", "u:x".get(..n).unwrap(), canaries.variables[n].1).as_bytes());
            // The characters at both ends hold bits of what stands beside the value.
            forbid(&format!("base64 {n}"), encoded.get(4..encoded.len() - 4).unwrap());
        }
        forbid("hex", &hex(&canaries.variables[3].1));
        forbid("HEX", &hex(&canaries.variables[4].1).to_uppercase());
        forbid("percent", &percent(&canaries.variables[5].1));
        forbid("json", "o\\\"dd\\\\ca'nary");
        forbid("python", "o\"dd\\\\ca\\'nary");
        for n in [6, 7, 8, 9] {
            let (first, second) = canaries.variables[n].1.split_at(12);
            forbid(&format!("first part {n}"), first);
            forbid(&format!("second part {n}"), second.get(2..).unwrap());
        }
        canaries
    }

    pub(crate) fn len(&self) -> usize {
        self.forbidden.len()
    }

    pub(crate) fn variables(&self) -> impl Iterator<Item = (&str, &str)> {
        self.variables.iter().map(|(name, value)| (*name, value.as_str()))
    }

    /// A script that prints all of them, gives some to children, and fails with some in its last words.
    pub(crate) fn trainer(&self) -> String {
        let names: Vec<&str> = self.variables.iter().map(|(name, _)| *name).collect();
        let value = |n: usize| self.variables[n].1.as_str();
        let mut lines = vec![
            "echo 'step:1 - train/loss:0.5'".to_owned(),
            "echo 'plain words stay as they are'".to_owned(),
            // Children with secrets among their words and in their environment.
            format!(
                "SCRIPT_TOKEN='{}' sh -c 'sleep 600; : --api-key canary-Child-80' canary-child \"$HF_TOKEN\" --password \"$DB_PASS\" &",
                self.exported
            ),
            "child=$!".to_owned(),
            // Until the guard has seen it: then it knows what the script gave it.
            "n=0; while [ $n -lt 600 ] && ! grep -q canary-child \"$(ls -d \"$CANARY_RUN\"/attempts/* | tail -n 1)/tree\"; do sleep 0.1; n=$((n+1)); done"
                .to_owned(),
        ];
        lines.extend(
            names
                .iter()
                .map(|name| format!("printf 'with %s as it is\\n' \"${name}\"")),
        );
        lines.push(format!("echo 'flag {}, setting '\"$SETTING_TOKEN\"", self.flag));
        lines.push(format!("echo 'exported {} here'", self.exported));
        lines.extend(BY_FORM.iter().map(|(line, _)| format!("cat <<'END'\n{line}\nEND")));
        for n in 0..3 {
            let text = format!("{}{}", "u:x".get(..n).unwrap_or_default(), value(n));
            lines.push(format!("echo 'base64 {}'", base64(text.as_bytes())));
        }
        lines.push(format!(
            "echo 'hex {} and {}'",
            hex(value(3)),
            hex(value(4)).to_uppercase()
        ));
        lines.push(format!("echo 'http://host/?q={}&r=1'", percent(value(5))));
        lines.push(
            "cat <<'END'\n{\"odd\": \"o\\\"dd\\\\ca'nary/\\u00e9-0\"}\n{'odd': 'o\"dd\\\\ca\\'nary/é-0'}\nEND"
                .to_owned(),
        );
        // One value in two lines, in two lines of a worker of Ray's, in two writes, and in two places.
        let halves = |n: usize| value(n).split_at(12);
        lines.push(format!("printf 'cut {}\\n{}, gone\\n'", halves(6).0, halves(6).1));
        lines.push(format!(
            "printf '(W pid=1) cut {}\\n(W pid=1) {} gone\\n'",
            halves(7).0,
            halves(7).1
        ));
        lines.push(format!(
            "printf 'two writes %s' '{}'; printf '%s end\\n' '{}'",
            halves(8).0,
            halves(8).1
        ));
        let (first, second) = value(9).split_at(value(9).len() / 2);
        lines.push(format!("echo 'first {first} of it'; echo 'second {second} of it'"));
        lines.push("kill $child".to_owned());
        lines.push("echo 'Traceback (most recent call last):'".to_owned());
        lines.push("echo '  File \"x.py\", line 1, in <module>'".to_owned());
        lines.push("echo \"RuntimeError: could not reach the hub with $HF_TOKEN and $DB_PASSWORD\"".to_owned());
        lines.push("exit 1".to_owned());
        lines.join("\n") + "\n"
    }

    #[track_caller]
    pub(crate) fn none_in(&self, what: &str, text: &str) {
        let found: Vec<String> = self
            .forbidden
            .iter()
            .filter_map(|(class, canary)| {
                let at = text.find(canary.as_str())?;
                let from = text.floor_char_boundary(at.saturating_sub(80));
                let to = text.floor_char_boundary(at + canary.len() + 40);
                Some(format!("  {class}: {canary} in: {}", &text[from..to]))
            })
            .collect();
        assert!(
            found.is_empty(),
            "{what} holds {} canaries:\n{}",
            found.len(),
            found.join("\n")
        );
    }

    /// The trainer printed them: what is not shown was there.
    #[track_caller]
    pub(crate) fn all_in(&self, text: &str) {
        let missing: Vec<_> = self
            .forbidden
            .iter()
            .filter(|(_, canary)| !text.contains(canary))
            .collect();
        assert!(missing.is_empty(), "not printed: {missing:?}");
    }
}
