#include "http.h"
#include "tutti/plugin/store.h"
#include <curl/curl.h>
#include <dlfcn.h>
#include <new>

namespace tutti::etcd {
namespace {

constexpr size_t kMaxAnswer = 2 * TUTTI_STORE_VALUE_BYTES + 64 * 1024; // base64 is a third longer

struct Api {
  decltype(&::curl_global_init) global_init = nullptr;
  decltype(&::curl_easy_init) init = nullptr;
  decltype(&::curl_easy_cleanup) cleanup = nullptr;
  decltype(&::curl_easy_setopt) setopt = nullptr;
  decltype(&::curl_easy_getinfo) getinfo = nullptr;
  decltype(&::curl_easy_perform) perform = nullptr;
  decltype(&::curl_easy_strerror) strerror = nullptr;
  decltype(&::curl_slist_append) append = nullptr;
  decltype(&::curl_slist_free_all) free_all = nullptr;
  std::string missing; // why there is none
};

Api load() {
  Api a;
  void *lib = ::dlopen("libcurl.so.4", RTLD_NOW | RTLD_LOCAL); // never closed: it has handlers for the end of the process
  if (!lib) {
    a.missing = plugin::text(::dlerror(), "; etcd needs libcurl (Debian: libcurl4)");
    return a;
  }
  const auto take = [&](auto *fn, const char *name) {
    *fn = reinterpret_cast<std::remove_pointer_t<decltype(fn)>>(::dlsym(lib, name));
    if (!*fn) a.missing = plugin::text("libcurl.so.4 has no ", name);
  };
  take(&a.global_init, "curl_global_init");
  take(&a.init, "curl_easy_init");
  take(&a.cleanup, "curl_easy_cleanup");
  take(&a.setopt, "curl_easy_setopt");
  take(&a.getinfo, "curl_easy_getinfo");
  take(&a.perform, "curl_easy_perform");
  take(&a.strerror, "curl_easy_strerror");
  take(&a.append, "curl_slist_append");
  take(&a.free_all, "curl_slist_free_all");
  if (a.missing.empty() && a.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK) a.missing = "libcurl does not start";
  return a;
}
const Api &api() {
  static const Api a = load();
  return a;
}

void *new_handle() {
  if (!api().missing.empty()) plugin::unsupported(api().missing);
  void *handle = api().init();
  if (!handle) throw std::bad_alloc();
  return handle;
}

struct Reading {
  std::string body;
  bool too_long = false;
};
size_t take_body(char *data, size_t one, size_t n, void *arg) {
  auto &r = *static_cast<Reading *>(arg);
  r.too_long = r.body.size() + one * n > kMaxAnswer;
  if (r.too_long) return 0;
  try {
    r.body.append(data, one * n);
  } catch (const std::bad_alloc &) {
    return 0;
  }
  return one * n;
}
int stop_when_closed(void *arg, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return static_cast<const plugin::Interrupt *>(arg)->is_set() ? 1 : 0;
}

struct Headers {
  curl_slist *list = nullptr;
  ~Headers() { api().free_all(list); }
  void add(const std::string &line) {
    curl_slist *longer = api().append(list, line.c_str());
    if (!longer) throw std::bad_alloc();
    list = longer;
  }
};

} // namespace

Http::Http(Certificates certificates) : certificates_(std::move(certificates)), handle_(new_handle()) {}

Http::~Http() {
  api().cleanup(handle_);
}

Answer Http::post(const std::string &url, const std::string &body, const std::string &token, bool once,
                  const plugin::Limit &limit) {
  limit.check();
  Reading reading;
  Headers headers;
  headers.add("Content-Type: application/json");
  headers.add("Expect:");
  if (!token.empty()) headers.add("Authorization: " + token);
  const auto set = [&](CURLoption option, auto value) { api().setopt(handle_, option, value); };
  const long ms = std::max(1, limit.left_ms());
  char why[CURL_ERROR_SIZE] = "";
  set(CURLOPT_URL, url.c_str());
  set(CURLOPT_POSTFIELDS, body.c_str());
  set(CURLOPT_POSTFIELDSIZE, static_cast<long>(body.size()));
  set(CURLOPT_HTTPHEADER, headers.list);
  set(CURLOPT_TIMEOUT_MS, ms);
  set(CURLOPT_CONNECTTIMEOUT_MS, ms);
  set(CURLOPT_ERRORBUFFER, why);
  set(CURLOPT_WRITEFUNCTION, &take_body);
  set(CURLOPT_WRITEDATA, static_cast<void *>(&reading));
  set(CURLOPT_XFERINFOFUNCTION, &stop_when_closed);
  set(CURLOPT_XFERINFODATA, static_cast<const void *>(&limit.interrupt()));
  set(CURLOPT_FRESH_CONNECT, once ? 1L : 0L);
  set(CURLOPT_NOPROGRESS, 0L);
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_FOLLOWLOCATION, 0L);
  set(CURLOPT_PROXY, ""); // proxies of the environment are for other places
  if (!certificates_.authorities.empty()) set(CURLOPT_CAINFO, certificates_.authorities.c_str());
  if (!certificates_.own.empty()) set(CURLOPT_SSLCERT, certificates_.own.c_str());
  if (!certificates_.key.empty()) set(CURLOPT_SSLKEY, certificates_.key.c_str());
  const CURLcode rc = api().perform(handle_);
  set(CURLOPT_ERRORBUFFER, static_cast<char *>(nullptr)); // those that end here
  set(CURLOPT_HTTPHEADER, static_cast<curl_slist *>(nullptr));
  if (rc != CURLE_OK) limit.check();
  if (reading.too_long) plugin::fail(TUTTI_ERR_REMOTE, "it answers with more than ", kMaxAnswer, " bytes");
  if (rc == CURLE_OPERATION_TIMEDOUT) throw Lost{"it does not answer"};
  if (rc == CURLE_UNSUPPORTED_PROTOCOL || rc == CURLE_WEIRD_SERVER_REPLY)
    plugin::fail(TUTTI_ERR_REMOTE, "what answers does not speak HTTP: ", why[0] ? why : api().strerror(rc));
  if (rc == CURLE_SSL_CACERT_BADFILE || rc == CURLE_SSL_CERTPROBLEM)
    plugin::fail(TUTTI_ERR_INVALID, "certificates: ", why[0] ? why : api().strerror(rc));
  if (rc == CURLE_PEER_FAILED_VERIFICATION)
    plugin::fail(TUTTI_ERR_DENIED, "its certificate is not trusted: ", why[0] ? why : api().strerror(rc));
  if (rc != CURLE_OK) throw Lost{why[0] ? why : api().strerror(rc)};
  Answer out;
  api().getinfo(handle_, CURLINFO_RESPONSE_CODE, &out.status);
  out.body = std::move(reading.body);
  return out;
}

} // namespace tutti::etcd
