//! Evaluation of `${…}`.
//!
//! [`InterpolationResolver`] reads a [`ConfigTree`] as OmegaConf reads its configuration: `${a.b}` from the root, `${.x}` and `${..x}`
//! relative to the value, interpolations inside interpolations and inside strings, and the resolvers `oc.env`, `oc.select`, `oc.decode`,
//! `oc.create`, `oc.dict.keys` and `oc.dict.values`. Evaluation is lazy: a resolver that only the trainer's code registers is an error
//! for the values that use it and for no others. The environment is passed in as a function.
//!
//! Evaluation is bounded: cycles are found from the paths being evaluated; everything else is limited by depth and by a budget of steps.

mod grammar;
mod resolvers;

use std::cell::Cell;

use crate::error::{ConfigError, ErrorKind};
use crate::pystr;
use crate::tree::{ConfigMap, ConfigNode, ConfigTree, ConfigValue, MapKey, split_path};
use grammar::{ArgumentElement, Interpolation, TextPart};

/// The most evaluations for one query.
const MAX_STEPS: usize = 200_000;
const MAX_CHAIN: usize = 64;
const MAX_DEPTH: usize = 128;

/// Looks up an environment variable.
pub type Env<'a> = &'a dyn Fn(&str) -> Option<String>;

#[derive(Debug, Clone, PartialEq)]
pub(crate) enum PathSegment {
    Key(MapKey),
    Index(usize),
}

type NodePath = Vec<PathSegment>;

/// Target of an interpolation: a path in the tree, or a value computed during evaluation.
#[derive(Debug, Clone)]
enum InterpolationTarget {
    At(NodePath),
    Made(ConfigNode),
}

/// Looks up values in a tree and evaluates interpolations.
pub struct InterpolationResolver<'a> {
    tree: &'a ConfigTree,
    env: Env<'a>,
    steps: Cell<usize>,
}

impl<'a> InterpolationResolver<'a> {
    /// Creates a resolver over a tree, with an environment.
    pub fn new(tree: &'a ConfigTree, env: Env<'a>) -> Self {
        Self {
            tree,
            env,
            steps: Cell::new(0),
        }
    }

    /// Returns the value at a path, fully evaluated; `None` if no such key exists. A `???` is an error.
    pub fn get(&self, path: &str) -> Result<Option<ConfigNode>, ConfigError> {
        self.steps.set(0);
        let from = Vec::new();
        let found = self.select(&from, &split_path(path), &mut Vec::new(), MissingPolicy::Keep);
        let Some(target) = found.map_err(|error| keyed(error, path))? else {
            return Ok(None);
        };
        let node = self
            .finish(&target, 0, &mut Vec::new())
            .map_err(|error| keyed(error, path))?;
        if node.value.is_mandatory_missing() {
            return Err(ConfigError::new(
                ErrorKind::MandatoryMissing,
                "the value is `???`, it has to be filled in",
            )
            .from_origin(&node.origin)
            .with_key(path)
            .with_hint(format!("set {path} in the file or with an override")));
        }
        Ok(Some(node))
    }

    /// Returns the value at a path; a missing key is an error.
    pub fn require(&self, path: &str) -> Result<ConfigNode, ConfigError> {
        self.get(path)?.ok_or_else(|| {
            ConfigError::new(ErrorKind::MissingKey, "the configuration has no such key")
                .from_origin(&self.tree.root.origin)
                .with_key(path)
        })
    }

    /// Evaluates the whole tree; `???` stays as it is.
    pub fn resolve_all(&self) -> Result<ConfigTree, ConfigError> {
        self.steps.set(0);
        self.finish(&InterpolationTarget::At(Vec::new()), 0, &mut Vec::new())
            .map(ConfigTree::new)
    }

