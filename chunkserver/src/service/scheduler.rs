//! Which request goes to the store next: by tenant, class, link and deadline.

use std::cell::Cell;

use slab::Slab;
use towpath_transport::{Class, Time};

use super::control::InterferenceControl;
use super::tenants::{Price, Tenants};
use super::under_way::UnderWay;
use super::waiting::{Look, Waiting};
use crate::qos::{Pass, TenantId};

#[cfg(test)]
mod tests;

/// What a request does at the store, as far as its order is concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// It reads bytes, and whoever asked waits for them.
    Read,
    /// It reads bytes of which something else is made here.
    Sketch,
    /// It writes bytes.
    Write,
    /// It changes chunks otherwise.
    Change,
    /// It checks what is stored.
    Scrub,
    /// It asks after the state of things.
    Look,
}

impl Kind {
    pub(super) fn is_change(self) -> bool {
        matches!(self, Self::Write | Self::Change)
    }
}

/// What decides when a request goes to the store.
#[derive(Debug)]
pub(super) struct Due {
    /// The index of the link over which it came.
    pub(super) link: usize,
    pub(super) class: Class,
    pub(super) kind: Kind,
    /// Bytes that it reads or writes.
    pub(super) bytes: u64,
    pub(super) price: Price,
    pub(super) arrived: Time,
    /// When nobody waits for it any more; [`Time::NEVER`] of one that must be done.
    pub(super) deadline: Time,
    /// Of one that has gone to the store, where it needed tokens.
    tokens: Option<Pass>,
}

impl Due {
    pub(super) fn new(
        (link, class): (usize, Class),
        (kind, bytes): (Kind, u64),
        price: Price,
        (arrived, deadline): (Time, Time),
    ) -> Self {
        let bytes = if kind == Kind::Scrub { 0 } else { bytes };
        Self { link, class, kind, bytes, price, arrived, deadline, tokens: None }
    }
}

/// Whether a request can go to the store.
#[derive(Debug)]
pub(super) enum Fit<B, E> {
    /// It can, with that.
    Goes(B),
    /// The store has no room for it: another one of its link may go before it.
    NoRoom,
    /// There is no buffer for it: no other one of its link goes before it.
    NoBuffer,
    /// It never does, for that reason.
    Ends(E),
}

/// What is done next.
#[derive(Debug)]
pub(super) enum Next<T, B, E> {
    /// The request with that token goes to the store.
    Goes { token: usize, class: Class, with: B },
    /// That request does not.
    Ends(T, E),
}

/// All that the store was asked, or will be. Each has a token, and its place here, from the time
/// that it came to the answer of the store.
#[derive(Debug)]
pub(super) struct Scheduler<T> {
    /// What waits, and what the store has; without a [`Due`] what went past the queues.
    asked: Slab<(Option<Due>, T)>,
    /// Tokens of what waits, by tenant and class. Where nobody has reserved anything there is one
    /// tenant.
    queues: Vec<[Waiting<usize>; Class::COUNT]>,
    tenants: Tenants,
    control: Option<InterferenceControl>,
    under_way: UnderWay,
    /// Tenants with waiting requests that were not passed over in this round, those at the back
    /// first; they are sorted.
    order: Vec<TenantId>,
    is_sorted: bool,
    /// Some request waits for tokens.
    waits_for_tokens: bool,
    /// Some write waits for what interference control gives back.
    waits_for_control: bool,
    /// When the time of a waiting request is over, at the earliest.
    next_expiry: Time,
}

impl<T> Default for Scheduler<T> {
    fn default() -> Self {
        Self {
            asked: Slab::new(),
            queues: vec![Default::default()],
            tenants: Tenants::default(),
            control: None,
            under_way: UnderWay::default(),
            order: Vec::new(),
            is_sorted: false,
            waits_for_tokens: false,
            waits_for_control: false,
            next_expiry: Time::NEVER,
        }
    }
}

impl<T> Scheduler<T> {
    /// Whose requests are whose, and their tokens.
    pub(super) fn tenants(&self) -> &Tenants {
        &self.tenants
    }

    pub(super) fn tenants_mut(&mut self) -> &mut Tenants {
        &mut self.tenants
    }

    /// Has writes of lower classes give way to reads of higher ones.
    pub(super) fn set_control(&mut self, control: Option<InterferenceControl>) {
        self.control = control;
    }

    pub(super) fn control(&self) -> Option<&InterferenceControl> {
        self.control.as_ref()
    }

    /// Whether a class may begin a write.
    pub(super) fn may_write(&self, class: Class) -> bool {
        self.control.as_ref().is_none_or(|control| control.may_write(class))
    }

    /// Requests that wait.
    pub(super) fn waiting(&self) -> usize {
        self.queues.iter().flatten().map(Waiting::len).sum()
    }

    /// What the store has.
    pub(super) fn at_store(&self) -> usize {
        self.asked.len() - self.waiting()
    }

