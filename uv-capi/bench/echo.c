/* An echo server, for `echo` to measure: echo write | try_write. It prints its port, and runs until it
 * is killed.
 *
 * It uses libuv well: a read goes to a block that was used before, which is written from and given
 * back in the callback. So nothing is copied, and nothing is allocated for a request. */

#include <arpa/inet.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <uv.h>

#define CHECK(condition)                                              \
  do {                                                                \
    if (!(condition)) {                                               \
      fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #condition); \
      abort();                                                        \
    }                                                                 \
  } while (0)

struct block {
  struct block *next;
  uv_write_t request;
  char bytes[65536];
};

static struct block *spare;
static int by_write;

static struct block *take(void) {
  struct block *block = spare;
  if (block == NULL) {
    CHECK((block = malloc(sizeof *block)) != NULL);
  } else {
    spare = block->next;
  }
  return block;
}

static void give_back(struct block *block) {
  block->next = spare;
  spare = block;
}

static void on_alloc(uv_handle_t *handle, size_t suggested, uv_buf_t *out) {
  struct block *block = take();
  *out = uv_buf_init(block->bytes, sizeof block->bytes);
}

static void on_written(uv_write_t *request, int status) {
  give_back((struct block *)((char *)request - offsetof(struct block, request)));
}

static void on_close(uv_handle_t *handle) { free(handle); }

static void on_read(uv_stream_t *stream, ssize_t size, const uv_buf_t *read) {
  struct block *block = (struct block *)(read->base - offsetof(struct block, bytes));
  uv_buf_t answer = uv_buf_init(read->base, size > 0 ? size : 0);
  if (size < 0) uv_close((uv_handle_t *)stream, on_close);
  if (size > 0 && !by_write) {
    int written = uv_try_write(stream, &answer, 1);
    if (written > 0) answer = uv_buf_init(answer.base + written, answer.len - written);
  }
  /* Also the rest of a short write. */
  if (answer.len == 0 || uv_write(&block->request, stream, &answer, 1, on_written) != 0)
    give_back(block);
}

static void on_connection(uv_stream_t *server, int status) {
  uv_tcp_t *peer = malloc(sizeof *peer);
  CHECK(status == 0 && peer != NULL);
  CHECK(uv_tcp_init(server->loop, peer) == 0);
  CHECK(uv_accept(server, (uv_stream_t *)peer) == 0);
  CHECK(uv_read_start((uv_stream_t *)peer, on_alloc, on_read) == 0);
}

int main(int arguments, char **argument) {
  uv_loop_t *loop = uv_default_loop();
  struct sockaddr_in address;
  int size = sizeof address;
  uv_tcp_t server;
  CHECK(arguments == 2);
  by_write = strcmp(argument[1], "write") == 0;
  CHECK(uv_ip4_addr("127.0.0.1", 0, &address) == 0);
  CHECK(uv_tcp_init(loop, &server) == 0);
  CHECK(uv_tcp_bind(&server, (struct sockaddr *)&address, 0) == 0);
  CHECK(uv_listen((uv_stream_t *)&server, 4096, on_connection) == 0);
  CHECK(uv_tcp_getsockname(&server, (struct sockaddr *)&address, &size) == 0);
  printf("%d\n", ntohs(address.sin_port));
  fflush(stdout);
  return uv_run(loop, UV_RUN_DEFAULT);
}
