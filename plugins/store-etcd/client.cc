#include "client.h"
#include "gateway.h"

namespace tutti::etcd {

using plugin::fail;
using plugin::Limit;
using plugin::text;
using std::chrono::milliseconds;

namespace {

constexpr milliseconds kFirstPause{25};
constexpr milliseconds kLeast{500}, kMost{5000}; // for one of several servers
constexpr std::chrono::seconds kAlone{10};       // for one answer of the only one

// Codes of gRPC that etcd uses.
constexpr int kDeadline = 4, kDenied = 7, kExhausted = 8, kUnavailable = 14, kUnauthenticated = 16;

bool has(const std::string &said, const char *part) {
  return said.find(part) != std::string::npos;
}
// Too many requests have the same code.
bool full(const gateway::Refusal &r) {
  return r.code == kExhausted && has(r.text, "space exceeded");
}
// What another server, or the same one a little later, may do.
bool passes(long status, const gateway::Refusal &r) {
  if (full(r)) return false;
  return r.code == kExhausted || status == 429 || status == 502 || status == 503 || status == 504 || r.code == kUnavailable ||
         r.code == kDeadline;
}
bool about_users(const gateway::Refusal &r) {
  return r.code == kDenied || r.code == kUnauthenticated || has(r.text, "user name is empty") ||
         has(r.text, "authentication failed") || has(r.text, "authentication is not enabled");
}
[[noreturn]] void refused(const char *path, long status, const gateway::Refusal &r) {
  const tutti_status code = about_users(r) ? TUTTI_ERR_DENIED : full(r) ? TUTTI_ERR_NO_MEMORY : TUTTI_ERR_REMOTE;
  const char *advice = has(r.text, "user name is empty")
                           ? "; user and password go into the URL, or into options of plugin.store-etcd"
                       : status == 404 && r.code < 0 ? "; is it etcd, of 3.4 or later?"
                                                     : "";
  fail(code, "/v3/", path, ": ", r.text, " (HTTP ", status, ")", advice);
}

} // namespace

Client::Client(Settings settings, Nanos timeout)
    : settings_(std::move(settings)), http_(settings_.certificates), wrong_(settings_.servers.size()) {
  (void)gateway::value(ask({"kv/range", gateway::range(settings_.prefix + "tutti")}, Limit(timeout, interrupt_)));
}

std::string Client::post(const Request &request, const Limit &limit) {
  const Answer a =
      http_.post(text(settings_.servers[server_], "/v3/", request.path), request.body, token_, request.once, limit);
  if (a.status == 200) return a.body;
  const gateway::Refusal r = gateway::refusal(a.body);
  if (passes(a.status, r)) throw Lost{text("/v3/", request.path, ": ", r.text, " (HTTP ", a.status, ")")};
  if (r.code == kUnauthenticated && !token_.empty()) { // tokens end after some minutes, or with their server
    token_.clear();
    throw Lost{text("/v3/", request.path, ": ", r.text)};
  }
  refused(request.path, a.status, r);
}

std::string Client::try_once(const Request &request, const Limit &limit, bool *sent) {
  if (!settings_.user.empty() && token_.empty())
    token_ = gateway::token(post({"auth/authenticate", gateway::authenticate(settings_.user, settings_.password)}, limit));
  *sent = true;
  return post(request, limit);
}

void Client::next_server(const Request &request, const std::string &why, plugin::Pause *pause, const Limit &limit) {
  wrong_[server_] = why;
  if (++tried_ % settings_.servers.size() == 0) pause->take(limit);
  server_ = (server_ + 1) % settings_.servers.size();
  if (!limit.over()) return;
  std::string all;
  for (size_t i = 0; i < wrong_.size(); i++)
    if (!wrong_[i].empty())
      all += text(all.empty() ? "" : ", ", settings_.servers.size() > 1 ? text(settings_.servers[i], ": ") : "", wrong_[i]);
  fail(TUTTI_ERR_TIMEOUT, settings_.shown, ": /v3/", request.path, " has not been answered within ", limit.span_text(), ": ",
       all);
}

std::string Client::ask(const Request &request, const Limit &limit, bool *again) {
  plugin::Pause pause(kFirstPause);
  const auto n = static_cast<int64_t>(settings_.servers.size());
  for (;;) {
    const Nanos share = n == 1 ? Nanos(kAlone) : std::clamp<Nanos>(limit.left() / n, kLeast, kMost);
    bool sent = false;
    try {
      return try_once(request, limit.within(share), &sent);
    } catch (const Lost &lost) {
      if (sent && again) *again = true;
      next_server(request, lost.why, &pause, limit);
    } catch (const plugin::Error &e) {
      if (e.code() == TUTTI_ERR_CANCELLED) throw;
      fail(e.code(), settings_.shown, n > 1 ? text(" at ", settings_.servers[server_]) : "", ": ", e.what());
    }
  }
}

std::string Client::lease(Nanos ttl, const Limit &limit) {
  if (ttl.count() <= 0) return "";
  const int64_t seconds = (ttl.count() + 999'999'999) / 1'000'000'000;
  return gateway::lease(ask({"lease/grant", gateway::grant(seconds)}, limit));
}

void Client::set(const std::string &key, std::string_view value, Nanos ttl, Nanos timeout) {
  const Limit limit(timeout, interrupt_);
  gateway::done(ask({"kv/put", gateway::put(settings_.prefix + key, value, lease(ttl, limit))}, limit));
}

bool Client::add(const std::string &key, std::string_view value, Nanos ttl, Nanos timeout) {
  const Limit limit(timeout, interrupt_);
  bool again = false;
  const std::string answer =
      ask({"kv/txn", gateway::create(settings_.prefix + key, value, lease(ttl, limit)), true}, limit, &again);
  if (gateway::succeeded(answer)) return true;
  if (!again) return false;
  // The answer that was lost may have been a success.
  const auto there = gateway::value(ask({"kv/range", gateway::range(settings_.prefix + key)}, limit.with_grace()));
  return there && *there == value;
}

std::optional<std::string> Client::get(const std::string &key, bool wait, Nanos timeout) {
  const Limit limit(timeout, interrupt_);
  plugin::Pause pause(kFirstPause);
  for (;;) {
    auto found = gateway::value(ask({"kv/range", gateway::range(settings_.prefix + key)}, limit.with_grace()));
    if (found || !wait || limit.over()) return found;
    pause.take(limit);
  }
}

void Client::remove(const std::string &key, Nanos timeout) {
  gateway::done(ask({"kv/deleterange", gateway::erase(settings_.prefix + key)}, Limit(timeout, interrupt_)));
}

} // namespace tutti::etcd
