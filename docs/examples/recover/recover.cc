// Training that loses ranks and goes on with those that are left.
//
// A line is fitted to points, data-parallel: every rank has the whole model and takes its share of the points; an all-reduce
// adds up the gradients. When an operation fails, the ranks that are left make a communicator of their own, bring each other to
// the same step, share the points anew, and go on. What each rank needs for that is its model and the number of its step.
//
//   TUTTI_COMM_ID=file:/tmp/id TUTTI_NRANKS=3 TUTTI_RANK=0 recover --die 1 --at 40      and the same for ranks 1 and 2
//   tutti run -n 3 --keep-going -- recover --die 1 --at 40
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <tutti/tutti.hpp>

namespace {

constexpr int kPoints = 1200, kSteps = 300;
constexpr double kRate = 1, kSlope = 3, kOffset = -1;

struct Model {
  double slope = 0, offset = 0;
  int64_t step = 0; // the next one
};

struct Fault { // for the demonstration
  int rank = -1, step = -1;
  bool stop = false;
};

double x_of(int i) {
  return static_cast<double>(i) / kPoints;
}

// One step of gradient descent on all points, each rank's share added up. The model changes only when the sum is there.
void train(tutti::Comm &comm, Model &m) {
  const int n = comm.size(), r = comm.rank();
  std::array<double, 2> gradient{};
  for (int i = kPoints * r / n; i < kPoints * (r + 1) / n; i++) {
    const double x = x_of(i), error = m.slope * x + m.offset - (kSlope * x + kOffset);
    gradient[0] += error * x / kPoints;
    gradient[1] += error / kPoints;
  }
  comm.all_reduce(gradient, gradient, tutti::Op::sum);
  comm.synchronize();
  m.slope -= kRate * gradient[0];
  m.offset -= kRate * gradient[1];
  m.step++;
}

// The last step may have ended on some ranks and failed on others: all take the model of one that is furthest.
void agree(tutti::Comm &comm, Model &m) {
  std::array<int64_t, 1> furthest{m.step};
  comm.all_reduce(furthest, furthest, tutti::Op::max);
  comm.synchronize();
  std::array<int64_t, 1> who{m.step == furthest[0] ? comm.rank() : comm.size()};
  comm.all_reduce(who, who, tutti::Op::min);
  comm.synchronize();
  std::array<double, 2> values{m.slope, m.offset};
  comm.broadcast(values, static_cast<int>(who[0]));
  comm.synchronize();
  m = {values[0], values[1], furthest[0]};
}

// Until those who are left stand at the same step. Another rank may be lost meanwhile, and then it is done again.
void recover(tutti::Comm &comm, Model &m, const std::string &why) {
  std::printf("rank %d of %d: step %lld: %s\n", comm.rank(), comm.size(), static_cast<long long>(m.step), why.c_str());
  for (bool whole = false; !whole;) {
    tutti::Comm smaller = comm.shrink(); // throws where this rank was left behind itself
    comm.abort();                        // of the old one there is nothing to finish
    comm = std::move(smaller);
    try {
      agree(comm, m);
      whole = true;
    } catch (const tutti::Error &) {
    }
  }
  std::printf("rank %d of %d: going on at step %lld\n", comm.rank(), comm.size(), static_cast<long long>(m.step));
  std::fflush(stdout);
}

Fault fault_of(int argc, char **argv) {
  Fault f;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--die") == 0 || std::strcmp(argv[i], "--stop") == 0) f.rank = std::atoi(argv[i + 1]);
    if (std::strcmp(argv[i], "--stop") == 0) f.stop = true;
    if (std::strcmp(argv[i], "--at") == 0) f.step = std::atoi(argv[i + 1]);
  }
  return f;
}

} // namespace

int main(int argc, char **argv) {
  const Fault fault = fault_of(argc, argv);
  try {
    tutti::Comm comm = tutti::Comm::from_env();
    const int first_rank = comm.rank();
    Model m;
    while (m.step < kSteps) {
      if (first_rank == fault.rank && m.step == fault.step) std::raise(fault.stop ? SIGSTOP : SIGKILL);
      try {
        train(comm, m);
      } catch (const tutti::Error &e) {
        if (e.code() != tuttiRemoteError && e.code() != tuttiTimeout) throw; // nobody is gone: a mistake of ours
        recover(comm, m, e.what());
      }
    }
    if (comm.rank() == 0)
      std::printf("%d ranks: y = %.4f x %+.4f after %lld steps\n", comm.size(), m.slope, m.offset,
                  static_cast<long long>(m.step));
    comm.destroy();
    return 0;
  } catch (const tutti::Error &e) {
    std::fprintf(stderr, "recover: %s\n", e.what());
    return 1;
  }
}
