//! Classes of links: which are taken, the DSCPs of their packets, and what arrives under others.

use towpath_proto::{Class, ClassOrder};
use towpath_verbs::dscp_of;

/// A DSCP has six bits.
const DSCP_MAX: u8 = 0x3f;

/// How an endpoint keeps classes apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClassConfig {
    /// The class of links that are made without naming one.
    pub(crate) own: Class,
    /// By [`Class::index`].
    pub(crate) dscps: [u8; Class::COUNT],
    pub(crate) taken: [bool; Class::COUNT],
    /// In which order links of several classes post work.
    pub(crate) order: ClassOrder,
}

impl Default for ClassConfig {
    fn default() -> Self {
        Self {
            own: Class::default(),
            dscps: Class::ALL.map(Class::dscp_default),
            taken: [true; Class::COUNT],
            order: ClassOrder::default(),
        }
    }
}

impl ClassConfig {
    pub(crate) fn set_dscp(&mut self, class: Class, dscp: u8) {
        self.dscps[class.index()] = dscp.min(DSCP_MAX);
    }

    pub(crate) fn take_only(&mut self, classes: &[Class]) {
        self.taken = Class::ALL.map(|class| classes.contains(&class));
    }

    pub(crate) fn takes(&self, class: Class) -> bool {
        self.taken[class.index()]
    }

    pub(crate) fn dscp(&self, class: Class) -> u8 {
        self.dscps[class.index()]
    }
}

/// The class of a link, and what became of its mark on the way here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClassReport {
    /// The class.
    pub class: Class,
    /// The DSCP that its packets leave with.
    pub dscp: u8,
    /// The DSCP that the peer gives its packets.
    pub dscp_of_peer: u8,
    /// Messages (chunks and acks) that were seen to arrive under another DSCP than that: something
    /// between rewrites it. They are taken all the same. Zero where the device cannot see it; one
    /// on sockets looks at all to begin with, then at what one call in 64 brings.
    pub dscp_changed: u64,
    /// The last such DSCP.
    pub dscp_seen: Option<u8>,
}

impl ClassReport {
    pub(crate) fn new(class: Class, dscp: u8) -> Self {
        Self { class, dscp, dscp_of_peer: 0, dscp_changed: 0, dscp_seen: None }
    }

    /// Looks at what a message came in under.
    #[inline]
    pub(crate) fn note(&mut self, tclass: Option<u8>) {
        if let Some(dscp) = tclass.map(dscp_of)
            && dscp != self.dscp_of_peer
        {
            self.dscp_changed += 1;
            self.dscp_seen = Some(dscp);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_under_another_dscp_is_counted_and_marks_of_congestion_are_not() {
        let mut report = ClassReport::new(Class::Gold, 46);
        report.dscp_of_peer = 46;
        for tclass in [None, Some(46 << 2), Some(46 << 2 | 3)] {
            report.note(tclass);
        }
        assert_eq!((report.dscp_changed, report.dscp_seen), (0, None));
        report.note(Some(0));
        report.note(Some(10 << 2 | 1));
        assert_eq!((report.dscp_changed, report.dscp_seen), (2, Some(10)));
    }

    #[test]
    fn a_dscp_is_held_to_six_bits() {
        let mut config = ClassConfig::default();
        config.set_dscp(Class::Copper, 200);
        let tclass = |class| towpath_verbs::tclass_of(config.dscp(class));
        assert_eq!((config.dscp(Class::Copper), tclass(Class::Copper)), (63, 252));
        assert_eq!(tclass(Class::Gold), 184);
    }
}
