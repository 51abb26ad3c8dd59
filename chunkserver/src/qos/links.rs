//! The links of one worker: whose they are, and what clients on them were granted and do.

use std::ops::Range;

use towpath_transport::{
    ChannelId, Device, Endpoint, GrantId, LaneError, LinkId, Region, Rights, Served, Time,
};

use super::clients::{Comer, JoinError, Joined};
use super::limits::{AGAIN_MIN, AGAIN_SHARE, SLOT_BYTES_MAX};
use super::node::Mail;
use super::shared::Qos;
use super::tenant::{Member, Seat, TenantId, Work};

/// The reservations of a server as one of its workers carries them out over its links: it grants
/// clients their words, looks at what its device serves them, and takes back what it granted to
/// one that has no tokens.
///
/// In each turn of the endpoint [`turn`](Self::turn) says what is to be told to clients; how, the
/// caller knows.
#[derive(Debug)]
pub struct Links {
    qos: Qos,
    /// By the index of the link.
    of_links: Vec<TenantId>,
    /// Clients that run an engine.
    clients: Vec<Client>,
    /// When what these did is looked at.
    look_at: Option<Time>,
}

#[derive(Debug)]
struct Client {
    tenant: TenantId,
    seat: Seat,
    grants: [GrantId; 2],
    /// What it was served when that was last looked at; none where the device cannot say.
    seen: Option<Served>,
}

impl Client {
    /// What it did since the last look.
    fn look(&mut self, now: Option<Served>) -> Option<Work> {
        let before = std::mem::replace(&mut self.seen, now)?;
        Some(work(&before, &now?))
    }
}

impl Links {
    /// Those of an endpoint, whose clock and sleep are those of the worker that has the handle.
    #[must_use]
    pub fn new<D: Device<Memory = Region>>(mut qos: Qos, endpoint: &Endpoint<D>) -> Self {
        qos.attach(endpoint.now(), endpoint.waker());
        Self { qos, of_links: Vec::new(), clients: Vec::new(), look_at: None }
    }

    /// The reservations.
    #[must_use]
    pub fn qos(&self) -> &Qos {
        &self.qos
    }

    /// Whose a link is.
    pub(crate) fn of(&self, link: LinkId) -> TenantId {
        self.of_links.get(link.index()).copied().unwrap_or_default()
    }

    /// Whether the client of a link runs an engine. Nobody else keeps to tokens in one-sided I/O.
    #[must_use]
    pub fn runs_engine(&self, link: LinkId) -> bool {
        self.clients.iter().any(|client| client.seat.link == link)
    }

    /// When [`turn`](Self::turn) has something to do.
    #[must_use]
    pub fn next_due(&self) -> Time {
        self.qos.next_due().min(self.look_at.unwrap_or(Time::NEVER))
    }

