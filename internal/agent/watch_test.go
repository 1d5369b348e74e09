package agent

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/curfew-dev/curfew/internal/durable"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/session"
	"github.com/curfew-dev/curfew/internal/usage"
)

// pty is a pseudo-terminal with a reader.
type pty struct {
	*os.File
	path string
	mu   sync.Mutex
	read bytes.Buffer
}

func newPTY(t *testing.T) *pty {
	t.Helper()
	f, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		t.Skip("no terminals here:", err)
	}
	t.Cleanup(func() { f.Close() })
	fd := int(f.Fd())
	must(t, unix.SetNonblock(fd, true))
	must(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	must(t, err)
	p := &pty{File: f, path: "/dev/pts/" + strconv.Itoa(n)}
	go func() {
		buffer := make([]byte, 4096)
		for {
			n, err := unix.Read(fd, buffer)
			if err == unix.EAGAIN || err == unix.EINTR || err == unix.EIO { // EIO: no one has opened it yet
				time.Sleep(10 * time.Millisecond)
				continue
			}
			if err != nil || n == 0 {
				return
			}
			p.mu.Lock()
			p.read.Write(buffer[:n])
			p.mu.Unlock()
		}
	}()
	return p
}

func (p *pty) text() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.read.String()
}

// shell starts a session shell on the terminal.
func (p *pty) shell(w *world) *exec.Cmd {
	w.t.Helper()
	f, err := os.OpenFile(p.path, os.O_RDWR|unix.O_NOCTTY, 0)
	must(w.t, err)
	defer f.Close()
	c := exec.Command("/bin/sh")
	c.Env = os.Environ()
	c.Stdin, c.Stdout, c.Stderr = f, f, f
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	must(w.t, w.cage().Start(w.t.Context(), c))
	go func() { _ = c.Wait() }()
	return c
}

// TestOpenTerminalsDoNotCountAsWork checks that an open terminal and an open tunnel do not prevent
// the idle end, that the terminal shows the warning, and that both are recorded.
func TestOpenTerminalsDoNotCountAsWork(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			defer c.Close()
		}
	}()
	w.config.Host.Ports = []int{l.Addr().(*net.TCPAddr).Port}
	w.config.Host.IdleTimeout, w.config.Host.Grace = session.Duration(2*time.Second), session.Duration(2*time.Second)
	term := newPTY(t)
	m := w.start()
	w.awaitPhase(session.HostReady)
	term.shell(w)
	tunnel, err := net.Dial("tcp", l.Addr().String())
	must(t, err)
	defer tunnel.Close()
	await(t, "recorded", func() bool {
		s := w.status(0)
		kinds := ""
		for _, c := range s.Connections {
			kinds += c.Kind + " "
		}
		return s.Terminals == 1 && strings.Contains(kinds, "shell") && strings.Contains(kinds, "port")
	})
	w.awaitPhase(session.HostEnding)
	if err := m.wait(); err != nil {
		t.Fatal(err)
	}
	await(t, "the terminal has the last line", func() bool {
		return strings.Contains(term.text(), "the session ended")
	})
	text := term.text()
	for _, want := range []string{"this session rests for", "curfew extend demo", "the session ended"} {
		if !strings.Contains(text, want) {
			t.Errorf("the terminal has %q, without %q", text, want)
		}
	}
	if !w.hasEvent("warned", "1 terminal notified") || !w.hasEvent("connection", "shell from "+term.path+" is open") ||
		!w.hasEvent("connection", "port from "+tunnel.LocalAddr().String()+" is open") {
		t.Errorf("events: %v", w.events())
	}
}

// smi writes an nvidia-smi that prints the content of a file.
func (w *world) smi() (set func(utilization, memory, processes int)) {
	w.t.Helper()
	dir := filepath.Join(w.dir, "bin")
	must(w.t, os.MkdirAll(dir, 0o755))
	state := filepath.Join(w.dir, "gpu")
	script := `#!/bin/sh
. "` + state + `" || exit 9
case "$1" in
--query-gpu=driver_version*) echo 580.65.06 ;;
--query-gpu=*) echo "0, GPU-aaaa, $u, $m, 23034, 50.5"; echo "1, GPU-bbbb, 97, 20000, 23034, [N/A]" ;;
--query-compute-apps=*) i=0; while [ $i -lt $p ]; do echo "GPU-aaaa, $i"; i=$((i+1)); done; echo "GPU-bbbb, 77" ;;
esac
`
	w.config.SMI = filepath.Join(dir, "nvidia-smi")
	must(w.t, os.WriteFile(w.config.SMI, []byte(script), 0o755))
	w.env = append(w.env, "PATH="+dir+":"+os.Getenv("PATH"))
	return func(u, m, p int) {
		w.t.Helper()
		must(w.t, durable.ReplaceBytes(state, 0o600, fmt.Appendf(nil, "u=%d m=%d p=%d\n", u, m, p)))
	}
}

