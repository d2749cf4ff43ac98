//! The macro that defines a set of options as one list of fields with defaults, and derives the
//! setters.

/// Defines a struct of options: its fields with their defaults, `new`, `Default`, and for each
/// field a setter of the same name. The setter of an `Option` or a `Vec` accepts everything that
/// converts into it. Fields after `with` have the visibility that is given and no setter.
macro_rules! options {
    (
        $(#[$meta:meta])*
        pub struct $name:ident {
            $($(#[$field_meta:meta])* pub $field:ident: $ty:ident $(<$of:ty>)? = $default:expr,)*
        }
        $(with {
            $($(#[$hidden_meta:meta])* $vis:vis $hidden:ident: $hidden_ty:ty = $hidden_default:expr,)*
        })?
    ) => {
        $(#[$meta])*
        #[non_exhaustive]
        pub struct $name {
            $($(#[$field_meta])* pub $field: $ty $(<$of>)?,)*
            $($($(#[$hidden_meta])* $vis $hidden: $hidden_ty,)*)?
        }

        impl Default for $name {
            #[inline]
            fn default() -> Self {
                $name { $($field: $default,)* $($($hidden: $hidden_default,)*)? }
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                let mut fields = f.debug_struct(stringify!($name));
                $(fields.field(stringify!($field), &self.$field);)*
                fields.finish()
            }
        }

        impl $name {
            /// The defaults.
            pub fn new() -> Self {
                $name::default()
            }

            $($crate::options::list::options!(@setter $name $field $ty $(<$of>)?);)*
        }
    };
    (@setter $name:ident $field:ident $ty:ident) => {
        #[doc = concat!("Sets [`", stringify!($name), "::", stringify!($field), "`].")]
        pub fn $field(mut self, $field: $ty) -> Self {
            self.$field = $field;
            self
        }
    };
    (@setter $name:ident $field:ident $ty:ident <$of:ty>) => {
        #[doc = concat!("Sets [`", stringify!($name), "::", stringify!($field), "`].")]
        pub fn $field(mut self, $field: impl Into<$ty<$of>>) -> Self {
            self.$field = $field.into();
            self
        }
    };
}
pub(crate) use options;
