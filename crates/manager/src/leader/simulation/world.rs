//! Processes, a store and a network between them, run through a scenario event by event.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BinaryHeap},
    net::SocketAddr,
};

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};

use super::machine::{Machine, RESTART, Time};
use super::scenario::{Claim, Fate, Fault, Scenario};
use crate::leader::{
    candidate::{Candidate, Inquiry, Step},
    clock::Moment,
};

/// How long it takes to be refused.
const INQUIRY: Time = 200_000;
/// How soon others see a connection end.
const BREAKS: Time = 1_000;

#[derive(Debug)]
enum Event {
    Start(usize),
    Wake { process: usize, turn: u64 },
    Arrive { process: usize, request: u64, body: Option<Box<Lease>>, fate: Fate },
    Answer { process: usize, request: u64, answer: Answer },
    Timeout { process: usize, request: u64 },
    Watched { process: usize, lease: Box<Lease> },
    Doubted(usize),
    Asked { process: usize, inquiry: Box<Inquiry> },
    Fault(usize, Fault),
}

#[derive(Clone, Debug)]
enum Answer {
    Read(Option<Box<Lease>>),
    Stored(Box<Lease>),
    Conflict,
}

struct Process {
    machine: usize,
    candidate: Candidate,
    alive: bool,
    /// Number of the request under way, and when it was sent.
    under_way: Option<(u64, Moment)>,
    /// Wake-ups of earlier turns are void.
    turn: u64,
    asking: bool,
}

pub(super) struct World {
    scenario: Scenario,
    machines: Vec<Machine>,
    processes: Vec<Process>,
    frozen_until: Vec<Time>,
    cut_until: Vec<Time>,
    store: Option<Lease>,
    version: u64,
    requests: u64,
    queue: BinaryHeap<Reverse<(Time, u64)>>,
    events: BTreeMap<u64, Event>,
    scheduled: u64,
    claims: Vec<Claim>,
}

impl World {
    pub(super) fn run(scenario: &Scenario) -> Vec<Claim> {
        let count = scenario.machines.len();
        let mut world = Self {
            machines: scenario.machines.clone(),
            processes: Vec::new(),
            frozen_until: vec![0; count],
            cut_until: vec![0; count],
            store: None,
            version: 1,
            requests: 0,
            queue: BinaryHeap::new(),
            events: BTreeMap::new(),
            scheduled: 0,
            claims: Vec::new(),
            scenario: scenario.clone(),
        };
        if let Some(holder) = scenario.stored {
            let mut lease = Lease::default();
            lease.metadata.resource_version = Some("1".to_owned());
            lease.spec = Some(LeaseSpec {
                holder_identity: Some(holder.to_owned()),
                lease_duration_seconds: i32::try_from(scenario.timing.whole_seconds()).ok(),
                renew_time: Some(MicroTime(world.machines[0].wall(0))),
                ..LeaseSpec::default()
            });
            world.store = Some(lease);
        }
        for (machine, start) in scenario.starts.iter().enumerate() {
            world.schedule(*start, Event::Start(machine));
        }
        for (time, machine, fault) in &scenario.faults {
            world.schedule(*time, Event::Fault(machine % count, fault.clone()));
        }
        while let Some(Reverse((time, id))) = world.queue.pop() {
            if time > scenario.end {
                break;
            }
            let event = world.events.remove(&id).expect("each is queued once");
            world.handle(time, event);
        }
        for claim in &mut world.claims {
            claim.to = claim.to.min(scenario.end);
        }
        world.claims
    }

    fn schedule(&mut self, time: Time, event: Event) {
        self.scheduled += 1;
        self.queue.push(Reverse((time, self.scheduled)));
        self.events.insert(self.scheduled, event);
    }

