// tutti/plugins/net-ib/selection.h: the grammar of option hca, which is that of NCCL_IB_HCA:
//   mlx5           devices whose name starts with it         =mlx5_1        the device of exactly this name
//   mlx5_0:1       this port of them                         mlx5_0:1:3     and it is rail 3
//   a,b            these and those                           ^a,b           everything but these
// ^ and = stand first and hold for all entries; "^=a" excludes exactly a. A fourth number, the plane of NCCL, is read and
// unused.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::net_ib {

struct PortRule {
  std::string text, device;
  bool exact = false;
  int port = -1, rail = -1; // -1 = any, not said
  bool matches(std::string_view name, unsigned number) const;
};

struct Selection {
  bool exclude = false;
  std::vector<PortRule> rules; // none: everything
  std::string error;           // the text is wrong, and how
  // Of the rule that names the port, -1 = none does.
  int rule_of(std::string_view name, unsigned number) const;
  bool selects(std::string_view name, unsigned number) const;
};

Selection parse_selection(std::string_view text);

// merge_ports: "mlx5_0,mlx5_1;mlx5_2:1,mlx5_2:2". Names are exact.
struct MergeGroups {
  std::vector<std::vector<PortRule>> groups;
  std::string error;
};
MergeGroups parse_merge_groups(std::string_view text);

} // namespace tutti::net_ib
