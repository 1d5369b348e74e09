// Package jobs_test runs jobs on this machine as a person does, with real processes, and takes their
// processes away at random.
package jobs_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/checkpoint"
	"github.com/curfew-dev/curfew/internal/cli"
	"github.com/curfew-dev/curfew/internal/money"
	"github.com/curfew-dev/curfew/internal/objectstore"
	"github.com/curfew-dev/curfew/internal/view"
	"github.com/curfew-dev/curfew/test/versitygw"
)

const asVariable = "CURFEW_JOBS_AS"

func TestMain(m *testing.M) {
	// What watches a machine has an environment of its own.
	if os.Getenv(asVariable) == "curfew" || len(os.Args) > 1 && !strings.HasPrefix(os.Args[1], "-") {
		ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
		code := cli.Run(ctx, cli.System("test"))
		stop()
		os.Exit(code)
	}
	os.Exit(m.Run())
}

// bench is a user of this machine with a folder of code.
type bench struct {
	t   *testing.T
	dir string
	env []string
}

func newBench(t *testing.T) *bench {
	t.Helper()
	b := &bench{t: t, dir: t.TempDir()}
	python, err := filepath.Abs("../../python")
	if err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(b.dir, "home")
	b.env = append(slices.DeleteFunc(os.Environ(), func(v string) bool {
		return strings.HasPrefix(v, "HOME=") || strings.HasPrefix(v, "XDG_") || strings.HasPrefix(v, "CURFEW_")
	}), asVariable+"=curfew", "HOME="+home, "XDG_DATA_HOME="+filepath.Join(b.dir, "data"),
		"XDG_CONFIG_HOME="+filepath.Join(b.dir, "config"), "XDG_STATE_HOME="+filepath.Join(b.dir, "state"))
	train, err := os.ReadFile("train.py")
	if err != nil {
		t.Fatal(err)
	}
	b.write("train.py", string(train))
	b.write("curfew.yaml", `rates: {source: test, as_of: 2026-11-01, vcpu_hour: "1.80", memory_gib_hour: "0.000000001"}
sessions: {cloud: local}
`)
	b.env = append(b.env, "TEST_PYTHONPATH="+python)
	t.Cleanup(b.end)
	return b
}

// end cancels what a test left, so that no process outlives it.
func (b *bench) end() {
	out, err := b.output("ls", "-o", "json")
	var doc view.Runs
	if err != nil || json.Unmarshal(out, &doc) != nil {
		return
	}
	for _, r := range doc.Runs {
		_, _ = b.output("cancel", r.Name, "--discard") // the test has failed already
	}
	// A keeper ends once it has nothing to keep, and writes until then.
	for left := b.processes()["keeper"]; len(left) > 0; left = b.processes()["keeper"] {
		kill(left)
		time.Sleep(20 * time.Millisecond)
	}
}

func (b *bench) write(name, text string) {
	b.t.Helper()
	at := filepath.Join(b.dir, "code", name)
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		b.t.Fatal(err)
	}
	if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bench) command(args ...string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		b.t.Fatal(err)
	}
	c := exec.Command(self, args...)
	c.Dir, c.Env = filepath.Join(b.dir, "code"), b.env
	return c
}

func (b *bench) output(args ...string) ([]byte, error) {
	c := b.command(args...)
	var out, errs bytes.Buffer
	c.Stdout, c.Stderr = &out, &errs
	err := c.Run()
	if err != nil {
		err = fmt.Errorf("curfew %s: %w: %s", strings.Join(args, " "), err, errs.String())
	}
	return out.Bytes(), err
}

// job returns the document of a job.
func (b *bench) job(name string) view.Run {
	b.t.Helper()
	out, err := b.output("explain", name, "-o", "json")
	if err != nil {
		b.t.Fatal(err)
	}
	var doc view.Runs
	if err := json.Unmarshal(out, &doc); err != nil || len(doc.Runs) != 1 {
		b.t.Fatalf("%s: %v", out, err)
	}
	return doc.Runs[0]
}

