//! The towpath command and the perftest-style binaries.
