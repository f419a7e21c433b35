//! Class `numops`: arithmetic on numbers that are kept as text in an omap.

use crate::input::args;
use crate::object::if_found;
use crate::{CallResult, Method, Object, omap};
use bytes::Bytes;
use types::Errno;

/// The methods.
pub const METHODS: &[Method] = &[
    Method::write("numops", "add", |o, input| change(o, input, |a, b| a + b)),
    Method::write("numops", "mul", |o, input| change(o, input, |a, b| a * b)),
];

/// What is stored is no number.
const EBADMSG: Errno = Errno(74);
/// Digits that are kept.
const DIGITS: usize = 10;

fn change(o: &mut dyn Object, input: &Bytes, by: fn(f64, f64) -> f64) -> CallResult<Bytes> {
    let (key, operand): (Bytes, Bytes) = args(input)?;
    let operand = number(&operand).ok_or(Errno::EINVAL)?;
    let stored = if_found(o.omap_get(&key))?.unwrap_or_default();
    let value = number(&stored).ok_or(EBADMSG)?;
    omap::put_raw(o, &key, text(by(value, operand)).into())?;
    Ok(Bytes::new())
}

/// A decimal number; nothing is zero.
fn number(text: &[u8]) -> Option<f64> {
    match std::str::from_utf8(text).ok()? {
        "" => Some(0.0),
        text => text.trim_start().parse().ok(),
    }
}

/// As C's `%.10g`: the shortest of the usual and the exponential form.
fn text(value: f64) -> String {
    if !value.is_finite() {
        let text = if value.is_nan() { "nan" } else { "inf" };
        return if value.is_sign_negative() { format!("-{text}") } else { text.into() };
    }
    let exponential = format!("{value:.*e}", DIGITS - 1);
    let (digits, exponent) = exponential.split_once('e').unwrap_or((&exponential, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let without_zeros = |s: &str| match s.contains('.') {
        true => s.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => s.to_owned(),
    };
    if exponent < -4 || exponent >= DIGITS as i32 {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{}e{sign}{:02}", without_zeros(digits), exponent.abs());
    }
    let decimals = (DIGITS as i32 - 1 - exponent).max(0) as usize;
    without_zeros(&format!("{value:.decimals$}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::MemObject;
    use Errno as E;

    #[test]
    fn numbers_are_shown_as_c_does() {
        let shown = [
            (0.0, "0"),
            (3.0, "3"),
            (-2.5, "-2.5"),
            (0.1 + 0.2, "0.3"),
            (1234567890.0, "1234567890"),
            (12345678901.0, "1.23456789e+10"),
            (0.0001, "0.0001"),
            (0.00001, "1e-05"),
            (1e300 * 1e300, "inf"),
        ];
        for (value, expected) in shown {
            assert_eq!(text(value), expected);
        }
    }

    #[test]
    fn arithmetic() {
        let mut o = MemObject::new();
        let key = |o: &MemObject| o.state.omap.get(&b"n"[..]).cloned().unwrap();
        assert_eq!(o.run("numops.add", ("n", "2.5")), Ok(()));
        assert_eq!(o.run("numops.mul", ("n", "-4")), Ok(()));
        assert_eq!(key(&o), "-10");
        assert_eq!(o.run("numops.add", ("n", "x")), Err(E::EINVAL));
        assert_eq!(o.run("numops.add", ("n", "1x")), Err(E::EINVAL));
        o.state.omap.insert("n".into(), "rubbish".into());
        assert_eq!(o.run("numops.add", ("n", "1")), Err(EBADMSG));
    }
}
