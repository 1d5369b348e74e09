package agent

import (
	"os"
	"os/exec"
	"testing"
	"time"
)

// onePID is a cage with one process.
type onePID struct {
	Cage
	pid int
}

func (c onePID) Processes() ([]int, error) { return []int{c.pid}, nil }

// spin starts an endless loop on the first CPU with a priority.
func spin(t *testing.T, nice string) int {
	t.Helper()
	c := exec.Command("taskset", "-c", "0", "nice", "-n", nice, "sh", "-c", "while :; do :; done")
	if err := c.Start(); err != nil {
		t.Skip("no loop with a priority here:", err)
	}
	t.Cleanup(func() { _ = c.Process.Kill(); _ = c.Wait() })
	return c.Process.Pid
}

// TestStarvedProcessIsAtWork runs a loop that yields to two others on its CPU.
func TestStarvedProcessIsAtWork(t *testing.T) {
	if data, err := os.ReadFile("/proc/self/schedstat"); err != nil || len(data) < 5 {
		t.Skip("the kernel does not account for waits")
	}
	spin(t, "0")
	spin(t, "0")
	pid := spin(t, "19")
	up := func() (string, time.Duration) {
		data, _ := os.ReadFile("/proc/uptime")
		var s float64
		for i, b := range data {
			if b == ' ' {
				d, err := time.ParseDuration(string(data[:i]) + "s")
				if err != nil {
					t.Fatal(err)
				}
				s = d.Seconds()
				break
			}
		}
		return "", time.Duration(s * float64(time.Second))
	}
	s := &sampler{options: &Options{Cage: onePID{pid: pid}, Uptime: up, Now: time.Now}}
	time.Sleep(200 * time.Millisecond) // for taskset and nice to become the loop
	s.measure(t.Context())
	time.Sleep(3 * time.Second)
	m, ok := s.measure(t.Context())
	p, err := readProcess(pid)
	if err != nil || !ok {
		t.Fatal(ok, err)
	}
	if m.cpu < 60 {
		t.Errorf("a starved loop counts as %.1f%% of a CPU (%v)", m.cpu, p.waits)
	}
}

func TestCountsWaitsOfStarvedThreadsAlone(t *testing.T) {
	const step = 10 * time.Second
	for name, tc := range map[string]struct {
		before, now process
		want        time.Duration
	}{
		"runnable all the time": {
			process{startTicks: 1, waits: map[int]threadTime{7: {time.Second, time.Second}}},
			process{startTicks: 1, waits: map[int]threadTime{7: {2 * time.Second, 10 * time.Second}}}, 9 * time.Second,
		},
		"wakes up often for little": {
			process{startTicks: 1, waits: map[int]threadTime{7: {}}},
			process{startTicks: 1, waits: map[int]threadTime{7: {100 * time.Millisecond, 4 * time.Second}}}, 0,
		},
		"short and new": {
			process{}, process{
				startTicks: 9, age: 2 * time.Second,
				waits: map[int]threadTime{8: {100 * time.Millisecond, 1500 * time.Millisecond}},
			}, 1500 * time.Millisecond,
		},
		"another process with its number": {
			process{startTicks: 1, waits: map[int]threadTime{7: {time.Hour, time.Hour}}},
			process{startTicks: 2, waits: map[int]threadTime{7: {time.Second, 6 * time.Second}}}, 6 * time.Second,
		},
		"not accounted": {process{startTicks: 1}, process{startTicks: 1}, 0},
	} {
		if got := starved(tc.now, tc.before, step); got != tc.want {
			t.Errorf("%s: got %s, want %s", name, got, tc.want)
		}
	}
}

func TestSteadyWritesAreWork(t *testing.T) {
	for name, tc := range map[string]struct {
		bytes uint64
		every int // measurements of 5 s
		want  bool
	}{
		"a checkpoint every 5 s":             {100 << 10, 1, true},
		"a checkpoint every 20 s":            {100 << 10, 4, true},
		"lines of a log":                     {4 << 10, 1, false},
		"a file that is saved once a minute": {1 << 20, 12, false},
	} {
		s, got := &sampler{}, false
		p := process{startTicks: 1}
		for i := range 120 {
			if i%tc.every == 0 {
				p.writtenBytes += tc.bytes
			}
			now := map[int]process{1: p}
			got = s.writesSteadily(now, time.Duration(i)*5*time.Second)
			s.lastProcesses = now
		}
		if got != tc.want {
			t.Errorf("%s: got %v, want %v", name, got, tc.want)
		}
	}
}
