//! Enums whose variants are listed once.

/// An enum, and the texts of its variants.
macro_rules! named {
    ($(#[$doc:meta])* $vis:vis enum $name:ident {
        $($(#[$of:meta])* $variant:ident $(= $code:literal)? => $text:literal,)+
    }) => {
        $(#[$doc])*
        $vis enum $name { $($(#[$of])* $variant $(= $code)?),+ }

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                f.pad(match self { $(Self::$variant => $text),+ })
            }
        }
    };
}
pub(crate) use named;

/// An enum, and all its variants in their order.
macro_rules! listed {
    ($(#[$doc:meta])* $vis:vis enum $name:ident {
        $($(#[$of:meta])* $variant:ident $(= $code:literal)?,)+
    }) => {
        $(#[$doc])*
        $vis enum $name { $($(#[$of])* $variant $(= $code)?),+ }

        impl $name {
            const ALL: &'static [Self] = &[$(Self::$variant),+];
        }
    };
}
pub(crate) use listed;
