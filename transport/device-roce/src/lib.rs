//! A RoCEv2 NIC in userspace.