// start is the first step of a process of the training.
type start struct {
	pid, step int
	at        time.Time
}

// starts reads the record that the training keeps outside of the job: the start of each process.
func starts(t *testing.T, record string) (all []start, last int) {
	t.Helper()
	text, err := os.ReadFile(record)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
		var pid, step int
		var at float64
		if _, err := fmt.Sscan(lines.Text(), &pid, &step, &at); err != nil {
			continue // a process was killed within the line
		}
		if n := len(all); n == 0 || all[n-1].pid != pid {
			all = append(all, start{pid, step, time.UnixMicro(int64(at * 1e6))})
		}
		last = step
	}
	return all, last
}

// processesIn returns the processes of this bench by what they are.
func (b *bench) processes() map[string][]int {
	found := map[string][]int{}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		b.t.Fatal(err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		line, _ := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		env, _ := os.ReadFile("/proc/" + e.Name() + "/environ")
		text := strings.ReplaceAll(string(line), "\x00", " ")
		switch {
		case !bytes.Contains(append(env, line...), []byte(b.dir)):
		case strings.Contains(text, " session keep "):
			found["keeper"] = append(found["keeper"], pid)
		case strings.Contains(text, " cage watch "):
			found["watcher"] = append(found["watcher"], pid)
		case strings.Contains(text, " agent host "):
			found["agent"] = append(found["agent"], pid)
		case strings.Contains(text, "train.py") && strings.Contains(text, b.dir) && !strings.Contains(text, "eval"):
			found["command"] = append(found["command"], pid)
		}
	}
	return found
}

func kill(pids []int) {
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL) // it may have ended
	}
}

// TestKilledTrainingEqualsAnUndisturbedOne kills the processes of a job at random: the command, the
// agent, the keeper, all of the machine. Each start goes on from the newest complete checkpoint, and
// the final model is equal, bit for bit, to that of a run that nothing interrupted.
func TestKilledTrainingEqualsAnUndisturbedOne(t *testing.T) {
	t.Parallel()
	kills := 6
	if os.Getenv("CURFEW_SLOW") != "" {
		kills = 50
	}
	killRandomly(t, newBench(t), nil, kills)
}

// TestKilledTrainingOnS3EqualsAnUndisturbedOne is the same with a real S3 server, which is killed and
// started again too.
func TestKilledTrainingOnS3EqualsAnUndisturbedOne(t *testing.T) {
	if os.Getenv("CURFEW_SLOW") == "" {
		t.Skip("make test-slow runs it")
	}
	s := versitygw.Start(t)
	b := newBench(t)
	for name, value := range versitygw.Env(s.Address()) {
		b.env = append(b.env, name+"="+value)
	}
	s.Use(t) // for the checks of this process
	killRandomly(t, b, s, 50)
}

