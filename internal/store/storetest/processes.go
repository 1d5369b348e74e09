package storetest

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/action"
)

// Job is the work of a child process of the suite.
type Job struct {
	// Do is "admit", "climb", "freeze", "try", "import", "post" or
	// "hold".
	Do string
	// Worker numbers the processes of a test.
	Worker int
}

// capOfProcesses is the number of actions that the processes may admit together.
const capOfProcesses = 9

// Work runs a job after reading a line, and writes a line for each committed step.
func Work(ctx context.Context, b *Backend, job Job, in io.Reader, out io.Writer) error {
	fmt.Fprintln(out, "ready")
	if _, err := bufio.NewReader(in).ReadString('\n'); err != nil {
		return fmt.Errorf("wait for the start: %w", err)
	}
	switch job.Do {
	case "admit":
		return admitAll(ctx, b.Actions, job.Worker, out)
	case "climb":
		return climbForever(ctx, b.Actions, job.Worker, out)
	case "import":
		return importForever(ctx, b.Bills, out)
	case "post":
		return postAll(ctx, b.Ledger, job.Worker, out)
	case "hold":
		return reserveAll(ctx, b, job.Worker, out)
	case "freeze":
		if err := b.Actions.Freeze(ctx, action.Freeze{At: noon, By: "another process", Reason: "now"}); err != nil {
			return err
		}
		fmt.Fprintln(out, "frozen")
		return nil
	case "try":
		_, err := b.Actions.Admit(ctx, batch(fmt.Sprint("try-", job.Worker)))
		fmt.Fprintln(out, "frozen:", errors.Is(err, action.ErrFrozen))
		return nil
	}
	return fmt.Errorf("no such job: %q", job.Do)
}

// admitAll admits single items until the cap refuses.
func admitAll(ctx context.Context, s action.Store, worker int, out io.Writer) error {
	for i := range 2 * capOfProcesses {
		asked := batch(fmt.Sprintf("%d-%d", worker, i))
		asked.Limits.PerHour = capOfProcesses
		got, err := s.Admit(ctx, asked)
		if err != nil {
			return err
		}
		if got[0].Deferred != nil {
			return nil
		}
		fmt.Fprintln(out, "admitted")
	}
	return errors.New("no cap stopped it")
}

// climbForever moves items up the ladder in turn, and records each write.
func climbForever(ctx context.Context, s action.Store, worker int, out io.Writer) error {
	for i := 0; ; i++ {
		it := machine(fmt.Sprintf("%d-%d", worker, i))
		for _, phase := range []action.Phase{
			action.Observed, action.Warned, action.Acting, action.Confirming, action.Done,
		} {
			var err error
			if it.Phase = phase; phase == action.Acting {
				b := batch()
				b.Admissions = []action.Admission{{Item: intended(it), Entries: []action.Entry{entry("intent", it)}}}
				var admitted []action.AdmissionResult
				if admitted, err = s.Admit(ctx, b); err == nil {
					it = admitted[0].Item
				}
			} else {
				it, err = s.Save(ctx, it, entry(string(phase), it))
			}
			if err != nil {
				return err
			}
			fmt.Fprintln(out, it.ID, it.Version)
		}
	}
}

// process is a running child.
type process struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines *bufio.Scanner
}

// spawn starts a child that waits for begin.
func spawn(t *testing.T, b *Backend, job Job) *process {
	t.Helper()
	p := &process{cmd: b.Child(t, job)}
	p.cmd.Stderr = os.Stderr
	p.in = must(p.cmd.StdinPipe())(t)
	p.lines = bufio.NewScanner(must(p.cmd.StdoutPipe())(t))
	no(t, p.cmd.Start())
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it has usually ended
		_ = p.cmd.Wait()
	})
	if !p.lines.Scan() || p.lines.Text() != "ready" {
		t.Fatalf("a child said %q: %v", p.lines.Text(), p.lines.Err())
	}
	return p
}

// begin starts the child's work.
func (p *process) begin(t *testing.T) {
	t.Helper()
	_, err := io.WriteString(p.in, "go\n")
	no(t, err)
}

// rest returns the remaining lines of the child.
func (p *process) rest() []string {
	var out []string
	for p.lines.Scan() {
		out = append(out, p.lines.Text())
	}
	return out
}

