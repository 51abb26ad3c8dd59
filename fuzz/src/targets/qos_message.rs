//! What a monitor of reservations tells engines, and the words that they share.

use crate::class;
use crate::input::coarse;
use towpath_qos::{Epoch, FromMonitor, MessageError, PoolWord, Report};

/// One byte that says what follows: a message, or a word.
pub(crate) fn run(input: &[u8]) -> u64 {
    let Some((&selector, rest)) = input.split_first() else { return 0 };
    if selector & 1 == 0 {
        return message(rest);
    }
    let Some(word) = rest.first_chunk().map(|bytes| u64::from_le_bytes(*bytes)) else { return 1 };
    assert_eq!(PoolWord::unpack(word).pack(), word, "each word is a pool's");
    // As a start of a period may say.
    let (epoch, shift) = (Epoch(selector.into()), (selector >> 1) % 13);
    let Some(report) = Report::unpack(word, epoch, shift) else { return 2 };
    // What a report can say is said again in the same word.
    let again = Report::unpack(report.pack(epoch, shift), epoch, shift);
    assert_eq!(again, Some(report));
    class(&[3, coarse(u64::from(report.residual)), coarse(u64::from(report.done))])
}

fn message(bytes: &[u8]) -> u64 {
    match FromMonitor::parse(bytes) {
        Ok(FromMonitor::Start(start)) => {
            assert_eq!(FromMonitor::parse(&start.emit()), Ok(FromMonitor::Start(start)));
            class(&[4, u64::from(start.reports), u64::from(start.limit.is_some())])
        }
        Ok(FromMonitor::Notice(notice)) => {
            assert_eq!(FromMonitor::parse(&notice.emit()), Ok(FromMonitor::Notice(notice)));
            class(&[5, u64::from(notice.reports), u64::from(notice.is_careful)])
        }
        Err(MessageError::Length) => 6,
        Err(MessageError::Kind(_)) => 7,
        Err(_) => 8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::seeds;
    use towpath_base::Nanos;
    use towpath_qos::{Notice, PeriodStart};

    #[test]
    fn the_seeds_of_qos_messages_are_as_made() {
        let start = PeriodStart {
            epoch: Epoch(7),
            period: Nanos::from_secs(1),
            elapsed: Nanos::from_micros(30),
            reservation: 80_000,
            limit: Some(100_000),
            batch: 1_000,
            goal: 0,
            expected: 0,
            window: towpath_qos::WINDOW_ALL,
            report_every: Nanos::from_millis(1),
            unit_shift: 0,
            reports: true,
            is_careful: false,
        };
        let notice = Notice { epoch: Epoch(7), reports: true, is_careful: true };
        let report = Report { beat: true, residual: 500, done: 40, held: 3, ..Report::default() };
        let selected = |selector: u8, bytes: &[u8]| [&[selector], bytes].concat();
        let made = [
            ("start", selected(0, &start.emit())),
            ("notice", selected(0, &notice.emit())),
            ("pool", selected(1, &PoolWord { epoch: Epoch(1), tokens: -5 }.pack().to_le_bytes())),
            ("report", selected(1, &report.pack(Epoch(1), 0).to_le_bytes())),
        ];
        seeds::check("qos_message", &made);
    }
}
