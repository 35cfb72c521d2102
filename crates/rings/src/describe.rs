//! Descriptions of call sites, as rings hold them. Pure.

use tracepoint::layout::{
    FieldType, MAX_DESCRIPTION_LEN, MAX_FIELDS, MAX_SITES, Severity, SiteKind,
};

/// What a call site's records are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SiteInfo {
    /// Its number in its process.
    pub number: u16,
    /// What kind of records.
    pub kind: SiteKind,
    /// How severe they are.
    pub severity: Severity,
    /// As the application named it.
    pub name: String,
    /// The module it is in.
    pub target: String,
    /// The source file, as the compiler was given it.
    pub file: String,
    /// The line in it.
    pub line: u32,
    /// Names and types of the fields of a record, in their order.
    pub fields: Vec<(String, FieldType)>,
    /// The description itself, for who keeps records.
    pub description: Vec<u8>,
    /// How the fields of a record lie.
    pub(crate) lie: Lie,
}

/// How the fields of a record lie, so that it need not be found out for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lie {
    /// Each is a word, any word: as many as there are fields.
    Words,
    /// One behind the other.
    Mixed,
    /// Behind tags.
    Tagged,
}

impl Lie {
    /// `None` when some fields are tagged, and some are not.
    fn of(fields: &[(String, FieldType)]) -> Option<Self> {
        use FieldType::{Float, Signed, Tagged, Unsigned};
        let tagged = fields.iter().filter(|(_, kind)| *kind == Tagged).count();
        match tagged {
            0 if fields.iter().all(|(_, kind)| matches!(kind, Unsigned | Signed | Float)) => {
                Some(Self::Words)
            }
            0 => Some(Self::Mixed),
            _ if tagged == fields.len() => Some(Self::Tagged),
            _ => None,
        }
    }
}

/// Reads the description at the beginning of `bytes`, and gives its length; `None` when there is none that makes sense.
#[must_use]
pub fn describe(bytes: &[u8]) -> Option<(SiteInfo, usize)> {
    let len = usize::from(u16::from_ne_bytes(*bytes.first_chunk()?));
    if !(8..=MAX_DESCRIPTION_LEN).contains(&len) || !len.is_multiple_of(8) {
        return None;
    }
    let mut rest = Rest(bytes.get(2..len)?);
    let number = rest.u16()?;
    let (kind, fields) = (SiteKind::from_code(rest.u8()?)?, rest.u8()?);
    let severity = Severity::from_code(rest.u8()?)?;
    rest.u8()?;
    let line = rest.u32()?;
    let (name, target, file) = (rest.text()?, rest.text()?, rest.text()?);
    let is_bounded = u32::from(number) < MAX_SITES && usize::from(fields) <= MAX_FIELDS;
    let mut field = || {
        let kind = FieldType::from_code(rest.u8()?)?;
        Some((rest.text()?, kind))
    };
    let fields: Vec<(String, FieldType)> =
        is_bounded.then(|| (0..fields).map(|_| field()).collect::<Option<_>>())??;
    let lie = Lie::of(&fields)?;
    let description = bytes.get(..len)?.to_vec();
    let site =
        SiteInfo { number, kind, severity, name, target, file, line, fields, description, lie };
    Some((site, len))
}

struct Rest<'a>(&'a [u8]);

impl Rest<'_> {
    fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*taken)
    }

    fn u8(&mut self) -> Option<u8> {
        self.take::<1>().map(|[byte]| byte)
    }

    fn u16(&mut self) -> Option<u16> {
        self.take().map(u16::from_ne_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.take().map(u32::from_ne_bytes)
    }

    fn text(&mut self) -> Option<String> {
        let len = usize::from(self.u16()?);
        let (text, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(str::from_utf8(text).ok()?.to_owned())
    }
}
