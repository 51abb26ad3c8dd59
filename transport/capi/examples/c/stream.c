/* How many bytes go from one process to another: the same loop as examples/stream.rs.
 *
 * stream serve ADDRESS:PORT                        prints its port, and ends with its first link
 * stream send ADDRESS:PORT [BYTES [DEPTH [SECONDS]]]
 * stream both ADDRESS:0 [BYTES [DEPTH [SECONDS]]]  both, the server in a process of its own
 *
 * cc -O2 stream.c $(pkg-config --cflags --libs towpath)
 */
#define _POSIX_C_SOURCE 200809L
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <towpath.h>

/* About 50 us of turns without work, before the core is left to others. */
#define IDLE_TURNS 100

static void must(int32_t status, const char *what) {
    if (status < 0) {
        fprintf(stderr, "stream: %s: %s (%s)\n", what, tow_error_text(status), tow_last_error());
        exit(1);
    }
}

static double now(void) {
    struct timespec at;
    clock_gettime(CLOCK_MONOTONIC, &at);
    return (double)at.tv_sec + (double)at.tv_nsec * 1e-9;
}

/* Says what the link rides on from now on, and why. */
static void tell(const tow_event *event) {
    static const char *const names[] = {"UC", "RC", "TCP"};
    fprintf(stderr, "stream: the link rides on %s: %s\n",
            event->carrier <= TOW_CARRIER_TCP ? names[event->carrier] : "something else",
            tow_carrier_reason_text(event->reason));
}

/* Begins a turn; waits before it where a while has brought nothing. */
static void begin(tow_endpoint *endpoint, int *idle) {
    int busy;
    if (*idle > IDLE_TURNS)
        must(tow_wait(endpoint, 1000000), "wait");
    busy = tow_poll(endpoint);
    must(busy, "poll");
    *idle = busy ? 0 : *idle + 1;
}

static int serve(tow_endpoint *endpoint, const char *addr) {
    tow_event event;
    uint16_t port = 0;
    int idle = 0, done = 0;
    must(tow_listen(endpoint, addr, &port), "listen");
    printf("listening on port %u\n", port);
    fflush(stdout);
    while (!done) {
        begin(endpoint, &idle);
        while (tow_next_event(endpoint, &event) == 1) {
            if (event.kind == TOW_EVENT_MESSAGE)
                must(tow_message_release(endpoint, event.message), "release a message");
            else if (event.kind == TOW_EVENT_CARRIER)
                tell(&event);
            else if (event.kind == TOW_EVENT_LINK_DOWN)
                done = 1;
        }
        must(tow_flush(endpoint), "flush");
    }
    return 0;
}

static void post(tow_endpoint *endpoint, tow_link link, tow_channel channel, size_t bytes) {
    tow_segment segment = {.len = bytes};
    uint8_t *data = NULL;
    must(tow_buf_alloc(endpoint, bytes, &segment.buf, &data, NULL), "get a buffer");
    must(tow_send(endpoint, link, channel, &segment, 1, NULL, NULL), "send");
}

static int send_all(tow_endpoint *endpoint, const char *addr, size_t bytes, int depth, double span) {
    tow_event event;
    tow_link link = {0};
    tow_channel channel = {0};
    unsigned long long messages = 0;
    double start = 0, end = 0;
    int idle = 0, i, turns;
    must(tow_connect(endpoint, addr, 0), "connect");
    while (start == 0) {
        begin(endpoint, &idle);
        while (tow_next_event(endpoint, &event) == 1) {
            if (event.kind == TOW_EVENT_CONNECTED) {
                must(tow_channel_open(endpoint, event.link, false, NULL), "open a channel");
            } else if (event.kind == TOW_EVENT_CHANNEL_OPENED) {
                link = event.link;
                channel = event.channel;
                start = now();
            } else if (event.kind == TOW_EVENT_CONNECT_FAILED) {
                fprintf(stderr, "stream: %s\n", tow_last_error());
                return 1;
            }
        }
        must(tow_flush(endpoint), "flush");
    }
    for (i = 0; i < depth; i++)
        post(endpoint, link, channel, bytes);
    for (end = start; end - start < span; end = now()) {
        for (turns = 0; turns < 64; turns++) {
            begin(endpoint, &idle);
            while (tow_next_event(endpoint, &event) == 1) {
                if (event.kind == TOW_EVENT_SENT) {
                    if (event.outcome != TOW_DELIVERED) {
                        fprintf(stderr, "stream: a message was not delivered\n");
                        return 1;
                    }
                    messages++;
                    post(endpoint, link, channel, bytes);
                } else if (event.kind == TOW_EVENT_CARRIER) {
                    tell(&event);
                } else if (event.kind == TOW_EVENT_LINK_DOWN) {
                    fprintf(stderr, "stream: the link is down\n");
                    return 1;
                }
            }
            must(tow_flush(endpoint), "flush");
        }
    }
    printf("{\"messages\": %llu, \"seconds\": %.6f, \"gbps\": %.4f}\n", messages, end - start,
           (double)messages * (double)bytes * 8e-9 / (end - start));
    return 0;
}

/* Goes on as the client of a server in a process of its own, whose address comes to lie in `addr`. */
static void split(const char *self, const char *ip, char *addr, size_t room) {
    int fds[2];
    FILE *server;
    unsigned port = 0;
    if (pipe(fds) != 0)
        exit(1);
    switch (fork()) {
    case -1:
        exit(1);
    case 0:
        snprintf(addr, room, "%s:0", ip);
        dup2(fds[1], 1);
        execl(self, self, "serve", addr, (char *)NULL);
        _exit(1);
    }
    close(fds[1]);
    server = fdopen(fds[0], "r");
    if (server == NULL || fscanf(server, "listening on port %u", &port) != 1)
        exit(1);
    snprintf(addr, room, "%s:%u", ip, port);
}

int main(int argc, char **argv) {
    tow_endpoint *endpoint = NULL;
    char ip[64] = "", addr[80] = "";
    const char *colon = argc >= 3 ? strrchr(argv[2], ':') : NULL;
    int failed = 2;
    if (colon == NULL || (size_t)(colon - argv[2]) >= sizeof ip) {
        fprintf(stderr, "usage: stream serve ADDRESS:PORT\n"
                        "       stream send ADDRESS:PORT [BYTES [DEPTH [SECONDS]]]\n"
                        "       stream both ADDRESS:0 [BYTES [DEPTH [SECONDS]]]\n");
        return failed;
    }
    memcpy(ip, argv[2], (size_t)(colon - argv[2]));
    snprintf(addr, sizeof addr, "%s", argv[2]);
    if (strcmp(argv[1], "both") == 0)
        split(argv[0], ip, addr, sizeof addr);
    must(tow_endpoint_new(ip, NULL, &endpoint), "make an endpoint");
    if (strcmp(argv[1], "serve") == 0)
        failed = serve(endpoint, addr);
    if (strcmp(argv[1], "send") == 0 || strcmp(argv[1], "both") == 0)
        failed = send_all(endpoint, addr, argc > 3 ? (size_t)atol(argv[3]) : 65536,
                          argc > 4 ? atoi(argv[4]) : 32, argc > 5 ? atof(argv[5]) : 2.0);
    must(tow_endpoint_free(endpoint), "free the endpoint");
    return failed;
}
