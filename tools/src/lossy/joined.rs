//! Interfaces that there are already, from which and to which frames are carried.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use towpath_status::say;

use super::error::LossyError;
use super::netlink::{LinkChange, Netlink};
use super::side::{TAP_QUEUE_FRAMES, dropped_frames};
use super::tap;

/// An interface whose frames we have; what was made for it goes with this.
#[derive(Debug)]
pub(super) struct Joined {
    pub(super) tap: Arc<OwnedFd>,
    /// The name of the TAP interface.
    name: String,
    /// The bridge that was made for it.
    bridge: Option<String>,
}

impl Joined {
    /// Takes hold of the interface `name`. One that is no TAP is put on a bridge with a TAP: so the
    /// kernel cuts segments and computes checksums that a network card would.
    ///
    /// # Errors
    /// What the system refuses.
    pub(super) fn open(name: &str) -> Result<Self, LossyError> {
        let failed = |what: &str| {
            let what = what.to_owned();
            move |source| LossyError::Interface { what, source }
        };
        let mut netlink = Netlink::open().map_err(failed("ask the kernel"))?;
        let index = netlink
            .index(name)
            .map_err(|source| LossyError::NoInterface { name: name.to_owned(), source })?;
        if folder(name).join("tun_flags").exists() {
            let tap = Arc::new(tap::attach(name)?);
            up(&mut netlink, index).map_err(failed(&format!("set {name} up")))?;
            return Ok(Self { tap, name: name.to_owned(), bridge: None });
        }
        let (bridge, tap_name) = (format!("lossybr{index}"), format!("lossytap{index}"));
        // What a run that was killed left of it.
        if let Ok(stale) = netlink.index(&bridge) {
            netlink.delete(stale).map_err(failed(&format!("delete {bridge}")))?;
        }
        netlink.make_bridge(&bridge).map_err(failed(&format!("make a bridge for {name}")))?;
        // From here on the bridge goes again, whatever fails.
        let made = Made(bridge);
        let tap = Arc::new(tap::attach(&tap_name)?);
        wire(&mut netlink, name, &made.0, &tap_name)
            .map_err(failed(&format!("put {name} on a bridge")))?;
        Ok(Self { tap, name: tap_name, bridge: Some(made.keep()) })
    }

    /// Frames that were dropped because this program did not read them in time.
    pub(super) fn unread(&self) -> u64 {
        let table = fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
        dropped_frames(&table, &self.name).unwrap_or(0)
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        drop(self.bridge.take().map(Made));
    }
}

/// The name of a bridge, which is deleted with this.
struct Made(String);

impl Made {
    fn keep(mut self) -> String {
        core::mem::take(&mut self.0)
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        if self.0.is_empty() {
            return;
        }
        let deleted = Netlink::open().and_then(|mut netlink| {
            let index = netlink.index(&self.0)?;
            netlink.delete(index)
        });
        if let Err(error) = deleted {
            say(format_args!(
                "towpath-lossy: the bridge {} stays: {error}; `ip link del {0}`",
                self.0
            ));
        }
    }
}

/// Puts the interface and the TAP on the bridge.
fn wire(netlink: &mut Netlink, name: &str, bridge: &str, tap: &str) -> std::io::Result<()> {
    let [index, bridge_index, tap_index] =
        [netlink.index(name)?, netlink.index(bridge)?, netlink.index(tap)?];
    // The bridge has nothing to say of its own; where the kernel has no such switch, it says it.
    let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{bridge}/disable_ipv6"), "1");
    let _ = fs::write(format!("/proc/sys/net/ipv6/conf/{tap}/disable_ipv6"), "1");
    let _ = fs::write(folder(bridge).join("bridge/multicast_snooping"), "0");
    let mtu = fs::read_to_string(folder(name).join("mtu")).ok();
    let mtu = mtu.and_then(|mtu| mtu.trim().parse().ok());
    let on_bridge = LinkChange { bridge: Some(bridge_index), ..LinkChange::default() };
    netlink
        .change(tap_index, LinkChange { mtu, queue_frames: Some(TAP_QUEUE_FRAMES), ..on_bridge })?;
    netlink.change(index, on_bridge)?;
    [bridge_index, tap_index, index].into_iter().try_for_each(|index| up(netlink, index))
}

fn up(netlink: &mut Netlink, index: u32) -> std::io::Result<()> {
    netlink.change(index, LinkChange { is_up: Some(true), ..LinkChange::default() })
}

fn folder(name: &str) -> PathBuf {
    Path::new("/sys/class/net").join(name)
}
