//! Why an edit of a map is refused.

use types::Errno;

/// An edit that cannot be made. The text is what Ceph prints, where Ceph prints something.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CrushError {
    /// No item has this id.
    #[error("item id {0} does not exist")]
    NoSuchItem(i32),
    /// The item is nowhere in the hierarchy (below the place that was given).
    #[error("item id {0} does not appear in the crush map")]
    NotPlaced(i32),
    /// The name is taken by another item.
    #[error("device name '{name}' already exists as id {id}")]
    NameTaken {
        /// The name.
        name: String,
        /// Who has it.
        id: i32,
    },
    /// A name has characters that are not allowed in one.
    #[error("'{0}' does not match [-_.0-9a-zA-Z]+")]
    BadName(String),
    /// No bucket type has this name.
    #[error("unknown type {0}")]
    NoSuchType(String),
    /// The item is a device where a bucket is needed.
    #[error("item id {0} is a device, not a bucket")]
    NotABucket(i32),
    /// The item is a bucket where a device is needed.
    #[error("device '{0}' is not a leaf in the crush map")]
    NotALeaf(String),
    /// The bucket id is used already.
    #[error("bucket id {0} already exists")]
    BucketExists(i32),
    /// The bucket id is lower than ids may be (see [`crate::MAX_BUCKETS`]).
    #[error("bucket id {0} is out of range")]
    BucketIdRange(i32),
    /// The bucket that a location names has another type than the location says.
    #[error("existing bucket '{name}' has type '{actual}' != '{wanted}'")]
    WrongType {
        /// The bucket.
        name: String,
        /// Its type.
        actual: String,
        /// The type in the location.
        wanted: String,
    },
    /// The item stands already below the bucket that the location names.
    #[error("item id {item} already exists beneath {below}")]
    AlreadyBelow {
        /// The item.
        item: i32,
        /// The bucket.
        below: i32,
    },
    /// The bucket would contain itself.
    #[error("bucket id {outer} already contains {inner}; cannot form loop")]
    Loop {
        /// The bucket that is placed.
        outer: i32,
        /// The bucket it would be placed into.
        inner: i32,
    },
    /// No part of the location could take the item.
    #[error("didn't find anywhere to add item {0}")]
    NoPlace(i32),
    /// The bucket cannot be removed while it has items.
    #[error("bucket id {id} has {items} items, not empty")]
    NotEmpty {
        /// The bucket.
        id: i32,
        /// How many items it has.
        items: usize,
    },
    /// A rule takes the bucket (or one of its shadows).
    #[error("bucket id {0} is in use by a crush rule")]
    InUse(i32),
    /// One of two buckets to be swapped contains the other.
    #[error("one of buckets {0} and {1} contains the other")]
    Nested(i32, i32),
    /// `rename-bucket`: the new name is taken.
    #[error("dstname = '{0}' already exists")]
    RenameTaken(String),
    /// `rename-bucket`: the new name is not a name.
    #[error("dstname = '{0}' does not match [-_.0-9a-zA-Z]+")]
    RenameBadName(String),
    /// `rename-bucket`: it looks as if the renaming was done before.
    #[error("srcname = '{src}' does not exist and dstname = '{dst}' already exists")]
    RenameDone {
        /// The old name.
        src: String,
        /// The new name.
        dst: String,
    },
    /// `rename-bucket`: no such item.
    #[error("srcname = '{0}' does not exist")]
    RenameMissing(String),
    /// `rename-bucket` of a device.
    #[error("srcname = '{name}' is not a bucket because its id = {id} is >= 0")]
    RenameDevice {
        /// The item's name.
        name: String,
        /// Its id.
        id: i32,
    },
    /// A rule has this name already.
    #[error("rule {0} exists")]
    RuleExists(String),
    /// A rule has this number already.
    #[error("rule with ruleno {0} exists")]
    RuleNumberExists(u32),
    /// `rule create`: no bucket has the name of the root.
    #[error("root item {0} does not exist")]
    NoSuchRoot(String),
    /// `rule create`: no device class has this name.
    #[error("device class {0} does not exist")]
    NoSuchClass(String),
    /// `rule create`: the root has no device of the class.
    #[error("root {root} has no devices with class {class}")]
    NoDevicesOfClass {
        /// The root.
        root: String,
        /// The class.
        class: String,
    },
    /// No rule has this number.
    #[error("rule {0} does not exist")]
    NoSuchRule(u32),
    /// `rule rename`: no such rule.
    #[error("source rule name '{0}' does not exist")]
    RuleRenameMissing(String),
    /// `rule rename`: the new name is taken.
    #[error("destination rule name '{0}' already exists")]
    RuleRenameTaken(String),
    /// All 256 rule numbers are used.
    #[error("failed to add rule: all rule ids are in use")]
    RulesFull,
    /// The device is of another class.
    #[error(
        "osd.{id} has already bound to class '{old}', can not reset class to '{new}'; use 'ceph \
         osd crush rm-device-class <id>' to remove old class first"
    )]
    OtherClass {
        /// The device.
        id: i32,
        /// The class it is of.
        old: String,
        /// The class that was asked for.
        new: String,
    },
    /// A class was given to a bucket.
    #[error("{name} id {id} is negative")]
    ClassOfBucket {
        /// The bucket's name.
        name: String,
        /// Its id.
        id: i32,
    },
    /// The device has no name.
    #[error("osd.{0} does not have a name")]
    Nameless(i32),
    /// A rule takes a shadow tree of the class.
    #[error("still referenced by crush_rule(s): {0}")]
    ClassInUse(String),
    /// `class rename`: no such class.
    #[error("class '{0}' does not exist")]
    ClassRenameMissing(String),
    /// `class rename`: the new name is taken.
    #[error("class '{0}' already exists")]
    ClassRenameTaken(String),
    /// A weight is negative, not a number, or too large for 16.16 bits, or a sum is.
    #[error("weight is out of range")]
    WeightOverflow,
    /// The bucket cannot take this item: a uniform bucket needs equal weights, a tree bucket holds
    /// at most 64 items.
    #[error("bucket id {id}: {why}")]
    BucketRefuses {
        /// The bucket.
        id: i32,
        /// Why not.
        why: &'static str,
    },
    /// The hierarchy would be deeper than [`crate::MAX_DEPTH`].
    #[error("the hierarchy would be too deep")]
    TooDeep,
    /// Walks would meet more items than [`crate::MAX_WAYS`] allows.
    #[error(
        "buckets stand in so many others that there are {ways} ways to {items} items; at most {} to each are allowed, \
         on average",
        crate::MAX_WAYS
    )]
    TooManyWays {
        /// Items that a walk meets.
        ways: u64,
        /// Items there are.
        items: u64,
    },
    /// A weight-set of this id exists.
    #[error("weight-set {0} already exists")]
    WeightSetExists(i64),
    /// No algorithm is allowed that a new bucket could use.
    #[error("allowed_bucket_algs allows no bucket algorithm")]
    NoAlgorithm,
}

