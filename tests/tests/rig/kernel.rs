//! Devices of the kernel: two of them, or one and the userspace NIC.

use super::{BY_THE_BOOK, LIKE_RXE, Rig};
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;
use towpath_device_roce::udp::{UdpConfig, UdpLink};
use towpath_device_roce::{RoceConfig, RoceDevice};
use towpath_device_verbs::{Target, VerbsDevice};
use towpath_tests::{namespace, processors};
use towpath_verbs::{Device, Either, Mtu};

/// Bytes that the socket of the userspace NIC holds: nobody paces what tests post.
const SOCKET_BYTES: u32 = 64 << 20;

/// Entries of a port's table of addresses that are looked at.
const GIDS_MAX: u32 = 16;

pub(crate) type Nic = RoceDevice<UdpLink>;
/// Towpath's NIC or the kernel's.
pub(crate) type EitherNic = Either<Nic, VerbsDevice>;

/// The names in `TOWPATH_VERBS_PAIR`, as `rxe0,rxe1`.
fn pair_names() -> [String; 2] {
    let pair = std::env::var("TOWPATH_VERBS_PAIR").expect("TOWPATH_VERBS_PAIR names two devices");
    let (a, b) = pair.split_once(',').expect("two names with a comma between them");
    [a.to_owned(), b.to_owned()]
}

/// One of the two devices that `TOWPATH_VERBS_PAIR` names.
pub(crate) fn verbs_end(end: usize) -> VerbsDevice {
    VerbsDevice::open(&Target::new().device(&pair_names()[end])).expect("it opens")
}

/// Both of them.
pub(crate) fn verbs() -> Rig<VerbsDevice> {
    let names = pair_names();
    let advance = move || {
        wait_until_quiet(&names);
        false
    };
    Rig::new(verbs_end(0), verbs_end(1), LIKE_RXE, advance)
}

/// The packets that devices have sent and received so far.
fn packets(names: &[String]) -> Vec<Option<String>> {
    let of = |name: &String, counter| {
        let path = format!("/sys/class/infiniband/{name}/ports/1/hw_counters/{counter}");
        std::fs::read_to_string(path).ok()
    };
    names.iter().flat_map(|name| [of(name, "sent_pkts"), of(name, "rcvd_pkts")]).collect()
}

/// How often it is looked whether packets have moved, and how many times in a row none may have.
const LOOK_EVERY: Duration = Duration::from_millis(5);
const LOOKS: u32 = 4;

/// Hardware does not say when it is done: nothing has moved for a while.
fn wait_until_quiet(names: &[String]) {
    let (mut before, mut quiet) = (packets(names), 0);
    while quiet < LOOKS {
        std::thread::sleep(LOOK_EVERY);
        processors::visit_all();
        let now = packets(names);
        quiet = if now == before { quiet + 1 } else { 0 };
        before = now;
    }
}

/// A device of the kernel, and the userspace NIC in another network namespace at the other end of
/// its cable: `TOWPATH_INTEROP` is `rxe2,/run/netns/peer,10.0.1.2,fd00:1::2`, the last two the
/// addresses of the userspace NIC.
pub(crate) struct Interop {
    device: String,
    namespace: PathBuf,
    v4: IpAddr,
    v6: IpAddr,
}

impl Interop {
    pub(crate) fn from_environment() -> Self {
        let text = std::env::var("TOWPATH_INTEROP").expect("TOWPATH_INTEROP names both ends");
        let parts: Vec<&str> = text.split(',').collect();
        let [device, namespace, v4, v6] = parts[..] else { panic!("four parts, not {text}") };
        let ip = |text: &str| text.parse().expect("an IP address");
        Self { device: device.to_owned(), namespace: namespace.into(), v4: ip(v4), v6: ip(v6) }
    }

    /// The userspace NIC.
    pub(crate) fn nic(&self, ipv6: bool, seed: u64) -> Nic {
        let config = UdpConfig::new(if ipv6 { self.v6 } else { self.v4 })
            .foreign_peers(true)
            .rx_buffer_bytes(SOCKET_BYTES);
        let bound = namespace::within(&self.namespace, || UdpLink::bind(config));
        let link = bound.expect("the namespace is there").expect("port 4791 is free there");
        RoceDevice::new(link, RoceConfig::default().seed(seed))
    }

    /// The kernel's device, on an address of that kind.
    pub(crate) fn kernel(&self, ipv6: bool) -> VerbsDevice {
        let open = |gid_index| {
            VerbsDevice::open(&Target::new().device(&self.device).gid_index(gid_index)).ok()
        };
        let fits = |device: &VerbsDevice| match device.local_addr().ip() {
            IpAddr::V4(_) => !ipv6,
            IpAddr::V6(ip) => ipv6 && !ip.is_unicast_link_local(),
        };
        (0..GIDS_MAX).filter_map(open).find(fits).expect("an address of that kind")
    }

    /// Both, the userspace NIC first or second.
    pub(crate) fn ends(&self, nic_first: bool, ipv6: bool) -> [EitherNic; 2] {
        let nic = Either::Left(self.nic(ipv6, 1));
        let kernel = Either::Right(self.kernel(ipv6));
        if nic_first { [nic, kernel] } else { [kernel, nic] }
    }

    /// The same, as tests of queue pairs want them.
    pub(crate) fn rig(&self, nic_first: bool, ipv6: bool, mtu: Mtu) -> Rig<EitherNic> {
        let [a, b] = self.ends(nic_first, ipv6);
        let manner = if nic_first { LIKE_RXE } else { BY_THE_BOOK };
        let (names, mut quiet) = ([self.device.clone()], 0);
        let mut before = packets(&names);
        let advance = move || {
            std::thread::sleep(LOOK_EVERY);
            processors::visit_all();
            let now = packets(&names);
            quiet = if now == before { quiet + 1 } else { 0 };
            before = now;
            let over = quiet >= LOOKS;
            if over {
                quiet = 0;
            }
            !over
        };
        let mut rig = Rig::new(a, b, manner, advance);
        rig.mtu = mtu;
        rig
    }
}
