//! What to do while nothing happens.

use std::time::{Duration, Instant};

use towpath_status::say;
use towpath_transport::{Device, Endpoint, Nanos, Region, Time};

use crate::cli::interrupt::{Interrupt, Interrupted};

/// Polling without work for this long before blocking: below it a sleep would cost more.
const SPIN: Duration = Duration::from_micros(50);

/// Blocking at a time, so that Ctrl-C is seen soon.
const BLOCK_MAX: Nanos = Nanos::from_millis(20);

/// After so long without an answer the user is told that the server is silent.
const SILENCE_TOLD: Nanos = Nanos::from_secs(3);

/// What to do while nothing happens.
pub(crate) trait Pace<D: Device<Memory = Region>> {
    /// Nothing has happened; nothing is due in the client before `due`.
    ///
    /// # Errors
    /// [`Interrupted`].
    fn idle(&mut self, endpoint: &mut Endpoint<D>, due: Time) -> Result<(), Interrupted>;
}

/// Waits for the network.
#[derive(Debug)]
pub(crate) struct WallClock {
    interrupt: Interrupt,
    give_up_at: Option<Instant>,
    idle_since: Option<Instant>,
    last: Option<Instant>,
    /// Changes of carrier that were told.
    rides: u64,
    /// It was told that the server is silent.
    is_silent: bool,
}

impl WallClock {
    /// Until somebody interrupts.
    #[must_use]
    pub(crate) fn new(interrupt: Interrupt) -> Self {
        let (give_up_at, idle_since, last) = (None, None, None);
        Self { interrupt, give_up_at, idle_since, last, rides: 0, is_silent: false }
    }

    /// From now on until `span` has passed, whatever interrupted so far.
    pub(crate) fn last_wait(&mut self, span: Duration) {
        self.interrupt = Interrupt::default();
        self.give_up_at = Some(Instant::now() + span);
    }

    /// Says that the server owes an answer for long: its link goes down only later.
    fn tell_silence<D: Device<Memory = Region>>(&mut self, endpoint: &Endpoint<D>) {
        let silence = endpoint.links().filter_map(|link| endpoint.silence(link)).max();
        let is_silent = silence >= Some(SILENCE_TOLD);
        if is_silent && !self.is_silent {
            let seconds = SILENCE_TOLD.as_secs_f64();
            say(format_args!("towpath: nothing from the server for {seconds} s: waiting for it"));
        }
        self.is_silent = is_silent;
    }
}

impl<D: Device<Memory = Region>> Pace<D> for WallClock {
    fn idle(&mut self, endpoint: &mut Endpoint<D>, due: Time) -> Result<(), Interrupted> {
        self.interrupt.check()?;
        for ride in endpoint.rides().after(self.rides) {
            say(format_args!("towpath: the link {ride}"));
        }
        self.rides = endpoint.rides().count();
        let now = Instant::now();
        if self.give_up_at.is_some_and(|end| now >= end) {
            return Err(Interrupted);
        }
        // A gap since the last call means that there was work in between.
        let went_on = self.last.is_some_and(|last| now.duration_since(last) < SPIN / 8);
        self.last = Some(now);
        let since = *self.idle_since.get_or_insert(now);
        if !went_on {
            self.idle_since = Some(now);
        } else if now.duration_since(since) >= SPIN {
            self.tell_silence(endpoint);
            let span = due.since(endpoint.now()).min(BLOCK_MAX);
            endpoint.wait(span);
            return Ok(());
        }
        std::hint::spin_loop();
        Ok(())
    }
}
