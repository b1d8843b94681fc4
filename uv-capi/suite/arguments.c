/* Calls functions with arguments that make no sense, and prints what they return. `run` compares the
 * output with that on genuine libuv. What libuv does not refuse is not here: it is undefined there. */

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>
#include <uv.h>

static uv_loop_t *loop;
static char buffer[65536];

#define SHOW(expression)                                                               \
  do {                                                                                 \
    int result = (int)(expression);                                                    \
    printf("%s = %s\n", #expression, result < 0 ? uv_err_name(result) : "not refused"); \
  } while (0)

static void alloc_cb(uv_handle_t *handle, size_t size, uv_buf_t *out) { *out = uv_buf_init(buffer, sizeof buffer); }
static void read_cb(uv_stream_t *stream, ssize_t size, const uv_buf_t *data) {}
static void recv_cb(uv_udp_t *udp, ssize_t size, const uv_buf_t *data, const struct sockaddr *from, unsigned flags) {}
static void connection_cb(uv_stream_t *server, int status) {}
static void connect_cb(uv_connect_t *request, int status) {}
static void write_cb(uv_write_t *request, int status) {}
static void shutdown_cb(uv_shutdown_t *request, int status) {}
static void timer_cb(uv_timer_t *timer) {}
static void signal_cb(uv_signal_t *handle, int number) {}
static void idle_cb(uv_idle_t *handle) {}
static void poll_cb(uv_poll_t *handle, int status, int events) {}
static void fs_cb(uv_fs_t *request) {}
static void fs_event_cb(uv_fs_event_t *handle, const char *name, int events, int status) {}
static void fs_poll_cb(uv_fs_poll_t *handle, int status, const uv_stat_t *before, const uv_stat_t *now) {}
static void work_cb(uv_work_t *request) {}
static void addrinfo_cb(uv_getaddrinfo_t *request, int status, struct addrinfo *found) {}
static void nameinfo_cb(uv_getnameinfo_t *request, int status, const char *host, const char *service) {}
static void send_cb(uv_udp_send_t *request, int status) {}

#define CLOSE(handle) uv_close((uv_handle_t *)(handle), NULL)
#define STREAM(handle) ((uv_stream_t *)(handle))

static struct sockaddr_in address;
static struct sockaddr unknown;

static void handles(void) {
  static uv_timer_t timer;
  uv_timer_init(loop, &timer);
  SHOW(uv_timer_start(&timer, NULL, 1, 0));
  SHOW(uv_timer_again(&timer));
  SHOW(uv_timer_stop(&timer));
  CLOSE(&timer);
  SHOW(uv_timer_start(&timer, timer_cb, 1, 0));
  uv_run(loop, UV_RUN_NOWAIT);
  printf("closed: references %d\n", uv_has_ref((uv_handle_t *)&timer));

  static uv_idle_t idle;
  uv_idle_init(loop, &idle);
  SHOW(uv_idle_start(&idle, NULL));
  SHOW(uv_idle_start(&idle, idle_cb));
  SHOW(uv_idle_start(&idle, idle_cb));
  SHOW(uv_idle_stop(&idle));
  SHOW(uv_idle_stop(&idle));
  CLOSE(&idle);

  static uv_signal_t signal;
  uv_signal_init(loop, &signal);
  SHOW(uv_signal_start(&signal, signal_cb, 0));
  SHOW(uv_signal_start(&signal, signal_cb, 1000));
  SHOW(uv_signal_start(&signal, signal_cb, SIGKILL));
  SHOW(uv_signal_stop(&signal));
  CLOSE(&signal);

  static uv_poll_t poll;
  int regular = open("/etc/passwd", O_RDONLY);
  SHOW(uv_poll_init(loop, &poll, 9999));
  SHOW(uv_poll_init(loop, &poll, -1));
  SHOW(uv_poll_init(loop, &poll, regular));
  close(regular);

  static uv_fs_event_t event;
  uv_fs_event_init(loop, &event);
  size_t size = sizeof buffer;
  SHOW(uv_fs_event_getpath(&event, buffer, &size));
  SHOW(uv_fs_event_start(&event, fs_event_cb, NULL, 0));
  SHOW(uv_fs_event_start(&event, fs_event_cb, "", 0));
  SHOW(uv_fs_event_start(&event, fs_event_cb, "/none/none", 0));
  SHOW(uv_fs_event_start(&event, fs_event_cb, "/", 0));
  SHOW(uv_fs_event_start(&event, fs_event_cb, "/", 0));
  size = 1;
  SHOW(uv_fs_event_getpath(&event, buffer, &size));
  SHOW(uv_fs_event_stop(&event));
  CLOSE(&event);

  static uv_fs_poll_t fs_poll;
  uv_fs_poll_init(loop, &fs_poll);
  size = sizeof buffer;
  SHOW(uv_fs_poll_getpath(&fs_poll, buffer, &size));
  SHOW(uv_fs_poll_stop(&fs_poll));
  SHOW(uv_fs_poll_start(&fs_poll, fs_poll_cb, "/", 1000));
  size = 1;
  SHOW(uv_fs_poll_getpath(&fs_poll, buffer, &size));
  CLOSE(&fs_poll);

  uv_os_fd_t fd;
  SHOW(uv_fileno((uv_handle_t *)&timer, &fd));
  printf("sizes %d %d\n", (int)uv_handle_size(-1), (int)uv_handle_size(1000));
  printf("sizes %d %d\n", (int)uv_req_size(-1), (int)uv_req_size(1000));
  printf("names %d %d\n", uv_handle_type_name(1000) == NULL, uv_req_type_name(-1) == NULL);
}

static void streams(void) {
  static uv_tcp_t tcp, other;
  static uv_pipe_t pipe, second;
  static uv_write_t write;
  static uv_connect_t connect;
  static uv_shutdown_t shutdown;
  uv_buf_t data = uv_buf_init(buffer, 10);
  int size = sizeof address;
  uv_os_fd_t fd;
  SHOW(uv_tcp_init_ex(loop, &tcp, 0x12345));
  SHOW(uv_tcp_init_ex(loop, &tcp, 255));
  uv_tcp_init(loop, &tcp);
  SHOW(uv_fileno((uv_handle_t *)&tcp, &fd));
  SHOW(uv_read_start(STREAM(&tcp), alloc_cb, read_cb));
  SHOW(uv_read_start(STREAM(&tcp), NULL, read_cb));
  SHOW(uv_read_start(STREAM(&tcp), alloc_cb, NULL));
  SHOW(uv_read_start(NULL, alloc_cb, read_cb));
  SHOW(uv_read_stop(STREAM(&tcp)));
  SHOW(uv_write(&write, STREAM(&tcp), &data, 1, write_cb));
  SHOW(uv_try_write(STREAM(&tcp), &data, 1));
  SHOW(uv_shutdown(&shutdown, STREAM(&tcp), shutdown_cb));
  SHOW(uv_tcp_bind(&tcp, &unknown, 0));
  SHOW(uv_tcp_connect(&connect, &tcp, &unknown, connect_cb));
  SHOW(uv_tcp_getsockname(&tcp, (struct sockaddr *)&address, &size));
  SHOW(uv_tcp_getpeername(&tcp, (struct sockaddr *)&address, &size));
  SHOW(uv_tcp_open(&tcp, -1));
  SHOW(uv_tcp_close_reset(&tcp, NULL));
  uv_run(loop, UV_RUN_NOWAIT);
  uv_tcp_init(loop, &tcp);
  SHOW(uv_tcp_keepalive(&tcp, 1, 0));
  uv_ip4_addr("127.0.0.1", 0, &address);
  SHOW(uv_tcp_bind(&tcp, (struct sockaddr *)&address, UV_TCP_IPV6ONLY));
  SHOW(uv_tcp_bind(&tcp, (struct sockaddr *)&address, 0));
  SHOW(uv_listen(STREAM(&tcp), 10, connection_cb));
  uv_tcp_init(loop, &other);
  SHOW(uv_accept(STREAM(&tcp), STREAM(&other)));
  SHOW(uv_read_start(STREAM(&tcp), alloc_cb, read_cb));
  CLOSE(&tcp);
  SHOW(uv_read_start(STREAM(&tcp), alloc_cb, read_cb));
  SHOW(uv_listen(STREAM(&tcp), 10, connection_cb));
  CLOSE(&other);

  uv_pipe_init(loop, &pipe, 0);
  size_t length = sizeof buffer;
  SHOW(uv_pipe_getsockname(&pipe, buffer, &length));
  SHOW(uv_pipe_chmod(&pipe, UV_READABLE));
  SHOW(uv_pipe_chmod(&pipe, 0x100));
  SHOW(uv_pipe_bind(&pipe, "/none/none/socket"));
  SHOW(uv_pipe_bind2(&pipe, "", 0, 0));
  SHOW(uv_pipe_bind2(&pipe, "name", 4, 0x1000));
  SHOW(uv_pipe_bind2(&pipe, NULL, 4, 0));
  SHOW(uv_pipe_open(&pipe, 9999));
  SHOW(uv_pipe_connect2(&connect, &pipe, "", 0, 0, connect_cb));
  SHOW(uv_pipe_connect2(&connect, &pipe, "name", 4, 0x1000, connect_cb));
  SHOW(uv_pipe_pending_count(&pipe));
  SHOW(uv_listen(STREAM(&pipe), 10, connection_cb));
  SHOW(uv_read_start(STREAM(&pipe), alloc_cb, read_cb));
  SHOW(uv_stream_set_blocking(STREAM(&pipe), 1));
  uv_file pair[2];
  SHOW(uv_socketpair(SOCK_STREAM, 12345, pair, 0, 0));
  SHOW(uv_pipe(pair, UV_NONBLOCK_PIPE, UV_NONBLOCK_PIPE));
  SHOW(uv_pipe_open(&pipe, pair[0]));
  uv_pipe_init(loop, &second, 0);
  SHOW(uv_pipe_open(&second, pair[1]));
  SHOW(uv_write(&write, STREAM(&pipe), &data, 1, write_cb));
  SHOW(uv_write(&write, STREAM(&second), NULL, 0, write_cb));
  SHOW(uv_try_write(STREAM(&second), NULL, 0));
  SHOW(uv_write2(&write, STREAM(&second), &data, 1, STREAM(&pipe), write_cb));
  SHOW(uv_read_start(STREAM(&second), alloc_cb, read_cb));
  SHOW(uv_read_start(STREAM(&pipe), alloc_cb, read_cb));
  SHOW(uv_read_start(STREAM(&pipe), alloc_cb, read_cb));
  CLOSE(&pipe);
  CLOSE(&second);
  SHOW(uv_shutdown(&shutdown, STREAM(&second), shutdown_cb));

  static uv_tty_t tty;
  SHOW(uv_tty_init(loop, &tty, -1, 1));
  SHOW(uv_guess_handle(-1));
}

static void datagrams(void) {
  static uv_udp_t udp;
  static uv_udp_send_t send;
  uv_buf_t data = uv_buf_init(buffer, 10);
  int size = sizeof address;
  SHOW(uv_udp_init_ex(loop, &udp, 255));
  SHOW(uv_udp_init_ex(loop, &udp, 0x12345678));
  uv_udp_init(loop, &udp);
  SHOW(uv_udp_recv_start(&udp, NULL, recv_cb));
  SHOW(uv_udp_recv_start(&udp, alloc_cb, NULL));
  SHOW(uv_udp_recv_stop(&udp));
  /* All are checked before the first is sent. */
  uv_buf_t *both[2] = {&data, &data};
  unsigned counts[2] = {1, 0};
  struct sockaddr *to[2] = {(struct sockaddr *)&address, (struct sockaddr *)&address};
  SHOW(uv_udp_try_send2(&udp, 2, both, counts, to, 0));
  counts[1] = 1;
  to[1] = &unknown;
  SHOW(uv_udp_try_send2(&udp, 2, both, counts, to, 0));
  SHOW(uv_udp_try_send2(&udp, 0, both, counts, to, 0));
  SHOW(uv_udp_try_send2(&udp, 1, both, counts, to, 1));
  int file = open("/dev/null", O_RDWR);
  SHOW(uv_udp_open(&udp, file));
  close(file);
  SHOW(uv_udp_bind(&udp, &unknown, 0));
  SHOW(uv_udp_bind(&udp, (struct sockaddr *)&address, 0x1000));
  SHOW(uv_udp_send(&send, &udp, &data, 1, NULL, send_cb));
  SHOW(uv_udp_send(&send, &udp, &data, 1, &unknown, send_cb));
  SHOW(uv_udp_try_send(&udp, &data, 1, NULL));
  SHOW(uv_udp_getsockname(&udp, (struct sockaddr *)&address, &size));
  SHOW(uv_udp_getpeername(&udp, (struct sockaddr *)&address, &size));
  SHOW(uv_udp_connect(&udp, &unknown));
  SHOW(uv_udp_connect(&udp, NULL));
  SHOW(uv_udp_set_ttl(&udp, 0));
  SHOW(uv_udp_set_ttl(&udp, 256));
  uv_ip4_addr("127.0.0.1", 9, &address);
  SHOW(uv_udp_set_multicast_loop(&udp, 256));
  SHOW(uv_udp_set_multicast_loop(&udp, -1));
  SHOW(uv_udp_connect(&udp, (struct sockaddr *)&address));
  SHOW(uv_udp_connect(&udp, NULL));
  SHOW(uv_udp_try_send(&udp, &data, 1, NULL));
  SHOW(uv_udp_connect(&udp, NULL));
  SHOW(uv_udp_connect(&udp, (struct sockaddr *)&address));
  SHOW(uv_udp_connect(&udp, (struct sockaddr *)&address));
  SHOW(uv_udp_send(&send, &udp, &data, 1, (struct sockaddr *)&address, send_cb));
  SHOW(uv_udp_try_send(&udp, &data, 1, (struct sockaddr *)&address));
  SHOW(uv_udp_set_membership(&udp, "nonsense", NULL, UV_JOIN_GROUP));
  SHOW(uv_udp_set_membership(&udp, "239.1.1.1", "nonsense", UV_JOIN_GROUP));
  SHOW(uv_udp_set_membership(&udp, "239.1.1.1", "127.0.0.1", 12345));
  SHOW(uv_udp_set_multicast_interface(&udp, "nonsense"));
  SHOW(uv_udp_open(&udp, 9999));
  CLOSE(&udp);
}

static void files(void) {
  static uv_fs_t request;
  uv_buf_t data = uv_buf_init(buffer, 10);
#define FILE_CALL(call, ...)                       \
  SHOW(call(NULL, &request, __VA_ARGS__, NULL));   \
  uv_fs_req_cleanup(&request);                     \
  SHOW(call(loop, NULL, __VA_ARGS__, fs_cb))
  FILE_CALL(uv_fs_close, -1);
  FILE_CALL(uv_fs_copyfile, "/none", "/none", 0x1000);
  FILE_CALL(uv_fs_read, 9999, &data, 1, 0);
  FILE_CALL(uv_fs_fstat, -1);
  FILE_CALL(uv_fs_ftruncate, -1, 0);
  FILE_CALL(uv_fs_scandir, "/none", 0);
  FILE_CALL(uv_fs_opendir, "/none");
  FILE_CALL(uv_fs_readlink, "/");
  FILE_CALL(uv_fs_realpath, "/none");
  FILE_CALL(uv_fs_access, "/none", 0);
  FILE_CALL(uv_fs_chmod, "/none", 0);
  FILE_CALL(uv_fs_symlink, "x", "/", 0);
  char path[] = "/tmp/arguments-XXXXXX";
  int file = mkstemp(path);
  unlink(path);
  FILE_CALL(uv_fs_futime, file, 1e300, 0);
  close(file);
  FILE_CALL(uv_fs_sendfile, -1, -1, 0, 1);
  FILE_CALL(uv_fs_statfs, "/none");
  FILE_CALL(uv_fs_mkdtemp, "/none/XXXXXX");
  SHOW(uv_fs_read(loop, &request, 0, NULL, 0, 0, fs_cb));
  SHOW(uv_fs_write(loop, &request, 0, NULL, 0, 0, fs_cb));
  SHOW(uv_fs_readdir(NULL, &request, NULL, NULL));
  SHOW(uv_fs_closedir(NULL, &request, NULL, NULL));
  SHOW(uv_fs_get_system_error(&request) == 0);
}

static void requests(void) {
  static uv_work_t work;
  static uv_getaddrinfo_t getaddrinfo;
  static uv_getnameinfo_t getnameinfo;
  static uv_random_t random;
  static uv_req_t request;
  SHOW(uv_queue_work(loop, &work, NULL, NULL));
  SHOW(uv_getaddrinfo(loop, NULL, addrinfo_cb, "localhost", NULL, NULL));
  SHOW(uv_getaddrinfo(loop, &getaddrinfo, addrinfo_cb, NULL, NULL, NULL));
  SHOW(uv_getaddrinfo(NULL, &getaddrinfo, addrinfo_cb, "localhost", NULL, NULL));
  SHOW(uv_getaddrinfo(loop, &getaddrinfo, addrinfo_cb, "", NULL, NULL));
  memset(buffer, 'a', 300);
  buffer[300] = '\0';
  SHOW(uv_getaddrinfo(loop, &getaddrinfo, addrinfo_cb, buffer, NULL, NULL));
  SHOW(uv_getnameinfo(loop, &getnameinfo, nameinfo_cb, &unknown, 0));
  SHOW(uv_getnameinfo(loop, NULL, nameinfo_cb, (struct sockaddr *)&address, 0));
  SHOW(uv_getnameinfo(loop, &getnameinfo, nameinfo_cb, NULL, 0));
  SHOW(uv_random(loop, &random, buffer, 10, 1, NULL));
  SHOW(uv_random(NULL, NULL, buffer, (size_t)-1, 0, NULL));
  SHOW(uv_random(NULL, NULL, buffer, 10, 0, NULL));
  SHOW(uv_cancel(&request));
  SHOW(uv_kill(-99999, 0));
  SHOW(uv_kill(getpid(), 1000));
}

static void system_(void) {
  size_t size = sizeof buffer, zero = 0, one = 1;
  uv_passwd_t passwd;
  uv_group_t group;
  SHOW(uv_os_getenv(NULL, buffer, &size));
  SHOW(uv_os_getenv("PATH", NULL, &size));
  SHOW(uv_os_getenv("PATH", buffer, NULL));
  SHOW(uv_os_getenv("PATH", buffer, &zero));
  SHOW(uv_os_getenv("NO_SUCH_NAME", buffer, &size));
  SHOW(uv_os_getenv("PATH", buffer, &one));
  SHOW(uv_os_setenv(NULL, "x"));
  SHOW(uv_os_setenv("x", NULL));
  SHOW(uv_os_setenv("a=b", "x"));
  SHOW(uv_os_unsetenv(NULL));
  SHOW(uv_os_homedir(NULL, &size));
  SHOW(uv_os_homedir(buffer, NULL));
  SHOW(uv_os_tmpdir(NULL, &size));
  one = 1;
  SHOW(uv_os_tmpdir(buffer, &one));
  SHOW(uv_os_gethostname(NULL, &size));
  one = 1;
  SHOW(uv_os_gethostname(buffer, &one));
  SHOW(uv_cwd(NULL, &size));
  SHOW(uv_cwd(buffer, NULL));
  one = 1;
  SHOW(uv_cwd(buffer, &one));
  SHOW(uv_chdir("/none"));
  SHOW(uv_exepath(NULL, &size));
  zero = 0;
  SHOW(uv_exepath(buffer, &zero));
  SHOW(uv_os_get_passwd(NULL));
  SHOW(uv_os_get_passwd2(&passwd, 4000000));
  SHOW(uv_os_get_group(&group, 4000000));
  SHOW(uv_os_get_group(NULL, 0));
  SHOW(uv_os_setpriority(0, 100));
  SHOW(uv_os_setpriority(0, -100));
  SHOW(uv_os_getpriority(0, NULL));
  SHOW(uv_os_uname(NULL));
  SHOW(uv_get_process_title(NULL, 10));
  SHOW(uv_get_process_title(buffer, 0));
  SHOW(uv_clock_gettime(12345, (uv_timespec64_t *)buffer));
  SHOW(uv_clock_gettime(UV_CLOCK_MONOTONIC, NULL));
  SHOW(uv_if_indextoname(9999, buffer, &size));
  SHOW(uv_if_indextoname(1, NULL, &size));
  SHOW(uv_if_indextoiid(1, NULL, &size));
  SHOW(uv_ip4_addr("nonsense", 1, &address));
  SHOW(uv_ip6_addr("nonsense", 1, (struct sockaddr_in6 *)buffer));
  SHOW(uv_ip_name(&unknown, buffer, sizeof buffer));
  SHOW(uv_inet_pton(12345, "127.0.0.1", buffer));
  SHOW(uv_inet_pton(AF_INET, NULL, buffer));
  SHOW(uv_inet_ntop(12345, buffer, buffer + 100, 100));
  SHOW(uv_inet_ntop(AF_INET, "\177\0\0\1", buffer, 3));
  SHOW(uv_replace_allocator(NULL, NULL, NULL, NULL));
  SHOW(uv_loop_configure(loop, 12345));
  SHOW(uv_loop_configure(loop, UV_LOOP_BLOCK_SIGNAL, SIGTERM));
  SHOW(uv_dlopen("/none/none.so", (uv_lib_t *)buffer));
  SHOW(uv_barrier_init((uv_barrier_t *)buffer, 0));
  SHOW(uv_thread_setname(NULL));
  SHOW(uv_translate_sys_error(2));
  SHOW(uv_translate_sys_error(-2));
  printf("%s %s\n", uv_err_name(-1234567), uv_strerror(-1234567));
}

int main(void) {
  loop = uv_default_loop();
  handles();
  streams();
  datagrams();
  files();
  requests();
  system_();
  /* What was not refused ends. */
  SHOW(uv_loop_close(loop));
  SHOW(uv_run(loop, UV_RUN_NOWAIT));
  return 0;
}
