//! Making images and clones (`image/CreateRequest.cc`, `image/CloneRequest.cc`).

use super::format::{ChildSpec, PROTECTED, ParentSpec, feature, header_name, map_name};
use super::header::{At, close, open};
use super::layout::{Layout, MAX_IMAGE_BYTES};
use super::lock::NOTIFY_S;
use super::notice::Notice;
use super::script::{Desk, unless_missing};
use super::{CloneFormat, CloneImage, CreateImage, OpenImage};
use crate::error::ClientError;
use crate::op::{Object, ObjectOp};
use bytes::Bytes;
use std::collections::BTreeMap;
use types::{Errno, SnapId};

/// Features an image can be made with.
const CREATABLE: u64 = feature::LAYERING
    | feature::STRIPING
    | feature::EXCLUSIVE_LOCK
    | feature::OBJECT_MAP
    | feature::FAST_DIFF
    | feature::DEEP_FLATTEN
    | feature::DATA_POOL;
/// Op feature: the image is a clone of format 2.
const CLONE_CHILD: u64 = 2;

fn refuse(spec: &CreateImage, why: &'static str) -> ClientError {
    ClientError::new(Errno::EINVAL, format!("creating image {}", spec.name), why)
}

fn call(object: Object, method: &str, input: impl denc::Encode) -> ObjectOp {
    ObjectOp::new(object).call("rbd", method, denc::encode(&input)).as_write()
}

/// The features as they will be, and the layout.
fn check(spec: &CreateImage) -> Result<(u64, Layout), ClientError> {
    let whole = 1u64.checked_shl(spec.order.into()).unwrap_or(0);
    let (unit, count) = (spec.stripe_unit.unwrap_or(whole), spec.stripe_count.unwrap_or(1));
    let layout = Layout::new(spec.order, unit, count)
        .ok_or_else(|| refuse(spec, "order, stripe unit and stripe count do not fit together"))?;
    let mut features = spec.features;
    let striped = (unit, count) != (whole, 1);
    let set = |features: u64, bit: u64, on: bool| if on { features | bit } else { features & !bit };
    features = set(features, feature::STRIPING, striped);
    features = set(features, feature::DATA_POOL, spec.data_pool.is_some());
    let has = |bit| features & bit != 0;
    if spec.name.is_empty() || spec.name.contains(['/', '@']) {
        return Err(refuse(spec, "a name has no '/' and no '@', and is not empty"));
    }
    if features & !CREATABLE != 0 {
        return Err(refuse(spec, "such features are not supported"));
    }
    if has(feature::FAST_DIFF) && !has(feature::OBJECT_MAP)
        || has(feature::OBJECT_MAP) && !has(feature::EXCLUSIVE_LOCK)
    {
        return Err(refuse(spec, "fast-diff needs object-map, which needs exclusive-lock"));
    }
    if spec.size > MAX_IMAGE_BYTES {
        return Err(refuse(spec, "an image cannot be that large"));
    }
    Ok((features, layout))
}

/// Makes an image; its id.
pub async fn create(desk: &Desk, spec: &CreateImage) -> Result<String, ClientError> {
    let (features, layout) = check(spec)?;
    let object = |name: String| Object::new(spec.pool, name).in_namespace(spec.nspace.clone());
    let id = desk.with(|s| format!("{:x}{:08x}", s.gid, s.rng.u32(..)));
    let id_object = object(format!("rbd_id.{}", spec.name));
    let taken = || {
        let what = format!("creating image {}", spec.name);
        ClientError::new(Errno::EEXIST, what, "there is one of that name")
    };
    for there in [object(format!("{}.rbd", spec.name)), id_object.clone()] {
        match desk.op(ObjectOp::new(there).stat()).await {
            Ok(_) => return Err(taken()),
            Err(e) if e.errno == Errno::ENOENT => {}
            Err(e) => return Err(e),
        }
    }
    // Of all that want the name, whoever makes this has it.
    let named = ObjectOp::new(id_object).create(true).call("rbd", "set_id", denc::encode(&id));
    let made = match desk.op(named.as_write()).await {
        Ok(_) => create_objects(desk, spec, &id, features, &layout).await,
        Err(e) if e.errno == Errno::EEXIST => return Err(taken()),
        Err(e) => Err(e),
    };
    if made.is_err() {
        undo(desk, spec, &id).await;
    }
    made.map(|()| id)
}

/// Removes what was made of an image, or may have been, and nothing of others.
async fn undo(desk: &Desk, spec: &CreateImage, id: &str) {
    let object = |name: String| Object::new(spec.pool, name).in_namespace(spec.nspace.clone());
    for left in [map_name(id, SnapId::HEAD), header_name(id)] {
        let _ = desk.op(ObjectOp::new(object(left)).remove()).await;
    }
    let directory = object("rbd_directory".to_owned());
    let _ = desk.op(call(directory, "dir_remove_image", (&spec.name, id))).await;
    let id_object = object(format!("rbd_id.{}", spec.name));
    let named = desk.op(ObjectOp::new(id_object.clone()).call("rbd", "get_id", "")).await;
    if named.and_then(|reply| reply.get::<String>(0)).is_ok_and(|named| named == id) {
        let _ = desk.op(ObjectOp::new(id_object).remove()).await;
    }
}

