//! What is the same for all tenants, but for some.

use std::collections::BTreeMap;

use super::name::Tenant;

/// What holds for each tenant: the same for all who have none of their own.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PerTenant<T> {
    others: T,
    own: BTreeMap<Tenant, T>,
}

impl<T> PerTenant<T> {
    /// With what some have of their own.
    pub fn new(others: T, own: impl IntoIterator<Item = (Tenant, T)>) -> Self {
        Self { others, own: own.into_iter().collect() }
    }

    /// What a tenant has.
    #[must_use]
    pub fn of(&self, tenant: &Tenant) -> &T {
        self.own.get(tenant).unwrap_or(&self.others)
    }

    /// What any tenant has: those who have nothing of their own, and then the others.
    pub fn all(&self) -> impl Iterator<Item = &T> {
        std::iter::once(&self.others).chain(self.own.values())
    }

    /// Another thing of each.
    pub fn map<U>(&self, of: impl Fn(&T) -> U) -> PerTenant<U> {
        let own = self.own.iter().map(|(tenant, own)| (tenant.clone(), of(own))).collect();
        PerTenant { others: of(&self.others), own }
    }
}

impl<T> From<T> for PerTenant<T> {
    /// The same for all.
    fn from(others: T) -> Self {
        Self { others, own: BTreeMap::new() }
    }
}
