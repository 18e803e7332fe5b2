#include "gateway.h"
#include "tutti/plugin/cxx/host.hpp"
#include <cctype>
#include <nlohmann/json.hpp>
#include <sodium.h>

namespace tutti::etcd::gateway {
namespace {

using nlohmann::json;

constexpr int kBase64 = sodium_base64_VARIANT_ORIGINAL;

std::string encoded(std::string_view bytes) {
  std::string out(sodium_base64_ENCODED_LEN(bytes.size(), kBase64), 0);
  ::sodium_bin2base64(out.data(), out.size(), reinterpret_cast<const unsigned char *>(bytes.data()), bytes.size(), kBase64);
  out.resize(out.size() - 1); // its NUL
  return out;
}
std::string decoded(const std::string &text) {
  std::string out(text.size() / 4 * 3 + 3, 0);
  size_t n = 0;
  if (::sodium_base642bin(reinterpret_cast<unsigned char *>(out.data()), out.size(), text.data(), text.size(), nullptr, &n,
                          nullptr, kBase64) != 0)
    plugin::fail(TUTTI_ERR_REMOTE, "it answers with a value that is no base64");
  out.resize(n);
  return out;
}

// What came, as one line without what terminals and logs would act on.
std::string beginning(const std::string &answer) {
  std::string out = answer.substr(0, 120);
  for (char &c : out)
    if (static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e) c = ' ';
  return out;
}
json object(const std::string &answer) {
  json j = json::parse(answer, nullptr, false);
  if (!j.is_object()) plugin::fail(TUTTI_ERR_REMOTE, "it answers with what is no JSON of etcd: \"", beginning(answer), "\"");
  return j;
}
// A member of an object where there is one of that kind.
const json *member(const json &j, const char *name, json::value_t kind) {
  const auto at = j.is_object() ? j.find(name) : j.end();
  return j.is_object() && at != j.end() && at->type() == kind ? &*at : nullptr;
}
std::string text_of(const std::string &answer, const char *name) {
  const json j = object(answer);
  const json *found = member(j, name, json::value_t::string);
  if (!found) plugin::fail(TUTTI_ERR_REMOTE, "its answer has no \"", name, "\"");
  return found->get<std::string>();
}

json put_request(std::string_view key, std::string_view value, std::string_view lease) {
  json j = {{"key", encoded(key)}, {"value", encoded(value)}};
  if (!lease.empty()) j["lease"] = std::string(lease);
  return j;
}
// A password may be anything; what is no UTF-8 is sent as U+FFFD, and refused there.
std::string dumped(const json &j) {
  return j.dump(-1, ' ', false, json::error_handler_t::replace);
}

} // namespace

std::string range(std::string_view key) {
  return dumped({{"key", encoded(key)}});
}
std::string put(std::string_view key, std::string_view value, std::string_view lease) {
  return dumped(put_request(key, value, lease));
}
std::string create(std::string_view key, std::string_view value, std::string_view lease) {
  const json absent = {{"target", "CREATE"}, {"result", "EQUAL"}, {"key", encoded(key)}, {"create_revision", "0"}};
  const json then = {{"request_put", put_request(key, value, lease)}};
  return dumped({{"compare", json::array({absent})}, {"success", json::array({then})}});
}
std::string erase(std::string_view key) {
  return dumped({{"key", encoded(key)}});
}
std::string grant(int64_t seconds) {
  return dumped({{"TTL", std::to_string(seconds)}, {"ID", "0"}});
}
std::string authenticate(std::string_view user, std::string_view password) {
  return dumped({{"name", std::string(user)}, {"password", std::string(password)}});
}

std::optional<std::string> value(const std::string &answer) {
  const json j = object(answer);
  const json *kvs = member(j, "kvs", json::value_t::array);
  if (!kvs || kvs->empty()) {
    if (!member(j, "header", json::value_t::object)) plugin::fail(TUTTI_ERR_REMOTE, "its answer has no \"header\"");
    return std::nullopt;
  }
  const json *found = member(kvs->front(), "value", json::value_t::string);
  return found ? decoded(found->get<std::string>()) : std::string(); // empty ones are left out
}
bool succeeded(const std::string &answer) {
  const json j = object(answer);
  if (!member(j, "header", json::value_t::object)) plugin::fail(TUTTI_ERR_REMOTE, "its answer has no \"header\"");
  const json *found = member(j, "succeeded", json::value_t::boolean);
  return found && found->get<bool>(); // false is left out
}
std::string lease(const std::string &answer) {
  return text_of(answer, "ID");
}
std::string token(const std::string &answer) {
  const std::string out = text_of(answer, "token");
  for (const char c : out) // it becomes part of a header
    if (!std::isgraph(static_cast<unsigned char>(c))) plugin::fail(TUTTI_ERR_REMOTE, "its token has a character that none has");
  return out;
}
void done(const std::string &answer) {
  const json j = object(answer);
  if (!member(j, "header", json::value_t::object)) plugin::fail(TUTTI_ERR_REMOTE, "its answer has no \"header\"");
}

Refusal refusal(const std::string &answer) {
  Refusal out;
  const json j = json::parse(answer, nullptr, false);
  if (const json *code = member(j, "code", json::value_t::number_unsigned)) out.code = static_cast<int>(code->get<uint32_t>());
  for (const char *name : {"message", "error"})
    if (const json *found = member(j, name, json::value_t::string); found && out.text.empty())
      out.text = beginning(found->get<std::string>());
  if (out.text.empty()) out.text = answer.empty() ? "no text" : "\"" + beginning(answer) + "\"";
  return out;
}

} // namespace tutti::etcd::gateway
