//! The resolvers that OmegaConf brings along.

use super::{Missing, Place, Resolver, Step, Target, grammar};
use crate::error::{ConfigError, ErrorKind};
use crate::pystr;
use crate::tree::{Node, Value, split_path};

/// Place where a resolver is called: the container of the value, and the value.
pub(super) struct Site<'s> {
    pub(super) parent: &'s [Step],
    pub(super) node: &'s Node,
}

/// Calls a resolver by name.
pub(super) fn call(
    resolver: &Resolver<'_>,
    name: &str,
    arguments: &[Value],
    site: &Site<'_>,
    chain: &mut Vec<Place>,
) -> Result<Target, ConfigError> {
    match (name, arguments) {
        ("oc.env", [Value::Str(variable)]) => env(resolver, variable, None, site),
        ("oc.env", [Value::Str(variable), default]) => env(resolver, variable, Some(default), site),
        ("oc.select", [Value::Str(path)]) => select(resolver, path, &Value::Null, site, chain),
        ("oc.select", [Value::Str(path), default]) => select(resolver, path, default, site, chain),
        ("oc.decode", [Value::Null]) => Ok(made(Value::Null, site)),
        ("oc.decode", [Value::Str(text)]) => decode(resolver, text, site, chain),
        ("oc.create", [value @ (Value::Map(_) | Value::List(_) | Value::Null)]) => Ok(made(value.clone(), site)),
        ("oc.create", [Value::Str(text)]) => {
            crate::yaml::parse_trainer_yaml(text, "oc.create").map(|node| made(node.value, site))
        }
        ("oc.deprecated", [Value::Str(path)] | [Value::Str(path), Value::Str(_)]) => {
            resolver.refer(path, site.parent, chain)
        }
        ("oc.dict.keys" | "oc.dict.values", [Value::Str(path)]) => entries(resolver, name, path, site, chain),
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

fn made(value: Value, site: &Site<'_>) -> Target {
    Target::Made(Node::new(value, site.node.origin.clone()))
}

fn env(
    resolver: &Resolver<'_>,
    variable: &str,
    default: Option<&Value>,
    site: &Site<'_>,
) -> Result<Target, ConfigError> {
    if let Some(text) = (resolver.env)(variable) {
        return Ok(made(Value::Str(text), site));
    }
    match default {
        Some(Value::Null) => Ok(made(Value::Null, site)),
        Some(default) => Ok(made(Value::Str(pystr::value(default)), site)),
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
    resolver: &Resolver<'_>,
    path: &str,
    default: &Value,
    site: &Site<'_>,
    chain: &mut Vec<Place>,
) -> Result<Target, ConfigError> {
    let (from, rest) = resolver.base(path, site.parent)?;
    let found = resolver.select(&from, &split_path(rest), chain, Missing::Keep)?;
    let unset = match &found {
        None => true,
        Some(Target::At(place)) => resolver
            .node(place)
            .is_none_or(|node| node.value.is_mandatory_missing()),
        Some(Target::Made(node)) => node.value.is_mandatory_missing(),
    };
    match found {
        Some(target) if !unset => Ok(target),
        _ => Ok(made(default.clone(), site)),
    }
}

fn decode(resolver: &Resolver<'_>, text: &str, site: &Site<'_>, chain: &mut Vec<Place>) -> Result<Target, ConfigError> {
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
    resolver: &Resolver<'_>,
    name: &str,
    path: &str,
    site: &Site<'_>,
    chain: &mut Vec<Place>,
) -> Result<Target, ConfigError> {
    let target = resolver.refer(path, site.parent, chain)?;
    let node = resolver.finish(&target, 0, chain)?;
    let Value::Map(map) = node.value else {
        return Err(ConfigError::new(
            ErrorKind::Interpolation,
            format!("'{path}' is not a mapping"),
        ));
    };
    let keep = |value| Node::new(value, site.node.origin.clone());
    let items = map.into_iter().map(|(key, node)| match (name, key) {
        ("oc.dict.values", _) => node,
        (_, crate::tree::Key::Str(text)) => keep(Value::Str(text)),
        (_, crate::tree::Key::Int(number)) => keep(Value::Int(number)),
        (_, crate::tree::Key::Float(number)) => keep(Value::Float(number)),
        (_, crate::tree::Key::Bool(value)) => keep(Value::Bool(value)),
    });
    Ok(made(Value::List(items.collect()), site))
}
