#include "checker.h"
#include "bootstrap/bootstrap.h"
#include "bootstrap/tls.h"
#include "config/config.h"
#include "exec/kernels.h"
#include "isolated.h"
#include "manners.h"
#include "plan/check.h"
#include "plugin/rules.h"
#include "plugin/services.h"
#include "suite.h"
#include <atomic>
#include <cstring>
#include <dlfcn.h>
#include <filesystem>
#include <iostream>
#include <unistd.h>

namespace tutti {
namespace {

using conformance::Case;

// What the child says: P phase | F rule text todo | I identity | N interface | S skipped | K passed a case.
void report(const Speaker &speaker, const StaticFindings &findings) {
  for (const StaticFinding &f : findings) speaker.say('F', f.rule, f.text, f.todo);
}

// Lives in the child until it exits. Every step is announced, so that a crash or a hang has a place.
class Opened {
public:
  Opened(const std::string &path, const Speaker &speaker, bool quiet) : speaker_(speaker), quiet_(quiet) {
    ok_ = load(path) && open();
  }
  bool ok() const { return ok_; }
  const Plugin &plugin() const { return plugin_; }
  void close() {
    phase("close()");
    const auto before = conformance::ProcessState::now();
    plugin_.desc->close(plugin_.state);
    check_process(before, "close()");
    conformance::WatchedHost::after_close(complain(), threads_);
  }
  // A case may fork, and its plugin may have descriptors and threads: not its end is looked at, but the rest.
  void check_manners() {
    check_process(before_case_, "the plugin");
    conformance::WatchedHost::check_log(complain());
  }
  void phase(const std::string &what) { speaker_.say('P', what); }
  void finding(const char *rule, const std::string &text, const std::string &todo) {
    if (!quiet_) speaker_.say('F', rule, text, todo);
  }

private:
  conformance::Complain complain() {
    return [this](const char *rule, const std::string &text, const std::string &todo) { speaker_.say('F', rule, text, todo); };
  }
  void check_process(const conformance::ProcessState &before, const char *who) {
    conformance::ProcessState::now().compare(before, who, complain());
  }

  bool keep(const StaticFindings &findings) {
    if (!quiet_) report(speaker_, findings);
    return first_fatal(findings) == nullptr;
  }

  bool load(const std::string &path) {
    phase("dlopen");
    threads_ = conformance::threads_now();
    const auto before = conformance::ProcessState::now();
    void *handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) {
      finding("P-ENTRY-12", fmt::format("cannot be loaded: {}", ::dlerror()),
              "link what it needs, and nothing that is not there");
      return false;
    }
    if (!quiet_) check_process(before, "loading it");
    plugin_.desc = static_cast<const tutti_plugin_desc *>(::dlsym(handle, "tutti_plugin_v1"));
    plugin_.path = path;
    if (!plugin_.desc) {
      finding("P-ENTRY-01", "tutti_plugin_v1 cannot be resolved", "");
      return false;
    }
    phase("reading tutti_plugin_v1");
    if (!keep(check_desc(plugin_.desc))) return false;
    const tutti_plugin_desc &d = *plugin_.desc;
    if (quiet_) return true;
    speaker_.say('I', fmt::format("{} {} ({}, {}): {}", d.name, d.version, d.vendor, d.license, d.summary));
    for (const char *const *id = d.ifaces; *id; id++) speaker_.say('N', *id);
    return true;
  }

  // Settings of this user; where those do not load, the defaults.
  bool settings() {
    auto config = Config::load();
    if (!config.ok()) config = Config::from("", "", {});
    if (!config.ok()) return false;
    auto values = (*config)->plugin_settings(plugin_.desc->name, plugin_.desc->options);
    if (!values.ok()) {
      finding("P-OPT-10", values.status().error().message, "a default must be a value that its option allows");
      return false;
    }
    plugin_.settings = std::move(*values);
    for (auto &[key, setting] : plugin_.settings)
      if (!setting.list.empty()) {
        setting.text.clear();
        for (const std::string &item : setting.list) setting.text += (setting.text.empty() ? "" : ",") + item;
      }
    plugin_.memory_cap = static_cast<uint64_t>((*config)->number("memory.cap"));
    return true;
  }

  bool open() {
    if (!settings()) return false;
    give_host(&plugin_);
    conformance::WatchedHost::attach(&plugin_);
    threads_ = conformance::threads_now();
    clear_plugin_error();
    phase("open()");
    const auto before = conformance::ProcessState::now();
    const tutti_status status = plugin_.desc->open(&plugin_.host, &plugin_.state);
    if (!quiet_) {
      check_process(before, "open()");
      conformance::WatchedHost::check_log(complain());
      if (const size_t now = conformance::threads_now(); now > threads_)
        finding("P-OPEN-04", fmt::format("open() started {} threads", now - threads_), "start them with the first context");
    }
    before_case_ = conformance::ProcessState::now();
    if (status > TUTTI_OK || status < TUTTI_ERR_DENIED) {
      finding("P-OPEN-05", fmt::format("open() returned {}, which is no status that it may return", status), "see base.h");
      return false;
    }
    if (status != TUTTI_OK) {
      finding("P-OPEN-01", plugin_error(plugin_, status, "open() failed").error().message, "the reason is the plugin's own");
      return false;
    }
    bool all = true;
    for (const char *const *id = plugin_.desc->ifaces; *id; id++) {
      phase(fmt::format("get_iface(\"{}\")", *id));
      const void *table = plugin_.desc->get_iface(plugin_.state, *id);
      all &= keep(check_table(*plugin_.desc, *id, table, plugin_.state));
      if (table != plugin_.desc->get_iface(plugin_.state, *id))
        finding("P-TABLE-07", fmt::format("get_iface(\"{}\") gives two different tables", *id),
                "tables are constant until close()");
    }
    phase("get_iface() of an unknown id");
    if (plugin_.desc->get_iface(plugin_.state, "nobody.has.this/1"))
      finding("P-TABLE-08", "get_iface() gives a table for an id that nobody has", "return NULL for ids that are not offered");
    return all;
  }

