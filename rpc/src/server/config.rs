//! The settings of a server.

use crate::limits::{MESSAGE_BYTES_MAX_DEFAULT, REQUESTS_MAX, REQUESTS_MAX_DEFAULT};

/// Settings of an [`RpcServer`](super::RpcServer). The defaults are tuned for a few clients, each
/// some dozen requests deep.
#[derive(Clone, Copy, Debug)]
pub struct ServerConfig {
    pub(super) requests_max: usize,
    pub(super) message_bytes_max: usize,
    pub(super) streams: bool,
}

impl Default for ServerConfig {
    fn default() -> Self {
        let message_bytes_max = MESSAGE_BYTES_MAX_DEFAULT;
        Self { requests_max: REQUESTS_MAX_DEFAULT, message_bytes_max, streams: false }
    }
}

impl ServerConfig {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Requests of one link that are under way at a time, from their arrival until the outcome of
    /// the response; more are answered [`Status::BUSY`](crate::Status::BUSY). Default 256, at most
    /// 1,024.
    #[must_use]
    pub fn requests_max(mut self, requests: usize) -> Self {
        self.requests_max = requests.clamp(1, REQUESTS_MAX);
        self
    }

    /// The longest request in bytes, header included; longer ones are answered
    /// [`Status::TOO_LONG`](crate::Status::TOO_LONG). Default 16 MiB; what the link holds whole
    /// bounds it further, unless the server takes [`streams`](Self::streams).
    #[must_use]
    pub fn message_bytes_max(mut self, bytes: usize) -> Self {
        self.message_bytes_max = bytes;
        self
    }

    /// Whether requests are handed over before all of their data is here
    /// ([`Streamed`](crate::Streamed)): those whose messages come in pieces
    /// ([`EndpointConfig::pieces_as_they_come`](towpath_transport::EndpointConfig)). Default no:
    /// what does not come whole is too long.
    #[must_use]
    pub fn streams(mut self, on: bool) -> Self {
        self.streams = on;
        self
    }
}
