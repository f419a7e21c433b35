//! The runner against the real kernel: every promise of crate `io`.
#![allow(clippy::unwrap_used)]

mod disk;
mod net;

use io::{AlignedBuf, Core, Effects, Event, Now};
use std::time::Duration;
use types::Mono;

/// A core made of a closure, with a deadline after which the test has failed.
struct Script<F: FnMut(Now, Event, &mut Effects)> {
    step: F,
    deadline: Mono,
}

impl<F: FnMut(Now, Event, &mut Effects)> Core for Script<F> {
    fn handle(&mut self, now: Now, event: Event, fx: &mut Effects) {
        if matches!(event, Event::Timer) && now.mono >= self.deadline {
            fx.exit(99, "nothing happened for too long");
            return;
        }
        (self.step)(now, event, fx);
    }

    fn end_turn(&mut self, _: Now, _: &mut Effects) {}

    fn next_deadline(&self) -> Option<Mono> {
        Some(self.deadline)
    }
}

/// Runs a closure as a core and demands an orderly end.
pub fn run(devices: Vec<uring::Device>, step: impl FnMut(Now, Event, &mut Effects)) {
    run_with(devices, false, step);
}

fn run_with(
    devices: Vec<uring::Device>,
    handle_signals: bool,
    step: impl FnMut(Now, Event, &mut Effects),
) {
    let deadline = Mono::default().after(Duration::from_secs(20));
    let mut core = Script { step, deadline };
    let options = uring::Options { handle_signals, ..uring::Options::default() };
    let exit = uring::run(&mut core, devices, None, &options).unwrap();
    assert_eq!(exit.code, 0, "{}", exit.why);
}

/// For a test of something that is the whole process's: whether this is a process of its own. If not, the test has run in
/// one by now, and is over.
pub fn is_own_process(test: &str) -> bool {
    const CHILD: &str = "URING_TEST_ALONE";
    let alone = std::env::var_os(CHILD).is_some();
    if !alone {
        let mut child = std::process::Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", test]).env(CHILD, "1");
        assert!(child.status().unwrap().success());
    }
    alone
}

#[test]
fn the_core_is_told_what_the_process_takes() {
    run(Vec::new(), |_, event, fx| {
        if let Event::Memory(memory) = event {
            assert!((1 << 20..1 << 36).contains(&memory.resident), "{memory:?}");
            fx.exit(0, "told");
        }
    });
}

/// It is told at once when buffers are many more, not a second later.
#[test]
fn the_core_is_told_of_more_buffers() {
    let (mut held, mut last) = (Vec::new(), None);
    run(Vec::new(), move |now, event, fx| {
        let Event::Memory(memory) = event else { return };
        let bytes = 8 << 20;
        if let Some((then, buffers)) = last.replace((now.mono, memory.buffers)) {
            assert!(memory.buffers >= buffers + bytes, "{memory:?} after {buffers}");
            if now.mono.since(then) < Duration::from_millis(900) {
                fx.exit(0, "told");
            }
        }
        held.push(AlignedBuf::zeroed(bytes as usize));
        // So that there is another turn.
        fx.connect(([127, 0, 0, 1], 1).into());
    });
}

/// Somebody wants the end of a daemon that is just starting again.
#[test]
fn a_signal_between_two_runs_is_heard_by_the_second() {
    // It is the process that is to end.
    if !is_own_process("a_signal_between_two_runs_is_heard_by_the_second") {
        return;
    }
    let life = |wanted: fn(&Event) -> bool| {
        run_with(Vec::new(), true, move |_, event, fx| {
            if wanted(&event) {
                fx.exit(0, "as it should be");
            }
        });
    };
    life(|event| matches!(event, Event::Start));
    assert!(!uring::is_stop_wanted());
    let me = rustix::process::getpid();
    rustix::process::kill_process(me, rustix::process::Signal::TERM).unwrap();
    // Another thread may be the one that gets it.
    while !uring::is_stop_wanted() {
        std::thread::yield_now();
    }
    life(|event| matches!(event, Event::Stop));
}
