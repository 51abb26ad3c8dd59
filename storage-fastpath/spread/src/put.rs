//! Files stored.

use std::io::Read;
use std::net::SocketAddr;

use towpath_fastpath::ChunkId;

use crate::error::SpreadError;
use crate::layout::{Layout, Node};
use crate::policy::Policy;
use crate::servers::Servers;
use crate::stripes::Stripe;
use crate::writer::Writer;

/// Bytes of a unit of a coded file unless set: long enough that a server's work for it is mostly
/// that for its bytes.
const UNIT_DEFAULT: u32 = 64 << 10;

/// Bytes of a unit of copies unless set: as long as one operation of a client of one server, and
/// long enough that servers store and pass it on while it comes.
const UNIT_OF_COPIES: u32 = 128 << 10;

/// How a file is stored.
#[derive(Clone, Copy, Debug)]
pub struct PutOptions {
    policy: Policy,
    unit_bytes: u32,
    least: usize,
}

impl PutOptions {
    /// By this policy, in units of 64 KiB, copies in units of 128 KiB, durable on all servers that
    /// are there, and on as many [at least](Self::least) as the policy needs to be read: K of
    /// `rs:K+M`, one of copies, and A of those that `ack:A` names.
    #[must_use]
    pub fn new(policy: Policy) -> Self {
        let least = if policy.acked() < policy.parts() { policy.acked() } else { policy.enough() };
        let unit_bytes = if policy.data() == 1 { UNIT_OF_COPIES } else { UNIT_DEFAULT };
        Self { policy, unit_bytes, least }
    }

    /// Bytes of a unit: a multiple of 4 KiB, at most what each server takes in one operation
    /// (252 KiB, unless that is configured).
    #[must_use]
    pub fn unit_bytes(mut self, bytes: u32) -> Self {
        self.unit_bytes = bytes;
        self
    }

    /// On how many servers it must be durable: from those that are enough to read it to all. A
    /// server that is lost meanwhile is done without as long as so many are left: the layout says
    /// which parts are not whole, and a repair makes them.
    #[must_use]
    pub fn least(mut self, parts: usize) -> Self {
        self.least = parts;
        self
    }

    /// The servers of the parts, which must be as many, and each another one.
    fn places<'a>(&self, servers: &'a [SocketAddr]) -> Result<&'a [SocketAddr], SpreadError> {
        let (min, max, given) = (self.policy.enough(), self.policy.parts(), self.least);
        if !(min..=max).contains(&given) {
            return Err(SpreadError::Least { min, max, given });
        }
        let (needed, given) = (max, servers.len());
        let places = servers.get(..needed);
        let places = places.ok_or(SpreadError::ServerCount { needed, given })?;
        for (part, server) in places.iter().enumerate() {
            if places[..part].iter().any(|other| Servers::are_same(*server, *other)) {
                return Err(SpreadError::SameServer { server: *server });
            }
        }
        Ok(places)
    }
}

impl Servers {
    /// Stores what `source` gives on servers, one part on each, the data parts first; servers
    /// beyond those that the policy needs are left alone. When it returns, the file is durable on
    /// as many as the options say, and the layout says where. `progress` is told how many bytes
    /// were read and sent.
    ///
    /// A server that is away [for a while](Self::lost_after) is done without, as long as as many
    /// are left as the options say; where servers cannot pass data on to each other any more, this
    /// client sends each part itself. [Notices](Self::on_notice) tell of both.
    ///
    /// Where it fails the chunks that were made are deleted. A server that cannot be asked to
    /// deletes its own after a while, where it was not asked to finish it.
    ///
    /// # Errors
    /// [`SpreadError`]; [`SpreadError::Left`] names chunks that may be whole and could not be
    /// deleted.
    pub fn put(
        &self,
        servers: &[SocketAddr],
        options: &PutOptions,
        source: &mut impl Read,
        progress: impl FnMut(u64),
    ) -> Result<Layout, SpreadError> {
        let &PutOptions { policy, unit_bytes, least } = options;
        let places = options.places(servers)?;
        let mut layout = Layout {
            bytes: 0,
            policy,
            unit_bytes,
            generation: 0,
            nodes: Vec::new(),
            left: Vec::new(),
        };
        layout.nodes = places
            .iter()
            .map(|server| Node { server: *server, chunk: ChunkId(0), version: None })
            .collect();
        layout.check()?;
        let mut writer = Writer::create(self, places, least, Some((policy, unit_bytes)))?;
        let stored = store(&mut writer, &mut layout, source, progress);
        layout.nodes = writer.nodes();
        stored.map(|()| layout).map_err(|error| writer.give_up(error))
    }
}

fn store(
    writer: &mut Writer<'_>,
    layout: &mut Layout,
    source: &mut impl Read,
    mut progress: impl FnMut(u64),
) -> Result<(), SpreadError> {
    let data = layout.policy.data();
    let whole = layout.stripes().stripe_bytes();
    let mut offset = 0;
    loop {
        let failed = |source| SpreadError::Source { done: layout.bytes, source };
        let mut stripe_bytes = Vec::with_capacity(whole);
        let read = source.by_ref().take(whole as u64).read_to_end(&mut stripe_bytes);
        let bytes = read.map_err(failed)?;
        if bytes == 0 {
            break;
        }
        let stripe = Stripe::new(offset, bytes, data);
        stripe_bytes.resize(data * stripe.unit, 0);
        writer.write_stripe(stripe, stripe_bytes)?;
        layout.bytes += bytes as u64;
        offset += stripe.unit as u64;
        progress(layout.bytes);
        if bytes < whole {
            break;
        }
    }
    writer.finish(layout.stripes().part_bytes())
}
