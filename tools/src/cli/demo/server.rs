//! The demo's second process: the chunk server itself, on a network that loses packets.

use std::io::{self, Write as _};

use towpath_chunkserver::daemon::{self, DaemonConfig, DaemonError, LogFormat, StopFlag};
use towpath_device_roce::udp::UdpLink;
use towpath_device_roce::{Bundle, RoceConfig, RoceDevice};
use towpath_sim::{FaultControl, FaultLink, FaultPlan};
use towpath_transport::{DeviceChoice, Either, EndpointError, UdpConfig, VerbsDevice};

use super::report::EndReport;
use super::yardstick::loopback;
use crate::child::end_with_parent;
use crate::cli::args::DemoServerArgs;

/// A RoCEv2 device over UDP sockets that lose packets on purpose.
pub(crate) type LossyDevice = RoceDevice<FaultLink<Bundle<UdpLink>>>;

/// The device of a command: one that loses packets on purpose, or a real one.
pub(crate) type AnyDevice = Either<LossyDevice, VerbsDevice>;

/// Clients of the demo's server: one, and its successor after a restart.
const LINKS_MAX: u32 = 4;

/// The device of that choice: over sockets as `udp` says, where `control` steers what it loses, or
/// that of libibverbs, whose losses are those of its network.
pub(crate) fn open_device(
    choice: &DeviceChoice,
    udp: UdpConfig,
    seed: u64,
    control: &FaultControl,
) -> Result<AnyDevice, EndpointError> {
    Ok(match choice.target() {
        None => Either::Left(lossy_device(udp.foreign_peers(choice.foreign_peers), seed, control)?),
        Some(target) => Either::Right(VerbsDevice::open(&target)?),
    })
}

fn lossy_device(
    udp: UdpConfig,
    seed: u64,
    control: &FaultControl,
) -> Result<LossyDevice, EndpointError> {
    let link = FaultLink::new(Bundle::<UdpLink>::bind_one(&udp)?, seed, control.clone());
    // The losses replay from the seed; queue pair numbers must differ from life to life.
    let config = RoceConfig::default().seed(seed ^ u64::from(std::process::id()) << 32);
    Ok(RoceDevice::new(link, config))
}

/// Serves until stdin closes or SIGTERM comes, then says on stdout what was counted.
pub(crate) fn serve(args: &DemoServerArgs) -> Result<(), DaemonError> {
    daemon::log_to_stderr("warn", LogFormat::Text)?;
    let stop = StopFlag::new();
    stop.on_signals().map_err(DaemonError::Signals)?;
    let orphaned = end_with_parent();
    let config = DaemonConfig::default().with(|config| {
        config.network.listen = (loopback(args.ipv6), args.port).into();
        config.device.mtu_bytes = args.mtu;
        config.store.data_dir = args.dir.clone();
        config.network.links_max = LINKS_MAX;
        config.store.capacity_bytes = args.capacity;
        config.store.preallocate = args.preallocate;
        config.device.device_icrc = args.device.icrc;
    });
    let control = FaultControl::new(FaultPlan::none().drop(args.loss));
    let served = daemon::run(
        &config,
        &stop,
        |config, _| {
            let udp = daemon::udp_config(config);
            Ok(vec![open_device(&args.device.choice(), udp, args.seed, &control)?])
        },
        |ready| daemon::print_ready(ready, true),
    );
    if args.temporary && orphaned.is_so() {
        // Nobody is left to be told when it fails.
        let _ = std::fs::remove_dir_all(&args.dir);
    }
    let served = served?;
    let report = EndReport::of(served.stats.links, control.counters().lost());
    say(&report).map_err(DaemonError::Ready)
}

fn say(report: &EndReport) -> io::Result<()> {
    let mut out = io::stdout().lock();
    serde_json::to_writer(&mut out, report)?;
    writeln!(out)?;
    out.flush()
}
