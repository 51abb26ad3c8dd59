//! When there is something to look at on the sockets of set-up: told by the system where the device
//! can wait for that too, and by the clock elsewhere.

use crate::endpoint::Endpoint;
use crate::limits::{NEWS_POLL_NS, NO_NEWS_POLL_NS};
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use towpath_base::{Nanos, Time};
use towpath_memory::Region;
use towpath_verbs::Device;
use towpath_wake::{AnyOf, Watch};

/// What tells of news.
#[derive(Default)]
pub(super) struct News {
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
    pub(super) fn add_to(&self, files: &AnyOf) -> io::Result<()> {
        match &self.source {
            Source::Watch(watch) => files.add(watch),
            Source::Unknown | Source::Clock => Ok(()),
        }
    }

    /// A wait of the device has ended.
    pub(super) fn wake(&mut self) {
        self.is_awake = true;
    }

    /// What a wait has ended for is there: their senders wait, and should there be news as well, it
    /// ends the next wait at once.
    pub(super) fn packets_came(&mut self) {
        self.is_awake = false;
    }

    /// Whether there is any, and of which links whose set-up connections carry a path, into
    /// `streams`. A turn in which packets came does not ask because of a wait.
    pub(super) fn take(&mut self, now: Time, idle: bool, streams: &mut Vec<u16>) -> bool {
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
    pub(super) fn are_told(&self) -> bool {
        matches!(self.source, Source::Watch(_))
    }

    /// How long nothing needs to be looked at without news, where that is `clock_ns` without
    /// somebody who tells.
    pub(super) fn or(&self, clock_ns: u64) -> u64 {
        match self.source {
            Source::Watch(_) => NO_NEWS_POLL_NS,
            Source::Unknown | Source::Clock => clock_ns,
        }
    }
}

impl<D: Device<Memory = Region>> Endpoint<D> {
    /// Has news of a socket end each wait, if that can be.
    pub(super) fn tell_news_of(&mut self, socket: &impl AsFd) {
        let mut news = std::mem::take(&mut self.setup().news);
        self.add_to(&mut news, socket, None);
        self.setup().news = news;
    }

    /// Adds a socket; `stream` is the link whose path it carries.
    pub(super) fn add_to(&mut self, news: &mut News, socket: &impl AsFd, stream: Option<u16>) {
        if let Source::Unknown = news.source {
            let watch = Watch::new().ok();
            let watch = watch.filter(|w| self.files().is_none_or(|files| files.add(w).is_ok()));
            let watch = watch.filter(|w| self.device_mut().watch_file(w.as_fd().as_raw_fd()));
            news.source = watch.map_or(Source::Clock, Source::Watch);
        }
        let is_added = match &news.source {
            Source::Watch(watch) => {
                watch.add(socket, stream.map_or(0, |link| u64::from(link) + 1)).is_ok()
            }
            Source::Unknown | Source::Clock => true,
        };
        if !is_added {
            // One that is not told of has to be looked at, and then so may the others.
            self.device_mut().watch_file(NO_FILE);
            news.source = Source::Clock;
        }
    }
}

/// What a device takes for none.
const NO_FILE: i32 = -1;
