//! What needs more than one crate: loss, interop, crash, scale.
