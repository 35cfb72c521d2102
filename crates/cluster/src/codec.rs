//! The leaf's bytes: those of its task.

use std::sync::Arc;

use datafusion::common::{Result, internal_err, plan_err};
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use datafusion_proto::physical_plan::{PhysicalExtensionCodec, PhysicalProtoConverterExtension};

use crate::plan::{Form, StepsExec, external};
use crate::worker::Place;

/// Encodes tasks at a coordinator, which has no places, and puts a task into its place at a worker.
#[derive(Debug)]
pub(crate) struct Codec {
    pub(crate) place: Option<Place>,
}

impl PhysicalExtensionCodec for Codec {
    fn try_decode(
        &self,
        bytes: &[u8],
        inputs: &[Arc<dyn ExecutionPlan>],
        _: &TaskContext,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<Arc<dyn ExecutionPlan>> {
        let Some(place) = self.place.as_ref().filter(|_| inputs.is_empty()) else {
            return plan_err!("steps are a leaf, and decoded at workers");
        };
        let accepted = place.accept(bytes).map_err(external)?;
        Ok(Arc::new(StepsExec::new(Form::Accepted(Arc::new(accepted)), 1)))
    }

    fn try_encode(
        &self,
        node: Arc<dyn ExecutionPlan>,
        bytes: &mut Vec<u8>,
        _: &dyn PhysicalProtoConverterExtension,
    ) -> Result<()> {
        match node.downcast_ref::<StepsExec>().map(|plan| &plan.form) {
            Some(Form::Task(task)) => {
                bytes.extend(task.encode().map_err(external)?);
                Ok(())
            }
            _ => internal_err!("{} is not a task", node.name()),
        }
    }
}
