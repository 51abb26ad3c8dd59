//! Why packets and HELLOs are refused: one file for each kind, and a counter of each.
//!
//! | module | what is refused |
//! |---|---|
//! | `truncated` | what is too short for a header and a tag |
//! | `wrong_link` | what names another link, or a path that the link lacks |
//! | `reflected` | what this end has sent itself |
//! | `wrong_mode` | what is protected less, or otherwise, than the link |
//! | `stale_key` | what an old key sealed, or one that is not used yet |
//! | `replay` | what came before, or is too old to tell |
//! | `bad_tag` | what was changed or made up |
//! | `unknown_secret` | a HELLO with a secret that this host lacks |

pub(crate) mod bad_tag;
pub(crate) mod reflected;
pub(crate) mod replay;
pub(crate) mod stale_key;
pub(crate) mod truncated;
pub(crate) mod unknown_secret;
pub(crate) mod wrong_link;
pub(crate) mod wrong_mode;

/// Why something was refused. Nothing that was refused changes anything but a counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Refusal {
    /// Too short.
    #[error("{}", truncated::MEANING)]
    Truncated,
    /// Of another link.
    #[error("{}", wrong_link::MEANING)]
    WrongLink,
    /// Sent by this end.
    #[error("{}", reflected::MEANING)]
    Reflected,
    /// In another mode.
    #[error("{}", wrong_mode::MEANING)]
    WrongMode,
    /// Under a key that is not in use.
    #[error("{}", stale_key::MEANING)]
    StaleKey,
    /// Not for the first time.
    #[error("{}", replay::MEANING)]
    Replay,
    /// Not from the peer.
    #[error("{}", bad_tag::MEANING)]
    BadTag,
    /// Under a secret that is not known.
    #[error("{}", unknown_secret::MEANING)]
    UnknownSecret,
}

impl Refusal {
    /// All kinds, in the order in which they are checked.
    pub const ALL: [Self; 8] = [
        Self::Truncated,
        Self::WrongLink,
        Self::Reflected,
        Self::WrongMode,
        Self::StaleKey,
        Self::Replay,
        Self::BadTag,
        Self::UnknownSecret,
    ];

    /// The label of its counter.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Truncated => "truncated",
            Self::WrongLink => "wrong_link",
            Self::Reflected => "reflected",
            Self::WrongMode => "wrong_mode",
            Self::StaleKey => "stale_key",
            Self::Replay => "replay",
            Self::BadTag => "bad_tag",
            Self::UnknownSecret => "unknown_secret",
        }
    }
}

/// How often each kind was refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Refusals([u64; Refusal::ALL.len()]);

impl Refusals {
    /// How often this kind was.
    #[must_use]
    pub fn of(&self, refusal: Refusal) -> u64 {
        self.0[refusal as usize]
    }

    /// All kinds and how often each was.
    pub fn iter(&self) -> impl Iterator<Item = (Refusal, u64)> {
        Refusal::ALL.into_iter().zip(self.0)
    }

    /// All kinds together.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.0.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }

    /// Adds those of another link.
    pub fn add(&mut self, other: &Self) {
        for (count, more) in self.0.iter_mut().zip(other.0) {
            *count = count.saturating_add(more);
        }
    }

    /// Counts one, and passes it on.
    pub(crate) fn count(&mut self, refusal: Refusal) -> Refusal {
        let count = &mut self.0[refusal as usize];
        *count = count.saturating_add(1);
        refusal
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_has_its_counter_name_and_meaning() {
        let mut refusals = Refusals::default();
        for (at, refusal) in Refusal::ALL.into_iter().enumerate() {
            assert_eq!(refusal as usize, at, "the order of `ALL` is that of the variants");
            (0..=at).for_each(|_| {
                refusals.count(refusal);
            });
        }
        let counts: Vec<u64> = refusals.iter().map(|(_, count)| count).collect();
        assert_eq!(counts, [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!((refusals.sum(), refusals.of(Refusal::StaleKey)), (36, 5));
        let mut twice = refusals;
        twice.add(&refusals);
        assert_eq!(twice.sum(), 72);
        for one in Refusal::ALL {
            let same =
                |two: &&Refusal| one.name() == two.name() || one.to_string() == two.to_string();
            assert_eq!(Refusal::ALL.iter().filter(same).count(), 1, "{one}");
        }
    }
}
