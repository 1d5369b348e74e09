package sessions_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"

	"github.com/curfew-dev/curfew/internal/view"
	"github.com/curfew-dev/curfew/test/ssmplugin"
)

// runner is a stand with the Session Manager plugin and the checkout of a pipeline.
type runner struct {
	*stand
	m    *machines
	work string // the checkout
}

func newRunner(t *testing.T) *runner {
	t.Helper()
	s := newStand(t, brief)
	r := &runner{s, s.host(), filepath.Join(s.dir, "checkout")}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(s.dir, "bin")
	for name, text := range map[string]string{
		"session-manager-plugin": asVariable + "=plugin exec '" + self + "' \"$@\"",
		"shell":                  "exec '" + r.m.dir + "'/\"$1\"/enter",
	} {
		r.file(filepath.Join(bin, name), "#!/bin/sh\n"+text+"\n", 0o755)
	}
	s.env = append(s.env, "PATH="+bin+":"+os.Getenv("PATH"), ssmplugin.VariableShell+"="+filepath.Join(bin, "shell"),
		ssmplugin.VariableLog+"="+filepath.Join(s.dir, "plugin.log"))
	s.account.Wire.Connections.Late(1) // a machine that has just started is not connected yet
	r.file(filepath.Join(r.work, "src", "in.txt"), "hello from the checkout\n", 0o644)
	r.file(filepath.Join(r.work, "big.pt"), "weights\n", 0o644)
	s.write("job.yaml", "apiVersion: curfew.session/v1\nname: job\nresources: {instance_type: "+machineType+
		"}\nlease: 1h\nidle: 5s\nenv: {GREETING: hi}\n")
	return r
}

func (r *runner) file(name, text string, mode os.FileMode) {
	r.t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		r.t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), mode); err != nil {
		r.t.Fatal(err)
	}
}

// ci starts curfew ci run with a shell command in a copy of the checkout, which also receives the
// artifacts.
func (r *runner) ci(t *testing.T, name, script string, flags ...string) (p *process, dir string) {
	t.Helper()
	dir = t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(r.work)); err != nil {
		t.Fatal(err)
	}
	args := append([]string{"ci", "run", "--name", name, "-f", "job.yaml", "--checkout", dir, "--exclude", "*.pt"},
		flags...)
	return r.start(append(args, "--", "sh", "-c", script)...), dir
}

// there returns a file of the work folder on the machine of a session; empty if it does not exist
// yet.
func (r *runner) there(name, file string) string {
	for _, run := range r.list() {
		if run.Name == name && len(run.ResourceIDs) == 1 {
			text, _ := os.ReadFile(filepath.Join(r.m.dir, run.ResourceIDs[0], "root", "work", file))
			return string(text)
		}
	}
	return ""
}

// ended checks the end of a run: its exit code, lines of its standard error, and that nothing is
// left of its session.
func (r *runner) ended(t *testing.T, p *process, name string, code int, says ...string) {
	t.Helper()
	if got := p.wait(t); got != code {
		t.Errorf("exit code %d, want %d", got, code)
	}
	for _, want := range says {
		if !strings.Contains(p.err.String(), want) {
			t.Errorf("it does not say %q", want)
		}
	}
	run := r.run(name)
	if run.EndedAt == nil {
		t.Errorf("its session did not end: %+v", run)
	}
	machines, rest := r.held()
	if left := append(machines[run.ID], rest[run.ID]...); len(left) > 0 {
		t.Errorf("EC2 still holds %v", left)
	}
	for _, c := range r.account.Wire.Connections.All() {
		if slices.Contains(run.ResourceIDs, c.Target) && c.Ended.IsZero() {
			t.Errorf("a connection is open: %+v", c)
		}
	}
	if t.Failed() {
		t.Logf("output:\n%s\nerrors:\n%s", p.out.String(), p.err.String())
	}
}

