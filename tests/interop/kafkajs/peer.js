// kafkajs as a peer of the interoperability tests; it produces only (its consumer needs a group).
//
// Called by judge/peers.py as `node peer.js BOOTSTRAP` in the cache's folder; jobs and answers as in rdk/rdk_peer.c.
// gzip and snappy are kafkajs's own and its official plugin; lz4 and zstd come from packages that ship built
// binaries, since kafkajs's plugins for them want a compiler at install time.
'use strict'

const fs = require('fs')
const readline = require('readline')
const { Kafka, CompressionTypes, CompressionCodecs, logLevel } = require('kafkajs')
const lz4 = require('lz4-napi')
const zstd = require('@mongodb-js/zstd')

const BATCH_SIZE_MAX = 1 << 20

CompressionCodecs[CompressionTypes.Snappy] = require('kafkajs-snappy')
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async encoder => lz4.compressFrame(encoder.buffer),
  decompress: async buffer => lz4.decompressFrame(buffer),
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async encoder => zstd.compress(encoder.buffer),
  decompress: async buffer => zstd.decompress(buffer),
})

const CODECS = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
}

const unb64 = s => (s === null ? null : Buffer.from(s, 'base64'))

function messageOf(line, index) {
  const r = JSON.parse(line)
  const headers = {}
  for (const [name, value] of r.headers) headers[name] = unb64(value)
  return { index, size: line.length, key: unb64(r.key), value: unb64(r.value), headers, partition: r.partition, timestamp: String(r.timestamp) }
}

// One send takes many messages and puts them into one batch a partition: cut by size, as an application would.
function* chunks(messages) {
  let chunk = []
  let size = 0
  for (const m of messages) {
    if (chunk.length && size + m.size > BATCH_SIZE_MAX) {
      yield chunk
      chunk = []
      size = 0
    }
    chunk.push(m)
    size += m.size
  }
  if (chunk.length) yield chunk
}

function reports(chunk, answers) {
  const next = new Map(answers.map(a => [a.partition, BigInt(a.baseOffset)]))
  return chunk.map(m => {
    const offset = next.has(m.partition) ? next.get(m.partition) : -1n
    if (offset >= 0n) next.set(m.partition, offset + 1n)
    return `{"i":${m.index},"partition":${m.partition},"offset":${offset}}\n`
  })
}

async function produce(kafka, job) {
  const messages = fs.readFileSync(job.file, 'utf8').trimEnd().split('\n').map(messageOf)
  const producer = kafka.producer({ idempotent: job.idempotence, maxInFlightRequests: 1, retry: { retries: 3 } })
  await producer.connect()
  try {
    let out = ''
    for (const chunk of chunks(messages)) {
      const answers = await producer.send({ topic: job.topic, acks: job.acks, compression: CODECS[job.codec], timeout: 30000, messages: chunk })
      out += reports(chunk, answers || []).join('')
    }
    fs.writeFileSync(job.out, out)
  } finally {
    await producer.disconnect()
  }
  return messages.length
}

async function main() {
  const kafka = new Kafka({ clientId: 'kafkajs-peer', brokers: [process.argv[2]], logLevel: logLevel.NOTHING })
  for await (const line of readline.createInterface({ input: process.stdin })) {
    let answer
    try {
      const job = JSON.parse(line)
      if (job.op !== 'produce') throw new Error(`unknown op ${job.op}`)
      answer = { ok: true, count: await produce(kafka, job), error: '' }
    } catch (e) {
      answer = { ok: false, count: -1, error: e instanceof Error ? `${e.name}: ${e.message}` : String(e) }
    }
    process.stdout.write(JSON.stringify(answer) + '\n')
  }
}

main()
