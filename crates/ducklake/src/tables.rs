//! The tables of a DuckLake 1.0 catalogue, as the `ducklake` extension of DuckDB 1.5 makes them in SQLite and PostgreSQL.
//!
//! Source: <https://ducklake.select/docs/stable/specification/tables/overview>. Tables that are never written here are there because
//! readers look into each.

use std::fmt::Write as _;

use crate::connect::Backend;

/// What a column has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Integer,
    Text,
    Flag,
    Time,
    Uuid,
}

impl Kind {
    fn sql(self, backend: Backend) -> &'static str {
        match (self, backend) {
            (Self::Integer, _) | (Self::Flag, Backend::Sqlite) => "BIGINT",
            (Self::Text, _) | (Self::Time | Self::Uuid, Backend::Sqlite) => "VARCHAR",
            (Self::Flag, Backend::Postgres) => "BOOLEAN",
            (Self::Time, Backend::Postgres) => "TIMESTAMPTZ",
            (Self::Uuid, Backend::Postgres) => "UUID",
        }
    }
}

/// What holds of the first columns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// The first is the primary key.
    Key,
    /// So many have no null.
    Present(usize),
}

/// A table.
#[derive(Debug)]
pub(crate) struct Relation {
    pub(crate) name: &'static str,
    pub(crate) columns: &'static [(&'static str, Kind)],
    rule: Rule,
}

impl Relation {
    /// The statement that makes it.
    pub(crate) fn creation(&self, backend: Backend) -> String {
        let mut sql = format!("CREATE TABLE {} (", self.name);
        for (index, (name, kind)) in self.columns.iter().enumerate() {
            let comma = if index == 0 { "" } else { ", " };
            let rule = match self.rule {
                Rule::Key if index == 0 => " PRIMARY KEY",
                Rule::Present(count) if index < count => " NOT NULL",
                _ => "",
            };
            write!(sql, "{comma}\"{name}\" {}{rule}", kind.sql(backend)).expect("a text takes all");
        }
        sql.push(')');
        sql
    }
}

/// Our own indexes: a path is looked up at each commit and there once, and a file's statistics go with it.
pub(crate) const INDEXES: [&str; 3] = [
    "CREATE UNIQUE INDEX ducklake_data_file_by_path ON ducklake_data_file (table_id, path)",
    "CREATE INDEX ducklake_file_column_stats_by_file ON ducklake_file_column_stats (data_file_id)",
    "CREATE INDEX ducklake_files_scheduled_for_deletion_by_path ON ducklake_files_scheduled_for_deletion (path)",
];

pub(crate) const METADATA: Relation = Relation {
    name: "ducklake_metadata",
    columns: &[
        ("key", Kind::Text),
        ("value", Kind::Text),
        ("scope", Kind::Text),
        ("scope_id", Kind::Integer),
    ],
    rule: Rule::Present(2),
};

pub(crate) const SNAPSHOT: Relation = Relation {
    name: "ducklake_snapshot",
    columns: &[
        ("snapshot_id", Kind::Integer),
        ("snapshot_time", Kind::Time),
        ("schema_version", Kind::Integer),
        ("next_catalog_id", Kind::Integer),
        ("next_file_id", Kind::Integer),
    ],
    rule: Rule::Key,
};

pub(crate) const SNAPSHOT_CHANGES: Relation = Relation {
    name: "ducklake_snapshot_changes",
    columns: &[
        ("snapshot_id", Kind::Integer),
        ("changes_made", Kind::Text),
        ("author", Kind::Text),
        ("commit_message", Kind::Text),
        ("commit_extra_info", Kind::Text),
    ],
    rule: Rule::Key,
};

pub(crate) const SCHEMA: Relation = Relation {
    name: "ducklake_schema",
    columns: &[
        ("schema_id", Kind::Integer),
        ("schema_uuid", Kind::Uuid),
        ("begin_snapshot", Kind::Integer),
        ("end_snapshot", Kind::Integer),
        ("schema_name", Kind::Text),
        ("path", Kind::Text),
        ("path_is_relative", Kind::Flag),
    ],
    rule: Rule::Key,
};

pub(crate) const TABLE: Relation = Relation {
    name: "ducklake_table",
    columns: &[
        ("table_id", Kind::Integer),
        ("table_uuid", Kind::Uuid),
        ("begin_snapshot", Kind::Integer),
        ("end_snapshot", Kind::Integer),
        ("schema_id", Kind::Integer),
        ("table_name", Kind::Text),
        ("path", Kind::Text),
        ("path_is_relative", Kind::Flag),
    ],
    rule: Rule::Present(0),
};

pub(crate) const VIEW: Relation = Relation {
    name: "ducklake_view",
    columns: &[
        ("view_id", Kind::Integer),
        ("view_uuid", Kind::Uuid),
        ("begin_snapshot", Kind::Integer),
        ("end_snapshot", Kind::Integer),
        ("schema_id", Kind::Integer),
        ("view_name", Kind::Text),
        ("dialect", Kind::Text),
        ("sql", Kind::Text),
        ("column_aliases", Kind::Text),
    ],
    rule: Rule::Present(0),
};

