//! Which changes a group takes: those of a lower class keep none of a higher one waiting.

use std::collections::HashSet;

use towpath_transport::Class;

use super::change::{Kind, Member};
use super::changes::Changes;

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

/// The changes of a group.
#[derive(Debug, Default)]
pub(super) struct Joining {
    pub(super) members: Vec<usize>,
    /// Where their bytes go; none where they have none.
    pub(super) kind: Option<Kind>,
    /// Changes of this kind were ready, and others went first.
    pub(super) passed_over: Option<Kind>,
    pub(super) record_bytes: u64,
    pub(super) logged_pages: usize,
    /// Bytes of data under way.
    under_way: u64,
}

/// How changes join.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct JoinRules {
    /// Bytes of the records of a group.
    pub(super) group_bytes_max: u64,
    /// Only by a mistake that a test makes: changes of a chunk overtake each other.
    pub(super) overtakes: bool,
    /// Only by a mistake that a test makes: a group takes changes whatever the class of its data.
    pub(super) waits_for_all: bool,
}

impl<W> Changes<W> {
    /// The changes for the group that closes, in the order of their effect. A change whose data is
    /// not on the disk joins only where nobody waits for that who should not: Gold's always,
    /// Silver's where it is little, and Copper's never.
    ///
    /// A group has changes that bring bytes to pages, or changes whose bytes stand in the log, and
    /// not both: the latter wait for no flush. The first change of the highest class decides,
    /// unless the group before passed the other kind over.
    pub(super) fn joining(&self, rules: JoinRules) -> Joining {
        let turn = self.passed_over();
        let first = self.joining_of(rules, turn);
        match first.members.is_empty() && turn.is_some() {
            true => self.joining_of(rules, None),
            false => first,
        }
    }

    fn joining_of(&self, rules: JoinRules, kind: Option<Kind>) -> Joining {
        let gathered = self.gathering();
        let mut joins = vec![false; gathered.len()];
        let mut joining = Joining { kind, ..Joining::default() };
        for class in ORDER {
            if self.gathered(class).members == 0 {
                continue;
            }
            let mut waits = HashSet::new();
            for (at, key) in gathered.iter().enumerate() {
                let Some(member) = self.get(*key).filter(|_| !joins[at]) else { continue };
                let may = class == member.class
                    && !waits.contains(&member.chunk)
                    && joining.may_add(member, rules);
                let kind = member.kind();
                if may && (kind.is_none() || joining.kind.is_none() || kind == joining.kind) {
                    joins[at] = true;
                    joining.add(member);
                    continue;
                }
                joining.passed_over = if may { kind } else { joining.passed_over };
                if !rules.overtakes {
                    waits.insert(member.chunk);
                }
            }
            if joins.iter().all(|joins| *joins) {
                break;
            }
        }
        let members = gathered.iter().zip(joins).filter(|(_, joins)| *joins);
        joining.members = members.map(|(key, _)| *key).collect();
        joining
    }
}

impl Joining {
    /// Whether a change may join those that do, but for their kind.
    fn may_add<W>(&self, member: &Member<W>, rules: JoinRules) -> bool {
        let logged_pages = self.logged_pages + member.logged_pages();
        let fits = self.record_bytes + member.record_bytes as u64 <= rules.group_bytes_max
            && (self.logged_pages == 0 || logged_pages <= LOGGED_PAGES_MAX);
        let is_written = member.writes_left == 0 || rules.waits_for_all;
        let is_ready = match member.class {
            Class::Gold => true,
            Class::Silver => {
                is_written || self.under_way + under_way_bytes(member) <= SILVER_UNDER_WAY_MAX
            }
            Class::Copper => is_written,
        };
        fits && member.merges_left == 0 && is_ready
    }

    fn add<W>(&mut self, member: &Member<W>) {
        self.record_bytes += member.record_bytes as u64;
        self.logged_pages += member.logged_pages();
        self.kind = self.kind.or(member.kind());
        self.under_way += under_way_bytes(member);
    }
}

/// Bytes of a change's data that are not on the disk.
fn under_way_bytes<W>(member: &Member<W>) -> u64 {
    if member.writes_left > 0 { member.data_bytes() } else { 0 }
}

#[cfg(test)]
impl JoinRules {
    /// The rules as a mistake that a test makes has them.
    pub(super) fn mistaken(self, bug: Option<super::tests::Bug>) -> Self {
        use super::tests::Bug;
        let (overtakes, waits_for_all) = (bug == Some(Bug::Overtake), bug == Some(Bug::JoinEarly));
        Self { overtakes, waits_for_all, ..self }
    }
}
