//! When there is something to look at on the sockets of set-up: told by the system where the device
//! can wait for that too, and by the clock elsewhere.

use crate::limits::NEWS_POLL_NS;
use std::io;
use std::os::fd::AsFd;
use towpath_base::{Nanos, Time};
use towpath_wake::{AnyOf, Watch};

/// What tells of news.
#[derive(Default)]
pub(crate) struct News {
    source: Source,
    /// A wait has ended, perhaps for news.
    is_awake: bool,
    /// When it is asked though no wait has ended: a busy endpoint does not wait.
    next_look: Time,
}

#[derive(Default)]
enum Source {
    /// There was no socket yet.
    #[default]
    Unknown,
    /// The sockets that are watched, all of them.
    Watch(Watch),
    /// The clock.
    Clock,
}

impl News {
    /// Has news end the wait of whoever waits for these files; without a watch the clock does.
    pub(crate) fn add_to(&self, files: &AnyOf) -> io::Result<()> {
        match &self.source {
            Source::Watch(watch) => files.add(watch),
            Source::Unknown | Source::Clock => Ok(()),
        }
    }

    /// A wait of the device has ended.
    pub(crate) fn wake(&mut self) {
        self.is_awake = true;
    }

    /// What a wait has ended for is there: their senders wait, and should there be news as well, it
    /// ends the next wait at once.
    pub(crate) fn packets_came(&mut self) {
        self.is_awake = false;
    }

    /// Whether there is any, and on the set-up connections of which links, into
    /// `streams`. A turn in which packets came does not ask because of a wait.
    pub(crate) fn take(&mut self, now: Time, idle: bool, streams: &mut Vec<u16>) -> bool {
        let Source::Watch(watch) = &self.source else { return false };
        if !(std::mem::take(&mut self.is_awake) && idle) && now < self.next_look {
            return false;
        }
        self.next_look = now + Nanos(NEWS_POLL_NS);
        let mut has_news = false;
        watch.take(|number| match number.checked_sub(1) {
            Some(index) => streams.push(index as u16),
            None => has_news = true,
        });
        has_news
    }

    /// Whether all sockets are told of.
    pub(crate) fn are_told(&self) -> bool {
        matches!(self.source, Source::Watch(_))
    }

    /// Adds a socket; `stream` is the link whose set-up connection it is. `wait` has each wait end
    /// for news of the sockets of a watch; of none, where there is none; false when it cannot.
    /// Returns whether all sockets are told of.
    pub(crate) fn add(
        &mut self,
        socket: &impl AsFd,
        stream: Option<u16>,
        mut wait: impl FnMut(Option<&Watch>) -> bool,
    ) -> bool {
        if let Source::Unknown = self.source {
            let watch = Watch::new().ok().filter(|watch| wait(Some(watch)));
            self.source = watch.map_or(Source::Clock, Source::Watch);
        }
        let number = stream.map_or(0, |link| u64::from(link) + 1);
        if let Source::Watch(watch) = &self.source
            && watch.add(socket, number).is_err()
        {
            // One that is not told of has to be looked at, and then so may the others.
            wait(None);
            self.source = Source::Clock;
        }
        self.are_told()
    }
}