// cut kills the plugin of the newest SSH connection to the machine of a session.
func (r *runner) cut(t *testing.T, name string) {
	t.Helper()
	machine := r.run(name).ResourceIDs[0]
	id := ""
	for _, c := range r.account.Wire.Connections.All() {
		if c.Target == machine && c.Document == "AWS-StartSSHSession" {
			id = c.ID
		}
	}
	calls := ssmplugin.Calls(t, filepath.Join(r.dir, "plugin.log"))
	i := slices.IndexFunc(calls, func(c ssmplugin.Call) bool { return c.Response["SessionId"] == id })
	if i < 0 {
		t.Fatalf("no plugin has connection %q", id)
	}
	if err := syscall.Kill(calls[i].PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// TestPipelineOnAWS runs commands of a pipeline on separate AWS machines, with everything real
// except AWS and the stream: their files are present, outputs and exit codes are returned, and in
// all cases nothing is left.
func TestPipelineOnAWS(t *testing.T) {
	t.Parallel()
	r := newRunner(t)
	var all sync.WaitGroup // they mostly wait
	for name, run := range map[string]func(*testing.T, *runner, string){
		"passes": passes, "fails": fails, "cut": cutOff, "ended": endedByOther, "interrupted": interrupted,
		"taken": takenAway, "given-up": givenUp,
	} {
		all.Go(func() {
			t.Run(name, func(t *testing.T) {
				own := *r.stand
				own.t = t
				run(t, &runner{&own, r.m, r.work}, name)
			})
		})
	}
	all.Wait()
	r.nothingLeft()
	if left, _ := filepath.Glob(filepath.Join(r.data(), "connections", "*")); len(left) > 0 {
		t.Errorf("records of connections are left: %q", left)
	}
	if out, _ := r.curfew(0, "budget", "holds"); strings.Contains(out, "live") {
		t.Errorf("a hold is left:\n%s", out)
	}

	// Without the plugin nothing is started, and the error explains how to install it.
	r.account.Wire.Recorder.Reset()
	without := *r.stand
	without.env = append(slices.Clone(r.env), "PATH=/nowhere")
	_, errs := without.curfew(1, "ci", "run", "-f", "job.yaml", "--", "true")
	if !strings.Contains(errs, "the Session Manager plugin is not installed; install it: ") ||
		strings.Count(errs, "\n") != 1 || r.account.Wire.Recorder.Count("ec2:RunInstances") != 0 {
		t.Errorf("without the plugin: %s", errs)
	}
	// The same holds for credentials that could not connect to the machine.
	r.write("curfew.yaml",
		"identity: ana\naws: {regions: ["+region+
			"]}\nsessions: {cloud: aws, owner: AIDABENBENBENBEN, image: "+r.image+"}\n")
	if _, errs := r.curfew(4, "ci", "run", "-f", "job.yaml", "--", "true"); !strings.Contains(errs,
		"the machine would be of AIDABENBENBENBEN") || r.account.Wire.Recorder.Count("ec2:RunInstances") != 0 {
		t.Errorf("with another owner: %s", errs)
	}
}

// passes checks that the files are present except for excluded ones, both outputs are returned byte
// by byte, background processes are not waited for, and artifacts are returned.
func passes(t *testing.T, r *runner, name string) {
	p, dir := r.ci(t, name, `cat src/in.txt; ls; echo "$GREETING" >&2; printf '\001\377'; read line && exit 9
mkdir -p out/deep && cp src/in.txt out/deep/copy.txt && ln -s deep/copy.txt out/link; sleep 600 &
exit 0`, "--artifacts", "out")
	r.ended(t, p, name, 0, "ready", "ended")
	if got, want := p.out.String(), "hello from the checkout\nsrc\n\x01\xff"; got != want {
		t.Errorf("output %q, want %q", got, want)
	}
	if !strings.Contains(p.err.String(), "\nhi\n") {
		t.Errorf("its standard error is not there: %s", p.err.String())
	}
	text, err := os.ReadFile(filepath.Join(dir, "out", "link"))
	if err != nil || string(text) != "hello from the checkout\n" {
		t.Errorf("the artifact is %q, %v", text, err)
	}
	if run := r.run(name); run.Checkpoint != nil {
		t.Errorf("what no one asked for was saved: %+v", run.Checkpoint)
	}
}

// fails checks that the exit code is the command's, even after a signal, that its files are
// returned, and that others are named and saved.
func fails(t *testing.T, r *runner, name string) {
	p, dir := r.ci(t, name, `mkdir out; echo part >out/log.txt; ln -s /etc/passwd out/escape; kill -TERM $$`,
		"--artifacts", "out", "--artifacts", "nothing")
	r.ended(t, p, name, 128+int(syscall.SIGTERM), "the command left no nothing", "out/escape",
		"the work folder is saved: `curfew up "+name+"`", "the command ended with exit code 143")
	if text, err := os.ReadFile(filepath.Join(dir, "out", "log.txt")); err != nil || string(text) != "part\n" {
		t.Errorf("the artifact is %q, %v", text, err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "out", "escape")); err == nil {
		t.Error("a link that leads out of the folder came back")
	}
	// The session has the files again; another run with the name begins empty.
	r.curfew(0, "up", name, "-q")
	if got := r.there(name, "out/log.txt"); got != "part\n" {
		t.Errorf("the session that is started again has %q", got)
	}
	r.curfew(0, "down", name, "--discard", "-q")
	again, _ := r.ci(t, name, "test ! -e out")
	r.ended(t, again, name, 0)
}

// cutOff checks that a missing exit code is no success, and that the artifacts of that time are
// returned.
func cutOff(t *testing.T, r *runner, name string) {
	p, dir := r.ci(t, name, `echo began | tee began; sleep 20 & wait; exit 0`, "--artifacts", "began")
	r.eventually("the command runs", func() bool { return r.there(name, "began") != "" })
	r.cut(t, name)
	r.ended(t, p, name, 1,
		"whether the command succeeded is not known: the connection to the machine ended before the "+
			"command returned its exit code")
	if text, err := os.ReadFile(filepath.Join(dir, "began")); err != nil || string(text) != "began\n" ||
		p.out.String() != "began\n" {
		t.Errorf("the artifact is %q, %v; the output %q", text, err, p.out.String())
	}
}

// endedByOther checks that a session that ends before its command is no success and explains why.
func endedByOther(t *testing.T, r *runner, name string) {
	p, _ := r.ci(t, name, `echo began >began; sleep 600; exit 0`)
	r.eventually("the command runs", func() bool { return r.there(name, "began") != "" })
	r.curfew(0, "down", name, "--discard", "-q")
	r.ended(t, p, name, 1, "session "+name+" ended before the command did: asked for by ana")
}

// interrupted checks that the machine ends too.
func interrupted(t *testing.T, r *runner, name string) {
	p, _ := r.ci(t, name, `echo began >began; sleep 600`, "--artifacts", "began")
	r.eventually("the command runs", func() bool { return r.there(name, "began") != "" })
	if err := p.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if code := p.wait(t); code != 130 {
		t.Errorf("exit code %d\n%s", code, p.err.String())
	}
	r.eventually("its session has ended", func() bool { return r.run(name).EndedAt != nil })
	r.ended(t, p, name, 130)
}

// onSpot starts a run on a spot machine whose command counts its starts outside of the machine, and
// only ends at the second one.
func onSpot(t *testing.T, r *runner, name string, flags ...string) (p *process, dir string) {
	t.Helper()
	r.write("spot.yaml", "apiVersion: curfew.session/v1\nname: job\nresources: {instance_type: "+machineType+
		"}\ncapacity: spot\nlease: 1h\nidle: 5s\n")
	starts := filepath.Join(t.TempDir(), "starts")
	p, dir = r.ci(t, name, `echo start >>'`+starts+`'; ls; test "$(wc -l <'`+starts+`')" -ge 2 || { echo old >began; sleep 600; }
mkdir out; cp src/in.txt out`, append([]string{"-f", "spot.yaml", "--artifacts", "out"}, flags...)...)
	r.eventually("the command runs", func() bool { return r.there(name, "began") != "" })
	return p, dir
}

// take interrupts the machine of a session, as EC2 does with spot machines.
func (r *runner) take(t *testing.T, name string) (id string) {
	t.Helper()
	id = r.run(name).ResourceIDs[0]
	in := &ec2.TerminateInstancesInput{InstanceIds: []string{id}}
	if _, err := r.api.TerminateInstances(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	return id
}

// takenAway checks that the command of an interrupted spot machine starts again on another one,
// only with the checkout.
func takenAway(t *testing.T, r *runner, name string) {
	p, dir := onSpot(t, r, name, "--retries", "2")
	first := r.take(t, name)
	r.ended(t, p, name, 0, "is gone, and curfew did not end it; the command starts again (1 of 2)")
	if got, want := p.out.String(), "src\nsrc\n"; got != want {
		t.Errorf("the two machines held %q, want %q", got, want)
	}
	text, err := os.ReadFile(filepath.Join(dir, "out", "in.txt"))
	if err != nil || string(text) != "hello from the checkout\n" {
		t.Errorf("the artifact is %q, %v", text, err)
	}
	if run := r.run(name); slices.Contains(run.ResourceIDs, first) {
		t.Errorf("it ran on machine %s again", first)
	}
}

// givenUp checks that without a retry the run fails and explains why.
func givenUp(t *testing.T, r *runner, name string) {
	p, _ := onSpot(t, r, name, "--retries", "0")
	r.take(t, name)
	r.ended(t, p, name, 1, "session "+name+" ended before the command did: its machine is gone")
}

// TestKilledRunner kills every process of a runner including its keeper at several stages, and
// checks that the machine ends by itself once its lease is over.
func TestKilledRunner(t *testing.T) {
	if os.Getenv("CURFEW_SLOW") == "" {
		t.Skip("set CURFEW_SLOW=1 (make test-slow): it waits for leases")
	}
	t.Parallel()
	r := newRunner(t)
	r.write("job.yaml", "apiVersion: curfew.session/v1\nname: job\nresources: {instance_type: "+machineType+
		"}\nlease: 1m\n")
	for i, stage := range []func(name string) bool{
		func(name string) bool { return strings.Contains(fmt.Sprint(r.list("--all")), name) },
		func(name string) bool {
			return slices.ContainsFunc(r.list(), func(run view.Run) bool {
				return run.Name == name && len(run.ResourceIDs) > 0
			})
		},
		func(name string) bool { return r.there(name, "src/in.txt") != "" },
		func(name string) bool { return r.there(name, "began") != "" },
	} {
		name := fmt.Sprintf("killed-%d", i)
		p, _ := r.ci(t, name, "echo began >began; sleep 600")
		r.eventually("it is so far", func() bool { return stage(name) })
		r.kill()
		killed([]int{p.Process.Pid})
		<-p.done
		if bytes.Contains(p.err.Bytes(), []byte("did not become ready")) {
			t.Fatalf("stage %d: %s", i, p.err.String())
		}
		began := time.Now()
		r.eventually("its machine has ended", func() bool {
			machines, _ := r.held()
			return len(machines) == 0
		})
		t.Logf("stage %d: nothing runs after %s", i, time.Since(began).Round(time.Second))
	}
	// The keeper of the state cleans up the rest of the records.
	r.curfew(0, "down", "--all", "--discard")
	r.nothingLeft()
}
