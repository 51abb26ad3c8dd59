//! What a peer may be to this host.

use core::fmt;
use core::str::FromStr;

/// One end of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Role {
    /// It connects.
    Client,
    /// It is connected to.
    Server,
}

impl Role {
    /// The role of the other end.
    #[must_use]
    pub fn other(self) -> Self {
        match self {
            Self::Client => Self::Server,
            Self::Server => Self::Client,
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Client => "client",
            Self::Server => "server",
        })
    }
}

/// The roles that a peer may have, one at least. Text: `client`, `server` or `client,server`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Roles {
    is_client: bool,
    is_server: bool,
}

impl Roles {
    /// Both, which a line without `roles=` means.
    pub const BOTH: Self = Self { is_client: true, is_server: true };

    /// One role alone.
    #[must_use]
    pub fn only(role: Role) -> Self {
        Self { is_client: role == Role::Client, is_server: role == Role::Server }
    }

    /// Whether the peer may have this role.
    #[must_use]
    pub fn contains(self, role: Role) -> bool {
        match role {
            Role::Client => self.is_client,
            Role::Server => self.is_server,
        }
    }
}

/// A text names another role, or none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownRole;

impl FromStr for Roles {
    type Err = UnknownRole;

    fn from_str(text: &str) -> Result<Self, UnknownRole> {
        let mut roles = Self { is_client: false, is_server: false };
        for role in text.split(',') {
            match role {
                "client" => roles.is_client = true,
                "server" => roles.is_server = true,
                _ => return Err(UnknownRole),
            }
        }
        Ok(roles)
    }
}

impl fmt::Display for Roles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.is_client, self.is_server) {
            (true, false) => "client",
            (false, true) => "server",
            _ => "client,server",
        })
    }
}
