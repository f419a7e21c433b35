//! The rights of a name, as Ceph's daemons write them: `allow rw pool=rbd, profile rbd-read-only pool=images`.
//!
//! They are only read here, so that a mistake is told of at once. Each function is a rule of Ceph's grammars
//! (`mon/MonCap.cc`, `mgr/MgrCap.cc`, `osd/OSDCap.cc`, `mds/MDSAuthCaps.cc`), which is tried at the beginning of a text and
//! gives what is left behind it; of alternatives the first one that fits counts.

use admin::CommandError;

/// What is left, if the rule fits.
type Rest<'a> = Option<&'a str>;

/// That somebody can have these rights.
///
/// # Errors
/// In Ceph's words.
pub(super) fn check(daemon: &str, caps: &str) -> Result<(), CommandError> {
    let left = match daemon {
        "mon" => list(caps, mon_grant, separator),
        "mgr" => list(caps, mgr_grant, separator),
        "osd" => list(caps, osd_grant, |s| s.strip_prefix([';', ','])),
        "mds" if caps == "allow" => "",
        "mds" => list(caps, mds_grant, separator),
        _ => return Err(CommandError::invalid(format_args!("unknown cap type '{daemon}'"))),
    };
    let skips_space = matches!(daemon, "osd" | "mds");
    let is_read = left.len() < caps.len() || caps == "allow";
    match left {
        _ if is_read && (left.is_empty() || skips_space && left.trim_start().is_empty()) => Ok(()),
        "" if !skips_space => Err(CommandError::invalid(format_args!(
            "{daemon} capability parse failed, stopped at end of '{caps}'"
        ))),
        left => Err(CommandError::invalid(format_args!(
            "{daemon} capability parse failed, stopped at '{left}' of '{caps}'"
        ))),
    }
}

/// Grants with something between them. Gives what is left behind the last one that fits.
fn list<'a>(
    text: &'a str,
    grant: fn(&'a str) -> Rest<'a>,
    between: fn(&'a str) -> Rest<'a>,
) -> &'a str {
    let Some(mut left) = grant(text) else { return text };
    while let Some(next) = between(left).and_then(grant) {
        left = next;
    }
    left
}

fn separator(s: &str) -> Rest<'_> {
    Some(s.trim_start_matches(' ').strip_prefix([';', ','])?.trim_start_matches(' '))
}

// ---- words ----

/// One or more of these characters.
fn some(s: &str, of: impl Fn(char) -> bool) -> Rest<'_> {
    let left = s.trim_start_matches(of);
    (left.len() < s.len()).then_some(left)
}

fn spaces(s: &str) -> Rest<'_> {
    some(s, |c| matches!(c, ' ' | '\n' | '\t'))
}

/// The rule, or nothing.
fn maybe<'a>(s: &'a str, rule: impl Fn(&'a str) -> Rest<'a>) -> &'a str {
    rule(s).unwrap_or(s)
}

/// Spaces and a word.
fn keyword<'a>(s: &'a str, word: &str) -> Rest<'a> {
    spaces(s)?.strip_prefix(word)
}

/// What stands between a word and its value: `pool=rbd`, `pool rbd`.
fn equals_or_spaces(s: &str) -> Rest<'_> {
    s.strip_prefix('=').or_else(|| spaces(s))
}

fn quoted(s: &str, may_be_empty: bool) -> Rest<'_> {
    let in_quotes = |quote: char| {
        let (inside, left) = s.strip_prefix(quote)?.split_once(quote)?;
        (may_be_empty || !inside.is_empty()).then_some(left)
    };
    in_quotes('"').or_else(|| in_quotes('\''))
}

fn bare_word(s: &str) -> Rest<'_> {
    some(s, |c| c.is_ascii_alphanumeric() || "_./-".contains(c))
}

fn word(s: &str) -> Rest<'_> {
    quoted(s, false).or_else(|| bare_word(s))
}

/// ` network 10.0.0.0/8`, or nothing.
fn network(s: &str) -> &str {
    let address = |c: char| c.is_ascii_hexdigit() || "/.:][".contains(c);
    maybe(s, |s| some(spaces(keyword(s, "network")?)?, address))
}

/// Some of `rwx`, in this order.
fn rwx(s: &str) -> Rest<'_> {
    let left = ['r', 'w', 'x'].iter().fold(s, |s, c| s.strip_prefix(*c).unwrap_or(s));
    (left.len() < s.len()).then_some(left)
}

fn everything(s: &str) -> Rest<'_> {
    s.strip_prefix('*').or_else(|| s.strip_prefix("all"))
}

// ---- mon and mgr ----

fn rwxa(s: &str) -> Rest<'_> {
    everything(s).or_else(|| rwx(s))
}

/// `allow `
fn allow(s: &str) -> Rest<'_> {
    spaces(maybe(s, spaces).strip_prefix("allow")?)
}