    /// Takes a request in.
    ///
    /// # Errors
    /// What its tenant may use in a period, where it costs more than that: it is never done.
    pub(super) fn push(&mut self, due: Due, item: T) -> Result<(), (u32, T)> {
        let Price { tenant, .. } = due.price;
        if let Err(limit) = self.tenants.arrived(due.arrived, due.price) {
            return Err((limit, item));
        }
        if self.queues.len() <= tenant.index() {
            self.queues.resize_with(tenant.index() + 1, Default::default);
        }
        self.next_expiry = self.next_expiry.min(due.deadline);
        let (link, class) = (due.link, due.class);
        let token = self.asked.insert((Some(due), item));
        self.queues[tenant.index()][class.index()].push(link, token);
        Ok(())
    }

    /// Notes what goes to the store past the queues; gives its token.
    pub(super) fn pass(&mut self, item: T) -> usize {
        self.asked.insert((None, item))
    }

    /// What has a token.
    pub(super) fn get_mut(&mut self, token: usize) -> Option<&mut T> {
        self.asked.get_mut(token).map(|(_, item)| item)
    }

    /// Begins a round: every tenant has its turn.
    pub(super) fn begin(&mut self) {
        (self.waits_for_tokens, self.waits_for_control, self.is_sorted) = (false, false, false);
        self.order.clear();
        let waiting = self.queues.iter().enumerate();
        let waiting = waiting.filter(|(_, classes)| classes.iter().any(|queue| queue.len() > 0));
        self.order.extend(waiting.map(|(index, _)| TenantId::of_index(index)));
    }

    /// Takes the next request of this round out of its queue. The first tenant in order goes first,
    /// with its highest class that has a request which can go, and there with the link whose turn
    /// it is. Each class has room of its own at the store, so none waits for good.
    pub(super) fn next<B, E>(
        &mut self,
        now: Time,
        mut fit: impl FnMut(&Due, &T) -> Fit<B, E>,
    ) -> Option<Next<T, B, E>> {
        loop {
            if !std::mem::replace(&mut self.is_sorted, true) {
                self.tenants.order(now, &mut self.order);
                self.order.reverse();
            }
            let tenant = *self.order.last()?;
            let mut classes = Class::ALL.into_iter();
            let found = classes
                .find_map(|class| Some((class, self.next_of(now, tenant, class, &mut fit)?)));
            let Some((class, Found::Token((token, how)))) = found else {
                self.order.pop();
                continue;
            };
            // Who was served may not be the first any more.
            self.is_sorted = false;
            return match how {
                Ok(with) => Some(Next::Goes { token, class, with }),
                Err(why) => self.withdraw(now, token).map(|item| Next::Ends(item, why)),
            };
        }
    }

    /// The next request of a tenant's class; where the first one lacks tokens, there are none
    /// for other classes either.
    fn next_of<B, E>(
        &mut self,
        now: Time,
        tenant: TenantId,
        class: Class,
        fit: &mut impl FnMut(&Due, &T) -> Fit<B, E>,
    ) -> Option<Found<Result<B, E>>> {
        let Self { asked, queues, tenants, control, under_way, .. } = self;
        let queue = &mut queues[tenant.index()][class.index()];
        if queue.links() == 0 {
            return None;
        }
        let may_write = control.as_ref().is_none_or(|control| control.may_write(class));
        let (lacks_tokens, waits_for_control) = (Cell::new(false), Cell::new(false));
        let mut look = |token: &mut usize| {
            let Some((Some(due), item)) = asked.get_mut(*token) else { return Look::Skip };
            if !under_way.has_room(due) {
                return Look::Skip;
            }
            if !may_write && due.kind == Kind::Write {
                waits_for_control.set(true);
                return Look::Skip;
            }
            let with = match fit(due, item) {
                Fit::Goes(with) => with,
                Fit::NoRoom => return Look::Skip,
                Fit::NoBuffer => return Look::Wait,
                Fit::Ends(why) => return Look::Take(Err(why)),
            };
            let Ok(tokens) = tenants.admit(now, due.price) else {
                // What the tenant has gathered for this request is not for others'.
                lacks_tokens.set(true);
                return Look::Stay;
            };
            due.tokens = tokens;
            under_way.add(due);
            if let (Some(control), Kind::Write) = (&*control, due.kind) {
                control.wrote(class, due.bytes);
            }
            Look::Take(Ok(with))
        };
        let mut found = None;
        for _ in 0..queue.links() {
            found = queue.next(&mut look);
            if found.is_some() || lacks_tokens.get() {
                break;
            }
        }
        self.waits_for_control |= waits_for_control.get();
        self.waits_for_tokens |= lacks_tokens.get();
        if lacks_tokens.get() { Some(Found::NoTokens) } else { found.map(Found::Token) }
    }

    /// Tells of what has come to its end since the last time.
    pub(super) fn settle(&mut self, now: Time) {
        self.tenants.settle(now);
    }

