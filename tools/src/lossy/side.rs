//! One side of the wire: a network namespace, and a thread that lives in it.

use core::net::IpAddr;
use std::fs;
use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use nix::sched::{CloneFlags, unshare};
use rustix::mount::{MountFlags, MountPropagationFlags, mount, mount_change};
use rustix::process::Pid;
use rustix::thread::gettid;

use super::error::LossyError;
use super::netlink::{LinkChange, Mac, Netlink};
use super::tap;

/// The interface in each namespace.
pub(super) const INTERFACE: &str = "eth0";

/// Frames that wait for this program to read them: 100 ms of full frames at 1.2 Gb/s, so that a
/// burst does not overflow what is no part of the wire.
pub(super) const TAP_QUEUE_FRAMES: u32 = 10_000;

/// How a side is set up.
#[derive(Clone, Debug)]
pub(super) struct SideConfig {
    pub(super) name: &'static str,
    pub(super) mac: Mac,
    pub(super) addresses: [(IpAddr, u8); 2],
    /// The other side.
    pub(super) peer_mac: Mac,
    pub(super) peer_addresses: [IpAddr; 2],
    pub(super) mtu: u32,
}

type Job = Box<dyn FnOnce() + Send>;

/// A namespace. It ends with this, its TAP device's file and the processes in it.
#[derive(Debug)]
pub(super) struct Side {
    pub(super) name: &'static str,
    /// Carries the frames of its interface.
    pub(super) tap: Arc<OwnedFd>,
    /// What `/proc/PID/ns/net` of the processes in it leads to.
    pub(super) namespace: PathBuf,
    /// The thread in it.
    pub(super) thread: Pid,
    /// Commands die with the thread that started them, so it is this one's.
    jobs: Sender<Job>,
}

impl Side {
    /// Makes the namespace and its interface.
    ///
    /// # Errors
    /// What the system refuses.
    pub(super) fn open(config: SideConfig) -> Result<Self, LossyError> {
        let (jobs, inbox) = channel::<Job>();
        let (ready, outcome) = channel();
        let name = config.name;
        thread::Builder::new()
            .name(format!("side {name}"))
            .spawn(move || live(&config, &ready, &inbox))
            .map_err(LossyError::Namespaces)?;
        let Opened { tap, namespace, thread } =
            outcome.recv().map_err(|_| LossyError::Thread)??;
        Ok(Self { name, tap: Arc::new(tap), namespace, thread, jobs })
    }

    /// Runs `work` in the namespace, and waits for it.
    pub(super) fn within<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, LossyError> {
        let (sender, result) = channel();
        let job = Box::new(move || drop(sender.send(work())));
        self.jobs.send(job).map_err(|_| LossyError::Thread)?;
        result.recv().map_err(|_| LossyError::Thread)
    }

    /// Starts a command in the namespace.
    pub(super) fn spawn(&self, mut command: Command) -> Result<Child, LossyError> {
        let side = self.name;
        self.within(move || command.spawn())?.map_err(|source| LossyError::Spawn { side, source })
    }

    /// Whether somebody in it listens on this TCP port.
    pub(super) fn listens(&self, port: u16) -> Result<bool, LossyError> {
        let tables = ["/proc/thread-self/net/tcp", "/proc/thread-self/net/tcp6"];
        let read = move || tables.map(|table| fs::read_to_string(table).unwrap_or_default());
        Ok(self.within(read)?.iter().any(|table| has_listener(table, port)))
    }

    /// Frames that the interface dropped because this program did not read them in time.
    pub(super) fn unread(&self) -> Result<u64, LossyError> {
        let table = self.within(|| fs::read_to_string("/proc/thread-self/net/dev"))?;
        Ok(table.ok().and_then(|table| dropped_frames(&table, INTERFACE)).unwrap_or(0))
    }
}

struct Opened {
    tap: OwnedFd,
    namespace: PathBuf,
    thread: Pid,
}

/// What the thread of a side does: it makes the namespace, then what it is asked to.
fn live(config: &SideConfig, ready: &Sender<Result<Opened, LossyError>>, inbox: &Receiver<Job>) {
    let opened = open(config);
    let is_open = opened.is_ok();
    if ready.send(opened).is_err() || !is_open {
        return;
    }
    inbox.iter().for_each(|job| job());
}

