//! YAML parsing. This is the only file that names a YAML crate.
//!
//! A trainer's YAML is built from parser events, which keep a scalar's text and style, and typed by the trainer's own rules
//! ([`crate::dialect`]); neither serde crate could do that. The supervisor's own files go through `serde_yaml`; their locations come from
//! an event parse of the same text. Two things that the trainer accepts are rejected: a lone `-` inside brackets, and `!!binary`.
//! Documents are bounded in size, nodes, depth and in what aliases and merges expand to.

mod graph;
mod strict;

use std::collections::{HashMap, HashSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Span};

use crate::dialect::{self, YamlTag};
use crate::error::{ConfigError, ErrorKind};
use crate::tree::{ConfigMap, ConfigNode, ConfigValue, MapKey, ValueOrigin};
use graph::{Graph, RawNode, YamlNodeKind};
use strict::{NodeSpan, YamlPos, YamlStyle, YamlText};

/// The largest document, in bytes.
pub const MAX_BYTES: usize = 4 << 20;
/// The most nodes of one document, and the most that aliases and merges may add.
pub const MAX_NODES: usize = 200_000;
/// The deepest nesting.
pub const MAX_DEPTH: usize = 128;

/// Parses a trainer's YAML as OmegaConf's loader does: YAML 1.1 scalars, merge keys, no duplicate keys, one document. An empty text is an
/// empty mapping. `file` names the text in errors and origins.
pub fn parse_trainer_yaml(text: &str, file: &str) -> Result<ConfigNode, ConfigError> {
    let file: Arc<str> = Arc::from(file);
    let node = graph::construct(&read_graph(text, &file)?, &file)?;
    match node.value {
        ConfigValue::Map(_) | ConfigValue::List(_) => Ok(node),
        ConfigValue::Null => Ok(ConfigNode::new(ConfigValue::Map(ConfigMap::new()), node.origin)),
        // A lone string is parsed once more; if it is still a string, it becomes a mapping with that one key.
        ConfigValue::Str(ref text) => {
            let again = graph::construct(&read_graph(text, &file)?, &file)?;
            lone_text(again, node.origin)
        }
        other => Err(ConfigError::new(
            ErrorKind::WrongType,
            format!("the document is {}, not a mapping", other.type_name()),
        )
        .from_origin(&node.origin)
        .with_hint("write `key: value` lines")),
    }
}

fn lone_text(node: ConfigNode, origin: ValueOrigin) -> Result<ConfigNode, ConfigError> {
    let map = match node.value {
        ConfigValue::Map(_) | ConfigValue::List(_) => return Ok(ConfigNode::new(node.value, origin)),
        ConfigValue::Null => ConfigMap::new(),
        ConfigValue::Str(text) => [(MapKey::Str(text), ConfigNode::new(ConfigValue::Null, origin.clone()))]
            .into_iter()
            .collect(),
        _ => {
            return Err(ConfigError::new(ErrorKind::WrongType, "the document is not a mapping").from_origin(&origin));
        }
    };
    Ok(ConfigNode::new(ConfigValue::Map(map), origin))
}

/// Parses a plain scalar, such as the value of an environment variable, with the trainer's rules.
pub fn parse_scalar(text: &str) -> Result<ConfigValue, String> {
    dialect::construct(&dialect::resolve(text), text)
}

/// Parses one of the supervisor's own files with serde; the origins come from an event parse of the same text.
pub fn parse_supervisor_yaml(text: &str, file: &str) -> Result<ConfigNode, ConfigError> {
    let name: Arc<str> = Arc::from(file);
    // The event parser checks bounds and duplicate keys and gives exact locations; serde gives the types.
    let places = parse_trainer_yaml(text, file)?;
    let value: serde_yaml::Value = serde_yaml::from_str(text).map_err(|error| {
        let place = error
            .location()
            .map_or((1, 1), |at| (narrow(at.line()), narrow(at.column())));
        ConfigError::new(ErrorKind::Syntax, error.to_string()).at(&name, place.0, place.1)
    })?;
    retype(value, places)
}

