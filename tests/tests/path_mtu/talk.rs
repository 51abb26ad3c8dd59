//! Questions and their answers between two hosts, each on the device that users have by default.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};
use towpath_device_roce::udp::UdpConfig;
use towpath_tests::namespace::within;
use towpath_tests::wires::Host;
use towpath_transport::{
    Endpoint, EndpointConfig, Event, LinkId, Mtu, Nanos, Region, RoceUdp, SendOptions,
};
use towpath_verbs::Device;

/// Longer than anything here takes, on a machine that is busy with other things.
const PATIENCE: Duration = Duration::from_secs(60);

/// Bytes of a question: several packets of any MTU, and less than would be streamed with any.
const QUESTION_BYTES: usize = 12 << 10;

/// Questions that are asked, all at a time.
const QUESTIONS: usize = 16;

/// What a transfer told: the MTU of the link at each end, and the packet sizes that the client's
/// paths went from and to.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Talk {
    pub(crate) near: Mtu,
    pub(crate) far: Mtu,
    pub(crate) told: Vec<(Mtu, Mtu)>,
}

/// Where a host is, and how its endpoint is set up.
pub(crate) struct Party<'a> {
    pub(crate) host: &'a Host,
    pub(crate) ip: IpAddr,
    pub(crate) config: EndpointConfig,
}

impl<'a> Party<'a> {
    pub(crate) fn new(host: &'a Host, ip: &str) -> Self {
        let ip = ip.parse().expect("an address");
        Self { host, ip, config: EndpointConfig::new() }
    }

    pub(crate) fn mtu(self, mtu: Mtu) -> Self {
        Self { config: self.config.mtu_max(mtu), ..self }
    }

    /// Its endpoint, on the thread that calls.
    pub(crate) fn endpoint(&self) -> Result<Endpoint<RoceUdp>, String> {
        let made = Endpoint::udp(UdpConfig::new(self.ip), self.config.clone());
        made.map_err(|error| chain(&error))
    }
}

/// An error with all that is below it.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut below = error.source();
    while let Some(error) = below {
        text = format!("{text}: {error}");
        below = error.source();
    }
    text
}

/// The client sends messages, which the server sends back; returns the MTU at each end.
///
/// # Errors
/// Why an end could not be made, or not be connected, or went down; or that packets of the MTU did
/// not get through.
pub(crate) fn ask(client: &Party<'_>, server: &Party<'_>) -> Result<(Mtu, Mtu), String> {
    let Talk { near, far, told } = ask_on(client, server, || (), None)?;
    if told.is_empty() { Ok((near, far)) } else { Err(format!("packets were too long: {told:?}")) }
}

/// The same; after the first answers it does `meddle`, and goes on, until a path of the client has
/// told that it went to packets of `wanted`, where that is given.
///
/// # Errors
/// As there; also where the link goes to another carrier.
pub(crate) fn ask_on(
    client: &Party<'_>,
    server: &Party<'_>,
    meddle: impl Fn() + Send,
    wanted: Option<Mtu>,
) -> Result<Talk, String> {
    let is_over = AtomicBool::new(false);
    let (tell_addr, addr) = channel();
    let (tell_mtu, mtu) = channel();
    std::thread::scope(|scope| {
        let served = scope.spawn(|| {
            let serve = || serve(server, &tell_addr, &tell_mtu, &is_over);
            within(&server.host.file(), serve).map_err(|error| error.to_string())?
        });
        let asked = within(&client.host.file(), move || question(client, &addr, meddle, wanted));
        is_over.store(true, Ordering::Relaxed);
        let served = served.join().expect("the server ends");
        let near = asked.map_err(|error| error.to_string())?;
        let near = near.map_err(|error| match &served {
            Err(served) => format!("{error}; the server: {served}"),
            Ok(()) => error,
        })?;
        let far = mtu.try_iter().last().ok_or("the server has no link")?;
        Ok(Talk { near: near.0, far, told: near.1 })
    })
}

