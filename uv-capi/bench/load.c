/* A client in a closed loop, which measures what its requests cost a server:
 *
 *     load PORT PROCESS CONNECTIONS SIZE WARM_UP MEASURED
 *
 * Every connection sends a message of SIZE bytes and waits for as many, or with SIZE `http` sends a
 * request and waits for an answer of the length of the first. It prints the number of requests per
 * second of CPU time of the server, which is all of PROCESS, in user mode and in the kernel. */

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <time.h>

#define CHECK(condition)                                              \
  do {                                                                \
    if (!(condition)) {                                               \
      fprintf(stderr, "%s:%d: ", __FILE__, __LINE__);                 \
      perror(#condition);                                             \
      exit(1);                                                        \
    }                                                                 \
  } while (0)

enum { MOST = 1 << 20, EVENTS = 256 };

struct connection {
  int fd;
  size_t received;
};

static char message[MOST], answer[MOST];
static size_t size, expected;
static struct epoll_event events[EVENTS];

static double seconds_of(clockid_t clock) {
  struct timespec time;
  CHECK(clock_gettime(clock, &time) == 0);
  return time.tv_sec + time.tv_nsec / 1e9;
}

static void request(int fd) { CHECK(send(fd, message, size, 0) == (ssize_t)size); }

/* The length of an answer: all that comes until nothing more does. */
static size_t length_of_answer(int fd) {
  struct timeval patience = {.tv_usec = 300000};
  size_t length = 0;
  ssize_t count;
  CHECK(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0);
  request(fd);
  CHECK((count = recv(fd, answer, 1, MSG_PEEK | MSG_WAITALL)) != 0);
  while ((count = recv(fd, answer, MOST, 0)) > 0) length += count;
  CHECK(length > 0);
  return length;
}

/* Runs for a time, and returns the number of answers. */
static long run(int poll, double duration) {
  double end = seconds_of(CLOCK_MONOTONIC) + duration;
  long count = 0;
  while (seconds_of(CLOCK_MONOTONIC) < end) {
    int ready = epoll_wait(poll, events, EVENTS, 1000);
    CHECK(ready >= 0);
    for (int index = 0; index < ready; index++) {
      struct connection *connection = events[index].data.ptr;
      ssize_t received = recv(connection->fd, answer, expected - connection->received, 0);
      CHECK(received > 0);
      connection->received += received;
      if (connection->received < expected) continue;
      connection->received = 0;
      count++;
      request(connection->fd);
    }
  }
  return count;
}

int main(int arguments, char **argument) {
  struct sockaddr_in address = {.sin_family = AF_INET};
  struct connection *connections;
  int poll = epoll_create1(0), number;
  clockid_t clock;
  double before;
  long count;
  CHECK(arguments == 7);
  number = atoi(argument[3]);
  address.sin_port = htons(atoi(argument[1]));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (strcmp(argument[4], "http") == 0) {
    size = sprintf(message, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n");
  } else {
    expected = size = atoi(argument[4]);
    memset(message, 'x', size);
  }
  CHECK(number > 0 && size <= MOST);
  CHECK(clock_getcpuclockid(atoi(argument[2]), &clock) == 0);
  CHECK((connections = calloc(number, sizeof *connections)) != NULL);
  for (int index = 0; index < number; index++) {
    struct connection *connection = &connections[index];
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
    CHECK((connection->fd = socket(AF_INET, SOCK_STREAM, 0)) >= 0);
    CHECK(connect(connection->fd, (struct sockaddr *)&address, sizeof address) == 0);
    if (expected == 0) expected = length_of_answer(connection->fd);
    CHECK(epoll_ctl(poll, EPOLL_CTL_ADD, connection->fd, &event) == 0);
  }
  for (int index = 0; index < number; index++) request(connections[index].fd);
  run(poll, atof(argument[5]));
  before = seconds_of(clock);
  count = run(poll, atof(argument[6]));
  printf("%.0f\n", count / (seconds_of(clock) - before));
  return 0;
}
