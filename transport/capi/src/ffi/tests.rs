//! Panics at the border: each function of the header is made to panic, and gives it back as a
//! status.

use super::*;
use std::cell::Cell;
use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr::{null, null_mut};

thread_local! {
    static TOLD: Cell<bool> = const { Cell::new(false) };
}

const WHY: &str = "as the test wants";
const PANIC: i32 = tow_status::TOW_E_PANIC as i32;

/// What `guard` asks within each call.
pub(super) fn panic_if_told() {
    assert!(!TOLD.take(), "{WHY}");
}

/// An endpoint that takes little.
fn endpoint() -> *mut tow_endpoint {
    let (mut config, mut endpoint) = (null_mut(), null_mut());
    let profile = tow_profile::TOW_PROFILE_SMALL_MEMORY as u32;
    // SAFETY: places of our own.
    unsafe {
        assert_eq!(tow_config_new(profile, &raw mut config), tow_status::TOW_OK);
        let made = tow_endpoint_new(c"127.0.0.1".as_ptr(), config, &raw mut endpoint);
        assert_eq!(made, tow_status::TOW_OK, "{}", last_error());
        assert_eq!(tow_config_free(config), tow_status::TOW_OK);
    }
    endpoint
}

fn last_error() -> String {
    // SAFETY: a text of the library's, which is used before the next call.
    unsafe { CStr::from_ptr(tow_last_error()) }.to_string_lossy().into_owned()
}

/// How many functions the sources have.
fn functions() -> usize {
    let sources = [
        include_str!("config.rs"),
        include_str!("endpoint.rs"),
        include_str!("lane.rs"),
        include_str!("library.rs"),
        include_str!("link.rs"),
        include_str!("memory.rs"),
        include_str!("message.rs"),
    ];
    sources.iter().map(|text| text.matches("extern \"C\" fn tow_").count()).sum()
}

