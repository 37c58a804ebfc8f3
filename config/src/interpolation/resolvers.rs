//! OmegaConf's built-in resolvers.

use super::{InterpolationResolver, InterpolationTarget, MissingPolicy, NodePath, PathSegment, grammar};
use crate::error::{ConfigError, ErrorKind};
use crate::pystr;
use crate::tree::{ConfigNode, ConfigValue, split_path};

/// Where a resolver is called: the container of the value, and the value.
pub(super) struct CallSite<'s> {
    pub(super) parent: &'s [PathSegment],
    pub(super) node: &'s ConfigNode,
}

pub(super) fn call(
    resolver: &InterpolationResolver<'_>,
    name: &str,
    arguments: &[ConfigValue],
    site: &CallSite<'_>,
    chain: &mut Vec<NodePath>,
) -> Result<InterpolationTarget, ConfigError> {
    match (name, arguments) {
        ("oc.env", [ConfigValue::Str(variable)]) => env(resolver, variable, None, site),
        ("oc.env", [ConfigValue::Str(variable), default]) => env(resolver, variable, Some(default), site),
        ("oc.select", [ConfigValue::Str(path)]) => select(resolver, path, &ConfigValue::Null, site, chain),
        ("oc.select", [ConfigValue::Str(path), default]) => select(resolver, path, default, site, chain),
        ("oc.decode", [ConfigValue::Null]) => Ok(made(ConfigValue::Null, site)),
        ("oc.decode", [ConfigValue::Str(text)]) => decode(resolver, text, site, chain),
        ("oc.create", [value @ (ConfigValue::Map(_) | ConfigValue::List(_) | ConfigValue::Null)]) => {
            Ok(made(value.clone(), site))
        }
        ("oc.create", [ConfigValue::Str(text)]) => {
            crate::yaml::parse_trainer_yaml(text, "oc.create").map(|node| made(node.value, site))
        }
        ("oc.deprecated", [ConfigValue::Str(path)] | [ConfigValue::Str(path), ConfigValue::Str(_)]) => {
            resolver.refer(path, site.parent, chain)
        }
        ("oc.dict.keys" | "oc.dict.values", [ConfigValue::Str(path)]) => entries(resolver, name, path, site, chain),
        ("oc.env" | "oc.select" | "oc.decode" | "oc.create" | "oc.dict.keys" | "oc.dict.values", _) => {
            Err(ConfigError::new(
                ErrorKind::Interpolation,
                format!("the arguments of '{name}' do not fit"),
            ))
        }
        _ => Err(ConfigError::new(
            ErrorKind::UnknownResolver,
            format!("the resolver '{name}' is not known to the supervisor"),
        )
        .with_hint(
            "it is registered by the trainer's own code; give this key a plain value if the supervisor needs it",
        )),
    }
}

fn made(value: ConfigValue, site: &CallSite<'_>) -> InterpolationTarget {
    InterpolationTarget::Made(ConfigNode::new(value, site.node.origin.clone()))
}

fn env(
    resolver: &InterpolationResolver<'_>,
    variable: &str,
    default: Option<&ConfigValue>,
    site: &CallSite<'_>,
) -> Result<InterpolationTarget, ConfigError> {
    if let Some(text) = (resolver.env)(variable) {
        return Ok(made(ConfigValue::Str(text), site));
    }
    match default {
        Some(ConfigValue::Null) => Ok(made(ConfigValue::Null, site)),
        Some(default) => Ok(made(ConfigValue::Str(pystr::value(default)), site)),
        None => Err(ConfigError::new(
            ErrorKind::Interpolation,
            format!("the environment variable '{variable}' is not set"),
        )
        .with_hint(format!(
            "set {variable}, or write a default: ${{oc.env:{variable},default}}"
        ))),
    }
}

fn select(
    resolver: &InterpolationResolver<'_>,
    path: &str,
    default: &ConfigValue,
    site: &CallSite<'_>,
    chain: &mut Vec<NodePath>,
) -> Result<InterpolationTarget, ConfigError> {
    let (from, rest) = resolver.base(path, site.parent)?;
    let found = resolver.select(&from, &split_path(rest), chain, MissingPolicy::Keep)?;
    let unset = match &found {
        None => true,
        Some(InterpolationTarget::At(place)) => resolver
            .node(place)
            .is_none_or(|node| node.value.is_mandatory_missing()),
        Some(InterpolationTarget::Made(node)) => node.value.is_mandatory_missing(),
    };
    match found {
        Some(target) if !unset => Ok(target),
        _ => Ok(made(default.clone(), site)),
    }
}

fn decode(
    resolver: &InterpolationResolver<'_>,
    text: &str,
    site: &CallSite<'_>,
    chain: &mut Vec<NodePath>,
) -> Result<InterpolationTarget, ConfigError> {
    let element = grammar::parse_element(text).map_err(|message| {
        ConfigError::new(
            ErrorKind::Interpolation,
            format!("oc.decode cannot read '{text}': {message}"),
        )
    })?;
    resolver
        .element(&element, site.parent, site.node, chain)
        .map(|value| made(value, site))
}

fn entries(
    resolver: &InterpolationResolver<'_>,
    name: &str,
    path: &str,
    site: &CallSite<'_>,
    chain: &mut Vec<NodePath>,
) -> Result<InterpolationTarget, ConfigError> {
    let target = resolver.refer(path, site.parent, chain)?;
    let node = resolver.finish(&target, 0, chain)?;
    let ConfigValue::Map(map) = node.value else {
        return Err(ConfigError::new(
            ErrorKind::Interpolation,
            format!("'{path}' is not a mapping"),
        ));
    };
    let keep = |value| ConfigNode::new(value, site.node.origin.clone());
    let items = map.into_iter().map(|(key, node)| match (name, key) {
        ("oc.dict.values", _) => node,
        (_, crate::tree::MapKey::Str(text)) => keep(ConfigValue::Str(text)),
        (_, crate::tree::MapKey::Int(number)) => keep(ConfigValue::Int(number)),
        (_, crate::tree::MapKey::Float(number)) => keep(ConfigValue::Float(number)),
        (_, crate::tree::MapKey::Bool(value)) => keep(ConfigValue::Bool(value)),
    });
    Ok(made(ConfigValue::List(items.collect()), site))
}
