// Ends TCP connections of this process as a network would, and takes the loopback interface down and up.
#pragma once
#include "pair.h"
#include <functional>
#include <string>

namespace cut {

// Runs fn in a child with a network of its own, and checks that it gives 0. 77 skips the test, as does a system without
// namespaces.
void check_apart(const std::function<int()> &fn);
void check_apart(const std::vector<std::function<int()>> &all); // at the same time, each in a child of its own
bool set_loopback(bool up);

// Both ends of the connection are told that it is reset (SOCK_DESTROY), as far as packets get through. What has been
// acknowledged stays readable.
bool reset(int fd);
// The socket of the endpoint, -1: none; by what ep_describe() says.
int socket_of(const tutti_net_v1 &net, tutti_net_ep *ep);
std::vector<int> connections(); // all established TCP sockets of this process, one of both ends where both are here

// The connection of a socket is reset once so many more bytes have been sent on it: what send() may take of n bytes now.
void after(int fd, long bytes);
// Of the next calls that send just so many bytes, nothing arrives: their connections are reset instead.
void swallow(size_t bytes, int times);
bool swallows(int fd, size_t n);
bool watches(int fd);
size_t allowed(int fd, size_t n);
extern const bool counts_bytes; // the above works in this build

} // namespace cut
