//! The life of OSDs: they boot, promise, wish, report, go down, are marked out.

mod auto_out;
mod boot;
mod creating;
mod down;
mod failure;
mod fences;
mod fullness;
mod identity;
mod register;
mod room;
mod silence;
mod slow_out;
mod tidy;
mod trim;
mod wishes;

pub(crate) use boot::{BootAnswer, FEATURES};
pub(crate) use failure::{Failure, WEIGH_AFTER};
pub(crate) use fullness::osds_that_are;
pub(crate) use identity::{GoneStore, Identities, StoreMark};
pub(crate) use register::{destroy, recreate, register, remove, rounded_tib};
pub(crate) use room::{Domain, Room};
pub(crate) use silence::Awaited;
