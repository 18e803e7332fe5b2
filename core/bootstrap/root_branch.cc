// Several roots: what the first one and the others tell each other.
#include "bootstrap/at_root.h"
#include "bootstrap/hub.h"
#include "bootstrap/root.h"
#include "log/log.h"
#include <algorithm>
#include <cstring>

namespace tutti::boot {
namespace {

Bytes at_root(int rank, const Contact *contact) {
  return encode(AtRoot{rank, contact ? std::optional(*contact) : std::nullopt});
}

Error confused(std::string_view who) {
  Error e;
  e.code = Code::internal;
  e.phase = "bootstrap";
  e.message = fmt::format("{} sent a malformed message while ranks were joining", who);
  return e;
}

} // namespace

Bytes encode(const AtRoot &a) {
  Writer w;
  w.i32(a.rank);
  w.u8(a.contact ? 1 : 0);
  if (a.contact) put(w, *a.contact);
  return w.take();
}

std::optional<AtRoot> decode_at_root(std::span<const std::byte> data) {
  Reader r(data);
  AtRoot a;
  a.rank = r.i32();
  if (r.u8() != 0 && !get(r, &a.contact.emplace())) return {};
  if (!r.done()) return {};
  return a;
}

// ---- at a root that is not the first one

void Root::branch_out(uint32_t generation, Run &run) {
  const auto opened = unseal(identity_.key, run.first.first_root);
  tuttiUniqueId raw{};
  if (opened && opened->size() == sizeof raw.internal) std::memcpy(raw.internal, opened->data(), sizeof raw.internal);
  const auto id = decode(raw);
  if (!id.ok()) return end(generation, confused(fmt::format("rank {} ({})", run.first.rank, run.first.contact.text())));
  run.first_root_text = "it is being connected to";
  run.dialer = Dialer::start(service_, root_job(*id, run.first.rank, config_, run.deadline),
                             [weak = weak_from_this(), generation](Result<Conn::Ptr> r) {
                               if (auto root = weak.lock()) return root->branch_connected(generation, std::move(r));
                               if (r.ok()) r.value()->close();
                             });
}

void Root::branch_connected(uint32_t generation, Result<Conn::Ptr> r) {
  const auto it = runs_.find(generation);
  if (it == runs_.end() || it->second.over) {
    if (r.ok()) r.value()->close();
    return;
  }
  Run &run = it->second;
  service_.post([done = std::exchange(run.dialer, nullptr)] {}); // it is running
  if (!r.ok()) { // the deadline's message says it, unless ranks of other roots do before
    run.first_root_text = r.status().error().message;
    return;
  }
  run.first_root = r.value();
  run.first_root_text = "it answers";
  std::weak_ptr<Root> weak = weak_from_this();
  run.first_root->on_frame = [weak, generation](const Frame &f) {
    if (auto root = weak.lock()) root->from_first(generation, f);
  };
  run.first_root->on_close = [weak, generation](const Status &why) {
    if (auto root = weak.lock()) root->first_lost(generation, why);
  };
  CheckIn first = run.first;
  first.first_root.clear();
  first.left_ns = static_cast<uint64_t>(std::max<int64_t>(0, Nanos(run.deadline - Clock::now()).count()));
  run.first_root->send(FrameType::branch, 0, encode(BranchIn{self_, first}));
  for (const auto &[rank, entry] : run.entries) tell_first(run, rank);
}

void Root::first_lost(uint32_t generation, const Status &why) {
  const auto it = runs_.find(generation);
  if (it == runs_.end() || it->second.over) return;
  it->second.first_root = nullptr;
  Error e = why.error();
  e.code = Code::remote;
  e.phase = "bootstrap";
  e.message = fmt::format("the first root ({}): {} while ranks were joining", it->second.first_root_text, e.message);
  end(generation, e);
}

void Root::tell_first(Run &run, int rank) {
  if (!run.first_root) return;
  const Entry &entry = run.entries.at(rank);
  const bool edge = rank == run.range.low || rank == run.range.high - 1;
  run.first_root->send(FrameType::at_root, 0, at_root(rank, edge ? &entry.in.contact : nullptr));
  if (!entry.in_ring) return;
  Writer w;
  w.i32(rank);
  run.first_root->send(FrameType::in_ring, 0, w.take());
}

void Root::from_first(uint32_t generation, const Frame &f) {
  const auto self = shared_from_this();
  auto it = runs_.find(generation);
  if (it == runs_.end() || it->second.over) return;
  Run &run = it->second;
  if (f.type == FrameType::failure) {
    if (auto e = decode_error(f.payload)) return end(generation, *e);
  } else if (f.type == FrameType::welcome) {
    Reader r(f.payload);
    const int rank = r.i32();
    if (Contact c; get(r, &c)) {
      run.first_root_text = rank < 0 ? c.text() : fmt::format("in rank {}, {}", rank, c.text());
      return;
    }
  } else if (f.type == FrameType::at_root) {
    const auto a = decode_at_root(f.payload);
    if (a && a->contact && a->rank >= 0 && a->rank < run.nranks() && !run.entries.count(a->rank)) {
      run.edges[a->rank] = *a->contact;
      return pair_up(run, a->rank);
    }
  }
  end(generation, confused("the first root"));
}

// ---- at the first root

void Root::branch_in(const Conn::Ptr &conn, const std::shared_ptr<Guest> &guest, const BranchIn &in) {
  const auto self = shared_from_this();
  service_.cancel(std::exchange(idle_timer_, 0));
  const uint32_t generation = in.first.generation;
  const int root = in.first.root;
  Run &run = runs_[generation];
  const auto refuse = [&](const Error &e) {
    guest->gone = true;
    conn->send(FrameType::failure, 0, encode(e));
    conn->finish();
  };
  guest->in = true;
  if (run.over) return refuse(run.error);
  const std::string who = fmt::format("rank {} ({})", in.first.rank, in.first.contact.text());
  std::string why = check(run, in.first, who);
  if (why.empty() && run.branches.count(root))
    why = fmt::format("root {} came twice: {} and {}", root, run.branches[root].contact.text(), in.contact.text());
  if (!why.empty()) {
    Error e;
    e.code = Code::invalid_usage;
    e.peer = in.first.rank;
    e.phase = "bootstrap";
    e.message = std::move(why);
    refuse(e);
    return end(generation, e);
  }
  if (run.nranks() == 0) begin(run, in.first);
  heed_deadline(run, in.first);
  guest->generation = generation;
  guest->rank = in.first.rank;
  guest->branch = root;
  Branch &b = run.branches[root];
  b.contact = in.contact;
  b.conn = conn;
  conn->send(FrameType::welcome, 0, whose(run));
  for (const auto &[rank, contact] : run.edges) tell_branch(run, root, rank);
}

void Root::from_branch(const Guest &guest, const Frame &f) {
  const auto self = shared_from_this();
  auto it = runs_.find(guest.generation);
  if (it == runs_.end() || it->second.over) return;
  Run &run = it->second;
  const RankRange range = ranks_of_root(run.nranks(), run.first.nroots, guest.branch);
  const auto inside = [&](int rank) { return rank >= range.low && rank < range.high; };
  Branch &b = run.branches[guest.branch];
  if (f.type == FrameType::failure) {
    if (auto e = decode_error(f.payload)) return end(guest.generation, *e);
  } else if (f.type == FrameType::at_root) {
    if (const auto a = decode_at_root(f.payload); a && inside(a->rank)) {
      b.here.insert(a->rank);
      if (!a->contact) return;
      run.edges[a->rank] = *a->contact;
      return hand_on(run, a->rank);
    }
  } else if (f.type == FrameType::in_ring) {
    Reader r(f.payload);
    if (const int rank = r.i32(); r.done() && inside(rank)) {
      b.in_ring.insert(rank);
      if (all_in_ring(run)) finished(guest.generation);
      return;
    }
  }
  end(guest.generation, confused(fmt::format("root {} ({})", guest.branch, b.contact.text())));
}

// The address of a rank at an end of its root's range, to the roots of its neighbours.
void Root::hand_on(Run &run, int rank) {
  if (const auto own = run.entries.find(rank); own != run.entries.end()) {
    if (rank != run.range.low && rank != run.range.high - 1) return;
    run.edges[rank] = own->second.in.contact;
  } else if (run.range.size() > 0) {
    pair_up(run, rank);
  }
  for (const auto &[root, branch] : run.branches) tell_branch(run, root, rank);
}

void Root::tell_branch(Run &run, int root, int rank) {
  const RankRange range = ranks_of_root(run.nranks(), run.first.nroots, root);
  if (rank >= range.low && rank < range.high) return;
  const int n = run.nranks();
  if (rank != range.high % n && rank != (range.low + n - 1) % n) return;
  if (const Branch &b = run.branches[root]; b.conn) b.conn->send(FrameType::at_root, 0, at_root(rank, &run.edges[rank]));
}

void Root::flood_roots(Run &run, const Error &error) {
  const Bytes data = encode(error);
  if (run.dialer) {
    run.dialer->cancel();
    service_.post([done = std::move(run.dialer)] {}); // it may be running
    run.dialer = nullptr;
  }
  if (const auto first = std::exchange(run.first_root, nullptr)) {
    first->send(FrameType::failure, 0, data);
    first->finish();
  }
  for (auto &[root, branch] : run.branches)
    if (const auto conn = std::exchange(branch.conn, nullptr)) {
      conn->send(FrameType::failure, 0, data);
      conn->finish();
    }
}

bool Root::all_in_ring(const Run &run) const {
  if (run.range.size() == 0 || run.in_ring < static_cast<size_t>(run.range.size())) return false;
  if (run.is_branch()) return true;
  for (int root = 1; root < run.first.nroots; root++) {
    const auto b = run.branches.find(root);
    const int ranks = ranks_of_root(run.nranks(), run.first.nroots, root).size();
    if (b == run.branches.end() || static_cast<int>(b->second.in_ring.size()) < ranks) return false;
  }
  return true;
}

// "3 (root 0, pid 7 on a), 9-10 (root 2, of which nothing was heard)"
std::string Root::by_root(const Run &run, std::span<const int> ranks) const {
  std::string out;
  for (size_t i = 0; i < ranks.size();) {
    const int root = root_of_rank(run.nranks(), run.first.nroots, ranks[i]);
    size_t j = i;
    while (j < ranks.size() && root_of_rank(run.nranks(), run.first.nroots, ranks[j]) == root) j++;
    const auto branch = run.branches.find(root);
    const bool own = root == (run.is_branch() ? run.first.root : 0);
    const std::string who = own                            ? self_.text()
                            : branch != run.branches.end() ? branch->second.contact.text()
                                                           : "of which nothing was heard";
    out += fmt::format("{}{} (root {}, {})", out.empty() ? "" : ", ", list_ranks(ranks.subspan(i, j - i)), root, who);
    i = j;
  }
  return out;
}

} // namespace tutti::boot
