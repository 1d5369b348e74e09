package agent

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/checkpoint"
	"github.com/curfew-dev/curfew/internal/objectstore"
	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/test/versitygw"
)

// programs writes executables that a setup runs.
func (w *world) programs(list map[string]string) {
	w.t.Helper()
	dir := filepath.Join(w.dir, "bin")
	must(w.t, os.MkdirAll(dir, 0o755))
	for name, script := range list {
		must(w.t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script), 0o755))
	}
	w.env = append(w.env, "PATH="+dir+":"+os.Getenv("PATH"))
}

// prepareFullSetup configures a session that uses every setup step.
func (w *world) prepareFullSetup() {
	t := w.t
	t.Helper()
	if !inMemory("/dev/shm") {
		t.Skip("no folder in memory here")
	}
	w.smi()(0, 0, 0)
	w.programs(map[string]string{
		"nvcc":    `echo "Cuda compilation tools, release 12.4, V12.4.131"`,
		"python3": `echo "PyTorch 2.5.1 12.4"`,
		"jupyter": `echo "$JUPYTER_TOKEN $*" >>"` + filepath.Join(w.dir, "jupyter") + `"; exec sleep 1000`,
	})
	w.config.SMI = "" // found on the PATH
	w.config.Host.GPUs = []string{"0"}
	w.config.Memory, w.config.Parameters = "/dev/shm", filepath.Join(w.dir, "parameters")
	must(t, os.WriteFile(w.config.Parameters, []byte(`{"/team/token": "it's secret"}`), 0o600))
	w.config.Host.Secrets = map[string]string{"TOKEN": "/team/token"}
	w.config.Host.Ports = []int{8888}
	data := filepath.Join(w.dir, "imagenet")
	must(t, os.MkdirAll(data, 0o755))
	must(t, os.WriteFile(filepath.Join(data, "image"), []byte("pixels"), 0o600))
	w.config.Host.Data = []string{"file://" + data}
	w.config.Host.Setup = `echo "$TOKEN" >token; cat ~/data/imagenet/image >image; cat old >copy; echo run >>runs`
	w.config.Host.Env = map[string]string{"HOME": w.config.Home}
	t.Cleanup(func() {
		_ = os.RemoveAll(filepath.Join("/dev/shm", fmt.Sprintf("curfew-%s-0", w.config.Host.Session)))
	})
	// An earlier start left a snapshot.
	old := filepath.Join(t.TempDir(), "old")
	must(t, os.MkdirAll(old, 0o755))
	must(t, os.WriteFile(filepath.Join(old, "old"), []byte("kept"), 0o600))
	s, err := objectstore.Open(t.Context(), workURL(&w.config.Host), objectstore.Options{})
	must(t, err)
	a, err := checkpoint.Run{Store: s, Now: time.Now}.Claim(t.Context(), "test")
	must(t, err)
	if _, err := a.Save(t.Context(), old, checkpoint.SaveOptions{}); err != nil {
		t.Fatal(err)
	}
}

// checkSetup checks the results of a full setup, however often it was killed.
func (w *world) checkSetup() {
	t := w.t
	t.Helper()
	for name, want := range map[string]string{
		"token": "it's secret\n", "image": "pixels", "copy": "kept", "runs": "run\n", "old": "kept",
	} {
		if data, err := os.ReadFile(w.path(name)); err != nil || string(data) != want {
			t.Errorf("%s has %q, %v, want %q", name, data, err, want)
		}
	}
	var st state
	data, err := os.ReadFile(filepath.Join(w.config.State, "state.json"))
	must(t, err)
	must(t, json.Unmarshal(data, &st))
	for _, s := range st.Steps {
		if s.State != "done" && (s.Name != "nodes" || s.State != "skipped") {
			t.Errorf("step %s is %s: %s", s.Name, s.State, s.Why)
		}
	}
	if strings.Contains(string(data), "it's secret") {
		t.Error("the secret is in the state")
	}
}

