//! Sizes as people write and read them.

/// A size does not parse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SizeError {
    /// No number, or an unknown unit.
    #[error("a size is a whole number, with K, M, G or T (or KiB, MiB ...) for powers of 1,024")]
    Malformed,
    /// More than 64 bits hold.
    #[error("that is more than 64 bits hold")]
    TooLarge,
}

/// Units by their first letter, and by how many bits each shifts.
const UNITS: [(char, u32); 4] = [('K', 10), ('M', 20), ('G', 30), ('T', 40)];

/// Reads `4096`, `64K`, `64KiB` and the like, in either case; units are powers of 1,024.
///
/// # Errors
/// [`SizeError`].
pub(crate) fn parse_size(text: &str) -> Result<u64, SizeError> {
    let upper = text.trim().to_ascii_uppercase();
    let plain = upper.strip_suffix("IB").or_else(|| upper.strip_suffix('B')).unwrap_or(&upper);
    let unit = UNITS.iter().find_map(|&(letter, bits)| Some((plain.strip_suffix(letter)?, bits)));
    // `1IB` would be a unit without its letter.
    if unit.is_none() && upper.ends_with("IB") {
        return Err(SizeError::Malformed);
    }
    let (digits, bits) = unit.unwrap_or((plain, 0));
    let digits = digits.trim_end();
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(SizeError::Malformed);
    }
    let count: u64 = digits.parse().map_err(|_| SizeError::TooLarge)?;
    count.checked_mul(1 << bits).ok_or(SizeError::TooLarge)
}

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
    fn sizes_are_read_with_and_without_units() {
        for (text, bytes) in [
            ("0", 0),
            ("4096", 4096),
            ("64k", 64 << 10),
            ("64KiB", 64 << 10),
            ("256 MiB", 256 << 20),
            ("3GB", 3 << 30),
            ("2T", 2 << 40),
            ("7B", 7),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_size_is_refused() {
        for text in ["", "K", "-1", "1.5G", "12X", "1iB", "+4"] {
            assert_eq!(parse_size(text), Err(SizeError::Malformed), "{text}");
        }
        for text in ["18446744073709551616", "16777216T"] {
            assert_eq!(parse_size(text), Err(SizeError::TooLarge), "{text}");
        }
    }

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
