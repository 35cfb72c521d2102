//! What lines of text show, and how.

use std::ops::BitOr;

/// How times are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TimeStyle {
    /// `16:44:07.736468450`, in the zone of the writer.
    #[default]
    TimeOfDay,
    /// `2026-11-20 16:44:07.736468450`, in the zone of the writer (`--clock-date`).
    DateAndTime,
    /// `1795193047.736468450`: seconds since the clock's origin (`--clock-seconds`).
    Seconds,
    /// `00000003444595775761`: the clock's value in cycles (`--clock-cycles`).
    Cycles,
}

/// Which names are shown (`--names`); sets are joined with `|`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Names(u8);

impl Names {
    /// No names.
    pub const NONE: Self = Self(0);
    /// Those of payload fields, and the numbers of array elements there.
    pub const PAYLOAD: Self = Self(1);
    /// Those of fields of contexts.
    pub const CONTEXT: Self = Self(1 << 1);
    /// Those of what precedes the contexts: `timestamp`, `name`, ….
    pub const HEADER: Self = Self(1 << 2);
    /// Those of contexts and payload: `stream.event.context`, `event.fields`, ….
    pub const SCOPE: Self = Self(1 << 3);
    /// All of them.
    pub const ALL: Self = Self(0b1111);

    /// Whether all of `names` are shown.
    #[must_use]
    pub const fn contains(self, names: Self) -> bool {
        self.0 & names.0 == names.0
    }
}

/// Those of fields.
impl Default for Names {
    fn default() -> Self {
        Self::PAYLOAD | Self::CONTEXT
    }
}

impl BitOr for Names {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Which parts stand before an event record's name, where there are any (`--fields`); sets are joined with `|`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HeaderFields(u8);

impl HeaderFields {
    /// No parts.
    pub const NONE: Self = Self(0);
    /// The name of the trace: host, and folder below the path that was asked for.
    pub const TRACE: Self = Self(1);
    /// `hostname` of the environment.
    pub const HOSTNAME: Self = Self(1 << 1);
    /// `domain` of the environment.
    pub const DOMAIN: Self = Self(1 << 2);
    /// `procname` of the environment.
    pub const PROCNAME: Self = Self(1 << 3);
    /// `vpid` of the environment.
    pub const VPID: Self = Self(1 << 4);
    /// The log level of the event record class.
    pub const LOG_LEVEL: Self = Self(1 << 5);
    /// The EMF URI of the event record class.
    pub const EMF: Self = Self(1 << 6);
    /// All of them.
    pub const ALL: Self = Self(0b0111_1111);

    /// Whether all of `fields` are shown.
    #[must_use]
    pub const fn contains(self, fields: Self) -> bool {
        self.0 & fields.0 == fields.0
    }
}

/// Host name, process name and process id.
impl Default for HeaderFields {
    fn default() -> Self {
        Self::HOSTNAME | Self::PROCNAME | Self::VPID
    }
}

impl BitOr for HeaderFields {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

/// Escape sequences for a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Color {
    /// None.
    #[default]
    Never,
    /// Bright colours are bold ones (SGR 1 and 30 to 37).
    Bold,
    /// Bright colours have codes of their own (SGR 90 to 97).
    Bright,
}

/// What a line looks like; the default is Babeltrace's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextOptions {
    /// How times are shown.
    pub time: TimeStyle,
    /// Whether the difference to the line before is shown.
    pub delta: bool,
    /// Which names are shown.
    pub names: Names,
    /// Which parts stand before the name.
    pub header: HeaderFields,
    /// Whether the value of an enumeration that has no label of its own is shown as the labels of its bits, when each
    /// bit that is set has one (`print-enum-flags`).
    pub enum_flags: bool,
    /// Whether a terminal's colours are used.
    pub color: Color,
}

impl Default for TextOptions {
    fn default() -> Self {
        Self {
            time: TimeStyle::default(),
            delta: true,
            names: Names::default(),
            header: HeaderFields::default(),
            enum_flags: false,
            color: Color::default(),
        }
    }
}

/// The escape sequences that stand before each kind of thing, all empty without colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Palette {
    /// Names of scopes and of what precedes the contexts.
    pub(crate) name: &'static str,
    pub(crate) field_name: &'static str,
    /// Numbers, texts and labels.
    pub(crate) value: &'static str,
    /// What has no name or label.
    pub(crate) unknown: &'static str,
    pub(crate) event_name: &'static str,
    pub(crate) time: &'static str,
    /// Stands after each of them.
    pub(crate) reset: &'static str,
}

impl Color {
    pub(crate) const fn palette(self) -> Palette {
        const BOLD: &str = "\x1b[1m";
        const CYAN: &str = "\x1b[36m";
        const RESET: &str = "\x1b[0m";
        let (unknown, event_name, time) = match self {
            Self::Never => {
                return Palette {
                    name: "",
                    field_name: "",
                    value: "",
                    unknown: "",
                    event_name: "",
                    time: "",
                    reset: "",
                };
            }
            Self::Bold => {
                ("\x1b[1m\x1b[1m\x1b[31m", "\x1b[1m\x1b[1m\x1b[35m", "\x1b[1m\x1b[1m\x1b[33m")
            }
            Self::Bright => ("\x1b[1m\x1b[91m", "\x1b[1m\x1b[95m", "\x1b[1m\x1b[93m"),
        };
        Palette {
            name: BOLD,
            field_name: CYAN,
            value: BOLD,
            unknown,
            event_name,
            time,
            reset: RESET,
        }
    }
}
