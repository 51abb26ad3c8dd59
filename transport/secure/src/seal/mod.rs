//! Sealed packets: what one is, how a link seals its own and opens those of its peer.
//!
//! | module | content |
//! |---|---|
//! | `nonce` | numbers that are used once, and the nonces that come of them |
//! | `aead` | AES-128-GCM over header and body, in both modes |
//! | `sealer` | seals what this end sends, and rolls keys over |
//! | `opener` | opens what the peer sends, or refuses it |
//! | `link` | both of one link |

mod aead;
mod link;
mod nonce;
mod opener;
mod sealer;

pub use link::{LinkState, SealedLink};
pub use opener::Opened;
pub use sealer::{RollOver, SealError};
