#include "config/toml_source.h"
#include "base/toml.h"

namespace tutti::config {
namespace {

std::string shortened(std::string_view name) {
  return name.size() <= 80 ? std::string(name) : std::string(name.substr(0, 80)) + "...";
}

// Collects entries of one file; the first problem ends it.
class Reader {
public:
  Reader(const std::string &name) : name_(name) {}

  Status table(const toml::table &root) {
    for (const auto &[key, node] : root) {
      const std::string table_name(key.str());
      if (!node.is_table())
        return bad("{}: {} stands outside any table; put it under [core] or another table", at(node.source()),
                   quoted(table_name));
      if (table_name == "plugin")
        TUTTI_TRY(plugins(*node.as_table()));
      else if (table_name == "communicator")
        TUTTI_TRY(communicators(*node.as_table()));
      else
        TUTTI_TRY(values(table_name, *node.as_table()));
    }
    return {};
  }
  std::vector<TomlEntry> take() { return std::move(entries_); }
  std::string at(const toml::source_region &where) const { return fmt::format("{}:{}", name_, where.begin.line); }

private:
  Status plugins(const toml::table &all) {
    for (const auto &[key, node] : all) {
      if (!node.is_table())
        return bad("{}: {} in [plugin] is not a table; write [plugin.NAME] and the plugin's keys below it", at(node.source()),
                   quoted(std::string(key.str())));
      TUTTI_TRY(values("plugin." + std::string(key.str()), *node.as_table()));
    }
    return {};
  }

  Status communicators(const toml::table &all) {
    for (const auto &[key, node] : all) {
      const std::string name(key.str());
      if (!node.is_table() || name.empty())
        return bad("{}: {} in [communicator] is not the table of a communicator; write [communicator.NAME] and keys with their "
                   "table below it, as plugins.tuner = \"x\"",
                   at(node.source()), quoted(name));
      for (const auto &[table_key, table_node] : *node.as_table()) {
        if (!table_node.is_table())
          return bad("{}: [communicator.{}] {} stands without its table; write it as plugins.tuner, coll.algo",
                     at(table_node.source()), shortened(name), quoted(std::string(table_key.str())));
        if (table_key.str() == "plugin")
          return bad(
              "{}: [communicator.{}] plugin: options of a plugin hold for the whole process; put them under [plugin.NAME]",
              at(table_node.source()), shortened(name));
        communicator_ = name;
        TUTTI_TRY(values(std::string(table_key.str()), *table_node.as_table()));
        communicator_.clear();
      }
    }
    return {};
  }

  // Those of [[TABLE.KEY]].
  Status items(const std::string &table_name, const std::string &key, const toml::array &list) {
    int item = 0;
    for (const auto &node : list) {
      const std::string where = at(node.source());
      add({table_name, key, {"", {}, false, where, where}, "", item, ""});
      for (const auto &[item_key, value_node] : *node.as_table()) {
        const std::string name(item_key.str());
        TUTTI_ASSIGN(entry, value(table_name + "." + key, name, value_node));
        entry.table = table_name;
        entry.key = key;
        entry.item = item;
        entry.item_key = name;
        add(std::move(entry));
      }
      item++;
    }
    return {};
  }

  void add(TomlEntry entry) {
    entry.communicator = communicator_;
    entries_.push_back(std::move(entry));
  }

  Status values(const std::string &table_name, const toml::table &t) {
    add({table_name, "", {"", {}, false, at(t.source()), at(t.source())}});
    for (const auto &[key, node] : t) {
      const std::string name(key.str());
      if (node.is_array_of_tables()) {
        TUTTI_TRY(items(table_name, name, *node.as_array()));
        continue;
      }
      TUTTI_ASSIGN(entry, value(table_name, name, node));
      add(std::move(entry));
    }
    return {};
  }

  Result<TomlEntry> value(const std::string &table_name, const std::string &key, const toml::node &node) {
    TomlEntry entry{table_name, key, {"", {}, false, at(node.source()), ""}};
    const std::string label = fmt::format("{}: {}.{}", entry.raw.origin, shortened(table_name), shortened(key));
    if (const auto *list = node.as_array()) {
      entry.raw.is_list = true;
      for (const auto &item : *list) {
        const auto *text = item.as_string();
        if (!text)
          return bad("{}: {} is a list of something else than texts; write [\"a\", \"b\"]", entry.raw.origin, shortened(key));
        entry.raw.items.push_back(text->get());
      }
      entry.raw.label = label + " = [...]";
    } else {
      TUTTI_ASSIGN(text, scalar(entry.raw.origin, table_name, key, node));
      entry.raw.text = text;
      entry.raw.label = fmt::format("{} = {}", label, quoted(text));
    }
    return entry;
  }

  static Result<std::string> scalar(const std::string &origin, const std::string &table_name, const std::string &key,
                                    const toml::node &node) {
    if (const auto *text = node.as_string()) return text->get();
    if (const auto *number = node.as_integer()) return std::to_string(number->get());
    if (const auto *flag = node.as_boolean()) return std::string(flag->get() ? "true" : "false");
    if (node.is_table())
      return bad("{}: [{}.{}] is a table; {} takes no tables below it", origin, shortened(table_name), shortened(key),
                 shortened(table_name));
    return bad("{}: {}.{} is a fraction, date or time; no option takes one (sizes and durations are texts: \"4MiB\", \"30s\")",
               origin, shortened(table_name), shortened(key));
  }

  const std::string &name_;
  std::string communicator_;
  std::vector<TomlEntry> entries_;
};

} // namespace

Result<std::vector<TomlEntry>> read_toml(std::string_view text, const std::string &name) {
  Reader reader(name);
  try {
    const toml::table root = toml::parse(text, name);
    TUTTI_TRY(reader.table(root));
  } catch (const toml::parse_error &e) {
    std::string what(e.description());
    for (char &c : what)
      if (static_cast<unsigned char>(c) < 0x20) c = ' ';
    if (!what.empty() && what[0] >= 'A' && what[0] <= 'Z') what[0] = static_cast<char>(what[0] - 'A' + 'a');
    return bad("{}: not valid TOML: {}", reader.at(e.source()), what);
  } catch (const std::exception &e) { // out of memory
    return bad("{}: cannot be read: {}", name, e.what());
  }
  return reader.take();
}

} // namespace tutti::config
