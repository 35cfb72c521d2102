//! Which event records are wanted.

use std::sync::Arc;

use ctf::TraceClass;
use ctf::filter::{ClassFilter, Filter, FilterError, Glob};
use tracedir::{Event, Recording};

/// Event records by name and by what they hold.
pub(crate) struct Selection {
    names: Vec<Glob>,
    filter: Option<Filter>,
    /// Of each stream: the trace class that its last event record was read by, and what was compiled for it.
    of_stream: Vec<Option<(Arc<TraceClass>, Arc<Chosen>)>>,
    /// What was compiled last: streams of one trace share it.
    recent: Vec<(Arc<TraceClass>, Arc<Chosen>)>,
    /// Whether a trace class has come since [`Self::doubt`] looked.
    has_new: bool,
    has_doubted: bool,
}

/// What is wanted of one trace class.
struct Chosen {
    /// By position of the event record class: whether the name fits.
    names: Option<Vec<bool>>,
    filter: Option<ClassFilter>,
}

impl Selection {
    /// The most trace classes that are kept in reserve; each stream keeps its own.
    const RECENT: usize = 64;

    pub(crate) fn new(names: &[String], filter: Option<Filter>, streams: usize) -> Self {
        let mut of_stream = Vec::new();
        of_stream.resize_with(streams, || None);
        let names = names.iter().map(|pattern| Glob::new(pattern)).collect();
        Self { names, filter, of_stream, recent: Vec::new(), has_new: false, has_doubted: false }
    }

    /// Whether anything can be left out.
    pub(crate) fn is_all(&self) -> bool {
        self.names.is_empty() && self.filter.is_none()
    }

    /// Refuses an expression with a field that no trace knows.
    pub(crate) fn check(&self, recording: &Recording) -> Result<(), FilterError> {
        let classes = recording.traces().iter().map(|trace| &**trace.class());
        self.filter.as_ref().map_or(Ok(()), |filter| filter.check(classes))
    }

    /// What no trace class so far can be asked, said once: for who reads what is still being written, where the classes
    /// that an expression is meant for may come later.
    pub(crate) fn doubt(&mut self) -> Option<FilterError> {
        let filter = self.filter.as_ref()?;
        if !std::mem::take(&mut self.has_new) || self.has_doubted {
            return None;
        }
        let doubt = filter.check(self.recent.iter().map(|(class, _)| &**class)).err();
        self.has_doubted = doubt.is_some();
        doubt
    }

    #[inline]
    pub(crate) fn takes(&mut self, event: &Event<'_>) -> bool {
        if self.is_all() {
            return true;
        }
        let class = event.trace_class();
        let known = self.of_stream.get(event.stream_index).and_then(Option::as_ref);
        match known.filter(|(known, _)| Arc::ptr_eq(known, class)) {
            Some((_, chosen)) => chosen.takes(event),
            None => self.choose(event.stream_index, class).takes(event),
        }
    }

    #[cold]
    fn choose(&mut self, stream: usize, class: &Arc<TraceClass>) -> Arc<Chosen> {
        let recent = self.recent.iter().find(|(known, _)| Arc::ptr_eq(known, class));
        let chosen = match recent {
            Some((_, chosen)) => Arc::clone(chosen),
            None => {
                let chosen = Arc::new(self.compile(class));
                if self.recent.len() >= Self::RECENT {
                    self.recent.remove(0);
                }
                self.recent.push((Arc::clone(class), Arc::clone(&chosen)));
                self.has_new = true;
                chosen
            }
        };
        if self.of_stream.len() <= stream {
            self.of_stream.resize_with(stream + 1, || None);
        }
        if let Some(slot) = self.of_stream.get_mut(stream) {
            *slot = Some((Arc::clone(class), Arc::clone(&chosen)));
        }
        chosen
    }

    fn compile(&self, class: &TraceClass) -> Chosen {
        let fits = |name: &str| self.names.iter().any(|glob| glob.fits(name.as_bytes()));
        let classes = class.event_record_classes();
        let names = (!self.names.is_empty())
            .then(|| classes.iter().map(|class| fits(class.name())).collect());
        Chosen { names, filter: self.filter.as_ref().map(|filter| filter.compile(class)) }
    }
}

impl Chosen {
    #[inline]
    fn takes(&self, event: &Event<'_>) -> bool {
        let named = |fits: &Vec<bool>| {
            let index = usize::try_from(event.record.class().index());
            index.ok().and_then(|index| fits.get(index).copied()).unwrap_or(false)
        };
        self.names.as_ref().is_none_or(named)
            && self.filter.as_ref().is_none_or(|filter| filter.matches(&event.record))
    }
}
