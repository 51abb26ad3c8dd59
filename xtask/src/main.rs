//! Programs in place of rules that people must remember.
fn main() {}