// TestBootstrapRunsStepsOnce also checks that secrets stay off the disk and that Jupyter listens on
// the loopback with a token.
func TestBootstrapRunsStepsOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.prepareFullSetup()
	w.config.Mode = "bootstrap"
	m := w.start()
	if err := m.wait(); err != nil {
		t.Fatal(err)
	}
	w.checkSetup()
	secrets := filepath.Join("/dev/shm", fmt.Sprintf("curfew-%s-0", w.config.Host.Session), "secrets.env")
	info, err := os.Stat(secrets)
	must(t, err)
	if info.Mode().Perm() != 0o600 {
		t.Errorf("the secrets have mode %o", info.Mode().Perm())
	}
	out, err := exec.Command("/bin/sh", "-c", `. "$0"; printf %s "$TOKEN"`, secrets).Output()
	if err != nil || string(out) != "it's secret" {
		t.Errorf("a shell reads %q, %v", out, err)
	}
	var called string
	await(t, "Jupyter started", func() bool {
		data, _ := os.ReadFile(filepath.Join(w.dir, "jupyter"))
		called = string(data)
		return called != ""
	})
	if ok, _ := regexp.MatchString(`^[0-9a-f]{32} lab --no-browser --ip=127\.0\.0\.1 --port=8888 `, called); !ok {
		t.Errorf("Jupyter was called as %q", called)
	}
	await(t, "sent", func() bool {
		return w.hasEvent("step", "driver 580.65.06, CUDA toolkit 12.4, PyTorch 2.5.1 for CUDA 12.4: they fit")
	})
	must(t, filepath.WalkDir(w.dir, func(at string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || at == w.config.Parameters || at == w.path("token") {
			return err
		}
		if data, err := os.ReadFile(at); err == nil && strings.Contains(string(data), "it's secret") {
			t.Errorf("the secret is in %s", at)
		}
		return nil
	}))
	// A second run repeats nothing, and Jupyter keeps running.
	if err := w.start().wait(); err != nil {
		t.Fatal(err)
	}
	w.checkSetup()
	if data, _ := os.ReadFile(filepath.Join(w.dir, "jupyter")); string(data) != called {
		t.Errorf("Jupyter was started again: %q", data)
	}
}

// TestBootstrapKilledAtEveryStep kills the agent at every step, with all of its processes as in a
// machine reset, and runs it again.
func TestBootstrapKilledAtEveryStep(t *testing.T) {
	t.Parallel()
	steps := []string{"driver", "work", "secrets", "data", "jupyter", "setup"}
	if os.Getenv("CURFEW_SLOW") == "" {
		steps = []string{"work", "setup"}
	}
	if out, err := exec.Command("unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--mount-proc",
		"true").CombinedOutput(); err != nil {
		t.Skipf("no name spaces here: %v: %s", err, out)
	}
	for _, step := range steps {
		for _, at := range []string{"running", "done"} {
			t.Run(step+" "+at, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t)
				w.prepareFullSetup()
				w.config.Mode = "bootstrap"
				w.config.KillAt = "step: " + step + ": " + at
				if out, err := w.unshared(); err == nil {
					t.Fatalf("it was not killed:\n%s", out)
				}
				w.config.KillAt = ""
				if out, err := w.unshared(); err != nil {
					t.Fatalf("run again: %v\n%s", err, out)
				}
				w.checkSetup()
			})
		}
	}
}

// unshared runs the agent in new namespaces: its processes end with it, its memory folder is empty,
// and it can write only to the world's folder.
func (w *world) unshared() (string, error) {
	w.t.Helper()
	text, err := json.Marshal(w.config)
	must(w.t, err)
	self, err := os.Executable()
	must(w.t, err)
	root := filepath.Join(w.dir, "root")
	script := `set -e
mount -t tmpfs tmpfs "$ROOT"
for d in bin sbin lib lib64 usr etc; do
	if [ -L "/$d" ]; then ln -s "$(readlink "/$d")" "$ROOT/$d"
	elif [ -d "/$d" ]; then mkdir "$ROOT/$d"; mount --rbind "/$d" "$ROOT/$d"; fi
done
mkdir -p "$ROOT/proc" "$ROOT/dev" "$ROOT/tmp" "$ROOT/sys" "$ROOT$WORLD"
mount --rbind /dev "$ROOT/dev"
mount -t tmpfs tmpfs "$ROOT/dev/shm"
mount -t proc proc "$ROOT/proc"
mount --bind "$WORLD" "$ROOT$WORLD"
cp "$SELF" "$ROOT/tmp/agent"
chroot "$ROOT" /tmp/agent
`
	must(w.t, os.MkdirAll(root, 0o755))
	c := exec.Command("unshare", "--user", "--map-root-user", "--mount", "--pid", "--fork", "--kill-child", "/bin/sh",
		"-c", script)
	c.Env = append(w.env, "ROOT="+root, "WORLD="+w.dir, "SELF="+self, "AGENT_RECIPE="+string(text))
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := c.CombinedOutput()
	return string(out), err
}

func TestStepTimesOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.config.Paces.StepTimeout = time.Second
	w.config.Host.Setup = "echo waiting; sleep 1000"
	w.start()
	w.awaitPhase(session.HostFailed)
	if why := w.status(0).Why; !strings.Contains(why, "setup: it took longer than 1s") {
		t.Errorf("why: %q", why)
	}
	await(t, "ended", func() bool { left, err := w.cage().Processes(); return err == nil && len(left) == 0 })
}

// TestSetupSurvivesAgentRestart checks that a setup command survives the agent and is not run
// twice.
func TestSetupSurvivesAgentRestart(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	gate := filepath.Join(w.dir, "gate")
	w.config.Host.Setup = `echo run >>runs; echo first; while ! [ -e "` + gate + `" ]; do sleep 0.05; done; echo last`
	m := w.start()
	await(t, "under way", func() bool { return w.hasEvent("output", "first") })
	m.kill()
	w.start()
	await(t, "resumed", func() bool { return w.hasEvent("resumed", "") })
	must(t, os.WriteFile(gate, nil, 0o600))
	w.awaitPhase(session.HostReady)
	await(t, "told", func() bool { return w.hasEvent("output", "last") })
	if data, err := os.ReadFile(w.path("runs")); err != nil || string(data) != "run\n" {
		t.Errorf("it ran as %q, %v", data, err)
	}
}

// TestOutputIsKeptWhole checks that each line of a setup and of a command that print megabytes at once is
// sent, also what is printed between two looks just before their end: the first MiB as events, the rest in parts.
func TestOutputIsKeptWhole(t *testing.T) {
	t.Parallel()
	const lines = 100_000
	w := commandWorld(t, fmt.Sprintf(`seq -f "command line %%.0f" %d`, lines))
	w.config.Host.Setup = fmt.Sprintf(`seq -f "setup line %%.0f" %d`, lines)
	w.start()
	if o := w.outcome(); o.Class != session.Succeeded {
		t.Fatalf("%s: %s", o.Class, o.Evidence)
	}
	w.awaitPhase(session.HostEnding)
	var printed strings.Builder
	events := 0
	for _, e := range w.events() {
		switch e.Kind {
		case "output":
			events += len(e.Text)
			fmt.Fprintln(&printed, e.Text)
		case session.OutputPart:
			n, err := strconv.ParseInt(e.Text, 10, 64)
			must(t, err)
			part, err := w.store().Get(t.Context(), session.OutputKey(0, n), 4<<20)
			must(t, err)
			text, err := session.UnpackOutput(part.Data)
			must(t, err)
			printed.Write(text)
		}
	}
	if events > 1<<20 {
		t.Errorf("%d bytes of output were sent as events", events)
	}
	for _, of := range []string{"setup", "command"} {
		got := slices.DeleteFunc(strings.Split(printed.String(), "\n"), func(line string) bool {
			return !strings.HasPrefix(line, of+" line ")
		})
		for i, line := range got {
			if want := fmt.Sprintf("%s line %d", of, i+1); line != want {
				t.Fatalf("%q is sent where %q was printed", line, want)
			}
		}
		if len(got) != lines {
			t.Errorf("%d of %d lines of the %s were sent", len(got), lines, of)
		}
	}
}

