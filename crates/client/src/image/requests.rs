//! What can be asked of images.

use super::header::At;
use super::io::{Io, Kind, Owner, cost};
use super::script::Desk;
use super::state::{Shared, Work};
use super::{
    Change, CloneImage, CreateImage, ImageBusy, ImageId, ImageOutcome, ImageRequest, Images,
    ImagesConfig, OpenImage, TrashedImage, create, header, info, layout, lists, maintain, remove,
    trash,
};
use crate::client::Client;
use crate::error::ClientError;
use ::io::Now;
use bytes::Bytes;
use std::cell::RefCell;
use std::future::Future;
use std::rc::Rc;
use types::{ByteString, Errno, PoolId};

impl Images {
    /// None open yet. The same seed gives the same run.
    pub fn new(seed: u64) -> Self {
        Self::with_config(seed, ImagesConfig::default())
    }

    /// The same with settings.
    pub fn with_config(seed: u64, config: ImagesConfig) -> Self {
        let make = |me: &std::rc::Weak<RefCell<Shared>>| {
            RefCell::new(Shared::new(me.clone(), seed, config))
        };
        Images { shared: Rc::new_cyclic(make), tasks: Vec::new() }
    }

    /// Starts a script that ends a request.
    fn start<F>(
        &mut self,
        now: Now,
        client: &mut Client,
        make: impl FnOnce(Desk) -> F,
    ) -> ImageRequest
    where
        F: Future<Output = ImageOutcome> + 'static,
    {
        let id = {
            let mut s = self.shared.borrow_mut();
            let id = s.new_request();
            s.works.insert(id, Work::default());
            id
        };
        let desk = Desk::new(self.shared.clone(), Some(id));
        let script = make(desk.clone());
        self.shared.borrow_mut().spawn(async move {
            let outcome = script.await;
            desk.with(|s| s.done(id, outcome));
        });
        self.pump(now, client);
        id
    }

    /// Opens an image. [`ImageOutcome::Opened`] follows.
    pub fn open(&mut self, now: Now, client: &mut Client, spec: OpenImage) -> ImageRequest {
        self.start(now, client, |desk| async move {
            let at = spec.snap.clone().map_or(At::Head, At::Name);
            let opened = header::open(&desk, spec, at, 0).await;
            ImageOutcome::Opened(opened.map(|slot| {
                let generation = desk.with(|s| s.image(slot).generation);
                ImageId { slot, generation }
            }))
        })
    }

    /// Looks at an image: opens it for reading, and closes it again. One that is looked at `alone` may have lost
    /// its parent. [`ImageOutcome::Looked`] follows.
    pub fn look(
        &mut self,
        now: Now,
        client: &mut Client,
        spec: OpenImage,
        alone: bool,
    ) -> ImageRequest {
        self.start(now, client, move |desk| async move {
            let spec = OpenImage { read_only: true, snap: None, ..spec };
            let at = if alone { At::Alone } else { At::Head };
            ImageOutcome::Looked(match header::open(&desk, spec, at, 0).await {
                Ok(slot) => {
                    let info = desk.with(|s| info::of(s.image(slot)));
                    header::close(&desk, slot).await;
                    Ok(info)
                }
                Err(error) => Err(error),
            })
        })
    }

    /// Makes an image. [`ImageOutcome::Created`] follows.
    pub fn create(&mut self, now: Now, client: &mut Client, spec: CreateImage) -> ImageRequest {
        self.start(now, client, |desk| async move {
            ImageOutcome::Created(create::create(&desk, &spec).await)
        })
    }

    /// Makes a clone of a snapshot. [`ImageOutcome::Created`] follows.
    pub fn clone_image(&mut self, now: Now, client: &mut Client, spec: CloneImage) -> ImageRequest {
        self.start(now, client, |desk| async move {
            ImageOutcome::Created(create::clone(&desk, &spec).await)
        })
    }

    /// Removes an image that has no snapshots and is open nowhere. [`ImageOutcome::Done`] follows.
    pub fn remove(&mut self, now: Now, client: &mut Client, spec: OpenImage) -> ImageRequest {
        self.start(now, client, |desk| async move {
            ImageOutcome::Done(remove::remove(&desk, spec).await)
        })
    }

    /// Removes an image from the trash, if its time there is over. [`ImageOutcome::Done`] follows.
    pub fn remove_from_trash(
        &mut self,
        now: Now,
        client: &mut Client,
        spec: TrashedImage,
    ) -> ImageRequest {
        self.start(now, client, |desk| async move {
            ImageOutcome::Done(trash::remove(&desk, spec).await)
        })
    }

