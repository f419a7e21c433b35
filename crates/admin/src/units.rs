//! Numbers as Ceph prints them for people (`include/types.h`, `common/ceph_time.cc`).

use std::fmt;
use std::time::Duration;

/// A fraction with `digits` significant digits and no trailing zeros: C's `%.{digits}g`, what a
/// C++ stream prints.
pub fn general(value: f64, digits: usize) -> String {
    if !value.is_finite() {
        return if value.is_nan() { "nan".into() } else { format!("{value}") };
    }
    let digits = digits.max(1);
    let scientific = format!("{:.*e}", digits - 1, value);
    let Some((mantissa, exponent)) = scientific.split_once('e') else {
        return scientific;
    };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if exponent < -4 || exponent >= digits as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", trim_zeros(mantissa), exponent.abs());
    }
    let places = usize::try_from(digits as i32 - 1 - exponent).unwrap_or(0);
    trim_zeros(&format!("{value:.places$}")).to_owned()
}

fn trim_zeros(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}

/// What a C++ stream prints for a fraction: 6 significant digits.
pub fn stream(value: f64) -> String {
    general(value, 6)
}

/// Bytes with binary units: `3.4 MiB`, `2 GiB`, `0 B` (`byte_u_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

/// A count with decimal units: `45`, `1.23k` (`si_u_t`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Si(pub u64);

const BYTE_UNITS: [&str; 7] = [" B", " KiB", " MiB", " GiB", " TiB", " PiB", " EiB"];
const SI_UNITS: [&str; 7] = ["", "k", "M", "G", "T", "P", "E"];
/// Texts are cut to this many characters by dropping decimals.
const WIDTH: usize = 7;

fn with_unit(value: u64, base: u64, units: &[&str; 7], f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let (mut whole, mut index, mut unit_size) = (value, 0, 1u64);
    while whole >= base && index + 1 < units.len() {
        whole /= base;
        unit_size = unit_size.saturating_mul(base);
        index += 1;
    }
    let unit = units.get(index).copied().unwrap_or_default();
    if value.is_multiple_of(unit_size) {
        return f.pad(&format!("{whole}{unit}"));
    }
    let fraction = value as f64 / unit_size as f64;
    let texts = [2, 1, 0].map(|places| format!("{fraction:.places$}{unit}"));
    let fits = texts.iter().find(|t| t.len() <= WIDTH).unwrap_or(&texts[2]);
    f.pad(fits)
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        with_unit(self.0, 1024, &BYTE_UNITS, f)
    }
}

impl fmt::Display for Si {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        with_unit(self.0, 1000, &SI_UNITS, f)
    }
}

/// A duration in its one fitting unit: `1.5s`, `33m`, `5d` (`timespan_str`).
pub fn timespan(d: Duration) -> String {
    if d < Duration::from_secs(2) {
        return format!("{}s", stream(f64::from(d.as_secs_f32())));
    }
    let sec = d.as_secs();
    let (min, hour, day) = (sec / 60, sec / 3600, sec / 86_400);
    match () {
        () if sec < 120 => format!("{sec}s"),
        () if min < 120 => format!("{min}m"),
        () if hour < 48 => format!("{hour}h"),
        () if day < 14 => format!("{day}d"),
        () if day / 7 < 12 => format!("{}w", day / 7),
        () if day / 30 < 24 => format!("{}M", day / 30),
        () => format!("{}y", day / 365),
    }
}

/// A duration in words of all its units: `1h5m`, for where it must be exact.
pub fn exact_timespan(d: Duration) -> String {
    const UNITS: [(u64, &str); 5] =
        [(604_800, "w"), (86_400, "d"), (3600, "h"), (60, "m"), (1, "s")];
    let mut rest = d.as_secs();
    let mut out = String::new();
    for (size, unit) in UNITS {
        if rest >= size {
            out.push_str(&format!("{}{unit}", rest / size));
            rest %= size;
        }
    }
    if out.is_empty() { "0s".to_owned() } else { out }
}

/// Reads a duration such as `90`, `5m`, `1h30m`, `2 days` (`parse_timespan`); a bare number is
/// seconds.
pub fn parse_timespan(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    let mut total = 0u64;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let (number, after) = rest.split_at_checked(digits)?;
        let number: u64 = number.parse().ok()?;
        let after = after.trim_start();
        let letters = after.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(after.len());
        let (unit, after) = after.split_at_checked(letters)?;
        let seconds = match unit {
            "" | "s" | "sec" | "second" | "seconds" => 1,
            "m" | "min" | "minute" | "minutes" => 60,
            "h" | "hr" | "hour" | "hours" => 3600,
            "d" | "day" | "days" => 86_400,
            "w" | "wk" | "week" | "weeks" => 604_800,
            "mo" | "month" | "months" => 2_592_000,
            "y" | "yr" | "year" | "years" => 31_536_000,
            _ => return None,
        };
        total = total.checked_add(number.checked_mul(seconds)?)?;
        rest = after.trim_start();
    }
    Some(Duration::from_secs(total))
}

/// Why a number with a unit cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SizeError {
    /// There are no digits.
    #[error("Expected option value to be integer, got '{0}'")]
    NotANumber(String),
    /// What follows the digits is no unit.
    #[error("unit prefix not recognized")]
    BadUnit,
    /// It does not fit in 63 bits.
    #[error("The option value '{0}' seems to be too large")]
    TooLarge(String),
}

/// Reads a count of bytes: `1024`, `8K`, `10Mi`, `1G`; all units are binary (`strict_iecstrtoll`).
///
/// # Errors
/// When it is not a number with a unit.
pub fn parse_iec(text: &str) -> Result<i64, SizeError> {
    let text = text.strip_suffix('B').unwrap_or(text);
    let text = text.strip_suffix('i').unwrap_or(text);
    parse_scaled(text, |power| 1i64.checked_shl(power * 10))
}

