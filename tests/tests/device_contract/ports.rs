//! Source ports: each queue pair's packets leave from the one that was chosen for it.

use crate::rig::Rig;
use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::time::Duration;
use towpath_device_verbs::VerbsDevice;
use towpath_verbs::{Access, QpInit, QpType, SendOp};

/// Where the kernel's choice of source ports begins; the flow label chooses from there on.
const FIRST_PORT: u16 = 0xc000;

/// How long tcpdump takes to begin, or to write what it has, on a slow machine.
const CAPTURE_PAUSE: Duration = Duration::from_secs(2);

/// The source ports of the UDP packets over IPv4 in a capture on Ethernet.
fn source_ports(capture: &[u8]) -> BTreeSet<u16> {
    let mut ports = BTreeSet::new();
    // A header of the file, then one of each packet, whose third word is its length.
    let mut rest = &capture[24..];
    while let Some((header, packets)) = rest.split_first_chunk::<16>() {
        let len = u32::from_le_bytes(*header[8..].first_chunk().expect("four bytes")) as usize;
        let (packet, next) = packets.split_at(len);
        ports.insert(u16::from_be_bytes([packet[34], packet[35]]));
        rest = next;
    }
    ports
}

/// What `send` puts on the network interface of a device.
fn captured(device: &str, send: impl FnOnce()) -> Vec<u8> {
    let interface = format!("/sys/class/infiniband/{device}/ports/1/gid_attrs/ndevs/0");
    let interface = std::fs::read_to_string(interface).expect("it has an interface");
    let file = std::env::temp_dir().join("towpath_ports.pcap");
    let mut tcpdump = Command::new("tcpdump")
        .args(["-Z", "root", "-U", "-Q", "out", "-i", interface.trim(), "-w"])
        .arg(&file)
        .args(["udp", "port", "4791"])
        .stderr(Stdio::null())
        .spawn()
        .expect("tcpdump is there");
    std::thread::sleep(CAPTURE_PAUSE);
    send();
    std::thread::sleep(CAPTURE_PAUSE);
    tcpdump.kill().expect("it runs");
    tcpdump.wait().expect("it ends");
    std::fs::read(&file).expect("a capture")
}

fn chosen(rig: &mut Rig<VerbsDevice>) {
    let wanted = [0, 1, 77, 0x3fff];
    let qps = wanted.map(|source_port| {
        let of = |cq| QpInit::new(QpType::Uc, cq).access(Access::REMOTE_ALL);
        let (a, b) = (rig.a.create(&of(rig.a.cq)), rig.b.create(&of(rig.b.cq)));
        rig.connect_from(a, b, source_port);
        a
    });
    let name = rig.a.device.name().to_owned();
    let capture = captured(&name, || {
        for qp in qps {
            rig.a.send(qp, 1, SendOp::Send, 100);
        }
        rig.run();
    });
    let ports = source_ports(&capture);
    assert_eq!(ports, wanted.map(|port| FIRST_PORT + port).into());
}

mod verbs {
    #[test]
    #[ignore = "needs two joined RDMA devices: cargo xtask vm-test"]
    fn packets_leave_from_the_ports_that_were_chosen() {
        super::chosen(&mut crate::rig::verbs());
    }
}