fn open(config: &SideConfig) -> Result<Opened, LossyError> {
    unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWNS)
        .map_err(|error| LossyError::Namespaces(error.into()))?;
    show_own_interfaces();
    let tap = tap::attach(INTERFACE)?;
    configure(config).map_err(|source| {
        let what = format!("set up {INTERFACE} of {}", config.name);
        LossyError::Interface { what, source }
    })?;
    let namespace = fs::read_link("/proc/thread-self/ns/net").map_err(LossyError::Namespaces)?;
    Ok(Opened { tap, namespace, thread: gettid() })
}

/// Has /sys show the interfaces of the namespace. Commands that look there see the wrong ones
/// where that is not allowed; nothing else depends on it.
fn show_own_interfaces() {
    let ours_alone = MountPropagationFlags::DOWNSTREAM | MountPropagationFlags::REC;
    if mount_change("/", ours_alone).is_ok() {
        let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        let _ = mount("sysfs", "/sys", "sysfs", flags, None);
    }
}

fn configure(config: &SideConfig) -> io::Result<()> {
    // No frames but those of the commands, where the kernel lets us choose.
    let quiet = Path::new("/proc/sys/net/ipv6/conf").join(INTERFACE).join("addr_gen_mode");
    let _ = fs::write(quiet, "1");
    let mut netlink = Netlink::open()?;
    let up = LinkChange { is_up: Some(true), ..LinkChange::default() };
    netlink.change(netlink.index("lo")?, up)?;
    let index = netlink.index(INTERFACE)?;
    let change = LinkChange {
        mac: Some(config.mac),
        mtu: Some(config.mtu),
        queue_frames: Some(TAP_QUEUE_FRAMES),
        ..up
    };
    netlink.change(index, change)?;
    for ((ip, prefix), peer) in config.addresses.into_iter().zip(config.peer_addresses) {
        let added = netlink
            .add_address(index, ip, prefix)
            .and_then(|()| netlink.add_neighbour(index, peer, config.peer_mac));
        // Kernels without IPv6, and MTUs too small for it, have IPv4 alone.
        if ip.is_ipv4() {
            added?;
        }
    }
    Ok(())
}

/// Reads a table like `/proc/net/tcp`.
fn has_listener(table: &str, port: u16) -> bool {
    const LISTEN: &str = "0A";
    let wanted = format!(":{port:04X}");
    table.lines().skip(1).any(|line| {
        let mut words = line.split_ascii_whitespace().skip(1);
        words.next().is_some_and(|local| local.ends_with(&wanted)) && words.nth(1) == Some(LISTEN)
    })
}

/// Reads a table like `/proc/net/dev`: frames that were dropped on their way out.
pub(super) fn dropped_frames(table: &str, interface: &str) -> Option<u64> {
    let line = table.lines().find_map(|line| {
        let (name, counts) = line.split_once(':')?;
        (name.trim() == interface).then_some(counts)
    })?;
    // Eight columns of what was received, then bytes, packets, errs, drop of what was sent.
    line.split_ascii_whitespace().nth(11)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listener_is_found_by_its_port_and_state() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue\n   \
            0: 0100007F:1CE8 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0\n   \
            1: 0100007F:1CE9 0100007F:8000 01 00000000:00000000 00:00000000 00000000     0\n";
        assert!(has_listener(table, 7_400));
        assert!(!has_listener(table, 7_401), "connected, not listening");
        assert!(!has_listener(table, 32_768));
        assert!(!has_listener("", 7_400));
    }

    #[test]
    fn dropped_frames_are_those_of_the_interface() {
        let table = "Inter-|   Receive  |  Transmit\n face |bytes packets\n    lo: 1 2 3 4 5 6 7 8 \
            9 10 11 12 13 14 15 16\n  eth0: 1 2 3 4 5 6 7 8 9 10 11 99 13 14 15 16\n";
        assert_eq!(dropped_frames(table, "eth0"), Some(99));
        assert_eq!(dropped_frames(table, "lo"), Some(12));
        assert_eq!(dropped_frames(table, "eth1"), None);
    }
}
