//! Names of images by their ids, as lists of the images of a pool's namespace have them.

use super::Place;
use std::collections::BTreeMap;
use std::time::Duration;
use types::Mono;

/// Names of one place that are remembered, about.
pub(crate) const MAX_NAMES: usize = 65_536;
/// An unknown id is looked for again so long after the last time.
const LOOK_AGAIN_AFTER: Duration = Duration::from_secs(10);
/// Images are renamed: names are read again so often (`POOL_REFRESH_INTERVAL`).
const REFRESH_EVERY: Duration = Duration::from_secs(300);

/// Whether a list is to be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Wish {
    #[default]
    None,
    Wanted,
    /// It is being read.
    Asked,
}

/// The names in one place.
#[derive(Debug, Default)]
struct List {
    names: BTreeMap<String, String>,
    read_at: Option<Mono>,
    wish: Wish,
}

/// All names that were asked for.
#[derive(Debug, Default)]
pub(super) struct Names(BTreeMap<Place, List>);

impl Names {
    pub fn get(&self, place: &Place, id: &str) -> Option<&str> {
        self.0.get(place)?.names.get(id).map(String::as_str)
    }

    /// The name of an image is wanted: its list is read if need be.
    pub fn want(&mut self, now: Mono, place: &Place, id: &str) {
        let list = self.0.entry(place.clone()).or_default();
        let keep = if list.names.contains_key(id) { REFRESH_EVERY } else { LOOK_AGAIN_AFTER };
        let is_fresh = list.read_at.is_some_and(|at| now.since(at) < keep);
        if list.wish == Wish::None && !is_fresh {
            list.wish = Wish::Wanted;
        }
    }

    /// Forgets places.
    pub fn retain(&mut self, stays: impl Fn(&Place) -> bool) {
        self.0.retain(|place, _| stays(place));
    }

    /// What is to be read now. An answer follows to each.
    pub fn due(&mut self) -> Vec<Place> {
        let wanted = self.0.iter_mut().filter(|(_, list)| list.wish == Wish::Wanted);
        let asked = wanted.map(|(place, list)| {
            list.wish = Wish::Asked;
            place.clone()
        });
        asked.collect()
    }

    /// A list, ids by name, or `None` when it cannot be read.
    pub fn answered(&mut self, now: Mono, place: &Place, names: Option<BTreeMap<String, String>>) {
        let Some(list) = self.0.get_mut(place) else { return };
        list.wish = Wish::None;
        list.read_at = Some(now);
        if let Some(names) = names {
            list.names = names.into_iter().map(|(name, id)| (id, name)).collect();
        }
    }
}