/// Reads a count with a decimal unit: `100`, `5k`, `1M` (`strict_si_cast`).
///
/// # Errors
/// When it is not a number with a unit.
pub fn parse_si(text: &str) -> Result<i64, SizeError> {
    parse_scaled(text, |power| 1000i64.checked_pow(power))
}

fn parse_scaled(text: &str, unit_size: impl Fn(u32) -> Option<i64>) -> Result<i64, SizeError> {
    let end = text.rfind(|c: char| c.is_ascii_digit()).map_or(0, |at| at + 1);
    let (number, unit) = text.split_at_checked(end).unwrap_or((text, ""));
    let power = match unit {
        "" if number.is_empty() => return Err(SizeError::NotANumber(text.to_owned())),
        "" | "B" => 0,
        "K" | "k" => 1,
        "M" => 2,
        "G" => 3,
        "T" => 4,
        "P" => 5,
        "E" => 6,
        _ if number.is_empty() => return Err(SizeError::BadUnit),
        _ => return Err(SizeError::BadUnit),
    };
    let too_large = || SizeError::TooLarge(text.to_owned());
    let number: i64 = match number.parse::<i64>() {
        Ok(n) => n,
        Err(e) => {
            use std::num::IntErrorKind::{NegOverflow, PosOverflow};
            return Err(match e.kind() {
                PosOverflow | NegOverflow => too_large(),
                _ => SizeError::NotANumber(text.to_owned()),
            });
        }
    };
    unit_size(power).and_then(|size| number.checked_mul(size)).ok_or_else(too_large)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn fractions() {
        let cases = [
            (1.0, 17, "1"),
            (0.0, 17, "0"),
            (-0.5, 6, "-0.5"),
            (0.899_993_896_484_375, 17, "0.899993896484375"),
            (0.000_966_291_176_155_209_5, 17, "0.00096629117615520954"),
            (0.000_012_3, 6, "1.23e-05"),
            (1_234_567.0, 6, "1.23457e+06"),
            (123_456.0, 6, "123456"),
            (999_999.9, 6, "1e+06"),
            (100.0, 2, "1e+02"),
        ];
        for (value, digits, text) in cases {
            assert_eq!(general(value, digits), text);
        }
        assert_eq!(stream(0.95f32.into()), "0.95");
    }

    #[test]
    fn bytes_and_counts() {
        let cases = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1 KiB"),
            (285_696, "279 KiB"),
            (3_573_903, "3.4 MiB"),
            (2 << 30, "2 GiB"),
            ((2 << 30) + 1, "2.0 GiB"),
            (10_737_418_240 - 1, "10 GiB"),
            (1023 << 20, "1023 MiB"),
            ((1023 << 20) + 1, "1023 MiB"),
            (u64::MAX, "16 EiB"),
        ];
        for (n, text) in cases {
            assert_eq!(Bytes(n).to_string(), text);
        }
        for (n, text) in
            [(0, "0"), (999, "999"), (1000, "1k"), (1234, "1.23k"), (123_456, "123.46k")]
        {
            assert_eq!(Si(n).to_string(), text);
        }
    }

    #[test]
    fn durations() {
        let of = |ms| timespan(Duration::from_millis(ms));
        assert_eq!(of(1500), "1.5s");
        assert_eq!(of(2000), "2s");
        assert_eq!(of(33 * 60_000), "33m");
        assert_eq!(of(3 * 3_600_000), "3h");
        assert_eq!(of(13 * 86_400_000), "13d");
        assert_eq!(of(20 * 86_400_000), "2w");
        assert_eq!(of(100 * 86_400_000), "3M");
        assert_eq!(of(800 * 86_400_000), "2y");
        assert_eq!(parse_timespan("1h30m"), Some(Duration::from_secs(5400)));
        assert_eq!(parse_timespan("2 days"), Some(Duration::from_secs(172_800)));
        assert_eq!(parse_timespan("90"), Some(Duration::from_secs(90)));
        for bad in ["", "h", "1x", "-5", "9999999999999999999y"] {
            assert_eq!(parse_timespan(bad), None, "{bad}");
        }
        assert_eq!(exact_timespan(Duration::from_secs(3725)), "1h2m5s");
    }

    #[test]
    fn sizes() {
        assert_eq!(parse_iec("8K"), Ok(8192));
        assert_eq!(parse_iec("10Mi"), Ok(10 << 20));
        assert_eq!(parse_iec("1MiB"), Ok(1 << 20));
        assert_eq!(parse_iec("100B"), Ok(100));
        assert_eq!(parse_si("5k"), Ok(5000));
        assert_eq!(parse_iec("-5"), Ok(-5));
        assert_eq!(parse_iec("abc"), Err(SizeError::BadUnit));
        assert_eq!(parse_iec("9999E"), Err(SizeError::TooLarge("9999E".into())));
        assert!(parse_iec("").is_err() && parse_iec("1 K").is_err() && parse_iec("éK").is_err());
    }

    proptest! {
        #[test]
        fn seventeen_digits_give_the_number_back(bits: u64) {
            let value = f64::from_bits(bits);
            if value.is_finite() {
                prop_assert_eq!(general(value, 17).parse::<f64>(), Ok(value));
            }
        }

        #[test]
        fn nothing_panics(n: u64, text in ".{0,12}") {
            let _ = (Bytes(n).to_string(), Si(n).to_string(), timespan(Duration::from_nanos(n)));
            let _ = (parse_iec(&text), parse_si(&text), parse_timespan(&text));
        }
    }
}
