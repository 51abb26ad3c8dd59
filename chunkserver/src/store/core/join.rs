//! Which changes a group takes: those of a lower class keep none of a higher one waiting.

use std::collections::HashSet;

use towpath_transport::Class;

use super::group::Member;
use super::state::StoreCore;

/// Bytes of Silver's data that are under way when a group closes which takes their changes: about
/// as many as the disk writes in the time that it takes for the records. Without them a single
/// change would be written first, and then its record.
const SILVER_UNDER_WAY_MAX: u64 = 64 << 10;

/// Pages of slices that stand behind the records of a group: a sequential write of them takes a
/// disk little longer than one of a page.
pub(super) const LOGGED_PAGES_MAX: usize = 16;

/// The order in which classes join. The lower ones come twice: a change goes after all of its chunk
/// that came before it, and those may be of a lower class.
const ORDER: [Class; 5] = [Class::Gold, Class::Silver, Class::Copper, Class::Gold, Class::Silver];

/// Where the bytes of a change go that has any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// To their pages, before its record counts.
    Paged,
    /// To the log, behind its record.
    Logged,
}

/// The changes of a group.
pub(super) struct Joining {
    pub(super) members: Vec<usize>,
    /// No bytes go anywhere but to the log.
    pub(super) is_logged: bool,
    /// Changes of this kind were ready, and others went first.
    pub(super) passed_over: Option<Kind>,
}

impl<W: AsRef<[u8]>> StoreCore<W> {
    pub(super) fn class_of(&self, member: usize) -> Class {
        self.members.get(member).map_or(Class::Copper, |member| member.class)
    }

    /// The changes for the group that closes, in the order of their effect. A change whose data is
    /// not on the disk joins only where nobody waits for that who should not: Gold's always,
    /// Silver's where it is little, and Copper's never.
    ///
    /// A group has changes that bring bytes to pages, or changes whose bytes stand in the log, and
    /// not both: the latter wait for no flush. The first change of the highest class decides,
    /// unless the group before passed the other kind over.
    pub(super) fn joining(&self) -> Joining {
        let turn = self.gathering.passed_over;
        let first = self.joining_of(turn);
        match first.members.is_empty() && turn.is_some() {
            true => self.joining_of(None),
            false => first,
        }
    }

    fn joining_of(&self, kind: Option<Kind>) -> Joining {
        let gathered = &self.gathering.members;
        let mut joins = vec![false; gathered.len()];
        let (mut record_bytes, mut logged_pages, mut under_way) = (0, 0, 0);
        let (mut kind, mut passed_over) = (kind, None);
        for class in ORDER {
            if self.gathering.by_class[class.index()].members == 0 {
                continue;
            }
            let mut waits = HashSet::new();
            for (at, key) in gathered.iter().enumerate() {
                if joins[at] {
                    continue;
                }
                let member = &self.members[*key];
                let bytes = record_bytes + member.record_bytes as u64;
                let logged = member.logged_pages();
                let fits = bytes <= self.log.group_bytes_max()
                    && (logged_pages == 0 || logged_pages + logged <= LOGGED_PAGES_MAX);
                let its_kind = member.kind();
                let is_alike = its_kind.is_none() || kind.is_none() || its_kind == kind;
                let may = class == member.class
                    && fits
                    && !waits.contains(&member.chunk)
                    && self.may_join(member, under_way);
                if may && is_alike {
                    (record_bytes, joins[at]) = (bytes, true);
                    logged_pages += logged;
                    kind = kind.or(its_kind);
                    under_way += under_way_bytes(member);
                    continue;
                }
                passed_over = if may { its_kind } else { passed_over };
                if !self.overtakes() {
                    waits.insert(member.chunk);
                }
            }
            if joins.iter().all(|joins| *joins) {
                break;
            }
        }
        let joining = gathered.iter().zip(joins).filter(|(_, joins)| *joins);
        let members: Vec<_> = joining.map(|(key, _)| *key).collect();
        let is_logged = kind != Some(Kind::Paged) && self.io.writes_durably();
        Joining { members, is_logged, passed_over }
    }

    fn may_join(&self, member: &Member<W>, under_way: u64) -> bool {
        let is_written = member.writes_left == 0 || self.waits_for_all();
        member.merges_left == 0
            && match member.class {
                Class::Gold => true,
                Class::Silver => {
                    let bytes = under_way + under_way_bytes(member);
                    is_written || bytes <= SILVER_UNDER_WAY_MAX
                }
                Class::Copper => is_written,
            }
    }

    /// Only by a mistake that a test makes: changes of a chunk overtake each other.
    fn overtakes(&self) -> bool {
        #[cfg(test)]
        return self.bug == Some(super::tests::Bug::Overtake);
        #[cfg(not(test))]
        false
    }

    /// Only by a mistake that a test makes: a group takes changes whatever the class of its data.
    fn waits_for_all(&self) -> bool {
        #[cfg(test)]
        return self.bug == Some(super::tests::Bug::JoinEarly);
        #[cfg(not(test))]
        false
    }
}

/// Bytes of a change's data that are not on the disk.
fn under_way_bytes<W>(member: &Member<W>) -> u64 {
    if member.writes_left > 0 { member.data_bytes() } else { 0 }
}
