//! Sizes as people write and read them.

pub(crate) use towpath_chunkserver::daemon::parse_size;

/// Units by their first letter, and by how many bits each shifts.
const UNITS: [(char, u32); 4] = [('K', 10), ('M', 20), ('G', 30), ('T', 40)];

/// A size for people: whole where a unit fits, else with one decimal.
#[must_use]
pub(crate) fn show_size(bytes: u64) -> String {
    for (letter, bits) in UNITS.into_iter().rev() {
        let unit = 1u64 << bits;
        if bytes >= unit {
            return if bytes.is_multiple_of(unit) {
                format!("{} {letter}iB", bytes / unit)
            } else {
                format!("{:.1} {letter}iB", bytes as f64 / unit as f64)
            };
        }
    }
    format!("{bytes} bytes")
}

/// A whole number with a comma after every three digits.
#[must_use]
pub(crate) fn show_count(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Gigabits per second.
#[must_use]
pub(crate) fn gbps(bytes: u64, seconds: f64) -> f64 {
    if seconds > 0.0 { bytes as f64 * 8.0 / seconds / 1e9 } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_shown_for_people() {
        assert_eq!(show_size(256 << 20), "256 MiB");
        assert_eq!(show_size(1536), "1.5 KiB");
        assert_eq!(show_size(1000), "1000 bytes");
        assert_eq!(show_count(1_234_567), "1,234,567");
        assert_eq!(show_count(12), "12");
        assert_eq!(show_count(0), "0");
    }
}
