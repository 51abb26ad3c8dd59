//! Settings of what carries links: carriers, paths, packet sizes.

use super::EndpointConfig;
use crate::carrier::{CarrierChoice, CarrierRule, Fallback, rc_default};
use towpath_proto::limits::PATHS_MAX;
use towpath_verbs::{Mtu, RcAttr};

/// What carries links, and how.
#[derive(Clone, Debug, Default)]
pub(crate) struct Carriers {
    pub(crate) choice: CarrierChoice,
    pub(crate) rules: Vec<CarrierRule>,
    /// The owner has chosen [`EndpointConfig::paths`].
    pub(crate) has_paths: bool,
    /// The owner has chosen [`EndpointConfig::fallback`].
    pub(crate) has_fallback: bool,
    pub(crate) mtu_max: Option<Mtu>,
    rc: Option<RcAttr>,
}

impl EndpointConfig {
    /// Paths of each link, 1 to 16. Default 4, but no more than the device has source ports, and
    /// fewer where its queues would not hold [`links_max`](Self::links_max) links otherwise. The
    /// connecting side asks for this number; the listening side accepts links with this number or
    /// fewer, and refuses others. A client that did not choose a number connects again with what
    /// the refusal allows. (HELLOs that are exchanged by other means,
    /// [`Endpoint::offer`](crate::Endpoint::offer), must agree; the default is 1 there.) Where
    /// the device cannot change the source port of a queue pair, one path in four is kept in
    /// reserve until it is needed; for another number see
    /// [`LinkConfig::spare_paths`](crate::LinkConfig::spare_paths) and
    /// [`tune_links`](Self::tune_links).
    #[must_use]
    pub fn paths(mut self, paths: usize) -> Self {
        self.sizes.paths = paths.clamp(1, PATHS_MAX);
        self.carriers.has_paths = true;
        self
    }

    /// The path MTU to ask for. A peer that has a smaller one gets that; the smaller of both is
    /// used both ways. Default: the largest that the interface and the way to the peer carry, which
    /// is 4,096 on loopback and with jumbo frames, and 1,024 on Ethernet with its usual 1,500.
    ///
    /// An MTU that the interface does not carry is refused when the endpoint is made
    /// ([`EndpointError::Mtu`](crate::EndpointError::Mtu)), and one that the way to a peer does not
    /// carry when that is connected to ([`LinkError::PathMtu`](crate::LinkError::PathMtu)). A peer
    /// that connects gets what the way to it carries.
    #[must_use]
    pub fn mtu_max(mut self, mtu: Mtu) -> Self {
        self.carriers.mtu_max = Some(mtu);
        self
    }

    /// What carries the paths of links. Default: UC where the device has it, else RC. Both ends
    /// must come to the same; one whose choice is `Auto` follows the other. Over TCP a link has one
    /// path, whatever [`paths`](Self::paths) says.
    #[must_use]
    pub fn carrier(mut self, choice: CarrierChoice) -> Self {
        self.carriers.choice = choice;
        self
    }

    /// What carries links to peers in these ranges of addresses, in place of
    /// [`carrier`](Self::carrier): RC within a pod, say. Of several ranges that have a peer the
    /// longest prefix counts. The address is the one that is connected to, or that a peer connects
    /// from. One end needs such rules: the other one, where its choice is
    /// [`CarrierChoice::Auto`], does as it is told. Default none.
    ///
    /// ```
    /// # use towpath_transport::EndpointConfig;
    /// let rules = ["10.1.0.0/16=rc".parse()?];
    /// let config = EndpointConfig::new().carrier_rules(&rules);
    /// # Ok::<(), towpath_transport::CarrierRuleError>(())
    /// ```
    #[must_use]
    pub fn carrier_rules(mut self, rules: &[CarrierRule]) -> Self {
        self.carriers.rules = rules.to_vec();
        self
    }

    /// What links fall back to. Default: all that the device has ([`Fallback`]), but nothing where
    /// it [delivers what was sent](towpath_verbs::DeviceCaps::delivers_intact) and where HELLOs are
    /// exchanged by other means ([`Endpoint::offer`](crate::Endpoint::offer)). A link falls back to
    /// what both ends have; RC takes a queue pair for each link. Where the device's queues would
    /// not hold [`links_max`](Self::links_max) links, the default is TCP alone.
    /// When a carrier is left and taken again is set by
    /// [`LinkConfig::fallback`](crate::LinkConfig::fallback) through
    /// [`tune_links`](Self::tune_links).
    #[must_use]
    pub fn fallback(mut self, fallback: Fallback) -> Self {
        self.sizes.fallback = fallback;
        self.carriers.has_fallback = true;
        self
    }

    /// Has one-sided operations of its links go as messages, which the endpoint of the other end
    /// carries out in its turns, also where the device has RC with READ and atomics. For devices
    /// whose atomics are not to be relied on, and for comparing the two. One end that says so is
    /// enough. Default: no; where a device has no such queue pairs, or a link rides on TCP, they go
    /// as messages anyway.
    #[must_use]
    pub fn lanes_by_messages(mut self, on: bool) -> Self {
        self.lanes_by_messages = on;
        self
    }

    /// How RC queue pairs insist, where there are any. The defaults:
    ///
    /// | | | because |
    /// |---|---|---|
    /// | `timeout` | 18 (1.1 s); 13 (34 ms) with a [`fallback`](Self::fallback) | see below |
    /// | `retry_cnt` | 7 | the most that there is |
    /// | `rnr_retry` | 7 (for ever) | the link says how long a peer may be silent |
    /// | `min_rnr_timer` | 6 (80 us) | a turn of a loop |
    /// | `max_rd_atomic`, `max_dest_rd_atomic` | 1 | links post neither READs nor atomics |
    ///
    /// A queue pair that has sent so often in vain is in error, after 8.6 s or 0.3 s. With another
    /// carrier to go to that is soon enough for an I/O to be back within a second. Without one it
    /// is the end of the link, though the peer may only have had no processor; so it takes about as
    /// long as [`LinkConfig::peer_timeout`](crate::LinkConfig::peer_timeout) lets a peer be silent.
    /// The price: where the network loses packets, and with one the answer that tells of the loss,
    /// all waits for `timeout`; and of several paths one that is dark holds on to what was posted
    /// there for as long.
    ///
    /// A value out of range is refused by the device when a link is made.
    #[must_use]
    pub fn rc(mut self, rc: RcAttr) -> Self {
        self.carriers.rc = Some(rc);
        self
    }

    /// The same for `timeout` alone, 0 to 31: an acknowledgement may take 4.096 us times two to
    /// this power.
    #[must_use]
    pub fn rc_timeout(mut self, power: u8) -> Self {
        let timeout = power.min(31);
        self.carriers.rc = Some(RcAttr { timeout, ..self.rc_of(Fallback::None) });
        self
    }

    /// How the RC queue pairs of a link insist that has this to go to.
    pub(crate) fn rc_of(&self, fallback: Fallback) -> RcAttr {
        self.carriers.rc.unwrap_or_else(|| rc_default(fallback))
    }
}
