//! Hosts in network namespaces of their own and virtual Ethernet between them, for tests of what
//! loopback does not show.
//!
//! They are made with the `ip` program, which needs the privilege to make namespaces. Where there
//! is no such program or privilege a test prints the reason and ends ([`skipped`]).

use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// Hosts that this process has made.
static MADE: AtomicU32 = AtomicU32::new(0);

/// A network namespace, removed with all that is in it when it is dropped.
#[derive(Debug)]
pub struct Host {
    name: String,
}

impl Host {
    /// An empty one, in which loopback is up.
    ///
    /// # Errors
    /// What `ip` says, or why it could not be run.
    pub fn new() -> Result<Self, String> {
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("towpath-{}-{number}", std::process::id());
        ip(&format!("netns add {name}"))?;
        let host = Self { name };
        host.ip("link set lo up")?;
        Ok(host)
    }

    /// The file that stands for it.
    #[must_use]
    pub fn file(&self) -> PathBuf {
        PathBuf::from("/run/netns").join(&self.name)
    }

    /// Runs `ip` in it with these words.
    ///
    /// # Errors
    /// What `ip` says, or why it could not be run.
    pub fn ip(&self, words: &str) -> Result<(), String> {
        ip(&format!("-n {} {words}", self.name))
    }

    /// Runs a program in it, and waits for its end.
    ///
    /// # Errors
    /// What the program says, or why it could not be run.
    pub fn run(&self, words: &str) -> Result<(), String> {
        ip(&format!("netns exec {} {words}", self.name))
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        if let Err(error) = ip(&format!("netns del {}", self.name)) {
            eprintln!("cannot remove a namespace: {error}");
        }
    }
}

/// One end of a wire: whose it is, its name there, its addresses with their prefix lengths, its
/// MTU.
#[derive(Clone, Copy, Debug)]
pub struct End<'a> {
    /// Whose.
    pub host: &'a Host,
    /// The name of the interface.
    pub name: &'a str,
    /// The addresses, such as `10.0.0.1/24`.
    pub addrs: &'a [&'a str],
    /// Bytes of the longest IP packet.
    pub mtu: u32,
}

/// Lays a wire between two hosts. Both ends are up then.
///
/// # Errors
/// What `ip` says, or why it could not be run.
pub fn wire(near: &End<'_>, far: &End<'_>) -> Result<(), String> {
    let (near_host, far_host) = (&near.host.name, &far.host.name);
    near.host
        .ip(&format!("link add {} type veth peer name {} netns {far_host}", near.name, far.name))?;
    debug_assert_ne!(near_host, far_host, "a wire has an end at each of two hosts");
    for end in [near, far] {
        end.host.ip(&format!("link set {} mtu {} up", end.name, end.mtu))?;
        for addr in end.addrs {
            // An address of IPv6 is otherwise looked for at the other hosts first.
            let at_once = if addr.contains(':') { "nodad" } else { "" };
            end.host.ip(&format!("addr add {addr} dev {} {at_once}", end.name))?;
        }
    }
    Ok(())
}

/// What a test needs, or nothing after it has printed why it cannot run here.
pub fn skipped<T>(made: Result<T, String>) -> Option<T> {
    made.inspect_err(|error| eprintln!("skipped, for there are no namespaces here: {error}")).ok()
}

fn ip(words: &str) -> Result<(), String> {
    let output = Command::new("ip").args(words.split_whitespace()).output();
    let output = output.map_err(|error| format!("cannot run `ip`: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("`ip {words}` failed: {}", said.trim()))
}
