#include "topology/host_trees.h"
#include <cstddef>

namespace tutti {

std::vector<int> host_tree(int n, int tree) {
  std::vector<int> seat(static_cast<size_t>(n)), place(static_cast<size_t>(n) + 1); // seats count from 1
  for (int i = 0; i < n; i++) {
    seat[static_cast<size_t>(i)] = tree == 0 ? i + 1 : n % 2 == 0 ? n - i : (i + 1) % n + 1;
    place[static_cast<size_t>(seat[static_cast<size_t>(i)])] = i;
  }
  std::vector<int> parents(static_cast<size_t>(n), -1);
  for (int i = 0; i < n; i++) {
    const int s = seat[static_cast<size_t>(i)], low = s & -s;
    int up = (s ^ low) | (low << 1); // the one of the next level beside it
    if (up > n) up = s ^ low;        // that is not there: the one of a higher level before it; 0: this is the top
    if (up > 0) parents[static_cast<size_t>(i)] = place[static_cast<size_t>(up)];
  }
  return parents;
}

std::vector<int> degrees(const std::vector<int> &parents) {
  std::vector<int> d(parents.size());
  for (size_t i = 0; i < parents.size(); i++)
    if (parents[i] >= 0) d[i]++, d[static_cast<size_t>(parents[i])]++;
  return d;
}

} // namespace tutti