    fn handle(&mut self, time: Time, event: Event) {
        // What a frozen process should do, it does when it thaws, in the order in which it came.
        let process = match &event {
            Event::Wake { process, .. }
            | Event::Answer { process, .. }
            | Event::Timeout { process, .. }
            | Event::Watched { process, .. }
            | Event::Asked { process, .. }
            | Event::Doubted(process) => Some(*process),
            Event::Start(_) | Event::Arrive { .. } | Event::Fault(..) => None,
        };
        if let Some(process) = process {
            if !self.processes[process].alive {
                return;
            }
            let thaw = self.frozen_until[self.processes[process].machine];
            if time < thaw {
                return self.schedule(thaw, event);
            }
        }
        match event {
            Event::Start(machine) => self.start(time, machine),
            Event::Wake { process, turn } => {
                if self.processes[process].turn == turn && self.processes[process].under_way.is_none() {
                    self.step(time, process);
                }
            }
            Event::Arrive { process, request, body, fate } => self.arrive(time, process, request, body, fate),
            Event::Answer { process, request, answer } => self.answer(time, process, request, answer),
            Event::Timeout { process, request } => {
                if let Some((_, sent)) = self.processes[process].under_way.take_if(|(id, _)| *id == request) {
                    self.processes[process].candidate.failed(sent);
                    self.step(time, process);
                }
            }
            Event::Watched { process, lease } => {
                let standby = &mut self.processes[process];
                if standby.under_way.is_none() && standby.candidate.held().is_none() {
                    standby.candidate.seen(Some(*lease), self.machines[standby.machine].now(time));
                    self.step(time, process);
                }
            }
            Event::Doubted(process) => {
                let Process { machine, candidate, under_way, .. } = &mut self.processes[process];
                candidate.doubted(self.machines[*machine].now(time));
                if under_way.is_none() {
                    self.step(time, process);
                }
            }
            Event::Asked { process, inquiry } => self.asked(time, process, &inquiry),
            Event::Fault(machine, fault) => self.fault(time, machine, fault),
        }
    }

    /// Whoever lives on a machine listens at its address, be it frozen or not; of a machine that is cut off nothing is heard.
    fn asked(&mut self, time: Time, process: usize, inquiry: &Inquiry) {
        let machine = usize::from(inquiry.at.port());
        let cut =
            [machine, self.processes[process].machine].iter().any(|machine| time < self.cut_until[*machine]);
        let lives = self.processes.iter().any(|process| process.machine == machine && process.alive);
        let asking = &mut self.processes[process];
        asking.asking = false;
        if !cut && (self.scenario.refused || !lives) {
            asking.candidate.gone(inquiry);
        }
        if asking.under_way.is_none() {
            self.step(time, process);
        }
    }

    fn start(&mut self, time: Time, machine: usize) {
        let process = self.processes.len();
        let candidate = Candidate::new(
            format!("p{process}"),
            "ns".to_owned(),
            "lease".to_owned(),
            self.scenario.timing,
            None,
        );
        let address = SocketAddr::from(([127, 0, 0, 1], u16::try_from(machine).unwrap()));
        let candidate = candidate.listening(Some(address));
        let started = Process { machine, candidate, alive: true, under_way: None, turn: 0, asking: false };
        self.processes.push(started);
        self.schedule(time, Event::Wake { process, turn: 0 });
    }

    fn step(&mut self, time: Time, process: usize) {
        let machine = self.processes[process].machine;
        let (now, wall) = (self.machines[machine].now(time), self.machines[machine].wall(time));
        match self.processes[process].candidate.step(now, wall) {
            Step::Read => self.send(time, process, None),
            Step::Write(lease) => self.send(time, process, Some(lease)),
            Step::Wait(until) => {
                self.processes[process].turn += 1;
                let turn = self.processes[process].turn;
                let wake = self.machines[machine].when(until).max(time + 1);
                self.schedule(wake, Event::Wake { process, turn });
                if let Some(inquiry) = self.processes[process].candidate.inquiry(now)
                    && !std::mem::replace(&mut self.processes[process].asking, true)
                {
                    self.schedule(time + INQUIRY, Event::Asked { process, inquiry: Box::new(inquiry) });
                }
            }
            Step::Lost(_) => self.exit(time, process, RESTART),
        }
    }

    fn exit(&mut self, time: Time, process: usize, downtime: Time) {
        self.processes[process].alive = false;
        for other in 0..self.processes.len() {
            self.schedule(time + BREAKS, Event::Doubted(other));
        }
        self.withdraw(time, process);
        self.schedule(time + downtime, Event::Start(self.processes[process].machine));
    }

    fn withdraw(&mut self, time: Time, process: usize) {
        for claim in self.claims.iter_mut().filter(|claim| claim.process == process) {
            claim.to = claim.to.min(time);
        }
    }

