//! The server's part of the token protocol: the driver of a chunk server, and what of it is written
//! down.

use super::books::{Account, Books};
use super::host::Nic;
use super::plan::Plan;
use towpath_base::Time;
use towpath_chunkserver::qos::{JoinError, Links, Mail, Qos, QosConfig, Seat, Shares};
use towpath_lab::failure::Cause;
use towpath_qos::{Capacities, Rules, Share};
use towpath_transport::{
    ChannelId, Endpoint, EndpointError, GrantId, LinkId, Rights, SendOptions, SharedMemory,
};

/// A client that is to have tokens.
struct Client {
    name: String,
    link: LinkId,
    /// None before it is open.
    channel: Option<ChannelId>,
    /// What it may read by; none while it has no tokens.
    records: Option<GrantId>,
}

pub(super) struct Steward {
    links: Links,
    clients: Vec<Client>,
    /// Clients that have not joined or are cut off, by their places, and when they may join.
    out: Vec<(usize, Time)>,
    /// When what a period came to is written down.
    next_end: Time,
}

/// A tenant is named by the number of its client, so that they have the same order.
fn name_of(client: usize) -> String {
    format!("{client:05}")
}

impl Plan {
    /// The settings of the server.
    fn qos_config(&self, rules: Rules) -> QosConfig {
        // Settings are rates; plans, which have periods of any length, count by period.
        let rate = |tokens: u32| {
            let rate = u128::from(tokens) * 1_000_000_000;
            u32::try_from(rate.div_ceil(u128::from(self.period.0.max(1)))).unwrap_or(u32::MAX)
        };
        let share = |share: Share| Share {
            reservation: rate(share.reservation),
            limit: share.limit.map(rate),
            weight: share.weight,
        };
        let clients = self.clients.iter().enumerate();
        let tenants: Shares = clients
            .filter_map(|(number, client)| Some((name_of(number), share(client.share?))))
            .collect();
        let all = (self.rates.all as f64 * self.estimate) as u32;
        let one = u32::try_from(self.rates.one).unwrap_or(u32::MAX);
        QosConfig {
            capacity: Capacities { all, one },
            period: self.period,
            tick: self.tick,
            rules,
            trusts_clients: rules != Rules::OURS,
            tenants,
            ..QosConfig::new(all)
        }
    }
}

impl Steward {
    pub(super) fn new(plan: &Plan, rules: Rules, endpoint: &Endpoint<Nic>) -> Result<Self, Cause> {
        let handles = Qos::for_workers(plan.qos_config(rules), 1).map_err(EndpointError::from)?;
        let qos = handles.into_iter().next().filter(|qos| qos.refused().is_empty());
        let qos = qos.ok_or(Cause::Endless("the server admits what its clients have reserved"))?;
        let links = Links::new(qos, endpoint);
        Ok(Self { links, clients: Vec::new(), out: Vec::new(), next_end: Time::NEVER })
    }

    /// The client of that number is to have tokens.
    pub(super) fn expect(&mut self, link: LinkId, number: usize) {
        let (name, channel, records) = (name_of(number), None, None);
        self.clients.push(Client { name, link, channel, records });
    }

    /// The channel is open on which a client hears of periods: it may join.
    pub(super) fn on_channel(&mut self, link: LinkId, channel: ChannelId) {
        if let Some(place) = self.place_of(link) {
            self.clients[place].channel = Some(channel);
            self.out.push((place, Time::ZERO));
        }
    }

    fn place_of(&self, link: LinkId) -> Option<usize> {
        self.clients.iter().position(|client| client.link == link)
    }

    /// A link is down.
    pub(super) fn dismiss(&mut self, endpoint: &Endpoint<Nic>, link: LinkId) {
        self.links.forget(endpoint, link);
        self.out.retain(|&(place, _)| self.clients[place].link != link);
    }

    /// Does what is due.
    pub(super) fn turn(
        &mut self,
        (endpoint, records): (&mut Endpoint<Nic>, &SharedMemory),
        now: Time,
        books: &mut Books,
    ) {
        for (place, at) in std::mem::take(&mut self.out) {
            if at > now {
                self.out.push((place, at));
                continue;
            }
            match self.join((endpoint, records), place) {
                // The first one begins the server's first period.
                Ok(()) => books.first_join = books.first_join.min(now),
                Err(JoinError::Barred(span)) => self.out.push((place, now + span)),
                Err(error) => books.note(|| format!("client {place} does not join: {error}")),
            }
        }
        for mail in self.links.turn(endpoint) {
            match mail {
                Mail::Push(seat, body) => tell(endpoint, seat, &body, books),
                Mail::CutOff(Seat { link, .. }) => {
                    let Some(place) = self.place_of(link) else { continue };
                    self.out.push((place, now));
                    if let Some(grant) = self.clients[place].records.take() {
                        endpoint.revoke(link, grant);
                    }
                }
            }
        }
        self.write_down(now, books);
    }

    fn join(
        &mut self,
        (endpoint, records): (&mut Endpoint<Nic>, &SharedMemory),
        place: usize,
    ) -> Result<(), JoinError> {
        let client = &mut self.clients[place];
        let Some(channel) = client.channel else { return Ok(()) };
        self.links.join(endpoint, (client.link, channel), &client.name, true)?;
        let rights = Rights { read: true, write: false, atomic: false };
        client.records = Some(endpoint.grant(client.link, records, records.whole(), rights)?);
        Ok(())
    }

    /// Writes down what a period came to when the next has begun.
    fn write_down(&mut self, now: Time, books: &mut Books) {
        if self.next_end == Time::NEVER && books.start != Time::NEVER {
            self.next_end = books.start + books.period;
        }
        if now < self.next_end {
            return;
        }
        self.next_end += books.period;
        let report = self.links.qos().report();
        books.ends.extend(report.last.last());
        for tenant in report.tenants {
            // The server's own tenants have no numbers.
            let number: Option<usize> = tenant.name.parse().ok();
            if let Some(account) = number.and_then(|number| books.accounts.get_mut(number)) {
                *account = Account {
                    overrun: tenant.overrun,
                    misreports: tenant.misreports,
                    lost: tenant.lost_periods,
                };
            }
        }
    }

    pub(super) fn next_time(&self) -> Time {
        let again = self.out.iter().map(|&(_, at)| at).min();
        self.links.next_due().min(again.unwrap_or(Time::NEVER)).min(self.next_end)
    }
}

fn tell(endpoint: &mut Endpoint<Nic>, seat: Seat, body: &[u8], books: &mut Books) {
    let Ok(buf) = endpoint.copy(body) else {
        return books.note(|| "the server has no buffer for a message".to_owned());
    };
    if let Err(rejected) = endpoint.send(seat.link, seat.channel, buf, SendOptions::new()) {
        books.note(|| format!("a message to a client: {} {:?}", rejected.error, endpoint.now()));
    }
}
