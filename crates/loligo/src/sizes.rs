//! Numbers of bytes, as people write them.

use std::fmt;
use std::str::FromStr;

/// A number of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Bytes(pub u64);

const UNITS: [(char, u32); 5] = [('K', 10), ('M', 20), ('G', 30), ('T', 40), ('P', 50)];

impl FromStr for Bytes {
    type Err = String;

    /// `4096`, `64K`, `10G`, `1.5TiB`: units are powers of 1024.
    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!("`{text}` is not a size: a number, with K, M, G, T or P behind it if need be")
        };
        let upper = text.trim().to_ascii_uppercase();
        let number = upper.trim_end_matches("IB").trim_end_matches('B');
        let last = number.chars().last().ok_or_else(wrong)?;
        let unit = UNITS.iter().find(|(c, _)| *c == last);
        let digits = if unit.is_some() { &number[..number.len() - 1] } else { number };
        let shift = unit.map_or(0, |(_, shift)| *shift);
        if let Ok(whole) = digits.parse::<u64>() {
            return whole.checked_mul(1 << shift).map(Bytes).ok_or_else(wrong);
        }
        let part: f64 = digits.parse().map_err(|_| wrong())?;
        let bytes = part * f64::from(2u32).powi(shift as i32);
        let fits = bytes.is_finite() && (0.0..1e18).contains(&bytes);
        if fits { Ok(Bytes(bytes as u64)) } else { Err(wrong()) }
    }
}

impl fmt::Display for Bytes {
    /// `4096 B`, `1.5 GiB`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unit = UNITS.iter().rev().find(|(_, shift)| self.0 >= 1 << shift);
        match unit {
            None => write!(f, "{} B", self.0),
            Some((c, shift)) => {
                let n = self.0 as f64 / (1u64 << shift) as f64;
                if n.fract() < 0.05 { write!(f, "{n:.0} {c}iB") } else { write!(f, "{n:.1} {c}iB") }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_shown() {
        let read = |s: &str| s.parse::<Bytes>().map(|b| b.0);
        assert_eq!(read("4096"), Ok(4096));
        assert_eq!(read("64k"), Ok(64 << 10));
        assert_eq!(read("10G"), Ok(10 << 30));
        assert_eq!(read("1.5TiB"), Ok(3 << 39));
        assert_eq!(read("7B"), Ok(7));
        for bad in ["", "G", "ten", "-1", "99999999999P", "1x"] {
            assert!(read(bad).is_err(), "{bad}");
        }
        assert_eq!(Bytes(10 << 30).to_string(), "10 GiB");
        assert_eq!(Bytes(3 << 39).to_string(), "1.5 TiB");
        assert_eq!(Bytes(900).to_string(), "900 B");
    }
}