    fn send(&mut self, time: Time, process: usize, body: Option<Box<Lease>>) {
        self.requests += 1;
        let request = self.requests;
        let machine = &self.machines[self.processes[process].machine];
        let sent = machine.now(time);
        let mut limit = self.scenario.timing.request_timeout();
        if let Some(held) = self.processes[process].candidate.held() {
            limit = limit.min(held.expires_at.since(sent));
        }
        let timeout = machine.when(sent.after(limit)).max(time + 1);
        self.processes[process].under_way = Some((request, sent));
        self.schedule(timeout, Event::Timeout { process, request });
        self.dispatch(time, process, request, body);
    }

    fn dispatch(&mut self, time: Time, process: usize, request: u64, body: Option<Box<Lease>>) {
        let fates = &self.scenario.fates;
        let fate = fates[usize::try_from(request).unwrap() % fates.len()];
        if !fate.request_lost && time >= self.cut_until[self.processes[process].machine] {
            self.schedule(time + fate.there, Event::Arrive { process, request, body, fate });
        }
    }

    /// The store carries a request out, be its sender alive or not.
    fn arrive(&mut self, time: Time, process: usize, request: u64, body: Option<Box<Lease>>, fate: Fate) {
        let machine = self.processes[process].machine;
        if time < self.cut_until[machine] {
            return;
        }
        let stored = self.store.as_ref().and_then(|lease| lease.metadata.resource_version.clone());
        let answer = match body {
            None => Answer::Read(self.store.clone().map(Box::new)),
            Some(lease) if lease.metadata.resource_version != stored => Answer::Conflict,
            Some(lease) => {
                self.put(time, *lease, fate.back);
                Answer::Stored(Box::new(self.store.clone().expect("just stored")))
            }
        };
        if !fate.answer_lost {
            self.schedule(time + fate.back, Event::Answer { process, request, answer });
        }
    }

    fn put(&mut self, time: Time, mut lease: Lease, delay: Time) {
        self.version += 1;
        lease.metadata.resource_version = Some(self.version.to_string());
        self.store = Some(lease.clone());
        for process in 0..self.processes.len() {
            let Process { machine, alive, .. } = self.processes[process];
            if alive && time >= self.cut_until[machine] {
                self.schedule(time + delay, Event::Watched { process, lease: Box::new(lease.clone()) });
            }
        }
    }

    fn answer(&mut self, time: Time, process: usize, request: u64, answer: Answer) {
        let Process { machine, candidate, under_way, .. } = &mut self.processes[process];
        let cut = time < self.cut_until[*machine];
        let Some((_, sent)) = under_way.take_if(|(id, _)| *id == request && !cut) else { return };
        let machine = &self.machines[*machine];
        match answer {
            Answer::Read(lease) => candidate.seen(lease.map(|lease| *lease), machine.now(time)),
            Answer::Conflict => candidate.refused(),
            Answer::Stored(lease) => {
                candidate.written(*lease, sent, machine.now(time));
                let to = machine.when(candidate.held().expect("it was just won").expires_at);
                self.claims.push(Claim { process, from: time, to });
            }
        }
        self.step(time, process);
    }

    fn fault(&mut self, time: Time, machine: usize, fault: Fault) {
        let running = self.processes.iter().rposition(|p| p.machine == machine && p.alive);
        match (fault, running) {
            (Fault::Freeze(length), _) => self.frozen_until[machine] = time + length,
            (Fault::Partition(length), _) => self.cut_until[machine] = time + length,
            (Fault::JumpTimeOfDay(by), _) => self.machines[machine].wall_offset += by,
            (Fault::Touch, _) => {
                if let Some(lease) = self.store.clone() {
                    self.put(time, lease, 1_000);
                }
            }
            (Fault::Doubt, Some(process)) => self.schedule(time, Event::Doubted(process)),
            (Fault::Crash, Some(process)) => self.exit(time, process, RESTART),
            (Fault::Release, Some(process)) if time >= self.frozen_until[machine] => {
                let (now, wall) = (self.machines[machine].now(time), self.machines[machine].wall(time));
                self.withdraw(time, process);
                // An answer still on its way is not waited for: harsher than what the driver does.
                if let Some(lease) = self.processes[process].candidate.release(now, wall) {
                    self.requests += 1;
                    self.dispatch(time, process, self.requests, Some(Box::new(lease)));
                }
                self.exit(time, process, RESTART);
            }
            (Fault::Crash | Fault::Release | Fault::Doubt, _) => {}
        }
    }
}
