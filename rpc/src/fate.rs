//! What is known of an operation that got no answer, and the fates that a server remembers.

use std::collections::VecDeque;
use std::fmt;
use towpath_transport::{ChannelId, LinkId, Outcome};

/// What is known of an operation whose caller got no answer
/// (docs/storage-protocol.md section 3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Fate {
    /// It was done: the server said so after it was given up.
    Happened,
    /// It was not done and never will be: the server's application never saw the request whole, or
    /// said that it had not begun, or that it failed without a change.
    DidNotHappen,
    /// It cannot be known: the server has or may have the request, and did not say.
    Unknown,
}

impl Fate {
    /// What the outcome of sending a request says by itself.
    #[must_use]
    pub fn of_send(outcome: Outcome) -> Self {
        match outcome {
            Outcome::Abandoned => Self::DidNotHappen,
            Outcome::Delivered | Outcome::Unknown => Self::Unknown,
        }
    }

    /// Its code on the wire.
    pub(crate) fn code(self) -> u16 {
        match self {
            Self::Happened => 1,
            Self::DidNotHappen => 2,
            Self::Unknown => 3,
        }
    }

    /// The fate of a code; none of one without a meaning.
    pub(crate) fn of_code(code: u16) -> Option<Self> {
        [Self::Happened, Self::DidNotHappen, Self::Unknown].into_iter().find(|f| f.code() == code)
    }
}

impl fmt::Display for Fate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Happened => "it was done",
            Self::DidNotHappen => "it was not done",
            Self::Unknown => "whether it was done is not known",
        })
    }
}

/// A request that ended without its client having the response.
#[derive(Clone, Copy, Debug)]
struct Ended {
    link: LinkId,
    channel: ChannelId,
    request: u64,
    fate: Fate,
}

/// The fates of requests that ended without their clients having the response, the newest last.
#[derive(Debug, Default)]
pub(crate) struct Fates {
    /// By the dense index of their link.
    per_link: Vec<VecDeque<Ended>>,
    count: usize,
}

impl Fates {
    /// Remembers one. When there are `max`, the link that has most of them loses its oldest one:
    /// who makes many forgets nobody else's.
    pub(crate) fn put(
        &mut self,
        (link, channel): (LinkId, ChannelId),
        request: u64,
        fate: Fate,
        max: usize,
    ) {
        if self.count >= max
            && let Some(most) = self.per_link.iter_mut().max_by_key(|of_link| of_link.len())
            && most.pop_front().is_some()
        {
            self.count -= 1;
        }
        if self.per_link.len() <= link.index() {
            self.per_link.resize_with(link.index() + 1, VecDeque::new);
        }
        self.per_link[link.index()].push_back(Ended { link, channel, request, fate });
        self.count += 1;
    }

    /// The fate of a request, newest first; [`Fate::Unknown`] when it is not remembered.
    pub(crate) fn find(&self, way: (LinkId, ChannelId), request: u64) -> Fate {
        let is_it = |ended: &&Ended| (ended.link, ended.channel) == way && ended.request == request;
        let of_link = self.per_link.get(way.0.index());
        let found = of_link.and_then(|of_link| of_link.iter().rev().find(is_it));
        found.map_or(Fate::Unknown, |ended| ended.fate)
    }

    /// Forgets all of a link, or of one channel of it: nobody can ask any more.
    pub(crate) fn forget(&mut self, link: LinkId, channel: Option<ChannelId>) {
        let of = |ended: &Ended| ended.link == link && channel.is_none_or(|c| c == ended.channel);
        let Some(of_link) = self.per_link.get_mut(link.index()) else { return };
        let before = of_link.len();
        of_link.retain(|ended| !of(ended));
        self.count -= before - of_link.len();
    }

    pub(crate) fn len(&self) -> usize {
        self.count
    }
}
