#include "connection.h"
#include "tutti/plugin/store.h"
#include <arpa/inet.h>
#include <cstddef>
#include <cstring>
#include <future>
#include <hiredis/hiredis.h>
#include <hiredis/read.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <system_error>
#include <thread>

namespace tutti::redis {

using plugin::Limit;

namespace {

constexpr size_t kMaxAnswer = TUTTI_STORE_VALUE_BYTES + 64 * 1024; // bytes read for one answer
constexpr std::chrono::milliseconds kTry{5000};                    // for one of several addresses

struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;
  std::string text;
};

std::string error_text(int err) {
  return std::generic_category().message(err);
}

// Resolvers cannot be given a deadline: a thread of its own asks, and goes on alone when nobody waits any more.
struct Resolved {
  int rc = 0;
  std::vector<Address> list;
};
Resolved look_up(const std::string &host, uint16_t port, int flags) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  Resolved out;
  out.rc = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  for (const addrinfo *i = out.rc == 0 ? found : nullptr; i; i = i->ai_next) {
    Address a;
    std::memcpy(&a.storage, i->ai_addr, i->ai_addrlen);
    a.length = i->ai_addrlen;
    char name[NI_MAXHOST] = "?";
    ::getnameinfo(i->ai_addr, i->ai_addrlen, name, sizeof(name), nullptr, 0, NI_NUMERICHOST);
    a.text = name;
    out.list.push_back(a);
  }
  if (found) ::freeaddrinfo(found);
  return out;
}
std::vector<Address> resolve(const Target &target, const Limit &limit) {
  Resolved out = look_up(target.host, target.port, AI_NUMERICHOST);
  if (out.rc == 0) return out.list;
  const auto answer = std::make_shared<std::promise<Resolved>>();
  std::future<Resolved> future = answer->get_future();
  sigset_t all, old; // signals belong to the application's threads
  sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &old);
  std::thread([answer, host = target.host, port = target.port] { answer->set_value(look_up(host, port, 0)); }).detach();
  ::pthread_sigmask(SIG_SETMASK, &old, nullptr);
  while (future.wait_for(std::chrono::milliseconds(5)) != std::future_status::ready) {
    limit.check();
    if (limit.over()) throw Lost{"its name has not been resolved"};
  }
  out = future.get();
  if (out.rc != 0) throw Lost{plugin::text("cannot resolve it: ", ::gai_strerror(out.rc))};
  return out.list;
}

Address of_socket(const std::string &path) {
  Address a;
  sockaddr_un un{};
  if (path.size() >= sizeof(un.sun_path))
    plugin::fail(TUTTI_ERR_INVALID, "the path ", path, " has ", path.size(), " bytes, a socket's has at most ",
                 sizeof(un.sun_path) - 1);
  un.sun_family = AF_UNIX;
  std::memcpy(un.sun_path, path.data(), path.size());
  std::memcpy(&a.storage, &un, sizeof(un));
  a.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size() + 1);
  a.text = path;
  return a;
}

class Fd {
public:
  explicit Fd(int fd) : fd_(fd) {}
  ~Fd() {
    if (fd_ >= 0) ::close(fd_);
  }
  Fd(const Fd &) = delete;
  Fd &operator=(const Fd &) = delete;
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

private:
  int fd_;
};

int connect_to(const Address &a, const Limit &limit) {
  Fd fd(::socket(a.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (fd.get() < 0) plugin::fail_errno(errno, "socket");
  int err = ::connect(fd.get(), reinterpret_cast<const sockaddr *>(&a.storage), a.length) == 0 ? 0 : errno;
  if (err == EINPROGRESS) {
    if (!limit.wait(fd.get(), POLLOUT)) throw Lost{plugin::text("connect to ", a.text, ": no answer")};
    socklen_t n = sizeof(err);
    ::getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &err, &n);
  }
  if (err != 0) throw Lost{plugin::text("connect to ", a.text, ": ", error_text(err))};
  const int one = 1;
  if (a.storage.ss_family != AF_UNIX) ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  return fd.release();
}

} // namespace

