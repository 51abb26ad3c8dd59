//! Every constant of this crate, with its reason.

use towpath_base::Nanos;

/// Bytes of a file with a private key: one key in PEM has 120, and comments may stand around it.
pub const KEY_FILE_BYTES_MAX: usize = 16 << 10;
/// Bytes of `authorized_peers`: room for [`PEERS_MAX`] lines with comments.
pub const PEERS_FILE_BYTES_MAX: usize = 1 << 20;
/// Peers in `authorized_peers`: more hosts than that share a certificate authority.
pub const PEERS_MAX: usize = 4_096;
/// Bytes of a peer's name: it fits the label of a metric and a line of a terminal.
pub const NAME_BYTES_MAX: usize = 64;
/// Certificates of a host's own chain, and roots of an authority file.
pub const CERTIFICATES_MAX: usize = 16;

/// Payload bytes of a TLS record with its padding and tag (RFC 8446 section 5.2).
pub const RECORD_BYTES_MAX: usize = (1 << 14) + 256;
/// Bytes that a handshake takes from its peer: raw keys need 700, long certificate chains 10 KiB.
pub const HANDSHAKE_BYTES_MAX: usize = 32 << 10;
/// How long a handshake may take: three flights over the slowest network with one retransmission.
pub const HANDSHAKE_NS: Nanos = Nanos::from_secs(5);

/// Pair secrets that a host keeps: one for each peer that it talks to.
pub const SECRETS_MAX: usize = 4_096;
/// Age at which a pair secret makes no further links, so that both ends authenticate once a day.
pub const SECRET_NS: Nanos = Nanos::from_secs(24 * 60 * 60);

/// Paths of a link, with those that it may fall back to: what 5 bits of the header can name.
pub const PATHS_MAX: usize = 32;
/// Chunk numbers behind the highest one that a path may still deliver. A sender keeps 4,096
/// outstanding (`docs/protocol.md` section 2), and as many again may be late.
pub const CHUNK_WINDOW: u64 = 8_192;
/// The same for acks. An older ack tells nothing that a newer one does not.
pub const ACK_WINDOW: u64 = 1_024;

/// Seals under one key before the next key takes over.
pub const SEALS_SOFT: u64 = 1 << 20;
/// Seals under one key at which the sealer stops. A chunk has up to 2^12 blocks of AES, so this is
/// 2^36 blocks under a key: an attacker's advantage is below 2^-57, the margin of TLS 1.3
/// (RFC 8446 section 5.5).
pub const SEALS_HARD: u64 = 1 << 24;
/// Age of a key at which the next one takes over, when few chunks are sent.
pub const EPOCH_NS: Nanos = Nanos::from_secs(10 * 60);
/// How long an opener keeps the key before the current one: chunks that are later than this were
/// sent again long ago.
pub const OLD_EPOCH_NS: Nanos = Nanos::from_secs(10);

const _: () = assert!(SEALS_SOFT < SEALS_HARD);
const _: () = assert!(CHUNK_WINDOW.is_multiple_of(64) && ACK_WINDOW.is_multiple_of(64));

/// Bytes of the header of a chunk or an ack (`docs/protocol.md` sections 3 and 4).
pub const HEADER_BYTES: usize = 64;
/// Bytes of the tag that ends a sealed packet.
pub const TAG_BYTES: usize = 16;

/// Bytes of a file with certificates or a key of a front: chains and RSA keys fit many times.
pub const FRONT_FILE_BYTES_MAX: usize = 256 << 10;
/// One address has a part in so many of the handshakes of a front that are under way at a time:
/// whoever opens connections and says nothing leaves room for others.
pub const FRONT_SHARES: usize = 8;
/// Bytes that a front's connection takes to be sent before its socket has taken them: four records.
pub const FRONT_BUFFER_BYTES: usize = 64 << 10;
