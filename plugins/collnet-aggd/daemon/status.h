// tutti/plugins/collnet-aggd/daemon/status.h: what the daemon tells about itself.
#pragma once
#include "server.h"

namespace tutti::aggd {

std::string status_json(const Server &server);
std::string metrics_text(const Server &server);
// Answers one question and closes: status on the admin socket, metrics over HTTP.
std::unique_ptr<Source> make_query(Server &server, Fd fd, bool http);

} // namespace tutti::aggd