/// Gives the nodes of `places` the types of `value`.
fn retype(value: serde_yaml::Value, places: ConfigNode) -> Result<ConfigNode, ConfigError> {
    let origin = places.origin;
    let typed = match (value, places.value) {
        (serde_yaml::Value::Mapping(entries), ConfigValue::Map(map)) => {
            let mut typed = ConfigMap::new();
            let mut values: HashMap<String, serde_yaml::Value> = entries
                .into_iter()
                .map(|(key, value)| (key_text(&key), value))
                .collect();
            for (key, place) in map {
                let text = key_spelling(&key, &values);
                if let Some(value) = text.as_ref().and_then(|text| values.remove(text)) {
                    typed.insert(MapKey::Str(text.unwrap_or_default()), retype(value, place)?);
                } else {
                    typed.insert(key, place);
                }
            }
            ConfigValue::Map(typed)
        }
        (serde_yaml::Value::Sequence(items), ConfigValue::List(places)) if items.len() == places.len() => {
            ConfigValue::List(
                items
                    .into_iter()
                    .zip(places)
                    .map(|(item, place)| retype(item, place))
                    .collect::<Result<_, _>>()?,
            )
        }
        (serde_yaml::Value::Null, ConfigValue::Map(map)) => ConfigValue::Map(map),
        (serde_yaml::Value::Null, _) => ConfigValue::Null,
        (serde_yaml::Value::Bool(value), _) => ConfigValue::Bool(value),
        (serde_yaml::Value::String(text), _) => ConfigValue::Str(text),
        (serde_yaml::Value::Number(number), other) => match (number.as_i64(), number.as_u64(), number.as_f64()) {
            (Some(whole), _, _) => ConfigValue::Int(i128::from(whole)),
            (_, Some(whole), _) => ConfigValue::Int(i128::from(whole)),
            (_, _, Some(float)) => ConfigValue::Float(float),
            _ => other,
        },
        (_, other) => other,
    };
    Ok(ConfigNode::new(typed, origin))
}

fn key_text(key: &serde_yaml::Value) -> String {
    match key {
        serde_yaml::Value::String(text) => text.clone(),
        serde_yaml::Value::Bool(value) => value.to_string(),
        serde_yaml::Value::Number(number) => number.to_string(),
        _ => String::new(),
    }
}

/// How serde spells a key that the event parse typed: `on` is true here and a string there.
fn key_spelling(key: &MapKey, values: &HashMap<String, serde_yaml::Value>) -> Option<String> {
    let spellings: &[&str] = match key {
        MapKey::Str(text) => return values.contains_key(text).then(|| text.clone()),
        MapKey::Bool(true) => &["true", "on", "yes", "On", "Yes", "ON", "YES"],
        MapKey::Bool(false) => &["false", "off", "no", "Off", "No", "OFF", "NO"],
        other => return Some(other.to_string()).filter(|text| values.contains_key(text)),
    };
    spellings
        .iter()
        .find(|text| values.contains_key(**text))
        .map(|text| (*text).to_owned())
}

fn narrow(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// Parses one document into a graph. A panic of the parser crate on odd bytes becomes an error.
fn read_graph(text: &str, file: &Arc<str>) -> Result<Graph, ConfigError> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    check_characters(text, file)?;
    let read = catch_unwind(AssertUnwindSafe(|| Builder::new(file, text).read()));
    read.unwrap_or_else(|_| {
        Err(ConfigError::new(ErrorKind::Syntax, "the YAML parser failed on this text").at(file, 1, 1))
    })
}

fn check_characters(text: &str, file: &Arc<str>) -> Result<(), ConfigError> {
    if text.len() > MAX_BYTES {
        let message = format!(
            "the document has {} bytes, more than the {MAX_BYTES} allowed",
            text.len()
        );
        return Err(ConfigError::new(ErrorKind::Limit, message).at(file, 1, 1));
    }
    let (mut line, mut column) = (1, 0);
    for c in text.chars() {
        column += 1;
        let printable = matches!(c, '\t' | '\n' | '\r' | ' '..='~' | '\u{85}' | '\u{a0}'..='\u{fffd}' | '\u{10000}'..);
        if !printable {
            let message = format!("the character {c:?} is not allowed in YAML");
            return Err(ConfigError::new(ErrorKind::Syntax, message).at(file, line, column));
        }
        if c == '\n' {
            (line, column) = (line + 1, 0);
        }
    }
    Ok(())
}

struct OpenNode {
    node: usize,
    key: Option<usize>,
    /// Written with brackets or braces, or inside such a node.
    flow: bool,
}

/// What the parser says of a key without `:`, at the next token.
const NO_COLON: &str = "simple key expect ':'";

struct Builder<'a> {
    file: &'a Arc<str>,
    text: &'a str,
    source: YamlText<'a>,
    graph: Graph,
    anchors: HashMap<usize, usize>,
    names: HashSet<&'a str>,
    open: Vec<OpenNode>,
    root: Option<usize>,
}

impl<'a> Builder<'a> {
    fn new(file: &'a Arc<str>, text: &'a str) -> Self {
        Self {
            file,
            text,
            source: YamlText::new(text),
            graph: Graph::default(),
            anchors: HashMap::new(),
            names: HashSet::new(),
            open: Vec::new(),
            root: None,
        }
    }

