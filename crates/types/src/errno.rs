//! Error numbers as they stand on the wire: Linux numbers, negated.

use std::fmt;

/// A positive Linux error number that a client receives as its negative.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Errno(pub i32);

macro_rules! errnos {
    ($($name:ident = $n:literal, $doc:literal;)*) => {
        impl Errno {
            $(#[doc = $doc] pub const $name: Errno = Errno($n);)*

            /// The symbolic name, `ENOENT`; `None` for a number not in our table.
            pub fn name(self) -> Option<&'static str> {
                match self.0 { $($n => Some(stringify!($name)),)* _ => None }
            }
        }
    };
}

errnos! {
    EPERM = 1, "Not permitted.";
    ENOENT = 2, "No such object, pool or key.";
    EIO = 5, "The stored bytes cannot be read.";
    ENXIO = 6, "No such device or address.";
    E2BIG = 7, "Too much at once.";
    ENOEXEC = 8, "The image lacks a feature.";
    EBADF = 9, "Bad id.";
    EAGAIN = 11, "Go to the primary.";
    ENOMEM = 12, "Out of memory.";
    EACCES = 13, "Access denied.";
    EBUSY = 16, "In use or locked.";
    EEXIST = 17, "Exists already.";
    EXDEV = 18, "Crosses a border.";
    ENOTDIR = 20, "Not a directory.";
    EINVAL = 22, "Malformed or impossible request.";
    EFBIG = 27, "Beyond the largest object size.";
    ENOSPC = 28, "No space left.";
    EROFS = 30, "Read only.";
    EMLINK = 31, "Others name it, too.";
    EDOM = 33, "Out of the function's domain.";
    ERANGE = 34, "Out of range.";
    ENAMETOOLONG = 36, "Name too long.";
    ENOSYS = 38, "Not implemented.";
    ENOTEMPTY = 39, "Not empty.";
    ENODATA = 61, "No such attribute.";
    EOVERFLOW = 75, "Too large for its place.";
    ERESTART = 85, "Used by Ceph as EOLDSNAPC: the snap context is older than the object's.";
    EUSERS = 87, "Too many users: of watches of an object.";
    EMSGSIZE = 90, "Message too large.";
    EOPNOTSUPP = 95, "Operation not supported.";
    ENOTCONN = 107, "No such watch or connection.";
    ESHUTDOWN = 108, "Used by Ceph as EBLOCKLISTED.";
    ETIMEDOUT = 110, "Timed out.";
    EALREADY = 114, "Done already.";
    ESTALE = 116, "Stale.";
    EUCLEAN = 117, "Needs cleaning up first.";
    EDQUOT = 122, "Quota exceeded.";
    ECANCELED = 125, "A comparison failed, or it is not wanted any more.";
}

impl Errno {
    /// The snap context is older than the object's.
    pub const EOLDSNAPC: Errno = Errno::ERESTART;
    /// The sender is blocklisted.
    pub const EBLOCKLISTED: Errno = Errno::ESHUTDOWN;

    /// As it stands in a reply: negative.
    pub fn wire(self) -> i32 {
        -self.0
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "errno {}", self.0),
        }
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl std::error::Error for Errno {}
