//! `ExportProfilesServiceRequest` of OTLP 1.10 and 1.11 for who sends it as JSON.

use crate::json::{Kind, Message};

pub(super) static REQUEST: Message = Message(&[
    ("resource_profiles", 1, Kind::Message(&RESOURCE_PROFILES)),
    ("dictionary", 2, Kind::Message(&DICTIONARY)),
]);
static DICTIONARY: Message = Message(&[
    ("mapping_table", 1, Kind::Message(&MAPPING)),
    ("location_table", 2, Kind::Message(&LOCATION)),
    ("function_table", 3, Kind::Message(&FUNCTION)),
    ("link_table", 4, Kind::Message(&LINK)),
    ("string_table", 5, Kind::Text),
    ("attribute_table", 6, Kind::Message(&KEY_VALUE_AND_UNIT)),
    ("stack_table", 7, Kind::Message(&STACK)),
]);
static RESOURCE_PROFILES: Message = Message(&[
    ("resource", 1, Kind::Message(&RESOURCE)),
    ("scope_profiles", 2, Kind::Message(&SCOPE_PROFILES)),
]);
static RESOURCE: Message = Message(&[("attributes", 1, Kind::Message(&KEY_VALUE))]);
static SCOPE_PROFILES: Message = Message(&[("profiles", 2, Kind::Message(&PROFILE))]);
static PROFILE: Message = Message(&[
    ("sample_type", 1, Kind::Message(&VALUE_TYPE)),
    ("samples", 2, Kind::Message(&SAMPLE)),
    ("time_unix_nano", 3, Kind::Fixed64),
    ("duration_nano", 4, Kind::Number),
    ("period_type", 5, Kind::Message(&VALUE_TYPE)),
    ("period", 6, Kind::Number),
    ("profile_id", 7, Kind::Id),
    ("attribute_indices", 11, Kind::Number),
]);
static SAMPLE: Message = Message(&[
    ("stack_index", 1, Kind::Number),
    ("attribute_indices", 2, Kind::Number),
    ("link_index", 3, Kind::Number),
    ("values", 4, Kind::Number),
    ("timestamps_unix_nano", 5, Kind::Fixed64),
]);
static VALUE_TYPE: Message =
    Message(&[("type_strindex", 1, Kind::Number), ("unit_strindex", 2, Kind::Number)]);
static STACK: Message = Message(&[("location_indices", 1, Kind::Number)]);
static LOCATION: Message = Message(&[
    ("mapping_index", 1, Kind::Number),
    ("address", 2, Kind::Number),
    ("lines", 3, Kind::Message(&LINE)),
    ("attribute_indices", 4, Kind::Number),
]);
static LINE: Message = Message(&[
    ("function_index", 1, Kind::Number),
    ("line", 2, Kind::Number),
    ("column", 3, Kind::Number),
]);
static FUNCTION: Message = Message(&[
    ("name_strindex", 1, Kind::Number),
    ("system_name_strindex", 2, Kind::Number),
    ("filename_strindex", 3, Kind::Number),
    ("start_line", 4, Kind::Number),
]);
static MAPPING: Message = Message(&[
    ("memory_start", 1, Kind::Number),
    ("memory_limit", 2, Kind::Number),
    ("file_offset", 3, Kind::Number),
    ("filename_strindex", 4, Kind::Number),
    ("attribute_indices", 5, Kind::Number),
]);
static LINK: Message = Message(&[("trace_id", 1, Kind::Id), ("span_id", 2, Kind::Id)]);
static KEY_VALUE_AND_UNIT: Message = Message(&[
    ("key_strindex", 1, Kind::Number),
    ("value", 2, Kind::Message(&ANY_VALUE)),
    ("unit_strindex", 3, Kind::Number),
]);
static KEY_VALUE: Message = Message(&[
    ("key", 1, Kind::Text),
    ("value", 2, Kind::Message(&ANY_VALUE)),
    ("key_strindex", 3, Kind::Number),
]);
static ANY_VALUE: Message = Message(&[
    ("string_value", 1, Kind::Text),
    ("bool_value", 2, Kind::Bool),
    ("int_value", 3, Kind::Number),
    ("double_value", 4, Kind::Double),
    ("array_value", 5, Kind::Message(&ARRAY_VALUE)),
    ("kvlist_value", 6, Kind::Message(&KEY_VALUE_LIST)),
    ("bytes_value", 7, Kind::Bytes),
    ("string_value_strindex", 8, Kind::Number),
]);
static ARRAY_VALUE: Message = Message(&[("values", 1, Kind::Message(&ANY_VALUE))]);
static KEY_VALUE_LIST: Message = Message(&[("values", 1, Kind::Message(&KEY_VALUE))]);
