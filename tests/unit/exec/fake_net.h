// A net inside the test that insists on what devices may insist on: every buffer registered, the connecting side's answer
// before accept(), eight calls in flight, nothing moves before the receiver has posted a buffer, and completions come one per
// progress().
#pragma once
#include "plugin/registry.h"
#include <chrono>

namespace tutti::test {

Iface<tutti_net_v1> fake_net();
Iface<tutti_net_v1> fake_rma_net();                       // peers read each other's registered memory
uint64_t fake_net_gets();                                 // done so far
void fake_net_latency(std::chrono::milliseconds latency); // of every message from now on
void fake_net_lose(uint64_t messages);                    // counts them as lost
void fake_net_watch(const void *at, uint64_t bytes);      // counts buffers that are posted inside, from 0
uint64_t fake_net_inside();                               // so many
uint64_t fake_net_together();                             // receives at a time of one endpoint there
uint64_t fake_net_registered();                           // registrations that are held
uint64_t fake_net_waiting();                              // receives that are posted and have got nothing yet
uint64_t fake_net_waiting_bytes();                        // room of their buffers
void fake_net_needs_mr(bool yes);                         // the next communicators' device; at first it does
void fake_net_pinnable(uint64_t bytes);                   // longer pieces cannot be registered
void fake_net_refuse(uint64_t bytes);                     // pieces of just that length cannot be registered; 0 = none
// Sends end when their messages have been received; a message longer than its buffer ends both calls, with nothing written.
void fake_net_acknowledge(bool yes);
void fake_net_rename(bool yes);                    // the device's number is another device's now
void fake_net_forge();                             // sets the highest bit of the length in the next message
void fake_net_damage(uint64_t bytes, uint64_t at); // turns a bit of byte `at` in the next message of so many bytes
uint64_t fake_net_counters_read();                 // so often
uint64_t fake_net_messages();                      // moved so far
uint64_t fake_net_empty();                         // of them without a byte
uint64_t fake_net_endpoints();                     // that are open
uint64_t fake_net_violations();                    // of net.h, by the core; the first ones are printed

} // namespace tutti::test
