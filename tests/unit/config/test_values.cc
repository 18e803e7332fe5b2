#include "config/parse.h"
#include "config/secret.h"
#include "helper.h"

using namespace tutti;
using namespace tutti::config;

TEST_CASE("sizes take binary units in any case, with or without B") {
  CHECK(*parse_bytes("65536") == 65536);
  CHECK(*parse_bytes("64KiB") == 65536);
  CHECK(*parse_bytes("64k") == 65536);
  CHECK(*parse_bytes("4 MiB") == 4 << 20);
  CHECK(*parse_bytes("4MB") == 4 << 20);
  CHECK(*parse_bytes("0x10") == 16);
  CHECK(*parse_bytes("1GiB") == 1 << 30);
}

TEST_CASE("a size that is none says what would be") {
  CHECK(has(parse_bytes("many").status().error().message, "is not a size; write 65536"));
  CHECK(has(parse_bytes("4 parsecs").status().error().message, "unknown unit \"parsecs\"; allowed: KiB"));
  CHECK(has(parse_bytes("9999999999G").status().error().message, "too large"));
  CHECK(has(parse_bytes("99999999999999999999").status().error().message, "too large"));
  CHECK_FALSE(parse_bytes("").ok());
  CHECK_FALSE(parse_bytes("1.5M").ok());
}

TEST_CASE("durations need a unit, but for zero and for names that carry one") {
  CHECK(*parse_duration("200us", "") == 200'000);
  CHECK(*parse_duration("30s", "") == 30'000'000'000);
  CHECK(*parse_duration("10min", "") == 600'000'000'000);
  CHECK(*parse_duration("0", "") == 0);
  CHECK(*parse_duration("250", "ms") == 250'000'000);
  CHECK(has(parse_duration("30", "").status().error().message, "has no unit"));
  CHECK(has(parse_duration("30 m", "").status().error().message, "unknown unit \"m\""));
  CHECK(has(parse_duration("soon", "").status().error().message, "is not a duration"));
}

TEST_CASE("numbers are decimal or hexadecimal and never octal by accident") {
  CHECK(*parse_integer("-7") == -7);
  CHECK(*parse_integer("0x1f") == 31);
  CHECK(*parse_integer(" 8 ") == 8);
  for (const char *bad : {"", "-", "0x", "8 channels", "1e3", "--1", "0x-1", "abc"}) {
    CAPTURE(bad);
    CHECK(has(parse_integer(bad).status().error().message, "is not a whole number"));
  }
  CHECK(has(parse_integer("010").status().error().message, "octal"));
  CHECK(has(parse_integer("9223372036854775808").status().error().message, "too large"));
}

TEST_CASE("sizes and durations are shown in the largest unit that fits") {
  CHECK(format_bytes(4 << 20) == "4MiB");
  CHECK(format_bytes(1025) == "1025");
  CHECK(format_duration(30'000'000'000) == "30s");
  CHECK(format_duration(1'500'000'000) == "1500ms");
  CHECK(format_duration(0) == "0");
}

TEST_CASE("edit distance counts inserts, deletes, replacements and swaps as one each") {
  CHECK(edit_distance("", "") == 0);
  CHECK(edit_distance("abc", "") == 3);
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("timeout", "tiemout") == 1);
  CHECK(edit_distance("kitten", "sitting") == 3);
  CHECK(edit_distance("nsocks", "sockets") == 3);
}

TEST_CASE("a suggestion is made only for what is close") {
  const std::vector<std::string> names{"timeout", "blocking", "host_id"};
  CHECK(nearest("tiemout", names) == "timeout");
  CHECK(nearest("BLOCKING", names) == "blocking");
  CHECK(nearest("bandwidth", names).empty());
  CHECK(nearest("x", names).empty());
  CHECK(nearest(std::string(100'000, 'x'), names).empty());
  CHECK(nearest("any", {}).empty());
}

TEST_CASE("a value in a message is printable and short") {
  CHECK(config::quoted("a\nb") == "\"a?b\"");
  CHECK(config::quoted(std::string(1000, 'x')).size() < 100);
}

TEST_CASE("a password in a URL is not shown, neither one that should have been encoded") {
  CHECK(without_password("redis://:secret@h:1/0") == "redis://:***@h:1/0");
  CHECK(without_password("etcd://u:secret@a,b/p") == "etcd://u:***@a,b/p");
  CHECK(without_password("redis://u:se/c:re@t@h") == "redis://u:***@h");
  for (const char *plain : {"", "h:1", "redis://h:1", "redis://u@h", "file:/a@b:c", "u:p@h", "redis://h:1/a"})
    CHECK(without_password(plain) == plain);
}