    /// Ends a round.
    pub(super) fn end(&mut self, now: Time) {
        self.tenants.settle(now);
        if !self.order.is_empty() {
            self.tenants.note_full(now);
        }
    }

    /// Takes out what the store has not got, or will not answer.
    pub(super) fn take(&mut self, token: usize) -> Option<T> {
        self.take_due(token).map(|(_, item)| item)
    }

    fn take_due(&mut self, token: usize) -> Option<(Option<Due>, T)> {
        let (mut due, item) = self.asked.try_remove(token)?;
        if let Some(due) = &mut due {
            self.under_way.sub(due);
            self.tenants.done(due.tokens.take());
        }
        Some((due, item))
    }

    /// The store has answered, and leaves so many blocks to be freed.
    pub(super) fn done(
        &mut self,
        now: Time,
        token: usize,
        blocks_left: u64,
    ) -> Option<(T, TenantId)> {
        let (due, item) = self.take_due(token)?;
        let Some(due) = due else { return Some((item, TenantId::default())) };
        self.tenants.left_blocks(now, due.price, blocks_left);
        if let (Some(control), Kind::Read) = (&mut self.control, due.kind) {
            control.read(due.class, now.since(due.arrived));
        }
        Some((item, due.price.tenant))
    }

    /// A request that waited will not be done.
    fn withdraw(&mut self, now: Time, token: usize) -> Option<T> {
        let (due, item) = self.asked.try_remove(token)?;
        due.iter().for_each(|due| self.tenants.withdrawn(now, due.price));
        Some(item)
    }

    fn withdraw_all(&mut self, now: Time, tokens: &[usize]) -> Vec<T> {
        tokens.iter().filter_map(|token| self.withdraw(now, *token)).collect()
    }

    /// Gives up what waits and whose time is over.
    pub(super) fn expire(&mut self, now: Time) -> Vec<T> {
        if now < self.next_expiry {
            return Vec::new();
        }
        let Self { asked, queues, .. } = self;
        let (mut over, mut next_expiry) = (Vec::new(), Time::NEVER);
        for queue in queues.iter_mut().flatten() {
            over.append(&mut queue.take_all(|token| {
                let deadline = deadline_of(asked, *token);
                if deadline > now {
                    next_expiry = next_expiry.min(deadline);
                }
                deadline <= now
            }));
        }
        self.next_expiry = next_expiry;
        self.withdraw_all(now, &over)
    }

    /// Gives up what waits of a link and is wanted so, but for what must be done.
    pub(super) fn cancel(&mut self, now: Time, link: usize, wanted: impl Fn(&T) -> bool) -> Vec<T> {
        let Self { asked, queues, .. } = self;
        let is_it = |token: &usize| match asked.get(*token) {
            Some((Some(due), item)) => due.deadline < Time::NEVER && wanted(item),
            _ => false,
        };
        let queues = queues.iter_mut().flatten();
        let gone: Vec<usize> = queues.flat_map(|queue| queue.take(link, is_it)).collect();
        self.withdraw_all(now, &gone)
    }

    /// Requests of a tenant that has used all that its limit lets it have: they wait for the next
    /// period, which is not slow but what was set.
    pub(super) fn limited(&mut self, now: Time, mut excuse: impl FnMut(&mut T)) {
        let Self { asked, queues, tenants, .. } = self;
        for (index, classes) in queues.iter().enumerate() {
            let tenant = TenantId::of_index(index);
            // Scrubs are never slow.
            if tenant == TenantId::SCRUB || classes.iter().all(|queue| queue.len() == 0) {
                continue;
            }
            let Some(room) = tenants.room_below_limit(now, tenant) else { continue };
            let waiting = || classes.iter().flat_map(Waiting::iter);
            let costs = |token: &usize| match asked.get(*token) {
                Some((Some(due), _)) => u64::from(due.price.cost),
                _ => 0,
            };
            // One that finds no room holds up those behind it.
            if waiting().any(|token| costs(token) > room) {
                for token in waiting() {
                    asked.get_mut(*token).into_iter().for_each(|(_, item)| excuse(item));
                }
            }
        }
    }

    /// Gives tokens for the time until `now`.
    pub(super) fn turn(&mut self, now: Time) {
        self.control.iter_mut().for_each(|control| control.turn(now));
    }

    /// Whether some write waits for what interference control gives back.
    pub(super) fn waits_for_control(&self) -> bool {
        self.waits_for_control
    }

    /// When a tenant has something to do.
    pub(super) fn next_due(&self, now: Time) -> Time {
        self.tenants.next_due(now, self.waits_for_tokens)
    }
}

/// What a class of a tenant has.
enum Found<R> {
    /// A request that is next, by its token, and how it goes on.
    Token((usize, R)),
    /// Its first one has to wait for tokens.
    NoTokens,
}

fn deadline_of<T>(asked: &Slab<(Option<Due>, T)>, token: usize) -> Time {
    let due = asked.get(token).and_then(|(due, _)| due.as_ref());
    due.map_or(Time::NEVER, |due| due.deadline)
}