    /// Looks at an image in the trash. [`ImageOutcome::Trashed`] follows.
    pub fn trashed(&mut self, now: Now, client: &mut Client, spec: TrashedImage) -> ImageRequest {
        self.start(now, client, |desk| async move {
            ImageOutcome::Trashed(trash::get(&desk, &spec).await)
        })
    }

    /// Removes every image from the trash of a pool's namespace whose time there is over.
    /// [`ImageOutcome::Done`] follows, with what kept one from being removed.
    pub fn purge_trash(
        &mut self,
        now: Now,
        client: &mut Client,
        pool: PoolId,
        nspace: ByteString,
    ) -> ImageRequest {
        self.start(now, client, |desk| async move {
            ImageOutcome::Done(trash::purge(&desk, pool, nspace).await)
        })
    }

    /// The images of a pool's namespace; not many more than `max`. [`ImageOutcome::Listed`] follows.
    pub fn list(
        &mut self,
        now: Now,
        client: &mut Client,
        (pool, nspace): (PoolId, ByteString),
        max: usize,
    ) -> ImageRequest {
        self.start(now, client, |desk| async move {
            ImageOutcome::Listed(lists::images(&desk, pool, nspace, max).await)
        })
    }

    /// Names of the namespaces of a pool, but for the one that has none. [`ImageOutcome::Names`] follows.
    pub fn namespaces(&mut self, now: Now, client: &mut Client, pool: PoolId) -> ImageRequest {
        self.start(now, client, |desk| async move {
            ImageOutcome::Names(lists::namespaces(&desk, pool).await)
        })
    }

    /// How far a request is: what is done of what is to be done. `None`: it has ended, or does not say.
    pub fn progress(&self, id: ImageRequest) -> Option<f64> {
        let s = self.shared.borrow();
        let work = s.works.get(&id).filter(|work| work.steps > 0)?;
        Some(work.done as f64 / work.steps as f64)
    }

    /// A request is not wanted any more: it stops, with ECANCELED, after what it waits for next, if it takes long.
    /// What it has done stays done.
    pub fn cancel(&mut self, id: ImageRequest) {
        self.shared.borrow_mut().cancel(id);
    }

    /// Starts a script that works on an open image, and ends a request.
    fn start_on<F>(
        &mut self,
        now: Now,
        client: &mut Client,
        image: ImageId,
        make: impl FnOnce(Desk, usize) -> F,
    ) -> ImageRequest
    where
        F: Future<Output = Result<(), ClientError>> + 'static,
    {
        let slot = match self.slot_of(image) {
            Ok(slot) => slot,
            Err(error) => return self.fail(ImageOutcome::Done(Err(error))),
        };
        self.shared.borrow_mut().image_mut(slot).scripts += 1;
        self.start(now, client, |desk| {
            let script = make(desk.clone(), slot);
            async move {
                let result = script.await;
                desk.with(|s| s.image_mut(slot).scripts -= 1);
                ImageOutcome::Done(result)
            }
        })
    }

    /// Changes an image as a whole: its size, its snapshots. [`ImageOutcome::Done`] follows.
    pub fn change(
        &mut self,
        now: Now,
        client: &mut Client,
        image: ImageId,
        change: Change,
    ) -> ImageRequest {
        self.start_on(now, client, image, |desk, slot| async move {
            maintain::run(&desk, slot, change).await
        })
    }

    /// Takes the exclusive lock before the first write does, if the image has one.
    /// [`ImageOutcome::Done`] follows.
    pub fn lock(&mut self, now: Now, client: &mut Client, image: ImageId) -> ImageRequest {
        self.start_on(
            now,
            client,
            image,
            |desk, slot| async move { maintain::lock(&desk, slot).await },
        )
    }

    /// Closes an image after everything under way. [`ImageOutcome::Done`] follows; from now on the
    /// image takes no requests.
    pub fn close(&mut self, now: Now, client: &mut Client, image: ImageId) -> ImageRequest {
        let slot = match self.slot_of(image) {
            Ok(slot) => slot,
            Err(error) => return self.fail(ImageOutcome::Done(Err(error))),
        };
        self.shared.borrow_mut().image_mut(slot).closing = true;
        self.start(now, client, |desk| async move {
            header::close(&desk, slot).await;
            ImageOutcome::Done(Ok(()))
        })
    }

    /// Reads. [`ImageOutcome::Read`] follows.
    ///
    /// # Errors
    /// When as much is in flight on the image as may be.
    pub fn read(
        &mut self,
        now: Now,
        client: &mut Client,
        image: ImageId,
        offset: u64,
        len: u64,
    ) -> Result<ImageRequest, ImageBusy> {
        self.submit(now, client, image, Kind::Read, offset, len, Bytes::new())
    }

