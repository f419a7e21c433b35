//! Two kinds of time: [`Mono`] for waiting, [`UTime`] for showing and storing.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

/// Nanoseconds in a second.
pub const NANOS_PER_SEC: u64 = 1_000_000_000;

/// Monotonic time in nanoseconds since an arbitrary start. Deadlines and durations use only this.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mono(pub u64);

impl Mono {
    /// The time `d` later. Saturates: a deadline beyond all time is never reached.
    #[must_use]
    pub fn after(self, d: Duration) -> Mono {
        Mono(self.0.saturating_add(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// How long ago `earlier` was; zero when it is not in the past.
    pub fn since(self, earlier: Mono) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

/// No duration that an option, a client or another daemon names is taken as longer: 136 years, all the time that
/// [`UTime`] knows. Sums and multiples of a few such ones do not overflow.
pub const LONGEST: Duration = Duration::from_secs(u32::MAX as u64);

/// So many seconds: never less than none, never more than [`LONGEST`].
pub fn seconds(seconds: f64) -> Duration {
    // What is no number is not above zero.
    if seconds > 0.0 {
        Duration::try_from_secs_f64(seconds).unwrap_or(LONGEST).min(LONGEST)
    } else {
        Duration::ZERO
    }
}

/// A multiple of a duration, with the bounds of [`seconds`].
pub fn times(duration: Duration, factor: f64) -> Duration {
    seconds(duration.as_secs_f64() * factor)
}

/// Wall-clock time as Ceph keeps it (`utime_t`): seconds and nanoseconds since 1970, 32 bits each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UTime {
    /// Seconds since 1970-01-01 UTC.
    pub sec: u32,
    /// Nanoseconds, below 10^9 when well formed.
    pub nsec: u32,
}

impl UTime {
    /// No time.
    pub const ZERO: UTime = UTime { sec: 0, nsec: 0 };

    /// From a duration since 1970. Saturates in 2106.
    pub fn from_unix(d: Duration) -> Self {
        UTime { sec: u32::try_from(d.as_secs()).unwrap_or(u32::MAX), nsec: d.subsec_nanos() }
    }

    /// The duration since 1970.
    pub fn as_duration(self) -> Duration {
        Duration::from_secs(u64::from(self.sec)) + Duration::from_nanos(u64::from(self.nsec))
    }

    /// The time `d` later.
    #[must_use]
    pub fn plus(self, d: Duration) -> Self {
        UTime::from_unix(self.as_duration().saturating_add(d))
    }

    /// Whether it is unset.
    pub fn is_zero(self) -> bool {
        self == UTime::ZERO
    }

    /// Year, month, day, hour, minute, second in UTC (proleptic Gregorian; days-from-civil
    /// inverted, see Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms").
    fn civil(self) -> (i64, u32, u32, u32, u32, u32) {
        let days = i64::from(self.sec / 86_400);
        let rest = self.sec % 86_400;
        let z = days + 719_468;
        let era = z.div_euclid(146_097);
        let doe = z.rem_euclid(146_097);
        let yoe = (doe - doe / 1460 + doe / 36_524 - doe / 146_096) / 365;
        let doy = doe - (365 * yoe + yoe / 4 - yoe / 100);
        let mp = (5 * doy + 2) / 153;
        let day = (doy - (153 * mp + 2) / 5 + 1) as u32;
        let month = if mp < 10 { mp + 3 } else { mp - 9 } as u32;
        let year = yoe + era * 400 + i64::from(month <= 2);
        (year, month, day, rest / 3600, rest % 3600 / 60, rest % 60)
    }
}

/// Days from 1970-01-01 to a date: the inverse of [`UTime::civil`].
fn days_from_civil(year: i64, month: i64, day: i64) -> i64 {
    let y = year - i64::from(month <= 2);
    let era = y.div_euclid(400);
    let yoe = y.rem_euclid(400);
    let doy = (153 * (month + if month > 2 { -3 } else { 9 }) + 2) / 5 + day - 1;
    let doe = yoe * 365 + yoe / 4 - yoe / 100 + doy;
    era * 146_097 + doe - 719_468
}

/// The text is no time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ParseTimeError;

impl fmt::Display for ParseTimeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a time in UTC: 2026-11-20T12:24:02.470535Z is expected")
    }
}

impl std::error::Error for ParseTimeError {}

impl FromStr for UTime {
    type Err = ParseTimeError;

