//! A trait that no other crate can implement, so that methods can be added to the public traits.

/// Implemented by the types that the public traits are for.
pub trait Sealed {}
