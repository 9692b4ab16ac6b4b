// Package kctest runs kbroker clusters for tests: started in milliseconds, stopped, killed, paused, wiped and made to misbehave by the test.
//
//	func TestOrders(t *testing.T) {
//		cluster := kctest.Start(t, kctest.Nodes(3))
//		cluster.CreateTopic("orders", 6, 3, nil)
//		…
//		cluster.Kill(0)
//		cluster.WaitForLeader("orders", 0)
//	}
//
// A cluster ends with its test, however that ends; when the test failed, the nodes' logs are told. Any number of tests may have clusters of their
// own at the same time (t.Parallel): ports and folders are each cluster's own.
package kctest

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	kclient "github.com/libkclient/libkclient/bindings/go"
)

// Wait is how long the functions of a Cluster wait for what they cause or look for, unless the cluster was started with [Timeout].
const Wait = 30 * time.Second

// Option is an option of [Start].
type Option func(*settings)

type settings struct {
	nodes, controllers      int
	config                  map[string]string
	profile, record         string
	snapshot, data, program string
	virtual, verbose        bool
	faults                  []Fault
	timeout                 time.Duration
}

// Nodes is how many brokers there are; 1 without it.
func Nodes(n int) Option { return func(s *settings) { s.nodes = n } }

// Controllers has so many processes of their own, numbered from 1000 on, be the quorum; without it the first brokers are.
func Controllers(n int) Option { return func(s *settings) { s.controllers = n } }

// Config sets a property of server.properties, for all nodes.
func Config(name string, value any) Option {
	return func(s *settings) { s.config[name] = fmt.Sprint(value) }
}

// Profile sets the nodes' profile: "reliable".
func Profile(name string) Option { return func(s *settings) { s.profile = name } }

// VirtualClock has the nodes' time jump on order: [Cluster.Advance].
func VirtualClock() Option { return func(s *settings) { s.virtual = true } }

// Record has each request and response written to a file: `kbroker print FILE` shows them.
func Record(file string) Option { return func(s *settings) { s.record = file } }

// FromSnapshot starts with a copy of a snapshot: the path of one that [Cluster.SaveSnapshot] wrote.
func FromSnapshot(path string) Option { return func(s *settings) { s.snapshot = path } }

// Data keeps the data in a folder, which stays. Without it they go with the cluster, and are never synced.
func Data(folder string) Option { return func(s *settings) { s.data = folder } }

// Program is the kbroker to run. Without it: $KBROKER, the build tree that the module lies in, $PATH.
func Program(path string) Option { return func(s *settings) { s.program = path } }

// Faults are fault rules that hold from the start, on all nodes.
func Faults(rules ...Fault) Option {
	return func(s *settings) { s.faults = append(s.faults, rules...) }
}

// Timeout is how long functions of the cluster wait for what they look for, in place of [Wait].
func Timeout(d time.Duration) Option { return func(s *settings) { s.timeout = d } }

// Verbose has the nodes log debug lines too.
func Verbose() Option { return func(s *settings) { s.verbose = true } }

// Cluster is a cluster that runs. Its functions fail the test when something cannot be done (t.Fatal: call them in the test's own goroutine); of one
// that [Launch] started they panic.
type Cluster struct {
	t       testing.TB
	s       settings
	process *exec.Cmd
	stdin   io.Closer
	said    bytes.Buffer // stderr, and what of stdout is no greeting
	saying  sync.Mutex
	ended   chan struct{} // the process is gone
	url     string
	http    *http.Client
	stop    sync.Once

	mu     sync.Mutex
	info   Description
	client *kclient.Client
}

// Start starts a cluster, which ends with the test.
func Start(t testing.TB, options ...Option) *Cluster {
	t.Helper()
	c, err := launch(t, options)
	if err != nil {
		t.Fatalf("kctest: %v", err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			c.tellLogs()
		}
		c.Stop()
	})
	return c
}

// Launch starts a cluster outside of a test (TestMain, examples, programs). Stop it in the end; it also ends with the process.
func Launch(options ...Option) (*Cluster, error) { return launch(nil, options) }

