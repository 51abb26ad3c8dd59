/* An echo server in a loop of its own, which waits by poll(2), and its client.
 *
 * echo serve ADDRESS:PORT [LINKS]     prints its port, and ends when so many links are down
 * echo ask ADDRESS:PORT TEXT
 *
 * cc echo.c $(pkg-config --cflags --libs towpath)
 */
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <towpath.h>

#define SECOND_NS 1000000000u

static void must(int32_t status, const char *what) {
    if (status < 0) {
        fprintf(stderr, "echo: %s: %s (%s)\n", what, tow_error_text(status), tow_last_error());
        exit(1);
    }
}

/* It takes a few MiB, and waits for a peer for a minute. */
static tow_endpoint *endpoint_on(const char *ip) {
    tow_endpoint *endpoint = NULL;
    tow_config *config = NULL;
    must(tow_config_new(TOW_PROFILE_SMALL_MEMORY, &config), "make a configuration");
    must(tow_config_set(config, TOW_CONNECT_TIMEOUT_NS, 60ull * SECOND_NS), "set the patience");
    must(tow_endpoint_new(ip, config, &endpoint), "make an endpoint");
    must(tow_config_free(config), "free the configuration");
    return endpoint;
}

/* On the address before the last colon. */
static tow_endpoint *endpoint_at(const char *addr) {
    char ip[64];
    const char *colon = strrchr(addr, ':');
    if (colon == NULL || (size_t)(colon - addr) >= sizeof ip) {
        fprintf(stderr, "echo: %s is no ADDRESS:PORT\n", addr);
        exit(2);
    }
    memcpy(ip, addr, (size_t)(colon - addr));
    ip[colon - addr] = 0;
    return endpoint_on(ip);
}

static void answer(tow_endpoint *endpoint, const tow_event *event) {
    /* It leaves from the memory in which it came: nothing is copied. */
    tow_status sent =
        tow_send_message(endpoint, event->link, event->channel, event->message, NULL, NULL);
    if (sent != TOW_OK) {
        fprintf(stderr, "echo: no answer: %s\n", tow_last_error());
        must(tow_message_release(endpoint, event->message), "release a message");
    }
}

static int serve(const char *addr, long links) {
    tow_endpoint *endpoint = endpoint_at(addr);
    tow_event event;
    uint16_t port = 0;
    int fd = -1;
    must(tow_listen(endpoint, addr, &port), "listen");
    must(tow_poll_fd(endpoint, &fd), "get a descriptor");
    printf("listening on port %u\n", port);
    fflush(stdout);
    while (links > 0) {
        uint64_t span_ns = 0;
        int busy = tow_poll(endpoint);
        must(busy, "poll");
        while (tow_next_event(endpoint, &event) == 1) {
            char peer[64];
            switch (event.kind) {
            case TOW_EVENT_ACCEPTED:
                must(tow_link_peer(endpoint, event.link, peer, sizeof peer), "name the peer");
                printf("%s is here\n", peer);
                break;
            case TOW_EVENT_MESSAGE:
                answer(endpoint, &event);
                break;
            case TOW_EVENT_LINK_DOWN:
                links--;
                break;
            }
        }
        must(tow_flush(endpoint), "flush");
        /* Whatever else the program waits for goes into the same poll. */
        must(tow_prepare_wait(endpoint, SECOND_NS, &span_ns), "prepare to wait");
        if (span_ns > 0) {
            struct pollfd file = {.fd = fd, .events = POLLIN};
            /* Rounded up, so as not to come back too early again and again. */
            int ms = (int)((span_ns + 999999) / 1000000);
            if (poll(&file, 1, ms) < 0 && errno != EINTR) {
                perror("echo: poll");
                return 1;
            }
        }
    }
    close(fd);
    must(tow_endpoint_free(endpoint), "free the endpoint");
    return 0;
}

static int ask(const char *addr, const char *words) {
    tow_endpoint *endpoint = endpoint_at(addr);
    tow_event event;
    int answered = 0, done = 0;
    must(tow_connect(endpoint, addr, 1), "connect");
    while (!done) {
        must(tow_poll(endpoint), "poll");
        while (!done && tow_next_event(endpoint, &event) == 1) {
            tow_options options = {.token = 7, .timeout_ns = 30ull * SECOND_NS};
            switch (event.kind) {
            case TOW_EVENT_CONNECTED:
                must(tow_channel_open(endpoint, event.link, true, NULL), "open a channel");
                break;
            case TOW_EVENT_CHANNEL_OPENED:
                must(tow_send_copy(endpoint, event.link, event.channel, words, strlen(words),
                                   &options, NULL),
                     "send");
                break;
            case TOW_EVENT_SENT:
                if (event.outcome != TOW_DELIVERED) {
                    fprintf(stderr, "echo: message %llu was not delivered\n",
                            (unsigned long long)event.token);
                    return 1;
                }
                break;
            case TOW_EVENT_MESSAGE:
                /* A short message is one piece. */
                printf("%.*s\n", (int)event.len, (const char *)event.data);
                answered = event.len == strlen(words) && memcmp(event.data, words, event.len) == 0;
                must(tow_message_release(endpoint, event.message), "release a message");
                must(tow_link_close(endpoint, event.link), "close the link");
                break;
            case TOW_EVENT_CONNECT_FAILED:
                fprintf(stderr, "echo: %s\n", tow_last_error());
                return 1;
            case TOW_EVENT_LINK_DOWN:
                done = 1;
                break;
            }
        }
        must(tow_flush(endpoint), "flush");
        if (!done)
            must(tow_wait(endpoint, SECOND_NS), "wait");
    }
    must(tow_endpoint_free(endpoint), "free the endpoint");
    return answered ? 0 : 1;
}

int main(int argc, char **argv) {
    if (argc >= 3 && strcmp(argv[1], "serve") == 0)
        return serve(argv[2], argc > 3 ? atol(argv[3]) : 0x7fffffff);
    if (argc == 4 && strcmp(argv[1], "ask") == 0)
        return ask(argv[2], argv[3]);
    fprintf(stderr, "usage: echo serve ADDRESS:PORT [LINKS] | echo ask ADDRESS:PORT TEXT\n");
    return 2;
}