func TestRestoreKeepsFiles(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.config.Host.Setup = "echo from the snapshot >a; echo kept >b"
	m := w.start()
	w.awaitPhase(session.HostReady)
	w.order(func(o *session.Order) { o.End = &session.End{Why: "done", By: "bo"} })
	if err := m.wait(); err != nil {
		t.Fatal(err)
	}
	must(t, os.Remove(w.path("b")))
	w.write("a", "newer")
	w.config.State, w.config.Host.Epoch, w.config.Host.Setup, w.serial = filepath.Join(w.dir, "state2"), 2, "", 0
	must(t, os.RemoveAll(filepath.Join(w.dir, "control")))
	w.version, w.keeperStore = "", nil
	w.start()
	w.awaitPhase(session.HostReady)
	await(t, "said", func() bool { return w.hasEvent("step", "has files, which stay as they are") })
	if data, err := os.ReadFile(w.path("a")); err != nil || string(data) != "newer" {
		t.Errorf("a has %q, %v", data, err)
	}
}

// TestRefusesRolledBackStore checks that nothing is restored from a store that is older than the
// snapshot known to the keeper, or was emptied.
func TestRefusesRolledBackStore(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	m := w.start()
	w.awaitPhase(session.HostReady)
	store, older := filepath.Join(w.dir, "work"), filepath.Join(w.t.TempDir(), "older")
	save := func(number int64, text string) {
		w.write("file", text)
		w.order(func(o *session.Order) { o.SaveRequest = number })
		await(t, "saved", func() bool { return w.status(0).AnsweredSave == number })
	}
	save(1, "first")
	must(t, os.CopyFS(older, os.DirFS(store)))
	save(2, "second")
	w.order(func(o *session.Order) { o.SaveRequest, o.End = 2, &session.End{Why: "done", By: "bo"} })
	if err := m.wait(); err != nil {
		t.Fatal(err)
	}
	w.config.Host.NewestSnapshot = w.status(0).Snapshot.Manifest

	for i, c := range []struct {
		name  string
		setUp func()
		why   string
	}{
		{"as it was", func() {}, ""},
		{"set back", func() {
			must(t, os.RemoveAll(store))
			must(t, os.CopyFS(store, os.DirFS(older)))
		}, "the run was set back"},
		{"emptied", func() { must(t, os.RemoveAll(store)) }, "the run was set back"},
	} {
		w.useNewMachine(int64(i) + 2)
		c.setUp()
		m := w.start()
		want := session.HostReady
		if c.why != "" {
			want = session.HostFailed
		}
		w.awaitPhase(want)
		got, err := os.ReadFile(w.path("file"))
		if why := w.status(0).Why; !strings.Contains(why, c.why) || c.why == "" &&
			string(got) != "second" || c.why != "" &&
			err == nil {
			t.Errorf("%s: %q, the file has %q", c.name, why, got)
		}
		if m.isRunning() {
			m.kill()
		}
	}
}

// TestNodesAreJudgedTogether checks that nodes learn each other's addresses, get the files for
// torchrun and MPI, and do not end while another node works.
func TestNodesAreJudgedTogether(t *testing.T) {
	t.Parallel()
	first := newWorld(t)
	// A node is unknown after three samples without measurement, so a sample has to be longer than
	// delays on a busy machine.
	idle := 6 * time.Second
	first.config.Paces.Sample = 3 * time.Second
	first.config.Host.Nodes, first.config.Host.IdleTimeout, first.config.Host.Grace = 2, session.Duration(
		idle), session.Duration(
		500*time.Millisecond)
	first.config.Address = "10.0.0.1"
	first.config.Host.Setup = "env >env"
	second := *first
	second.config.Host.Node, second.config.Address = 1, "10.0.0.2"
	second.config.State, second.config.Home = filepath.Join(first.dir, "state-1"), filepath.Join(first.dir, "home-1")
	a, b := first.start(), second.start()
	await(t, "both with addresses", func() bool {
		return first.status(0).Address == "10.0.0.1" && first.status(1).Address == "10.0.0.2"
	})
	if p := first.phase(); p != session.HostStarting {
		t.Errorf("without its peers: %s", p)
	}
	spin := second.spawn("while :; do :; done")
	first.order(func(o *session.Order) { o.Peers = []string{"10.0.0.1", "10.0.0.2"} })
	first.awaitPhase(session.HostReady)
	second.awaitPhase(session.HostReady)
	env, err := os.ReadFile(second.path("env"))
	must(t, err)
	for _, want := range []string{
		"MASTER_ADDR=10.0.0.1", "NODE_RANK=1", "NNODES=2", "PET_NODE_RANK=1", "PET_NPROC_PER_NODE=1",
		"OMPI_MCA_orte_default_hostfile=", "CURFEW_NODE=1",
	} {
		if !strings.Contains(string(env), want) {
			t.Errorf("no %s in:\n%s", want, env)
		}
	}
	if hosts, err := os.ReadFile(filepath.Join(second.config.State, "hostfile")); err != nil ||
		string(hosts) != "10.0.0.1 slots=1\n10.0.0.2 slots=1\n" {
		t.Errorf("hostfile %q, %v", hosts, err)
	}
	await(t, "one at rest and one at work", func() bool {
		return first.status(0).Activity == "idle" && first.status(1).Activity == "busy"
	})
	rests := first.status(0).At
	await(t, "at rest for longer than a machine alone may be", func() bool {
		s := first.status(0)
		return s.Activity == "idle" && s.At.Sub(rests) > idle+time.Second
	})
	if s := first.status(0); s.Phase != session.HostReady || !a.isRunning() {
		t.Errorf("node 0 rests and node 1 works: %+v", s)
	}
	must(t, spin.Process.Kill())
	if err := errors.Join(a.wait(), b.wait()); err != nil {
		t.Fatal(err)
	}
}

