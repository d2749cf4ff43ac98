//! What no other crate can implement, so that methods can be added to the public traits.

/// A type that a public trait is for.
pub trait Sealed {}
