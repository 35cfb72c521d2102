//! What came and is not stored, counted by tenant and by why.

use std::collections::BTreeMap;

use intake::{ErrorKind, Taken};
use store::lake::name::Tenant;

/// Tenants that are counted by themselves: whoever may push can give any name, and each is some series of whoever reads metrics.
const MAX_TENANTS: usize = 1 << 10;

/// Counts by why, which is a word of a few.
type Counts = BTreeMap<&'static str, u64>;

/// What came since the start and is not stored, by tenant.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeftOuts {
    /// The first of them, [`MAX_TENANTS`] at most.
    tenants: BTreeMap<Tenant, LeftOut>,
    /// All others together.
    others: LeftOut,
}

/// What is not stored of one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LeftOut {
    /// Values, stacks, lines, texts and references of profiles that were stored otherwise, as [`intake::LeftOut`] names them.
    pub parts: Counts,
    /// Profiles that were refused, and requests as one each.
    pub refused: Counts,
}

impl LeftOuts {
    /// Counts what is not stored of a request that was taken.
    pub(super) fn add(&mut self, tenant: &Tenant, taken: &Taken) {
        for profile in &taken.profiles {
            match profile {
                Err(refused) => self.refuse(tenant, &refused.error),
                Ok(accepted) => {
                    let parts = accepted.left_out.by_reason().into_iter();
                    for (why, count) in parts.filter(|(_, count)| *count > 0) {
                        *self.of(tenant).parts.entry(why).or_default() += count;
                    }
                }
            }
        }
    }

    /// Counts a profile or a request that is refused.
    pub(super) fn refuse(&mut self, tenant: &Tenant, error: &intake::Error) {
        *self.of(tenant).refused.entry(reason(error)).or_default() += 1;
    }

    fn of(&mut self, tenant: &Tenant) -> &mut LeftOut {
        if self.tenants.len() < MAX_TENANTS || self.tenants.contains_key(tenant) {
            self.tenants.entry(tenant.clone()).or_default()
        } else {
            &mut self.others
        }
    }

    /// Each tenant's, and of all others that are not counted by themselves.
    pub fn iter(&self) -> impl Iterator<Item = (Option<&Tenant>, &LeftOut)> {
        let tenants = self.tenants.iter().map(|(tenant, one)| (Some(tenant), one));
        tenants.chain([(None, &self.others)])
    }
}

/// Why a profile or a request is refused, in a word.
const fn reason(error: &intake::Error) -> &'static str {
    match (error, error.kind()) {
        (intake::Error::TooOld { .. }, _) => "too_old",
        (intake::Error::TooNew { .. }, _) => "too_new",
        (_, ErrorKind::Invalid) => "invalid",
        (_, ErrorKind::Query) => "address",
        (_, ErrorKind::TooLarge) => "too_large",
        (_, ErrorKind::Unsupported) => "unsupported",
        (_, ErrorKind::Rate) => "rate",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenants_beyond_the_bound_are_counted_together() {
        let mut all = LeftOuts::default();
        let refused = intake::Error::NoDictionary;
        for n in 0..MAX_TENANTS + 7 {
            all.refuse(&Tenant::new(&format!("t{n:04}")).unwrap(), &refused);
        }
        all.refuse(&Tenant::new("t0000").unwrap(), &refused);
        all.add(&Tenant::new("t9999").unwrap(), &Taken::default());
        assert_eq!(all.tenants.len(), MAX_TENANTS);
        let counts: Vec<u64> = all.iter().map(|(_, one)| one.refused["invalid"]).collect();
        assert_eq!((counts[0], counts[1], counts[MAX_TENANTS]), (2, 1, 7));
    }
}
