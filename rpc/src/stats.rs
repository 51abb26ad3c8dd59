//! What a server counts.

/// What a server did beside serving; each only grows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerStats {
    /// Requests handed to the service.
    pub requests: u64,
    /// Messages that are no sound request.
    pub malformed: u64,
    /// Requests turned away because their link had too many under way.
    pub busy: u64,
    /// Requests too long to be held whole.
    pub too_long: u64,
    /// Requests that had begun and whose rest did not come.
    pub broken: u64,
    /// Requests that their client gave up while they were served.
    pub cancelled: u64,
    /// Of those, given up before the service had begun.
    pub cancelled_unbegun: u64,
    /// Cancels of requests that had ended, or were never made, and cancels that came again.
    pub cancels_late: u64,
    /// Responses whose sending was given up half way.
    pub responses_given_up: u64,
    /// Responses sent.
    pub responses: u64,
    /// Responses that nobody waits for any more, or that could not be sent.
    pub responses_dropped: u64,
    /// Refusals and fates that were not sent, because their link had too many without an outcome
    /// ([`NOTES_MAX`](crate::limits::NOTES_MAX)) or held its share of the send buffers.
    pub notes_dropped: u64,
    /// Pushes sent.
    pub pushes: u64,
    /// Of those, given up before their client had them: out of time, or with the link.
    pub pushes_given_up: u64,
    /// Pushes that were not sent: too many were under way on their channel, no buffer was free, or
    /// the link did not take them.
    pub pushes_refused: u64,
}

impl std::ops::AddAssign for ServerStats {
    /// Counters of several servers together.
    fn add_assign(&mut self, other: Self) {
        // Taken apart by name, so that a new counter cannot be forgotten.
        let Self {
            requests,
            malformed,
            busy,
            too_long,
            broken,
            cancelled,
            cancelled_unbegun,
            cancels_late,
            responses_given_up,
            responses,
            responses_dropped,
            notes_dropped,
            pushes,
            pushes_given_up,
            pushes_refused,
        } = other;
        self.requests += requests;
        self.malformed += malformed;
        self.busy += busy;
        self.too_long += too_long;
        self.broken += broken;
        self.cancelled += cancelled;
        self.cancelled_unbegun += cancelled_unbegun;
        self.cancels_late += cancels_late;
        self.responses_given_up += responses_given_up;
        self.responses += responses;
        self.responses_dropped += responses_dropped;
        self.notes_dropped += notes_dropped;
        self.pushes += pushes;
        self.pushes_given_up += pushes_given_up;
        self.pushes_refused += pushes_refused;
    }
}
