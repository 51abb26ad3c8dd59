//! What can go wrong, and what to do next.

use std::io;
use std::path::PathBuf;

use super::tap::DEVICE;
use crate::cli::interrupt::{EXIT_INTERRUPTED, Interrupted};

/// This program could not do its part.
const EXIT_FAILED: u8 = 125;

/// Why a run ended before its commands did.
#[derive(Debug, thiserror::Error)]
pub(super) enum LossyError {
    #[error(
        "no network namespace can be made here: {0}. Run this as root, or let users make \
         namespaces: `sysctl user.max_user_namespaces` is not to be 0, and on Debian and Ubuntu \
         `sysctl kernel.unprivileged_userns_clone=1` or \
         `sysctl kernel.apparmor_restrict_unprivileged_userns=0`. A container needs \
         --cap-add SYS_ADMIN --cap-add NET_ADMIN"
    )]
    Namespaces(#[source] io::Error),
    #[error(
        "{DEVICE} cannot be opened: {0}. Run this as root, or let this user open it (chmod 666 \
         {DEVICE}); load its driver where it is missing (modprobe tun), and in a container give \
         the device (--device {DEVICE})"
    )]
    TunDevice(#[source] io::Error),
    #[error("the TAP interface {name} cannot be used: {source}. {}", of_tap(.source))]
    Tap { name: String, source: io::Error },
    #[error(
        "there is no interface {name} in this network namespace: {source}. `ip link` shows those \
         that there are; `ip tuntap add dev {name} mode tap` makes one"
    )]
    NoInterface { name: String, source: io::Error },
    #[error("to {what} is not possible: {source}. It needs CAP_NET_ADMIN: run this as root")]
    Interface { what: String, source: io::Error },
    #[error("the command in {side} cannot be started: {source}")]
    Spawn { side: &'static str, source: io::Error },
    #[error("the server in a ended before anything listened on TCP port {port}: {status}")]
    ServerEnded { port: u16, status: std::process::ExitStatus },
    #[error("nothing in a listens on TCP port {port} after {seconds} s; does the server say why?")]
    NobodyListens { port: u16, seconds: u64 },
    #[error("frames cannot be read from {side}: {source}. Was its interface deleted?")]
    Frames { side: &'static str, source: io::Error },
    #[error("the report cannot be written to {}: {source}", path.display())]
    Report { path: PathBuf, source: io::Error },
    #[error("no signal handler can be set: {0}")]
    Signals(#[source] io::Error),
    #[error("a thread ended that should not have: this is a fault of towpath-lossy itself")]
    Thread,
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
}

fn of_tap(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::ResourceBusy => "Another program has it open: only one can carry its frames",
        io::ErrorKind::PermissionDenied => "It needs CAP_NET_ADMIN: run this as root",
        io::ErrorKind::InvalidInput => {
            "Names have at most 15 bytes, and what has that name must be a TAP interface with one \
             queue (ip tuntap add dev NAME mode tap)"
        }
        _ => "`ip tuntap` shows the TAP interfaces that there are",
    }
}

impl LossyError {
    pub(super) fn exit_code(&self) -> u8 {
        match self {
            Self::Interrupted(_) => EXIT_INTERRUPTED,
            _ => EXIT_FAILED,
        }
    }
}
