//! 128-bit ids: the cluster's fsid, an OSD's uuid.

use std::fmt;
use std::str::FromStr;

/// A UUID, kept as its 16 bytes in textual order.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Uuid(pub [u8; 16]);

/// The text is not 32 hex digits in the usual 8-4-4-4-12 grouping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseUuidError;

impl Uuid {
    /// All zero: "none".
    pub const NIL: Uuid = Uuid([0; 16]);

    /// A version-4 (random) UUID made from 128 random bits.
    pub fn from_random(random: u128) -> Self {
        let mut b = random.to_be_bytes();
        b[6] = (b[6] & 0x0f) | 0x40;
        b[8] = (b[8] & 0x3f) | 0x80;
        Uuid(b)
    }

    /// Whether it is [`Uuid::NIL`].
    pub fn is_nil(&self) -> bool {
        *self == Uuid::NIL
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, byte) in self.0.iter().enumerate() {
            if matches!(i, 4 | 6 | 8 | 10) {
                f.write_str("-")?;
            }
            write!(f, "{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for ParseUuidError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a UUID: 8-4-4-4-12 hex digits are expected")
    }
}

impl std::error::Error for ParseUuidError {}

impl FromStr for Uuid {
    type Err = ParseUuidError;

    fn from_str(s: &str) -> Result<Self, ParseUuidError> {
        let bytes = s.as_bytes();
        if bytes.len() != 36 {
            return Err(ParseUuidError);
        }
        let mut value: u128 = 0;
        for (i, &c) in bytes.iter().enumerate() {
            if matches!(i, 8 | 13 | 18 | 23) {
                if c != b'-' {
                    return Err(ParseUuidError);
                }
                continue;
            }
            let digit = (c as char).to_digit(16).ok_or(ParseUuidError)?;
            value = value << 4 | u128::from(digit);
        }
        Ok(Uuid(value.to_be_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_round_trip() {
        let text = "11111111-2222-3333-4444-5555deadbeef";
        let id: Uuid = text.parse().unwrap();
        assert_eq!(id.to_string(), text);
        for bad in
            ["", "11111111-2222-3333-4444-5555deadbee", "x1111111-2222-3333-4444-5555deadbeef"]
        {
            assert_eq!(bad.parse::<Uuid>(), Err(ParseUuidError));
        }
    }

    #[test]
    fn random_has_version_4() {
        let id = Uuid::from_random(u128::MAX).to_string();
        assert_eq!(&id[14..15], "4");
        assert_eq!(&id[19..20], "b");
    }
}