    /// Turns the target into a tree of plain values. `chain` contains the paths being evaluated.
    fn finish(
        &self,
        target: &InterpolationTarget,
        depth: usize,
        chain: &mut Vec<NodePath>,
    ) -> Result<ConfigNode, ConfigError> {
        let place = match target {
            InterpolationTarget::Made(node) => return Ok(node.clone()),
            InterpolationTarget::At(place) => place,
        };
        let Some(node) = self.node(place) else {
            return Err(ConfigError::new(ErrorKind::MissingKey, "the key is gone"));
        };
        self.count(node, depth)?;
        if node.value.is_interpolation() {
            let found = self.follow(place, chain)?;
            chain.push(place.clone());
            let finished = self.finish(&found, depth + 1, chain);
            chain.pop();
            return finished;
        }
        let value = match &node.value {
            ConfigValue::List(items) => {
                let each = |index| {
                    self.finish(
                        &InterpolationTarget::At(child(place, PathSegment::Index(index))),
                        depth + 1,
                        chain,
                    )
                };
                ConfigValue::List((0..items.len()).map(each).collect::<Result<_, _>>()?)
            }
            ConfigValue::Map(map) => {
                let mut finished = ConfigMap::new();
                for (key, _) in map.iter() {
                    let at = InterpolationTarget::At(child(place, PathSegment::Key(key.clone())));
                    finished.insert(key.clone(), self.finish(&at, depth + 1, chain)?);
                }
                ConfigValue::Map(finished)
            }
            plain => plain.clone(),
        };
        Ok(ConfigNode::new(value, node.origin.clone()))
    }

    /// Follows the interpolation at a path until a value is not an interpolation.
    fn follow(&self, place: &NodePath, chain: &mut Vec<NodePath>) -> Result<InterpolationTarget, ConfigError> {
        let Some(node) = self.node(place) else {
            return Err(ConfigError::new(ErrorKind::MissingKey, "the key is gone"));
        };
        let ConfigValue::Str(text) = &node.value else {
            return Ok(InterpolationTarget::At(place.clone()));
        };
        if !node.value.is_interpolation() {
            return Ok(InterpolationTarget::At(place.clone()));
        }
        let located = |error: ConfigError| keyed(error.from_origin(&node.origin), &dotted(place));
        if let Some(first) = chain.iter().position(|earlier| earlier == place) {
            let circle: Vec<String> = chain[first..]
                .iter()
                .chain([place])
                .map(|place| dotted(place))
                .collect();
            let message = format!("the interpolations go in a circle: {}", circle.join(" -> "));
            return Err(located(
                ConfigError::new(ErrorKind::Cycle, message).with_hint("give one of these keys a plain value"),
            ));
        }
        if chain.len() >= MAX_CHAIN {
            return Err(located(ConfigError::new(
                ErrorKind::Limit,
                format!("more than {MAX_CHAIN} interpolations in a row"),
            )));
        }
        self.count(node, 0)?;
        let parts = grammar::parse(text).map_err(|message| {
            located(ConfigError::new(
                ErrorKind::Interpolation,
                format!("'{text}' cannot be read: {message}"),
            ))
        })?;
        chain.push(place.clone());
        let found = self.text(&parts, &place[..place.len().saturating_sub(1)], node, chain);
        chain.pop();
        found.map_err(located)
    }

    /// Evaluates a text. A single interpolation keeps its type; anything else becomes a string.
    fn text(
        &self,
        parts: &[TextPart],
        parent: &[PathSegment],
        node: &ConfigNode,
        chain: &mut Vec<NodePath>,
    ) -> Result<InterpolationTarget, ConfigError> {
        if let [TextPart::Inter(inter)] = parts {
            return self.inter(inter, parent, node, chain);
        }
        let mut out = String::new();
        for part in parts {
            match part {
                TextPart::Text(text) => out.push_str(text),
                TextPart::Inter(inter) => {
                    let target = self.inter(inter, parent, node, chain)?;
                    out.push_str(&pystr::value(&self.finish(&target, 0, chain)?.value));
                }
            }
            if out.len() > crate::yaml::MAX_BYTES {
                return Err(ConfigError::new(
                    ErrorKind::Limit,
                    "the interpolated text grows too long",
                ));
            }
        }
        Ok(InterpolationTarget::Made(ConfigNode::new(
            ConfigValue::Str(out),
            node.origin.clone(),
        )))
    }

    fn inter(
        &self,
        inter: &Interpolation,
        parent: &[PathSegment],
        node: &ConfigNode,
        chain: &mut Vec<NodePath>,
    ) -> Result<InterpolationTarget, ConfigError> {
        match inter {
            Interpolation::Node { path } => {
                let path = self.joined(path, parent, node, chain)?;
                self.refer(&path, parent, chain)
            }
            Interpolation::Resolver { name, arguments } => {
                let name = self.joined(name, parent, node, chain)?;
                let arguments = arguments
                    .iter()
                    .map(|element| self.element(element, parent, node, chain))
                    .collect::<Result<Vec<_>, _>>()?;
                resolvers::call(self, &name, &arguments, &resolvers::CallSite { parent, node }, chain)
            }
        }
    }

