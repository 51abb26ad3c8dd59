/* Two endpoints in one thread, and what they tell: for the programs of this folder. */
#ifndef PAIR_H
#define PAIR_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <towpath.h>

#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #what, tow_last_error());               \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static tow_endpoint *near, *far;
static tow_link near_link, far_link;
static tow_channel channel;

/* What was told and not asked for yet, in order. */
#define TOLD_MAX 8192
static struct {
    tow_endpoint *by;
    tow_event event;
} told[TOLD_MAX];
static int told_count;

/* Takes the first event of that kind that has come to `at`, if there is one. */
static int take(tow_endpoint *at, tow_event_kind kind, tow_event *found) {
    int i;
    for (i = 0; i < told_count; i++) {
        if (told[i].by == at && told[i].event.kind == kind) {
            *found = told[i].event;
            told_count--;
            memmove(&told[i], &told[i + 1], (size_t)(told_count - i) * sizeof told[0]);
            return 1;
        }
    }
    return 0;
}

/* Turns both ends until an event of that kind has come to `at`. */
static tow_event until(tow_endpoint *at, tow_event_kind kind) {
    tow_event found;
    while (!take(at, kind, &found)) {
        tow_endpoint *both[2];
        int i;
        both[0] = near;
        both[1] = far;
        for (i = 0; i < 2; i++) {
            tow_event event;
            CHECK(tow_poll(both[i]) >= 0);
            while (tow_next_event(both[i], &event) == 1) {
                CHECK(told_count < TOLD_MAX);
                told[told_count].by = both[i];
                told[told_count++].event = event;
            }
            CHECK(tow_flush(both[i]) == TOW_OK);
        }
        CHECK(tow_wait(near, 20000) >= 0);
    }
    return found;
}

static tow_endpoint *made(tow_profile profile) {
    tow_config *config = NULL;
    tow_endpoint *endpoint = NULL;
    CHECK(tow_config_new(profile, &config) == TOW_OK);
    CHECK(tow_config_set(config, TOW_CONNECT_TIMEOUT_NS, 60000000000u) == TOW_OK);
    CHECK(tow_endpoint_new("127.0.0.1", config, &endpoint) == TOW_OK);
    CHECK(tow_config_free(config) == TOW_OK);
    return endpoint;
}

/* Makes both ends, the far one with `far_profile`, and joins them by a link. Returns where the far
 * one listens. */
static const char *join(tow_profile near_profile, tow_profile far_profile) {
    static char addr[64];
    uint16_t port = 0;
    tow_event event;
    near = made(near_profile);
    far = made(far_profile);
    CHECK(tow_listen(far, "127.0.0.1:0", &port) == TOW_OK && port != 0);
    snprintf(addr, sizeof addr, "127.0.0.1:%u", port);
    CHECK(tow_connect(near, addr, 77) == TOW_OK);
    event = until(near, TOW_EVENT_CONNECTED);
    CHECK(event.token == 77);
    near_link = event.link;
    far_link = until(far, TOW_EVENT_ACCEPTED).link;
    return addr;
}

#endif /* PAIR_H */
