// Data-parallel training of a small network on handwritten digits: 64 inputs, 48 hidden units (ReLU), 10 classes (softmax),
// stochastic gradient descent with momentum.
//
// Every rank holds the whole model. A batch is cut over the ranks; each computes the gradient of its images, and one all-reduce
// adds them up. All ranks then make the same update, so the model stays the same everywhere, and the curve is that of one rank
// but for the order in which floats are added.
//
//   train                              one rank
//   tutti run -n 4 -- train            four processes
//   mpirun -np 4 train                 the same under Open MPI
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <numeric>
#include <sstream>
#include <string>
#include <tutti/tutti.h>
#include <utility>
#include <vector>

namespace {

constexpr int kInputs = 64, kHidden = 48, kClasses = 10;
constexpr int kBatch = 96; // images of all ranks together
constexpr int kEpochs = 25;
constexpr float kRate = 0.1f, kMomentum = 0.9f;

[[noreturn]] void give_up(const std::string &what) {
  std::fprintf(stderr, "train: %s\n", what.c_str());
  std::exit(1);
}

// The communicator over the ranks that a launcher started, or over this process alone.
class Job {
public:
  Job() {
    if (std::getenv("TUTTI_RANK") || std::getenv("TUTTI_COMM_ID") || std::getenv("OMPI_COMM_WORLD_RANK") ||
        std::getenv("PMIX_RANK")) {
      check(tuttiCommInitFromEnv(&comm_, nullptr), "joining the job");
    } else {
      tuttiUniqueId id;
      check(tuttiGetUniqueId(&id), "starting the root");
      check(tuttiCommInitRank(&comm_, 1, id, 0), "making the communicator");
    }
    check(tuttiCommUserRank(comm_, &rank_), "asking for the rank");
    check(tuttiCommCount(comm_, &ranks_), "asking for the size");
  }
  ~Job() {
    const tuttiComm_t comm = std::exchange(comm_, nullptr);
    check(tuttiCommDestroy(comm), "leaving the job");
  }
  Job(const Job &) = delete;
  Job &operator=(const Job &) = delete;

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  // The sum over all ranks, in place.
  void add_up(std::vector<float> &values) {
    check(tuttiAllReduce(values.data(), values.data(), values.size(), tuttiFloat32, tuttiSum, comm_, nullptr), "all-reduce");
    check(tuttiCommSynchronize(comm_), "all-reduce");
  }

private:
  void check(tuttiResult_t result, const char *doing) {
    if (result != tuttiSuccess) give_up(std::string(doing) + ": " + tuttiGetLastError(comm_));
  }
  tuttiComm_t comm_ = nullptr;
  int rank_ = 0, ranks_ = 1;
};

struct Image {
  std::array<float, kInputs> pixels;
  int digit;
};

std::vector<Image> load(const std::string &path) {
  std::ifstream file(path);
  if (!file) give_up("cannot read " + path + "; give the path of digits.csv as the argument");
  std::vector<Image> images;
  for (std::string line; std::getline(file, line);) {
    std::replace(line.begin(), line.end(), ',', ' ');
    std::istringstream words(line);
    Image image{};
    for (float &p : image.pixels) words >> p, p /= 16;
    if (words >> image.digit && image.digit >= 0 && image.digit < kClasses)
      images.push_back(image);
    else
      give_up(path + " is damaged: " + line.substr(0, 40));
  }
  return images;
}

// A small generator of our own: the same numbers on every machine.
class Random {
public:
  uint32_t next() {
    state_ = state_ * 6364136223846793005ull + 1442695040888963407ull;
    return static_cast<uint32_t>(state_ >> 33);
  }
  float uniform() { return static_cast<float>(next()) * 0x1p-30f - 1; } // in [-1, 1)

private:
  uint64_t state_ = 20240229;
};

// All parameters in one vector, so that one all-reduce takes the whole gradient: W1 | b1 | W2 | b2.
constexpr int kB1 = kInputs * kHidden, kW2 = kB1 + kHidden, kB2 = kW2 + kHidden * kClasses, kParameters = kB2 + kClasses;

struct Forward {
  std::array<float, kHidden> hidden;
  std::array<float, kClasses> probability;
};

Forward forward(const std::vector<float> &model, const Image &image) {
  Forward f;
  for (int h = 0; h < kHidden; h++) {
    float sum = model[kB1 + h];
    for (int i = 0; i < kInputs; i++) sum += model[h * kInputs + i] * image.pixels[i];
    f.hidden[h] = std::max(sum, 0.0f);
  }
  float top = -1e30f, total = 0;
  for (int c = 0; c < kClasses; c++) {
    float sum = model[kB2 + c];
    for (int h = 0; h < kHidden; h++) sum += model[kW2 + c * kHidden + h] * f.hidden[h];
    f.probability[c] = sum;
    top = std::max(top, sum);
  }
  for (float &p : f.probability) total += p = std::exp(p - top);
  for (float &p : f.probability) p /= total;
  return f;
}

// Adds this image's share of the batch's mean gradient.
void backward(const std::vector<float> &model, const Image &image, const Forward &f, std::vector<float> &gradient) {
  std::array<float, kHidden> to_hidden{};
  for (int c = 0; c < kClasses; c++) {
    const float error = (f.probability[c] - (c == image.digit ? 1.0f : 0.0f)) / kBatch;
    gradient[kB2 + c] += error;
    for (int h = 0; h < kHidden; h++) {
      gradient[kW2 + c * kHidden + h] += error * f.hidden[h];
      to_hidden[h] += error * model[kW2 + c * kHidden + h];
    }
  }
  for (int h = 0; h < kHidden; h++) {
    if (f.hidden[h] <= 0) continue;
    gradient[kB1 + h] += to_hidden[h];
    for (int i = 0; i < kInputs; i++) gradient[h * kInputs + i] += to_hidden[h] * image.pixels[i];
  }
}

std::vector<float> initial_model(Random &random) {
  std::vector<float> model(kParameters, 0);
  for (int i = 0; i < kB1; i++) model[i] = random.uniform() * std::sqrt(6.0f / kInputs);
  for (int i = kW2; i < kB2; i++) model[i] = random.uniform() * std::sqrt(6.0f / kHidden);
  return model;
}

// The part [begin, end) of n items that belongs to a rank.
struct Part {
  int begin, end;
};
Part part_of(int n, const Job &job) {
  return {n * job.rank() / job.ranks(), n * (job.rank() + 1) / job.ranks()};
}

double accuracy(const std::vector<float> &model, const std::vector<Image> &images, Job &job) {
  const Part mine = part_of(static_cast<int>(images.size()), job);
  std::vector<float> right(1, 0);
  for (int i = mine.begin; i < mine.end; i++) {
    const Forward f = forward(model, images[i]);
    right[0] += std::max_element(f.probability.begin(), f.probability.end()) - f.probability.begin() == images[i].digit;
  }
  job.add_up(right);
  return right[0] / static_cast<double>(images.size());
}

// One pass over the images; the mean loss.
double epoch(std::vector<float> &model, std::vector<float> &speed, const std::vector<Image> &images, std::vector<int> &order,
             Random &random, Job &job) {
  for (size_t i = order.size() - 1; i > 0; i--) std::swap(order[i], order[random.next() % (i + 1)]); // the same on all ranks
  const int batches = static_cast<int>(order.size()) / kBatch;
  double loss = 0;
  for (int b = 0; b < batches; b++) {
    std::vector<float> gradient(kParameters + 1, 0); // the last element carries the loss
    const Part mine = part_of(kBatch, job);
    for (int i = mine.begin; i < mine.end; i++) {
      const Image &image = images[order[b * kBatch + i]];
      const Forward f = forward(model, image);
      backward(model, image, f, gradient);
      gradient[kParameters] -= std::log(std::max(f.probability[image.digit], 1e-12f)) / kBatch;
    }
    job.add_up(gradient);
    loss += gradient[kParameters];
    for (int p = 0; p < kParameters; p++) {
      speed[p] = kMomentum * speed[p] - kRate * gradient[p];
      model[p] += speed[p];
    }
  }
  return loss / batches;
}

} // namespace

int main(int argc, char **argv) {
  Job job;
  std::vector<Image> training, test;
  const auto images = load(argc > 1 ? argv[1] : TRAIN_DATA);
  for (size_t i = 0; i < images.size(); i++) (i % 5 == 4 ? test : training).push_back(images[i]);

  Random random;
  std::vector<float> model = initial_model(random), speed(kParameters, 0);
  std::vector<int> order(training.size());
  std::iota(order.begin(), order.end(), 0);
  if (job.rank() == 0)
    std::printf("%zu images to learn, %zu to test, %d parameters, %d ranks\n", training.size(), test.size(), kParameters,
                job.ranks());
  for (int e = 1; e <= kEpochs; e++) {
    const double loss = epoch(model, speed, training, order, random, job);
    const double right = accuracy(model, test, job);
    if (job.rank() == 0)
      std::printf("epoch %2d  loss %.6f  test accuracy %.2f %%\n", e, loss, 100 * right), std::fflush(stdout);
  }
  return 0;
}
