//! Block images behind calls that block.

use crate::SyncClient;
use crate::failure::Failure;
use crate::sync_client::{client_error, lost};
use crate::wait::Deadline;
use bytes::Bytes;
use client::image::{
    Change, CloneImage, CreateImage, ImageBusy, ImageDone, ImageId, ImageInfo, ImageOutcome,
    ImageRequest, OpenImage, ReadData,
};
use client::{Client, ClientError};
use io::Now;
use std::fmt;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;
use types::Errno;

/// Opening and locking may wait until a dead client's watch is over, beside the cluster.
const WATCH_TIMEOUT: Duration = Duration::from_secs(60);

fn unexpected(outcome: &ImageOutcome) -> ClientError {
    client_error(Errno::EIO, "a request", format!("it ended as something else: {outcome:?}"))
}

impl SyncClient {
    /// The next completion of a request on images, within `limit`.
    ///
    /// # Errors
    /// When the thread has ended.
    pub fn next_image(&mut self, limit: Duration) -> Result<Option<ImageDone>, Failure> {
        if let Some((id, outcome)) = self.image_early.pop_first() {
            return Ok(Some(ImageDone { id, outcome }));
        }
        match self.image_done.recv_timeout(limit) {
            Ok(done) => Ok(Some(done)),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Err(self.gone()),
        }
    }

    /// Waits for the end of a request on images.
    ///
    /// # Errors
    /// When the thread has ended, or the end does not come in time.
    pub fn wait_image(&mut self, id: ImageRequest) -> Result<ImageOutcome, Failure> {
        if let Some(outcome) = self.image_early.remove(&id) {
            return Ok(outcome);
        }
        let limit = self.patience.saturating_mul(2).saturating_add(WATCH_TIMEOUT);
        let deadline = Deadline::after(limit);
        loop {
            match self.image_done.recv_timeout(deadline.left()) {
                Ok(done) if done.id == id => return Ok(done.outcome),
                Ok(done) => drop(self.image_early.insert(done.id, done.outcome)),
                Err(RecvTimeoutError::Disconnected) => return Err(self.gone()),
                Err(RecvTimeoutError::Timeout) => {
                    let waits = self.call(|_, client| client.waiting())?;
                    let on = waits.first().map_or_else(
                        || "for nothing of the cluster".to_owned(),
                        |(_, waiting)| waiting.to_string(),
                    );
                    let why = format!("the time is over; the client waits {on}");
                    return Err(Failure::new("a request on an image", why));
                }
            }
        }
    }

    fn outcome(
        &mut self,
        f: impl FnOnce(Now, &mut Client, &mut client::image::Images) -> ImageRequest + Send + 'static,
    ) -> Result<ImageOutcome, ClientError> {
        let id = self.call_images(f).map_err(lost)?;
        self.wait_image(id).map_err(lost)
    }

    fn done(
        &mut self,
        f: impl FnOnce(Now, &mut Client, &mut client::image::Images) -> ImageRequest + Send + 'static,
    ) -> Result<(), ClientError> {
        match self.outcome(f)? {
            ImageOutcome::Done(result) => result,
            other => Err(unexpected(&other)),
        }
    }

    /// Opens an image.
    ///
    /// # Errors
    /// When it failed. So have all of these.
    pub fn open_image(&mut self, spec: OpenImage) -> Result<ImageId, ClientError> {
        match self.outcome(move |now, c, images| images.open(now, c, spec))? {
            ImageOutcome::Opened(result) => result,
            other => Err(unexpected(&other)),
        }
    }

    /// Makes an image; its id.
    ///
    /// # Errors
    /// See [`SyncClient::open_image`].
    pub fn create_image(&mut self, spec: CreateImage) -> Result<String, ClientError> {
        match self.outcome(move |now, c, images| images.create(now, c, spec))? {
            ImageOutcome::Created(result) => result,
            other => Err(unexpected(&other)),
        }
    }

