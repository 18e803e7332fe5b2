// plugins/store-etcd/gateway.h: requests and answers of etcd's gateway, as JSON; keys and values in base64, numbers of 64 bits
// as text.
#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tutti::etcd::gateway {

// Bodies for /v3/...; lease: of grant(), "" = the value stays.
std::string range(std::string_view key);                                                  // kv/range
std::string put(std::string_view key, std::string_view value, std::string_view lease);    // kv/put
std::string create(std::string_view key, std::string_view value, std::string_view lease); // kv/txn: put if there is none
std::string erase(std::string_view key);                                                  // kv/deleterange
std::string grant(int64_t seconds);                                                       // lease/grant
std::string authenticate(std::string_view user, std::string_view password);               // auth/authenticate

// What an answer with status 200 says. What does not fit throws Error (REMOTE).
std::optional<std::string> value(const std::string &answer); // of range
bool succeeded(const std::string &answer);                   // of create
std::string lease(const std::string &answer);                // of grant
std::string token(const std::string &answer);                // of authenticate
void done(const std::string &answer);                        // of the others: it is an answer at all

// What another answer says: a code of gRPC, -1 where it has none, and etcd's text or the beginning of whatever came.
struct Refusal {
  int code = -1;
  std::string text;
};
Refusal refusal(const std::string &answer);

} // namespace tutti::etcd::gateway
