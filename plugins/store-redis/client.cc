#include "client.h"

namespace tutti::redis {

using plugin::fail;
using plugin::Limit;
using plugin::text;

namespace {

constexpr std::chrono::milliseconds kFirstPause{10};
constexpr std::chrono::seconds kAnswer{10}; // for one answer; then the connection may be one that a firewall has forgotten

bool starts(const std::string &said, std::initializer_list<std::string_view> words) {
  return std::any_of(words.begin(), words.end(), [&](std::string_view w) { return said.compare(0, w.size(), w) == 0; });
}
// What a server says that will soon be able to.
bool passes(const std::string &said) {
  return starts(said, {"LOADING", "BUSY ", "MASTERDOWN", "TRYAGAIN", "CLUSTERDOWN"});
}
tutti_status status_of(const std::string &said) {
  if (starts(said, {"NOAUTH", "WRONGPASS", "NOPERM", "ERR invalid password", "ERR Client sent AUTH", "ERR AUTH "}))
    return TUTTI_ERR_DENIED;
  if (starts(said, {"OOM"})) return TUTTI_ERR_NO_MEMORY;
  return TUTTI_ERR_REMOTE;
}
std::string_view advice(const std::string &said) {
  if (starts(said, {"NOAUTH"})) return "; a password goes into plugin.store-redis.password_file";
  if (starts(said, {"READONLY"})) return "; name the primary, this is a replica";
  if (starts(said, {"MOVED", "ASK "})) return "; name a server that is no part of a cluster";
  return "";
}
// PX counts in milliseconds, from 1 on.
std::string in_ms(std::chrono::nanoseconds ttl) {
  return std::to_string(ttl.count() / 1'000'000 + (ttl.count() % 1'000'000 != 0));
}

} // namespace

Client::Client(Settings settings, Nanos timeout) : settings_(std::move(settings)) {
  (void)command({"PING"}, Limit(timeout, interrupt_));
}

void Client::refused(std::string_view what, const std::string &said) const {
  fail(status_of(said), settings_.shown, ": ", what, ": ", std::string_view(said).substr(0, 200), advice(said));
}
void Client::strange(std::string_view what, const Reply &reply) const {
  fail(TUTTI_ERR_REMOTE, settings_.shown, ": ", what, ": unexpected answer of ",
       reply.kind == Reply::Kind::text     ? text("\"", std::string_view(reply.text).substr(0, 40), "\"")
       : reply.kind == Reply::Kind::number ? text(reply.number)
                                           : std::string("nothing"));
}

void Client::log_in(const Limit &limit) {
  const auto say = [&](const Words &words, std::string_view what) {
    const Reply r = connection_->ask(words, limit);
    if (r.kind == Reply::Kind::error && passes(r.text)) throw Lost{text(what, ": ", r.text)};
    if (r.kind == Reply::Kind::error) refused(what, r.text);
  };
  const std::string database = std::to_string(settings_.database);
  if (!settings_.user.empty())
    say({"AUTH", settings_.user, settings_.password}, "AUTH");
  else if (!settings_.password.empty())
    say({"AUTH", settings_.password}, "AUTH");
  if (settings_.database != 0) say({"SELECT", database}, text("SELECT ", database));
}

Reply Client::try_once(const Words &words, const Limit &limit, bool *sent) {
  if (!connection_) {
    auto made = std::make_unique<Connection>(settings_.target, limit);
    connection_ = std::move(made);
    log_in(limit);
  }
  *sent = true;
  Reply r = connection_->ask(words, limit);
  if (r.kind == Reply::Kind::error && passes(r.text)) {
    *sent = false; // it said that it did nothing
    throw Lost{text(words[0], ": ", r.text)};
  }
  return r;
}

Reply Client::command(const Words &words, const Limit &limit, bool *again) {
  plugin::Pause pause(kFirstPause);
  for (;;) {
    bool sent = false;
    try {
      const Reply r = try_once(words, limit.within(kAnswer), &sent);
      if (r.kind == Reply::Kind::error) refused(words[0], r.text);
      return r;
    } catch (const Lost &lost) {
      connection_ = nullptr;
      if (sent && again) *again = true;
      pause.take(limit);
      if (limit.over())
        fail(TUTTI_ERR_TIMEOUT, settings_.shown, ": ", words[0], " has not been answered within ", limit.span_text(), ": ",
             lost.why);
    } catch (const plugin::Error &e) {
      connection_ = nullptr; // an answer may still be on its way
      const std::string_view why = e.what();
      if (why.empty() || why.substr(0, settings_.shown.size()) == settings_.shown || e.code() == TUTTI_ERR_CANCELLED) throw;
      fail(e.code(), settings_.shown, ": ", why);
    }
  }
}

void Client::set(const std::string &key, std::string_view value, Nanos ttl, Nanos timeout) {
  const std::string ms = in_ms(ttl);
  Words words = {"SET", key, value};
  if (ttl.count() > 0) words.insert(words.end(), {"PX", ms});
  const Reply r = command(words, Limit(timeout, interrupt_));
  if (r.kind != Reply::Kind::text || r.text != "OK") strange("SET", r);
}

bool Client::add(const std::string &key, std::string_view value, Nanos ttl, Nanos timeout) {
  const Limit limit(timeout, interrupt_);
  const std::string ms = in_ms(ttl);
  Words words = {"SET", key, value, "NX"};
  if (ttl.count() > 0) words.insert(words.end(), {"PX", ms});
  bool again = false;
  const Reply r = command(words, limit, &again);
  if (r.kind == Reply::Kind::text && r.text == "OK") return true;
  if (r.kind != Reply::Kind::nil) strange("SET NX", r);
  if (!again) return false;
  const Reply there = command({"GET", key}, limit.with_grace()); // the lost answer may have been "OK"
  return there.kind == Reply::Kind::text && there.text == value;
}

std::optional<std::string> Client::get(const std::string &key, bool wait, Nanos timeout) {
  const Limit limit(timeout, interrupt_);
  plugin::Pause pause(kFirstPause);
  for (;;) {
    Reply r = command({"GET", key}, limit.with_grace());
    if (r.kind == Reply::Kind::text) return std::move(r.text);
    if (r.kind != Reply::Kind::nil) strange("GET", r);
    if (!wait || limit.over()) return std::nullopt;
    pause.take(limit);
  }
}

void Client::remove(const std::string &key, Nanos timeout) {
  const Reply r = command({"DEL", key}, Limit(timeout, interrupt_));
  if (r.kind != Reply::Kind::number) strange("DEL", r);
}

} // namespace tutti::redis
