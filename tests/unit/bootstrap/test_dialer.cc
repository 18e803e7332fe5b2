// Which of several places is tried, and when.
#include "bootstrap/dialer.h"
#include "bootstrap/service.h"
#include "help.h"
#include <cstddef>
#include <cstring>
#include <poll.h>
#include <sys/un.h>

using namespace help;

namespace {

// Connections reach its queue; nobody takes them out.
UniqueFd silent_unix_listener(const std::string &name) {
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un un{};
  un.sun_family = AF_UNIX;
  std::memcpy(un.sun_path + 1, name.data(), name.size());
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (bind(fd.get(), reinterpret_cast<const sockaddr *>(&un), length) != 0 || listen(fd.get(), 8) != 0) fd.reset();
  return fd;
}
bool somebody_comes(const UniqueFd &listener, int ms) {
  pollfd p{listener.get(), POLLIN, 0};
  return poll(&p, 1, ms) == 1;
}

// A dialer of `targets` for as long as it lives.
class Dialing {
public:
  explicit Dialing(std::vector<boot::Target> targets) {
    boot::Dialer::Job job;
    job.targets = std::move(targets);
    job.deadline = Clock::now() + 10s;
    on_service(
        [&] { dialer_ = boot::Dialer::start(boot::Service::get(), std::move(job), [](const Result<boot::Conn::Ptr> &) {}); });
  }
  ~Dialing() {
    on_service([&] {
      dialer_->cancel();
      dialer_ = nullptr;
    });
  }

private:
  std::shared_ptr<boot::Dialer> dialer_;
};

} // namespace

TEST_CASE("a listener of this host that answers late gets no rival, for only it can carry descriptors") {
  const std::string name = boot::unix_listener_name(0x7e57'0001);
  const UniqueFd here = silent_unix_listener(name);
  boot::Endpoint at;
  const UniqueFd there = tcp_listener(&at);
  REQUIRE(here);
  REQUIRE(there);
  const Dialing dialing({{name, {}, {}}, {"", at, {}}});
  CHECK(somebody_comes(here, 5000));
  CHECK(!somebody_comes(there, 600)); // a rival would have come after a quarter of a second
  const UniqueFd guest(accept(here.get(), nullptr, nullptr));
  CHECK(!somebody_comes(here, 2600)); // nor is it tried anew: its process waits for a core
}

TEST_CASE("without a listener on this host the network is tried at once") {
  boot::Endpoint at;
  const UniqueFd there = tcp_listener(&at);
  REQUIRE(there);
  const Dialing dialing({{boot::unix_listener_name(0x7e57'0002), {}, {}}, {"", at, {}}});
  CHECK(somebody_comes(there, 5000));
}
