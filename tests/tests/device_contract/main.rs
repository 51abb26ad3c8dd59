//! What every device does with UC, UD, RC and its queues: the same tests for each of them.

mod connected;
mod datagrams;
mod domains;
mod errors;
#[cfg(feature = "verbs")]
mod events;
mod held;
#[cfg(feature = "verbs")]
mod ports;
mod reliable;
#[path = "../rig/mod.rs"]
mod rig;
mod waiting;

/// Each test for each device.
macro_rules! for_every_device {
    ($($test:path as $name:ident),+ $(,)?) => {
        mod mem {
            $(#[test] fn $name() { $test(&mut crate::rig::mem()); })+
        }
        mod roce {
            $(#[test] fn $name() { $test(&mut crate::rig::roce()); })+
        }
        #[cfg(feature = "verbs")]
        mod verbs {
            $(
                #[test]
                #[ignore = "needs two joined RDMA devices: cargo xtask vm-test"]
                fn $name() { $test(&mut crate::rig::verbs()); }
            )+
        }
        // One end of each kind; in most tests the first sends and the second receives.
        #[cfg(feature = "verbs")]
        mod nic_to_kernel {
            use crate::rig::Interop;
            use towpath_verbs::Mtu;
            $(
                #[test]
                #[ignore = "needs the kernel's rxe: cargo xtask vm-test"]
                fn $name() {
                    $test(&mut Interop::from_environment().rig(true, false, Mtu::Mtu1024));
                }
            )+
        }
        #[cfg(feature = "verbs")]
        mod kernel_to_nic {
            use crate::rig::Interop;
            use towpath_verbs::Mtu;
            $(
                #[test]
                #[ignore = "needs the kernel's rxe: cargo xtask vm-test"]
                fn $name() {
                    $test(&mut Interop::from_environment().rig(false, true, Mtu::Mtu4096));
                }
            )+
        }
    };
}

for_every_device! {
    crate::connected::messages_land_whole as messages_of_all_sizes_land_whole_and_in_order,
    crate::connected::gathered as a_send_is_gathered_from_as_many_places_as_the_device_says,
    crate::connected::no_receive as a_message_without_a_receive_is_lost_silently,
    crate::connected::write as a_write_lands_untold_and_one_with_immediate_takes_a_receive,
    crate::connected::closed_memory as a_write_reaches_only_memory_that_is_open_for_it,
    crate::connected::unsignaled as an_unsignaled_send_has_no_completion,
    crate::connected::shared_receives as queue_pairs_take_turns_at_a_shared_receive_queue,
    crate::datagrams::behind_header as a_datagram_lands_behind_its_header_and_names_its_sender,
    crate::datagrams::refused as a_datagram_needs_the_right_key_and_fits_one_packet,
    crate::errors::too_long as a_message_too_long_for_its_receive_fails_that_receive_alone,
    crate::errors::memory_gone as a_receive_whose_memory_is_gone_fails_its_queue_pair,
    crate::errors::destroyed as a_destroyed_queue_pair_flushes_and_takes_nothing_more,
    crate::errors::reset as a_reset_queue_pair_forgets_silently_and_starts_again,
    crate::errors::refusals as what_cannot_be_posted_is_refused_by_name,
    crate::reliable::there_and_back as on_rc_what_is_written_is_read_back_and_a_fence_holds,
    crate::reliable::atomics as on_rc_atomics_fetch_what_was_and_change_it,
    crate::reliable::refused as on_rc_a_refusal_by_the_peer_ends_the_queue_pair,
    crate::domains::apart as a_queue_pair_reaches_the_memory_of_its_own_domain_alone,
    crate::domains::closed as no_peer_reaches_memory_by_key_that_is_not_shared,
    crate::held::until_completion as a_device_has_a_buffer_from_posting_to_completion,
    crate::held::until_the_queue_pair_is_gone
        as what_was_posted_comes_back_when_its_queue_pair_is_gone,
    crate::held::refused_unless_lent as a_buffer_that_is_not_lent_cannot_be_posted,
    crate::errors::overrun as a_completion_queue_that_overflows_fails_with_its_queue_pairs,
}
