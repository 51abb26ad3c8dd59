/* Messages of known content from one process to another, all checked at their receiver, while what
 * carries the link changes. For the test `network`, which blocks UDP.
 *
 * carry serve ADDRESS:PORT
 * carry send ADDRESS OWN-ADDRESS MESSAGES
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <towpath.h>

#define BYTES 65536

/* Messages under way. */
#define DEPTH 16

static void must(int32_t status, const char *what) {
    if (status < 0) {
        fprintf(stderr, "carry: %s: %s (%s)\n", what, tow_error_text(status), tow_last_error());
        exit(1);
    }
}

static void fill(uint8_t *data, unsigned long long number) {
    size_t at;
    for (at = 0; at < BYTES; at++)
        data[at] = (uint8_t)(number * 31 + at * 7 + (at >> 8));
}

static void tell(const tow_event *event) {
    static const char *const names[] = {"UC", "RC", "TCP"};
    printf("the link rides on %s: %s\n",
           event->carrier <= TOW_CARRIER_TCP ? names[event->carrier] : "something else",
           tow_carrier_reason_text(event->reason));
}

/* Waits for the next event. */
static tow_event next(tow_endpoint *endpoint) {
    tow_event event;
    for (;;) {
        int32_t there = tow_next_event(endpoint, &event);
        must(there, "take an event");
        if (there == 1) {
            if (event.kind == TOW_EVENT_CARRIER)
                tell(&event);
            return event;
        }
        must(tow_flush(endpoint), "flush");
        must(tow_wait(endpoint, 100000000), "wait");
        must(tow_poll(endpoint), "poll");
    }
}

/* Checks messages, which come in order, until the link is down. */
static int serve(tow_endpoint *endpoint, const char *addr) {
    static uint8_t wanted[BYTES], got[BYTES];
    unsigned long long count = 0;
    uint32_t carrier = 99;
    must(tow_listen(endpoint, addr, NULL), "listen");
    for (;;) {
        tow_event event = next(endpoint);
        size_t bytes = 0;
        if (event.kind == TOW_EVENT_LINK_DOWN)
            break;
        if (event.kind != TOW_EVENT_MESSAGE)
            continue;
        must(tow_message_copy(endpoint, event.message, got, sizeof got, &bytes), "copy");
        must(tow_message_release(endpoint, event.message), "release");
        fill(wanted, count);
        if (bytes != BYTES || memcmp(wanted, got, BYTES) != 0) {
            fprintf(stderr, "carry: message %llu has other bytes\n", count);
            return 1;
        }
        count++;
        must(tow_link_carrier(endpoint, event.link, &carrier), "ask for the carrier");
    }
    printf("received %llu, the last on carrier %u\n", count, carrier);
    return 0;
}

static int send_all(tow_endpoint *endpoint, const char *addr, unsigned long long messages) {
    static uint8_t data[BYTES];
    unsigned long long sent = 0, delivered = 0;
    tow_link link = {0};
    tow_channel channel = {0};
    int is_open = 0;
    must(tow_connect(endpoint, addr, 0), "connect");
    while (delivered < messages) {
        tow_event event = next(endpoint);
        switch (event.kind) {
        case TOW_EVENT_CONNECTED:
            link = event.link;
            must(tow_channel_open(endpoint, link, 1, NULL), "open a channel");
            break;
        case TOW_EVENT_CHANNEL_OPENED:
            channel = event.channel;
            is_open = 1;
            break;
        case TOW_EVENT_SENT:
            if (event.outcome != TOW_DELIVERED) {
                fprintf(stderr, "carry: a message was not delivered\n");
                return 1;
            }
            delivered++;
            break;
        case TOW_EVENT_CONNECT_FAILED:
        case TOW_EVENT_LINK_DOWN:
            fprintf(stderr, "carry: there is no link: %s\n", tow_last_error());
            return 1;
        default:
            break;
        }
        while (is_open && sent < messages && sent - delivered < DEPTH) {
            int32_t status;
            fill(data, sent);
            status = tow_send_copy(endpoint, link, channel, data, BYTES, NULL, NULL);
            if (status == TOW_E_FULL || status == TOW_E_NO_BUFFER)
                break;
            must(status, "send");
            sent++;
        }
    }
    printf("delivered %llu\n", delivered);
    must(tow_link_close(endpoint, link), "leave");
    while (next(endpoint).kind != TOW_EVENT_LINK_DOWN) {
    }
    return 0;
}

int main(int argc, char **argv) {
    tow_endpoint *endpoint = NULL;
    char ip[64] = "";
    const char *colon = argc >= 3 ? strrchr(argv[2], ':') : NULL;
    int failed = 2;
    if (colon == NULL || (size_t)(colon - argv[2]) >= sizeof ip)
        return failed;
    memcpy(ip, argv[2], (size_t)(colon - argv[2]));
    must(tow_endpoint_new(argc > 3 ? argv[3] : ip, NULL, &endpoint), "make an endpoint");
    if (strcmp(argv[1], "serve") == 0)
        failed = serve(endpoint, argv[2]);
    else if (argc > 4)
        failed = send_all(endpoint, argv[2], strtoull(argv[4], NULL, 10));
    must(tow_endpoint_free(endpoint), "free the endpoint");
    return failed;
}