    /// Writes. [`ImageOutcome::Done`] follows.
    ///
    /// # Errors
    /// When as much is in flight on the image as may be; the data is given back.
    pub fn write(
        &mut self,
        now: Now,
        client: &mut Client,
        image: ImageId,
        offset: u64,
        data: Bytes,
    ) -> Result<ImageRequest, ImageBusy> {
        self.submit(now, client, image, Kind::Write, offset, data.len() as u64, data)
    }

    /// Discards a range to the byte: it reads as zeros then, and takes no space as far as possible.
    /// So it is both librbd's discard without a granularity and its write-zeroes.
    /// [`ImageOutcome::Done`] follows.
    ///
    /// # Errors
    /// When as much is in flight on the image as may be.
    pub fn discard(
        &mut self,
        now: Now,
        client: &mut Client,
        image: ImageId,
        offset: u64,
        len: u64,
    ) -> Result<ImageRequest, ImageBusy> {
        self.submit(now, client, image, Kind::Discard, offset, len, Bytes::new())
    }

    /// Waits for all writes submitted so far. [`ImageOutcome::Done`] follows.
    pub fn flush(&mut self, image: ImageId) -> ImageRequest {
        let slot = match self.slot_of(image) {
            Ok(slot) => slot,
            Err(error) => return self.fail(ImageOutcome::Done(Err(error))),
        };
        let mut s = self.shared.borrow_mut();
        let id = s.new_request();
        if s.image_mut(slot).flushes.flush(id) {
            s.done(id, ImageOutcome::Done(Ok(())));
        }
        id
    }

    #[expect(clippy::too_many_arguments, reason = "the one place where all kinds meet")]
    fn submit(
        &mut self,
        now: Now,
        client: &mut Client,
        image: ImageId,
        kind: Kind,
        offset: u64,
        len: u64,
        data: Bytes,
    ) -> Result<ImageRequest, ImageBusy> {
        let slot = match self.slot_of(image) {
            Ok(slot) => slot,
            Err(error) => return Ok(self.fail(ended(kind, error))),
        };
        let id = {
            let mut s = self.shared.borrow_mut();
            s.now = now;
            s.gid = client.global_id();
            if let Some(error) = s.refusal(slot, kind, offset, len) {
                drop(s);
                return Ok(self.fail(ended(kind, error)));
            }
            let ImagesConfig { max_ops, max_bytes, .. } = s.config;
            let bytes = cost(kind, len);
            let image = s.image_mut(slot);
            // One of any size may go when nothing else does.
            let room = image.user_bytes == 0 || image.user_bytes.saturating_add(bytes) <= max_bytes;
            if image.user_ops >= max_ops || !room {
                return Err(ImageBusy(data));
            }
            image.user_ops += 1;
            image.user_bytes += bytes;
            let generation = if kind == Kind::Read { 0 } else { image.flushes.write() };
            let id = s.new_request();
            let mut io = Io::new(slot, kind, Owner::User(id), offset, len, data);
            io.generation = generation;
            s.enter(io);
            id
        };
        self.pump(now, client);
        Ok(id)
    }

    fn slot_of(&self, image: ImageId) -> Result<usize, ClientError> {
        let s = self.shared.borrow();
        match s.images.get(image.slot) {
            Some(i) if i.generation == image.generation && !i.closing => Ok(image.slot),
            _ => Err(ClientError::new(Errno::EBADF, "request on an image", "it is closed")),
        }
    }

    fn fail(&mut self, outcome: ImageOutcome) -> ImageRequest {
        let mut s = self.shared.borrow_mut();
        let id = s.new_request();
        s.done(id, outcome);
        id
    }
}

/// Why a request is refused.
pub const BEYOND: &str = "it goes beyond the end of the image";

fn ended(kind: Kind, error: ClientError) -> ImageOutcome {
    match kind {
        Kind::Read => ImageOutcome::Read(Err(error)),
        Kind::Write | Kind::Discard => ImageOutcome::Done(Err(error)),
    }
}

impl Shared {
    /// Why a request is not even begun.
    fn refusal(&self, slot: usize, kind: Kind, offset: u64, len: u64) -> Option<ClientError> {
        let image = self.image(slot);
        // While the header is read again the size is not known; it is compared once more when the
        // request begins.
        let known = !image.refresh_needed && !image.refreshing;
        let end = offset.checked_add(len).filter(|end| *end <= layout::MAX_IMAGE_BYTES);
        let (errno, why) = if end.is_none_or(|end| known && end > image.size()) {
            (Errno::EINVAL, BEYOND)
        } else if kind == Kind::Read {
            return None;
        } else {
            image.refusal()?
        };
        let verb = if kind == Kind::Read { "read of" } else { "write to" };
        let what = format!("{verb} {len} bytes at {offset} of {}", image.title());
        Some(ClientError::new(errno, what, why))
    }
}
