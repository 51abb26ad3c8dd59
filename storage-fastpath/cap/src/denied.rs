//! Why a request is refused.

/// Why a request is refused. The number is sent (docs/storage-protocol.md section 6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
#[repr(u16)]
pub enum Denied {
    /// For a reason that this side does not know.
    #[error("for a reason that this client does not know: update it")]
    Other = 0,
    /// It has no proof, and the server wants one.
    #[error("it shows no capability: give one, which `towpath cap mint` makes")]
    Missing = 1,
    /// The tag is not the one that the capability and the request have.
    #[error(
        "its capability or its tag is forged, was changed on its way, or was made with a key that \
         has the number of one of the server's and is another one"
    )]
    Forged = 2,
    /// The time of the capability is over.
    #[error("its capability has expired: ask for another one")]
    Expired = 3,
    /// Chunk or bytes are not those of the capability.
    #[error("its capability is for other chunks or other bytes: `towpath cap show` says which")]
    OutOfRange = 4,
    /// The capability does not allow this operation.
    #[error("its capability does not allow this operation: `towpath cap show` says what it does")]
    Rights = 5,
    /// Its number was used before, or may have been.
    #[error("it was sent before, or is older than what the server remembers")]
    Replayed = 6,
    /// The capability was revoked.
    #[error("its capability was revoked: ask for another one")]
    Revoked = 7,
    /// The capability is for another layout.
    #[error("its capability is for copies that lie elsewhere, or for another policy")]
    Layout = 8,
    /// No key of the server has the number that the capability names.
    #[error("its capability was made with a key that the server does not have, or no more")]
    Key = 9,
    /// The capability is another tenant's.
    #[error("its capability is another tenant's")]
    Tenant = 10,
    /// It was made at another time than now.
    #[error("it was made at another time than the server's: set the clocks of both")]
    Clock = 11,
    /// The server has just started, or has forgotten who asked last.
    #[error("the server takes nothing that was made before it started: try again")]
    Early = 12,
}

impl Denied {
    /// All of them.
    pub const ALL: [Self; 13] = [
        Self::Other,
        Self::Missing,
        Self::Forged,
        Self::Expired,
        Self::OutOfRange,
        Self::Rights,
        Self::Replayed,
        Self::Revoked,
        Self::Layout,
        Self::Key,
        Self::Tenant,
        Self::Clock,
        Self::Early,
    ];

    /// The reason of that number; one that this side does not know is [`Other`](Self::Other).
    #[must_use]
    pub fn from_code(code: u16) -> Self {
        Self::ALL.into_iter().find(|reason| *reason as u16 == code).unwrap_or(Self::Other)
    }

    /// One word for it, for labels of counters.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Other => "other",
            Self::Missing => "missing",
            Self::Forged => "forged",
            Self::Expired => "expired",
            Self::OutOfRange => "out_of_range",
            Self::Rights => "rights",
            Self::Replayed => "replayed",
            Self::Revoked => "revoked",
            Self::Layout => "layout",
            Self::Key => "key",
            Self::Tenant => "tenant",
            Self::Clock => "clock",
            Self::Early => "early",
        }
    }
}