// TestOverS3 repeats saving and restoring with control documents and snapshots in S3.
func TestOverS3(t *testing.T) {
	skipUnlessSlow(t)
	s := versitygw.Start(t)
	s.Use(t)
	w := newWorld(t)
	w.env = os.Environ()
	w.config.Host.Control, w.config.Host.Work = "s3://"+versitygw.Bucket+"/control", "s3://"+versitygw.Bucket+"/work"
	w.config.Host.IdleTimeout = short
	w.config.Host.Setup = "echo kept >file"
	m := w.start()
	if err := m.wait(); err != nil {
		t.Fatal(err)
	}
	w.checkEventOrder("ready", "idle", "warned", "snapshot: snapshot confirmed", "ended")
	if got := w.restoredFile("file"); got != "kept\n" || w.phase() != session.HostEnding {
		t.Errorf("the snapshot has %q, in phase %s", got, w.phase())
	}
}

func TestChecksDriverAgainstCUDA(t *testing.T) {
	for _, c := range []struct {
		cuda, driver string
		fits         bool
	}{
		{"12.4", "550.54.14", true}, {"12.4", "525.60.13", true}, {"12.4", "470.82.01", false},
		{"12.8", "580.65.06", true},
		{"13.0", "580.65.06", true}, {"13.0", "570.86.15", false}, {"11.8", "450.80.02", true},
		{"11.8", "450.36.06", false},
		{"14.0", "999.0", false}, {"10.2", "550.54.14", false}, {"12.x", "550.54.14", false}, {"12.4", "N/A", false},
	} {
		if err := checkDriver(c.cuda, c.driver); (err == nil) != c.fits {
			t.Errorf("CUDA %s with driver %s: %v, want it to fit: %t", c.cuda, c.driver, err, c.fits)
		}
	}
	for _, d := range cudaDrivers {
		if _, err := time.Parse(time.DateOnly, d.readOn); err != nil ||
			!strings.HasPrefix(d.source, "https://docs.nvidia.com/") {
			t.Errorf("CUDA %d: source %q of %q", d.cudaMajor, d.source, d.readOn)
		}
	}
}

func TestRefusesSecretsOnDisk(t *testing.T) {
	dir := t.TempDir()
	if inMemory(dir) {
		t.Skip("temporary folders are in memory here")
	}
	b := &bootstrap{
		options: &Options{
			Host: session.HostConfig{Session: "s", Secrets: map[string]string{"A": "b"}}, Memory: dir,
			Parameters: countingParameters{},
			Now:        time.Now,
		},
	}
	if err := b.readSecrets(context.Background()); err == nil ||
		!strings.Contains(err.Error(), "no folder in memory") {
		t.Errorf("got %v", err)
	}
	if list, _ := os.ReadDir(dir); len(list) > 0 {
		t.Errorf("%v was written", list)
	}
}
