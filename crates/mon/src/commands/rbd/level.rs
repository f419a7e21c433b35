//! What a schedule is for, and how often, as Ceph's mgr takes them (`pybind/mgr/rbd_support/schedule.py`).

use crate::cluster::Cluster;
use crate::commands::Call;
use crate::tasks::{Answer as Seen, Item, Level, Question, parse_interval, parse_start};
use admin::CommandError;
use types::Errno;

/// A level as somebody names it. Whether there is such a namespace or image only their pool knows.
pub(super) struct LevelSpec {
    text: String,
    level: Level,
    /// An image in it.
    image: Option<String>,
}

impl LevelSpec {
    /// ``, `POOL/`, `POOL/NAMESPACE/`, and where images have schedules `POOL/[NAMESPACE/]IMAGE`.
    pub fn parse(c: &Cluster, text: &str, of_images: bool) -> Result<Self, CommandError> {
        let mut spec = LevelSpec { text: text.to_owned(), level: Level::default(), image: None };
        let (name, nspace, image) = match text.split('/').collect::<Vec<_>>()[..] {
            [""] => return Ok(spec),
            [pool, image] if !pool.is_empty() => (pool, None, image),
            [pool, nspace, image] if !pool.is_empty() => (pool, Some(nspace), image),
            _ => return Err(spec.invalid(format_args!("failed to parse {text}"))),
        };
        if image.contains('@') {
            return Err(spec.invalid(format_args!("failed to parse {text}")));
        }
        if !image.is_empty() && !of_images {
            let why = format_args!("invalid name {text}: image level is not allowed");
            return Err(spec.invalid(why));
        }
        if c.map().pool_by_name(name).is_none() {
            return Err(spec.invalid(format_args!("pool {name} does not exist")));
        }
        let pool = c.pool_of_images(name);
        if pool.is_none() {
            return Err(spec.invalid(format_args!("{name} is not an RBD pool")));
        }
        // An image without a namespace is in the one that has no name.
        let nspace = nspace.map(str::to_owned);
        spec.level = Level { pool, nspace };
        spec.image = Some(image.to_owned()).filter(|image| !image.is_empty());
        Ok(spec)
    }

    fn invalid(&self, why: impl std::fmt::Display) -> CommandError {
        CommandError::invalid(format_args!("Invalid level spec {}: {why}", self.text))
    }

    /// What is to be asked before it is known that it exists.
    pub fn question(&self) -> Option<Question> {
        let pool = self.level.pool?;
        let nspace = self.level.nspace.clone().unwrap_or_default();
        match &self.image {
            Some(image) => Some(Question::Image(pool, nspace, image.clone())),
            None => Some(Question::Namespaces(pool)).filter(|_| !nspace.is_empty()),
        }
    }

    /// The level, if what was asked for is there. That of an image is the one it is in.
    pub fn settle(self, seen: &Seen) -> Result<Level, CommandError> {
        match (&self.image, seen) {
            _ if self.question().is_none() => {}
            (Some(image), Err(e)) if e.errno == Errno::ENOENT => {
                return Err(self.invalid(format_args!("image {image} does not exist")));
            }
            (_, Err(e)) => return Err(super::failed(e)),
            (Some(_), Ok(_)) => {}
            (None, Ok(found)) => {
                let nspace = self.level.nspace.clone().unwrap_or_default();
                if !found.namespaces.contains(&nspace) {
                    return Err(self.invalid(format_args!("namespace {nspace} does not exist")));
                }
            }
        }
        Ok(self.level)
    }
}

/// How often, if that is said.
pub(super) fn item(call: &Call) -> Result<Option<Item>, CommandError> {
    let Some(interval) = call.args.str("interval") else { return Ok(None) };
    let bad = || CommandError::invalid(format_args!("Invalid interval ({interval})"));
    let minutes = parse_interval(&interval).ok_or_else(bad)?;
    let start = match call.args.str("start_time").filter(|text| !text.is_empty()) {
        None => None,
        Some(text) => Some(parse_start(&text).ok_or_else(|| {
            let why = format_args!("Unknown string format: {text}");
            CommandError::invalid(format_args!("Invalid start time {text}: {why}"))
        })?),
    };
    Ok(Some(Item::new(minutes, start)))
}
