// Data-parallel training of a small network on handwritten digits: 64 inputs, 48 hidden units (ReLU), 10 classes (softmax),
// stochastic gradient descent with momentum.
//
// Every rank holds the whole model. A batch is cut over the ranks; each computes the gradient of its images, and all-reduces
// add them up. All ranks then make the same update, so the model stays the same everywhere, and the curve is that of one rank
// but for the order in which floats are added.
//
// The gradient is cut into buckets, one per layer. The backward pass goes from the last layer to the first, and as soon as a
// layer's gradients are done their all-reduce begins, while the pass goes on with the layer before. What is left of the
// all-reduces is waited for before the update. At the end, `train` says how much of their time the backward pass hid.
//
//   train                              one rank
//   tutti run -n 4 -- train            four processes
//   mpirun -np 4 train                 the same under Open MPI
//   train --no-overlap                 the same numbers, but all-reduces begin after the backward pass
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
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
constexpr int kMeasured = 101; // steps, for the report on overlap
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
  // Begins to add up over all ranks, in place, and returns. The values are the library's until finish().
  void begin_sum(float *values, size_t count) {
    check(tuttiAllReduce(values, values, count, tuttiFloat32, tuttiSum, comm_, nullptr), "all-reduce");
  }
  void finish() { check(tuttiCommSynchronize(comm_), "all-reduce"); }
  void meet() {
    check(tuttiBarrier(comm_, nullptr), "barrier");
    check(tuttiCommSynchronize(comm_), "barrier");
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

// All parameters in one vector: W1 | b1 | W2 | b2. A gradient has one element more, which carries the loss.
constexpr int kB1 = kInputs * kHidden, kW2 = kB1 + kHidden, kB2 = kW2 + kHidden * kClasses, kParameters = kB2 + kClasses;

// The elements [begin, end) of a gradient that are added up by one all-reduce.
struct Bucket {
  int begin, end;
};
constexpr Bucket kLastLayer{kW2, kParameters + 1}, kFirstLayer{0, kW2}; // in the order of the backward pass

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

// This rank's images of one batch, and what the forward pass found for each.
struct Batch {
  std::vector<const Image *> images;
  std::vector<Forward> forward;
};

// Adds the images' share of the batch's mean gradient, layer by layer from the last one on. done(bucket) is called as soon as
// nothing more is added to a bucket.
void backward(const std::vector<float> &model, const Batch &batch, std::vector<float> &gradient,
              const std::function<void(Bucket)> &done) {
  std::vector<std::array<float, kHidden>> to_hidden(batch.images.size());
  for (size_t i = 0; i < batch.images.size(); i++) {
    const Forward &f = batch.forward[i];
    for (int c = 0; c < kClasses; c++) {
      const float error = (f.probability[c] - (c == batch.images[i]->digit ? 1.0f : 0.0f)) / kBatch;
      gradient[kB2 + c] += error;
      for (int h = 0; h < kHidden; h++) {
        gradient[kW2 + c * kHidden + h] += error * f.hidden[h];
        to_hidden[i][h] += error * model[kW2 + c * kHidden + h];
      }
    }
    gradient[kParameters] -= std::log(std::max(f.probability[batch.images[i]->digit], 1e-12f)) / kBatch;
  }
  done(kLastLayer);
  for (size_t i = 0; i < batch.images.size(); i++) {
    const Image &image = *batch.images[i];
    for (int h = 0; h < kHidden; h++) {
      if (batch.forward[i].hidden[h] <= 0) continue;
      gradient[kB1 + h] += to_hidden[i][h];
      for (int p = 0; p < kInputs; p++) gradient[h * kInputs + p] += to_hidden[i][h] * image.pixels[p];
    }
  }
  done(kFirstLayer);
}

// The whole batch's gradient on every rank.
void summed_gradient(const std::vector<float> &model, const Batch &batch, std::vector<float> &gradient, bool overlap,
                     Job &job) {
  const auto add_up = [&](Bucket b) { job.begin_sum(gradient.data() + b.begin, static_cast<size_t>(b.end - b.begin)); };
  if (overlap) {
    backward(model, batch, gradient, add_up);
  } else {
    backward(model, batch, gradient, [](Bucket) {});
    for (const Bucket b : {kLastLayer, kFirstLayer}) add_up(b);
  }
  job.finish();
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
  job.begin_sum(right.data(), 1);
  job.finish();
  return right[0] / static_cast<double>(images.size());
}

Batch make_batch(const std::vector<float> &model, const std::vector<Image> &images, const int *chosen, const Job &job) {
  Batch batch;
  const Part mine = part_of(kBatch, job);
  for (int i = mine.begin; i < mine.end; i++) batch.images.push_back(&images[chosen[i]]);
  for (const Image *image : batch.images) batch.forward.push_back(forward(model, *image));
  return batch;
}

// One pass over the images; the mean loss.
double epoch(std::vector<float> &model, std::vector<float> &speed, const std::vector<Image> &images, std::vector<int> &order,
             Random &random, bool overlap, Job &job) {
  for (size_t i = order.size() - 1; i > 0; i--) std::swap(order[i], order[random.next() % (i + 1)]); // the same on all ranks
  const int batches = static_cast<int>(order.size()) / kBatch;
  double loss = 0;
  for (int b = 0; b < batches; b++) {
    const Batch batch = make_batch(model, images, &order[b * kBatch], job);
    std::vector<float> gradient(kParameters + 1, 0);
    summed_gradient(model, batch, gradient, overlap, job);
    loss += gradient[kParameters];
    for (int p = 0; p < kParameters; p++) {
      speed[p] = kMomentum * speed[p] - kRate * gradient[p];
      model[p] += speed[p];
    }
  }
  return loss / batches;
}

// The median time in microseconds of `step` on a gradient of zeros; all ranks begin together.
double time_of(Job &job, std::vector<float> &gradient, const std::function<void()> &step) {
  std::vector<double> times;
  for (int i = 0; i < kMeasured; i++) {
    std::fill(gradient.begin(), gradient.end(), 0.0f);
    job.meet();
    const auto start = std::chrono::steady_clock::now();
    step();
    times.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
  }
  std::nth_element(times.begin(), times.begin() + kMeasured / 2, times.end());
  return times[kMeasured / 2];
}

// What a step's backward pass and its all-reduces take, one without the other and both at once.
void report_overlap(const std::vector<float> &model, const std::vector<Image> &images, const std::vector<int> &order,
                    Job &job) {
  const Batch batch = make_batch(model, images, order.data(), job);
  std::vector<float> gradient(kParameters + 1, 0);
  const double pass = time_of(job, gradient, [&] { backward(model, batch, gradient, [](Bucket) {}); });
  const double sums = time_of(job, gradient, [&] {
    for (const Bucket b : {kLastLayer, kFirstLayer}) job.begin_sum(gradient.data() + b.begin, b.end - b.begin);
    job.finish();
  });
  const double both = time_of(job, gradient, [&] { summed_gradient(model, batch, gradient, true, job); });
  const double hidden = 100 * std::clamp((pass + sums - both) / std::min(pass, sums), 0.0, 1.0);
  if (job.rank() == 0 && job.ranks() > 1)
    std::printf("a step's backward pass takes %.1f us, its all-reduces %.1f us, both at once %.1f us: %.0f %% hidden\n", pass,
                sums, both, hidden);
}

} // namespace

int main(int argc, char **argv) {
  bool overlap = true;
  std::string data = TRAIN_DATA;
  for (int i = 1; i < argc; i++) {
    if (std::string(argv[i]) == "--no-overlap")
      overlap = false;
    else
      data = argv[i];
  }
  Job job;
  std::vector<Image> training, test;
  const auto images = load(data);
  for (size_t i = 0; i < images.size(); i++) (i % 5 == 4 ? test : training).push_back(images[i]);

  Random random;
  std::vector<float> model = initial_model(random), speed(kParameters, 0);
  std::vector<int> order(training.size());
  std::iota(order.begin(), order.end(), 0);
  if (job.rank() == 0)
    std::printf("%zu images to learn, %zu to test, %d parameters, %d ranks\n", training.size(), test.size(), kParameters,
                job.ranks());
  for (int e = 1; e <= kEpochs; e++) {
    const double loss = epoch(model, speed, training, order, random, overlap, job);
    const double right = accuracy(model, test, job);
    if (job.rank() == 0)
      std::printf("epoch %2d  loss %.6f  test accuracy %.2f %%\n", e, loss, 100 * right), std::fflush(stdout);
  }
  report_overlap(model, training, order, job);
  return 0;
}
