//! Messages of a server that end no request: pushes, refusals and fates, counted by link.

use towpath_transport::{ChannelId, LinkId, SendId};

/// Those that have no outcome yet. All have theirs before the end of their link or channel is told.
#[derive(Debug, Default)]
pub(super) struct Unasked {
    /// By the dense index of their link.
    per_link: Vec<Vec<(SendId, ChannelId)>>,
}

impl Unasked {
    pub(super) fn of_channel(&self, (link, channel): (LinkId, ChannelId)) -> usize {
        self.of(link).filter(|&&(_, on)| on == channel).count()
    }

    pub(super) fn of_link(&self, link: LinkId) -> usize {
        self.of(link).count()
    }

    fn of(&self, link: LinkId) -> impl Iterator<Item = &(SendId, ChannelId)> {
        let all = self.per_link.get(link.index()).into_iter().flatten();
        all.filter(move |(send, _)| send.link() == link)
    }

    pub(super) fn put(&mut self, send: SendId, channel: ChannelId) {
        let index = send.link().index();
        if self.per_link.len() <= index {
            self.per_link.resize_with(index + 1, Vec::new);
        }
        self.per_link[index].push((send, channel));
    }

    /// One has its outcome; false when it is none of these.
    pub(super) fn leave(&mut self, send: SendId) -> bool {
        let Some(of_link) = self.per_link.get_mut(send.link().index()) else { return false };
        let place = of_link.iter().position(|&(other, _)| other == send);
        place.map(|place| of_link.swap_remove(place)).is_some()
    }
}

/// How much was dropped for each link.
#[derive(Debug, Default)]
pub(super) struct Dropped {
    /// By the dense index of the link.
    per_link: Vec<Option<(LinkId, u64)>>,
}

impl Dropped {
    pub(super) fn add(&mut self, link: LinkId) {
        if self.per_link.len() <= link.index() {
            self.per_link.resize_with(link.index() + 1, || None);
        }
        let place = &mut self.per_link[link.index()];
        match place {
            Some((of, count)) if *of == link => *count += 1,
            _ => *place = Some((link, 1)),
        }
    }

    pub(super) fn forget(&mut self, link: LinkId) {
        if let Some(place) = self.per_link.get_mut(link.index()) {
            *place = None;
        }
    }

    /// The link with most, and how many.
    pub(super) fn most(&self) -> Option<(LinkId, u64)> {
        self.per_link.iter().flatten().copied().max_by_key(|&(_, count)| count)
    }
}
