//! A core that a scenario can reach into.

use io::{Core, Effects, Event, Now};
use std::cell::RefCell;
use std::rc::Rc;
use types::Mono;

/// Runs a core that somebody else holds too.
#[derive(Debug)]
pub struct Shared<T>(pub Rc<RefCell<T>>);

impl<T: Core> Core for Shared<T> {
    fn handle(&mut self, now: Now, event: Event, fx: &mut Effects) {
        self.0.borrow_mut().handle(now, event, fx);
    }
    fn end_turn(&mut self, now: Now, fx: &mut Effects) {
        self.0.borrow_mut().end_turn(now, fx);
    }
    fn next_deadline(&self) -> Option<Mono> {
        self.0.borrow().next_deadline()
    }
}
