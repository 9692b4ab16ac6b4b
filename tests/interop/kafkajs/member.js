// member.js - a member of a group that prints `partition offset value` a record, until SIGTERM, on which it leaves. On SIGUSR2 it says on
// stderr how often it has fetched.
//
// Called by test_groups.py as `node member.js BOOTSTRAP GROUP TOPIC` in the cache's folder. kafkajs has no range assignor of its own; this one
// has the name and the form that the other clients agree on, since any member may have to lead.
'use strict'

const { Kafka, AssignerProtocol, logLevel } = require('kafkajs')

const VERSION = 0

const range = ({ cluster }) => ({
  name: 'range',
  version: VERSION,
  protocol: ({ topics }) => ({ name: 'range', metadata: AssignerProtocol.MemberMetadata.encode({ version: VERSION, topics, userData: Buffer.alloc(0) }) }),
  assign: async ({ members }) => {
    const given = new Map(members.map(m => [m.memberId, {}]))
    const wanted = new Map() // topic: members that subscribe to it
    for (const m of members) {
      for (const t of AssignerProtocol.MemberMetadata.decode(m.memberMetadata).topics) wanted.set(t, [...(wanted.get(t) || []), m.memberId])
    }
    for (const [topic, ids] of wanted) {
      await cluster.addTargetTopic(topic)
      const partitions = cluster.findTopicPartitionMetadata(topic).map(p => p.partitionId).sort((a, b) => a - b)
      ids.sort()
      const each = Math.floor(partitions.length / ids.length)
      const more = partitions.length % ids.length
      ids.forEach((id, i) => {
        const from = each * i + Math.min(i, more)
        given.get(id)[topic] = partitions.slice(from, from + each + (i < more ? 1 : 0))
      })
    }
    return [...given].map(([memberId, assignment]) => ({
      memberId,
      memberAssignment: AssignerProtocol.MemberAssignment.encode({ version: VERSION, assignment, userData: Buffer.alloc(0) }),
    }))
  },
})

async function main() {
  const [boot, groupId, topic] = process.argv.slice(2)
  const kafka = new Kafka({ clientId: 'kafkajs-member', brokers: boot.split(','), logLevel: logLevel.NOTHING, retry: { retries: 100, maxRetryTime: 1000 } })
  const consumer = kafka.consumer({ groupId, sessionTimeout: 6000, heartbeatInterval: 1500, maxWaitTimeInMs: 300, partitionAssigners: [range] })
  await consumer.connect()
  await consumer.subscribe({ topics: [topic], fromBeginning: true })
  let fetches = 0
  consumer.on(consumer.events.FETCH, () => fetches++)
  process.on('SIGUSR2', () => process.stderr.write(`${fetches}\n`))
  process.on('SIGTERM', () => consumer.disconnect().then(() => process.exit(0)))
  await consumer.run({
    autoCommitInterval: 500,
    eachMessage: async ({ partition, message }) => process.stdout.write(`${partition} ${message.offset} ${message.value}\n`),
  })
}

main()