// TestJudgesOwnGPUs checks that only the session's GPUs count: busy ones keep it, held ones let it
// end, and unreadable ones are never idle.
func TestJudgesOwnGPUs(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	set := w.smi()
	set(80, 9000, 1)
	w.config.Host.GPUs, w.config.Host.IdleTimeout, w.config.Host.Grace = []string{
		"0",
	}, short, session.Duration(time.Hour)
	w.start()
	await(t, "busy", func() bool { s := w.status(0); return s.Phase == session.HostReady && s.Activity == "busy" })
	must(t, os.Rename(filepath.Join(w.dir, "gpu"), filepath.Join(w.dir, "gpu.away")))
	await(t, "unknown", func() bool { return w.status(0).Activity == "unknown" })
	time.Sleep(3 * time.Second)
	if p := w.phase(); p != session.HostReady {
		t.Errorf("unknown, and in phase %s", p)
	}
	set(0, 9000, 1)
	await(t, "held", func() bool { return w.status(0).Activity == "held" })
	w.awaitPhase(session.HostWarned)
	set(60, 9000, 1)
	await(t, "put back", func() bool { s := w.status(0); return s.Phase == session.HostReady && s.Activity == "busy" })
}

// addMeasurements adds n measurements a second apart to a tracker.
func addMeasurements(w *activityTracker, at *time.Time, n int, m measurement) duty.Verdict {
	for range n {
		*at = at.Add(time.Second)
		look := m // the tracker keeps a pointer
		w.add(*at, time.Second, &look, 1)
	}
	return w.verdict(*at)
}

func TestActivityVerdicts(t *testing.T) {
	gpu := func(util, mem, processes float64) []GPU {
		return []GPU{
			{
				"0", "GPU-a",
				map[usage.Signal]float64{
					usage.GPUUtil: util, usage.MemUsed: mem * 1e9, usage.MemTotal: 24e9, usage.Processes: processes,
				},
			},
		}
	}
	quiet := measurement{cpu: 1, net: 10, disk: 0}
	with := func(change func(*measurement)) measurement { m := quiet; change(&m); return m }
	for _, c := range []struct {
		name string
		gpus inventory.Fact[int]
		m    measurement
		want duty.State
	}{
		{"no GPUs, no activity", inventory.Known(0), with(func(m *measurement) { m.noGPUs = true }), duty.Idle},
		{"busy CPUs", inventory.Known(0), with(func(m *measurement) { m.noGPUs, m.cpu = true, 60 }), duty.Busy},
		{"download", inventory.Known(0), with(func(m *measurement) { m.noGPUs, m.net = true, 20e6 }), duty.Busy},
		{
			"little traffic", inventory.Known(0), with(func(m *measurement) { m.noGPUs, m.net = true, 500e3 }),
			duty.Unknown,
		},
		{
			"traffic that is not measured", inventory.Known(0), with(func(m *measurement) {
				m.noGPUs, m.net = true, -1
			}),
			duty.Unknown,
		},
		{
			"someone types", inventory.Known(0), with(func(m *measurement) { m.noGPUs, m.typedTerminals = true, 1 }),
			duty.Held,
		},
		{"busy GPU", inventory.Known(1), with(func(m *measurement) { m.gpus = gpu(70, 10, 1) }), duty.Busy},
		{"held GPU", inventory.Known(1), with(func(m *measurement) { m.gpus = gpu(0, 10, 1) }), duty.Held},
		{"idle GPU", inventory.Known(1), with(func(m *measurement) { m.gpus = gpu(0, 0, 0) }), duty.Idle},
		{
			"held GPU, busy CPUs", inventory.Known(1),
			with(func(m *measurement) { m.gpus, m.cpu = gpu(0, 10, 1), 60 }), duty.Busy,
		},
		{
			"idle GPU, busy CPUs", inventory.Known(1),
			with(func(m *measurement) { m.gpus, m.cpu = gpu(0, 0, 0), 60 }), duty.Busy,
		},
		{
			"unreadable GPU", inventory.Fact[int]{}, with(func(m *measurement) { m.gpuErr = os.ErrPermission }),
			duty.Unknown,
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newActivityTracker(time.Second, time.Minute, c.gpus)
			at := time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC)
			v := addMeasurements(w, &at, 120, c.m)
			if v.State != c.want {
				t.Errorf("got %s (%s), want %s", v.State, v.Why, c.want)
			}
			if rest := at.Sub(v.Since); (v.State == duty.Idle || v.State == duty.Held) &&
				(rest < 110*time.Second || rest > 121*time.Second) {
				t.Errorf("it rests for %s, want 2m", rest)
			}
			// A signal that is no longer measured becomes unknown.
			if v := w.verdict(at.Add(10 * time.Second)); v.State != duty.Unknown {
				t.Errorf("10 s later, without a look: %s", v.State)
			}
		})
	}
}

