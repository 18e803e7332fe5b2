// tutti/plugins/net-ib/wire.h: what the two ends of an endpoint tell each other.
//
// The listener's address and the connector's answer are a Card each: queue pairs, ports, and where the side's window lies. A
// window is memory of an endpoint that the peer writes into: the credit ring, and a mailbox for each path. What happens later
// goes in band: a write with immediate of 32 bits that name a share of a message, or a Note.
#pragma once
#include <arpa/inet.h>
#include <cstddef>
#include <cstdint>
#include <infiniband/verbs.h>

namespace tutti::net_ib {

inline constexpr uint32_t max_batch = 4;                  // messages of one call
inline constexpr uint32_t max_calls = 2048;               // so that a window has no more messages than an immediate tells apart
inline constexpr uint32_t max_paths = 8, max_shares = 62; // of an endpoint, of a message
inline constexpr uint32_t max_pieces = 64;                // work requests of a share
inline constexpr uint64_t max_message = uint64_t{1} << 30; // of one buffer
inline constexpr uint32_t card_qpns = 168;                 // queue pairs that fit into a Card

struct PortCard {
  ibv_gid gid;
  uint16_t lid;
  uint8_t mtu; // ibv_mtu
  uint8_t ethernet;
  uint32_t reserved;
};

struct Card {
  uint32_t magic, checksum;
  uint64_t token;                       // the listener's; the answer repeats it
  uint64_t window;                      // address
  uint32_t messages;                    // of the listener's receive queue: entries of the credit ring
  uint32_t psn;                         // of this side's queue pairs, with their numbers
  uint32_t piece;                       // largest write, bytes
  uint8_t ports, paths, active, queues; // paths of the listener, the first `active` of which carry data; data queue pairs each
  uint8_t reads_out, reads_in;          // RDMA READs under way that this side's ports take
  uint8_t path_port[max_paths];         // this side's port of each path
  uint8_t reserved[6];
  uint32_t rkey[max_paths]; // of the window, by port
  PortCard port[max_paths];
  uint32_t qpn[card_qpns]; // by path: the control queue pair, then those for data
};
static_assert(sizeof(Card) <= 1024);

void seal(Card &card);
bool genuine(const Card &card); // a Card of this version, whole, with numbers that can be

// First packet sequence number of the queue pair `qpn`.
uint32_t psn_of(const Card &card, uint32_t qpn);
uint64_t checksum(const void *bytes, size_t n);
uint64_t random_number();

// What the immediate says: share `share` of `shares` of message `number` has arrived, of which this write was the last one and
// `pieces` others of full size went before it. Without shares: a Note.
enum class Note : uint8_t { hello, state, credits };
struct Tag {
  static constexpr uint32_t number_bits = 14, number_mask = (1u << number_bits) - 1;
  uint32_t number; // modulo 2^14
  uint8_t shares, share, pieces;
  static Tag note(Note note, uint64_t number = 0) {
    return {static_cast<uint32_t>(number) & number_mask, 0, static_cast<uint8_t>(note), 0};
  }
  static Tag from(uint32_t imm) {
    return {imm >> 18, static_cast<uint8_t>(imm >> 12 & 63), static_cast<uint8_t>(imm >> 6 & 63),
            static_cast<uint8_t>(imm & 63)};
  }
  uint32_t imm() const {
    return (number & number_mask) << 18 | uint32_t{shares} << 12 | uint32_t{share} << 6 | uint32_t{pieces};
  }
  // The whole number, where it is `low` or one of the 2^14 - 1 that follow.
  uint64_t whole(uint64_t low) const { return low + ((number - low) & number_mask); }
};

// A posted receive, as the sender finds it in its ring: rkey by the receiver's port.
struct Credit {
  uint64_t addr, bytes;
  uint32_t number;
  uint32_t rkey[max_paths];
};
inline size_t credit_bytes(uint32_t ports) {
  return (offsetof(Credit, rkey) + ports * sizeof(uint32_t) + 7) & ~size_t{7};
}

// State of an endpoint, as its peer finds it in a mailbox: this head, a PathState and the queue pair numbers of each path, then
// of the receiver a word for each unfinished message: which of its shares have arrived. A newer one says all that an older
// said.
enum class Phase : uint8_t { offered, wired, up, draining, drained };
struct PathState {
  uint32_t epoch; // how often the path has been made anew
  Phase phase;
  uint8_t reserved[3];
  PortCard port;
};
struct StateHead {
  uint64_t checksum; // of all that follows
  uint64_t version;
  uint32_t bytes;        // with this head
  uint32_t arrived;      // words at the end
  uint64_t done;         // messages below it have arrived (of the receiver) or are known to have (of the sender)
  uint64_t credits_seen; // of the sender
  uint64_t failed_at;    // the message that was too long
  uint64_t failed_bytes; // its length
  int32_t failed;        // tutti_status; 0: works
  uint32_t closing;      // ep_destroy()
};

// Layout of a window. Both sides' are alike: where one receives credits the other has what it writes them from.
struct WindowShape {
  uint32_t messages, ports, paths, queues; // ports: of the receiver
  size_t credits() const { return messages * credit_bytes(ports); }
  size_t state() const {
    return (sizeof(StateHead) + paths * (sizeof(PathState) + (queues + 1) * sizeof(uint32_t)) + messages * sizeof(uint64_t) +
            63) &
           ~size_t{63};
  }
  size_t mailbox(uint32_t path) const { return ((credits() + 63) & ~size_t{63}) + path * state(); }
  size_t outbox(uint32_t path, bool last) const { return mailbox(paths + 2 * path + (last ? 1 : 0)); }
  size_t bytes() const { return mailbox(3 * paths); }
};

} // namespace tutti::net_ib
