//! What a link promises on every device: the same tests on the wire within a process, on the
//! userspace NIC in virtual time and over sockets, and in the virtual machine on the kernel's rxe,
//! alone and with the userspace NIC at the other end.

mod channels;
mod endings;
#[path = "../exchange/mod.rs"]
mod exchange;
mod lane;
mod loops;
mod pair;
#[path = "../rig/mod.rs"]
mod rig;
mod traffic;

/// Each test for each device; `again` are those that start an endpoint anew at its old address.
macro_rules! for_every_device {
    (
        $($test:path as $name:ident),+ $(,)?;
        again: $($again:path as $anew:ident),+ $(,)?
    ) => {
        mod mem {
            $(#[test] fn $name() { $test(crate::pair::mem()); })+
        }
        mod sim {
            $(#[test] fn $name() { $test(crate::pair::sim()); })+
            $(#[test] fn $anew() { $again(crate::pair::sim()); })+
        }
        mod udp {
            $(#[test] fn $name() { $test(crate::pair::udp()); })+
            $(#[test] fn $anew() { $again(crate::pair::udp()); })+
        }
        #[cfg(feature = "verbs")]
        mod verbs {
            $(
                #[test]
                #[ignore = "needs two joined RDMA devices: cargo xtask vm-test"]
                fn $name() { $test(crate::pair::verbs()); }
            )+
            $(
                #[test]
                #[ignore = "needs two joined RDMA devices: cargo xtask vm-test"]
                fn $anew() { $again(crate::pair::verbs()); }
            )+
        }
        #[cfg(feature = "verbs")]
        mod nic_and_kernel {
            $(
                #[test]
                #[ignore = "needs the kernel's rxe: cargo xtask vm-test"]
                fn $name() { $test(crate::pair::nic_and_kernel(true)); }
            )+
            $(
                #[test]
                #[ignore = "needs the kernel's rxe: cargo xtask vm-test"]
                fn $anew() { $again(crate::pair::nic_and_kernel(false)); }
            )+
        }
    };
}

for_every_device! {
    crate::traffic::exchange as messages_of_all_lengths_come_once_and_intact_and_in_order,
    crate::traffic::stream as a_message_longer_than_its_grant_is_read_in_pieces,
    crate::channels::stalled as a_reader_that_keeps_its_messages_stalls_only_its_own_channel,
    crate::channels::deadline as a_message_whose_time_is_over_is_given_up_and_its_buffers_come_back,
    crate::channels::cancel as a_message_that_is_cancelled_ends_and_the_next_arrives,
    crate::channels::closed as a_channel_closes_after_what_was_sent_has_ended,
    crate::endings::goodbye as a_link_that_is_closed_is_down_at_both_ends_with_all_buffers_home,
    crate::lane::operations as what_is_written_to_a_peers_memory_is_there_and_is_read_back,
    crate::lane::words as words_of_a_peers_memory_change_at_once_and_tell_what_they_were,
    crate::lane::refused as what_a_grant_does_not_allow_is_refused_before_it_is_sent,
    crate::lane::revoked as when_a_grant_is_revoked_nothing_of_the_peer_comes_any_more,
    crate::lane::broken as additions_happen_once_or_not_at_all_while_queue_pairs_die,
    crate::loops::waited_for as what_comes_for_an_endpoint_ends_the_wait_of_another_loop,
    crate::endings::death as a_peer_that_dies_is_missed_and_what_it_was_sent_is_unknown;
    again: crate::endings::restart as a_peer_that_starts_anew_is_linked_anew
}