    /// Evaluates a name that may contain interpolations; each must give a string.
    fn joined(
        &self,
        parts: &[TextPart],
        parent: &[PathSegment],
        node: &ConfigNode,
        chain: &mut Vec<NodePath>,
    ) -> Result<String, ConfigError> {
        let mut name = String::new();
        for part in parts {
            match part {
                TextPart::Text(text) => name.push_str(text),
                TextPart::Inter(inter) => {
                    let target = self.inter(inter, parent, node, chain)?;
                    match self.finish(&target, 0, chain)?.value {
                        ConfigValue::Str(text) => name.push_str(&text),
                        other => {
                            let message = format!(
                                "an interpolation used as a name has to be a string, it is {}",
                                other.type_name()
                            );
                            return Err(ConfigError::new(ErrorKind::Interpolation, message));
                        }
                    }
                }
            }
        }
        Ok(name)
    }

    fn element(
        &self,
        element: &ArgumentElement,
        parent: &[PathSegment],
        node: &ConfigNode,
        chain: &mut Vec<NodePath>,
    ) -> Result<ConfigValue, ConfigError> {
        match element {
            ArgumentElement::Plain(value) => Ok(value.clone()),
            ArgumentElement::Unquoted(parts) => {
                let target = self.text(parts, parent, node, chain)?;
                Ok(self.finish(&target, 0, chain)?.value)
            }
            ArgumentElement::Quoted(parts) => {
                let target = self.text(parts, parent, node, chain)?;
                Ok(ConfigValue::Str(pystr::value(&self.finish(&target, 0, chain)?.value)))
            }
            ArgumentElement::List(items) => {
                let node_of = |value| ConfigNode::new(value, node.origin.clone());
                let items = items
                    .iter()
                    .map(|item| self.element(item, parent, node, chain).map(node_of));
                Ok(ConfigValue::List(items.collect::<Result<_, _>>()?))
            }
            ArgumentElement::Map(entries) => {
                let mut map = ConfigMap::new();
                for (key, item) in entries {
                    map.insert(
                        key.clone(),
                        ConfigNode::new(self.element(item, parent, node, chain)?, node.origin.clone()),
                    );
                }
                Ok(ConfigValue::Map(map))
            }
        }
    }

    /// Finds the target of `${path}` in a value whose container is `parent`.
    fn refer(
        &self,
        path: &str,
        parent: &[PathSegment],
        chain: &mut Vec<NodePath>,
    ) -> Result<InterpolationTarget, ConfigError> {
        let (from, rest) = self.base(path, parent)?;
        let missing = || {
            ConfigError::new(
                ErrorKind::MissingKey,
                format!("it refers to '{path}', which does not exist"),
            )
            .with_hint(format!("add {rest} or correct the interpolation"))
        };
        let target = self
            .select(&from, &split_path(rest), chain, MissingPolicy::Refuse)?
            .ok_or_else(missing)?;
        if let InterpolationTarget::At(place) = &target
            && parent.starts_with(place)
        {
            let message = format!("it refers to '{path}', which contains it");
            return Err(ConfigError::new(ErrorKind::Cycle, message));
        }
        Ok(target)
    }