func launch(t testing.TB, options []Option) (*Cluster, error) {
	s := settings{nodes: 1, config: map[string]string{}, timeout: Wait}
	for _, o := range options {
		o(&s)
	}
	program, err := find(s.program)
	if err != nil {
		return nil, err
	}
	c := &Cluster{t: t, s: s, ended: make(chan struct{}), http: &http.Client{Transport: &http.Transport{}}}
	args, cleanup, err := s.args()
	defer cleanup()
	if err != nil {
		return nil, err
	}
	c.process = exec.Command(program, args...)
	out, err := c.process.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.process.Stderr = saying{c}
	// The cluster ends when this pipe does: with this process at the latest.
	if c.stdin, err = c.process.StdinPipe(); err != nil {
		return nil, err
	}
	if err := c.process.Start(); err != nil {
		return nil, err
	}
	greeted := make(chan error, 1)
	go c.listen(out, greeted)
	select {
	case err = <-greeted:
	case <-time.After(s.patience()):
		err = fmt.Errorf("no cluster within %v", s.patience())
	}
	if err == nil {
		err = c.call("GET", "/cluster", nil, &c.info)
	}
	if err != nil {
		c.Stop()
		return nil, fmt.Errorf("%s %s: %w\n%s", program, strings.Join(args, " "), err, c.output())
	}
	return c, nil
}

// patience is how long the cluster itself may take, to start or to answer: a short Timeout is not meant for that.
func (s *settings) patience() time.Duration { return max(s.timeout, Wait) }

// args are the command line; cleanup is to be called once the cluster serves.
func (s *settings) args() ([]string, func(), error) {
	args := []string{"cluster", "--nodes", strconv.Itoa(s.nodes), "--base-port", "0", "--admin", "127.0.0.1:0", "--until-eof"}
	if s.data != "" {
		args = append(args, "--data", s.data)
	} else {
		args = append(args, "--ephemeral")
	}
	if s.controllers > 0 {
		args = append(args, "--controllers", strconv.Itoa(s.controllers))
	}
	for name, value := range s.config {
		args = append(args, "--set", name+"="+value)
	}
	if s.virtual {
		args = append(args, "--clock", "virtual")
	}
	if s.verbose {
		args = append(args, "--verbose")
	}
	for _, o := range [][2]string{{"--profile", s.profile}, {"--record", s.record}, {"--from", s.snapshot}} {
		if o[1] != "" {
			args = append(args, o[0], o[1])
		}
	}
	if len(s.faults) == 0 {
		return args, func() {}, nil
	}
	file, err := os.CreateTemp("", "kctest-faults-*.json")
	if err != nil {
		return nil, func() {}, err
	}
	defer file.Close()
	cleanup := func() { os.Remove(file.Name()) }
	return append(args, "--faults", file.Name()), cleanup, json.NewEncoder(file).Encode(map[string][]Fault{"rules": s.faults})
}

// find looks for kbroker.
func find(given string) (string, error) {
	var looked []string
	try := func(path string) bool {
		if path == "" {
			return false
		}
		looked = append(looked, path)
		at, err := os.Stat(path)
		return err == nil && at.Mode().IsRegular() && at.Mode()&0o111 != 0
	}
	if given != "" {
		if try(given) {
			return given, nil
		}
		return "", fmt.Errorf("kbroker: there is no program %s", given)
	}
	if path := os.Getenv("KBROKER"); path != "" { // who names it means that one
		if at, err := exec.LookPath(path); err == nil {
			return at, nil
		}
		return "", fmt.Errorf("$KBROKER is %s, which is no program that can be run", path)
	}
	if here, err := os.Getwd(); err == nil {
		for folder := here; ; folder = filepath.Dir(folder) {
			if path := filepath.Join(folder, "build", "bin", "kbroker"); try(path) {
				return path, nil
			}
			if folder == filepath.Dir(folder) {
				break
			}
		}
	}
	if path, err := exec.LookPath("kbroker"); err == nil {
		return path, nil
	}
	return "", fmt.Errorf("kbroker was not found: set $KBROKER, give kctest.Program, or install it on $PATH; looked at %s, and along $PATH",
		strings.Join(looked, ", "))
}

// listen reads the greeting, and drains what comes after it.
func (c *Cluster) listen(out io.Reader, greeted chan<- error) {
	lines := bufio.NewReader(out)
	told := false
	for {
		line, err := lines.ReadString('\n')
		switch name, rest, _ := strings.Cut(strings.TrimSpace(line), " "); {
		case name == "admin" && c.url == "":
			c.url = rest
		case name == "ready" && !told:
			told = true
			greeted <- nil
		default:
			saying{c}.Write([]byte(line))
		}
		if err != nil {
			break
		}
	}
	err := c.process.Wait()
	close(c.ended)
	if !told {
		greeted <- fmt.Errorf("it ended before it was ready (%v)", err)
	}
}

// saying keeps what the process says.
type saying struct{ c *Cluster }

func (s saying) Write(b []byte) (int, error) {
	s.c.saying.Lock()
	defer s.c.saying.Unlock()
	return s.c.said.Write(b)
}

func (c *Cluster) output() string {
	c.saying.Lock()
	defer c.saying.Unlock()
	return c.said.String()
}

