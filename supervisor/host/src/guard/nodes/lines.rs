//! Lines between launcher and node workers. Those of a node are shorter than what `srun` forwards in one piece, so
//! that lines of several nodes do not mix.

use super::rank_windows::RankPulse;
use supervise_core::event::ExitStatus;
use supervise_core::id::WorkerId;
use supervise_core::observe::activity::RankSample;

/// Bytes of a rank's output in one line, before escaping, which may double them.
pub(crate) const PIECE: usize = 400;
pub(crate) const LINE: usize = 1000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FromNode {
    /// The node worker is running.
    Here { node: u32, name: String },
    /// A rank printed something.
    Output { rank: u32, bytes: Vec<u8> },
    /// A rank exited.
    Exit { rank: u32, status: ExitStatus },
    /// Heartbeat: this time of its own clock, and the CPU time its ranks used since the last one.
    Beat { node: u32, at: u64, cpu_ms: u64 },
    /// What a rank used, in the window that the node reports next.
    Pulse(RankPulse),
    /// End of a window: its length, and the bytes on the node's networks if they could be counted.
    Window {
        node: u32,
        over_ms: u64,
        network: Option<u64>,
    },
    /// No process of the attempt is left there.
    Gone { node: u32 },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum ToNode {
    /// The ranks, as JSON.
    Order(Vec<u8>),
    /// Heartbeat: the newest time received from each node, by its own clock. This shows a node whether a heartbeat
    /// was delayed.
    Beat(Vec<(u32, u64)>),
    /// Send a signal to one rank.
    Signal { rank: u32, signal: i32 },
}

const SIGN: &[u8] = b"=supervise ";
/// Stands for a missing name or number. A name is one word.
const NOTHING: &str = "-";

impl FromNode {
    pub(crate) fn line(&self) -> Vec<u8> {
        let mut out = SIGN.to_vec();
        match self {
            Self::Here { node, name } => out.extend(format!("here {node} {name}").bytes()),
            Self::Output { rank, bytes } => {
                out.extend(format!("out {rank} ").bytes());
                escape(bytes, &mut out);
            }
            Self::Exit { rank, status } => {
                let how = match status {
                    ExitStatus::Code(code) => format!("code {code}"),
                    ExitStatus::Signal(signal) => format!("signal {signal}"),
                    _ => "unknown 0".to_owned(),
                };
                out.extend(format!("exit {rank} {how}").bytes());
            }
            Self::Beat { node, at, cpu_ms } => out.extend(format!("beat {node} {at} {cpu_ms}").bytes()),
            Self::Pulse(RankPulse { pulse: p, name, waits }) => {
                let counted = [p.cpu_ms, p.wait_ms, p.switches, p.faults, p.bytes];
                let counted: String = counted.iter().map(|n| format!(" {n}")).collect();
                let waits = waits.as_deref().unwrap_or_default();
                let name = name.as_deref().unwrap_or(NOTHING);
                out.extend(format!("pulse {} {} {}{counted} {name} {waits}", p.worker.0, p.pid, p.state).bytes());
            }
            Self::Window { node, over_ms, network } => {
                let network = network.map_or_else(|| NOTHING.to_owned(), |n| n.to_string());
                out.extend(format!("window {node} {over_ms} {network}").bytes());
            }
            Self::Gone { node } => out.extend(format!("gone {node}").bytes()),
        }
        out.push(b'\n');
        out
    }

    /// Parses a line given without its newline; `None`: not from a node worker.
    pub(crate) fn read(line: &[u8]) -> Option<Self> {
        let rest = line.strip_prefix(SIGN)?;
        let (verb, rest) = split(rest);
        let (number, rest) = split(rest);
        let number: u32 = std::str::from_utf8(number).ok()?.parse().ok()?;
        let text = || std::str::from_utf8(rest).ok();
        Some(match verb {
            b"here" => Self::Here {
                node: number,
                name: text()?.to_owned(),
            },
            b"out" => Self::Output {
                rank: number,
                bytes: unescape(rest),
            },
            b"exit" => {
                let (how, value) = text()?.split_once(' ')?;
                let value: i32 = value.parse().ok()?;
                let status = match how {
                    "code" => ExitStatus::Code(value),
                    "signal" => ExitStatus::Signal(value),
                    _ => ExitStatus::Unknown,
                };
                Self::Exit { rank: number, status }
            }
            b"beat" => {
                let (at, cpu_ms) = text()?.split_once(' ')?;
                Self::Beat {
                    node: number,
                    at: at.parse().ok()?,
                    cpu_ms: cpu_ms.parse().ok()?,
                }
            }
            b"pulse" => Self::Pulse(pulse(number, text()?)?),
            b"window" => {
                let (over_ms, network) = text()?.split_once(' ')?;
                Self::Window {
                    node: number,
                    over_ms: over_ms.parse().ok()?,
                    network: match network {
                        NOTHING => None,
                        counted => Some(counted.parse().ok()?),
                    },
                }
            }
            b"gone" => Self::Gone { node: number },
            _ => return None,
        })
    }
}

fn pulse(rank: u32, text: &str) -> Option<RankPulse> {
    let mut words = text.splitn(9, ' ');
    let pid = words.next()?.parse().ok()?;
    let state = words.next()?.parse().ok()?;
    let mut number = || words.next()?.parse().ok();
    let pulse = RankSample {
        worker: WorkerId(rank),
        pid,
        state,
        cpu_ms: number()?,
        wait_ms: number()?,
        switches: number()?,
        faults: number()?,
        bytes: number()?,
    };
    let name = words.next().filter(|w| *w != NOTHING).map(str::to_owned);
    let waits = words.next().filter(|w| !w.is_empty()).map(str::to_owned);
    Some(RankPulse { pulse, name, waits })
}

impl ToNode {
    pub(crate) fn line(&self) -> Vec<u8> {
        let mut out = match self {
            Self::Order(json) => [b"order ".as_slice(), json].concat(),
            Self::Beat(heard) => {
                let words = heard.iter().map(|(node, at)| format!(" {node}:{at}"));
                ["beat".to_owned()]
                    .into_iter()
                    .chain(words)
                    .collect::<String>()
                    .into_bytes()
            }
            Self::Signal { rank, signal } => format!("signal {rank} {signal}").into_bytes(),
        };
        out.push(b'\n');
        out
    }

    pub(crate) fn read(line: &[u8]) -> Option<Self> {
        let (verb, rest) = split(line);
        match verb {
            b"order" => Some(Self::Order(rest.to_vec())),
            b"beat" => {
                let words = std::str::from_utf8(rest).ok()?.split_ascii_whitespace();
                let pairs = words.map(|word| {
                    let (node, at) = word.split_once(':')?;
                    Some((node.parse().ok()?, at.parse().ok()?))
                });
                pairs.collect::<Option<_>>().map(Self::Beat)
            }
            b"signal" => {
                let (rank, signal) = std::str::from_utf8(rest).ok()?.split_once(' ')?;
                Some(Self::Signal {
                    rank: rank.parse().ok()?,
                    signal: signal.parse().ok()?,
                })
            }
            _ => None,
        }
    }
}

fn split(line: &[u8]) -> (&[u8], &[u8]) {
    match memchr::memchr(b' ', line) {
        Some(at) => (line.get(..at).unwrap_or(&[]), line.get(at + 1..).unwrap_or(&[])),
        None => (line, &[]),
    }
}

fn escape(bytes: &[u8], out: &mut Vec<u8>) {
    for byte in bytes {
        match byte {
            b'\n' => out.extend(b"\\n"),
            b'\\' => out.extend(b"\\\\"),
            other => out.push(*other),
        }
    }
}

fn unescape(bytes: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(bytes.len());
    let mut rest = bytes.iter();
    while let Some(byte) = rest.next() {
        match byte {
            b'\\' => match rest.next() {
                Some(b'n') => out.push(b'\n'),
                other => out.push(*other.unwrap_or(&b'\\')),
            },
            other => out.push(*other),
        }
    }
    out
}

/// Splits a stream into lines; a line that is too long is dropped whole.
#[derive(Debug)]
pub(crate) struct Splitter {
    held: Vec<u8>,
    limit: usize,
    skipping: bool,
}

impl Splitter {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            held: Vec::new(),
            limit,
            skipping: false,
        }
    }

    /// Takes bytes; returns the lines that they completed, without newlines.
    pub(crate) fn push(&mut self, mut bytes: &[u8]) -> Vec<Vec<u8>> {
        let mut out = Vec::new();
        while let Some(at) = memchr::memchr(b'\n', bytes) {
            let (line, rest) = bytes.split_at(at);
            bytes = rest.get(1..).unwrap_or(&[]);
            self.hold(line);
            let line = std::mem::take(&mut self.held);
            if !std::mem::take(&mut self.skipping) {
                out.push(line);
            }
        }
        self.hold(bytes);
        out
    }

    fn hold(&mut self, bytes: &[u8]) {
        if self.held.len().saturating_add(bytes.len()) > self.limit {
            self.skipping = true;
            self.held.clear();
        } else if !self.skipping {
            self.held.extend_from_slice(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_node_says_comes_back() {
        let all: Vec<u8> = (0..=255).cycle().take(PIECE).collect();
        let pulse = |name: Option<&str>, waits: Option<&str>| {
            let pulse = RankSample {
                worker: WorkerId(255),
                pid: 4711,
                state: b'S',
                cpu_ms: u64::MAX,
                ..RankSample::default()
            };
            let (name, waits) = (name.map(str::to_owned), waits.map(str::to_owned));
            FromNode::Pulse(RankPulse { pulse, name, waits })
        };
        for said in [
            FromNode::Here {
                node: 1,
                name: "n2".into(),
            },
            FromNode::Output { rank: 3, bytes: all },
            FromNode::Output {
                rank: 0,
                bytes: b"a b\n\\n\\".to_vec(),
            },
            FromNode::Exit {
                rank: 1,
                status: ExitStatus::Code(3),
            },
            FromNode::Exit {
                rank: 1,
                status: ExitStatus::Signal(34),
            },
            FromNode::Beat {
                node: 0,
                at: 1_234_567,
                cpu_ms: 17,
            },
            pulse(None, None),
            pulse(Some("ray::Actor.method"), None),
            pulse(Some("raylet"), Some("wait for a child")),
            FromNode::Window {
                node: 7,
                over_ms: 10_003,
                network: Some(u64::MAX),
            },
            FromNode::Window {
                node: 7,
                over_ms: 10_003,
                network: None,
            },
            FromNode::Gone { node: 1 },
        ] {
            let line = said.line();
            let (end, text) = line.split_last().unwrap();
            assert!(*end == b'\n' && !text.contains(&b'\n') && line.len() < LINE, "{said:?}");
            assert_eq!(FromNode::read(text), Some(said));
        }
        let worst = FromNode::Output {
            rank: u32::MAX,
            bytes: vec![b'\\'; PIECE],
        };
        assert!(worst.line().len() < LINE);
        assert_eq!(FromNode::read(b"srun: error: n2: task 1: Killed"), None);
        assert_eq!(FromNode::read(b"=supervise exit 1"), None);
        assert_eq!(FromNode::read(b"=supervise pulse 1 4711 83 1 2 3"), None);
    }

    #[test]
    fn what_the_launcher_says_comes_back() {
        for said in [
            ToNode::Order(br#"{"a b": "c"}"#.to_vec()),
            ToNode::Beat(vec![(0, 1_234_567), (11, 3)]),
            ToNode::Beat(Vec::new()),
            ToNode::Signal { rank: 1, signal: 15 },
        ] {
            let line = said.line();
            assert_eq!(ToNode::read(line.strip_suffix(b"\n").unwrap()), Some(said));
        }
        assert_eq!(ToNode::read(b"signal 1 x"), None);
        assert_eq!(ToNode::read(b"beat 0:1 x"), None);
    }

    #[test]
    fn lines_are_bounded() {
        let mut lines = Splitter::new(4);
        assert_eq!(lines.push(b"ab"), Vec::<Vec<u8>>::new());
        assert_eq!(lines.push(b"cd\nlonger"), [b"abcd".to_vec()]);
        assert_eq!(lines.push(b"than that\nxy\n"), [b"xy".to_vec()]);
    }
}
