// tutti/core/comm/make.h: from a call of the C API to a communicator that is being set up.
#pragma once
#include "comm/handle.h"

namespace tutti {

using Init = std::function<Status(Communicator &)>;

// Makes the handle now and runs `init` now, at the end of the group, or in the background.
// `serial`: calls of one group that share it run one after the other.
Status create(tuttiComm_t *out, std::shared_ptr<Communicator> c, Init init, const void *serial = nullptr);

// The same for one that is made out of `parent`, whose control plane is `init`'s meanwhile. An error is the new one's alone:
// the parent tells it when asked, and goes on as it is.
Status derive(tuttiComm_t *out, std::shared_ptr<Communicator> c, const std::shared_ptr<Communicator> &parent, Init init);

} // namespace tutti
