//! Settings of one-sided operations.

use super::EndpointConfig;

impl EndpointConfig {
    /// Has one-sided operations of its links go as messages, which the endpoint of the other end
    /// carries out in its turns, also where the device has RC with READ and atomics. For devices
    /// whose atomics are not to be relied on, and for comparing the two. One end that says so is
    /// enough. Default: no; where a device has no such queue pairs, or a link rides on TCP, they go
    /// as messages anyway.
    #[must_use]
    pub fn lanes_by_messages(mut self, on: bool) -> Self {
        self.lanes_by_messages = on;
        self
    }
}
