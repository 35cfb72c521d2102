//! What each tenant may send, and what is kept of it, by options and by a file.

use std::path::Path;

use anyhow::{Context, anyhow, bail};
use intake::Limits;
use rules::SeriesLimits;
use server::profiles::ONLY_TENANT;
use store::lake::name::Tenant;
use store::lake::plan::Keep;
use store::lake::tenants::PerTenant;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::service::nanos;
use crate::units::{parse_duration, parse_size};

/// The longest file that is read, in bytes: thousands of tenants.
const MAX_FILE_BYTES: u64 = 1 << 20;
/// What a request and what a profile may have at most, by the memory that is there for those of a tenant.
const MAX_BODY_BYTES: u64 = 256 << 20;
const MAX_PROFILE_BYTES: u64 = 32 << 20;
/// Labels of a series, as each is a column's value of each of its samples.
const MAX_LABELS: u64 = 256;
/// Frames of a stack, as many as the agent takes.
const MAX_STACK_DEPTH: u64 = 4_096;
/// Series of a tenant: all of a cell are in memory at once.
const MAX_SERIES: u64 = 1_000_000;

/// What a tenant may have.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Share {
    pub(super) limits: Limits,
    pub(super) keep: Keep,
    pub(super) series: SeriesLimits,
}

/// Shares as a file says; what it does not say is as in `share`.
///
/// ```toml
/// [default]
/// rate = "8MiB"
///
/// [tenant.shop]
/// keep_for = "720h"
/// ```
///
/// # Errors
///
/// A line that names the file, the key and what is wrong with it.
pub(super) fn read(
    path: &Path,
    share: &Share,
    are_tenants_told: bool,
) -> anyhow::Result<PerTenant<Share>> {
    let text = crate::config::read_text(path, MAX_FILE_BYTES)?;
    of_text(&text, share, are_tenants_told).with_context(|| path.display().to_string())
}

fn of_text(text: &str, share: &Share, are_tenants_told: bool) -> anyhow::Result<PerTenant<Share>> {
    let file = DeTable::parse(text).map_err(|error| {
        let begin = error.span().map_or(0, |span| span.start);
        let before = text.as_bytes().get(..begin).unwrap_or(text.as_bytes());
        let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
        let words: Vec<&str> = error.message().lines().collect();
        anyhow!("line {line}: {}", words.join(", "))
    })?;
    let file = file.get_ref();
    let mut others = share.clone();
    for (key, value) in file {
        match key.get_ref().as_ref() {
            "default" => fill(&mut others, "default", table(value).context("default")?)?,
            "tenant" => {}
            other => bail!("{other}: unknown key; one of [default], [tenant.NAME]"),
        }
    }
    let mut own = Vec::new();
    if let Some(tenants) = file.get("tenant") {
        for (name, value) in table(tenants).context("tenant")? {
            let name = name.get_ref().as_ref();
            let key = format!("tenant.{name}");
            let tenant = Tenant::new(name).with_context(|| key.clone())?;
            if !are_tenants_told && name != ONLY_TENANT {
                bail!("{key}: tenants are not told apart; see --tenants");
            }
            let mut share = others.clone();
            fill(&mut share, &key, table(value).with_context(|| key.clone())?)?;
            own.push((tenant, share));
        }
    }
    Ok(PerTenant::new(others, own))
}

fn table<'a, 'd>(value: &'a Spanned<DeValue<'d>>) -> anyhow::Result<&'a DeTable<'d>> {
    value.get_ref().as_table().context("expected a table")
}

/// Has a share be what a table says.
fn fill(share: &mut Share, name: &str, table: &DeTable<'_>) -> anyhow::Result<()> {
    for (key, value) in table {
        let key = key.get_ref().as_ref();
        set(share, key, value.get_ref()).with_context(|| format!("{name}.{key}"))?;
    }
    Ok(())
}

fn set(share: &mut Share, key: &str, value: &DeValue<'_>) -> anyhow::Result<()> {
    let Share { limits, keep, series } = share;
    match key {
        "rate" => limits.bytes_per_second = size(value, u64::MAX)?,
        "burst" => limits.burst_bytes = size(value, u64::MAX)?,
        "body" => limits.body_bytes = usize::try_from(size(value, MAX_BODY_BYTES)?)?,
        "profile" => {
            let bytes = usize::try_from(size(value, MAX_PROFILE_BYTES)?)?;
            (limits.profile_bytes, limits.text_bytes) = (bytes, bytes);
        }
        "labels" => limits.label_names = count(value, 1, MAX_LABELS)?,
        "stack_depth" => {
            let frames = count(value, 1, MAX_STACK_DEPTH)?;
            (limits.stack_frames, limits.otlp_stack_frames) = (frames, frames);
        }
        "take_for" => limits.oldest = Some(nanos(time(value)?)),
        "keep_for" => keep.age = Some(nanos(time(value)?)),
        "keep_size" => keep.bytes = Some(size(value, u64::MAX)?),
        "series" => series.all = count(value, 0, MAX_SERIES)?,
        "series_of_metric" => series.of_metric = count(value, 0, MAX_SERIES)?,
        _ => bail!(
            "unknown key; one of rate, burst, body, profile, labels, stack_depth, take_for, keep_for, keep_size, series, series_of_metric"
        ),
    }
    Ok(())
}