func killRandomly(t *testing.T, b *bench, gateway *versitygw.Server, kills int) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3 here")
	}
	to := "file://" + filepath.Join(b.dir, "runs")
	if gateway != nil {
		to = "s3://" + versitygw.Bucket + "/runs"
	}
	steps := 40 * (kills + 1)
	file := func(name, record string) string {
		return fmt.Sprintf(`apiVersion: curfew.job/v1
name: %s
purpose: training
resources: {cpus: 1}
env: {PYTHONPATH: %s}
run: %s train.py %d %s
max_runtime: 2h
checkpoint: {dir: ~/ckpt, to: "%s"}
retries: {interruptions: 1000}
`, name, strings.TrimPrefix(b.env[slices.IndexFunc(b.env, func(v string) bool {
			return strings.HasPrefix(v, "TEST_PYTHONPATH=")
		})], "TEST_PYTHONPATH="), python, steps, record, to)
	}
	calmRecord, record := filepath.Join(b.dir, "calm.txt"), filepath.Join(b.dir, "record.txt")
	b.write("calm.yaml", file("calm", calmRecord))
	b.write("wild.yaml", file("wild", record))
	calm := make(chan error, 1)
	go func() { _, err := b.output("run", "calm.yaml"); calm <- err }()

	c := b.command("run", "wild.yaml")
	var errs bytes.Buffer
	c.Stderr = &errs
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	rng := rand.New(rand.NewPCG(1, uint64(kills)))
	seen, killed := 0, map[string]int{}
	for len(killed) == 0 || sum(killed) < kills {
		all, _ := starts(t, record)
		if len(all) <= seen {
			select {
			case err := <-ended:
				t.Fatalf("the job ended after %v: %v\n%s", killed, err, errs.String())
			case <-time.After(20 * time.Millisecond):
			}
			continue
		}
		seen = len(all)
		time.Sleep(time.Duration(rng.IntN(700)) * time.Millisecond) // a random moment of the training
		p := b.processesOf(record)
		what := []string{"command", "command", "keeper", "machine", "agent"}[rng.IntN(5)]
		if gateway != nil && rng.IntN(2) == 0 {
			gateway.Kill()
			killed["gateway"]++
		}
		switch what {
		case "machine":
			kill(slices.Concat(p["watcher"], p["agent"], p["command"]))
		case "agent", "keeper": // the training goes on, so take it away too
			kill(p[what])
			time.Sleep(time.Duration(rng.IntN(300)) * time.Millisecond)
			kill(p["command"])
		default:
			kill(p[what])
		}
		killed[what]++
		if gateway != nil && killed["gateway"] > 0 {
			time.Sleep(time.Duration(rng.IntN(500)) * time.Millisecond)
			gateway.Kill()
			if err := gateway.Restart(); err != nil {
				t.Fatal(err)
			}
		}
	}
	select {
	case err := <-ended:
		if err != nil {
			t.Fatalf("after %v: %v\n%s", killed, err, errs.String())
		}
	case <-time.After(10 * time.Minute):
		t.Fatalf("it did not end after %v\n%s", killed, errs.String())
	}
	if err := <-calm; err != nil {
		t.Fatal(err)
	}
	t.Logf("killed %v", killed)
	wild := b.job("wild")
	checkStarts(t, b, wild, to, record)
	checkDollars(t, wild)
	want, got := b.model(b.job("calm"), to), b.model(wild, to)
	if !bytes.Equal(want, got) {
		t.Errorf("the model of the disturbed run differs: %d and %d bytes", len(want), len(got))
	}
	for what, pids := range b.processesOf(record) {
		if what != "keeper" && len(pids) > 0 {
			t.Errorf("a %s is left: %v", what, pids)
		}
	}
}

func sum(counts map[string]int) (n int) {
	for _, c := range counts {
		n += c
	}
	return n
}

// processesOf returns the processes of the machine on which the training with a record runs, and the
// keeper.
func (b *bench) processesOf(record string) map[string][]int {
	all := b.processes()
	out := map[string][]int{"keeper": all["keeper"]}
	local := filepath.Join(b.dir, "data", "curfew", "sessions", "local")
	machines, _ := filepath.Glob(filepath.Join(local, "machines", "m-*", "host.json")) // the pattern is valid
	for _, host := range machines {
		text, err := os.ReadFile(host)
		if err != nil || !bytes.Contains(text, []byte(record)) {
			continue
		}
		dir := filepath.Dir(host)
		for _, what := range []string{"watcher", "agent", "command"} {
			for _, pid := range all[what] {
				line, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
				if bytes.Contains(line, []byte(dir)) || bytes.Contains(line, []byte(record)) {
					out[what] = append(out[what], pid)
				}
			}
		}
	}
	return out
}

