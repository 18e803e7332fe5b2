// What went wrong, as a sentence.
#include "explain.h"
#include "host.h"
#include "machine.h"
#include <doctest/doctest.h>
#include <set>
#include <sys/resource.h>

using namespace tutti::net_ib;

namespace {

bool has(const std::string &text, const std::string &part) {
  return text.find(part) != std::string::npos;
}

Port roce_port(const std::string &ip) {
  Machine m;
  m.roce("mlx5_0", ip);
  return find_devices(settings_with({}), m, m.sysfs()).devices.at(0).own.at(0);
}

// The limit on pinned memory for one scope.
struct Memlock {
  rlimit before{};
  explicit Memlock(rlim_t kib) {
    getrlimit(RLIMIT_MEMLOCK, &before);
    const rlimit lower{kib * 1024, before.rlim_max};
    REQUIRE(setrlimit(RLIMIT_MEMLOCK, &lower) == 0);
  }
  ~Memlock() { setrlimit(RLIMIT_MEMLOCK, &before); }
};

} // namespace

TEST_CASE("every status of a completion has number, name, both ends, vendor code and advice") {
  const Port port = roce_port("10.0.0.1");
  const Settings s = settings_with({});
  std::set<std::string> sentences;
  for (int status = IBV_WC_LOC_LEN_ERR; status <= IBV_WC_TM_RNDV_INCOMPLETE; status++) {
    ibv_wc wc{};
    wc.status = static_cast<ibv_wc_status>(status);
    wc.vendor_err = 0x81;
    const std::string text = explain(wc, "RDMA WRITE", {&port, "::ffff:10.0.0.2"}, s);
    CAPTURE(text);
    CHECK(has(text, "mlx5_0:1 (GID ::ffff:10.0.0.1, index 2) -> GID ::ffff:10.0.0.2: RDMA WRITE failed with status " +
                        std::to_string(status) + " (" + ibv_wc_status_str(wc.status) + ", vendor code 0x81): "));
    CHECK(text.back() != '.');
    CHECK(text.find('\n') == std::string::npos);
    CHECK(sentences.insert(text).second);
    CHECK(status_of(wc.status) < 0);
  }
}

TEST_CASE("a peer that does not answer: how long it was tried, and where to look") {
  const Port port = roce_port("10.0.0.1");
  ibv_wc wc{};
  wc.status = IBV_WC_RETRY_EXC_ERR;
  std::string text = explain(wc, "RDMA WRITE", {&port, "::ffff:10.0.0.2"}, settings_with({}));
  CHECK(has(text, "none of 8 tries in about 34 s"));
  CHECK(has(text, "UDP port 4791"));
  text = explain(wc, "RDMA WRITE", {&port, ""}, settings_with({{"timeout", "12"}, {"retry_count", "6"}}));
  CHECK(has(text, "none of 7 tries in about 0.117 s"));
  CHECK(has(explain(wc, "RDMA WRITE", {&port, ""}, settings_with({{"timeout", "0"}})), "for ever"));
  CHECK(has(explain(wc, "RDMA WRITE", {&port, "::1", 1024}, settings_with({})), "differ in MTU, 4096 here and 1024"));
  CHECK_FALSE(has(explain(wc, "RDMA WRITE", {&port, "::1", 4096}, settings_with({})), "differ in MTU"));
  Port ib = port;
  ib.ethernet = false;
  ib.gid_index = -1;
  ib.lid = 7;
  text = explain(wc, "RDMA WRITE", {&ib, "LID 9"}, settings_with({}));
  CHECK(has(text, "mlx5_0:1 (LID 7) -> LID 9"));
  CHECK(has(text, "subnet manager"));
  CHECK_FALSE(has(text, "4791"));
  CHECK(status_of(IBV_WC_RETRY_EXC_ERR) == TUTTI_ERR_REMOTE);
  CHECK(status_of(IBV_WC_LOC_PROT_ERR) == TUTTI_ERR_SYSTEM);
}

TEST_CASE("memory that cannot be pinned: the limit now, and what mends it") {
  const Memlock limit(64);
  char byte = 0;
  const std::string text = explain_reg_mr(ENOMEM, "mlx5_0:1", "ibv_reg_mr", &byte, 1 << 20);
  CAPTURE(text);
  CHECK(has(text, "cannot register 1048576 bytes at 0x"));
  CHECK(has(text, "ulimit -l is 64 KiB"));
  CHECK(has(text, "LimitMEMLOCK=infinity"));
  CHECK(has(explain_create_qp(ENOMEM, roce_port("10.0.0.1"), 64, 64, 128), "ulimit -l is 64 KiB"));
  CHECK_FALSE(has(explain_reg_mr(EFAULT, "mlx5_0:1", "ibv_reg_mr", &byte, 1), "ulimit"));
  CHECK(has(explain_reg_mr(EOPNOTSUPP, "mlx5_0:1", "ibv_reg_dmabuf_mr", &byte, 1), "ibv_reg_dmabuf_mr"));
}

TEST_CASE("a queue pair that cannot be made or connected says why") {
  const Port port = roce_port("10.0.0.1");
  CHECK(has(explain_create_qp(EINVAL, port, 64, 32, 4096), "64 sends, 32 receives and 4096 bytes inline"));
  CHECK(has(explain_create_qp(ENOSPC, port, 64, 32, 0), "qps_per_connection"));
  const Ends ends{&port, "::ffff:10.0.0.2"};
  const std::string gone = explain_modify_qp(ENODATA, IBV_QPS_RTR, ends);
  CHECK(has(gone, "cannot go to RTR"));
  CHECK(has(gone, "errno 61"));
  CHECK(has(gone, "index 2"));
  CHECK(has(gone, "the GID at this index is gone"));
  CHECK(has(explain_modify_qp(ETIMEDOUT, IBV_QPS_RTR, ends), "hardware address was not found"));
  CHECK(has(explain_modify_qp(EINVAL, IBV_QPS_INIT, ends), "partition key"));
  CHECK(worth_retrying(ETIMEDOUT, IBV_QPS_RTR));
  CHECK_FALSE(worth_retrying(ENODATA, IBV_QPS_RTR)); // another index has to be chosen first
  CHECK_FALSE(worth_retrying(ETIMEDOUT, IBV_QPS_RTS));
}

TEST_CASE("ends that do not fit are told before anything is sent") {
  const Port v4 = roce_port("10.0.0.1"), v6 = roce_port("fd00::1");
  const PeerPort peer{true, v6.gid};
  const std::string text = mismatch(v4, peer);
  CHECK(has(text, "::ffff:10.0.0.1, an IPv4 address"));
  CHECK(has(text, "fd00::1, one of IPv6"));
  CHECK(has(text, "family"));
  CHECK(mismatch(v6, peer).empty());
  CHECK(has(mismatch(v4, {false, {}}), "different networks"));
}

TEST_CASE("ports that are down for too long are named") {
  const Port a = roce_port("10.0.0.1");
  Port b = a;
  b.device = "mlx5_1";
  const std::string text = explain_all_down({{&a, "::1"}, {&b, "::2"}}, std::chrono::milliseconds(30250));
  CHECK(has(text, "mlx5_0:1"));
  CHECK(has(text, "mlx5_1:1"));
  CHECK(has(text, "30.2 s"));
}

TEST_CASE("a device that cannot be opened says what is missing") {
  CHECK(has(explain_open(ENOENT), "/dev/infiniband"));
  CHECK(has(explain_open(EACCES), "this user"));
  CHECK(has(explain_open(ENOSYS), "ibverbs-providers"));
  CHECK(has(explain_open(EBUSY), "Device or resource busy"));
}