// tellLogs shows the ends of the nodes' logs.
func (c *Cluster) tellLogs() {
	c.t.Helper()
	if said := c.output(); said != "" {
		c.t.Logf("kctest: the cluster said:\n%s", said)
	}
	for name, text := range c.Logs() {
		c.t.Logf("kctest: the end of %s:\n%s", name, text)
	}
}

// Logs gives the ends (32 KB at most) of the nodes' logs, by their file names.
func (c *Cluster) Logs() map[string]string {
	const most = 32 << 10
	out := map[string]string{}
	c.mu.Lock()
	data := c.info.Data
	c.mu.Unlock()
	files, _ := filepath.Glob(filepath.Join(data, "*.log"))
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		if len(text) > most {
			text = append([]byte("…"), text[len(text)-most:]...)
		}
		out[filepath.Base(path)] = string(text)
	}
	return out
}

// Stop ends the cluster, as the end of its test does. Calling it again does nothing.
func (c *Cluster) Stop() {
	c.stop.Do(func() {
		c.mu.Lock()
		client := c.client
		c.client = nil
		c.mu.Unlock()
		if client != nil {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			_ = client.Close(ctx)
			cancel()
		}
		c.stdin.Close()
		select {
		case <-c.ended:
		case <-time.After(10 * time.Second):
			_ = c.process.Process.Kill()
			<-c.ended
		}
		c.http.CloseIdleConnections()
	})
}

// fail fails the test, or panics.
func (c *Cluster) fail(err error) {
	if err == nil {
		return
	}
	if c.t == nil {
		panic("kctest: " + err.Error())
	}
	c.t.Helper()
	c.t.Fatalf("kctest: %v", err)
}

// Bootstrap is the value for bootstrap.servers: the addresses of all brokers.
func (c *Cluster) Bootstrap() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.info.Bootstrap
}

// AdminURL is where the cluster's own HTTP is served, for what has no function here.
func (c *Cluster) AdminURL() string { return c.url }

// Client makes a client of the cluster, which is closed at the end of the test. config, which may be nil, is added to bootstrap.servers.
func (c *Cluster) Client(config kclient.Config, options ...kclient.ClientOption) *kclient.Client {
	if c.t != nil {
		c.t.Helper()
	}
	all := kclient.Config{"bootstrap.servers": c.Bootstrap()}
	for k, v := range config {
		all[k] = v
	}
	client, err := kclient.NewClient(all, options...)
	c.fail(err)
	if c.t != nil {
		c.t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			_ = client.Close(ctx)
		})
	}
	return client
}

// Admin gives the administration of the cluster, by a client of the cluster's own.
func (c *Cluster) Admin() *kclient.Admin {
	if c.t != nil {
		c.t.Helper()
	}
	admin, err := c.admin()
	c.fail(err)
	return admin
}

func (c *Cluster) admin() (*kclient.Admin, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.client == nil {
		// A paused node does not say that it is: another one is asked soon.
		client, err := kclient.NewClient(kclient.Config{"bootstrap.servers": c.info.Bootstrap, "request.timeout.ms": 1000})
		if err != nil {
			return nil, err
		}
		c.client = client
	}
	return kclient.NewAdmin(c.client), nil
}

// CreateTopic creates a topic and waits until each partition has a leader. replicationFactor 0: as many as there are brokers, three at most.
func (c *Cluster) CreateTopic(name string, partitions, replicationFactor int, configs map[string]string) {
	if c.t != nil {
		c.t.Helper()
	}
	if replicationFactor == 0 {
		c.mu.Lock()
		replicationFactor = min(c.info.brokers(), 3)
		c.mu.Unlock()
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.s.patience())
	defer cancel()
	_, err := c.Admin().CreateTopics(ctx, kclient.NewTopic{Name: name, Partitions: int32(partitions), ReplicationFactor: int32(replicationFactor),
		Configs: configs})
	c.fail(err)
	for p := 0; p < partitions; p++ {
		c.WaitForLeader(name, p)
	}
}

// call asks the cluster's HTTP. answer may be nil.
func (c *Cluster) call(method, path string, body, answer any) error {
	var in io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		in = bytes.NewReader(text)
	}
	ctx, cancel := context.WithTimeout(context.Background(), c.s.patience())
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, c.url+path, in)
	if err != nil {
		return err
	}
	response, err := c.http.Do(request)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil {
		return fmt.Errorf("%s %s: %w", method, path, err)
	}
	if response.StatusCode != http.StatusOK {
		said := struct{ Error string }{}
		if json.Unmarshal(text, &said) != nil || said.Error == "" {
			said.Error = strings.TrimSpace(string(text))
		}
		return fmt.Errorf("%s %s: %w (HTTP %d)", method, path, errors.New(said.Error), response.StatusCode)
	}
	if answer == nil {
		return nil
	}
	return json.Unmarshal(text, answer)
}
