// franz is franz-go as a peer of the interoperability tests.
//
// Called by judge/peers.py as `franz-peer BOOTSTRAP`; jobs and answers as in rdk/rdk_peer.c.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

const recordSizeMax = 11 << 20

type job struct {
	Op, Topic, File, Codec, Out string
	Topics                      map[string]int
	Acks                        int
	Idempotence                 bool
	Conf                        struct{ Version string }
}

// versionOf makes an old client: it speaks what the brokers of that time spoke, so message formats v0 and v1.
func versionOf(j job) []kgo.Opt {
	switch j.Conf.Version {
	case "0.9.0":
		return []kgo.Opt{kgo.MaxVersions(kversion.V0_9_0())}
	case "0.10.0":
		return []kgo.Opt{kgo.MaxVersions(kversion.V0_10_0())}
	}
	return nil
}

type header [2]any

type record struct {
	Topic     string    `json:"topic"`
	Partition int32     `json:"partition"`
	Offset    int64     `json:"offset"`
	Timestamp int64     `json:"timestamp"`
	Key       *[]byte   `json:"key"`
	Value     *[]byte   `json:"value"`
	Headers   []headerT `json:"headers"`
}

// headerT is a [name, base64 or null] pair.
type headerT struct {
	name  string
	value *[]byte
}

func (h headerT) MarshalJSON() ([]byte, error) { return json.Marshal(header{h.name, h.value}) }

func (h *headerT) UnmarshalJSON(b []byte) error {
	var raw [2]json.RawMessage
	if err := json.Unmarshal(b, &raw); err != nil {
		return err
	}
	if err := json.Unmarshal(raw[0], &h.name); err != nil {
		return err
	}
	return json.Unmarshal(raw[1], &h.value)
}

// deref keeps null (nil) and empty (non-nil, no bytes) apart.
func deref(p *[]byte) []byte {
	if p == nil {
		return nil
	}
	if *p == nil {
		return []byte{}
	}
	return *p
}

func ref(b []byte) *[]byte {
	if b == nil {
		return nil
	}
	return &b
}

func codecOf(name string) (kgo.CompressionCodec, error) {
	switch name {
	case "none":
		return kgo.NoCompression(), nil
	case "gzip":
		return kgo.GzipCompression(), nil
	case "snappy":
		return kgo.SnappyCompression(), nil
	case "lz4":
		return kgo.Lz4Compression(), nil
	case "zstd":
		return kgo.ZstdCompression(), nil
	}
	return kgo.NoCompression(), fmt.Errorf("unknown codec %q", name)
}

func producerOf(boot string, j job) (*kgo.Client, error) {
	codec, err := codecOf(j.Codec)
	if err != nil {
		return nil, err
	}
	acks := map[int]kgo.Acks{0: kgo.NoAck(), 1: kgo.LeaderAck(), -1: kgo.AllISRAcks()}[j.Acks]
	opts := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(boot, ",")...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(codec),
		kgo.ProducerBatchMaxBytes(recordSizeMax), kgo.RequiredAcks(acks),
	}
	opts = append(opts, versionOf(j)...)
	if !j.Idempotence {
		opts = append(opts, kgo.DisableIdempotentWrite())
	}
	return kgo.NewClient(opts...)
}

func produce(boot string, j job) (int, error) {
	cl, err := producerOf(boot, j)
	if err != nil {
		return -1, err
	}
	defer cl.Close()
	in, err := os.Open(j.File)
	if err != nil {
		return -1, err
	}
	defer in.Close()
	out, err := os.Create(j.Out)
	if err != nil {
		return -1, err
	}
	defer out.Close()
	var mu sync.Mutex
	var first error
	n := 0
	for dec := json.NewDecoder(bufio.NewReaderSize(in, 1<<20)); dec.More(); n++ {
		var r record
		if err := dec.Decode(&r); err != nil {
			return -1, err
		}
		kr := &kgo.Record{Topic: j.Topic, Partition: r.Partition, Key: deref(r.Key), Value: deref(r.Value),
			Timestamp: time.UnixMilli(r.Timestamp)}
		for _, h := range r.Headers {
			kr.Headers = append(kr.Headers, kgo.RecordHeader{Key: h.name, Value: deref(h.value)})
		}
		i := n
		cl.Produce(context.Background(), kr, func(r *kgo.Record, err error) {
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				if first == nil {
					first = err
				}
				return
			}
			fmt.Fprintf(out, "{\"i\":%d,\"partition\":%d,\"offset\":%d}\n", i, r.Partition, r.Offset)
		})
	}
	// not kgo.RecordDeliveryTimeout: that one counts from the record's own timestamp
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := cl.Flush(ctx); err != nil {
		return -1, err
	}
	mu.Lock()
	defer mu.Unlock()
	return n, first
}