fn serve(
    server: &Party<'_>,
    tell_addr: &Sender<SocketAddr>,
    tell_mtu: &Sender<Mtu>,
    is_over: &AtomicBool,
) -> Result<(), String> {
    let mut endpoint = server.endpoint()?;
    let addr = endpoint.listen((server.ip, 0).into()).map_err(|error| error.to_string())?;
    tell_addr.send(addr).map_err(|error| error.to_string())?;
    let mut said = Ok(());
    while !is_over.load(Ordering::Relaxed) {
        turn(&mut endpoint, |endpoint, event| match event {
            Event::Accepted { link, .. } => {
                let mtu = endpoint.mtu_of(link).expect("it is up");
                // Nobody asks any more when the client has failed.
                let _ = tell_mtu.send(mtu);
            }
            Event::Message(message) => {
                let (link, channel) = (message.link(), message.channel());
                send(endpoint, link, channel, &message.to_vec());
                endpoint.release(message);
            }
            Event::AcceptFailed { error, .. } => said = Err(error.to_string()),
            _ => {}
        });
    }
    said
}

fn question(
    client: &Party<'_>,
    addr: &Receiver<SocketAddr>,
    meddle: impl Fn(),
    wanted: Option<Mtu>,
) -> Result<(Mtu, Vec<(Mtu, Mtu)>), String> {
    let addr = addr.recv_timeout(PATIENCE).map_err(|error| format!("no server: {error}"))?;
    let mut endpoint = client.endpoint()?;
    let question: Vec<u8> = (0..QUESTION_BYTES).map(|at| (at * 31 % 251) as u8).collect();
    endpoint.connect(addr).map_err(|error| chain(&error))?;
    let (mut outcome, mut answers, start) = (None, 0, Instant::now());
    let mut told = Vec::new();
    while outcome.is_none() {
        turn(&mut endpoint, |endpoint, event| match event {
            Event::Connected { link, .. } => {
                let opened = endpoint.open_channel(link, true);
                outcome = opened.err().map(|error| Err(error.to_string()));
            }
            Event::ChannelOpened { link, channel, .. } => {
                (0..QUESTIONS).for_each(|_| send(endpoint, link, channel, &question));
            }
            Event::Message(message) => {
                let (link, channel) = (message.link(), message.channel());
                let mtu = endpoint.mtu_of(link).expect("it is up");
                answers += 1;
                let is_told = wanted.is_none_or(|mtu| told.iter().any(|&(_, to)| to == mtu));
                if message.to_vec() != question {
                    outcome = Some(Err("the answer differs".to_owned()));
                } else if answers >= 3 * QUESTIONS && is_told {
                    outcome = Some(Ok(mtu));
                } else {
                    send(endpoint, link, channel, &question);
                }
                endpoint.release(message);
                if answers == QUESTIONS {
                    meddle();
                }
            }
            Event::PathMtuChanged { from, to, .. } if !told.contains(&(from, to)) => {
                told.push((from, to));
            }
            Event::CarrierChanged { to, .. } => outcome = Some(Err(format!("it rides on {to}"))),
            Event::ConnectFailed { error, .. } => outcome = Some(Err(chain(&error))),
            Event::LinkDown { reason, .. } => outcome = Some(Err(format!("down: {reason:?}"))),
            _ => {}
        });
        if start.elapsed() > PATIENCE {
            let stats = endpoint.stats_of_all_links();
            let error = format!("{answers} answers came; told {told:?}; {stats:?}");
            outcome.get_or_insert(Err(error));
        }
    }
    outcome.expect("there is one").map(|mtu| (mtu, told))
}

/// One turn of a loop, and a pause where nothing happened.
pub(crate) fn turn(
    endpoint: &mut Endpoint<RoceUdp>,
    on_event: impl FnMut(&mut Endpoint<RoceUdp>, Event),
) {
    if !endpoint.turn(on_event) {
        endpoint.wait(Nanos::from_millis(1));
    }
}

fn send<D: Device<Memory = Region>>(
    endpoint: &mut Endpoint<D>,
    link: LinkId,
    channel: towpath_transport::ChannelId,
    bytes: &[u8],
) {
    let payload = endpoint.copy(bytes).expect("a buffer");
    // The other end may have left meanwhile, with all that it wanted; anything else that is wrong
    // shows by answers that do not come.
    drop(endpoint.send(link, channel, payload, SendOptions::new()));
}