// checkStarts compares what the training recorded with the store: each process started with the step
// after the newest one that was saved complete before.
func checkStarts(t *testing.T, b *bench, r view.Run, to, record string) {
	t.Helper()
	all, last := starts(t, record)
	if steps := r.Job.Step; steps == nil || int64(last) != *steps {
		t.Errorf("the last step is %d, the job says %v", last, steps)
	}
	snapshots, _, err := b.run(r, to).Snapshots(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, s := range all {
		newest := int64(0)
		for _, n := range snapshots {
			if n.Step != nil && n.State != checkpoint.Unsettled && n.At.Before(s.at) {
				newest = max(newest, *n.Step)
			}
		}
		if int64(s.step) != newest+1 {
			t.Errorf("start %d, process %d, is at step %d, and %d was the newest complete one", i, s.pid, s.step, newest)
		}
	}
	if t.Failed() {
		t.Log(describeHistory(all, snapshots))
	}
}

// describeHistory lists starts and snapshots in the order of time.
func describeHistory(all []start, snapshots []checkpoint.Snapshot) string {
	type line struct {
		at   time.Time
		text string
	}
	var lines []line
	for i, s := range all {
		lines = append(lines, line{s.at, fmt.Sprintf("start %d: process %d at step %d", i, s.pid, s.step)})
	}
	for _, n := range snapshots {
		step := "no step"
		if n.Step != nil {
			step = fmt.Sprintf("step %d", *n.Step)
		}
		text := fmt.Sprintf("snapshot %d of epoch %d: %s, %s, %s", n.Seq, n.Epoch, step, n.State, n.Finished)
		lines = append(lines, line{n.At, text})
	}
	slices.SortStableFunc(lines, func(a, b line) int { return a.at.Compare(b.at) })
	var out strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&out, "%s %s\n", l.at.UTC().Format("15:04:05.000000"), l.text)
	}
	return out.String()
}

// run returns the snapshots of a job.
func (b *bench) run(r view.Run, to string) checkpoint.Run {
	b.t.Helper()
	store, err := objectstore.Open(b.t.Context(), to+"/"+r.Name+"/"+r.ID+"/node-0", objectstore.Options{})
	if err != nil {
		b.t.Fatal(err)
	}
	return checkpoint.Run{Store: store, Now: time.Now}
}

// checkDollars recomputes the cost of a job from the seconds of its attempts.
func checkDollars(t *testing.T, r view.Run) {
	t.Helper()
	total := money.Amount(0)
	for _, a := range r.Job.Attempts {
		parts := a.UsefulUSD.Or(0) + a.RepeatedUSD.Or(0) + a.WaitingUSD.Or(0)
		if parts != a.CostUSD.Or(-1) {
			t.Errorf("attempt %d costs %s, and its parts %s", a.Number, a.CostUSD, parts.Exact())
		}
		if a.LaunchedAt != nil {
			seconds := a.EndedAt.Unix() - a.LaunchedAt.Unix()
			cents := float64(seconds) * 1.80 / 3600
			if diff := float64(a.CostUSD.Or(0))/1e9 - cents; diff > 0.0001 || diff < -0.0001 {
				t.Errorf("attempt %d ran %d s and costs %s", a.Number, seconds, a.CostUSD)
			}
		}
		total += a.CostUSD.Or(0)
	}
	if total != r.CostUSD.Or(-1) {
		t.Errorf("the job costs %s, its attempts %s", r.CostUSD, total.Exact())
	}
}

// model returns the final model of a job from its store.
func (b *bench) model(r view.Run, to string) []byte {
	b.t.Helper()
	dir := filepath.Join(b.t.TempDir(), r.Name)
	if _, err := b.run(r, to).Restore(b.t.Context(), dir, checkpoint.RestoreOptions{}); err != nil {
		b.t.Fatal(err)
	}
	data, err := os.ReadFile(filepath.Join(dir, "model.json"))
	if err != nil {
		b.t.Fatal(err)
	}
	return data
}
