//! The default device: RoCEv2 in userspace over UDP sockets.

use crate::config::EndpointConfig;
use crate::endpoint::Endpoint;
use crate::error::EndpointError;
use crate::limits::LANES_MAX;
use towpath_device_roce::udp::{UdpConfig, UdpLink};
use towpath_device_roce::{Bundle, EngineOptions, RoceConfig, RoceDevice, SharedDevice};

/// A RoCEv2 NIC in userspace, over UDP sockets, or several as one device: [`UdpConfig::nic`].
pub type RoceUdp = RoceDevice<Bundle<UdpLink>>;

/// A [`RoceUdp`] that a thread of its own drives, beside who uses it.
pub type EngineUdp = SharedDevice<RoceUdp>;

/// A [`RoceUdp`] whose queue pair numbers differ from life to life.
///
/// # Errors
/// [`EndpointError::Udp`] when the sockets cannot be had.
pub fn roce_udp(udp: UdpConfig, config: &EndpointConfig) -> Result<RoceUdp, EndpointError> {
    Ok(on_link(Bundle::bind_one(&udp)?, config))
}

/// Several [`RoceUdp`]s on one port, one for each of `count` workers.
/// What comes in finds its device by the queue pair that it is for.
///
/// # Errors
/// [`EndpointError::Udp`] when the sockets cannot be had.
pub fn roce_udp_group(
    udp: UdpConfig,
    config: &EndpointConfig,
    count: usize,
) -> Result<Vec<RoceUdp>, EndpointError> {
    let links = Bundle::bind(&udp, count)?;
    Ok(links.into_iter().map(|link| on_link(link, config)).collect())
}

/// An [`EngineUdp`], whose thread starts with this.
///
/// # Errors
/// [`EndpointError::Udp`] when the sockets cannot be had, [`EndpointError::Thread`] when there is
/// no thread for it.
pub fn engine_udp(
    udp: UdpConfig,
    config: &EndpointConfig,
    engine: EngineOptions,
) -> Result<EngineUdp, EndpointError> {
    SharedDevice::spawn(roce_udp(udp, config)?, engine).map_err(EndpointError::Thread)
}

fn on_link(link: Bundle<UdpLink>, config: &EndpointConfig) -> RoceUdp {
    let sizes = &config.sizes;
    let qps = (sizes.qps_max() + sizes.links_max.min(LANES_MAX)) as u32;
    RoceDevice::new(link, RoceConfig::default().seed(config.seed).qp_max(qps.max(64)))
}

impl Endpoint<RoceUdp> {
    /// An endpoint on the default device.
    ///
    /// # Errors
    /// [`EndpointError`].
    pub fn udp(udp: UdpConfig, config: EndpointConfig) -> Result<Self, EndpointError> {
        Self::new(roce_udp(udp, &config)?, config)
    }
}

impl Endpoint<EngineUdp> {
    /// An endpoint on the default device, which a thread of its own drives: peers read, write and
    /// work on what was [granted](Self::grant) to them while nobody calls [`poll`](Self::poll).
    /// The thread ends with the endpoint. All else is as on any device, and takes a lock.
    ///
    /// From time to time the peer asks whether the application is there, and takes it for dead
    /// after [`LinkConfig::peer_timeout`](crate::LinkConfig::peer_timeout). [`wait`](Self::wait)
    /// and [`poll_fd`](Self::poll_fd) end for that, as for messages, but not for one-sided
    /// operations of peers.
    ///
    /// ```
    /// use std::net::{Ipv4Addr, SocketAddr};
    /// use std::sync::{atomic::Ordering, mpsc};
    /// use towpath_transport::{
    ///     Endpoint, EndpointConfig, EngineOptions, Event, Nanos, OpOptions, Place, Rights,
    ///     SharedMemory, UdpConfig,
    /// };
    ///
    /// let udp = || UdpConfig::new(Ipv4Addr::LOCALHOST.into());
    /// let engine = EngineOptions::new();
    /// let mut server = Endpoint::udp_with_engine(udp(), EndpointConfig::new(), engine)?;
    /// let addr = server.listen(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
    /// let counter = SharedMemory::new(4096)?;
    /// let (done, until_done) = mpsc::channel();
    ///
    /// let client = std::thread::spawn(move || {
    ///     let mut client = Endpoint::udp(udp(), EndpointConfig::new()).expect("an endpoint");
    ///     client.connect(addr).expect("an address");
    ///     let (mut left, mut place) = (100, None);
    ///     while left > 0 {
    ///         let mut is_free = false;
    ///         client.turn(|_, event| match event {
    ///             Event::Granted { link, grant } => {
    ///                 place = Some(Place { link, grant: grant.id, offset: 0 });
    ///                 is_free = true;
    ///             }
    ///             Event::OpDone { .. } => (left, is_free) = (left - 1, true),
    ///             _ => {}
    ///         });
    ///         if let Some(place) = place.filter(|_| is_free && left > 0) {
    ///             client.fetch_add(place, 1, OpOptions::new()).expect("one at a time");
    ///         } else {
    ///             client.wait(Nanos::from_millis(1));
    ///         }
    ///     }
    ///     done.send(()).expect("the server waits for this");
    /// });
    ///
    /// // The server drives its endpoint until the client is at work.
    /// let word = counter.word(0)?;
    /// while word.load(Ordering::Relaxed) == 0 {
    ///     server.turn(|server, event| {
    ///         if let Event::Accepted { link, .. } = event {
    ///             server.grant(link, &counter, counter.whole(), Rights::ALL).expect("room");
    ///         }
    ///     });
    ///     server.wait(Nanos::from_millis(1));
    /// }
    /// // From here on it sleeps.
    /// until_done.recv()?;
    /// assert_eq!(word.load(Ordering::Relaxed), 100);
    /// client.join().expect("no panic");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`EndpointError`].
    pub fn udp_with_engine(
        udp: UdpConfig,
        config: EndpointConfig,
        engine: EngineOptions,
    ) -> Result<Self, EndpointError> {
        Self::new(engine_udp(udp, &config, engine)?, config)
    }
}
