//! What the mon does as a client of its own cluster: it looks at images before a command is carried out, and works
//! on them in the background.

use super::messages::From;
use super::{Input, Server};
use crate::commands::{Call, Handler};
use crate::images::Place;
use crate::log::Speaker;
use crate::tasks::{Action, Answer, Job, Lane, Question, TaskRecord, Worked, Worker};
use bytes::Bytes;
use client::image::OpenImage;
use io::{Effects, Now};
use types::PoolId;

/// Who waits for an answer.
#[derive(Debug)]
pub(super) enum Waiting {
    /// A command.
    Command(From, String),
    /// Who wants to know how images are called.
    Names(Place),
    /// The schedules, for a pool's namespaces.
    Schedules(PoolId),
}

impl Server {
    /// Has something looked at.
    pub(super) fn ask_worker(&mut self, now: Now, waiting: Waiting, question: Question) {
        self.last_question += 1;
        let number = self.last_question;
        self.questions.insert(number, waiting);
        self.worker(now).ask(now, number, question);
    }

    /// It stays when it has nothing to do: others may come.
    fn worker(&mut self, now: Now) -> &mut Worker {
        let (addrs, rng) = (&self.cluster.addrs, &mut self.cluster.rng);
        self.worker.get_or_insert_with(|| Worker::new(now, addrs.clone(), rng))
    }

    /// The worker's turn.
    pub(super) fn tick_worker(&mut self, now: Now, fx: &mut Effects) {
        let Some(worker) = &mut self.worker else { return };
        worker.tick(now, fx);
        if let Some(far) = worker.progress(Lane::Task) {
            self.cluster.tasks.set_progress(far);
        }
        while let Some(worked) = self.worker.as_mut().and_then(Worker::poll) {
            self.input(now, Input::Worked(worked));
        }
    }

    /// Begins what is due, stops what nobody wants.
    pub(super) fn work(&mut self, now: Now) {
        if self.cluster.must_stop_task()
            && let Some(worker) = &mut self.worker
        {
            worker.cancel(Lane::Task);
        }
        while let Some((number, task)) = self.cluster.tasks.due(now) {
            match self.cluster.map().pool_by_name(&task.pool) {
                Some(pool) => {
                    let job = job_of(pool, task);
                    self.cluster.tasks.begin(now, number);
                    self.worker(now).begin(now, Lane::Task, job);
                }
                None => self.cluster.drop_task(now, number),
            }
        }
        for pool in self.cluster.pools_to_ask(now) {
            self.ask_worker(now, Waiting::Schedules(pool), Question::Namespaces(pool));
        }
        if let Some((pool, nspace)) = self.cluster.begin_purge(now) {
            self.worker(now).begin(now, Lane::Purge, Job::Purge(pool, nspace));
        }
    }

    pub(super) fn on_worked(&mut self, now: Now, worked: Worked) {
        match worked {
            Worked::Ended(Lane::Task, result) => self.cluster.task_ended(now, result),
            Worked::Ended(Lane::Purge, result) => self.cluster.purge_ended(now, result),
            Worked::Answered(number, answer) => match self.questions.remove(&number) {
                Some(Waiting::Command(from, text)) => self.carry_out(now, &from, &text, &answer),
                Some(Waiting::Names(place)) => {
                    let names = answer.map(|found| found.names).ok();
                    self.cluster.images.names_read(now.mono, &place, names);
                }
                Some(Waiting::Schedules(pool)) => match answer {
                    Ok(found) => self.cluster.found_namespaces(now, pool, &found.namespaces),
                    Err(error) => tracing::warn!("namespaces of pool {pool}: {error}"),
                },
                None => {}
            },
        }
    }

    /// A command goes on.
    fn carry_out(&mut self, now: Now, from: &From, text: &str, answer: &Answer) {
        let Ok((spec, args)) = self.table.parse(text) else { return };
        let Handler::Look(_, then) = spec.def.handler else { return };
        let format = args.format();
        let call = Call { now, args, input: Bytes::new(), from: Speaker::default() };
        let reply = then(&mut self.cluster, &call, answer);
        self.answer(from, text, format, reply);
    }
}

/// An image by name and id: an attempt may come days after the order, when the name is another image's.
fn job_of(pool: PoolId, task: &TaskRecord) -> Job {
    let image = || {
        OpenImage::this(pool, &task.image_name, &task.image_id).in_namespace(task.nspace.as_str())
    };
    match task.action {
        Action::Flatten => Job::Flatten(image()),
        Action::Remove => Job::Remove(image()),
        Action::TrashRemove => Job::TrashRemove(pool, task.nspace.clone(), task.image_id.clone()),
    }
}
