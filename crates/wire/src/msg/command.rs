//! `ceph tell`: commands to a daemon, and to the mgr.

use super::{PRIORITY_DEFAULT, kind, payload};
use bytes::Bytes;
use denc::{Decode, Encode};
use types::Uuid;

macro_rules! command {
    ($name:ident, $kind:expr, $reply:ident, $reply_kind:expr, $doc:literal) => {
        #[doc = concat!($doc, ": `fsid, vec<str> cmd`; data = input.")]
        #[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
        pub struct $name {
            /// The cluster it is meant for.
            pub fsid: Uuid,
            /// One element: the command as JSON.
            pub cmd: Vec<String>,
            /// Input.
            #[denc(skip)]
            pub data: Bytes,
        }

        payload!($name, $kind, 1 / 1, PRIORITY_DEFAULT, data = data);

        #[doc = concat!("The answer to [`", stringify!($name), "`]: `i32 r, str outs`; data = output.")]
        #[derive(Clone, Debug, Default, PartialEq, Eq, Encode, Decode)]
        pub struct $reply {
            /// 0 or more, or a negative error number.
            pub result: i32,
            /// For people.
            pub outs: String,
            /// Output.
            #[denc(skip)]
            pub data: Bytes,
        }

        payload!($reply, $reply_kind, 1 / 1, PRIORITY_DEFAULT, data = data);
    };
}

command!(MCommand, kind::COMMAND, MCommandReply, kind::COMMAND_REPLY, "MCommand (97)");
command!(
    MMgrCommand,
    kind::MGR_COMMAND,
    MMgrCommandReply,
    kind::MGR_COMMAND_REPLY,
    "MMgrCommand (0x709)"
);
