//! `tow_devinfo --check` and `--serve`: what works between this device and another host's
//! (docs/hardware.md).
//!
//! | file | what |
//! |---|---|
//! | `session` | one link, and what is tried on it |
//! | `serve` | the other end |
//! | `rows` | the table |

mod rows;
mod serve;
mod session;

use rows::{Figure, Table, Tried};
use session::Session;
use std::io::{self, Write};
use std::net::{IpAddr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};
use towpath_status::say;
use towpath_transport::{
    AppProtocol, Carrier, CarrierChoice, DeviceChoice, Either, EndpointConfig, RoceUdp,
    VerbsDevice, resolve, roce_udp,
};
use towpath_verbs::{Device, DeviceCaps};

/// The port that checks are served at, if no other is named: perftest's, and one on.
pub(super) const PORT: u16 = 18516;

/// What both ends speak.
const PROTOCOL: AppProtocol = AppProtocol::named("towpath-check/1");

/// The longest message that comes back; longer ones are taken.
const ANSWER_BYTES_MAX: usize = 16 << 10;

/// How long the peer may take to answer the first connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Whichever device was named.
type Opened = Either<RoceUdp, VerbsDevice>;

fn open_device(
    choice: &DeviceChoice,
    ip: IpAddr,
    config: &EndpointConfig,
) -> Result<Opened, String> {
    match choice.target() {
        None => {
            let udp = choice.name.udp(ip).foreign_peers(choice.foreign_peers);
            roce_udp(udp, config).map(Either::Left).map_err(|error| error.to_string())
        }
        Some(target) => {
            VerbsDevice::open(&target).map(Either::Right).map_err(|error| error.to_string())
        }
    }
}

/// Serves until the process ends; true if it could begin.
pub(super) fn serve(choice: &DeviceChoice, at: &str) -> bool {
    let served = first_of(at).and_then(|addr| serve::serve(choice, addr));
    if let Err(why) = &served {
        say(format_args!("tow_devinfo: cannot serve checks at {at}: {why}"));
    }
    served.is_ok()
}

fn first_of(text: &str) -> Result<SocketAddr, String> {
    let addrs = resolve(text, Some(PORT)).map_err(|error| error.to_string())?;
    addrs.first().copied().ok_or_else(|| "it has no address".to_owned())
}

/// Tries everything with the end that serves at `peer`, and prints the table; true if a link over
/// the device worked.
pub(super) fn check(choice: &DeviceChoice, peer: &str, json: bool) -> io::Result<bool> {
    let mut table = Table::new(choice.name.to_string(), peer.to_owned());
    try_all(choice, peer, &mut table);
    let mut out = io::stdout().lock();
    if json {
        serde_json::to_writer_pretty(&mut out, &table)?;
        writeln!(out)?;
    } else {
        out.write_all(table.text().as_bytes())?;
    }
    out.flush()?;
    Ok(table.works("uc") || table.works("rc"))
}

/// Connects as set-ups do; from which address, to which, and how long it took.
fn reach(peer: &str) -> Result<((SocketAddr, SocketAddr), Duration), String> {
    let (addr, start) = (first_of(peer)?, Instant::now());
    let stream = TcpStream::connect_timeout(&addr, CONNECT_TIMEOUT);
    let local = stream.and_then(|stream| stream.local_addr());
    Ok(((local.map_err(|error| error.to_string())?, addr), start.elapsed()))
}

fn try_all(choice: &DeviceChoice, peer: &str, table: &mut Table) {
    let (ends, took) = match reach(peer) {
        Ok(reached) => reached,
        Err(why) => {
            let why = format!("{why}; start `tow_devinfo --serve ADDRESS` there");
            return table.tried("setup", "set-up connection", Err(why));
        }
    };
    let figure = Figure { value: took.as_secs_f64() * 1e6, unit: "us" };
    let note = format!("TCP from {} to {}", ends.0, ends.1);
    table.tried("setup", "set-up connection", Ok((Some(figure), note)));
    let caps = match open_device(choice, ends.0.ip(), &EndpointConfig::new()) {
        Ok(device) => {
            table.tried("device", "the device opens", Ok((None, described(&device))));
            *device.caps()
        }
        Err(why) => return table.tried("device", "the device opens", Err(why)),
    };
    of_caps(table, &caps);
    let mut main = None;
    for (id, what, choice_of, has) in [
        ("uc", "messages over UC", CarrierChoice::Uc, caps.verbs.uc),
        ("rc", "messages over RC", CarrierChoice::Rc, caps.verbs.rc),
        ("tcp", "messages over TCP", CarrierChoice::Tcp, true),
    ] {
        if !has {
            table.tried(id, what, Err("the device has no such queue pairs".to_owned()));
            continue;
        }
        let opened = Session::open(choice, ends, choice_of);
        let tried = opened.and_then(|mut session| Ok((session.load()?, session)));
        match tried {
            Ok((found, session)) => {
                table.tried(id, what, Ok(found));
                main = main.or(Some(session).filter(|_| id != "tcp"));
            }
            Err(why) => table.tried(id, what, Err(why)),
        }
    }
    on_a_link(table, main, &caps);
    table.not_tried(
        "reroute",
        "leaving a dead way",
        "something between the hosts has to swallow one source port: docs/hardware.md, section 4",
    );
    table.not_tried(
        "loss",
        "links under packet loss",
        "something between the hosts has to lose packets: docs/hardware.md, section 4",
    );
}

