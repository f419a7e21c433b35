//! A text as it stands, before anything is looked up.

use super::Place;
use super::tokens::Token;
use crate::map::Op;

/// All parts of a text, in order within each kind.
#[derive(Default)]
pub(super) struct Ast<'a> {
    pub tunables: Vec<(Token<'a>, i32)>,
    pub devices: Vec<Device<'a>>,
    pub types: Vec<(i32, Token<'a>)>,
    pub buckets: Vec<BucketText<'a>>,
    pub rules: Vec<RuleText<'a>>,
    pub choose_args: Vec<ChooseArgsText>,
}

/// `device 0 osd.0 class hdd`
pub(super) struct Device<'a> {
    pub id: i32,
    pub name: Token<'a>,
    pub class: Option<Token<'a>>,
}

/// `host h0 { id -2 ... }`
pub(super) struct BucketText<'a> {
    pub kind: Token<'a>,
    pub name: Token<'a>,
    /// The id of the bucket, or of its shadow for a class.
    pub ids: Vec<(i32, Option<Token<'a>>)>,
    pub alg: Token<'a>,
    pub hash: u8,
    pub items: Vec<ItemText<'a>>,
}

/// `item osd.0 weight 1.000 pos 0`
pub(super) struct ItemText<'a> {
    pub name: Token<'a>,
    pub weight: Option<u32>,
    pub pos: Option<i32>,
}

/// `rule r { id 0 ... }`
pub(super) struct RuleText<'a> {
    pub place: Place,
    pub name: Option<Token<'a>>,
    pub id: i32,
    pub kind: u8,
    pub min_size: u8,
    pub max_size: u8,
    pub steps: Vec<StepText<'a>>,
}

/// `step ...`
pub(super) enum StepText<'a> {
    Take(Token<'a>, Option<Token<'a>>),
    Set(Op, i32),
    Choose(Op, i32, Token<'a>),
    Emit,
    Noop,
}

/// `choose_args 0 { ... }`
pub(super) struct ChooseArgsText {
    pub place: Place,
    pub id: i32,
    pub args: Vec<ChooseArgText>,
}

/// `{ bucket_id -1 weight_set [ ... ] ids [ ... ] }`
pub(super) struct ChooseArgText {
    pub place: Place,
    pub bucket: i32,
    pub weight_sets: Vec<Vec<u32>>,
    pub ids: Vec<i32>,
}
