// Shared by the tests of the tuner's tables.
#pragma once
#include "table.h"
#include "tutti/plugin/cxx/host.hpp"
#include <doctest/doctest.h>
#include <filesystem>

inline tutti_tune_query query_of(tutti_coll coll, uint64_t bytes, int nranks, uint32_t link, int hosts = 1, int cores = 2) {
  tutti_tune_query q{};
  q.struct_size = sizeof q;
  q.coll = coll;
  q.bytes = bytes;
  q.nranks = nranks;
  q.nnodes = hosts;
  q.max_ppn = nranks / hosts;
  q.min_cores = cores;
  q.transport = link;
  return q;
}

// What reading the text throws; "" = nothing.
inline std::string refused(std::string_view text, const char *name = "t.toml") {
  try {
    (void)tuner::parse_table(text, name);
  } catch (const tutti::plugin::Error &e) {
    CHECK(std::string_view(e.what()).find('\n') == std::string_view::npos);
    return e.what();
  }
  return "";
}
inline bool holds(const std::string &text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

inline tuner::Table table_of(const std::filesystem::path &file) {
  return tuner::parse_table(tuner::read_file(file.string(), "test"), file.filename().string());
}
inline const std::filesystem::path kData = std::filesystem::path(TUTTI_SOURCE_DIR) / "tests/data/tuner";
