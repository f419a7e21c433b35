//! Class `rbd`: everything about block images that is not their data (guide §6.3).

mod bit_vector;
mod children;
mod data;
mod directory;
mod group;
mod header;
mod metadata;
mod migration;
mod mirror;
mod namespace;
mod object_map;
mod old;
mod parent;
mod snapshot;
#[cfg(test)]
mod tests;
mod trash;
mod types;

use crate::{Method, Run};

const fn read(name: &'static str, run: Run) -> Method {
    Method::read("rbd", name, run)
}

const fn write(name: &'static str, run: Run) -> Method {
    Method::write("rbd", name, run)
}

/// The methods.
pub const METHODS: &[Method] = &[
    write("create", header::create),
    read("get_features", header::get_features),
    write("set_features", header::set_features),
    read("get_all_features", header::get_all_features),
    read("get_size", header::get_size),
    write("set_size", header::set_size),
    read("get_object_prefix", header::get_object_prefix),
    read("get_data_pool", header::get_data_pool),
    read("get_stripe_unit_count", header::get_stripe_unit_count),
    write("set_stripe_unit_count", header::set_stripe_unit_count),
    read("get_create_timestamp", header::get_create_timestamp),
    read("get_access_timestamp", header::get_access_timestamp),
    read("get_modify_timestamp", header::get_modify_timestamp),
    write("set_access_timestamp", header::set_access_timestamp),
    write("set_modify_timestamp", header::set_modify_timestamp),
    read("get_flags", header::get_flags),
    write("set_flags", header::set_flags),
    read("op_features_get", header::op_features_get),
    write("op_features_set", header::op_features_set),
    read("get_snapcontext", snapshot::get_snapcontext),
    read("get_snapshot_name", snapshot::get_snapshot_name),
    read("get_snapshot_timestamp", snapshot::get_snapshot_timestamp),
    read("snapshot_get", snapshot::snapshot_get),
    write("snapshot_add", snapshot::snapshot_add),
    write("snapshot_rename", snapshot::snapshot_rename),
    write("snapshot_remove", snapshot::snapshot_remove),
    write("snapshot_trash_add", snapshot::snapshot_trash_add),
    read("snapshot_get_limit", snapshot::snapshot_get_limit),
    write("snapshot_set_limit", snapshot::snapshot_set_limit),
    read("get_protection_status", snapshot::get_protection_status),
    write("set_protection_status", snapshot::set_protection_status),
    read("parent_get", parent::parent_get),
    read("parent_overlap_get", parent::parent_overlap_get),
    write("parent_attach", parent::parent_attach),
    write("parent_detach", parent::parent_detach),
    read("get_parent", parent::get_parent),
    write("set_parent", parent::set_parent),
    write("remove_parent", parent::remove_parent),
    write("child_attach", children::child_attach),
    write("child_detach", children::child_detach),
    read("children_list", children::children_list),
    write("add_child", children::add_child),
    write("remove_child", children::remove_child),
    read("get_children", children::get_children),
    read("get_id", directory::get_id),
    write("set_id", directory::set_id),
    read("dir_get_id", directory::dir_get_id),
    read("dir_get_name", directory::dir_get_name),
    read("dir_list", directory::dir_list),
    write("dir_add_image", directory::dir_add_image),
    write("dir_remove_image", directory::dir_remove_image),
    write("dir_rename_image", directory::dir_rename_image),
    read("dir_state_assert", directory::dir_state_assert),
    write("dir_state_set", directory::dir_state_set),
    read("object_map_load", object_map::object_map_load),
    write("object_map_save", object_map::object_map_save),
    write("object_map_resize", object_map::object_map_resize),
    write("object_map_update", object_map::object_map_update),
    write("object_map_snap_add", object_map::object_map_snap_add),
    write("object_map_snap_remove", object_map::object_map_snap_remove),
    write("copyup", data::copyup),
    write("sparse_copyup", data::sparse_copyup),
    write("sparsify", data::sparsify),
    write("assert_snapc_seq", data::assert_snapc_seq),
    read("metadata_list", metadata::metadata_list),
    read("metadata_get", metadata::metadata_get),
    write("metadata_set", metadata::metadata_set),
    write("metadata_remove", metadata::metadata_remove),
    write("trash_add", trash::trash_add),
    write("trash_remove", trash::trash_remove),
    read("trash_get", trash::trash_get),
    read("trash_list", trash::trash_list),
    write("trash_state_set", trash::trash_state_set),
    write("namespace_add", namespace::namespace_add),
    write("namespace_remove", namespace::namespace_remove),
    read("namespace_list", namespace::namespace_list),
    read("group_dir_list", directory::dir_list),
    write("group_dir_add", directory::dir_add_image),
    write("group_dir_remove", directory::dir_remove_image),
    write("group_dir_rename", directory::dir_rename_image),
    write("group_image_set", group::group_image_set),
    write("group_image_remove", group::group_image_remove),
    read("group_image_list", group::group_image_list),
    write("image_group_add", group::image_group_add),
    write("image_group_remove", group::image_group_remove),
    read("image_group_get", group::image_group_get),
    write("group_snap_set", group::group_snap_set),
    write("group_snap_remove", group::group_snap_remove),
    read("group_snap_get_by_id", group::group_snap_get_by_id),
    read("group_snap_list", group::group_snap_list),
    write("migration_set", migration::migration_set),
    write("migration_set_state", migration::migration_set_state),
    read("migration_get", migration::migration_get),
    write("migration_remove", migration::migration_remove),
    read("snap_list", old::snap_list),
    write("snap_add", old::snap_add),
    write("snap_remove", old::snap_remove),
    write("snap_rename", old::snap_rename),
    read("mirror_uuid_get", mirror::mirror_uuid_get),
    write("mirror_uuid_set", mirror::mirror_uuid_set),
    read("mirror_mode_get", mirror::mirror_mode_get),
    write("mirror_mode_set", mirror::mirror_mode_set),
    write("mirror_peer_ping", mirror::peer::mirror_peer_ping),
    read("mirror_peer_list", mirror::peer::mirror_peer_list),
    write("mirror_peer_add", mirror::peer::mirror_peer_add),
    write("mirror_peer_remove", mirror::peer::mirror_peer_remove),
    write("mirror_peer_set_client", mirror::peer::mirror_peer_set_client),
    write("mirror_peer_set_cluster", mirror::peer::mirror_peer_set_cluster),
    write("mirror_peer_set_direction", mirror::peer::mirror_peer_set_direction),
    read("mirror_image_list", mirror::image::mirror_image_list),
    read("mirror_image_get_image_id", mirror::image::mirror_image_get_image_id),
    read("mirror_image_get", mirror::image::mirror_image_get),
    write("mirror_image_set", mirror::image::mirror_image_set),
    write("mirror_image_remove", mirror::image::mirror_image_remove),
    write("mirror_image_status_set", mirror::status::mirror_image_status_set),
    write("mirror_image_status_remove", mirror::status::mirror_image_status_remove),
    read("mirror_image_status_get", mirror::status::mirror_image_status_get),
    read("mirror_image_status_list", mirror::status::mirror_image_status_list),
    read("mirror_image_status_get_summary", mirror::status::mirror_image_status_get_summary),
    write("mirror_image_status_remove_down", mirror::status::mirror_image_status_remove_down),
    read("mirror_image_instance_get", mirror::status::mirror_image_instance_get),
    read("mirror_image_instance_list", mirror::status::mirror_image_instance_list),
    read("mirror_instances_list", mirror::mirror_instances_list),
    write("mirror_instances_add", mirror::mirror_instances_add),
    write("mirror_instances_remove", mirror::mirror_instances_remove),
    read("mirror_image_map_list", mirror::image::mirror_image_map_list),
    write("mirror_image_map_update", mirror::image::mirror_image_map_update),
    write("mirror_image_map_remove", mirror::image::mirror_image_map_remove),
    write("mirror_image_snapshot_unlink_peer", mirror::image::mirror_image_snapshot_unlink_peer),
    write(
        "mirror_image_snapshot_set_copy_progress",
        mirror::image::mirror_image_snapshot_set_copy_progress,
    ),
];
