//! A mapping that keeps the order of its keys and compares them as Python does: `1`, `1.0` and `true` are one key.

use std::collections::HashMap;
use std::fmt;

use super::ConfigNode;

/// A key of a mapping, of a type that OmegaConf accepts.
#[derive(Debug, Clone)]
pub enum MapKey {
    /// The only keys that dotted paths reach.
    Str(String),
    Int(i128),
    Float(f64),
    Bool(bool),
}

impl MapKey {
    fn identity(&self) -> KeyIdentity {
        match self {
            Self::Str(text) => KeyIdentity::Text(text.clone()),
            Self::Int(number) => KeyIdentity::Whole(*number),
            Self::Bool(value) => KeyIdentity::Whole(i128::from(*value)),
            Self::Float(number) if number.fract() == 0.0 && number.abs() < 1e30 => KeyIdentity::Whole(*number as i128),
            Self::Float(number) => KeyIdentity::Bits(number.to_bits()),
        }
    }
}

impl PartialEq for MapKey {
    fn eq(&self, other: &Self) -> bool {
        self.identity() == other.identity()
    }
}

impl Eq for MapKey {}

impl fmt::Display for MapKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Str(text) => f.write_str(text),
            Self::Int(number) => write!(f, "{number}"),
            Self::Float(number) => f.write_str(&crate::pystr::float(*number)),
            Self::Bool(value) => f.write_str(if *value { "True" } else { "False" }),
        }
    }
}

impl From<&str> for MapKey {
    fn from(text: &str) -> Self {
        Self::Str(text.to_owned())
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum KeyIdentity {
    Text(String),
    Whole(i128),
    Bits(u64),
}

/// An ordered mapping.
#[derive(Debug, Clone, Default)]
pub struct ConfigMap {
    entries: Vec<(MapKey, ConfigNode)>,
    places: HashMap<KeyIdentity, usize>,
}

impl ConfigMap {
    /// Creates an empty mapping.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the value of a key.
    pub fn get(&self, key: &MapKey) -> Option<&ConfigNode> {
        self.place(key).map(|place| &self.entries[place].1)
    }

    /// Returns the value of a string key.
    pub fn get_str(&self, key: &str) -> Option<&ConfigNode> {
        self.get(&MapKey::from(key))
    }

    /// Returns the value of a key for modification.
    pub fn get_mut(&mut self, key: &MapKey) -> Option<&mut ConfigNode> {
        self.place(key).map(|place| &mut self.entries[place].1)
    }

    /// Sets a value and returns the old one. An existing key keeps its position and its spelling.
    pub fn insert(&mut self, key: MapKey, node: ConfigNode) -> Option<ConfigNode> {
        match self.place(&key) {
            Some(place) => Some(std::mem::replace(&mut self.entries[place].1, node)),
            None => {
                self.places.insert(key.identity(), self.entries.len());
                self.entries.push((key, node));
                None
            }
        }
    }

    /// Removes a key and returns its value.
    pub fn remove(&mut self, key: &MapKey) -> Option<ConfigNode> {
        let place = self.places.remove(&key.identity())?;
        let (_, node) = self.entries.remove(place);
        for later in self.places.values_mut().filter(|later| **later > place) {
            *later -= 1;
        }
        Some(node)
    }

    /// Iterates over the entries in order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&MapKey, &ConfigNode)> + ExactSizeIterator {
        self.entries.iter().map(|(key, node)| (key, node))
    }

    pub(crate) fn entry_or_insert(&mut self, key: MapKey, make: impl FnOnce() -> ConfigNode) -> &mut ConfigNode {
        let place = match self.place(&key) {
            Some(place) => place,
            None => {
                self.insert(key, make());
                self.entries.len() - 1
            }
        };
        &mut self.entries[place].1
    }

    fn place(&self, key: &MapKey) -> Option<usize> {
        self.places.get(&key.identity()).copied()
    }
}

impl PartialEq for ConfigMap {
    fn eq(&self, other: &Self) -> bool {
        self.entries == other.entries
    }
}

impl IntoIterator for ConfigMap {
    type Item = (MapKey, ConfigNode);
    type IntoIter = std::vec::IntoIter<(MapKey, ConfigNode)>;

    fn into_iter(self) -> Self::IntoIter {
        self.entries.into_iter()
    }
}

impl FromIterator<(MapKey, ConfigNode)> for ConfigMap {
    fn from_iter<T: IntoIterator<Item = (MapKey, ConfigNode)>>(entries: T) -> Self {
        let mut map = Self::new();
        for (key, node) in entries {
            map.insert(key, node);
        }
        map
    }
}
