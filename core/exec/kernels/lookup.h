// tutti/core/exec/kernels/lookup.h: the per-file entry points behind host_reduce_service().
#pragma once
#include "tutti/plugin/host.h"

namespace tutti::kernels {

using Fn = void (*)();
enum class Form { reduce, reduce2, reduce_n };

// The function of this CPU's best target; nullptr for an unknown type.
Fn sum(Form form, tutti_dtype dtype, bool nontemporal);
Fn prod(Form form, tutti_dtype dtype, bool nontemporal);
Fn max(Form form, tutti_dtype dtype, bool nontemporal);
Fn min(Form form, tutti_dtype dtype, bool nontemporal);
tutti_copy_fn copy(bool nontemporal);
tutti_scale_fn scale(tutti_dtype dtype);
tutti_divide_fn divide(tutti_dtype dtype);
const char *target_name();

} // namespace tutti::kernels