/// Makes all but what says which id the name has.
async fn create_objects(
    desk: &Desk,
    spec: &CreateImage,
    id: &str,
    features: u64,
    layout: &Layout,
) -> Result<(), ClientError> {
    let object = |name: String| Object::new(spec.pool, name).in_namespace(spec.nspace.clone());
    let mut add = ObjectOp::new(object("rbd_directory".to_owned()));
    if !spec.nspace.is_empty() {
        // The namespace must be there.
        add = add.call("rbd", "dir_state_assert", denc::encode(&0u8));
    }
    let add = add.call("rbd", "dir_add_image", denc::encode(&(&spec.name, id)));
    desk.op(add.as_write()).await?;
    let (prefix, data_pool) = match spec.data_pool {
        Some(pool) => (format!("rbd_data.{}.{id}", spec.pool.0), pool.0),
        None => (format!("rbd_data.{id}"), -1),
    };
    let header = object(header_name(id));
    let input = denc::encode(&((spec.size, spec.order, features), (&prefix, data_pool)));
    let made = ObjectOp::new(header.clone()).create(true).call("rbd", "create", input);
    desk.op(made.as_write()).await?;
    if features & feature::STRIPING != 0 {
        let whole = layout.object_bytes();
        let (unit, count) = (spec.stripe_unit.unwrap_or(whole), spec.stripe_count.unwrap_or(1));
        desk.op(call(header, "set_stripe_unit_count", (unit, count))).await?;
    }
    if features & feature::OBJECT_MAP != 0 {
        let map = object(map_name(id, SnapId::HEAD));
        let objects = layout.objects(spec.size);
        desk.op(call(map, "object_map_resize", (objects, 0u8))).await?;
    }
    Ok(())
}

/// Makes an image that shows a snapshot of another until it is written; its id.
pub async fn clone(desk: &Desk, spec: &CloneImage) -> Result<String, ClientError> {
    let parent = OpenImage { read_only: true, ..spec.parent.clone() };
    let Some(snap) = parent.snap.clone() else {
        return Err(refuse(&spec.child, "only a snapshot can be cloned"));
    };
    let slot = open(desk, parent, At::Name(snap), 0).await?;
    let result = clone_of(desk, spec, slot).await;
    close(desk, slot).await;
    result
}

async fn clone_of(desk: &Desk, spec: &CloneImage, slot: usize) -> Result<String, ClientError> {
    let (parent, size, protected, layering, header) = desk.with(|s| {
        let image = s.image(slot);
        let snap = image.snap.unwrap_or(SnapId::HEAD);
        let protected = image.head.snap(snap).is_some_and(|s| s.protection == PROTECTED);
        let (pool, nspace, image_id) = (image.pool, image.nspace.clone(), image.id.clone());
        let layering = image.head.has(feature::LAYERING);
        let parent = ParentSpec { pool, nspace, image_id, snap };
        (parent, image.size(), protected, layering, image.header())
    });
    if !layering || spec.child.features & feature::LAYERING == 0 {
        return Err(refuse(&spec.child, "clone and parent must have the feature layering"));
    }
    if spec.format == CloneFormat::V1 && !protected {
        return Err(refuse(&spec.child, "the snapshot is not protected"));
    }
    let child = CreateImage { size, ..spec.child.clone() };
    let id = create(desk, &child).await?;
    let attached = attach(desk, &child, &id, &parent, size, spec.format, header).await;
    if let Err(error) = attached {
        let left = OpenImage::by_id(child.pool, &id).in_namespace(child.nspace.clone());
        if let Err(e) = super::remove::remove(desk, left).await {
            tracing::warn!(error = %e, "a clone that failed is left");
        }
        return Err(error);
    }
    Ok(id)
}

async fn attach(
    desk: &Desk,
    child: &CreateImage,
    id: &str,
    parent: &ParentSpec,
    overlap: u64,
    format: CloneFormat,
    parent_header: Object,
) -> Result<(), ClientError> {
    let object = |name: String| Object::new(child.pool, name).in_namespace(child.nspace.clone());
    let header = object(header_name(id));
    if overlap > 0 {
        desk.op(call(header.clone(), "parent_attach", (parent, overlap, false))).await?;
        match format {
            CloneFormat::V1 => {
                let pool = parent.pool.0 as u64;
                let input = (((pool, &parent.image_id), parent.snap), id);
                desk.op(call(object("rbd_children".to_owned()), "add_child", input)).await?;
                // Who lets it be removed looks for clones after it says so: one of us sees the other.
                still_protected(desk, child, &parent_header, parent.snap).await?;
            }
            CloneFormat::V2 => {
                let set = call(header.clone(), "op_features_set", (CLONE_CHILD, CLONE_CHILD));
                desk.op(set).await?;
                let nspace = child.nspace.clone();
                let spec = ChildSpec { pool: child.pool, image_id: id.to_owned(), nspace };
                let op = call(parent_header.clone(), "child_attach", (parent.snap, &spec));
                desk.op(op).await?;
            }
        }
    }
    copy_metadata(desk, &parent_header, header).await?;
    let told = Notice::HeaderUpdate.encode();
    let _ = desk.notify(parent_header, told, NOTIFY_S).await;
    Ok(())
}

