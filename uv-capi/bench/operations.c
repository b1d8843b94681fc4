/* Performs an operation of libuv many times, for `run` to count what one costs.
 *
 *     operations write 1000     1,000 requests of an echo server, answered with uv_write
 *
 * Memory is used as a careful program uses it: buffers and requests are recycled. The client of the
 * echo server is another process, so that it is not counted. */

#include <fcntl.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uv.h>

#define CHECK(condition)                                                     \
  do {                                                                       \
    if (!(condition)) {                                                      \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition);        \
      abort();                                                               \
    }                                                                        \
  } while (0)

static uv_loop_t *loop;
static long wanted;
static long count;
static char buffer[65536];

/* Echo: one connection, one request in flight, a message of 64 bytes. */

enum { MESSAGE = 64 };

static uv_tcp_t server, peer;
static uv_write_t write_request;
static int by_write;

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *out) {
  *out = uv_buf_init(buffer, sizeof buffer);
}

static void on_written(uv_write_t *request, int status) { CHECK(status == 0); }

static void on_read(uv_stream_t *stream, ssize_t size, const uv_buf_t *read) {
  uv_buf_t answer = uv_buf_init(read->base, size > 0 ? size : 0);
  if (size == UV_EOF) {
    uv_close((uv_handle_t *)stream, NULL);
    uv_close((uv_handle_t *)&server, NULL);
    return;
  }
  CHECK(size == MESSAGE);
  count++;
  if (by_write)
    CHECK(uv_write(&write_request, stream, &answer, 1, on_written) == 0);
  else
    CHECK(uv_try_write(stream, &answer, 1) == MESSAGE);
}

static void on_connection(uv_stream_t *listener, int status) {
  CHECK(status == 0);
  CHECK(uv_tcp_init(loop, &peer) == 0);
  CHECK(uv_accept(listener, (uv_stream_t *)&peer) == 0);
  CHECK(uv_read_start((uv_stream_t *)&peer, on_alloc, on_read) == 0);
}

static void client(int port) {
  char message[MESSAGE];
  struct sockaddr_in address;
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  uv_ip4_addr("127.0.0.1", port, &address);
  CHECK(connect(fd, (struct sockaddr *)&address, sizeof address) == 0);
  memset(message, 'x', sizeof message);
  for (long index = 0; index < wanted; index++) {
    CHECK(send(fd, message, MESSAGE, 0) == MESSAGE);
    CHECK(recv(fd, message, MESSAGE, MSG_WAITALL) == MESSAGE);
  }
  _exit(0);
}

static void echo(void) {
  struct sockaddr_in address;
  int size = sizeof address;
  CHECK(uv_ip4_addr("127.0.0.1", 0, &address) == 0);
  CHECK(uv_tcp_init(loop, &server) == 0);
  CHECK(uv_tcp_bind(&server, (struct sockaddr *)&address, 0) == 0);
  CHECK(uv_listen((uv_stream_t *)&server, 16, on_connection) == 0);
  CHECK(uv_tcp_getsockname(&server, (struct sockaddr *)&address, &size) == 0);
  if (fork() == 0) client(ntohs(address.sin_port));
  CHECK(uv_run(loop, UV_RUN_DEFAULT) == 0);
  wait(NULL);
}

/* Echo of 64 connections that are all ready in every iteration, which so counts little. The other ends
 * are in this process, so that every run has the same iterations. */

enum { PEERS = 64 };

static uv_tcp_t peers[PEERS];
static uv_write_t write_requests[PEERS];
static int others[PEERS], accepted;
static uv_prepare_t round_begins;

static void on_read_of_many(uv_stream_t *stream, ssize_t size, const uv_buf_t *read) {
  uv_buf_t answer = uv_buf_init(read->base, size);
  CHECK(size == MESSAGE);
  count++;
  if (by_write)
    CHECK(uv_write(&write_requests[(uv_tcp_t *)stream - peers], stream, &answer, 1, on_written) == 0);
  else
    CHECK(uv_try_write(stream, &answer, 1) == MESSAGE);
}

static void on_round(uv_prepare_t *prepare) {
  static char message[MESSAGE];
  if (count > 0)
    for (int index = 0; index < PEERS; index++) CHECK(recv(others[index], message, MESSAGE, 0) == MESSAGE);
  if (count >= wanted) {
    for (int index = 0; index < PEERS; index++) uv_close((uv_handle_t *)&peers[index], NULL);
    uv_close((uv_handle_t *)&server, NULL);
    uv_close((uv_handle_t *)prepare, NULL);
    return;
  }
  for (int index = 0; index < PEERS; index++) CHECK(send(others[index], message, MESSAGE, 0) == MESSAGE);
}

static void on_one_of_many(uv_stream_t *listener, int status) {
  uv_tcp_t *accepting = &peers[accepted++];
  CHECK(status == 0);
  CHECK(uv_tcp_init(loop, accepting) == 0);
  CHECK(uv_accept(listener, (uv_stream_t *)accepting) == 0);
  CHECK(uv_read_start((uv_stream_t *)accepting, on_alloc, on_read_of_many) == 0);
  if (accepted == PEERS) CHECK(uv_prepare_start(&round_begins, on_round) == 0);
}

static void echo_of_many(void) {
  struct sockaddr_in address;
  int size = sizeof address;
  CHECK(uv_ip4_addr("127.0.0.1", 0, &address) == 0);
  CHECK(uv_tcp_init(loop, &server) == 0);
  CHECK(uv_prepare_init(loop, &round_begins) == 0);
  CHECK(uv_tcp_bind(&server, (struct sockaddr *)&address, 0) == 0);
  CHECK(uv_listen((uv_stream_t *)&server, PEERS, on_one_of_many) == 0);
  CHECK(uv_tcp_getsockname(&server, (struct sockaddr *)&address, &size) == 0);
  for (int index = 0; index < PEERS; index++) {
    CHECK((others[index] = socket(AF_INET, SOCK_STREAM, 0)) >= 0);
    CHECK(connect(others[index], (struct sockaddr *)&address, sizeof address) == 0);
  }
  CHECK(uv_run(loop, UV_RUN_DEFAULT) == 0);
}