fn described(device: &Opened) -> String {
    let addrs: Vec<_> = (0..).map_while(|nic| device.nic_addr(nic)).collect();
    let addrs: Vec<_> = addrs.iter().map(SocketAddr::to_string).collect();
    let who = match device {
        Either::Left(_) => "userspace NIC".to_owned(),
        Either::Right(verbs) => match towpath_device_verbs::survey(verbs.name()) {
            Ok(found) => format!(
                "{}, vendor {:#06x} part {}, firmware {}",
                found.name, found.vendor_id, found.vendor_part_id, found.firmware
            ),
            Err(_) => verbs.name().to_owned(),
        },
    };
    format!("{who} at {}", addrs.join(" and "))
}

/// What the device said when it was opened.
fn of_caps(table: &mut Table, caps: &DeviceCaps) {
    let stamps = match caps.timestamps {
        true => Ok((None, "completions carry the time: tried when it was opened".to_owned())),
        false => Err("completions carry no time, or its clock cannot be read".to_owned()),
    };
    table.tried("timestamps", "times of the device", stamps);
    if caps.verbs.uc_srq_survives_loss {
        let why = "the device says that a shared queue survives lost packets; none were lost here";
        table.not_tried("srq", "shared receive queues on UC", why);
    } else {
        let why = "each path has its own: whether a shared one survives lost packets shows only \
                   where packets are lost";
        table.not_tried("srq", "shared receive queues on UC", why);
    }
}

/// A row that is tried on a link.
type Try = (&'static str, &'static str, fn(&mut Session) -> Tried);

/// What is tried on the link over the device's best carrier.
const ON_A_LINK: [Try; 6] = [
    ("round-trip", "round trip, polling", |session| session.round_trip(false)),
    ("round-trip-asleep", "round trip, sleeping", |session| session.round_trip(true)),
    ("mtu", "long packets", |session| session.mtu()),
    ("paths", "a source port a path", Session::paths),
    ("port-live", "port of a running queue pair", Session::change_port),
    ("queue-pair-again", "replacing a queue pair", Session::replace_queue_pair),
];

/// One-sided operations.
const ONE_SIDED: [Try; 2] = [
    ("write-read", "WRITE and READ", Session::write_and_read),
    ("atomics", "FETCH_ADD and CMP_SWAP", Session::atomics),
];

fn on_a_link(table: &mut Table, main: Option<Session>, caps: &DeviceCaps) {
    let Some(mut session) = main else {
        for (id, what, _) in ON_A_LINK.into_iter().chain(ONE_SIDED) {
            table.not_tried(id, what, "there is no link over the device");
        }
        return table.not_tried("nics", "several NICs", "there is no link over the device");
    };
    let is_uc = session.endpoint().carrier() == Carrier::Uc;
    for (id, what, attempt) in ON_A_LINK {
        if id == "port-live" && !caps.source_port_live {
            let why = "the device keeps the port of a queue pair: its driver has no call for it, \
                       or its firmware refuses; a path gets another by a new queue pair";
            table.tried(id, what, Err(why.to_owned()));
        } else {
            table.tried(id, what, attempt(&mut session));
        }
    }
    let granted = session.reach();
    for (id, what, attempt) in ONE_SIDED {
        let tried = granted.clone().and_then(|()| attempt(&mut session));
        if tried.is_ok() && session.goes_by_messages() {
            let why = "they went as messages: an end has no queue pairs of RC for them";
            table.not_tried(id, what, why);
        } else {
            table.tried(id, what, tried);
        }
    }
    let nics = (0..).map_while(|nic| session.endpoint().device().nic_addr(nic)).count();
    if nics > 1 {
        let tried = session.paths();
        let note = |note| format!("{nics} NICs here; {note}");
        table.tried("nics", "several NICs", tried.map(|(figure, text)| (figure, note(text))));
    } else if is_uc {
        table.not_tried("nics", "several NICs", "one was named: -d roce:IP,IP has several");
    } else {
        table.not_tried("nics", "several NICs", "one was named");
    }
}