fn words<'a>(value: &'a DeValue<'_>, example: &str) -> anyhow::Result<&'a str> {
    value.as_str().with_context(|| format!("expected text such as \"{example}\""))
}

fn size(value: &DeValue<'_>, most: u64) -> anyhow::Result<u64> {
    match parse_size(words(value, "8MiB")?)? {
        bytes if bytes > most => bail!("{} MiB at most", most >> 20),
        bytes => Ok(bytes),
    }
}

fn time(value: &DeValue<'_>) -> anyhow::Result<std::time::Duration> {
    Ok(parse_duration(words(value, "720h")?)?)
}

fn count(value: &DeValue<'_>, least: u64, most: u64) -> anyhow::Result<usize> {
    let number =
        value.as_integer().and_then(|it| u64::from_str_radix(it.as_str(), it.radix()).ok());
    match number {
        Some(number) if (least..=most).contains(&number) => Ok(usize::try_from(number)?),
        _ => bail!("expected a whole number from {least} to {most}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_says_what_each_tenant_may_have() {
        let mut share = Share::default();
        share.limits.bytes_per_second = 7;
        let text = "[default]\nlabels = 40\nkeep_for = \"24h\"\n\
                    [tenant.shop]\nrate = \"16MiB\"\nkeep_size = \"1GiB\"\nseries = 0x10\n\
                    [tenant.'a!b']\nstack_depth = 5\n";
        let shares = of_text(text, &share, true).unwrap();
        let of = |name| shares.of(&Tenant::new(name).unwrap()).clone();
        let (other, shop, named) = (of("other"), of("shop"), of("a!b"));
        assert_eq!((other.limits.bytes_per_second, other.limits.label_names), (7, 40));
        assert_eq!((shop.limits.bytes_per_second, shop.limits.label_names), (16 << 20, 40));
        assert_eq!((other.series, shop.series.all), (SeriesLimits::default(), 16));
        assert_eq!((other.keep.bytes, shop.keep.bytes), (None, Some(1 << 30)));
        assert_eq!(shop.keep.age.unwrap().get(), 86_400_000_000_000);
        assert_eq!((named.limits.stack_frames, named.limits.otlp_stack_frames), (5, 5));
        assert_eq!(of_text("", &share, false).unwrap(), share.into());
    }

    #[test]
    fn what_is_wrong_with_a_file_is_said_in_a_line() {
        for (text, said) in [
            ("a = ", "line 1: "),
            ("[defaults]", "defaults: unknown key; one of [default], [tenant.NAME]"),
            ("default = 1", "default: expected a table"),
            ("tenant = 1", "tenant: expected a table"),
            ("[tenant]\nshop = 1", "tenant.shop: expected a table"),
            ("[default]\nrates = \"1MiB\"", "default.rates: unknown key; one of rate, "),
            (
                "[tenant.shop]\nrate = \"1Mb\"",
                "tenant.shop.rate: unknown unit \"Mb\"; one of B, KiB",
            ),
            ("[default]\nrate = 4", "default.rate: expected text such as \"8MiB\""),
            ("[default]\nbody = \"257MiB\"", "default.body: 256 MiB at most"),
            ("[default]\nkeep_for = \"30d\"", "default.keep_for: unknown unit \"d\""),
            ("[default]\nlabels = 0", "default.labels: expected a whole number from 1 to 256"),
            ("[default]\nlabels = \"1\"", "default.labels: expected a whole number"),
            ("[default]\nseries = -1", "default.series: expected a whole number from 0"),
            ("[tenant.\"a/b\"]\n", "tenant.a/b: "),
            ("[tenant.shop]\n[tenant.shop]\n", "line 2: duplicate key"),
        ] {
            let error = of_text(text, &Share::default(), true).unwrap_err();
            let found = format!("{error:#}");
            assert!(found.starts_with(said) && !found.contains('\n'), "{text}: {found}");
        }
        let error = of_text("[tenant.shop]", &Share::default(), false).unwrap_err();
        assert_eq!(error.to_string(), "tenant.shop: tenants are not told apart; see --tenants");
    }
}