// TestLateMeasurements checks that a late measurement covers the time before it, unless the machine
// slept.
func TestLateMeasurements(t *testing.T) {
	m := measurement{cpu: 1, net: 0, disk: 0, noGPUs: true}
	at := time.Date(2026, 11, 23, 9, 0, 0, 0, time.UTC)
	began := at
	w := newActivityTracker(time.Second, time.Minute, inventory.Known(0))
	for _, late := range []time.Duration{
		1400, 1000, 1700, 3300, 20000, 1000, 45500, 1300, 1300, 1300, 1300, 1300, 1300, 1300,
		1300, 1300, 1300, 1300, 1300,
		1300, 1300, 1300,
	} {
		at = at.Add(late * time.Millisecond)
		look := m
		w.add(at, late*time.Millisecond, &look, 0)
	}
	if v := w.verdict(at); v.State != duty.Idle || v.Since.Sub(began) > 2*time.Second {
		t.Errorf("%s since %s, want idle since %s: %s", v.State, v.Since, began, v.Why)
	}
	at = at.Add(time.Hour)
	w.add(at, time.Hour, &m, 0)
	if v := w.verdict(at); v.State == duty.Idle && at.Sub(v.Since) > 2*time.Second {
		t.Errorf("after an hour without a look it is idle since %s", v.Since)
	}
}

// TestCPUPercent checks that CPU time of ended children counts once, and that one busy thread
// counts on any machine.
func TestCPUPercent(t *testing.T) {
	s := &sampler{}
	p := func(pid, parent int, began uint64, cpu time.Duration) process {
		return process{pid: pid, parent: parent, startTicks: began, cpuTime: cpu}
	}
	of := func(list ...process) map[int]process {
		m := map[int]process{}
		for _, p := range list {
			m[p.pid] = p
		}
		return m
	}
	look := func(now map[int]process) float64 {
		v := s.cpuPercent(now, 10*time.Second)
		s.lastProcesses = now
		return v
	}
	look(of(p(1, 0, 1, 0), p(2, 1, 5, time.Hour)))
	// The child ends after an hour of work and 100 ms more, and its parent inherits its time.
	if got := look(of(p(1, 0, 1, time.Hour+100*time.Millisecond))); got < 0.9 || got > 1.1 {
		t.Errorf("got %g%%, want 1%%", got)
	}
	// One busy thread, and a reused PID.
	if got := look(of(p(1, 0, 1, time.Hour+100*time.Millisecond), p(2, 1, 9, 8*time.Second))); got < 79 || got > 81 {
		t.Errorf("got %g%%, want 80%%", got)
	}
}

func TestParseStat(t *testing.T) {
	p, err := parseStat([]byte("41 (a) b) (c) S 7 41 40 34817 41 4194304 1 2 3 4 150 50 25 25 20 0 1 0 987654 1 2 3"))
	want := process{
		name: "a) b) (c", state: 'S', parent: 7, session: 40, tty: 34817, startTicks: 987654,
		cpuTime: 2500 * time.Millisecond,
	}
	if err != nil || !reflect.DeepEqual(p, want) {
		t.Errorf("got %+v, %v, want %+v", p, err, want)
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("41 (a) b) (c) S 7 41 40 34817 41 4194304 1 2 3 4 150 50 25 25 20 0 1 0 987654 1 2 3"))
	f.Add([]byte("1 (x"))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := parseStat(data)
		if err == nil && (p.cpuTime < 0 || p.parent < 0) {
			t.Errorf("%q: %+v", data, p)
		}
	})
}

func TestParseSMI(t *testing.T) {
	got, err := parseSMI([][]string{{"0", "GPU-a", "37", "1024", "23034", "[N/A]"}},
		[][]string{{"GPU-a", "1"}, {"GPU-a", "2"}})
	if err != nil || len(got) != 1 {
		t.Fatal(got, err)
	}
	for s, want := range map[usage.Signal]float64{usage.GPUUtil: 37, usage.MemUsed: 1 << 30, usage.Processes: 2} {
		if v, ok := got[0].Signals[s]; !ok || v != want {
			t.Errorf("%s: got %g, %t, want %g", s, v, ok, want)
		}
	}
	if _, ok := got[0].Signals[usage.Power]; ok {
		t.Error("power was not measured")
	}
	for name, rows := range map[string][][]string{"none": nil, "short": {{"0", "GPU-a"}}} {
		if _, err := parseSMI(rows, nil); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}

// TestReadsConnectionBytes compares the kernel's counters with the bytes that were sent.
func TestReadsConnectionBytes(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer l.Close()
	c, err := net.Dial("tcp", l.Addr().String())
	must(t, err)
	defer c.Close()
	peer, err := l.Accept()
	must(t, err)
	defer peer.Close()
	const size = 300_000
	go func() { _, _ = c.Write(make([]byte, size)) }()
	for n := 0; n < size; {
		k, err := peer.Read(make([]byte, 64<<10))
		must(t, err)
		n += k
	}
	own := map[uint32]bool{}
	for _, i := range sockets(os.Getpid()) {
		own[i] = true
	}
	list, err := connections()
	if err != nil {
		t.Skip("the kernel does not tell:", err)
	}
	found := false
	for _, s := range list {
		if s.local.String() == peer.LocalAddr().String() && s.peer.String() == c.LocalAddr().String() {
			found = true
			if s.bytes < size || s.bytes > size+1000 || !own[s.inode] {
				t.Errorf("got %+v, own: %t", s, own[s.inode])
			}
		}
	}
	if !found {
		t.Errorf("the connection is not among %d", len(list))
	}
}
