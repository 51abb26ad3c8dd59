//! How much of a lossy wire is used.