type partition struct {
	topic string
	index int32
}

// ends asks the leaders for the end offset of every partition; empty ones are left out.
func ends(cl *kgo.Client, j job) (map[partition]int64, error) {
	req := kmsg.NewPtrListOffsetsRequest()
	req.ReplicaID = -1
	for name, n := range j.Topics {
		t := kmsg.NewListOffsetsRequestTopic()
		t.Topic = name
		for p := range n {
			rp := kmsg.NewListOffsetsRequestTopicPartition()
			rp.Partition, rp.Timestamp, rp.MaxNumOffsets = int32(p), -1, 1
			t.Partitions = append(t.Partitions, rp)
		}
		req.Topics = append(req.Topics, t)
	}
	out := map[partition]int64{}
	for _, shard := range cl.RequestSharded(context.Background(), req) {
		if shard.Err != nil {
			return nil, shard.Err
		}
		for _, t := range shard.Resp.(*kmsg.ListOffsetsResponse).Topics {
			for _, p := range t.Partitions {
				if p.ErrorCode != 0 {
					return nil, fmt.Errorf("ListOffsets: error %d", p.ErrorCode)
				}
				end := p.Offset
				if len(p.OldStyleOffsets) > 0 { // version 0
					end = p.OldStyleOffsets[0]
				}
				if end > 0 {
					out[partition{t.Topic, p.Partition}] = end
				}
			}
		}
	}
	return out, nil
}

func consumerOf(boot string, j job) (*kgo.Client, error) {
	from := map[string]map[int32]kgo.Offset{}
	for name, n := range j.Topics {
		from[name] = map[int32]kgo.Offset{}
		for p := range n {
			from[name][int32(p)] = kgo.NewOffset().AtStart()
		}
	}
	return kgo.NewClient(append(versionOf(j), kgo.SeedBrokers(strings.Split(boot, ",")...), kgo.FetchMaxWait(20*time.Millisecond),
		kgo.ConsumePartitions(from))...)
}

// reader opens what a job that reads needs: the consumer, and what writes its records; end closes both.
func reader(boot string, j job) (cl *kgo.Client, enc *json.Encoder, end func(), err error) {
	if cl, err = consumerOf(boot, j); err != nil {
		return nil, nil, nil, err
	}
	out, err := os.Create(j.Out)
	if err != nil {
		cl.Close()
		return nil, nil, nil, err
	}
	enc = json.NewEncoder(out)
	enc.SetEscapeHTML(false)
	return cl, enc, func() { out.Close(); cl.Close() }, nil
}

func consume(boot string, j job) (int, error) {
	cl, enc, end, err := reader(boot, j)
	if err != nil {
		return -1, err
	}
	defer end()
	left, err := ends(cl, j)
	if err != nil {
		return -1, err
	}
	n := 0
	for len(left) > 0 {
		more, err := poll(cl, enc, 30*time.Second, func(p partition, next int64) {
			if next >= left[p] {
				delete(left, p)
			}
		})
		if err != nil {
			return -1, err
		}
		n += more
	}
	return n, nil
}

