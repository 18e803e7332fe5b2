// What a process sees of its environment: prints whether it has more rights than who started it, two settings, and a launcher.
#include "bootstrap/launch.h"
#include <cstdio>
#include <sys/auxv.h>

int main() {
  using namespace tutti;
  const auto config = Config::process();
  if (!config.ok()) return 1;
  const auto launcher = recognise_launcher(**config);
  const bool found = launcher.ok() && launcher.value();
  std::printf("%d %s %s %s\n", getauxval(AT_SECURE) != 0, (*config)->text("core.timeout").c_str(),
              (*config)->text("plugins.path").c_str(), found ? launcher.value()->name.c_str() : "none");
}
