/* A reader of remote memory: a server grants an arena of its own, and a client reads it, writes to
 * it and counts in it. The server's program has no part in that: its NIC has a thread of its own.
 *
 * reader serve ADDRESS:PORT      prints its port; when the client has left, the count of visits
 * reader visit ADDRESS:PORT
 *
 * The arena: a word that counts visits, a word for the last visitor's number, then a text.
 *
 * cc reader.c $(pkg-config --cflags --libs towpath)
 */
#define _DEFAULT_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <towpath.h>

#define SECOND_NS 1000000000u
#define ARENA_BYTES 65536u
#define VISITS 0u
#define VISITOR 8u
#define TEXT 64u

static const char text[] = "what lies in the memory of the server";

static void must(int32_t status, const char *what) {
    if (status < 0) {
        fprintf(stderr, "reader: %s: %s (%s)\n", what, tow_error_text(status), tow_last_error());
        exit(1);
    }
}

/* It takes a few MiB, and waits for a peer for a minute. */
static tow_endpoint *endpoint_on(const char *ip) {
    tow_endpoint *endpoint = NULL;
    tow_config *config = NULL;
    must(tow_config_new(TOW_PROFILE_SMALL_MEMORY, &config), "make a configuration");
    must(tow_config_set(config, TOW_CONNECT_TIMEOUT_NS, 60ull * SECOND_NS), "set the patience");
    must(tow_config_set(config, TOW_ENGINE_THREAD, 1), "ask for a thread of the NIC's");
    must(tow_endpoint_new(ip, config, &endpoint), "make an endpoint");
    must(tow_config_free(config), "free the configuration");
    return endpoint;
}

static void unmap(void *arena) {
    munmap(arena, ARENA_BYTES);
}

static int serve(tow_endpoint *endpoint, const char *addr) {
    tow_memory *memory = NULL;
    tow_event event;
    uint64_t visits = 0, visitor = 0;
    uint16_t port = 0;
    int done = 0;
    void *arena =
        mmap(NULL, ARENA_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (arena == MAP_FAILED) {
        perror("reader: mmap");
        return 1;
    }
    /* From here on it is reached by atomic words alone, until `unmap` is called. */
    must(tow_memory_from(arena, ARENA_BYTES, unmap, arena, &memory), "lend the arena");
    must(tow_memory_write(memory, TEXT, text, sizeof text), "write the text");
    must(tow_listen(endpoint, addr, &port), "listen");
    printf("listening on port %u\n", port);
    fflush(stdout);
    while (!done) {
        must(tow_poll(endpoint), "poll");
        while (tow_next_event(endpoint, &event) == 1) {
            switch (event.kind) {
            case TOW_EVENT_ACCEPTED:
                must(tow_grant(endpoint, event.link, memory, 0, 4096,
                               TOW_MAY_READ | TOW_MAY_WRITE | TOW_MAY_ATOMIC, NULL),
                     "grant");
                break;
            case TOW_EVENT_LINK_DOWN:
                done = 1;
                break;
            }
        }
        must(tow_flush(endpoint), "flush");
        if (!done)
            must(tow_wait(endpoint, SECOND_NS), "wait");
    }
    must(tow_memory_load(memory, VISITS, &visits), "load the count");
    must(tow_memory_load(memory, VISITOR, &visitor), "load the visitor");
    printf("%llu visits, the last one by %llu\n", (unsigned long long)visits,
           (unsigned long long)visitor);
    must(tow_memory_free(memory), "free the memory");
    return visits <= 3 && visitor == 42 ? 0 : 1;
}

/* What is asked for at once; each outcome brings its token. */
enum { READ = 1, COUNT, SIGN };

static void ask(tow_endpoint *endpoint, const tow_event *granted) {
    tow_place place = {.link = granted->link, .grant = granted->grant};
    tow_options options = {.timeout_ns = 30ull * SECOND_NS};
    int i;

    options.token = READ;
    place.offset = TEXT;
    must(tow_read(endpoint, place, sizeof text, &options), "read");
    options.token = COUNT;
    place.offset = VISITS;
    for (i = 0; i < 3; i++)
        must(tow_fetch_add(endpoint, place, 1, &options), "count");
    options.token = SIGN;
    options.fence = 1;
    place.offset = VISITOR;
    must(tow_write_word(endpoint, place, 42, &options), "sign");
    /* The grant ends at 4096. */
    place.offset = 4095;
    if (tow_read(endpoint, place, 2, &options) != TOW_E_DENIED) {
        fprintf(stderr, "reader: read what was not granted\n");
        exit(1);
    }
}

static int visit(tow_endpoint *endpoint, const char *addr) {
    tow_event event;
    int operations = 0, same = 0, done = 0, counted = 0, unknown = 0;
    must(tow_connect(endpoint, addr, 0), "connect");
    while (!done) {
        must(tow_poll(endpoint), "poll");
        while (tow_next_event(endpoint, &event) == 1) {
            switch (event.kind) {
            case TOW_EVENT_GRANTED:
                ask(endpoint, &event);
                break;
            case TOW_EVENT_OP_DONE:
                /* An atomic whose queue pair was lost is not repeated: it may have been done. */
                if (event.token == COUNT && event.outcome == TOW_UNKNOWN) {
                    unknown++;
                } else if (event.outcome != TOW_EXECUTED) {
                    fprintf(stderr, "reader: operation %llu was not executed\n",
                            (unsigned long long)event.token);
                    return 1;
                }
                if (event.token == READ) {
                    printf("read: %.*s\n", (int)event.len, (const char *)event.data);
                    same = event.len == sizeof text && memcmp(event.data, text, event.len) == 0;
                    must(tow_buf_free(endpoint, event.buf), "free a buffer");
                }
                if (event.token == COUNT && event.has_word)
                    counted++; /* event.word is what the count was */
                if (++operations == 5)
                    must(tow_link_close(endpoint, event.link), "close the link");
                break;
            case TOW_EVENT_CONNECT_FAILED:
                fprintf(stderr, "reader: %s\n", tow_last_error());
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
    printf("counted %d times, and %d perhaps\n", counted, unknown);
    return same && counted + unknown == 3 ? 0 : 1;
}

int main(int argc, char **argv) {
    tow_endpoint *endpoint = NULL;
    char ip[64] = "";
    const char *colon = argc == 3 ? strrchr(argv[2], ':') : NULL;
    int failed = 2;
    if (colon == NULL || (size_t)(colon - argv[2]) >= sizeof ip) {
        fprintf(stderr, "usage: reader serve ADDRESS:PORT | reader visit ADDRESS:PORT\n");
        return failed;
    }
    memcpy(ip, argv[2], (size_t)(colon - argv[2]));
    endpoint = endpoint_on(ip);
    if (strcmp(argv[1], "serve") == 0)
        failed = serve(endpoint, argv[2]);
    if (strcmp(argv[1], "visit") == 0)
        failed = visit(endpoint, argv[2]);
    must(tow_endpoint_free(endpoint), "free the endpoint");
    return failed;
}