fn rwxa_match(s: &str) -> Rest<'_> {
    Some(network(rwxa(allow(s)?)?))
}

fn profile(s: &str) -> Rest<'_> {
    let s = maybe(maybe(s, spaces), |s| spaces(s.strip_prefix("allow")?));
    word(equals_or_spaces(s.strip_prefix("profile")?)?)
}

fn service_match(s: &str) -> Rest<'_> {
    let s = word(equals_or_spaces(allow(s)?.strip_prefix("service")?)?)?;
    Some(network(rwxa(spaces(s)?)?))
}

/// `key=value`, `key prefix value`, `key regex value`; a mgr takes spaces around `=`.
fn constraint(s: &str, spaced: bool) -> Rest<'_> {
    let s = word(s)?;
    let may_space = |s| if spaced { maybe(s, spaces) } else { s };
    let equal = || word(may_space(may_space(s).strip_prefix('=')?));
    let by = |how| word(spaces(keyword(s, how)?)?);
    equal().or_else(|| by("prefix")).or_else(|| by("regex"))
}

fn constraints(s: &str, spaced: bool) -> Rest<'_> {
    let mut left = constraint(s, spaced)?;
    while let Some(next) = spaces(left).and_then(|s| constraint(s, spaced)) {
        left = next;
    }
    Some(left)
}

/// ` with key=value`, or nothing.
fn with(s: &str, spaced: bool) -> &str {
    maybe(s, |s| constraints(spaces(keyword(s, "with")?)?, spaced))
}

fn command_match(s: &str, spaced: bool) -> Rest<'_> {
    let s = word(equals_or_spaces(allow(s)?.strip_prefix("command")?)?)?;
    Some(network(with(s, spaced)))
}

fn module_match(s: &str) -> Rest<'_> {
    let s = word(equals_or_spaces(allow(s)?.strip_prefix("module")?)?)?;
    Some(network(rwxa(spaces(with(s, true))?)?))
}

fn mon_grant(s: &str) -> Rest<'_> {
    let found = rwxa_match(s)
        .or_else(|| profile(s).map(network))
        .or_else(|| service_match(s))
        .or_else(|| command_match(s, false));
    Some(maybe(found?, spaces))
}

fn mgr_grant(s: &str) -> Rest<'_> {
    let arguments = |s| maybe(s, |s| constraints(spaces(s)?, true));
    let found = rwxa_match(s)
        .or_else(|| profile(s).map(|s| network(arguments(s))))
        .or_else(|| service_match(s))
        .or_else(|| module_match(s))
        .or_else(|| command_match(s, true));
    Some(maybe(found?, spaces))
}

// ---- osd ----

fn pool(s: &str) -> &str {
    maybe(s, |s| word(equals_or_spaces(keyword(s, "pool")?)?))
}

fn namespace(s: &str) -> Rest<'_> {
    let s = equals_or_spaces(keyword(s, "namespace")?)?;
    let s = quoted(s, true).or_else(|| bare_word(s))?;
    Some(s.strip_prefix('*').unwrap_or(s))
}

fn object_prefix(s: &str) -> &str {
    maybe(s, |s| word(spaces(keyword(s, "object_prefix")?)?))
}

/// ` tag cephfs data=*`
fn pool_tag(s: &str) -> Rest<'_> {
    let value = |s| everything(s).or_else(|| word(s));
    let s = spaces(word(spaces(keyword(s, "tag")?)?)?)?;
    let s = maybe(value(s)?, spaces).strip_prefix('=')?;
    value(maybe(s, spaces))
}

fn auid(s: &str) -> Rest<'_> {
    let s = spaces(keyword(s, "auid")?)?;
    some(s.strip_prefix(['-', '+']).unwrap_or(s), |c| c.is_ascii_digit())
}

fn osd_match(s: &str) -> &str {
    pool_tag(s)
        .or_else(|| pool_tag(namespace(s)?))
        .or_else(|| auid(s).map(object_prefix))
        .or_else(|| namespace(pool(s)).map(object_prefix))
        .unwrap_or_else(|| object_prefix(pool(s)))
}

/// ` rwx class-read class-write`, ` *`, ` class rbd child_attach`
fn osd_spec(s: &str) -> Rest<'_> {
    let all = || everything(spaces(s)?);
    let bits = || {
        let left = maybe(s, |s| rwx(spaces(s)?));
        let left = maybe(left, |s| keyword(s, "class-read"));
        let left = maybe(left, |s| keyword(s, "class-write"));
        (left.len() < s.len()).then_some(left)
    };
    let class = || {
        let s = word(spaces(keyword(s, "class")?)?)?;
        Some(maybe(s, |s| word(spaces(s)?)))
    };
    all().or_else(bits).or_else(class)
}

