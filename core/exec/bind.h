// tutti/core/exec/bind.h: resolves a plan for one (selection, type, op).
#pragma once
#include "exec/bound.h"
#include "transport/transport.h"

namespace tutti {

Result<std::unique_ptr<Bound>> bind_plan(Transport &transport, Workspace &workspace, std::shared_ptr<const Plan> plan,
                                         const Selection &selection, tutti_dtype dtype, tutti_redop op);

} // namespace tutti
