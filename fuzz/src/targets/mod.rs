//! The targets, one file per parser or structure.

mod base_bitmap;
mod base_serial;

use crate::Target;

/// Every target there is.
#[must_use]
pub fn targets() -> &'static [Target] {
    &[
        Target { name: "base_bitmap", run: base_bitmap::run },
        Target { name: "base_serial", run: base_serial::run },
    ]
}
