//! A link that broke is made again, and what was asked for over it is asked for once more.

use towpath_fastpath::cap::Grant;
use towpath_fastpath::{ChunkClient, ClientSession, ErrorKind};
use towpath_status::say;
use towpath_transport::{ChannelId, Device, LinkId, Nanos, Region, Time};

use super::connect::{join, open};
use super::{Pace, Server, Session, SessionError};

/// The first wait after an attempt in vain, which doubles with each, and the longest.
const WAITS: (Nanos, Nanos) = (Nanos::from_millis(20), Nanos::from_millis(500));

/// What links to a server are made with.
#[derive(Debug)]
pub(super) struct Way {
    server: Server,
    timeout: Nanos,
    /// How long the server may be away.
    patience: Nanos,
    grant: Option<Grant>,
    tenant: Option<String>,
    /// Ties the links together: once a new one has entered it, nothing of an older one is done any
    /// more.
    session: ClientSession,
    /// Links that were made in place of broken ones.
    links_again: u64,
}

impl Way {
    /// With a capability that each request shows, and a tenant whose requests they are.
    pub(super) fn new(
        server: Server,
        (timeout, patience): (Nanos, Nanos),
        grant: Option<Grant>,
        tenant: Option<&str>,
    ) -> Self {
        let (tenant, session) = (tenant.map(String::from), ClientSession::new());
        Self { server, timeout, patience, grant, tenant, session, links_again: 0 }
    }

    /// A client on an open channel.
    pub(super) fn client(&self, link: LinkId, channel: ChannelId) -> ChunkClient {
        let client = ChunkClient::new(link, channel).timeout(self.timeout);
        match self.grant {
            Some(grant) => client.capability(grant),
            None => client,
        }
    }
}

/// Whether the link is gone over which this was asked for.
pub(super) fn is_gone(kind: &ErrorKind) -> bool {
    matches!(kind, ErrorKind::PeerGone { .. })
}

/// Whether a failed attempt is made again once there is a new link.
pub(super) fn is_lost(error: &SessionError) -> bool {
    match error {
        SessionError::Client(error) => is_gone(&error.kind),
        SessionError::Down { .. } | SessionError::ChannelClosed { .. } => true,
        _ => false,
    }
}

impl<D: Device<Memory = Region>, P: Pace<D>> Session<D, P> {
    /// How often the link was made again.
    #[must_use]
    pub(crate) fn links_again(&self) -> u64 {
        self.way.as_ref().map_or(0, |way| way.links_again)
    }

    /// Makes the link again, after this error, and waits for the server for as long as that may
    /// take. What was under way has ended.
    ///
    /// # Errors
    /// [`SessionError`]: what went wrong before, where the server does not come back.
    pub(super) fn again(&mut self, lost: SessionError) -> Result<(), SessionError> {
        let Some(way) = &self.way else { return Err(lost) };
        let (server, patience) = (way.server, way.patience);
        let (until, mut wait) = (self.now() + patience, WAITS.0);
        let seconds = patience.0 / 1_000_000_000;
        say(format_args!(
            "towpath: lost the server at {}: waiting for it, {seconds} s at most",
            server.0
        ));
        loop {
            match self.link_again(server) {
                Ok(()) => break,
                Err(error @ SessionError::Interrupted(_)) => return Err(error),
                Err(_) if self.now() >= until => return Err(lost),
                Err(error) if is_passing(&error) => self.rest(wait)?,
                Err(error) => return Err(error),
            }
            wait = (wait + wait).min(WAITS.1);
        }
        say(format_args!("towpath: the server at {} is back", server.0));
        Ok(())
    }

    fn link_again(&mut self, server: Server) -> Result<(), SessionError> {
        let links: Vec<LinkId> = self.endpoint.links().collect();
        let old = self.client.primary().rpc().link();
        links.into_iter().filter(|link| *link == old).for_each(|link| self.endpoint.close(link));
        while self.client.primary().under_way() > 0 {
            self.stay()?;
        }
        let link = join(&mut self.endpoint, &mut self.pace, server)?;
        let channel = open(&mut self.endpoint, &mut self.pace, link, server.0)?;
        if let Some(way) = &mut self.way {
            way.links_again += 1;
            self.client.replace_primary(way.client(link, channel));
        }
        self.enter()
    }

    /// Enters the session of the links before, and says whose requests follow.
    pub(super) fn enter(&mut self) -> Result<(), SessionError> {
        let Some(way) = &self.way else { return Ok(()) };
        let (session, tenant) = (way.session.clone(), way.tenant.clone());
        let primary = self.client.primary_mut();
        let op = primary.start_session(&mut self.endpoint, &session)?;
        self.end_of(op)?;
        if let Some(tenant) = tenant {
            let primary = self.client.primary_mut();
            let op = primary.start_join(&mut self.endpoint, &tenant, false)?;
            self.end_of(op)?;
        }
        Ok(())
    }

    /// Lets so much time go by.
    fn rest(&mut self, span: Nanos) -> Result<(), SessionError> {
        let end: Time = self.now() + span;
        while self.now() < end {
            let busy = self.endpoint.turn(|_, _| {});
            if !busy {
                self.pace.idle(&mut self.endpoint, end)?;
            }
        }
        Ok(())
    }
}

/// Whether a server that is started again may give another answer.
fn is_passing(error: &SessionError) -> bool {
    let is_of_server = matches!(
        error,
        SessionError::Connect { .. }
            | SessionError::NotThere { .. }
            | SessionError::Full { .. }
            | SessionError::NoRoute { .. }
            | SessionError::Channel { .. }
    );
    is_of_server || is_lost(error)
}