    /// Returns the container where a path starts, and the path without its leading dots.
    fn base<'p>(&self, path: &'p str, parent: &[PathSegment]) -> Result<(NodePath, &'p str), ConfigError> {
        let Some(mut rest) = path.strip_prefix('.') else {
            return Ok((Vec::new(), path));
        };
        let mut from = parent.to_vec();
        while let Some(shorter) = rest.strip_prefix('.') {
            if from.pop().is_none() {
                let message = format!("'{path}' leads above the root");
                return Err(ConfigError::new(ErrorKind::MissingKey, message));
            }
            rest = shorter;
        }
        Ok((from, rest))
    }

    /// Walks a path and follows interpolations, also at its end.
    fn select(
        &self,
        from: &NodePath,
        parts: &[String],
        chain: &mut Vec<NodePath>,
        missing: MissingPolicy,
    ) -> Result<Option<InterpolationTarget>, ConfigError> {
        let mut here = InterpolationTarget::At(from.clone());
        if parts.len() == 1 && parts[0].is_empty() {
            return Ok(Some(here));
        }
        for (at, part) in parts.iter().enumerate() {
            let next = match &here {
                InterpolationTarget::At(place) => match self.step(place, part) {
                    Ok(Some(step)) => InterpolationTarget::At(child(place, step)),
                    Ok(None) => return Ok(None),
                    Err(error) if missing == MissingPolicy::Refuse => {
                        return Err(error.with_key(parts[..at].join(".")));
                    }
                    Err(_) => return Ok(None),
                },
                InterpolationTarget::Made(node) => match node.child(part) {
                    Some(node) => InterpolationTarget::Made(node.clone()),
                    None => return Ok(None),
                },
            };
            here = match next {
                InterpolationTarget::At(place) => {
                    let unset = self.node(&place).is_some_and(|node| node.value.is_mandatory_missing());
                    if unset && missing == MissingPolicy::Refuse {
                        let message = format!(
                            "it refers to '{}', which is `???` and has to be filled in",
                            dotted(&place)
                        );
                        return Err(ConfigError::new(ErrorKind::MandatoryMissing, message));
                    }
                    self.follow(&place, chain)?
                }
                made => made,
            };
        }
        Ok(Some(here))
    }

    /// Returns the step into a container; an error if the node is not a container.
    fn step(&self, place: &NodePath, part: &str) -> Result<Option<PathSegment>, ConfigError> {
        match self.node(place).map(|node| &node.value) {
            Some(ConfigValue::Map(map)) => {
                let key = MapKey::from(part);
                Ok(map.get(&key).is_some().then_some(PathSegment::Key(key)))
            }
            Some(ConfigValue::List(items)) => match part.parse::<usize>() {
                Ok(index) => Ok((index < items.len()).then_some(PathSegment::Index(index))),
                Err(_) => Err(ConfigError::new(
                    ErrorKind::MissingKey,
                    format!("'{part}' is no index of a list"),
                )),
            },
            Some(other) => {
                let message = format!("{} has no key '{part}'", other.type_name());
                Err(ConfigError::new(ErrorKind::MissingKey, message))
            }
            None => Ok(None),
        }
    }

    fn node(&self, place: &[PathSegment]) -> Option<&'a ConfigNode> {
        place
            .iter()
            .try_fold(&self.tree.root, |node, step| match (step, &node.value) {
                (PathSegment::Key(key), ConfigValue::Map(map)) => map.get(key),
                (PathSegment::Index(index), ConfigValue::List(items)) => items.get(*index),
                _ => None,
            })
    }

    fn count(&self, node: &ConfigNode, depth: usize) -> Result<(), ConfigError> {
        self.steps.set(self.steps.get() + 1);
        if self.steps.get() > MAX_STEPS || depth > MAX_DEPTH {
            return Err(
                ConfigError::new(ErrorKind::Limit, "the interpolations expand too far").from_origin(&node.origin)
            );
        }
        Ok(())
    }
}

/// What to do with a `???` in a path.
#[derive(Debug, Clone, Copy, PartialEq)]
enum MissingPolicy {
    Keep,
    Refuse,
}

/// Returns an unevaluated copy of the container that the interpolation at `path` refers to.
pub(crate) fn container_behind(tree: &ConfigTree, path: &[MapKey]) -> Option<ConfigNode> {
    let resolver = InterpolationResolver::new(tree, &|_| None);
    let place = path.iter().cloned().map(PathSegment::Key).collect();
    match resolver.follow(&place, &mut Vec::new()).ok()? {
        InterpolationTarget::At(place) => resolver
            .node(&place)
            .filter(|node| matches!(node.value, ConfigValue::Map(_) | ConfigValue::List(_)))
            .cloned(),
        InterpolationTarget::Made(node) => {
            Some(node).filter(|node| matches!(node.value, ConfigValue::Map(_) | ConfigValue::List(_)))
        }
    }
}

fn child(place: &[PathSegment], step: PathSegment) -> NodePath {
    let mut place = place.to_vec();
    place.push(step);
    place
}

fn dotted(place: &[PathSegment]) -> String {
    let parts = place.iter().map(|step| match step {
        PathSegment::Key(key) => key.to_string(),
        PathSegment::Index(index) => index.to_string(),
    });
    parts.collect::<Vec<_>>().join(".")
}

fn keyed(error: ConfigError, key: &str) -> ConfigError {
    if error.key.is_some() {
        error
    } else {
        error.with_key(key)
    }
}