fn osd_grant(s: &str) -> Rest<'_> {
    let blank = |c| matches!(c, ' ' | '\t');
    let s = s.trim_start_matches(blank);
    let spec_first = || Some(osd_match(osd_spec(s.strip_prefix("allow")?)?));
    let match_first = || osd_spec(osd_match(s.strip_prefix("allow")?));
    let profile = || {
        let s = pool(word(equals_or_spaces(s.strip_prefix("profile")?)?)?);
        Some(maybe(s, namespace))
    };
    let found = spec_first().or_else(match_first).or_else(profile);
    Some(network(found?).trim_start_matches(blank))
}

// ---- mds ----

fn mds_grant(s: &str) -> Rest<'_> {
    const SPECS: [&str; 11] =
        ["*", "all", "rwfps", "rwfp", "rwfs", "rwps", "rwf", "rwp", "rws", "rw", "r"];
    let s = spaces(s.strip_prefix("allow")?)?;
    let s = SPECS.iter().find_map(|spec| s.strip_prefix(spec))?;
    let name = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    let s = maybe(s, |s| some(keyword(s, "fsname=")?, name));
    let s = maybe(s, |s| {
        let path = keyword(s, "path=")?;
        quoted(path, true).or_else(|| bare_word(path))
    });
    let number = |s| some(s, |c: char| c.is_ascii_digit());
    let ids = |s| {
        let mut left = number(s)?;
        while let Some(next) = left.strip_prefix(',').and_then(number) {
            left = next;
        }
        Some(left)
    };
    let s = maybe(s, |s| {
        let s = number(keyword(s, "uid=")?)?;
        Some(maybe(s, |s| ids(keyword(s, "gids=")?)))
    });
    Some(network(s))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_write_is_taken() {
        let good = [
            ("mon", "allow r"),
            ("mon", "allow *"),
            ("mon", " allow rw network 10.0.0.0/8 ; profile rbd"),
            ("mon", "allow profile bootstrap-osd"),
            ("mon", "profile=crash"),
            (
                "mon",
                "allow service log rw, allow command \"auth get\" with entity=client.x key prefix a",
            ),
            ("mon", "allow command config-key with key regex '^a'"),
            ("mgr", "allow all"),
            ("mgr", "profile rbd pool=images namespace = n"),
            ("mgr", "allow module status with a=b r"),
            ("osd", "allow *"),
            ("osd", "allow rwx"),
            ("osd", "allow rw pool=rbd"),
            ("osd", "allow rw pool rbd namespace=ns* object_prefix rbd_data"),
            ("osd", "allow pool=rbd rwx"),
            ("osd", "profile rbd pool=vms, profile rbd-read-only pool=images"),
            ("osd", "allow class-read object_prefix rbd_children, allow rwx pool=volumes"),
            ("osd", "allow rw tag cephfs data=*"),
            ("osd", "allow r class-read class-write"),
            ("osd", "allow class rbd child_attach pool=x"),
            ("osd", "allow rw namespace='' network 1.2.3.4/8 "),
            ("mds", "allow"),
            ("mds", "allow rw path=/a/b uid=1 gids=1,2"),
            ("mds", "allow rwps fsname=a, allow r path=\"/x y\""),
        ];
        for (daemon, caps) in good {
            assert_eq!(check(daemon, caps), Ok(()), "{daemon} '{caps}'");
        }
    }

    #[test]
    fn what_makes_no_sense_is_refused_in_cephs_words() {
        let bad = [
            ("mon", "", "mon capability parse failed, stopped at end of ''"),
            ("mon", "r", "mon capability parse failed, stopped at 'r' of 'r'"),
            ("mon", "allow xw", "mon capability parse failed, stopped at 'w' of 'allow xw'"),
            (
                "mon",
                "allow r, alow w",
                "mon capability parse failed, stopped at ', alow w' of 'allow r, alow w'",
            ),
            ("mgr", "allow", "mgr capability parse failed, stopped at 'allow' of 'allow'"),
            (
                "mgr",
                "allow module x",
                "mgr capability parse failed, stopped at 'allow module x' of 'allow module x'",
            ),
            ("osd", "", "osd capability parse failed, stopped at '' of ''"),
            (
                "osd",
                "allow rw pol=rbd",
                "osd capability parse failed, stopped at 'pol=rbd' of 'allow rw pol=rbd'",
            ),
            (
                "osd",
                "allow pool rbd",
                "osd capability parse failed, stopped at 'allow pool rbd' of 'allow pool rbd'",
            ),
            ("mds", "allow w", "mds capability parse failed, stopped at 'allow w' of 'allow w'"),
            (
                "mds",
                "allow rw path=",
                "mds capability parse failed, stopped at ' path=' of 'allow rw path='",
            ),
            ("foo", "allow r", "unknown cap type 'foo'"),
        ];
        for (daemon, caps, text) in bad {
            assert_eq!(
                check(daemon, caps).map_err(|e| e.text),
                Err(text.into()),
                "{daemon} '{caps}'"
            );
        }
    }
}
