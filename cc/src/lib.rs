//! Congestion control as pure functions of samples.