  const Speaker &speaker_;
  const bool quiet_; // cases open the plugin again: what was said once is enough
  Plugin plugin_;
  size_t threads_ = 0; // before open()
  conformance::ProcessState before_case_;
  bool ok_ = false;
};

// What end_case() ends; one case runs in a process.
struct Running {
  const Speaker *speaker = nullptr;
  const Case *c = nullptr;
  std::atomic_flag ended;
} running;

void run_case(const std::string &path, const std::string &iface, const Case &c, const Speaker &speaker) {
  Opened opened(path, speaker, true);
  if (!opened.ok())
    return speaker.say('F', c.id, "the plugin opened before and does not open now", "open() must work in every process");
  const void *table = opened.plugin().desc->get_iface(opened.plugin().state, iface.c_str());
  opened.phase(c.title);
  running.speaker = &speaker;
  running.c = &c;
  c.run(opened.plugin(), table);
  opened.check_manners();
  speaker.say('K', c.id);
}

// Adds what a child said; a crash or hang becomes a finding under `rule` that names the last step it announced.
void collect(const Outcome &outcome, const char *crash_rule, const char *hang_rule, CheckReport *out) {
  std::string phase = "starting";
  for (const Said &s : outcome.said) switch (s.kind) {
    case 'P':
      phase = s.a;
      break;
    case 'F':
      out->findings.push_back({s.a, s.b, s.c});
      break;
    case 'I':
      out->identity = s.a;
      break;
    case 'N':
      out->ifaces.push_back(s.a);
      break;
    case 'S':
      out->skipped.push_back(s.a + ": " + s.b);
      break;
    case 'K':
      out->passed++;
      break;
    case '!':
      out->findings.push_back({crash_rule, fmt::format("{}: an exception left the plugin: {}", phase, s.a), "catch it inside"});
      break;
    default:
      break;
    }
  if (outcome.end == Outcome::End::returned) return;
  const bool hang = outcome.end == Outcome::End::timed_out;
  out->findings.push_back({hang ? hang_rule : crash_rule, fmt::format("{}: {}", phase, outcome.how),
                           hang ? "nothing may wait without a bound" : "run it under a debugger or with -fsanitize=address"});
}

void run_suites(const std::string &path, const CheckSettings &settings, CheckReport *out) {
  const bool show = settings.progress && ::isatty(STDERR_FILENO);
  for (const std::string &iface : out->ifaces)
    for (const Case &c : conformance::cases_of(iface)) {
      if (!settings.only.empty() && !std::string_view(c.id).starts_with(settings.only)) continue;
      if (show) std::cerr << fmt::format("\r\033[K{} {}", c.id, c.title) << std::flush;
      const Outcome outcome =
          run_isolated([&](const Speaker &s) { run_case(path, iface, c, s); }, c.limit + settings.open_limit);
      collect(outcome, c.id, c.id, out);
    }
  if (show) std::cerr << "\r\033[K" << std::flush;
}

void offer_services() {
  provide_host_service(TUTTI_HOST_REDUCE, host_reduce_service());
  provide_host_service(TUTTI_HOST_PLAN, host_plan_service());
  provide_host_service(TUTTI_HOST_WATCH, host_watch_service());
  provide_host_service(TUTTI_HOST_TLS, host_tls_service());
}

} // namespace

void conformance::end_case(Ending ending, const std::string &text) {
  while (running.ended.test_and_set()) ::pause(); // another thread ends it
  if (ending == Ending::failed)
    running.speaker->say('F', running.c->id, text, fmt::format("promised: {}", running.c->title));
  else
    running.speaker->say('S', running.c->id, text);
  running.speaker->end();
}

CheckReport check_plugin(const std::string &path, const CheckSettings &settings) {
  offer_services();
  CheckReport out;
  std::error_code ec;
  const std::filesystem::path absolute = std::filesystem::absolute(path, ec); // a bare name would be searched by dlopen
  const std::string file = ec ? path : absolute.string();
  StaticFindings findings = check_file(file);
  const std::filesystem::path real = std::filesystem::canonical(file, ec);
  for (StaticFinding &f : check_directory((ec ? absolute : real).parent_path().string())) findings.push_back(std::move(f));
  for (const StaticFinding &f : findings) out.findings.push_back({f.rule, f.text, f.todo});
  if (first_fatal(findings)) return out; // none of its code may run
  collect(run_isolated(
              [&](const Speaker &s) {
                Opened opened(file, s, false);
                if (!opened.ok()) return;
                opened.close();
                s.say('K', "opened");
              },
              settings.open_limit),
          "P-OPEN-02", "P-OPEN-03", &out);
  if (settings.behaviour && out.passed > 0) run_suites(file, settings, &out);
  return out;
}

} // namespace tutti
