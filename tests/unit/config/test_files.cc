#include "config/impl.h"
#include "helper.h"
#include <filesystem>
#include <fstream>
#include <sys/stat.h>
#include <unistd.h>

using namespace tutti;
namespace fs = std::filesystem;

namespace {

// A place with a system file, a local file and a home.
struct Place {
  fs::path dir = fs::temp_directory_path() / fmt::format("tutti-config-{}", getpid());
  config::SearchPaths paths{(dir / "system.toml").string(), (dir / "local.toml").string()};
  Env env{{"HOME", (dir / "home").string()}};

  Place() { fs::create_directories(dir / "home/.config/tutti"); }
  ~Place() { fs::remove_all(dir); }
  void write(const std::string &name, const std::string &text, mode_t mode = 0600) {
    fs::create_directories((dir / name).parent_path());
    std::ofstream(dir / name) << text;
    ::chmod((dir / name).c_str(), mode);
  }
  Result<std::shared_ptr<const Config>> load() { return config::load_from(env, paths); }
  std::string timeout() { return (*load())->text("core.timeout"); }
};

const std::string k1 = "[core]\ntimeout = \"1s\"\n", k2 = "[core]\ntimeout = \"2s\"\n", k3 = "[core]\ntimeout = \"3s\"\n";

} // namespace

TEST_CASE("no file at all means defaults") {
  Place p;
  CHECK(p.timeout() == "10min");
  CHECK((*p.load())->files().empty());
}

TEST_CASE("a privileged process takes the system's file and nothing of its user's") {
  Place p;
  p.write("system.toml", "[core]\ninit_timeout = \"7s\"\n", 0644);
  p.write("local.toml", k1);
  p.write("home/.config/tutti/tutti.toml", k2);
  p.write("named.toml", k3);
  p.env["TUTTI_CONFIG"] = (p.dir / "named.toml").string();
  p.env["TUTTI_PLUGIN_PATH"] = "/tmp";
  p.env["TUTTI_NET_PLUGIN"] = "/tmp/libtutti-evil.so";
  p.env["NCCL_DEBUG_FILE"] = "/etc/passwd";
  p.env["TUTTI_PLUGIN_NET_SOCKET_SOCKETS"] = "3";
  const auto r = config::load_privileged(p.env, p.paths);
  REQUIRE(r.ok());
  const Config &c = **r;
  CHECK(c.files() == std::vector<std::string>{p.paths.system});
  CHECK(c.text("core.init_timeout") == "7s");
  for (const char *key : {"core.timeout", "plugins.path", "plugins.net", "log.file"}) CHECK(c.is_default(key));
  const tutti_option options[] = {{"sockets", "1", "how many", nullptr, nullptr, 1, 8, TUTTI_OPT_INT, 0}, {}};
  const auto settings = c.plugin_settings("net-socket", options);
  REQUIRE(settings.ok());
  CHECK(settings->at("sockets").number == 1);
}

TEST_CASE("the user's file wins over the system's, key by key") {
  Place p;
  p.write("system.toml", "[core]\ntimeout = \"1s\"\ninit_timeout = \"7s\"\n", 0644);
  p.write("home/.config/tutti/tutti.toml", k2);
  CHECK(p.timeout() == "2s");
  const auto c = *p.load();
  CHECK(c->text("core.init_timeout") == "7s");
  CHECK(c->setting("core.init_timeout").origin == p.paths.system + ":3");
  CHECK(c->files().size() == 2);
}

TEST_CASE("only the first of the user's files is read: named, local, home") {
  Place p;
  p.write("home/.config/tutti/tutti.toml", k3);
  p.write("local.toml", k2);
  CHECK(p.timeout() == "2s");
  p.write("named.toml", k1);
  p.env["TUTTI_CONFIG"] = (p.dir / "named.toml").string();
  CHECK(p.timeout() == "1s");
}

TEST_CASE("XDG_CONFIG_HOME stands in for ~/.config") {
  Place p;
  p.write("home/.config/tutti/tutti.toml", k3);
  p.write("xdg/tutti/tutti.toml", k1);
  p.env["XDG_CONFIG_HOME"] = (p.dir / "xdg").string();
  CHECK(p.timeout() == "1s");
}

TEST_CASE("a local file that others may write is not trusted") {
  Place p;
  for (mode_t mode : {0666, 0660, 0602}) {
    p.write("local.toml", k2, mode);
    CHECK(p.timeout() == "10min");
  }
  p.write("local.toml", k2, 0644);
  CHECK(p.timeout() == "2s");
}

TEST_CASE("a local file of somebody else is not trusted") {
  Place p;
  p.write("local.toml", k2);
  if (::chown(p.paths.local.c_str(), 12345, static_cast<gid_t>(-1)) != 0) return; // needs root
  CHECK(p.timeout() == "10min");
}

TEST_CASE("a named file must exist, be a file and be small") {
  Place p;
  p.env["TUTTI_CONFIG"] = (p.dir / "absent.toml").string();
  CHECK(has(p.load().status().error().line(), "absent.toml cannot be read: No such file or directory"));
  p.env["TUTTI_CONFIG"] = p.dir.string();
  CHECK(has(p.load().status().error().line(), "it is not a regular file"));
  p.env["TUTTI_CONFIG"] = (p.dir / "pipe").string();
  REQUIRE(::mkfifo((p.dir / "pipe").c_str(), 0600) == 0);
  CHECK(has(p.load().status().error().line(), "it is not a regular file"));
  p.write("big.toml", std::string((1 << 20) + 1, '#'));
  p.env["TUTTI_CONFIG"] = (p.dir / "big.toml").string();
  CHECK(has(p.load().status().error().line(), "larger than 1 MiB"));
}

TEST_CASE("an error in a file names the file") {
  Place p;
  p.write("system.toml", "[core]\nfoo = 1\n", 0644);
  CHECK(p.load().status().error().line().starts_with(p.paths.system + ":2: [core] unknown key \"foo\""));
}
