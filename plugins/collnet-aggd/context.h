// tutti/plugins/collnet-aggd/context.h: the plugin's objects. A context has the daemons' addresses and an epoll set; a
// membership is a member's side of a group: a bounded queue of posts, and a shard for each daemon.
#pragma once
#include "options.h"
#include "shard.h"
#include "tutti/plugin/cxx/plugin.hpp"

namespace tutti::aggd {

class Context;

// The address of a listener: what makes a group's name unique, and who joins at the same daemons.
struct Ticket {
  uint32_t magic;
  uint16_t version, shards;
  Nonce nonce;
  uint64_t servers, any_order; // hashes of their names, in order and in any
};
static_assert(sizeof(Ticket) == 56);
inline constexpr uint32_t ticket_magic = 0x64676761;

class Membership final : public plugin::NetObject, public Posts {
public:
  Membership(Context &ctx, const std::vector<Ticket> &tickets, int32_t member, const tutti_collnet_config &config);
  ~Membership() override;
  bool ready(tutti_collnet_caps &out);
  void why(tutti_collnet_why &out) const;
  std::string describe() const;
  tutti_status post(const tutti_collnet_op &op, uint64_t cookie);
  void progress();
  void tick(Clock::time_point now);
  bool busy() const { return posted_ > done_; }
  bool may_move(); // without the context's events

  std::vector<std::unique_ptr<Shard>> shards;

private:
  Post *post(uint64_t number) override {
    return number < posted_ && number >= done_ ? &queue_[number % queue_.size()] : nullptr;
  }
  uint64_t oldest() const override { return done_; }
  void chunk_done(uint64_t number) override;
  void failed(Fault fault) override;
  uint32_t patience() const;
  void look_for_stop(Clock::time_point now);
  void look_around();
  void close_failed();
  void finish(tutti_status status);
  void start();
  void fill(tutti_collnet_caps &out) const;
  void check(const tutti_collnet_op &op) const;
  [[noreturn]] void rethrow() const;

  Context &ctx_;
  const uint32_t members_;
  const int32_t member_;
  const Clock::time_point deadline_;
  Members elsewhere_;                                      // members that name other servers
  uint32_t outstanding_ = 0, chunk_ = 0, least_chunk_ = 0; // the same on all members
  bool started_ = false;
  Fault fault_, rumour_; // hearsay waits for somebody who knows
  Clock::time_point rumour_until_{};
  bool closing_ = false;
  std::vector<Post> queue_;
  uint64_t posted_ = 0, done_ = 0;  // posts [done_, posted_) are in flight
  uint64_t results_ = 0, seen_ = 0; // chunks that came back; of them, when tick() last looked
  Clock::time_point moved_{};       // when tick() last saw a new one, or nothing in flight
  uint64_t chunks_ = 0;
};

class Listener final : public plugin::NetObject {
public:
  Listener(Context &ctx, plugin::CollnetAddress &addr);
  std::unique_ptr<Membership> group_create(const std::vector<plugin::CollnetAddress> &addrs, int32_t member,
                                           const tutti_collnet_config &config);

private:
  Context &ctx_;
  Ticket ticket_{};
};

struct Mr {}; // host memory needs none; the handle only proves that the call was made

class Context final : public plugin::NetObject {
public:
  Context(const Host &host, const Options &options, const Key &key);
  ~Context();
  std::unique_ptr<Listener> listen(plugin::CollnetAddress &addr) { return std::make_unique<Listener>(*this, addr); }
  std::unique_ptr<Mr> mr_register(const tutti_region &region);
  int32_t progress(tutti_collnet_completion *out, uint32_t cap);
  int event_fd() { return epoll_.get(); }
  bool arm();

  const Options &options() const { return options_; }
  const Key &key() const { return key_; }
  const std::vector<Place> &places() const { return places_; }
  uint64_t servers() const { return servers_; }
  uint64_t servers_in_any_order() const { return any_order_; }
  void add(Membership *group) { groups_.push_back(group); }
  void remove(Membership *group);
  void watch(Fd &fd, Shard *shard);
  void see_off(Farewell farewell);
  void complete(uint64_t cookie, tutti_status status) { completions_.push_back({cookie, status, 0}); }

private:
  bool collect_events();
  void see_off_all();

  const Options options_;
  const Key key_;
  std::vector<Place> places_;
  uint64_t servers_ = 0, any_order_ = 0;
  Fd epoll_;
  std::vector<Membership *> groups_;
  std::vector<Farewell> farewells_;
  std::vector<tutti_collnet_completion> completions_; // [given_, end)
  size_t given_ = 0;
  uint32_t turn_ = 0;
  Clock::time_point ticked_{};
};

} // namespace tutti::aggd
