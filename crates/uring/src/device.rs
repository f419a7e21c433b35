//! Opening the files and block devices that stores live on.

use io::BLOCK_BYTES;
use io::disk::DeviceInfo;
use rustix::fs::{FallocateFlags, FileType, FlockOperation, Mode, OFlags};
use std::fmt;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

/// An open, locked device.
#[derive(Debug)]
pub struct Device {
    pub(crate) fd: OwnedFd,
    /// What it is.
    pub info: DeviceInfo,
}

/// What may be done to get one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Open {
    /// It must exist.
    Existing,
    /// It must exist; nothing is written to it.
    ReadOnly,
    /// A regular file of this many bytes is made if there is none. An existing file is not touched.
    Create {
        /// Size of a new file; rounded up to whole blocks.
        bytes: u64,
    },
}

/// Why a device cannot be used, for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// There is nothing of that name.
    Missing,
    /// Another process holds its lock.
    InUse,
    /// No space for a new file.
    NoSpace,
    /// The sentence says why.
    Other,
}

/// Why a device cannot be used.
#[derive(Debug)]
pub struct DeviceError {
    path: PathBuf,
    what: String,
    /// The kind of hindrance.
    pub kind: Unusable,
}

impl fmt::Display for DeviceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.what)
    }
}

impl std::error::Error for DeviceError {}

/// Opens a file or block device past the kernel's caches and locks it against a second process.
///
/// # Errors
/// When it is absent, neither a file nor a block device, in use by another process, on a file
/// system without O_DIRECT, or when there is no space for a new one.
pub fn open(path: &Path, how: Open) -> Result<Device, DeviceError> {
    let fail = |(kind, what)| DeviceError { path: path.to_owned(), what, kind };
    let mut flags = OFlags::CLOEXEC | OFlags::DIRECT;
    flags |= if how == Open::ReadOnly { OFlags::RDONLY } else { OFlags::RDWR };
    let is_block =
        |s: rustix::fs::Stat| FileType::from_raw_mode(s.st_mode) == FileType::BlockDevice;
    if how != Open::ReadOnly && rustix::fs::stat(path).is_ok_and(is_block) {
        // Mounted, swap, part of LVM or RAID: the kernel knows who has a block device for itself.
        flags |= OFlags::EXCL;
    }
    let mode = Mode::from_raw_mode(0o600);
    // When it was last read, nobody wants to know; only its owner may say so.
    let opened = match rustix::fs::open(path, flags | OFlags::NOATIME, mode) {
        Err(rustix::io::Errno::PERM) => rustix::fs::open(path, flags, mode),
        opened => opened,
    };
    let fd = match (opened, how) {
        (Ok(fd), _) => fd,
        (Err(rustix::io::Errno::NOENT), Open::Create { bytes }) => {
            create(path, flags | OFlags::NOATIME, mode, bytes).map_err(&fail)?
        }
        (Err(e), _) => return Err(fail(explain_open(e))),
    };
    lock(&fd, how).map_err(&fail)?;
    let info = inspect(path, &fd).map_err(&fail)?;
    Ok(Device { fd, info })
}

/// What hinders, and a sentence about it.
type Why = (Unusable, String);

fn other(e: impl fmt::Display) -> Why {
    (Unusable::Other, e.to_string())
}

fn explain_open(e: rustix::io::Errno) -> Why {
    match e {
        rustix::io::Errno::NOENT => (Unusable::Missing, "there is no such file or device".into()),
        rustix::io::Errno::BUSY => {
            let what =
                "in use: another process has it, it is mounted, or it is a part of something";
            (Unusable::InUse, what.into())
        }
        rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT => {
            (Unusable::NoSpace, format!("there is no space for it: {e}"))
        }
        rustix::io::Errno::INVAL => other(
            "the file system does not support O_DIRECT; put the store on ext4, xfs, btrfs or a \
             block device",
        ),
        e => other(format_args!("cannot be opened: {e}")),
    }
}

fn create(path: &Path, flags: OFlags, mode: Mode, bytes: u64) -> Result<OwnedFd, Why> {
    let flags = flags | OFlags::CREATE | OFlags::EXCL;
    let fd = rustix::fs::open(path, flags, mode).map_err(explain_open)?;
    let bytes = bytes.next_multiple_of(BLOCK_BYTES as u64);
    let sized = rustix::fs::ftruncate(&fd, bytes)
        .and_then(|()| rustix::fs::fallocate(&fd, FallocateFlags::empty(), 0, bytes));
    if let Err(e) = sized {
        // A store must never find its file shorter than it believes: no half-made file stays.
        let _ = rustix::fs::unlink(path);
        return Err(match e {
            rustix::io::Errno::NOSPC | rustix::io::Errno::DQUOT => {
                let what = "no space for a file of";
                (Unusable::NoSpace, format!("{what} {bytes} bytes; free some, or ask for less"))
            }
            e => other(format_args!("cannot be given {bytes} bytes: {e}")),
        });
    }
    Ok(fd)
}

fn lock(fd: &OwnedFd, how: Open) -> Result<(), Why> {
    let operation = match how {
        Open::ReadOnly => FlockOperation::NonBlockingLockShared,
        _ => FlockOperation::NonBlockingLockExclusive,
    };
    rustix::fs::flock(fd, operation).map_err(|e| match e {
        rustix::io::Errno::WOULDBLOCK => {
            let what = "in use by another process (it holds the lock); stop that one first";
            (Unusable::InUse, what.into())
        }
        e => other(format_args!("cannot be locked: {e}")),
    })
}

fn inspect(path: &Path, fd: &OwnedFd) -> Result<DeviceInfo, Why> {
    let stat = rustix::fs::fstat(fd).map_err(other)?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    let is_block = kind == FileType::BlockDevice;
    if !is_block && kind != FileType::RegularFile {
        return Err(other("neither a regular file nor a block device"));
    }
    let bytes = if is_block {
        rustix::fs::seek(fd, rustix::fs::SeekFrom::End(0)).map_err(other)?
    } else {
        stat.st_size as u64
    };
    let bytes = bytes - bytes % BLOCK_BYTES as u64;
    Ok(DeviceInfo { path: path.display().to_string(), bytes, is_block })
}

impl Device {
    pub(crate) fn raw(&self) -> i32 {
        self.fd.as_fd().as_raw_fd()
    }
}
