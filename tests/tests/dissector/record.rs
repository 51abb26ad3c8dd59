//! A pair of userspace NICs on a wire in virtual time, one end of which is recorded.

use crate::rig::{BY_THE_BOOK, Rig};
use std::fs::File;
use std::io::BufWriter;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;
use towpath_base::Nanos;
use towpath_device_roce::udp::ROCE_PORT;
use towpath_device_roce::{RoceConfig, RoceDevice};
use towpath_sim::pcap::PcapLink;
use towpath_sim::{FaultControl, FaultLink, FaultPlan, LinkConfig, VirtualLink, World};

/// How long nothing may be on its way until it is over: longer than the timers of RC.
const QUIET_STEPS: u32 = 600;
const QUIET_STEP: Nanos = Nanos::from_millis(1);

pub(crate) type Recorded = RoceDevice<PcapLink<FaultLink<VirtualLink>, BufWriter<File>>>;

pub(crate) struct Recorder {
    pub(crate) rig: Rig<Recorded>,
    controls: [FaultControl; 2],
    capture: Capture,
}

/// A capture file that goes with this.
pub(crate) struct Capture(tempfile::TempPath);

impl Capture {
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Recorder {
    pub(crate) fn new(ips: [IpAddr; 2]) -> Self {
        let world = World::new(1);
        let addrs = ips.map(|ip| SocketAddr::new(ip, ROCE_PORT));
        let (a, b) = world.link(&LinkConfig { addrs, ..LinkConfig::default() });
        let controls = [(); 2].map(|()| FaultControl::new(FaultPlan::none()));
        let file = || tempfile::NamedTempFile::new().expect("room for a capture");
        let (recorded, other) = (file(), file());
        let [a, b] = [(a, &recorded, 1), (b, &other, 2)].map(|(link, file, seed)| {
            let link = FaultLink::new(link, seed, controls[seed as usize - 1].clone());
            let file = file.reopen().expect("it is there");
            let link = PcapLink::new(link, BufWriter::new(file)).expect("room for a capture");
            RoceDevice::new(link, RoceConfig::default().seed(seed))
        });
        let mut quiet = 0;
        let advance = move || match world.next_event_time() {
            Some(time) => {
                quiet = 0;
                world.advance_to(time);
                true
            }
            None if quiet < QUIET_STEPS => {
                quiet += 1;
                world.advance_to(world.now() + QUIET_STEP);
                true
            }
            None => {
                quiet = 0;
                false
            }
        };
        let rig = Rig::new(a, b, BY_THE_BOOK, advance);
        Self { rig, controls, capture: Capture(recorded.into_temp_path()) }
    }

    /// From now on so many of the packets are lost, both ways.
    pub(crate) fn lose(&mut self, share: f64) {
        for control in &self.controls {
            control.set_transmit(FaultPlan::none().drop(share));
        }
    }

    pub(crate) fn finish(self) -> Capture {
        assert!(self.rig.a.device.link().error().is_none(), "the recording broke off");
        self.capture
    }
}