/* Timers: 1,000 that are started and stopped, as the time-outs of connections are. */

static void on_timer(uv_timer_t *timer) { count++; }

static void timers(void) {
  static uv_timer_t all[1000];
  for (int index = 0; index < 1000; index++) CHECK(uv_timer_init(loop, &all[index]) == 0);
  for (; count < wanted; count++)
    CHECK(uv_timer_start(&all[count * 7919 % 1000], on_timer, 1000 + count % 5000, 0) == 0);
  for (int index = 0; index < 1000; index++) uv_close((uv_handle_t *)&all[index], NULL);
  CHECK(uv_run(loop, UV_RUN_DEFAULT) == 0);
}

/* A timer that expires in every iteration. */

static uv_timer_t timer;

static void on_expired(uv_timer_t *handle) {
  if (++count < wanted)
    CHECK(uv_timer_start(handle, on_expired, 0, 0) == 0);
  else
    uv_close((uv_handle_t *)handle, NULL);
}

static void expiring(void) {
  CHECK(uv_timer_init(loop, &timer) == 0);
  CHECK(uv_timer_start(&timer, on_expired, 0, 0) == 0);
  CHECK(uv_run(loop, UV_RUN_DEFAULT) == 0);
}

/* Async: a send in every callback. */

static uv_async_t async;

static void on_async(uv_async_t *handle) {
  if (++count < wanted)
    CHECK(uv_async_send(handle) == 0);
  else
    uv_close((uv_handle_t *)handle, NULL);
}

static void asyncs(void) {
  CHECK(uv_async_init(loop, &async, on_async) == 0);
  CHECK(uv_async_send(&async) == 0);
  CHECK(uv_run(loop, UV_RUN_DEFAULT) == 0);
}

/* Work: 64 jobs in flight. */

static uv_work_t jobs[64];
static long queued;

static void on_work(uv_work_t *job) {}

static void on_worked(uv_work_t *job, int status) {
  CHECK(status == 0);
  count++;
  if (queued < wanted) {
    queued++;
    CHECK(uv_queue_work(loop, job, on_work, on_worked) == 0);
  }
}

static void work(void) {
  for (int index = 0; index < 64; index++) {
    queued++;
    CHECK(uv_queue_work(loop, &jobs[index], on_work, on_worked) == 0);
  }
  CHECK(uv_run(loop, UV_RUN_DEFAULT) == 0);
}

/* Files: one request in flight, with a callback and without. */

static uv_fs_t request;
static int file;

static void on_stat(uv_fs_t *done) {
  CHECK(done->result == 0);
  uv_fs_req_cleanup(done);
  if (++count < wanted) CHECK(uv_fs_stat(loop, done, "/", on_stat) == 0);
}

static void stats(void) {
  CHECK(uv_fs_stat(loop, &request, "/", on_stat) == 0);
  CHECK(uv_run(loop, UV_RUN_DEFAULT) == 0);
}

static void stats_inline(void) {
  for (; count < wanted; count++) {
    CHECK(uv_fs_stat(NULL, &request, "/", NULL) == 0);
    uv_fs_req_cleanup(&request);
  }
}

static void on_file(uv_fs_t *done) {
  uv_buf_t memory = uv_buf_init(buffer, 4096);
  CHECK(done->result == 4096);
  uv_fs_req_cleanup(done);
  if (++count < wanted) CHECK(uv_fs_read(loop, done, file, &memory, 1, 0, on_file) == 0);
}

static void open_file(void) {
  char path[] = "/tmp/operations-XXXXXX";
  file = mkstemp(path);
  unlink(path);
  CHECK(write(file, buffer, 4096) == 4096);
}

static void reads(void) {
  uv_buf_t memory = uv_buf_init(buffer, 4096);
  open_file();
  CHECK(uv_fs_read(loop, &request, file, &memory, 1, 0, on_file) == 0);
  CHECK(uv_run(loop, UV_RUN_DEFAULT) == 0);
}

static void reads_inline(void) {
  uv_buf_t memory = uv_buf_init(buffer, 4096);
  open_file();
  for (; count < wanted; count++) {
    CHECK(uv_fs_read(NULL, &request, file, &memory, 1, 0, NULL) == 4096);
    uv_fs_req_cleanup(&request);
  }
}

int main(int arguments, char **argument) {
  static const struct {
    const char *name;
    void (*run)(void);
  } operations[] = {
      {"write", echo},       {"try_write", echo},
      {"write_64", echo_of_many}, {"try_write_64", echo_of_many},
      {"timer_start", timers},
      {"timer", expiring},   {"async", asyncs},    {"work", work},
      {"fs_stat", stats},    {"fs_read", reads},   {"fs_stat_inline", stats_inline},
      {"fs_read_inline", reads_inline},
  };
  CHECK(arguments == 3);
  wanted = atol(argument[2]);
  by_write = strncmp(argument[1], "write", 5) == 0;
  loop = uv_default_loop();
  for (size_t index = 0; index < sizeof operations / sizeof *operations; index++) {
    if (strcmp(operations[index].name, argument[1]) != 0) continue;
    operations[index].run();
    CHECK(count >= wanted);
    CHECK(uv_loop_close(loop) == 0);
    return 0;
  }
  fprintf(stderr, "no such operation: %s\n", argument[1]);
  return 1;
}