async fn still_protected(
    desk: &Desk,
    child: &CreateImage,
    parent_header: &Object,
    snap: SnapId,
) -> Result<(), ClientError> {
    let op = ObjectOp::new(parent_header.clone());
    let op = op.call("rbd", "get_protection_status", denc::encode(&snap));
    match desk.op(op).await?.get::<u8>(0)? {
        PROTECTED => Ok(()),
        _ => Err(refuse(child, "the snapshot is not protected any more")),
    }
}

/// What users have noted about the parent (`rbd image-meta`) is noted about the clone.
async fn copy_metadata(desk: &Desk, from: &Object, to: Object) -> Result<(), ClientError> {
    const PAGE: u64 = 64;
    let mut after = String::new();
    loop {
        let list = ObjectOp::new(from.clone());
        let list = list.call("rbd", "metadata_list", denc::encode(&(&after, PAGE)));
        let reply = unless_missing(desk.op(list).await.map(Some))?;
        let Some(reply) = reply else { return Ok(()) };
        let page: BTreeMap<String, Bytes> = reply.get(0)?;
        let Some(last) = page.keys().next_back() else { return Ok(()) };
        after = last.clone();
        desk.op(call(to.clone(), "metadata_set", &page)).await?;
        if (page.len() as u64) < PAGE {
            return Ok(());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::format::UNPROTECTING;
    use super::super::stage::{End, Stage};
    use super::*;
    use types::PoolId;

    /// An image "x" is being made, and by what was asked first there is none of that name.
    fn creating() -> (Stage, End<Result<String, ClientError>>) {
        let mut stage = Stage::new();
        let spec = CreateImage::new(PoolId(1), "x", 4 << 22);
        let made = stage.script(|desk| async move { create(&desk, &spec).await });
        for old in ["x.rbd: ", "rbd_id.x: "] {
            let looked = stage.take(old);
            stage.fail(looked, Errno::ENOENT);
        }
        (stage, made)
    }

    /// Another client makes one of the same name, and was faster; or it is not known whose the name is.
    #[test]
    fn a_name_that_another_image_has_stays_its() {
        for is_known in [true, false] {
            let (mut stage, made) = creating();
            let named = stage.until("rbd_id.x: CREATE+rbd.set_id");
            match is_known {
                true => stage.fail(named, Errno::EEXIST),
                false => stage.give_up(named, Errno::ETIMEDOUT),
            }
            while let Some(asked) = stage.asked.pop_front() {
                assert!(!asked.text.starts_with("rbd_id.x: DELETE"), "{asked:?}");
                stage.ok(asked);
            }
            let errno = if is_known { Errno::EEXIST } else { Errno::ETIMEDOUT };
            assert_eq!(made.take().unwrap().unwrap_err().errno, errno);
        }
    }

    /// The name is its own, and free again afterwards.
    #[test]
    fn of_an_image_that_cannot_be_made_nothing_is_left() {
        let (mut stage, made) = creating();
        let header = stage.until("CREATE+rbd.create");
        let id = header.text.trim_start_matches("rbd_header.").split(':').next().unwrap();
        stage.answers.push(("rbd.get_id", denc::encode(id)));
        stage.fail(header, Errno::ENOSPC);
        let mut left =
            vec!["rbd_object_map.", "rbd_header.", "rbd_directory: ", "rbd_id.x: DELETE"];
        while let Some(asked) = stage.asked.pop_front() {
            left.retain(|part| !asked.text.starts_with(part));
            stage.ok(asked);
        }
        assert_eq!(left, Vec::<&str>::new());
        assert_eq!(made.take().unwrap().unwrap_err().errno, Errno::ENOSPC);
    }

    #[test]
    fn a_snapshot_that_is_not_protected_any_more_gets_no_clone_of_format_1() {
        for (protection, errno) in [(PROTECTED, None), (UNPROTECTING, Some(Errno::EINVAL))] {
            let mut stage = Stage::new();
            let child = CreateImage::new(PoolId(1), "y", 0);
            let parent_header = Object::new(PoolId(1), "rbd_header.1");
            let parent = ParentSpec {
                pool: PoolId(1),
                nspace: Default::default(),
                image_id: "1".to_owned(),
                snap: SnapId(1),
            };
            stage.answers.push(("rbd.get_protection_status", denc::encode(&protection)));
            stage
                .answers
                .push(("rbd.metadata_list", denc::encode(&BTreeMap::<String, Bytes>::new())));
            let attached = stage.script(|desk| async move {
                attach(&desk, &child, "2", &parent, 1, CloneFormat::V1, parent_header).await
            });
            let add = stage.until("rbd_children: rbd.add_child");
            assert!(!stage.is_asked("rbd.get_protection_status"));
            stage.ok(add);
            stage.serve();
            assert_eq!(attached.take().unwrap().err().map(|e| e.errno), errno);
        }
    }
}