pub(crate) const DATA_FILE: Relation = Relation {
    name: "ducklake_data_file",
    columns: &[
        ("data_file_id", Kind::Integer),
        ("table_id", Kind::Integer),
        ("begin_snapshot", Kind::Integer),
        ("end_snapshot", Kind::Integer),
        ("file_order", Kind::Integer),
        ("path", Kind::Text),
        ("path_is_relative", Kind::Flag),
        ("file_format", Kind::Text),
        ("record_count", Kind::Integer),
        ("file_size_bytes", Kind::Integer),
        ("footer_size", Kind::Integer),
        ("row_id_start", Kind::Integer),
        ("partition_id", Kind::Integer),
        ("encryption_key", Kind::Text),
        ("mapping_id", Kind::Integer),
        ("partial_max", Kind::Integer),
    ],
    rule: Rule::Key,
};

pub(crate) const FILE_COLUMN_STATS: Relation = Relation {
    name: "ducklake_file_column_stats",
    columns: &[
        ("data_file_id", Kind::Integer),
        ("table_id", Kind::Integer),
        ("column_id", Kind::Integer),
        ("column_size_bytes", Kind::Integer),
        ("value_count", Kind::Integer),
        ("null_count", Kind::Integer),
        ("min_value", Kind::Text),
        ("max_value", Kind::Text),
        ("contains_nan", Kind::Flag),
        ("extra_stats", Kind::Text),
    ],
    rule: Rule::Present(0),
};

pub(crate) const COLUMN: Relation = Relation {
    name: "ducklake_column",
    columns: &[
        ("column_id", Kind::Integer),
        ("begin_snapshot", Kind::Integer),
        ("end_snapshot", Kind::Integer),
        ("table_id", Kind::Integer),
        ("column_order", Kind::Integer),
        ("column_name", Kind::Text),
        ("column_type", Kind::Text),
        ("initial_default", Kind::Text),
        ("default_value", Kind::Text),
        ("nulls_allowed", Kind::Flag),
        ("parent_column", Kind::Integer),
        ("default_value_type", Kind::Text),
        ("default_value_dialect", Kind::Text),
    ],
    rule: Rule::Present(0),
};

pub(crate) const TABLE_STATS: Relation = Relation {
    name: "ducklake_table_stats",
    columns: &[
        ("table_id", Kind::Integer),
        ("record_count", Kind::Integer),
        ("next_row_id", Kind::Integer),
        ("file_size_bytes", Kind::Integer),
    ],
    rule: Rule::Present(0),
};

pub(crate) const TABLE_COLUMN_STATS: Relation = Relation {
    name: "ducklake_table_column_stats",
    columns: &[
        ("table_id", Kind::Integer),
        ("column_id", Kind::Integer),
        ("contains_null", Kind::Flag),
        ("contains_nan", Kind::Flag),
        ("min_value", Kind::Text),
        ("max_value", Kind::Text),
        ("extra_stats", Kind::Text),
    ],
    rule: Rule::Present(0),
};

pub(crate) const FILES_SCHEDULED_FOR_DELETION: Relation = Relation {
    name: "ducklake_files_scheduled_for_deletion",
    columns: &[
        ("data_file_id", Kind::Integer),
        ("path", Kind::Text),
        ("path_is_relative", Kind::Flag),
        ("schedule_start", Kind::Time),
    ],
    rule: Rule::Present(0),
};

pub(crate) const SCHEMA_VERSIONS: Relation = Relation {
    name: "ducklake_schema_versions",
    columns: &[
        ("begin_snapshot", Kind::Integer),
        ("schema_version", Kind::Integer),
        ("table_id", Kind::Integer),
    ],
    rule: Rule::Present(0),
};