/// A function with its name, called with nothing that is worth anything.
type OnEndpoint = (&'static str, fn(*mut tow_endpoint) -> i32);
type OnNothing = (&'static str, fn() -> i32);

/// Calls of functions whose first argument is an endpoint.
macro_rules! with_endpoint {
    ($($name:ident($($arg:expr),*))*) => {
        vec![$((stringify!($name), |at| {
            // SAFETY: the endpoint of a test, or NULL; and NULL.
            unsafe { $name(at, $($arg),*) as i32 }
        })),*]
    };
}

/// Calls of other functions.
macro_rules! without {
    ($($name:ident($($arg:expr),*))*) => {
        vec![$((stringify!($name), || {
            // SAFETY: NULL is what they check for.
            unsafe { $name($($arg),*) as i32 }
        })),*]
    };
}

/// Each function that goes through `with`, with nothing that is worth anything.
#[rustfmt::skip]
fn on_endpoints() -> Vec<OnEndpoint> {
    const LINK: tow_link = tow_link { id: 0 };
    const CHANNEL: tow_channel = tow_channel { id: 0 };
    const GRANT: tow_grant_id = tow_grant_id { id: 0 };
    const PLACE: tow_place = tow_place { link: LINK, grant: GRANT, offset: 0 };
    const BUF: tow_buf = tow_buf { id: 0 };
    const MESSAGE: tow_message = tow_message { id: 0 };
    with_endpoint! {
        tow_poll() tow_next_event(null_mut()) tow_flush() tow_wait(0) tow_poll_fd(null_mut())
        tow_prepare_wait(0, null_mut()) tow_next_timeout(null_mut()) tow_now_ns(null_mut())
        tow_listen(null(), null_mut()) tow_stop_listening() tow_connect(null(), 0)
        tow_link_close(LINK) tow_link_peer(LINK, null_mut(), 0)
        tow_link_message_max(LINK, null_mut()) tow_link_rtt_ns(LINK, null_mut())
        tow_link_carrier(LINK, null_mut())
        tow_link_counters(LINK, null_mut(), 0) tow_counters_of_all(null_mut(), 0)
        tow_endpoint_usage(null_mut(), 0) tow_channel_open(LINK, 0, null_mut())
        tow_channel_close(LINK, CHANNEL)
        tow_buf_alloc(0, null_mut(), null_mut(), null_mut()) tow_buf_free(BUF) tow_want_buffer(0)
        tow_send_copy(LINK, CHANNEL, null(), 0, null(), null_mut())
        tow_send(LINK, CHANNEL, null(), 0, null(), null_mut())
        tow_send_message(LINK, CHANNEL, MESSAGE, null(), null_mut())
        tow_cancel(tow_send_id { id: 0 })
        tow_message_parts(MESSAGE, null_mut(), 0, null_mut())
        tow_message_copy(MESSAGE, null_mut(), 0, null_mut()) tow_message_release(MESSAGE)
        tow_grant(LINK, null(), 0, 0, 0, null_mut()) tow_revoke(LINK, GRANT)
        tow_read(PLACE, 0, null()) tow_write(PLACE, BUF, 0, null())
        tow_write_copy(PLACE, null(), 0, null()) tow_write_word(PLACE, 0, null())
        tow_fetch_add(PLACE, 0, null()) tow_cmp_swap(PLACE, 0, 0, null())
    }
}

/// Each function that does not, but has a status.
#[rustfmt::skip]
fn on_nothing() -> Vec<OnNothing> {
    const NOBODY: *mut tow_memory = null_mut();
    without! {
        tow_config_new(0, null_mut()) tow_config_free(null_mut()) tow_config_set(null_mut(), 0, 0)
        tow_config_app_protocol(null_mut(), null()) tow_config_send_pools(null_mut(), null(), 0)
        tow_endpoint_new(null(), null(), null_mut()) tow_endpoint_free(null_mut())
        tow_endpoint_adopt(null_mut()) tow_wake(null())
        tow_memory_new(0, null_mut()) tow_memory_from(null_mut(), 0, None, null_mut(), null_mut())
        tow_memory_free(null_mut()) tow_memory_extent(NOBODY, null_mut(), null_mut())
        tow_memory_read(NOBODY, 0, null_mut(), 0) tow_memory_write(NOBODY, 0, null(), 0)
        tow_memory_load(NOBODY, 0, null_mut()) tow_memory_store(NOBODY, 0, 0)
        tow_memory_fetch_add(NOBODY, 0, 0, null_mut())
        tow_memory_cmp_swap(NOBODY, 0, 0, 0, null_mut())
    }
}

#[test]
fn a_panic_in_any_function_comes_back_as_a_status_and_ends_its_endpoint() {
    for (name, call) in on_nothing() {
        TOLD.set(true);
        assert_eq!(call(), PANIC, "{name}");
        assert!(last_error().ends_with(WHY), "{name}: {}", last_error());
        assert_ne!(call(), PANIC, "{name}: once");
    }
    for (name, call) in on_endpoints() {
        let at = endpoint();
        assert_ne!(call(at), PANIC, "{name}");
        TOLD.set(true);
        assert_eq!(call(at), PANIC, "{name}");
        assert!(last_error().ends_with(WHY), "{name}: {}", last_error());
        assert_eq!(call(at), PANIC, "{name}: the endpoint is half done");
        // SAFETY: it was made above.
        assert_eq!(unsafe { tow_endpoint_free(at) }, tow_status::TOW_OK);
    }
    let texts: [fn() -> *const c_char; 4] = [
        || tow_version(),
        || tow_error_text(0),
        || tow_carrier_reason_text(0),
        || tow_last_error(),
    ];
    for text in texts {
        TOLD.set(true);
        // SAFETY: a text of the library's.
        assert!(unsafe { CStr::from_ptr(text()) }.to_bytes().len() < 8, "no more than a default");
        assert!(!TOLD.get());
    }
    TOLD.set(true);
    assert_eq!(tow_abi_version(), 0);
    let covered = on_nothing().len() + on_endpoints().len() + texts.len() + 1;
    assert_eq!(covered, functions(), "a function is missing here");
}

#[test]
fn every_null_is_an_error_and_says_what_is_null() {
    for (name, call) in on_endpoints() {
        assert_eq!(call(null_mut()), tow_status::TOW_E_NULL as i32, "{name}");
        assert_eq!(last_error(), "the endpoint is NULL", "{name}");
    }
    for (name, call) in on_nothing() {
        let frees = name.ends_with("_free");
        let wanted = if frees { tow_status::TOW_OK } else { tow_status::TOW_E_NULL };
        assert_eq!(call(), wanted as i32, "{name}");
    }
}

#[test]
fn a_callback_that_calls_back_is_refused() {
    struct State {
        endpoint: *mut tow_endpoint,
        got: Cell<(i32, i32)>,
    }
    /// # Safety
    /// `user` is a `State`.
    unsafe extern "C" fn release(user: *mut c_void) {
        // SAFETY: as the test gave it.
        let state = unsafe { &*user.cast::<State>() };
        // SAFETY: the test's endpoint.
        let got = unsafe { (tow_poll(state.endpoint), tow_endpoint_free(state.endpoint) as i32) };
        state.got.set(got);
    }
    let at = endpoint();
    let state = State { endpoint: at, got: Cell::new((0, 0)) };
    let mut words = [0_u64; 8];
    let mut memory = null_mut();
    // SAFETY: the words and the state live until the callback was called.
    let made = unsafe {
        let user = std::ptr::from_ref(&state).cast_mut().cast();
        tow_memory_from(words.as_mut_ptr().cast(), 64, Some(release), user, &raw mut memory)
    };
    assert_eq!(made, tow_status::TOW_OK);
    // The last holder lets go within a call of the endpoint.
    // SAFETY: both were made above.
    let freed = unsafe {
        guard::with(at, |_| {
            tow_memory_free(memory);
            Ok(())
        })
    };
    assert!(freed.is_ok());
    let busy = tow_status::TOW_E_BUSY as i32;
    assert_eq!(state.got.get(), (busy, busy));
    // SAFETY: it was made above.
    assert_eq!(unsafe { tow_endpoint_free(at) }, tow_status::TOW_OK);
}

#[test]
fn what_is_a_text_is_checked() {
    let at = endpoint();
    let long = CString::new("x".repeat(10_000)).expect("no zero in it");
    for bad in [c"", c"localhost", c"127.0.0.1", c"127.0.0.1:99999", c"\xff", &long] {
        // SAFETY: texts that live here.
        let got = unsafe { tow_listen(at, bad.as_ptr(), null_mut()) };
        assert_eq!(got, tow_status::TOW_E_ARGUMENT, "{bad:?}");
    }
    // SAFETY: it was made above.
    assert_eq!(unsafe { tow_endpoint_free(at) }, tow_status::TOW_OK);
}
