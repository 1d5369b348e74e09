package jobs_test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/view"
)

// rankStart is the start of a process of one rank.
type rankStart struct {
	rank, pid, step int
	master          string
}

// rankStarts reads what the ranks recorded outside of their job.
func rankStarts(folder string) (all []rankStart) {
	text, _ := os.ReadFile(filepath.Join(folder, "starts")) // there is none before the first start
	for line := range strings.Lines(string(text)) {
		var s rankStart
		if _, err := fmt.Sscan(line, &s.rank, &s.pid, &s.step, &s.master); err == nil {
			all = append(all, s)
		}
	}
	return all
}

// machineProcesses returns the processes of the machine on which a process runs.
func (b *bench) machineProcesses(pid int) (pids []int) {
	env, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return nil
	}
	machines := filepath.Join(b.dir, "data", "curfew", "sessions", "local", "machines")
	_, rest, ok := strings.Cut(string(env), machines+"/")
	if !ok {
		b.t.Fatalf("process %d belongs to no machine", pid)
	}
	dir := filepath.Join(machines, rest[:strings.IndexAny(rest, "/\x00")])
	entries, err := os.ReadDir("/proc")
	if err != nil {
		b.t.Fatal(err)
	}
	for _, e := range entries {
		of, err := strconv.Atoi(e.Name())
		if err != nil || of == os.Getpid() {
			continue
		}
		line, _ := os.ReadFile("/proc/" + e.Name() + "/cmdline")
		env, _ := os.ReadFile("/proc/" + e.Name() + "/environ")
		if bytes.Contains(append(line, env...), []byte(dir)) {
			pids = append(pids, of)
		}
	}
	return pids
}

// TestLostNodeOfAJobIsReplaced kills every process of one machine of two, first that of node 1 and then that of
// node 0, with the keeper. The other machine stays, both ranks go on from the same saved step each time, and the
// job has one attempt whose dollars are those of all its machines.
func TestLostNodeOfAJobIsReplaced(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("there is no python3 here")
	}
	if runtime.NumCPU() < 2 {
		t.Skip("it takes two CPUs")
	}
	b := newBench(t)
	script, err := os.ReadFile("ranks.py")
	if err != nil {
		t.Fatal(err)
	}
	b.write("ranks.py", string(script))
	folder := filepath.Join(b.dir, "shared")
	if err := os.Mkdir(folder, 0o755); err != nil {
		t.Fatal(err)
	}
	b.write("job.yaml", fmt.Sprintf(`apiVersion: curfew.job/v1
name: group
resources: {cpus: 1, nodes: 2}
nodes: {replace: one}
env: {PYTHONPATH: %s}
run: %s ranks.py 400 %s
max_runtime: 1h
checkpoint: {dir: ~/ckpt, to: "file://%s"}
`, pythonPath(b), python, folder, filepath.Join(b.dir, "runs")))
	c := b.command("run", "job.yaml")
	var errs bytes.Buffer
	c.Stderr = &errs
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- c.Wait() }()
	survivors := map[int]int{}
	for round, lost := range []int{1, 0} {
		await(t, ended, &errs, func() bool { return len(rankStarts(folder)) == 2*(round+1) && b.savedStep(folder) })
		for _, s := range rankStarts(folder)[2*round:] {
			if s.rank != lost {
				survivors[round] = len(b.machineProcesses(s.pid))
				continue
			}
			if round == 1 {
				kill(b.processes()["keeper"])
			}
			kill(b.machineProcesses(s.pid))
		}
		_ = os.Remove(filepath.Join(folder, "rank-"+strconv.Itoa(lost)))
	}
	await(t, ended, &errs, func() bool { return len(rankStarts(folder)) == 6 })
	if err := <-ended; err != nil {
		t.Fatalf("%v\n%s", err, errs.String())
	}
	all := rankStarts(folder)
	for round := range 3 {
		x, y := all[2*round], all[2*round+1]
		if x.rank == y.rank || x.step != y.step || x.master != y.master || round > 0 && x.step == 0 {
			t.Errorf("round %d: %+v and %+v", round, x, y)
		}
	}
	r := b.job("group")
	if r.State != "succeeded" || len(r.Job.Attempts) != 1 || len(r.Job.Attempts[0].Restarts) != 2 {
		t.Fatalf("%s: %+v", r.State, r.Job)
	}
	if from := r.Job.Attempts[0].FromStep; from != nil {
		t.Errorf("the attempt begins from step %d: the steps of its restarts are not its own", *from)
	}
	checkGroupDollars(t, r)
	out, err := b.output("logs", "group")
	if n := strings.Count(string(out), "goes on from step"); err != nil || n != 6 {
		t.Errorf("the log has %d starts: %v\n%s", n, err, out)
	}
}

// pythonPath returns the folder of the Python package.
func pythonPath(b *bench) string {
	for _, v := range b.env {
		if path, ok := strings.CutPrefix(v, "TEST_PYTHONPATH="); ok {
			return path
		}
	}
	b.t.Fatal("the bench knows no Python package")
	return ""
}

// savedStep reports whether the ranks passed a step that they saved since the last start.
func (b *bench) savedStep(folder string) bool {
	all := rankStarts(folder)
	text, err := os.ReadFile(filepath.Join(folder, "rank-"+strconv.Itoa(all[len(all)-1].rank)))
	n, bad := strconv.Atoi(string(text))
	return err == nil && bad == nil && n > all[len(all)-1].step+60
}

// await waits for a condition while the job runs.
func await(t *testing.T, ended <-chan error, errs *bytes.Buffer, is func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Minute); !is(); time.Sleep(20 * time.Millisecond) {
		select {
		case err := <-ended:
			t.Fatalf("the job ended: %v\n%s", err, errs.String())
		default:
		}
		if time.Now().After(end) {
			t.Fatalf("it takes too long\n%s", errs.String())
		}
	}
}

// checkGroupDollars checks that the parts of an attempt add up, and that it paid for more than one machine and
// for no more than all of its time on two.
func checkGroupDollars(t *testing.T, r view.Run) {
	t.Helper()
	a := r.Job.Attempts[0]
	if parts := a.UsefulUSD.Or(0) + a.RepeatedUSD.Or(0) + a.WaitingUSD.Or(0); parts != a.CostUSD.Or(-1) {
		t.Errorf("the attempt costs %s, and its parts %s", a.CostUSD, parts.Exact())
	}
	seconds := float64(a.EndedAt.Unix() - a.LaunchedAt.Unix())
	if cost := float64(a.CostUSD.Or(0)) / 1e9; cost <= seconds*1.80/3600 || cost > (2*seconds+4)*1.80/3600 {
		t.Errorf("two machines for %v s cost %s", seconds, a.CostUSD)
	}
	if a.RepeatedUSD.Or(0) <= 0 {
		t.Error("nothing was repeated")
	}
}
