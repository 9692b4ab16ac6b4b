// Package run is what the Go load programs share: their command line, the clock and the CPU from the first record to the last, the line of JSON.
package run

import (
	"encoding/json"
	"flag"
	"fmt"
	"log"
	"os"
	"runtime/metrics"
	"runtime/pprof"
	"syscall"
	"time"
)

// Job is what a program is to do: MODE -b BOOT -t TOPIC -n RECORDS [-s BYTES] [-how HOW].
type Job struct {
	Mode, Boot, Topic, How string
	Records, Size          int
	profile                *os.File
	began                  time.Time
	cpu, crossings         int64
}

// Parse reads the command line.
func Parse() *Job {
	j := &Job{}
	if len(os.Args) < 2 {
		log.Fatal("usage: produce|consume -b BOOT -t TOPIC -n RECORDS [-s BYTES] [-how HOW] [-profile FILE]")
	}
	j.Mode = os.Args[1]
	f := flag.NewFlagSet(j.Mode, flag.ExitOnError)
	f.StringVar(&j.Boot, "b", "", "bootstrap servers")
	f.StringVar(&j.Topic, "t", "", "topic")
	f.StringVar(&j.How, "how", "", "which of the client's ways")
	f.IntVar(&j.Records, "n", 0, "records")
	f.IntVar(&j.Size, "s", 100, "bytes of a value")
	profile := f.String("profile", "", "a CPU profile goes there")
	_ = f.Parse(os.Args[2:])
	if *profile != "" {
		j.profile = Must(os.Create(*profile))
	}
	return j
}

func cpuNow() int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		log.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

// crossings counts calls from Go into C.
func crossings() int64 {
	sample := []metrics.Sample{{Name: "/cgo/go-to-c-calls:calls"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}

// Begin is called before the first record.
func (j *Job) Begin() {
	if j.profile != nil {
		_ = pprof.StartCPUProfile(j.profile)
	}
	j.began, j.cpu, j.crossings = time.Now(), cpuNow(), crossings()
}

// End is called after the last; failed: of the records.
func (j *Job) End(records, failed int) {
	took, cpu, crossed := time.Since(j.began), cpuNow()-j.cpu, crossings()-j.crossings
	if j.profile != nil {
		pprof.StopCPUProfile()
	}
	line, _ := json.Marshal(map[string]any{"records": records, "failed": failed, "seconds": took.Seconds(), "records_per_s": float64(records) / took.Seconds(),
		"cpu_ns_per_record": float64(cpu) / float64(records), "crossings_per_record": float64(crossed) / float64(records)})
	fmt.Println(string(line))
}

// Must ends the program with what went wrong.
func Must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// Values are those of the records, which take them in turn: what the application has made last is in the cache, what it made long ago is not.
func (j *Job) Values() [1024][]byte {
	var all [1024][]byte
	for n := range all {
		v := make([]byte, j.Size)
		for i := range v {
			v[i] = byte(i*7 + i/251 + n)
		}
		all[n] = v
	}
	return all
}