std::string Target::text() const {
  return socket.empty() ? plugin::StoreUrl::Host{host, port}.text() : socket;
}

void Connection::FreeReader::operator()(redisReader *r) const {
  ::redisReaderFree(r);
}

Connection::Connection(const Target &target, const Limit &limit) : reader_(::redisReaderCreate()) {
  if (!reader_) throw std::bad_alloc();
  const std::vector<Address> where =
      target.socket.empty() ? resolve(target, limit) : std::vector<Address>{of_socket(target.socket)};
  for (size_t i = 0; i < where.size(); i++) {
    const bool last = i + 1 == where.size();
    try {
      fd_ = connect_to(where[i], last ? limit : limit.within(kTry));
      return;
    } catch (const Lost &) {
      if (last) throw;
    }
  }
  throw Lost{"its name has no address"};
}

Connection::~Connection() {
  if (fd_ >= 0) ::close(fd_);
}

void Connection::send(std::string_view bytes, const Limit &limit) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n > 0) {
      bytes.remove_prefix(static_cast<size_t>(n));
      continue;
    }
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno != EAGAIN) throw Lost{plugin::text("the connection was cut: ", error_text(errno))};
    if (!limit.wait(fd_, POLLOUT)) throw Lost{"it takes no more bytes"};
  }
}

Reply Connection::receive(const Limit &limit) {
  char buffer[16384];
  for (size_t got = 0;;) {
    void *raw = nullptr;
    if (::redisReaderGetReply(reader_.get(), &raw) != REDIS_OK)
      plugin::fail(TUTTI_ERR_REMOTE, "what answers does not speak Redis' protocol: ", reader_->errstr);
    if (raw) {
      const std::unique_ptr<redisReply, void (*)(void *)> reply(static_cast<redisReply *>(raw), ::freeReplyObject);
      const std::string text = reply->str ? std::string(reply->str, static_cast<size_t>(reply->len)) : std::string();
      switch (reply->type) {
      case REDIS_REPLY_NIL:
        return {};
      case REDIS_REPLY_INTEGER:
        return {Reply::Kind::number, "", reply->integer};
      case REDIS_REPLY_ERROR:
        return {Reply::Kind::error, text, 0};
      case REDIS_REPLY_STRING:
      case REDIS_REPLY_STATUS:
        return {Reply::Kind::text, text, 0};
      default:
        plugin::fail(TUTTI_ERR_REMOTE, "it answers with a list where none was asked for");
      }
    }
    if (!limit.wait(fd_, POLLIN)) throw Lost{"it does not answer"};
    const ssize_t n = ::recv(fd_, buffer, sizeof(buffer), MSG_DONTWAIT);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n <= 0) throw Lost{n == 0 ? "it closed the connection" : plugin::text("the connection was cut: ", error_text(errno))};
    got += static_cast<size_t>(n);
    if (got > kMaxAnswer) plugin::fail(TUTTI_ERR_REMOTE, "it answers with more than ", kMaxAnswer, " bytes");
    ::redisReaderFeed(reader_.get(), buffer, static_cast<size_t>(n));
  }
}

Reply Connection::ask(const std::vector<std::string_view> &words, const Limit &limit) {
  std::vector<const char *> texts;
  std::vector<size_t> lengths;
  for (const std::string_view w : words) {
    texts.push_back(w.data());
    lengths.push_back(w.size());
  }
  char *command = nullptr;
  const auto n = ::redisFormatCommandArgv(&command, static_cast<int>(words.size()), texts.data(), lengths.data());
  if (n < 0) throw std::bad_alloc();
  const std::unique_ptr<char, void (*)(char *)> owned(command, [](char *c) { ::redisFreeCommand(c); });
  send(std::string_view(command, static_cast<size_t>(n)), limit);
  return receive(limit);
}

} // namespace tutti::redis
