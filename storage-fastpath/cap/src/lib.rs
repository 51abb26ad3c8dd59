//! Capabilities: who may do what with which chunks, proved by a tag on each request.
//!
//! Servers and whoever grants share a key ([`KeyRing`]). A [`Capability`] says what may be done:
//! with which chunks, in which bytes, until when. The one who grants it makes a secret of it
//! ([`KeyRing::mint`]) and gives both to a client, as a [`Grant`]. The secret is never sent. Each
//! request carries the capability, a number that is used once, and a tag over all of it and the
//! request ([`Prover`]); a server derives the secret from its key and the capability, and checks
//! the tag before it does anything else ([`Checker`]). So servers keep nothing of those who have
//! been granted something. The layouts and what they defend against are in
//! `docs/capabilities.md`; the capabilities themselves follow NASD (Gobioff et al.).
//!
//! Nothing here reads a clock or does I/O: times are given, in milliseconds since the Unix epoch.
//!
//! ```
//! use towpath_cap::{Capability, Checker, Demand, KeyRing, Prover, Rights, Scope};
//!
//! let now_ms = 1_700_000_000_000;
//! let ring = KeyRing::parse(&format!("7 {}", "5a".repeat(32)))?;
//! let capability = Capability {
//!     rights: Rights::READ | Rights::WRITE,
//!     scope: Scope::chunk(42),
//!     expires_ms: now_ms + 60_000,
//!     ..Capability::everything()
//! };
//! let grant = ring.mint(capability)?;
//!
//! // The client.
//! let (mut prover, method, body) = (Prover::new(grant, 1), 2, [b"a header ", b"and more "]);
//! let proof = prover.prove(now_ms, method, 0, &body.map(|part| &part[..]));
//!
//! // A server.
//! let checker = Checker::new(ring, now_ms - 1_000);
//! let demand = Demand { rights: Rights::WRITE, chunk: Some(42), ..Demand::default() };
//! checker.check(now_ms, &proof, method, 0, b"a header and more ", &demand)?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | module | what is there |
//! |---|---|
//! | `capability` | what may be done, and its layout |
//! | `grant` | a capability and its secret, as text |
//! | `keys` | the keys that servers and whoever grants share |
//! | `proof` | what a request carries, and how a client makes it |
//! | `check` | how a server checks it |
//! | `replay` | which numbers were used |
//! | `digest` | what names a layout in a capability |
//! | `revoked` | capabilities that hold no more |
//! | `limits` | every constant, with its reason |

#![forbid(unsafe_code)]

mod capability;
mod check;
mod denied;
mod digest;
mod grant;
mod hex;
mod keys;
pub mod limits;
mod proof;
mod replay;
mod revoked;

pub use capability::{Capability, CapabilityError, Rights, Scope};
pub use check::{Checker, Demand};
pub use denied::Denied;
pub use digest::layout_digest;
pub use grant::{Grant, GrantError};
pub use keys::{KeyError, KeyRing, MintError};
pub use proof::{PROOF_BYTES, Prover, Relay};
pub use revoked::{Revoked, RevokedError};
