//! Every constant, with its reason.

/// Keys that are valid at a time: the newest, the one before it, and some for other grantors.
pub const KEYS_MAX: usize = 16;

/// Bytes of a key file: [`KEYS_MAX`] lines of a number and 64 digits, with comments.
pub const KEY_FILE_BYTES_MAX: usize = 16 << 10;

/// How long ago a request may have been made, in milliseconds: as long as a client's clock is
/// behind, and the request has been on its way. Hosts that keep time by NTP are within one second.
pub const SKEW_MS: u64 = 30_000;

/// How far a client's clock may be ahead of a server's, in milliseconds. For so long a server that
/// was started takes nothing: what comes then may have been used before.
pub const AHEAD_MS: u64 = 1_000;

/// How many numbers of a source are told apart, the highest one and those below it. A link has at
/// most 256 requests under way.
pub const WINDOW: u64 = 1_024;

/// Sources that a server remembers, each a client's link: thousands of links of many capabilities.
/// 170 bytes each, and 30 of each capability.
pub const SOURCES_MAX: usize = 65_536;

/// Capabilities that are revoked and have not expired: 16 bytes each, written anew with each one
/// more. Whoever has more to revoke changes the key.
pub const REVOKED_MAX: usize = 65_536;

/// For how long after its end a revoked capability is remembered, in milliseconds: a clock that was
/// ahead for a while must not forget what is revoked.
pub const REVOKED_SLACK_MS: u64 = 86_400_000;

/// Secrets that were derived and are kept: a derivation costs some hundred nanoseconds.
pub const SECRETS_KEPT: usize = 256;
