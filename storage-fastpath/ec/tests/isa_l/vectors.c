// Prints what tests/isa_l.rs compares with: for each shape, the CRC32C of all parity shards that
// Intel's ISA-L makes of shards filled by a fixed rule.
//
//   cc vectors.c -lisal -o vectors && ./vectors > vectors.txt
#include <isa-l/erasure_code.h>
#include <stdint.h>
#include <stdio.h>

enum { SHARDS_MAX = 32, BYTES = 97 };

static uint32_t crc32c(uint32_t crc, const uint8_t *bytes, int count)
{
    crc = ~crc;
    for (int i = 0; i < count; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ 0x82f63b78 : crc >> 1;
    }
    return ~crc;
}

int main(void)
{
    static uint8_t shards[SHARDS_MAX][BYTES], matrix[SHARDS_MAX * SHARDS_MAX];
    static uint8_t tables[32 * SHARDS_MAX * SHARDS_MAX];
    uint8_t *pointers[SHARDS_MAX];
    for (int shard = 0; shard < SHARDS_MAX; shard++)
        pointers[shard] = shards[shard];
    for (int k = 1; k < SHARDS_MAX; k++) {
        for (int m = 1; k + m <= SHARDS_MAX; m++) {
            for (int shard = 0; shard < k; shard++) {
                uint32_t state = shard + 1;
                for (int at = 0; at < BYTES; at++) {
                    state = state * 1103515245u + 12345u;
                    shards[shard][at] = state >> 16;
                }
            }
            gf_gen_cauchy1_matrix(matrix, k + m, k);
            // Each column divided by what stands in the first row of parity, which becomes ones.
            for (int data = 0; data < k; data++) {
                uint8_t divisor = gf_inv(matrix[k * k + data]);
                for (int row = k; row < k + m; row++)
                    matrix[row * k + data] = gf_mul(matrix[row * k + data], divisor);
            }
            ec_init_tables(k, m, matrix + k * k, tables);
            ec_encode_data(BYTES, k, m, tables, pointers, pointers + k);
            uint32_t crc = 0;
            for (int parity = 0; parity < m; parity++)
                crc = crc32c(crc, shards[k + parity], BYTES);
            printf("%d %d %08x\n", k, m, crc);
        }
    }
}
