//! The servers that writes may be passed on to.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;
use std::sync::Arc;

/// Entries of a list at most: each request that goes on is held against all of them.
const ENTRIES_MAX: usize = 256;

/// The servers that a server may pass writes on to, or sums of parts that are made anew: any, or
/// those of a list. Default: none, since clients name the addresses.
///
/// As a text: `any`, `none`, or addresses with commas between, with a port or for all ports, as in
/// `10.0.0.2,10.0.0.3:7400,[2001:db8::1]:7400`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AllowedPeers(Option<Arc<[Entry]>>);

impl Default for AllowedPeers {
    fn default() -> Self {
        Self(Some(Arc::default()))
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    ip: IpAddr,
    /// None for all.
    port: Option<u16>,
}

/// A text that is no list of servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("needs \"any\", \"none\", or up to {ENTRIES_MAX} addresses with commas between")]
pub struct AllowedPeersError;

impl AllowedPeers {
    /// Whatever servers clients name.
    #[must_use]
    pub fn any() -> Self {
        Self(None)
    }

    /// Whether it is any server.
    #[must_use]
    pub fn is_any(&self) -> bool {
        self.0.is_none()
    }

    /// Whether a server may be passed something.
    #[must_use]
    pub fn allows(&self, server: SocketAddr) -> bool {
        let Some(entries) = &self.0 else { return true };
        let ip = server.ip().to_canonical();
        let is_it =
            |entry: &Entry| entry.ip == ip && entry.port.is_none_or(|port| port == server.port());
        entries.iter().any(is_it)
    }
}

impl FromStr for AllowedPeers {
    type Err = AllowedPeersError;

    fn from_str(text: &str) -> Result<Self, AllowedPeersError> {
        let entries = match text {
            "any" => return Ok(Self(None)),
            "none" => Vec::new(),
            list => {
                let entry = |text: &str| {
                    let text = text.trim();
                    let whole = text.parse::<SocketAddr>();
                    let whole = whole.map(|server| (server.ip(), Some(server.port())));
                    let entry = whole.or_else(|_| text.parse().map(|ip: IpAddr| (ip, None)));
                    entry.map(|(ip, port)| Entry { ip: ip.to_canonical(), port })
                };
                let entries = list.split(',').map(entry).collect::<Result<Vec<Entry>, _>>();
                entries.map_err(|_| AllowedPeersError)?
            }
        };
        match entries.len() <= ENTRIES_MAX {
            true => Ok(Self(Some(entries.into()))),
            false => Err(AllowedPeersError),
        }
    }
}

impl fmt::Display for AllowedPeers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(entries) = &self.0 else { return f.write_str("any") };
        if entries.is_empty() {
            return f.write_str("none");
        }
        for (at, Entry { ip, port }) in entries.iter().enumerate() {
            f.write_str(if at == 0 { "" } else { "," })?;
            match port {
                Some(port) => write!(f, "{}", SocketAddr::new(*ip, *port))?,
                None => write!(f, "{ip}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn allows(list: &str, server: &str) -> bool {
        let list: AllowedPeers = list.parse().expect("a list");
        assert_eq!(list.to_string().parse(), Ok(list.clone()), "it survives its text");
        list.allows(server.parse().expect("an address"))
    }

    #[test]
    fn a_list_allows_the_addresses_that_it_names_and_no_others() {
        assert!(allows("any", "10.0.0.1:7400"));
        assert!(!allows("none", "10.0.0.1:7400"));
        assert_eq!(AllowedPeers::default(), "none".parse().expect("a list"));
        let list = "10.0.0.1, 10.0.0.2:7400,[2001:db8::1]:7400,2001:db8::2";
        for server in ["10.0.0.1:1", "[::ffff:10.0.0.1]:2", "10.0.0.2:7400", "[2001:db8::2]:9"] {
            assert!(allows(list, server), "{server}");
        }
        for server in ["10.0.0.2:7401", "10.0.0.3:7400", "[2001:db8::1]:7401"] {
            assert!(!allows(list, server), "{server}");
        }
        for text in ["", "10.0.0.1,", "host", "10.0.0.1:", "10.0.0.0/8", "any,10.0.0.1"] {
            assert_eq!(text.parse::<AllowedPeers>(), Err(AllowedPeersError), "{text}");
        }
        let many = vec!["10.0.0.1"; ENTRIES_MAX + 1].join(",");
        assert_eq!(many.parse::<AllowedPeers>(), Err(AllowedPeersError));
    }
}