/// All of them.
pub(crate) const ALL: [Relation; 28] = [
    METADATA,
    SNAPSHOT,
    SNAPSHOT_CHANGES,
    SCHEMA,
    TABLE,
    VIEW,
    Relation {
        name: "ducklake_tag",
        columns: &[
            ("object_id", Kind::Integer),
            ("begin_snapshot", Kind::Integer),
            ("end_snapshot", Kind::Integer),
            ("key", Kind::Text),
            ("value", Kind::Text),
        ],
        rule: Rule::Present(0),
    },
    Relation {
        name: "ducklake_column_tag",
        columns: &[
            ("table_id", Kind::Integer),
            ("column_id", Kind::Integer),
            ("begin_snapshot", Kind::Integer),
            ("end_snapshot", Kind::Integer),
            ("key", Kind::Text),
            ("value", Kind::Text),
        ],
        rule: Rule::Present(0),
    },
    DATA_FILE,
    FILE_COLUMN_STATS,
    Relation {
        name: "ducklake_file_variant_stats",
        columns: &[
            ("data_file_id", Kind::Integer),
            ("table_id", Kind::Integer),
            ("column_id", Kind::Integer),
            ("variant_path", Kind::Text),
            ("shredded_type", Kind::Text),
            ("column_size_bytes", Kind::Integer),
            ("value_count", Kind::Integer),
            ("null_count", Kind::Integer),
            ("min_value", Kind::Text),
            ("max_value", Kind::Text),
            ("contains_nan", Kind::Flag),
            ("extra_stats", Kind::Text),
        ],
        rule: Rule::Present(0),
    },
    Relation {
        name: "ducklake_delete_file",
        columns: &[
            ("delete_file_id", Kind::Integer),
            ("table_id", Kind::Integer),
            ("begin_snapshot", Kind::Integer),
            ("end_snapshot", Kind::Integer),
            ("data_file_id", Kind::Integer),
            ("path", Kind::Text),
            ("path_is_relative", Kind::Flag),
            ("format", Kind::Text),
            ("delete_count", Kind::Integer),
            ("file_size_bytes", Kind::Integer),
            ("footer_size", Kind::Integer),
            ("encryption_key", Kind::Text),
            ("partial_max", Kind::Integer),
        ],
        rule: Rule::Key,
    },
    COLUMN,
    TABLE_STATS,
    TABLE_COLUMN_STATS,
    Relation {
        name: "ducklake_partition_info",
        columns: &[
            ("partition_id", Kind::Integer),
            ("table_id", Kind::Integer),
            ("begin_snapshot", Kind::Integer),
            ("end_snapshot", Kind::Integer),
        ],
        rule: Rule::Present(0),
    },
    Relation {
        name: "ducklake_partition_column",
        columns: &[
            ("partition_id", Kind::Integer),
            ("table_id", Kind::Integer),
            ("partition_key_index", Kind::Integer),
            ("column_id", Kind::Integer),
            ("transform", Kind::Text),
        ],
        rule: Rule::Present(0),
    },
    Relation {
        name: "ducklake_file_partition_value",
        columns: &[
            ("data_file_id", Kind::Integer),
            ("table_id", Kind::Integer),
            ("partition_key_index", Kind::Integer),
            ("partition_value", Kind::Text),
        ],
        rule: Rule::Present(0),
    },
    FILES_SCHEDULED_FOR_DELETION,
    Relation {
        name: "ducklake_inlined_data_tables",
        columns: &[
            ("table_id", Kind::Integer),
            ("table_name", Kind::Text),
            ("schema_version", Kind::Integer),
        ],
        rule: Rule::Present(0),
    },
    Relation {
        name: "ducklake_column_mapping",
        columns: &[
            ("mapping_id", Kind::Integer),
            ("table_id", Kind::Integer),
            ("type", Kind::Text),
        ],
        rule: Rule::Present(0),
    },
    Relation {
        name: "ducklake_name_mapping",
        columns: &[
            ("mapping_id", Kind::Integer),
            ("column_id", Kind::Integer),
            ("source_name", Kind::Text),
            ("target_field_id", Kind::Integer),
            ("parent_column", Kind::Integer),
            ("is_partition", Kind::Flag),
        ],
        rule: Rule::Present(0),
    },
    SCHEMA_VERSIONS,
    Relation {
        name: "ducklake_macro",
        columns: &[
            ("schema_id", Kind::Integer),
            ("macro_id", Kind::Integer),
            ("macro_name", Kind::Text),
            ("begin_snapshot", Kind::Integer),
            ("end_snapshot", Kind::Integer),
        ],
        rule: Rule::Present(0),
    },
    Relation {
        name: "ducklake_macro_impl",
        columns: &[
            ("macro_id", Kind::Integer),
            ("impl_id", Kind::Integer),
            ("dialect", Kind::Text),
            ("sql", Kind::Text),
            ("type", Kind::Text),
        ],
        rule: Rule::Present(0),
    },
    Relation {
        name: "ducklake_macro_parameters",
        columns: &[
            ("macro_id", Kind::Integer),
            ("impl_id", Kind::Integer),
            ("column_id", Kind::Integer),
            ("parameter_name", Kind::Text),
            ("parameter_type", Kind::Text),
            ("default_value", Kind::Text),
            ("default_value_type", Kind::Text),
        ],
        rule: Rule::Present(0),
    },
    Relation {
        name: "ducklake_sort_info",
        columns: &[
            ("sort_id", Kind::Integer),
            ("table_id", Kind::Integer),
            ("begin_snapshot", Kind::Integer),
            ("end_snapshot", Kind::Integer),
        ],
        rule: Rule::Present(0),
    },
    Relation {
        name: "ducklake_sort_expression",
        columns: &[
            ("sort_id", Kind::Integer),
            ("table_id", Kind::Integer),
            ("sort_key_index", Kind::Integer),
            ("expression", Kind::Text),
            ("dialect", Kind::Text),
            ("sort_direction", Kind::Text),
            ("null_order", Kind::Text),
        ],
        rule: Rule::Present(0),
    },
];
