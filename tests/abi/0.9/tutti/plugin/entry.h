/* tutti/plugin/entry.h: how a plugin and the core find each other. A plugin exports exactly one symbol, the constant
 * tutti_plugin_v1. It is data, so a tool can show what a file is without running any of its functions. */
#ifndef TUTTI_PLUGIN_ENTRY_H
#define TUTTI_PLUGIN_ENTRY_H
#include "base.h"
TUTTI_BEGIN

/* The core, as a plugin sees it. Valid from open() until close() has returned. */
typedef struct tutti_host {
  uint32_t struct_size;
  uint16_t abi_major, abi_minor; /* TUTTI_ABI_* of the core */
  void *impl;                    /* the core's own; plugins leave it alone */
  /* The constant table of a host service (host.h), or NULL when this core lacks it. [any] */
  /* clang-format off */
  const void *(*get_iface)(const struct tutti_host *host, const char *iface_id) TUTTI_NOEXCEPT;
  /* clang-format on */
} tutti_host;

/* Types of configuration values, as TOML writes them: true, 4, "4MiB", "30s", "text", ["a","b"]. */
typedef uint32_t tutti_option_type;
enum {
  TUTTI_OPT_BOOL = 0,
  TUTTI_OPT_INT = 1,        /* decimal or 0x; range [min, max] */
  TUTTI_OPT_BYTES = 2,      /* 65536, "64KiB", "4MiB", "1GiB" (K, M, G also mean powers of 1024) */
  TUTTI_OPT_DURATION = 3,   /* "200us", "100ms", "30s", "10min"; stored in nanoseconds */
  TUTTI_OPT_STRING = 4,     /* when `choices` is set, one of them */
  TUTTI_OPT_STRING_LIST = 5 /* ["a", "b"], or "a,b" in the environment */
};

/* One option that the plugin understands: key K of table [plugin.NAME] in TOML, TUTTI_PLUGIN_NAME_K in the environment
 * (upper case, '-' becomes '_'). The core parses, checks the range, prints the help, and refuses unknown keys. Values are read
 * once, before open(), and stay the same until close(). Array element: this layout is frozen. */
typedef struct tutti_option {
  const char *key;           /* lower case, [a-z0-9_] */
  const char *default_value; /* as text; "" for an empty list or string */
  const char *help;          /* one sentence without full stop */
  const char *env_aliases;   /* further names, "NCCL_SOCKET_NTHREADS,ACME_THREADS"; the first one set wins, the option's own
                                name before them; or NULL. Values are written as those of the option, whatever the name. No
                                other names that begin with TUTTI_: those are the core's */
  const char *choices;       /* allowed strings, "a|b|c", or NULL */
  int64_t min, max;          /* inclusive, for INT, BYTES and DURATION; both 0 = any value >= 0 */
  tutti_option_type type;
  uint32_t reserved0; /* 0 */
} tutti_option;

/* What a plugin is. Everything is constant and owned by the plugin. */
typedef struct tutti_plugin_desc {
  uint32_t struct_size;
  uint16_t abi_major, abi_minor; /* TUTTI_ABI_MAJOR and _MINOR of the headers it was compiled with */
  const char *name;              /* "net-socket": [a-z0-9-], unique among the loaded plugins; names its TOML table */
  const char *version;           /* "1.2.3" */
  const char *vendor;
  const char *license;         /* SPDX expression */
  const char *summary;         /* one line */
  const char *const *ifaces;   /* ids of the interfaces get_iface() can return; NULL-terminated, at least one */
  const tutti_option *options; /* ends with key == NULL; NULL = no options */
  /* Makes the plugin's state. Cheap: opens no device, starts no thread. Called once per process. On error the plugin is
   * not used and close() not called, and set_error()'s text is what the user reads. TUTTI_ERR_INVALID: the value of an option
   * cannot be used; where the user has set any, the job does not start. *plugin may stay NULL; it is what all functions get as
   * `plugin`. [setup] */
  tutti_status (*open)(const tutti_host *host, void **plugin) TUTTI_NOEXCEPT;
  /* After everything made from it has been destroyed. The file itself stays mapped. [setup] */
  void (*close)(void *plugin) TUTTI_NOEXCEPT;
  /* A constant table of the interface, always the same, valid until close(), or NULL when the plugin does not offer it. Asked
   * for ids outside of ifaces, too. [any] */
  /* clang-format off */
  const void *(*get_iface)(void *plugin, const char *iface_id) TUTTI_NOEXCEPT;
  /* clang-format on */
} tutti_plugin_desc;

/* The one symbol a plugin exports. */
TUTTI_EXPORT extern const tutti_plugin_desc tutti_plugin_v1;

TUTTI_END
#endif
