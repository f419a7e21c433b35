//! Places in the hierarchy as commands name them: `host=h0 root=default`.

use std::collections::BTreeMap;
use std::fmt;
use types::Errno;

/// A word of a location is not `type=name`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not of the form type=name")]
pub struct LocationError(pub String);

impl LocationError {
    /// EINVAL.
    pub fn errno(&self) -> Errno {
        Errno::EINVAL
    }
}

/// For some types of bucket, the name of the bucket at that level.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Location(BTreeMap<String, String>);

impl Location {
    /// From words of the form `type=name`; a type that stands twice keeps its last name
    /// (`parse_loc_map`).
    ///
    /// # Errors
    /// When a word has no `=` or nothing after it.
    pub fn parse<S: AsRef<str>>(words: &[S]) -> Result<Self, LocationError> {
        words
            .iter()
            .map(AsRef::as_ref)
            .map(|word| match word.split_once('=') {
                Some((kind, name)) if !name.is_empty() => Ok((kind.to_owned(), name.to_owned())),
                _ => Err(LocationError(word.to_owned())),
            })
            .collect()
    }

    /// The name given for a type.
    pub fn get(&self, kind: &str) -> Option<&str> {
        self.0.get(kind).map(String::as_str)
    }

    /// All pairs of type and name, sorted by type name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(k, v)| (k.as_str(), v.as_str()))
    }

    /// Whether it says nothing.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<(String, String)> for Location {
    fn from_iter<I: IntoIterator<Item = (String, String)>>(pairs: I) -> Self {
        Location(pairs.into_iter().collect())
    }
}

impl fmt::Display for Location {
    /// `{host=h0,root=default}`, as Ceph prints it in answers.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("{")?;
        for (i, (kind, name)) in self.iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            write!(f, "{comma}{kind}={name}")?;
        }
        f.write_str("}")
    }
}

/// Whether Ceph takes this as the name of an item, rule, type or class
/// (`is_valid_crush_name`). Names of shadow buckets are the ones that are not valid.
pub fn is_valid_name(name: &str) -> bool {
    let good = |c: u8| c.is_ascii_alphanumeric() || matches!(c, b'-' | b'_' | b'.');
    !name.is_empty() && name.bytes().all(good)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_read_and_shown() {
        let loc = Location::parse(&["root=default", "host=h0"]).unwrap();
        assert_eq!(loc.to_string(), "{host=h0,root=default}");
        assert_eq!(loc.get("host"), Some("h0"));
        for bad in ["host", "host="] {
            assert_eq!(Location::parse(&[bad]), Err(LocationError(bad.into())));
        }
    }

    #[test]
    fn names() {
        assert!(is_valid_name("rack-1_a.B"));
        for bad in ["", "default~ssd", "a b", "ä"] {
            assert!(!is_valid_name(bad), "{bad}");
        }
    }
}