    /// Makes a clone; its id.
    ///
    /// # Errors
    /// See [`SyncClient::open_image`].
    pub fn clone_image(&mut self, spec: CloneImage) -> Result<String, ClientError> {
        match self.outcome(move |now, c, images| images.clone_image(now, c, spec))? {
            ImageOutcome::Created(result) => result,
            other => Err(unexpected(&other)),
        }
    }

    /// Removes an image.
    ///
    /// # Errors
    /// See [`SyncClient::open_image`].
    pub fn remove_image(&mut self, spec: OpenImage) -> Result<(), ClientError> {
        self.done(move |now, c, images| images.remove(now, c, spec))
    }

    /// Closes an image.
    ///
    /// # Errors
    /// See [`SyncClient::open_image`].
    pub fn close_image(&mut self, image: ImageId) -> Result<(), ClientError> {
        self.done(move |now, c, images| images.close(now, c, image))
    }

    /// Changes an image as a whole.
    ///
    /// # Errors
    /// See [`SyncClient::open_image`].
    pub fn change_image(&mut self, image: ImageId, change: Change) -> Result<(), ClientError> {
        self.done(move |now, c, images| images.change(now, c, image, change))
    }

    /// What an image is like.
    ///
    /// # Errors
    /// When it is closed.
    pub fn image_info(&mut self, image: ImageId) -> Result<ImageInfo, ClientError> {
        let info = self.call_images(move |_, _, images| images.info(image)).map_err(lost)?;
        info.ok_or_else(|| client_error(Errno::EBADF, "an image", "it is closed"))
    }

    /// Reads.
    ///
    /// # Errors
    /// See [`SyncClient::open_image`].
    pub fn read_image(
        &mut self,
        image: ImageId,
        offset: u64,
        len: u64,
    ) -> Result<ReadData, ClientError> {
        let read = self.call_images(move |now, c, images| images.read(now, c, image, offset, len));
        match self.ended(read)? {
            ImageOutcome::Read(result) => result,
            other => Err(unexpected(&other)),
        }
    }

    /// Writes.
    ///
    /// # Errors
    /// See [`SyncClient::open_image`].
    pub fn write_image(
        &mut self,
        image: ImageId,
        offset: u64,
        data: impl Into<Bytes>,
    ) -> Result<(), ClientError> {
        let data = data.into();
        let f = move |now, c: &mut Client, images: &mut client::image::Images| {
            images.write(now, c, image, offset, data)
        };
        let written = self.call_images(f);
        match self.ended(written)? {
            ImageOutcome::Done(result) => result,
            other => Err(unexpected(&other)),
        }
    }

    /// Discards.
    ///
    /// # Errors
    /// See [`SyncClient::open_image`].
    pub fn discard_image(
        &mut self,
        image: ImageId,
        offset: u64,
        len: u64,
    ) -> Result<(), ClientError> {
        let f = move |now, c: &mut Client, images: &mut client::image::Images| {
            images.discard(now, c, image, offset, len)
        };
        let discarded = self.call_images(f);
        match self.ended(discarded)? {
            ImageOutcome::Done(result) => result,
            other => Err(unexpected(&other)),
        }
    }

    /// Waits for all writes submitted before.
    ///
    /// # Errors
    /// See [`SyncClient::open_image`].
    pub fn flush_image(&mut self, image: ImageId) -> Result<(), ClientError> {
        self.done(move |_, _, images| images.flush(image))
    }

    fn ended(
        &mut self,
        submitted: Result<Result<ImageRequest, ImageBusy>, Failure>,
    ) -> Result<ImageOutcome, ClientError> {
        let busy = |e: &dyn fmt::Display| client_error(Errno::EBUSY, "a request on an image", e);
        let id = submitted.map_err(lost)?.map_err(|e| busy(&e))?;
        self.wait_image(id).map_err(lost)
    }
}
