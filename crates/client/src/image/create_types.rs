//! What is asked for: which image, and how a new one is to be.

use super::format::feature;
use types::{ByteString, PoolId};

/// Which image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ImageName {
    /// By its name.
    Name(String),
    /// By its id: also one in the trash.
    Id(String),
    /// By its name, and only if it is the one of this id: images may be removed and made anew under the same
    /// name between a decision and its deed.
    This {
        /// Its name.
        name: String,
        /// Its id.
        id: String,
    },
}

/// Names an image, and how it is opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OpenImage {
    /// Its pool.
    pub pool: PoolId,
    /// Its namespace; mostly the empty one.
    pub nspace: ByteString,
    /// Which image there.
    pub image: ImageName,
    /// The snapshot to see; `None`: the image as it is.
    pub snap: Option<String>,
    /// Nothing is going to be written. The image is not watched then, as with librbd: news of its
    /// size and snapshots do not arrive.
    pub read_only: bool,
    /// The exclusive lock is taken only when nobody has it: no living holder is asked for it, and no
    /// dead one is shut out. What needs the lock fails with EBUSY else.
    pub only_free_lock: bool,
}

impl OpenImage {
    /// An image by its name, to be written.
    pub fn new(pool: PoolId, name: &str) -> Self {
        let image = ImageName::Name(name.to_owned());
        let nspace = ByteString::default();
        OpenImage { pool, nspace, image, snap: None, read_only: false, only_free_lock: false }
    }

    /// An image by its id, to be written.
    pub fn by_id(pool: PoolId, id: &str) -> Self {
        OpenImage { image: ImageName::Id(id.to_owned()), ..OpenImage::new(pool, "") }
    }

    /// An image by its name, to be written, if it has this id.
    pub fn this(pool: PoolId, name: &str, id: &str) -> Self {
        let image = ImageName::This { name: name.to_owned(), id: id.to_owned() };
        OpenImage { image, ..OpenImage::new(pool, "") }
    }

    /// In this namespace.
    #[must_use]
    pub fn in_namespace(mut self, nspace: impl Into<ByteString>) -> Self {
        self.nspace = nspace.into();
        self
    }

    /// As it was at a snapshot, for reading.
    #[must_use]
    pub fn at_snap(mut self, snap: &str) -> Self {
        self.snap = Some(snap.to_owned());
        self.read_only = true;
        self
    }

    /// Never taking the exclusive lock from anybody.
    #[must_use]
    pub fn only_free_lock(mut self) -> Self {
        self.only_free_lock = true;
        self
    }

    /// For reading.
    #[must_use]
    pub fn read_only(mut self) -> Self {
        self.read_only = true;
        self
    }
}

/// How a new image is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CreateImage {
    /// Where its header goes.
    pub pool: PoolId,
    /// Its namespace, which must exist.
    pub nspace: ByteString,
    /// Its name.
    pub name: String,
    /// Bytes. Of a clone the parent counts.
    pub size: u64,
    /// log2 of the bytes of an object, 12 to 25.
    pub order: u8,
    /// See [`feature`]; striping and data-pool follow from what is below.
    pub features: u64,
    /// Bytes that go to one object before the next; `None`: a whole object.
    pub stripe_unit: Option<u64>,
    /// Objects side by side.
    pub stripe_count: Option<u64>,
    /// Where its data goes, if elsewhere.
    pub data_pool: Option<PoolId>,
}

impl CreateImage {
    /// One like `rbd create` makes: objects of 4 MiB, the default features.
    pub fn new(pool: PoolId, name: &str, size: u64) -> Self {
        CreateImage {
            pool,
            nspace: ByteString::default(),
            name: name.to_owned(),
            size,
            order: 22,
            features: feature::DEFAULT,
            stripe_unit: None,
            stripe_count: None,
            data_pool: None,
        }
    }
}

/// How parent and clone know of each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloneFormat {
    /// The clone's pool lists it; the snapshot must be protected.
    V1,
    /// The parent lists it; the snapshot need not be protected.
    V2,
}

/// How a clone is to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CloneImage {
    /// The parent, with its snapshot.
    pub parent: OpenImage,
    /// The clone.
    pub child: CreateImage,
    /// See [`CloneFormat`].
    pub format: CloneFormat,
}
