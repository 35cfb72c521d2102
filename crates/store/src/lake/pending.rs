//! Samples that came and are not on the disk yet, and profiles that came a short while ago.

use std::collections::{BTreeMap, BTreeSet, HashSet, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use model::samples::{Batch, Sample};
use model::{Nanos, Timestamp};

use super::Settings;
use super::name::Tenant;
use crate::error::Error;

/// Profiles that are remembered, of all tenants: some 100 bytes each.
const MAX_REMEMBERED: usize = 1 << 20;
/// What a sample takes in memory with its share of the tables, more or less.
const SAMPLE_BYTES: usize = 128;

/// What a tenant's next block is made of.
#[derive(Debug, Default)]
pub(super) struct Pending {
    pub(super) batch: Batch,
    pub(super) profiles: BTreeSet<u128>,
    written: Arc<Written>,
}

/// Whether a block was written.
#[derive(Debug, Default)]
struct Written {
    state: Mutex<State>,
    is_known: Condvar,
}

#[derive(Debug, Default)]
struct State {
    outcome: Option<Result<(), Arc<Error>>>,
    /// One for each that waits without a thread.
    wakers: Vec<Waker>,
}

/// Says when a push is stored, to a thread that waits or as a future.
#[derive(Debug, Clone)]
pub struct Ticket(Vec<Arc<Written>>);

impl Ticket {
    /// Waits until it is on the disk.
    ///
    /// # Errors
    ///
    /// Why it is not.
    pub fn wait(&self) -> Result<(), Arc<Error>> {
        self.0.iter().try_for_each(|written| written.wait())
    }
}

impl Future for Ticket {
    type Output = Result<(), Arc<Error>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        while let Some(written) = self.0.last() {
            match written.poll(context.waker()) {
                Poll::Ready(Ok(())) => drop(self.0.pop()),
                other => return other,
            }
        }
        Poll::Ready(Ok(()))
    }
}

impl Written {
    fn wait(&self) -> Result<(), Arc<Error>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            match &state.outcome {
                Some(known) => return known.clone(),
                None => {
                    let waited = self.is_known.wait(state);
                    state = waited.unwrap_or_else(PoisonError::into_inner);
                }
            }
        }
    }

    fn poll(&self, waker: &Waker) -> Poll<Result<(), Arc<Error>>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = &state.outcome {
            return Poll::Ready(known.clone());
        }
        if !state.wakers.iter().any(|known| known.will_wake(waker)) {
            state.wakers.push(waker.clone());
        }
        Poll::Pending
    }
}

impl Pending {
    /// Tells who waits.
    pub(super) fn tell(&self, written: Result<(), Arc<Error>>) {
        let mut state = self.written.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.outcome = Some(written);
        self.written.is_known.notify_all();
        state.wakers.drain(..).for_each(Waker::wake);
    }
}

/// What came and is not on the disk, by tenant.
#[derive(Debug)]
pub(super) struct Incoming {
    pending: BTreeMap<Tenant, Pending>,
    /// What is written at this moment: its profiles, and who tells when that is done.
    writing: BTreeMap<Tenant, (BTreeSet<u128>, Arc<Written>)>,
    stored: HashSet<(Tenant, u128)>,
    /// Those in the order in which they are forgotten.
    order: VecDeque<(Timestamp, Tenant, u128)>,
    /// Of samples that wait.
    bytes: usize,
    retries: Nanos,
    most_bytes: usize,
}

impl Incoming {
    pub(super) fn new(settings: &Settings) -> Self {
        Self {
            pending: BTreeMap::new(),
            writing: BTreeMap::new(),
            stored: HashSet::new(),
            order: VecDeque::new(),
            bytes: 0,
            retries: settings.retries,
            most_bytes: settings.pending_bytes,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pending.is_empty()
    }

    pub(super) fn push(&mut self, tenant: &Tenant, samples: &Batch) -> Result<Ticket, Error> {
        let mut fresh: BTreeSet<u128> = samples.samples().iter().map(|it| it.profile).collect();
        let mut waits_for = Vec::new();
        fresh.retain(|profile| *profile == 0 || !self.stored.contains(&(tenant.clone(), *profile)));
        let writing = self.writing.get(tenant).map(|(profiles, written)| (profiles, written));
        let pending = self.pending.get(tenant).map(|it| (&it.profiles, &it.written));
        for (profiles, written) in writing.into_iter().chain(pending) {
            let before = fresh.len();
            fresh.retain(|profile| *profile == 0 || !profiles.contains(profile));
            if fresh.len() < before {
                waits_for.push(Arc::clone(written));
            }
        }
        let is_fresh = |sample: &Sample| fresh.contains(&sample.profile);
        let count = samples.samples().iter().filter(|sample| is_fresh(sample)).count();
        if count == 0 {
            return Ok(Ticket(waits_for));
        }
        let bytes = count.saturating_mul(SAMPLE_BYTES);
        // A single large one comes through when nothing else waits.
        if self.bytes > 0 && self.bytes.saturating_add(bytes) > self.most_bytes {
            return Err(Error::Busy { bytes: self.bytes });
        }
        self.bytes += bytes;
        let pending = self.pending.entry(tenant.clone()).or_default();
        pending.batch.absorb(samples, is_fresh);
        waits_for.push(Arc::clone(&pending.written));
        pending.profiles.append(&mut fresh);
        Ok(Ticket(waits_for))
    }

    /// What is to be written: one writes at a time.
    pub(super) fn take(&mut self) -> BTreeMap<Tenant, Pending> {
        let all = std::mem::take(&mut self.pending);
        for (tenant, pending) in &all {
            let written = Arc::clone(&pending.written);
            self.writing.insert(tenant.clone(), (pending.profiles.clone(), written));
        }
        all
    }

    /// What was taken is on the disk, or it will not be: then it may come again.
    pub(super) fn is_written(
        &mut self,
        tenant: &Tenant,
        pending: &Pending,
        is_stored: bool,
        now: Timestamp,
    ) {
        self.bytes -= pending.batch.samples().len().saturating_mul(SAMPLE_BYTES).min(self.bytes);
        self.writing.remove(tenant);
        if is_stored {
            let profiles = pending.profiles.iter().filter(|profile| **profile != 0);
            profiles.for_each(|profile| self.remember(tenant, *profile, now));
        }
        while let Some((at, ..)) = self.order.front()
            && (now.since(*at) > self.retries || self.order.len() > MAX_REMEMBERED)
        {
            if let Some((_, tenant, profile)) = self.order.pop_front() {
                self.stored.remove(&(tenant, profile));
            }
        }
    }

    /// Whether any of these was stored a short while ago.
    pub(super) fn has_any(&self, tenant: &Tenant, profiles: &BTreeSet<u128>) -> bool {
        profiles.iter().any(|profile| self.stored.contains(&(tenant.clone(), *profile)))
    }

    /// A profile was stored.
    pub(super) fn remember(&mut self, tenant: &Tenant, profile: u128, at: Timestamp) {
        if self.stored.insert((tenant.clone(), profile)) {
            self.order.push_back((at, tenant.clone(), profile));
        }
    }
}
