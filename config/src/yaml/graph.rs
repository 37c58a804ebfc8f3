//! Builds a tree from the parser's graph, in the order in which the trainer's loader works.
//!
//! Aliases make the document a graph. The loader checks mappings for duplicate keys and expands merge keys level by level, and changes
//! the graph while it does. The same order is kept here, because it decides which documents are rejected. Then the graph is copied into a
//! tree. Each alias becomes a copy, with a budget on copies.

use std::collections::HashSet;
use std::sync::Arc;

use super::{MAX_DEPTH, MAX_NODES};
use crate::dialect::{self, YamlTag};
use crate::error::{ConfigError, ErrorKind};
use crate::tree::{ConfigMap, ConfigNode, ConfigValue, MapKey, ValueOrigin};

#[derive(Debug, Default, Clone)]
pub(super) struct Graph {
    pub(super) nodes: Vec<RawNode>,
    pub(super) root: usize,
}

#[derive(Debug, Clone)]
pub(super) struct RawNode {
    pub(super) tag: YamlTag,
    pub(super) kind: YamlNodeKind,
    pub(super) line: u32,
    pub(super) column: u32,
}

#[derive(Debug, Clone)]
pub(super) enum YamlNodeKind {
    Scalar(String),
    Seq(Vec<usize>),
    Map(Vec<(usize, usize)>),
}

pub(super) fn construct(graph: &Graph, file: &Arc<str>) -> Result<ConfigNode, ConfigError> {
    let mut loader = GraphLoader {
        graph: graph.clone(),
        file,
        merged: 0,
        copied: 0,
    };
    loader.expand_merges()?;
    let mut above = vec![false; loader.graph.nodes.len()];
    loader.copy(loader.graph.root, 0, &mut above)
}

struct GraphLoader<'a> {
    graph: Graph,
    file: &'a Arc<str>,
    merged: usize,
    copied: usize,
}

