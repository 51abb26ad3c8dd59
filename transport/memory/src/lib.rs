//! Registered memory and buffer pools.
