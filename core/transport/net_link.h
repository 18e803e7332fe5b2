// tutti/core/transport/net_link.h: one link over a network: its endpoint, its memory, and what is posted on it.
//
// A message is a 16-byte header (word, length) and the payload: as one message of the net up to kStagedBytes, above as two. A
// sender posts both in one call.
//
// Messages of the net are counted on both sides, and the places of a link alternate: even ones are small, with room for a
// header and kStagedBytes, odd ones are large, with room for the longest payload. So buffers can be posted before it is known
// what comes, and no header takes a large one. A message of two begins at an even place, for which a sender that is at an odd
// one sends an empty message first, the filler; a message of one goes into either. That holds for every link, whether its
// receiver posts ahead or not: nothing need be agreed on. A receiver skips an empty message wherever it finds one, for all
// others have a header; one that knows what comes posts for just that: a filler's place, and a pair of buffers for header and
// payload.
#pragma once
#include "bootstrap/bootstrap.h"
#include "transport/mr_cache.h"
#include "transport/net_counters.h"
#include "transport/ring.h"
#include "tutti/plugin/net_rma.h"
#include <atomic>
#include <cstddef>
#include <deque>
#include <memory>
#include <new>
#include <optional>

namespace tutti {

constexpr uint64_t kStagedBytes = 4096;
constexpr uint64_t kAheadBytes = 2 << 20; // of large buffers of one link that are posted before their messages are known
constexpr uint32_t kAheadPairs = 8;       // of buffers, small and large; more where the ring has more slots
constexpr auto kCloseTime = std::chrono::seconds(1); // for a device to report what closed endpoints leave: it is all there
constexpr uint32_t kAllAhead = 64;                   // messages: as many as there may be buffers for

struct NetHeader {
  uint64_t word, bytes;
};

// Links of protocol `pull` may lend: then kLent is set in the header's length, and in the place of the payload is
struct NetDescriptor {
  uint64_t address; // in the sender's registered memory
  uint32_t key_bytes, reserved;
  std::byte key[TUTTI_NET_KEY_BYTES];
};
constexpr uint64_t kLent = 1ull << 63;
// With net.checksum the length has beside it the lower 31 bits of the CRC32C of word, length and payload; of what is lent, of
// the descriptor in place of the payload, which is read later and not covered.
constexpr uint64_t kLengthMask = 0xffffffff;
constexpr int kChecksumShift = 32;
constexpr uint32_t kChecksumMask = 0x7fffffff;

class NetLink;

// A device opened for the engine.
struct NetDevice {
  uint32_t number = 0; // of the plugin
  tutti_net_dev info{};
  tutti_net_ctx *ctx = nullptr;
  std::vector<NetCounter> at_start; // its counters when it was opened
  std::unique_ptr<MrCache> cache;   // where buffers need registrations
  bool needs_mr() const { return info.flags & TUTTI_NET_NEEDS_MR; }
};

// Memory for `count` buffers in a row, registered in one piece where that is needed. Made at first use.
struct NetStage {
  struct Free {
    void operator()(uint8_t *p) const { ::operator delete[](p, std::align_val_t(4096)); }
  };
  std::unique_ptr<uint8_t[], Free> memory;
  uint64_t room = 0; // of one
  uint64_t count = 0;
  tutti_net_mr *mr = nullptr;
  uint8_t *at(uint64_t k) const { return memory.get() + k % count * room; }
};

// One call to the device; the cookie is its address.
struct NetCall {
  enum class Kind : uint8_t { send, single, pair, payload, get };
  NetLink *link = nullptr;
  Kind kind = Kind::send;
  bool busy = false; // of the device, or waiting to be
  bool complete = false;
  NetHeader header{};
  uint64_t tag = 0;               // receive: of its first message of the net
  uint8_t *staged = nullptr;      // begins with the header, but for a payload
  uint8_t *payload = nullptr;     // where it is, of what has one of its own
  tutti_net_mr *mr = nullptr;     // of `staged`
  MrCache::Entry *home = nullptr; // holds `payload` while that is posted, where it is the user's memory
  tutti_net_mr *payload_mr = nullptr;
  uint64_t bytes = 0; // to be sent, of the payload; received, of all
  tutti_status status = TUTTI_OK;
};

// A net link's own state, behind Ring::net.
class NetLink {
public:
  RingCold *ring = nullptr;
  NetDevice *device = nullptr;
  tutti_net_ep *ep = nullptr;
  tutti_net_listener *listener = nullptr;
  bool ready = false;
  std::optional<Clock::time_point> connecting; // since when this end has connected to the peer, until it is ready
  Bytes address;                               // of the peer's listener; set before RingCold::state becomes granted
  Bytes answer;                                // of the peer's connect(); set before `answered`
  std::atomic<bool> answered{false};

  // Of a send link a piece for each call: for a header, with kStagedBytes or with any payload behind it. Of a receive link for
  // each pair of places one of either room; and what a message that was lent is read into, where that is not its home.
  NetStage small, large, fetched;
  std::vector<NetCall> calls; // of a send link: message k in k % size; of a receive link: call k
  NetCall filler;             // send: of all of them, which have nothing of their own
  uint64_t tag = 0;           // of the next message of the net: its place
  uint64_t unposted = 0;      // send: the first message that the device has not taken
  uint64_t posted = 0;        // receive: calls so far
  uint64_t taken = 0;         // receive: of them, used up by messages that were consumed
  uint32_t ahead = 0;         // receive: places that may be posted for before their messages are known, an even number
  bool homeless = false;      // receive: the device could not reach the last place at home
  std::optional<Error> ended; // a receive failed; told by the step that needs the message
  tutti_status ended_status = TUTTI_OK;

  // Of links that lend. Another link, the other way, says which messages have been read: cumulative, an empty message whose
  // header's word is the number of the last one.
  struct Loan {
    uint64_t message; // its number, from 1
    MrCache::Entry *entry;
  };
  NetLink *acks = nullptr; // of a link that lends: its other link, and the way back
  bool is_acks = false;
  std::deque<Loan> loans;       // send: what the peer may still read
  uint64_t checked = 0;         // receive: the last message whose checksum was right
  uint64_t read = 0, told = 0;  // receive: last lent message that has been read, and that the peer was told of
  std::unique_ptr<NetCall> get; // receive: of the front message

  NetCall &call(uint64_t k) { return calls[k % calls.size()]; }
  uint64_t next() { return posted == taken ? tag : call(taken).tag; } // receive: the first place that is not used up
};

} // namespace tutti