impl GraphLoader<'_> {
    /// Works level by level: check keys, expand merges, continue with the children not visited yet.
    fn expand_merges(&mut self) -> Result<(), ConfigError> {
        let mut seen = vec![false; self.graph.nodes.len()];
        let mut level = vec![self.graph.root];
        seen[self.graph.root] = true;
        while !level.is_empty() {
            let mut next = Vec::new();
            for node in level {
                self.check_tag(node)?;
                if matches!(self.graph.nodes[node].kind, YamlNodeKind::Map(_)) {
                    self.check_duplicates(node)?;
                    self.flatten(node, 0)?;
                }
                for child in self.children(node) {
                    if !std::mem::replace(&mut seen[child], true) {
                        next.push(child);
                    }
                }
            }
            level = next;
        }
        Ok(())
    }

    fn children(&self, node: usize) -> Vec<usize> {
        match &self.graph.nodes[node].kind {
            YamlNodeKind::Scalar(_) => Vec::new(),
            YamlNodeKind::Seq(items) => items.clone(),
            YamlNodeKind::Map(entries) => entries.iter().map(|(_, value)| *value).collect(),
        }
    }

    fn check_tag(&self, node: usize) -> Result<(), ConfigError> {
        let raw = &self.graph.nodes[node];
        match (&raw.kind, &raw.tag) {
            (YamlNodeKind::Scalar(_), _)
            | (YamlNodeKind::Seq(_), YamlTag::Seq)
            | (YamlNodeKind::Map(_), YamlTag::Map) => Ok(()),
            (_, YamlTag::Other(name)) => Err(self.error(
                ErrorKind::BadValue,
                node,
                format!("the tag '{name}' is not known to the trainer's loader"),
            )),
            _ => Err(self.error(ErrorKind::BadValue, node, "the tag does not fit the value".to_owned())),
        }
    }

    fn check_duplicates(&self, node: usize) -> Result<(), ConfigError> {
        let YamlNodeKind::Map(entries) = &self.graph.nodes[node].kind else {
            return Ok(());
        };
        let mut names = HashSet::new();
        for (key, _) in entries {
            let raw = &self.graph.nodes[*key];
            if let (YamlNodeKind::Scalar(name), YamlTag::Str) = (&raw.kind, &raw.tag)
                && !names.insert(name.as_str())
            {
                return Err(self
                    .error(
                        ErrorKind::DuplicateKey,
                        *key,
                        format!("the key '{name}' is in this mapping twice"),
                    )
                    .with_hint("remove one of the two; the trainer refuses the file as it is"));
            }
        }
        Ok(())
    }

    /// Puts the entries that `<<` names before the mapping's own.
    fn flatten(&mut self, node: usize, depth: usize) -> Result<(), ConfigError> {
        if depth > MAX_DEPTH {
            return Err(self.error(
                ErrorKind::Limit,
                node,
                format!("merge keys nested deeper than {MAX_DEPTH} levels"),
            ));
        }
        let mut merged = Vec::new();
        let mut at = 0;
        while let Some((key, value)) = self.entry(node, at) {
            match self.graph.nodes[key].tag {
                YamlTag::Merge => {
                    if let YamlNodeKind::Map(entries) = &mut self.graph.nodes[node].kind {
                        entries.remove(at);
                    }
                    self.merge_source(value, depth, &mut merged)?;
                }
                YamlTag::Equals => {
                    self.graph.nodes[key].tag = YamlTag::Str;
                    at += 1;
                }
                _ => at += 1,
            }
        }
        if let YamlNodeKind::Map(entries) = &mut self.graph.nodes[node].kind {
            entries.splice(0..0, merged);
        }
        Ok(())
    }

    fn entry(&self, node: usize, at: usize) -> Option<(usize, usize)> {
        match &self.graph.nodes[node].kind {
            YamlNodeKind::Map(entries) => entries.get(at).copied(),
            _ => None,
        }
    }

    fn merge_source(
        &mut self,
        value: usize,
        depth: usize,
        merged: &mut Vec<(usize, usize)>,
    ) -> Result<(), ConfigError> {
        let sources = match &self.graph.nodes[value].kind {
            YamlNodeKind::Map(_) => vec![value],
            // Earlier mappings of a list win, and later entries win, so the list is processed backwards.
            YamlNodeKind::Seq(items) => items.clone(),
            YamlNodeKind::Scalar(_) => {
                return Err(self.error(
                    ErrorKind::BadValue,
                    value,
                    "'<<' needs a mapping or a list of mappings".to_owned(),
                ));
            }
        };
        let mut taken = Vec::new();
        for source in sources {
            if !matches!(self.graph.nodes[source].kind, YamlNodeKind::Map(_)) {
                return Err(self.error(
                    ErrorKind::BadValue,
                    source,
                    "'<<' needs mappings in its list".to_owned(),
                ));
            }
            self.flatten(source, depth + 1)?;
            if let YamlNodeKind::Map(entries) = &self.graph.nodes[source].kind {
                self.merged += entries.len();
                if self.merged > MAX_NODES {
                    return Err(self.error(
                        ErrorKind::Limit,
                        value,
                        format!("merge keys expand to more than {MAX_NODES} entries"),
                    ));
                }
                taken.push(entries.clone());
            }
        }
        merged.extend(taken.into_iter().rev().flatten());
        Ok(())
    }

    /// Copies the node into a tree. `above` marks the nodes being copied: an alias to one of them would never end.
    fn copy(&mut self, node: usize, depth: usize, above: &mut [bool]) -> Result<ConfigNode, ConfigError> {
        self.copied += 1;
        if self.copied > 2 * MAX_NODES {
            return Err(self.error(
                ErrorKind::Limit,
                node,
                format!("aliases expand to more than {MAX_NODES} values"),
            ));
        }
        if depth > MAX_DEPTH {
            return Err(self.error(
                ErrorKind::Limit,
                node,
                format!("aliases nest deeper than {MAX_DEPTH} levels"),
            ));
        }
        if std::mem::replace(&mut above[node], true) {
            return Err(self.error(ErrorKind::Cycle, node, "an alias refers to what contains it".to_owned()));
        }
        let value = match self.graph.nodes[node].kind.clone() {
            YamlNodeKind::Scalar(text) => self.scalar(node, &text)?,
            YamlNodeKind::Seq(items) => ConfigValue::List(
                items
                    .into_iter()
                    .map(|item| self.copy(item, depth + 1, above))
                    .collect::<Result<_, _>>()?,
            ),
            YamlNodeKind::Map(entries) => {
                let mut map = ConfigMap::new();
                for (key, value) in entries {
                    let origin = self.origin(key);
                    let key = self.key(key)?;
                    let mut node = self.copy(value, depth + 1, above)?;
                    node.origin = origin;
                    map.insert(key, node);
                }
                ConfigValue::Map(map)
            }
        };
        above[node] = false;
        Ok(ConfigNode::new(value, self.origin(node)))
    }

    fn scalar(&self, node: usize, text: &str) -> Result<ConfigValue, ConfigError> {
        dialect::construct(&self.graph.nodes[node].tag, text)
            .map_err(|message| self.error(ErrorKind::BadValue, node, message))
    }

    fn key(&self, node: usize) -> Result<MapKey, ConfigError> {
        let YamlNodeKind::Scalar(text) = &self.graph.nodes[node].kind else {
            return Err(self.error(
                ErrorKind::BadValue,
                node,
                "a key cannot be a list or a mapping".to_owned(),
            ));
        };
        match self.scalar(node, text)? {
            ConfigValue::Str(text) => Ok(MapKey::Str(text)),
            ConfigValue::Int(number) => Ok(MapKey::Int(number)),
            ConfigValue::Float(number) => Ok(MapKey::Float(number)),
            ConfigValue::Bool(value) => Ok(MapKey::Bool(value)),
            _ => Err(self
                .error(ErrorKind::BadValue, node, "a key cannot be null".to_owned())
                .with_hint("quote the key if the word is meant")),
        }
    }

    fn origin(&self, node: usize) -> ValueOrigin {
        let raw = &self.graph.nodes[node];
        ValueOrigin::File {
            path: Arc::clone(self.file),
            line: raw.line,
            column: raw.column,
        }
    }

    fn error(&self, kind: ErrorKind, node: usize, message: String) -> ConfigError {
        let raw = &self.graph.nodes[node];
        ConfigError::new(kind, message).at(self.file, raw.line, raw.column)
    }
}