    fn read(mut self) -> Result<Graph, ConfigError> {
        let mut parser = Parser::new_from_str(self.text);
        let mut documents = 0;
        while let Some(event) = parser.next_event() {
            let (event, span) = event.map_err(|error| self.scan_error(&error))?;
            let span = extent(span);
            match event {
                Event::DocumentStart(_) => {
                    documents += 1;
                    if documents > 1 {
                        return Err(self
                            .error(ErrorKind::Syntax, span, "a second document begins here")
                            .with_hint("the trainer reads one document per file; remove the `---`"));
                    }
                }
                Event::StreamEnd => break,
                Event::Alias(id) => {
                    let node = self.anchors.get(&id).copied();
                    let node = node.ok_or_else(|| self.error(ErrorKind::Syntax, span, "the alias has no anchor"))?;
                    self.place(node);
                }
                Event::Scalar(text, style, anchor, tag) => {
                    let node = self.scalar(text.into_owned(), written(style), span, anchor, tag.as_deref())?;
                    self.place(node);
                }
                Event::SequenceStart(anchor, tag) => {
                    self.start(
                        span,
                        named(tag.as_deref()).unwrap_or(YamlTag::Seq),
                        YamlNodeKind::Seq(Vec::new()),
                        anchor,
                    )?;
                }
                Event::MappingStart(anchor, tag) => {
                    self.start(
                        span,
                        named(tag.as_deref()).unwrap_or(YamlTag::Map),
                        YamlNodeKind::Map(Vec::new()),
                        anchor,
                    )?;
                }
                Event::SequenceEnd | Event::MappingEnd => {
                    self.open.pop();
                }
                Event::Nothing | Event::StreamStart | Event::DocumentEnd => {}
            }
        }
        let root = match self.root {
            Some(root) => root,
            None => self.add(
                NodeSpan::default(),
                YamlTag::Null,
                YamlNodeKind::Scalar(String::new()),
                0,
            )?,
        };
        self.graph.root = root;
        if let Some((line, column)) = self.source.stray_tab() {
            return Err(ConfigError::new(ErrorKind::Syntax, "there is a tab between values")
                .at(self.file, line, column)
                .with_hint("use spaces; the trainer's loader refuses tabs"));
        }
        Ok(self.graph)
    }

    fn scalar(
        &mut self,
        text: String,
        style: YamlStyle,
        span: NodeSpan,
        anchor: usize,
        tag: Option<&saphyr_parser::Tag>,
    ) -> Result<usize, ConfigError> {
        let bare_tag = tag.is_some() && named(tag).is_none();
        // If a value is left out, the parser reports `~` with an empty span.
        let written = if span.start == span.end { "" } else { text.as_str() };
        if self.in_flow()
            && let Some(message) = self.source.refuse_in_flow(written, style, bare_tag)
        {
            return Err(self.error(ErrorKind::Syntax, span, &message));
        }
        if self.open.is_empty() && style == YamlStyle::Block && span.start.column == 0 && !text.trim().is_empty() {
            return Err(self.error(ErrorKind::Syntax, span, "the text is not indented"));
        }
        self.source.note_scalar(span, style);
        let text = self.source.block_content(text, style, span);
        let tag = scalar_tag(&text, style, tag);
        self.add(span, tag, YamlNodeKind::Scalar(text), anchor)
    }

    fn in_flow(&self) -> bool {
        self.open.last().is_some_and(|frame| frame.flow)
    }

