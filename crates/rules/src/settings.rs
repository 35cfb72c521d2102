//! Pyroscope's `settings.v1.SettingsService`: texts by name that pages keep for a tenant.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use wire::pyroscope::{Code, Error as Failure, GetSettingsResponse, Setting};

/// Settings of a tenant.
pub const MAX_SETTINGS: usize = 1_000;
/// Bytes of a setting's name.
pub const MAX_SETTING_NAME_BYTES: usize = 256;
/// Bytes of a setting's value.
pub const MAX_SETTING_BYTES: usize = 64 << 10;

/// A tenant's settings. Each change counts one [generation](Self::generation), as in a [`Book`](crate::Book).
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    generation: u64,
    /// By name: when it was set, and to what.
    all: BTreeMap<String, (i64, String)>,
}

impl Settings {
    /// How often they were changed.
    #[must_use]
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// `Get`: all, by name.
    #[must_use]
    pub fn get(&self) -> GetSettingsResponse {
        let setting = |(name, (modified_at, value)): (&String, &(i64, String))| Setting {
            name: name.clone(),
            value: value.clone(),
            modified_at: *modified_at,
        };
        GetSettingsResponse { settings: self.all.iter().map(setting).collect() }
    }

    /// `Set`; one that does not say when it was set is set at this time.
    ///
    /// # Errors
    ///
    /// `already_exists` when one was set that is newer, `invalid_argument`, `resource_exhausted`. Nothing is changed then.
    pub fn set(&mut self, setting: Option<Setting>, now_ms: i64) -> Result<Setting, Failure> {
        let setting = setting.filter(|setting| !setting.name.is_empty());
        let mut setting = setting.ok_or_else(|| Failure::invalid("no setting with a name"))?;
        for (what, len, limit) in [
            ("name", setting.name.len(), MAX_SETTING_NAME_BYTES),
            ("value", setting.value.len(), MAX_SETTING_BYTES),
        ] {
            if len > limit {
                return Err(Failure::invalid(format!("{what}: {len} bytes are more than {limit}")));
            }
        }
        if setting.modified_at <= 0 {
            setting.modified_at = now_ms;
        }
        let known = self.all.get(&setting.name);
        if known.is_some_and(|(modified_at, _)| *modified_at > setting.modified_at) {
            let words = format!("a newer {:?} was set already", setting.name);
            return Err(Failure::new(Code::AlreadyExists, words));
        }
        if known.is_none() && self.all.len() >= MAX_SETTINGS {
            let words = format!("there are {MAX_SETTINGS} settings, and no more may be");
            return Err(Failure::new(Code::ResourceExhausted, words));
        }
        let Setting { name, value, modified_at } = setting.clone();
        self.all.insert(name, (modified_at, value));
        self.generation += 1;
        Ok(setting)
    }

    /// `Delete`. Says whether there was one.
    pub fn delete(&mut self, name: &str) -> bool {
        let is_gone = self.all.remove(name).is_some();
        self.generation += u64::from(is_gone);
        is_gone
    }
}
