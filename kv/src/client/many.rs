//! Clients whose calls one thread carries on.

use super::Watched;
use super::arrivals::{Arrivals, Sign};
use super::calls::{Client, ClientError, Told};
use crate::wire::Ask;
use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

/// So many clients are carried on before it is seen for whom more came.
const STEPS_AT_A_TIME: usize = 64;

/// Clients of one thread, thousands if need be: each has at most one call under way, and none waits
/// for another's reply.
///
/// [`start`](Self::start) begins a call, [`wait`](Self::wait) tells what came of one. Calls that
/// have no reply are repeated, over another connection where theirs is gone, as those of a
/// [`Client`] alone. While a connection is made anew the thread waits for that.
///
/// Sending may hold the thread as well, in both functions: over TCP while a server reads nothing,
/// for up to 10 s, after which the connection is given up; over a shared link for as long while all
/// buffers to send from are taken ([`shared_pools`](crate::shared_pools)), and for as long again
/// while the channel has no room. A client that was added stays: there is no way to remove one.
///
/// Connect them with [`Waiting::Polling`](super::Waiting::Polling): the thread sleeps here, and not
/// in a client.
#[derive(Debug)]
pub struct Many<T> {
    clients: Vec<Member<T>>,
    arrivals: Arrivals,
    /// Those for whom something may have come, each once.
    ready: VecDeque<usize>,
    /// Calls that ended as they began, one of a client.
    ended: VecDeque<(usize, Result<Told, ClientError>)>,
    /// No call is to be repeated before.
    next_due: Option<Instant>,
}

#[derive(Debug)]
struct Member<T> {
    client: Client<T>,
    sign: Sign,
    /// It is among those that are ready.
    is_ready: bool,
    /// Its call ended as it began, which was not told yet.
    is_untold: bool,
}

impl<T: Watched> Many<T> {
    /// No clients yet.
    ///
    /// # Errors
    /// The system has no more files to give.
    pub fn new() -> io::Result<Self> {
        let (clients, ready, ended) = (Vec::new(), VecDeque::new(), VecDeque::new());
        Ok(Self { clients, arrivals: Arrivals::new()?, ready, ended, next_due: None })
    }

    /// Adds a client; its number, from 0 on.
    pub fn add(&mut self, client: Client<T>) -> usize {
        let number = self.clients.len();
        let sign = self.arrivals.sign(number);
        self.clients.push(Member { client, sign, is_ready: false, is_untold: false });
        number
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.clients.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.clients.is_empty()
    }

    /// A client, for what it has done; none where there is none of this number.
    #[must_use]
    pub fn client(&self, number: usize) -> Option<&Client<T>> {
        self.clients.get(number).map(|member| &member.client)
    }

    /// Begins a call of a client; false, and nothing is asked, where it has one of which
    /// [`wait`](Self::wait) did not tell yet, or there is none of this number.
    #[must_use]
    pub fn start(&mut self, number: usize, ask: Ask<'_>) -> bool {
        let Some(member) = self.clients.get_mut(number) else { return false };
        if member.is_untold || member.client.due().is_some() {
            return false;
        }
        member.client.begin(ask);
        if let Some(told) = self.carry_on(number) {
            self.clients[number].is_untold = true;
            self.ended.push_back((number, told));
        }
        true
    }

    /// What came of a call, and whose it was; none where none ended within `timeout`.
    ///
    /// # Errors
    /// Of the system, which cannot tell what came.
    pub fn wait(
        &mut self,
        timeout: Duration,
    ) -> io::Result<Option<(usize, Result<Told, ClientError>)>> {
        let end = Instant::now().checked_add(timeout);
        let mut is_last = false;
        loop {
            if let Some(ended) = self.ended.pop_front() {
                self.clients[ended.0].is_untold = false;
                return Ok(Some(ended));
            }
            let ended = self.carry_ready_on(end);
            if ended.is_some() || is_last {
                return Ok(ended);
            }
            let now = Instant::now();
            let left = |until: Option<Instant>| {
                until.map_or(Duration::MAX, |until| until.saturating_duration_since(now))
            };
            is_last = left(end).is_zero();
            let none_waits = self.ready.is_empty();
            let pause = if none_waits { left(self.next_due) } else { Duration::ZERO };
            let (clients, ready) = (&mut self.clients, &mut self.ready);
            self.arrivals
                .wait(left(end).min(pause), |number| make_ready(clients, ready, number))?;
            self.look();
        }
    }

    /// Carries on some of those that are ready, one at least, until a call has ended or the time
    /// is over: another connection may have been tried for one.
    fn carry_ready_on(
        &mut self,
        end: Option<Instant>,
    ) -> Option<(usize, Result<Told, ClientError>)> {
        for _ in 0..STEPS_AT_A_TIME {
            let number = self.ready.pop_front()?;
            if let Some(told) = self.carry_on(number) {
                return Some((number, told));
            }
            if end.is_some_and(|end| Instant::now() >= end) {
                break;
            }
        }
        None
    }

    /// Carries a client's call on without waiting; what came of it, where it has ended.
    fn carry_on(&mut self, number: usize) -> Option<Result<Told, ClientError>> {
        let Member { client, sign, is_ready, .. } = self.clients.get_mut(number)?;
        *is_ready = false;
        if client.due().is_none() {
            if client.clear() {
                make_ready(&mut self.clients, &mut self.ready, number);
            }
            return None;
        }
        let told = client.step(Duration::ZERO);
        if told.is_none() {
            let is_ready = client.watch(sign);
            self.next_due = [self.next_due, client.due()].into_iter().flatten().min();
            if is_ready {
                make_ready(&mut self.clients, &mut self.ready, number);
            }
        }
        told
    }

    /// Those whose calls are to be repeated are ready.
    fn look(&mut self) {
        let now = Instant::now();
        if self.next_due.is_none_or(|next| now < next) {
            return;
        }
        // Those that are late say anew when they are due.
        self.next_due = None;
        for number in 0..self.clients.len() {
            match self.clients[number].client.due() {
                Some(due) if due <= now => make_ready(&mut self.clients, &mut self.ready, number),
                due => self.next_due = [self.next_due, due].into_iter().flatten().min(),
            }
        }
    }
}

/// A client is ready, once.
fn make_ready<T>(clients: &mut [Member<T>], ready: &mut VecDeque<usize>, number: usize) {
    if let Some(member) = clients.get_mut(number).filter(|member| !member.is_ready) {
        member.is_ready = true;
        ready.push_back(number);
    }
}