    /// A link says whose it is, and whether its client runs the tenant's engine, which hears of
    /// periods on `channel`.
    ///
    /// # Errors
    /// [`JoinError`]: nothing has changed.
    pub fn join<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        (link, channel): (LinkId, ChannelId),
        name: &str,
        runs_engine: bool,
    ) -> Result<Member, JoinError> {
        let now = endpoint.now();
        let seat = Seat { worker: self.qos.worker(), link, channel };
        let seen = endpoint.served(link);
        let before = self.of(link);
        let is_member = before != TenantId::default();
        let joined =
            self.qos.at(now, |node, now| match is_member && node.find(name) != Some(before) {
                // A link is one tenant's.
                true => Err(JoinError::Taken),
                false => {
                    let is_seen = seen.is_some();
                    node.join(now, name, Comer { seat, is_member, is_seen, runs_engine })
                }
            });
        let Joined { tenant, share, tick, words } = joined?;
        let words = match words.map(|words| self.grant(endpoint, (tenant, seat, seen), words)) {
            Some(Err(error)) => {
                // It is as if it had not come; the server's engine has tokens again in the next
                // period.
                self.qos.at(now, |node, _| {
                    node.leave(tenant, seat);
                    if !is_member {
                        node.forget(tenant);
                    }
                });
                return Err(JoinError::NoWords(error));
            }
            Some(Ok(grants)) => Some(grants),
            None => None,
        };
        if self.of_links.len() <= link.index() {
            self.of_links.resize_with(link.index() + 1, TenantId::default);
        }
        self.of_links[link.index()] = tenant;
        Ok(Member { share, tick, words })
    }

    fn grant<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        (tenant, seat, seen): (TenantId, Seat, Option<Served>),
        (pool, report): (Range<usize>, Range<usize>),
    ) -> Result<[GrantId; 2], LaneError> {
        if let Some(known) = self.clients.iter().find(|client| client.seat == seat) {
            return Ok(known.grants);
        }
        let (link, memory) = (seat.link, self.qos.memory());
        let atomic = Rights { read: true, write: false, atomic: true };
        let write = Rights { read: false, write: true, atomic: false };
        let pool = endpoint.grant(link, memory, pool, atomic)?;
        let report = match endpoint.grant(link, memory, report, write) {
            Ok(report) => report,
            Err(error) => {
                endpoint.revoke(link, pool);
                return Err(error);
            }
        };
        let grants = [pool, report];
        self.clients.push(Client { tenant, seat, grants, seen });
        self.look_at.get_or_insert(endpoint.now());
        Ok(grants)
    }

    /// A link is gone, and with it what it was granted.
    pub fn forget<D: Device<Memory = Region>>(&mut self, endpoint: &Endpoint<D>, link: LinkId) {
        let (now, qos) = (endpoint.now(), &self.qos);
        let member = self.of_links.get_mut(link.index()).map(std::mem::take);
        if let Some(tenant) = member.filter(|&tenant| tenant != TenantId::default()) {
            qos.at(now, |node, _| node.forget(tenant));
        }
        let served = endpoint.served(link);
        self.clients.retain_mut(|client| {
            let is_gone = client.seat.link == link;
            if is_gone {
                let work = client.look(served);
                qos.at(now, |node, now| {
                    if let Some(work) = work {
                        node.served(now, client.tenant, client.seat, work);
                    }
                    node.leave(client.tenant, client.seat);
                });
            }
            !is_gone
        });
        if self.clients.is_empty() {
            self.look_at = None;
        }
    }

    /// Looks at what clients did, begins periods and looks at words where that is this worker's
    /// part, and takes the words of who is cut off back: what else was granted to that one the
    /// caller takes back.
    pub fn turn<D: Device<Memory = Region>>(&mut self, endpoint: &mut Endpoint<D>) -> Vec<Mail> {
        let now = endpoint.now();
        if self.look_at.is_some_and(|at| now >= at) {
            let clients = &mut self.clients;
            self.qos.at(now, |node, now| {
                for client in clients {
                    if let Some(work) = client.look(endpoint.served(client.seat.link)) {
                        node.served(now, client.tenant, client.seat, work);
                    }
                }
            });
            self.look_at = Some(now + self.qos.tick());
        }
        self.qos.turn(now);
        let mut mail = self.qos.take_mail();
        mail.retain(|mail| match mail {
            Mail::Push(..) => true,
            Mail::CutOff(seat) => self.take_back(endpoint, *seat),
        });
        mail
    }

    /// False when the client has left meanwhile.
    fn take_back<D: Device<Memory = Region>>(
        &mut self,
        endpoint: &mut Endpoint<D>,
        seat: Seat,
    ) -> bool {
        let Some(place) = self.clients.iter().position(|client| client.seat == seat) else {
            return false;
        };
        for grant in self.clients.swap_remove(place).grants {
            endpoint.revoke(seat.link, grant);
        }
        if self.clients.is_empty() {
            self.look_at = None;
        }
        true
    }
}

/// What was served since an earlier look, in tokens. A READ of one slice with its checksum is a
/// token. What was asked for again, since packets were lost, is the network's, but not more than so
/// much: RC cannot tell it from a READ of something else with an old number.
fn work(before: &Served, now: &Served) -> Work {
    let since = |of: fn(&Served) -> u64| of(now).saturating_sub(of(before));
    let (reads, bytes) = (since(|served| served.reads), since(|served| served.read_bytes));
    let again = since(|served| served.reads_again).min(reads / AGAIN_SHARE + AGAIN_MIN);
    let bytes_again = since(|served| served.read_again_bytes);
    let bytes_again = bytes_again.min(bytes / AGAIN_SHARE + AGAIN_MIN * SLOT_BYTES_MAX);
    let tokens =
        reads.saturating_sub(again).max(bytes.saturating_sub(bytes_again) / SLOT_BYTES_MAX);
    Work { tokens, additions: since(|served| served.atomics), words: since(|served| served.writes) }
}