    /// Reads `2026-11-20T12:24:02.470535Z`; T may be a space, and fraction and Z may be absent.
    fn from_str(text: &str) -> Result<Self, ParseTimeError> {
        let number = |part: &str, digits: usize| -> Option<i64> {
            let good = part.len() == digits && part.bytes().all(|b| b.is_ascii_digit());
            part.parse().ok().filter(|_| good)
        };
        let parse = || {
            let text = text.strip_suffix('Z').unwrap_or(text);
            let (date, clock) = text.split_once(['T', ' '])?;
            let (clock, fraction) = clock.split_once('.').unwrap_or((clock, "0"));
            let mut date = date.split('-');
            let (year, month, day) = (date.next()?, date.next()?, date.next()?);
            let mut clock = clock.split(':');
            let (hour, minute, second) = (clock.next()?, clock.next()?, clock.next()?);
            if date.next().is_some() || clock.next().is_some() || fraction.len() > 9 {
                return None;
            }
            let month = number(month, 2).filter(|m| (1..=12).contains(m))?;
            let day = number(day, 2).filter(|d| (1..=31).contains(d))?;
            let hour = number(hour, 2).filter(|h| *h < 24)?;
            let minute = number(minute, 2).filter(|m| *m < 60)?;
            let second = number(second, 2).filter(|s| *s <= 60)?;
            let days = days_from_civil(number(year, 4)?, month, day);
            let sec = days * 86_400 + hour * 3600 + minute * 60 + second;
            let nsec = number(&format!("{fraction:0<9}"), 9)?;
            Some(UTime { sec: u32::try_from(sec).ok()?, nsec: u32::try_from(nsec).ok()? })
        };
        parse().ok_or(ParseTimeError)
    }
}

impl fmt::Display for UTime {
    /// Ceph's ISO form with microseconds in UTC, `2026-11-20T12:24:02.470535+0000`. Times before
    /// 1980 (`utime_t::gmtime` calls them "raw") are shown as seconds, `0.000000`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const RAW_BELOW_SEC: u32 = 60 * 60 * 24 * 365 * 10;
        let usec = self.nsec / 1000;
        if self.sec < RAW_BELOW_SEC {
            return write!(f, "{}.{usec:06}", self.sec);
        }
        let (y, mo, d, h, mi, s) = self.civil();
        write!(f, "{y:04}-{mo:02}-{d:02}T{h:02}:{mi:02}:{s:02}.{usec:06}+0000")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_time_as_ceph_does() {
        let t = UTime { sec: 1_795_177_442, nsec: 470_535_123 };
        assert_eq!(t.to_string(), "2026-11-20T12:24:02.470535+0000");
        assert_eq!(UTime::ZERO.to_string(), "0.000000");
        let leap = UTime { sec: 1_709_164_800, nsec: 0 };
        assert_eq!(leap.to_string(), "2024-02-29T00:00:00.000000+0000");
    }

    #[test]
    fn reads_times_and_nothing_else() {
        let t = UTime { sec: 1_795_177_442, nsec: 470_535_000 };
        for text in ["2026-11-20T12:24:02.470535Z", "2026-11-20 12:24:02.470535"] {
            assert_eq!(text.parse(), Ok(t));
        }
        for sec in (0..u32::MAX).step_by(86_399 * 3) {
            let t = UTime { sec, nsec: 0 };
            let (y, mo, d, h, mi, s) = t.civil();
            assert_eq!(format!("{y:04}-{mo:02}-{d:02}T{h:02}:{mi:02}:{s:02}").parse(), Ok(t));
        }
        let bad = [
            "",
            "Z",
            "2026-11-20",
            "2026-13-20T12:24:02",
            "2026-11-00T12:24:02",
            "2026-11-20T24:24:02",
            "2026-11-20T12:24:02.1234567890",
            "2026-11-20T12:24:02.-1",
            "1969-12-31T23:59:59",
            "2107-01-01T00:00:00",
            "2026-11-20T12:24:02:00",
            "2026-+1-20T12:24:02",
        ];
        for text in bad {
            assert_eq!(text.parse::<UTime>(), Err(ParseTimeError), "{text}");
        }
    }

    #[test]
    fn any_number_is_a_duration() {
        for (n, d) in [(0.0, 0), (-1.0, 0), (f64::NAN, 0), (f64::NEG_INFINITY, 0), (90.0, 90)] {
            assert_eq!(seconds(n), Duration::from_secs(d), "{n}");
        }
        for n in [5e9, 1e19, 1e30, f64::MAX, f64::INFINITY] {
            assert_eq!(seconds(n), LONGEST, "{n}");
            assert_eq!(times(Duration::from_secs(86_400), n), LONGEST, "{n}");
        }
        assert_eq!(times(Duration::MAX, 0.5), LONGEST);
        assert_eq!(times(Duration::MAX, f64::NAN), Duration::ZERO);
        assert_eq!(times(Duration::from_millis(10), 1.5), Duration::from_millis(15));
        assert_eq!(UTime { sec: 1 << 31, nsec: 0 }.plus(LONGEST).sec, u32::MAX);
    }

    #[test]
    fn deadlines_saturate() {
        assert_eq!(Mono(u64::MAX - 1).after(Duration::from_secs(5)), Mono(u64::MAX));
        assert_eq!(Mono(5).since(Mono(9)), Duration::ZERO);
    }
}
