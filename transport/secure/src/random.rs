//! Random bytes of the system, and what to do when there are none.

pub use rustls::crypto::SecureRandom;

/// The system gave no random bytes. Nothing is sent in that case, because keys and salts that can
/// be guessed protect nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the system gives no random bytes, so no key can be made: let this process call getrandom(2) \
     or open /dev/urandom"
)]
pub struct RandomError;

/// The random bytes of the system.
#[must_use]
pub fn system_random() -> &'static dyn SecureRandom {
    rustls::crypto::ring::default_provider().secure_random
}

/// Random bytes, as many as `N`.
pub(crate) fn bytes<const N: usize>(random: &dyn SecureRandom) -> Result<[u8; N], RandomError> {
    let mut bytes = [0; N];
    random.fill(&mut bytes).map_err(|_| RandomError)?;
    Ok(bytes)
}
