//! Virtual-time packet links and packet-link decorators.
