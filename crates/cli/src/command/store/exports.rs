//! Sends what is closed to receivers: each tenant's cells to each receiver, by a thread of their own.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use export::{Clock, Exporter, Sender, Status};
use model::Timestamp;
use rules::{BookLimits, Config};
use store::lake::Lake;
use store::lake::name::Tenant;

use super::receivers::Receiver;
use crate::outcome::complain;

/// Tenants times receivers, each a thread; for more of them nothing is sent, which is said.
const MAX_EXPORTERS: usize = 512;

/// All that is sent.
pub(super) struct Exports {
    lake: Arc<Lake>,
    receivers: Vec<Receiver>,
    /// Whether receivers are told whose series they get, when nothing else is said.
    are_tenants_told: bool,
    /// With the position in the tenant's outbox at which each began.
    running: BTreeMap<(Tenant, String), (u64, Exporter)>,
    rules: Option<Config>,
    /// Tenants that have the rules of the configuration.
    provisioned: BTreeSet<Tenant>,
    has_complained: bool,
}

impl Exports {
    pub(super) const fn new(
        lake: Arc<Lake>,
        receivers: Vec<Receiver>,
        are_tenants_told: bool,
        rules: Option<Config>,
    ) -> Self {
        Self {
            lake,
            receivers,
            are_tenants_told,
            running: BTreeMap::new(),
            rules,
            provisioned: BTreeSet::new(),
            has_complained: false,
        }
    }

    /// Gives tenants that are seen first the rules of the configuration: before what they pushed is counted.
    ///
    /// # Errors
    ///
    /// What it meets first; all other tenants have theirs.
    pub(super) fn provision(&mut self, now: Timestamp) -> anyhow::Result<()> {
        let tenants: BTreeSet<Tenant> =
            self.lake.blocks().into_iter().map(|block| block.tenant).collect();
        let new: Vec<Tenant> = tenants.difference(&self.provisioned).cloned().collect();
        if new.is_empty() {
            return Ok(());
        }
        let counted = self.lake.catalogue().exporting()?;
        let mut first = Ok(());
        for tenant in new {
            match self.provision_tenant(&tenant, counted.contains(&tenant), now) {
                Ok(()) => drop(self.provisioned.insert(tenant)),
                Err(error) => {
                    first = first.and(Err(error.context(format!("tenant {}", tenant.as_str()))))
                }
            }
        }
        first
    }

    /// Whether a tenant has the rules of the configuration.
    pub(super) fn is_provisioned(&self, tenant: &Tenant) -> bool {
        self.provisioned.contains(tenant)
    }

    /// `is_counted` says whether anything was ever counted of what the tenant pushed.
    fn provision_tenant(
        &self,
        tenant: &Tenant,
        is_counted: bool,
        now: Timestamp,
    ) -> anyhow::Result<()> {
        let empty = Config::default();
        let config = self.rules.as_ref().unwrap_or(&empty);
        let rules = config.of(tenant.as_str());
        let provisioned = self.lake.change_rules(tenant, now, |book, next_ms| {
            // All that a new tenant pushed is counted, also when its clients made rules before the first push or just after.
            let is_new = !is_counted && !book.present().iter().any(|it| it.is_provisioned);
            let from_ms = if is_new { i64::MIN } else { next_ms };
            book.provision(rules, from_ms, &BookLimits::default())
        })?;
        // It is the same the next time. A tenant goes on with the rules that it has, and what it pushes is merged.
        if let Err(refused) = provisioned {
            let tenant = tenant.as_str();
            complain(&format!(
                "rules of the configuration are not given to tenant {tenant}: {refused}"
            ));
        }
        Ok(())
    }

    /// Closes what is complete, and has it sent.
    ///
    /// # Errors
    ///
    /// What it meets first; all other tenants' cells are closed, and sent to all other receivers.
    pub(super) fn close(&mut self, now: Timestamp) -> anyhow::Result<()> {
        if self.receivers.is_empty() {
            return Ok(());
        }
        let tenants = self.lake.catalogue().exporting()?;
        let mut first = Ok(());
        for tenant in &tenants {
            first = first.and(self.start(tenant));
        }
        first = first.and(self.lake.close(now).map(drop).map_err(anyhow::Error::from));
        self.running.values().for_each(|(_, exporter)| exporter.wake());
        for tenant in &tenants {
            let receivers: Vec<String> = self.of(tenant).map(|it| it.url.clone()).collect();
            first = first.and(self.lake.catalogue().trim(tenant, &receivers).map_err(Into::into));
        }
        first
    }

    fn of(&self, tenant: &Tenant) -> impl Iterator<Item = &Receiver> {
        self.receivers.iter().filter(|receiver| receiver.gets(tenant.as_str()))
    }

    /// Starts what sends a tenant's cells. What each has of them begins here, also where it cannot be sent yet.
    fn start(&mut self, tenant: &Tenant) -> anyhow::Result<()> {
        let receivers: Vec<Receiver> = self.of(tenant).cloned().collect();
        let mut first = Ok(());
        for receiver in receivers {
            let key = (tenant.clone(), receiver.url.clone());
            if self.running.contains_key(&key) {
                continue;
            }
            if self.running.len() >= MAX_EXPORTERS {
                if !std::mem::replace(&mut self.has_complained, true) {
                    complain(&format!(
                        "{MAX_EXPORTERS} pairs of a tenant and a receiver are sent to, and no more"
                    ));
                }
                break;
            }
            match self.exporter(tenant, receiver) {
                Ok(exporter) => drop(self.running.insert(key, exporter)),
                Err(error) => first = first.and(Err(error.context(key.1))),
            }
        }
        first
    }

    fn exporter(&self, tenant: &Tenant, receiver: Receiver) -> anyhow::Result<(u64, Exporter)> {
        let Receiver { url, mut remote, .. } = receiver;
        if self.are_tenants_told && remote.tenant.is_none() {
            remote.tenant = Some(tenant.as_str().to_owned());
        }
        let (outbox, cursor) = self.lake.catalogue().receiver(tenant, &url)?;
        let origin = outbox.origin();
        let sender =
            Sender::new(remote, Box::new(outbox), Box::new(cursor), Box::new(SystemClock))?;
        Ok((origin, Exporter::start(sender)?))
    }

    /// How each is doing, by tenant and receiver.
    pub(super) fn status(&self) -> impl Iterator<Item = (Tenant, String, Sending)> {
        self.running.iter().map(|((tenant, url), (origin, exporter))| {
            let sending = Sending { origin: *origin, status: exporter.status() };
            (tenant.clone(), url.clone(), sending)
        })
    }
}

/// How a tenant's series are with a receiver.
pub(super) struct Sending {
    /// The position in the tenant's outbox at which it began.
    pub(super) origin: u64,
    pub(super) status: Status,
}

struct SystemClock;

impl Clock for SystemClock {
    fn now_ms(&mut self) -> i64 {
        super::service::now().nanos() / 1_000_000
    }

    fn chance(&mut self) -> f64 {
        fastrand::f64()
    }
}
