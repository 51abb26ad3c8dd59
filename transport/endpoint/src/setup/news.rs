//! When to look at the sockets of set-up: on news from the system where the device can wait for
//! that too, and by the clock elsewhere.

use crate::limits::NEWS_POLL_NS;
use std::io;
use std::os::fd::AsFd;
use towpath_base::{Nanos, Time};
use towpath_wake::{AnyOf, Watch};

/// Where news of set-up comes from, and when to ask for it.
#[derive(Default)]
pub(crate) struct News {
    source: Source,
    /// A wait of the device has ended, perhaps because of news.
    is_awake: bool,
    /// When to ask although no wait has ended, because a busy endpoint does not wait.
    next_look: Time,
}

#[derive(Default)]
enum Source {
    /// No socket was added yet.
    #[default]
    Unknown,
    /// The system, which watches all sockets.
    Watch(Watch),
    /// The clock.
    Clock,
}

impl News {
    /// Makes news end a wait for these files, if the sockets are watched.
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

    /// Packets ended the last wait, and go first because their senders wait. News, if there is any,
    /// ends the next wait at once.
    pub(crate) fn packets_came(&mut self) {
        self.is_awake = false;
    }

    /// Whether there is news. Links whose set-up connections have news go into `streams`. The end
    /// of a wait counts only in an `idle` turn.
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

    /// Whether the system reports news of all sockets.
    pub(crate) fn are_told(&self) -> bool {
        matches!(self.source, Source::Watch(_))
    }

    /// Adds a socket; `stream` is the link whose set-up connection it is. `wait` makes news on a
    /// watch end each wait, without a watch none; false when it cannot. Returns whether the system
    /// reports news of all sockets.
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
            // The clock looks at a socket without a watch, and then at the others, too.
            wait(None);
            self.source = Source::Clock;
        }
        self.are_told()
    }
}
