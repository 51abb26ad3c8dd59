//! What interference control does, as families of metrics.

use towpath_fastpath::control::InterferenceInfo;
use towpath_transport::Class;

use super::text::Text;

/// All families; where there is no control, only that there is none.
pub(super) fn interference(
    text: &mut Text,
    control: Option<&(InterferenceInfo, [u64; Class::COUNT])>,
) {
    let help = "Whether interference control is on (docs/qos.md section 7).";
    text.one("towpath_interference_on", help, u8::from(control.is_some()));
    let Some((info, taken)) = control else { return };
    // A target that is not set is left out, and what is seen beside it.
    let kept = [("mean", info.mean_us, info.seen_mean_ns), ("p99", info.p99_us, info.seen_p99_ns)];
    let kept = || kept.into_iter().filter(|(_, target_us, _)| *target_us > 0);
    text.family(
        "towpath_interference_target_seconds",
        "What reads of Gold and Silver may take.",
        ["of"],
        kept().map(|(of, target_us, _)| ([of], target_us as f64 / 1e6)),
    );
    text.family(
        "towpath_interference_seen_seconds",
        "What they take, in the last windows.",
        ["of"],
        kept().map(|(of, _, seen_ns)| ([of], seen_ns as f64 / 1e9)),
    );
    let rates = [(Class::Silver, info.silver_rate), (Class::Copper, info.copper_rate)];
    let classes = rates.map(|(class, rate)| ([class.to_string()], rate, taken[class.index()]));
    let classes = || classes.iter().cloned();
    text.family(
        "towpath_interference_bound",
        "Whether writes of a class need tokens.",
        ["class"],
        classes().map(|(class, rate, _)| (class, u8::from(rate.is_some()))),
    );
    text.family(
        "towpath_interference_rate_bytes",
        "Bytes a second that a class may write; left out while it is not bound.",
        ["class"],
        classes().filter_map(|(class, rate, _)| Some((class, rate?))),
    );
    text.family(
        "towpath_interference_taken_bytes_total",
        "Tokens that a class took for its writes, a byte each.",
        ["class"],
        classes().map(|(class, _, taken)| (class, taken)),
    );
    text.family(
        "towpath_interference_windows_total",
        "Windows that ended, by how reads were in them.",
        ["reads"],
        [(["slow"], info.slow_windows), (["fast"], info.windows.saturating_sub(info.slow_windows))],
    );
    text.family(
        "towpath_interference_changes_total",
        "How often tokens were taken from a class, or given back.",
        ["change"],
        [(["cut"], info.cuts), (["give"], info.gives)],
    );
    let help = "Writes that found no tokens; one that tries again counts again.";
    text.one("towpath_interference_waits_total", help, info.waits);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(control: Option<(InterferenceInfo, [u64; Class::COUNT])>) -> Vec<String> {
        let mut text = Text::default();
        interference(&mut text, control.as_ref());
        let text = text.into_string();
        text.lines().filter(|line| !line.starts_with('#')).map(String::from).collect()
    }

    #[test]
    fn what_is_not_set_or_not_bound_is_left_out_and_a_server_without_control_says_so() {
        assert_eq!(lines(None), ["towpath_interference_on 0"]);
        let info = InterferenceInfo {
            p99_us: 500,
            windows: 10,
            slow_windows: 3,
            cuts: 2,
            waits: 7,
            copper_rate: Some(1 << 20),
            seen_mean_ns: 100,
            seen_p99_ns: 2_000_000,
            ..InterferenceInfo::default()
        };
        assert_eq!(
            lines(Some((info, [0, 5, 9]))),
            [
                "towpath_interference_on 1",
                "towpath_interference_target_seconds{of=\"p99\"} 0.0005",
                "towpath_interference_seen_seconds{of=\"p99\"} 0.002",
                "towpath_interference_bound{class=\"silver\"} 0",
                "towpath_interference_bound{class=\"copper\"} 1",
                "towpath_interference_rate_bytes{class=\"copper\"} 1048576",
                "towpath_interference_taken_bytes_total{class=\"silver\"} 5",
                "towpath_interference_taken_bytes_total{class=\"copper\"} 9",
                "towpath_interference_windows_total{reads=\"slow\"} 3",
                "towpath_interference_windows_total{reads=\"fast\"} 7",
                "towpath_interference_changes_total{change=\"cut\"} 2",
                "towpath_interference_changes_total{change=\"give\"} 0",
                "towpath_interference_waits_total 7",
            ]
        );
    }
}