    /// The loader rejects a name that is used twice, and most special characters in it.
    fn check_anchor(&mut self, span: NodeSpan) -> Result<(), ConfigError> {
        let Some(name) = self.source.anchor_name(span) else {
            return Ok(());
        };
        if name.is_empty()
            || !name
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))
        {
            return Err(self.error(ErrorKind::Syntax, span, &format!("'{name}' cannot name an anchor")));
        }
        if !self.names.insert(name) {
            return Err(self.error(
                ErrorKind::DuplicateKey,
                span,
                &format!("the anchor '{name}' is defined twice"),
            ));
        }
        Ok(())
    }

    fn start(&mut self, span: NodeSpan, tag: YamlTag, kind: YamlNodeKind, anchor: usize) -> Result<(), ConfigError> {
        if self.open.len() >= MAX_DEPTH {
            return Err(self.error(
                ErrorKind::Limit,
                span,
                &format!("nested deeper than {MAX_DEPTH} levels"),
            ));
        }
        let node = self.add(span, tag, kind, anchor)?;
        self.place(node);
        let flow = self.in_flow() || self.source.is_flow(span);
        self.open.push(OpenNode { node, key: None, flow });
        Ok(())
    }

    fn add(&mut self, span: NodeSpan, tag: YamlTag, kind: YamlNodeKind, anchor: usize) -> Result<usize, ConfigError> {
        if self.graph.nodes.len() >= MAX_NODES {
            return Err(self.error(ErrorKind::Limit, span, &format!("more than {MAX_NODES} values")));
        }
        let node = self.graph.nodes.len();
        let (line, column) = (narrow(span.start.line.max(1)), narrow(span.start.column + 1));
        self.graph.nodes.push(RawNode {
            tag,
            kind,
            line,
            column,
        });
        if anchor > 0 {
            self.anchors.insert(anchor, node);
            self.check_anchor(span)?;
        }
        Ok(node)
    }

    /// Attaches a finished or opened node at the parser's position.
    fn place(&mut self, node: usize) {
        let Some(frame) = self.open.last_mut() else {
            self.root = self.root.or(Some(node));
            return;
        };
        match &mut self.graph.nodes[frame.node].kind {
            YamlNodeKind::Seq(items) => items.push(node),
            YamlNodeKind::Map(entries) => match frame.key.take() {
                Some(key) => entries.push((key, node)),
                None => frame.key = Some(node),
            },
            YamlNodeKind::Scalar(_) => {}
        }
    }

    fn error(&self, kind: ErrorKind, span: NodeSpan, message: &str) -> ConfigError {
        ConfigError::new(kind, message).at(self.file, narrow(span.start.line), narrow(span.start.column + 1))
    }

    fn scan_error(&self, error: &ScanError) -> ConfigError {
        let message = match error.info() {
            NO_COLON => "a `:` is missing after this key",
            info => info,
        };
        let (line, column) = self.place_of(error);
        ConfigError::new(ErrorKind::Syntax, message).at(self.file, narrow(line), narrow(column))
    }

    /// Where the mistake is. The parser notices a missing `:`, comma or bracket only at the next token: then it is at the end of the
    /// line before.
    fn place_of(&self, error: &ScanError) -> (usize, usize) {
        let at = error.marker();
        let found = (at.line(), at.col() + 1);
        let mut lines = self.text.lines().skip(at.line().saturating_sub(1));
        let (head, tail): (String, String) = match lines.next() {
            Some(line) => (
                line.chars().take(at.col()).collect(),
                line.chars().skip(at.col()).collect(),
            ),
            None => Default::default(),
        };
        let is_end = tail.trim().is_empty() && lines.all(|line| line.trim().is_empty());
        let is_first = self.in_flow() && !head.contains([',', '[', '{']);
        if error.info() != NO_COLON && !is_first && !(is_end && head.trim().is_empty()) {
            return found;
        }
        let is_content = |line: &&str| !line.trim().is_empty() && !line.trim_start().starts_with('#');
        let before = self.text.lines().take(at.line().saturating_sub(1)).enumerate();
        match before.filter(|(_, line)| is_content(line)).last() {
            Some((n, line)) if !line.trim_end().ends_with([',', '[', '{']) => {
                (n + 1, line.trim_end().chars().count() + 1)
            }
            _ => found,
        }
    }
}

fn extent(span: Span) -> NodeSpan {
    let mark = |mark: saphyr_parser::Marker| YamlPos {
        line: mark.line(),
        column: mark.col(),
    };
    NodeSpan {
        start: mark(span.start),
        end: mark(span.end),
    }
}

fn written(style: ScalarStyle) -> YamlStyle {
    match style {
        ScalarStyle::Plain => YamlStyle::Plain,
        ScalarStyle::SingleQuoted | ScalarStyle::DoubleQuoted => YamlStyle::Quoted,
        ScalarStyle::Literal | ScalarStyle::Folded => YamlStyle::Block,
    }
}

fn named(tag: Option<&saphyr_parser::Tag>) -> Option<YamlTag> {
    let tag = tag?;
    let name = format!("{}{}", tag.handle, tag.suffix);
    // A lone `!` asks for the default tag.
    if name == "!" { None } else { Some(YamlTag::named(&name)) }
}

fn scalar_tag(text: &str, style: YamlStyle, tag: Option<&saphyr_parser::Tag>) -> YamlTag {
    match (named(tag), tag, style) {
        (Some(tag), _, _) => tag,
        // With a lone `!`, the loader types even a quoted scalar by its spelling.
        (None, Some(_), _) | (None, None, YamlStyle::Plain) => dialect::resolve(text),
        (None, None, _) => YamlTag::Str,
    }
}
