// The smallest job in C++: every rank gives its number plus one, every rank gets the sum.
//   tutti run -n 4 -- hello_all_reduce_cpp        or        mpirun -np 4 hello_all_reduce_cpp
#include <cstdio>
#include <tutti/tutti.hpp>
#include <vector>

int main() {
  try {
    tutti::Comm comm = tutti::Comm::from_env(); // the launcher says who we are
    std::vector<float> value{static_cast<float>(comm.rank()) + 1};
    comm.all_reduce(value, value, tutti::Op::sum); // enqueued ...
    comm.synchronize();                            // ... and done
    std::printf("rank %d of %d: %g\n", comm.rank(), comm.size(), static_cast<double>(value[0]));
    comm.destroy(); // its errors would be lost in the destructor
    return 0;
  } catch (const tutti::Error &e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