var processes = []test{
	{"together never exceed a cap", func(t *testing.T, b *Backend) {
		var all []*process
		for worker := range 3 {
			all = append(all, spawn(t, b, Job{"admit", worker}))
		}
		for _, p := range all {
			p.begin(t)
		}
		admitted := 0
		for _, p := range all {
			admitted += len(p.rest())
			no(t, p.cmd.Wait())
		}
		if kept := len(must(b.Actions.Items(t.Context(), account, action.ItemQuery{}))(
			t)); admitted != capOfProcesses ||
			kept != capOfProcesses {
			t.Errorf("%d were admitted and %d are kept, want %d", admitted, kept, capOfProcesses)
		}
	}},
	{"see a freeze at once", func(t *testing.T, b *Backend) {
		frozen, try := spawn(t, b, Job{"freeze", 0}), spawn(t, b, Job{"try", 1})
		frozen.begin(t)
		if !frozen.lines.Scan() || frozen.lines.Text() != "frozen" {
			t.Fatalf("the child said %q", frozen.lines.Text())
		}
		if f := must(b.Actions.Frozen(t.Context()))(t); f == nil || f.By != "another process" {
			t.Errorf("this process sees %+v", f)
		}
		try.begin(t)
		if got := try.rest(); len(got) != 1 || got[0] != "frozen: true" {
			t.Errorf("a third process says %q", got)
		}
	}},
	{"killed in the middle leave all or nothing of each write", killed},
	{"posting the same rounds at once, some killed, come to one ledger", postedTogether},
	{"holding money at once, some killed, never exceed a budget", heldTogether},
	{"killed in the middle of an import leave the old period or the new one", killedImport},
}

// killed kills writers at random times while another continues, and checks that every confirmed
// write is stored completely, and that the survivors were not blocked.
func killed(t *testing.T, b *Backend) {
	told := map[string]int64{}
	read := func(p *process, n int) {
		t.Helper()
		for range n {
			if !p.lines.Scan() {
				t.Fatalf("a child ended: %v", p.lines.Err())
			}
			note(t, told, p.lines.Text())
		}
	}
	survivor := spawn(t, b, Job{"climb", 0})
	survivor.begin(t)
	for worker := 1; worker <= 6; worker++ {
		victim := spawn(t, b, Job{"climb", worker})
		victim.begin(t)
		read(victim, 3*worker)
		time.Sleep(time.Duration(worker*worker*137) * time.Microsecond) // during a write
		no(t, victim.cmd.Process.Kill())
		for _, line := range victim.rest() {
			note(t, told, line)
		}
		_ = victim.cmd.Wait() // it was killed
		read(survivor, 5)
	}
	no(t, survivor.cmd.Process.Kill())
	for _, line := range survivor.rest() {
		note(t, told, line)
	}
	_ = survivor.cmd.Wait() // it was killed

	after := b.Reopen(t)
	count := func() map[string]int64 {
		recorded := map[string]int64{}
		no(t, after.Actions.Entries(t.Context(), action.Query{}, func(e action.Entry) error {
			recorded[e.Item]++
			return nil
		}))
		return recorded
	}
	recorded := count()
	for id, version := range told {
		it := must(after.Actions.Item(t.Context(), id))(t)
		if it.Version < version {
			t.Errorf("item %s is at version %d; a writer was told %d", id, it.Version, version)
		}
	}
	for id, n := range recorded {
		it := must(after.Actions.Item(t.Context(), id))(t)
		if it.Version != n { // a server may have committed the last write of a killed client
			n = count()[id]
		}
		if it.Version != n {
			t.Errorf("item %s is at version %d with %d entries", id, it.Version, n)
		}
	}
	after.Check(t)
	must(after.Actions.Admit(t.Context(), batch("after")))(t)
}

// note records a confirmation of a writer. A line is one pipe write and thus never truncated.
func note(t *testing.T, told map[string]int64, line string) {
	t.Helper()
	var id string
	var version int64
	if _, err := fmt.Sscan(line, &id, &version); err != nil {
		t.Fatalf("a child said %q: %v", line, err)
	}
	told[id] = max(told[id], version)
}
