//! Names the family to open or to create, with or without options.

use crate::options::FamilyOptions;

/// A family to open or to create. It is made from a name, or from a name and options.
///
/// With options, they become the options of the family, even if the family already exists. Without
/// options, an existing family keeps its own, and a new family takes the database's template,
/// [`Options::family`](crate::Options::family).
#[derive(Clone, Debug, PartialEq)]
pub struct FamilySpec {
    pub(crate) name: String,
    pub(crate) options: Option<FamilyOptions>,
}

impl From<&str> for FamilySpec {
    fn from(name: &str) -> Self {
        FamilySpec { name: name.to_owned(), options: None }
    }
}

impl From<&String> for FamilySpec {
    fn from(name: &String) -> Self {
        FamilySpec { name: name.clone(), options: None }
    }
}

impl From<String> for FamilySpec {
    fn from(name: String) -> Self {
        FamilySpec { name, options: None }
    }
}

impl<N: Into<String>> From<(N, FamilyOptions)> for FamilySpec {
    fn from((name, options): (N, FamilyOptions)) -> Self {
        FamilySpec { name: name.into(), options: Some(options) }
    }
}
