// tutti/core/topology/host_trees.h: the two complementary binary trees over hosts.
#pragma once
#include <vector>

namespace tutti {

// Parents of n places, -1 at the top, in tree 0 or 1. In order of places, a place whose number (from 1) has k trailing zero
// bits stands k levels above the leaves, which are the odd ones; it has up to two children, next to it on either side. Tree 1
// is the same over the places backwards (n even: odd ones become even) or moved on by one (n odd: one place is a leaf in both).
std::vector<int> host_tree(int n, int tree);

// Neighbours of each place in a tree.
std::vector<int> degrees(const std::vector<int> &parents);

} // namespace tutti
