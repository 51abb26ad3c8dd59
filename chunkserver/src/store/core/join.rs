//! Which changes a group takes: those of a lower class keep none of a higher one waiting.

use std::collections::HashSet;

use towpath_transport::Class;

use super::group::Member;
use super::state::StoreCore;

/// Bytes of Silver's data that are under way when a group closes which takes their changes: about
/// as many as the disk writes in the time that it takes for the records. Without them a single
/// change would be written first, and then its record.
const SILVER_UNDER_WAY_MAX: u64 = 64 << 10;

/// The order in which classes join. The lower ones come twice: a change goes after all of its chunk
/// that came before it, and those may be of a lower class.
const ORDER: [Class; 5] = [Class::Gold, Class::Silver, Class::Copper, Class::Gold, Class::Silver];

impl<W: AsRef<[u8]>> StoreCore<W> {
    pub(super) fn class_of(&self, member: usize) -> Class {
        self.members.get(member).map_or(Class::Copper, |member| member.class)
    }

    /// The changes for the group that closes, in the order of their effect. A change whose data is
    /// not on the disk joins only where nobody waits for that who should not: Gold's always,
    /// Silver's where it is little, and Copper's never.
    pub(super) fn joining(&self) -> Vec<usize> {
        let gathered = &self.gathering.members;
        let mut joins = vec![false; gathered.len()];
        let (mut record_bytes, mut under_way) = (0, 0);
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
                let fits = bytes <= self.log.group_bytes_max();
                if class == member.class
                    && fits
                    && !waits.contains(&member.chunk)
                    && self.may_join(member, under_way)
                {
                    (record_bytes, joins[at]) = (bytes, true);
                    under_way += under_way_bytes(member);
                } else if !self.overtakes() {
                    waits.insert(member.chunk);
                }
            }
            if joins.iter().all(|joins| *joins) {
                break;
            }
        }
        let joining = gathered.iter().zip(joins).filter(|(_, joins)| *joins);
        joining.map(|(key, _)| *key).collect()
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
