//! Adapter-private state in a value that others pass along.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

/// A value that only the adapter that stored it reads.
#[derive(Clone, Default)]
pub struct AdapterPayload(Option<Arc<dyn Any + Send + Sync>>);

impl AdapterPayload {
    /// Wraps a value.
    #[must_use]
    pub fn new<T: Any + Send + Sync>(value: T) -> Self {
        Self(Some(Arc::new(value)))
    }

    /// Returns the value if it has this type.
    #[must_use]
    pub fn get<T: Any>(&self) -> Option<&T> {
        self.0.as_deref()?.downcast_ref()
    }
}

impl fmt::Debug for AdapterPayload {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Payload(..)" } else { "Payload" })
    }
}
