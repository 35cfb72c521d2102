//! What tenants keep beside samples: rules and settings, each as one document with a generation.

use rules::{Book, Settings};
use sqlx::{AnyConnection, Row as _};

use super::cells::{known, number, parse, text};
use super::{Catalogue, Error, Result, beside};
use crate::cells::KnownSeries;
use crate::lake::name::Tenant;

/// What a document is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Rules,
    Settings,
}

impl Kind {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Rules => "rules",
            Self::Settings => "settings",
        }
    }
}

impl Catalogue {
    /// A tenant's rules.
    ///
    /// # Errors
    ///
    /// [`Error::Database`], [`Error::Damaged`].
    pub fn rules(&self, tenant: &Tenant) -> Result<Book> {
        self.document(Kind::Rules, tenant)?.map_or(Ok(Book::default()), parse)
    }

    /// Puts rules in the place of those of a generation.
    ///
    /// # Errors
    ///
    /// [`Error::Generation`] when there are others, [`Error::Database`].
    pub fn put_rules(&self, tenant: &Tenant, book: &Book, expected: u64) -> Result<()> {
        self.put_document(Kind::Rules, tenant, text(book)?, book.generation(), expected)
    }

    /// A tenant's settings.
    ///
    /// # Errors
    ///
    /// [`Error::Database`], [`Error::Damaged`].
    pub fn settings(&self, tenant: &Tenant) -> Result<Settings> {
        self.document(Kind::Settings, tenant)?.map_or(Ok(Settings::default()), parse)
    }

    /// Puts settings in the place of those of a generation.
    ///
    /// # Errors
    ///
    /// [`Error::Generation`] when there are others, [`Error::Database`].
    pub fn put_settings(&self, tenant: &Tenant, settings: &Settings, expected: u64) -> Result<()> {
        let content = text(settings)?;
        self.put_document(Kind::Settings, tenant, content, settings.generation(), expected)
    }

    fn document(&self, kind: Kind, tenant: &Tenant) -> Result<Option<String>> {
        let tenant = tenant.as_str().to_owned();
        self.database.transact(async move |connection: &mut AnyConnection| {
            content(connection, kind, &tenant).await
        })
    }

    fn put_document(
        &self,
        kind: Kind,
        tenant: &Tenant,
        content: String,
        generation: u64,
        expected: u64,
    ) -> Result<()> {
        let tenant = tenant.as_str().to_owned();
        self.database.transact(async move |connection: &mut AnyConnection| {
            let select =
                "SELECT generation FROM throughline_document WHERE kind = $1 AND tenant = $2";
            let query = sqlx::query(select).bind(kind.as_str()).bind(tenant.as_str());
            let row = query.fetch_optional(&mut *connection).await?;
            let found = row.map_or(Ok(0), |row| number(&row, 0))?;
            if found != expected {
                return Err(Error::Generation { expected, found });
            }
            let upsert = "INSERT INTO throughline_document (kind, tenant, generation, content) VALUES ($1, $2, $3, $4) \
                          ON CONFLICT (kind, tenant) DO UPDATE SET generation = excluded.generation, content = excluded.content";
            let query = sqlx::query(upsert).bind(kind.as_str()).bind(tenant);
            let query = query.bind(generation.cast_signed()).bind(content);
            query.execute(connection).await?;
            Ok(())
        })
    }
}

/// A tenant's rules and the series of it that were exported, asked of a catalogue that another process may own.
///
/// # Errors
///
/// [`Error::Database`] when there is none, too; [`Error::Damaged`].
pub(crate) fn exported(url: &str, tenant: &Tenant) -> Result<(Book, KnownSeries)> {
    beside(url, async |connection: &mut AnyConnection| {
        let book = content(connection, Kind::Rules, tenant.as_str()).await?;
        let known = known(connection, tenant.as_str()).await?;
        Ok((book.map_or(Ok(Book::default()), parse)?, known))
    })
}

async fn content(
    connection: &mut AnyConnection,
    kind: Kind,
    tenant: &str,
) -> Result<Option<String>> {
    let select = "SELECT content FROM throughline_document WHERE kind = $1 AND tenant = $2";
    let query = sqlx::query(select).bind(kind.as_str()).bind(tenant);
    let row = query.fetch_optional(connection).await?;
    Ok(row.map(|row| row.try_get(0)).transpose()?)
}
