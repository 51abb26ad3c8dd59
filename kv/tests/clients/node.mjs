// node-redis, ioredis and iovalkey, with their defaults, against the server at PORT.
// usage: node.mjs PORT FOLDER, where FOLDER has node_modules

import assert from 'node:assert/strict';
import { createRequire } from 'node:module';
import { join } from 'node:path';

const [port, folder] = [Number(process.argv[2]), process.argv[3]];
const require = createRequire(join(folder, 'index.js'));

const { createClient } = require('redis');
const client = createClient({ url: `redis://127.0.0.1:${port}` });
client.on('error', (error) => { throw error; });
await client.connect();
assert.equal(await client.set('k', 'v'), 'OK');
assert.deepEqual([await client.get('k'), await client.get('none')], ['v', null]);
assert.equal(await client.set('k', 'w', { expiration: { type: 'EX', value: 60 } }), 'OK');
assert.ok(await client.ttl('k') > 58);
assert.deepEqual(await client.multi().set('a', '1').incr('a').expire('a', 100).exec(), ['OK', 2, 1]);
assert.deepEqual(await client.mGet(['a', 'none']), ['2', null]);
assert.deepEqual(await Promise.all([client.incrBy('n', 5), client.decr('n')]), [5, 4]);
await client.watch('n');
await client.sendCommand(['SET', 'n', '9']);
await assert.rejects(client.multi().set('n', '1').exec(), /watched keys/i);
assert.equal(await client.get('n'), '9');
await client.close();

for (const Client of [require('ioredis'), require('iovalkey')]) {
    const client = new Client(port, '127.0.0.1');
    assert.equal(await client.set('k', 'v', 'EX', 60), 'OK');
    assert.deepEqual([await client.get('k'), await client.get('none')], ['v', null]);
    const piped = await client.pipeline().set('a', 1).incr('a').exec();
    assert.deepEqual(piped, [[null, 'OK'], [null, 2]]);
    const done = await client.multi().set('a', 1).expire('a', 60).get('a').exec();
    assert.deepEqual(done, [[null, 'OK'], [null, 1], [null, '1']]);
    assert.ok(await client.ttl('a') > 58);
    await client.quit();
}
