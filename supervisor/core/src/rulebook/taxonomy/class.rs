//! Failure classes and their families.

use super::{RulebookEntry, rows};
use serde::{Deserialize, Serialize};
use std::fmt::{self, Display, Formatter};

include!(concat!(env!("OUT_DIR"), "/classes.rs"));

impl Class {
    /// The class with this code.
    #[must_use]
    pub fn of_code(code: &str) -> Option<Self> {
        rows().find(|row| row.code == code).map(|row| row.class)
    }

    /// Its entry in the rulebook.
    #[must_use]
    pub fn row(self) -> &'static RulebookEntry {
        // The table has one row per class, in this order.
        &super::ROWS[self as usize]
    }

    /// Its stable code (`mem.cuda_oom`).
    #[must_use]
    pub fn code(self) -> &'static str {
        self.row().code
    }

    /// The first part of the code.
    #[must_use]
    pub fn family(self) -> Family {
        self.row().family
    }
}

impl Family {
    /// The family of a code, even if the class itself is unknown.
    #[must_use]
    pub fn of_code(code: &str) -> Option<Self> {
        let name = code.split('.').next().unwrap_or(code);
        Self::ALL
            .iter()
            .find(|(known, _)| *known == name)
            .map(|(_, family)| *family)
    }
}

/// Failure class as recorded: by its code.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub enum FailureClass {
    /// In the rulebook.
    Known(Class),
    /// Defined by the user (`user.flaky_nfs`).
    User(String),
    /// Known only to another release.
    Unknown(String),
}

impl FailureClass {
    /// Its stable code.
    #[must_use]
    pub fn code(&self) -> &str {
        match self {
            Self::Known(class) => class.code(),
            Self::User(code) | Self::Unknown(code) => code,
        }
    }

    /// Its entry in the rulebook, if it has one.
    #[must_use]
    pub fn row(&self) -> Option<&'static RulebookEntry> {
        match self {
            Self::Known(class) => Some(class.row()),
            Self::User(_) | Self::Unknown(_) => None,
        }
    }

    /// Its family; `None` for user classes and for families known only to another release.
    #[must_use]
    pub fn family(&self) -> Option<Family> {
        match self {
            Self::Known(class) => Some(class.family()),
            Self::User(_) => None,
            Self::Unknown(code) => Family::of_code(code),
        }
    }

    /// Returns true if it belongs to this family.
    #[must_use]
    pub fn is_in(&self, family: Family) -> bool {
        self.family() == Some(family)
    }

    /// The rulebook class that it counts as: `exit.unexplained` if it is not in the rulebook.
    #[must_use]
    pub fn counts_as(&self) -> Class {
        match self {
            Self::Known(class) => *class,
            Self::User(_) | Self::Unknown(_) => Class::ExitUnexplained,
        }
    }
}

impl From<Class> for FailureClass {
    fn from(class: Class) -> Self {
        Self::Known(class)
    }
}

impl From<&str> for FailureClass {
    fn from(code: &str) -> Self {
        code.to_owned().into()
    }
}

impl From<String> for FailureClass {
    fn from(code: String) -> Self {
        match Class::of_code(&code) {
            Some(class) => Self::Known(class),
            None if code.starts_with("user.") => Self::User(code),
            None => Self::Unknown(code),
        }
    }
}

impl From<FailureClass> for String {
    fn from(class: FailureClass) -> Self {
        match class {
            FailureClass::Known(class) => class.code().to_owned(),
            FailureClass::User(code) | FailureClass::Unknown(code) => code,
        }
    }
}

impl PartialEq<Class> for FailureClass {
    fn eq(&self, class: &Class) -> bool {
        *self == Self::Known(*class)
    }
}

impl Display for FailureClass {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_class_has_its_own_row() {
        for row in rows() {
            assert_eq!(
                (row.class.row().code, Class::of_code(row.code)),
                (row.code, Some(row.class))
            );
        }
    }

    #[test]
    fn a_recorded_class_is_its_code_whoever_knows_it() {
        for (code, class) in [
            ("mem.cuda_oom", FailureClass::Known(Class::MemCudaOom)),
            ("user.flaky_nfs", FailureClass::User("user.flaky_nfs".to_owned())),
            (
                "mem.of_a_newer_release",
                FailureClass::Unknown("mem.of_a_newer_release".to_owned()),
            ),
        ] {
            let written = serde_json::to_string(&class).unwrap();
            assert_eq!(written, format!("\"{code}\""));
            assert_eq!(serde_json::from_str::<FailureClass>(&written).unwrap(), class);
        }
        assert_eq!(FailureClass::from("mem.of_a_newer_release").family(), Some(Family::Mem));
        assert_eq!(FailureClass::from("user.flaky_nfs").family(), None);
    }
}
