// tutti/core/comm/destroy.h: the end of communicators.
#pragma once
#include "comm/communicator.h"

namespace tutti {

// Finalizes, unless the communicator failed or was finalized, and frees. Ranks of one process may be destroyed one after the
// other by one thread: all but the last are finalized in the background, and the last call returns when all of them are done.
Status destroy(const std::shared_ptr<Communicator> &comm);

// Ends everything with an error and frees the handle, which has been retired, at once or when the threads inside have left.
void abort_handle(tuttiComm *handle);

} // namespace tutti
