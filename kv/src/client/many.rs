//! Clients whose calls one thread carries on.

use super::Watched;
use super::arrivals::{Arrivals, Sign};
use super::calls::{Client, ClientError, Told};
use crate::wire::Ask;
use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

/// Clients of one thread, thousands if need be: each has at most one call under way, and none waits
/// for another's reply.
///
/// [`start`](Self::start) begins a call, [`wait`](Self::wait) tells what came of one. Calls that
/// have no reply are repeated, over another connection where theirs is gone, as those of a
/// [`Client`] alone. While a connection is made anew the thread waits for that.
///
/// Connect them with [`Waiting::Polling`](super::Waiting::Polling): the thread sleeps here, and not
/// in a client.
#[derive(Debug)]
pub struct Many<T> {
    clients: Vec<Member<T>>,
    arrivals: Arrivals,
    /// Those for whom something may have come.
    ready: VecDeque<usize>,
    /// Calls that ended as they began.
    ended: VecDeque<(usize, Result<Told, ClientError>)>,
    /// No call is to be repeated before.
    next_due: Option<Instant>,
}

#[derive(Debug)]
struct Member<T> {
    client: Client<T>,
    sign: Sign,
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
        self.clients.push(Member { client, sign: self.arrivals.sign(number) });
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

    /// Begins a call of a client; false, and nothing is asked, where it has one under way, or there
    /// is none of this number.
    #[must_use]
    pub fn start(&mut self, number: usize, ask: Ask<'_>) -> bool {
        let member = self.clients.get_mut(number);
        let Some(member) = member.filter(|member| member.client.due().is_none()) else {
            return false;
        };
        member.client.begin(ask);
        if let Some(told) = self.carry_on(number) {
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
                return Ok(Some(ended));
            }
            while let Some(number) = self.ready.pop_front() {
                if let Some(told) = self.carry_on(number) {
                    return Ok(Some((number, told)));
                }
            }
            if is_last {
                return Ok(None);
            }
            let now = Instant::now();
            let left = |until: Option<Instant>| {
                until.map_or(Duration::MAX, |until| until.saturating_duration_since(now))
            };
            is_last = left(end).is_zero();
            let ready = &mut self.ready;
            let pause = left(end).min(left(self.next_due));
            self.arrivals.wait(pause, |number| ready.push_back(number))?;
            self.look();
        }
    }

    /// Carries a client's call on without waiting; what came of it, where it has ended.
    fn carry_on(&mut self, number: usize) -> Option<Result<Told, ClientError>> {
        let Member { client, sign } = self.clients.get_mut(number)?;
        if client.due().is_none() {
            client.clear();
            return None;
        }
        let told = client.step(Duration::ZERO);
        if told.is_none() {
            if client.watch(sign) {
                self.ready.push_back(number);
            }
            self.next_due = [self.next_due, client.due()].into_iter().flatten().min();
        }
        told
    }

    /// Those whose calls are to be repeated are ready.
    fn look(&mut self) {
        let now = Instant::now();
        if self.next_due.is_none_or(|next| now < next) {
            return;
        }
        let due = self.clients.iter().map(|member| member.client.due());
        let late = due.clone().enumerate().filter(|(_, due)| due.is_some_and(|due| due <= now));
        self.ready.extend(late.map(|(number, _)| number));
        // Those that are late say anew when they are due.
        self.next_due = due.flatten().filter(|&due| due > now).min();
    }
}