impl CrushError {
    /// The error number Ceph answers with.
    pub fn errno(&self) -> Errno {
        use CrushError as E;
        match self {
            E::NoSuchItem(_)
            | E::NotPlaced(_)
            | E::RenameMissing(_)
            | E::NoSuchRoot(_)
            | E::NoSuchRule(_)
            | E::RuleRenameMissing(_)
            | E::ClassRenameMissing(_)
            | E::Nameless(_) => Errno::ENOENT,
            E::NameTaken { .. }
            | E::BucketExists(_)
            | E::RenameTaken(_)
            | E::RuleExists(_)
            | E::RuleNumberExists(_)
            | E::RuleRenameTaken(_)
            | E::ClassRenameTaken(_)
            | E::WeightSetExists(_) => Errno::EEXIST,
            E::BadName(_)
            | E::NoSuchType(_)
            | E::NotABucket(_)
            | E::NotALeaf(_)
            | E::BucketIdRange(_)
            | E::WrongType { .. }
            | E::AlreadyBelow { .. }
            | E::NoPlace(_)
            | E::Nested(..)
            | E::RenameBadName(_)
            | E::NoSuchClass(_)
            | E::NoDevicesOfClass { .. }
            | E::ClassOfBucket { .. }
            | E::BucketRefuses { .. }
            | E::TooDeep
            | E::TooManyWays { .. }
            | E::NoAlgorithm => Errno::EINVAL,
            E::NotEmpty { .. } => Errno::ENOTEMPTY,
            E::InUse(_) | E::OtherClass { .. } | E::ClassInUse(_) => Errno::EBUSY,
            E::RenameDevice { .. } => Errno::ENOTDIR,
            E::RulesFull => Errno::ENOSPC,
            E::WeightOverflow => Errno::EOVERFLOW,
            E::Loop { .. } => Errno(40),
            E::RenameDone { .. } => Errno(114),
        }
    }
}
