//! Requests, deadlines and handlers over channels.
