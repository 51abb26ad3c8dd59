//! The sans-IO reliability core.