// poll writes what one poll brings, and tells how far each partition has come by it; nothing in time is an error.
func poll(cl *kgo.Client, enc *json.Encoder, wait time.Duration, came func(p partition, next int64)) (int, error) {
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	fetches := cl.PollFetches(ctx)
	cancel()
	for _, e := range fetches.Errors() {
		return -1, fmt.Errorf("%s-%d: %w", e.Topic, e.Partition, e.Err)
	}
	n := 0
	for it := fetches.RecordIter(); !it.Done(); n++ {
		r := it.Next()
		line := record{r.Topic, r.Partition, r.Offset, r.Timestamp.UnixMilli(), ref(r.Key), ref(r.Value), []headerT{}}
		for _, h := range r.Headers {
			line.Headers = append(line.Headers, headerT{h.Key, ref(h.Value)})
		}
		if err := enc.Encode(line); err != nil {
			return -1, err
		}
		came(partition{r.Topic, r.Partition}, r.Offset+1)
	}
	return n, nil
}

// follow reads past the ends until the next line comes, and then up to where the ends are at that time.
func follow(boot string, j job, lines <-chan []byte) (int, error) {
	cl, enc, end, err := reader(boot, j)
	if err != nil {
		return -1, err
	}
	defer end()
	at := map[partition]int64{}
	n := 0
	for {
		more, err := poll(cl, enc, 200*time.Millisecond, func(p partition, next int64) { at[p] = next })
		if err != nil && !errors.Is(err, context.DeadlineExceeded) {
			return -1, err
		}
		n += max(more, 0)
		select {
		case <-lines:
		default:
			continue
		}
		break
	}
	left, err := ends(cl, j)
	if err != nil {
		return -1, err
	}
	behind := func() bool {
		for p, end := range left {
			if at[p] < end {
				return true
			}
		}
		return false
	}
	for behind() {
		more, err := poll(cl, enc, 30*time.Second, func(p partition, next int64) { at[p] = next })
		if err != nil {
			return -1, err
		}
		n += more
	}
	return n, nil
}

// metadata writes what the client is told of the brokers and of one topic.
func metadata(boot string, j job) (int, error) {
	cl, err := kgo.NewClient(append(versionOf(j), kgo.SeedBrokers(strings.Split(boot, ",")...))...)
	if err != nil {
		return -1, err
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	req := kmsg.NewPtrMetadataRequest()
	t := kmsg.NewMetadataRequestTopic()
	t.Topic = kmsg.StringPtr(j.Topic)
	req.Topics = append(req.Topics, t)
	res, err := req.RequestWith(ctx, cl)
	if err != nil {
		return -1, err
	}
	type row struct {
		Leader   int32   `json:"leader"`
		Replicas []int32 `json:"replicas"`
		Isr      []int32 `json:"isr"`
		Offline  []int32 `json:"offline"`
		Error    int16   `json:"error"`
	}
	said := struct {
		Brokers    []int32       `json:"brokers"`
		Controller int32         `json:"controller"`
		Partitions map[int32]row `json:"partitions"`
	}{Controller: res.ControllerID, Partitions: map[int32]row{}}
	for _, b := range res.Brokers {
		said.Brokers = append(said.Brokers, b.NodeID)
	}
	for _, t := range res.Topics {
		for _, p := range t.Partitions {
			said.Partitions[p.Partition] = row{p.Leader, p.Replicas, p.ISR, p.OfflineReplicas, p.ErrorCode}
		}
	}
	b, err := json.Marshal(said)
	if err != nil {
		return -1, err
	}
	return len(said.Partitions), os.WriteFile(j.Out, b, 0o644)
}

func main() {
	if len(os.Args) == 5 && os.Args[1] == "member" {
		memberMain()
		return
	}
	lines := make(chan []byte)
	go func() {
		in := bufio.NewScanner(os.Stdin)
		for in.Scan() {
			lines <- bytes.Clone(in.Bytes())
		}
		close(lines)
	}()
	for line := range lines {
		var j job
		n, err := -1, json.Unmarshal(line, &j)
		if err == nil {
			switch j.Op {
			case "produce":
				n, err = produce(os.Args[1], j)
			case "consume":
				n, err = consume(os.Args[1], j)
			case "follow":
				n, err = follow(os.Args[1], j, lines)
			case "metadata":
				n, err = metadata(os.Args[1], j)
			default:
				err = fmt.Errorf("unknown op %q", j.Op)
			}
		}
		answer := map[string]any{"ok": err == nil, "count": n, "error": ""}
		if err != nil {
			answer["error"] = err.Error()
		}
		b, _ := json.Marshal(answer)
		fmt.Println(string(b))
	}
}
