package local

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// waitTimeout bounds waits on a busy machine.
const waitTimeout = 3 * time.Minute

// eventually waits for a condition.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for begun := time.Now(); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Since(begun) > waitTimeout {
			t.Fatalf("not within %s: %s", waitTimeout, what)
		}
	}
}

// forEachKind runs a test with each kind that works here.
func forEachKind(t *testing.T, test func(t *testing.T, k Kind)) {
	for _, k := range Kinds {
		t.Run(string(k), func(t *testing.T) {
			if err := probeKind(t.Context(), k, selfCommand); err != nil {
				t.Skipf("%s does not work here: %v", k, err)
			}
			test(t, k)
		})
	}
}

var cages int

func newCage(t *testing.T, o CageOptions) *Cage {
	t.Helper()
	cages++
	o.Name = fmt.Sprintf("test-%d-%d", os.Getpid(), cages)
	c, err := NewCage(t.Context(), t.TempDir(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), waitTimeout)
		defer cancel()
		if err := errors.Join(c.Kill(ctx), c.Remove(ctx)); err != nil {
			t.Error(err)
		}
	})
	return c
}

// waitGone waits until a process is gone.
func waitGone(t testing.TB, pid int) {
	t.Helper()
	eventually(t, fmt.Sprintf("process %d ends", pid), func() bool { return !isRunning(pid) })
}

func isRunning(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	return err == nil && !strings.Contains(string(b), "State:\tZ") && !strings.Contains(string(b), "State:\tX")
}

// pidByWord returns the PID of a process, outside of its namespace, by a word of its command line.
func pidByWord(t testing.TB, word string) int {
	t.Helper()
	found := 0
	eventually(t, word+" runs", func() bool {
		found = 0
		all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
		for _, path := range all {
			b, _ := os.ReadFile(path)
			args := strings.Split(string(b), "\x00")
			if slices.Contains(args, word) && filepath.Base(args[0]) == "sleep" {
				found, _ = strconv.Atoi(strings.Split(path, "/")[2])
			}
		}
		return found != 0
	})
	return found
}

var sleepCounter = 100_000 + os.Getpid()%1000*100

// uniqueSleep returns a duration for sleep that no other process uses.
func uniqueSleep() string { sleepCounter++; return strconv.Itoa(sleepCounter) }

func TestCageKillsDaemons(t *testing.T) {
	forEachKind(t, func(t *testing.T, k Kind) {
		for _, tc := range []struct{ name, script string }{
			{"in the foreground", `exec sleep NAP`},
			{"in the background", `sleep NAP & wait`},
			{"twice forked, in a session of its own", `(setsid sh -c 'sleep NAP & exit' &) ; exec sleep 0`},
			{"without the terminal", `nohup setsid sleep NAP >/dev/null 2>&1 </dev/null &`},
			{"without its environment", `(env -i "$(command -v setsid)" "$(command -v sleep)" NAP &)`},
		} {
			t.Run(tc.name, func(t *testing.T) {
				c, word := newCage(t, CageOptions{Kind: k}), uniqueSleep()
				cmd := exec.Command("/bin/sh", "-c", strings.ReplaceAll(tc.script, "NAP", word))
				if err := c.Start(t.Context(), cmd); err != nil {
					t.Fatal(err)
				}
				go func() { _ = cmd.Wait() }()
				pid := pidByWord(t, word)
				if tc.name == "without its environment" && !k.KillsDaemons() {
					_ = syscall.Kill(pid, syscall.SIGKILL)
					t.Skip("this kind says that it does not find it")
				}
				eventually(t, "the cage lists it", func() bool {
					pids, err := c.Processes()
					return err == nil && slices.Contains(pids, pid)
				})
				again, err := OpenCage(c.dir) // as another process does
				if err != nil {
					t.Fatal(err)
				}
				if err := again.Kill(t.Context()); err != nil {
					t.Fatal(err)
				}
				if isRunning(pid) {
					t.Errorf("process %d is there after Kill returned", pid)
				}
				if pids, err := c.Processes(); err != nil || len(pids) > 0 {
					t.Errorf("left: %v, %v", pids, err)
				}
				if err := again.Remove(t.Context()); err != nil {
					t.Error(err)
				}
				if c.file.Path != "" {
					if _, err := os.Stat(c.file.Path); !os.IsNotExist(err) {
						t.Errorf("the control group is left: %v", err)
					}
				}
				if _, err := OpenCage(c.dir); !errors.Is(err, ErrNoCage) {
					t.Errorf("after its removal: %v", err)
				}
			})
		}
	})
}

func TestKillsForkStorm(t *testing.T) {
	forEachKind(t, func(t *testing.T, k Kind) {
		c, word := newCage(t, CageOptions{Kind: k}), uniqueSleep()
		cmd := exec.Command("/bin/sh", "-c",
			`f() { sleep `+word+` & i=$((i+1)); [ $i -lt 30 ] || wait; (f) & }; i=0; f; wait`)
		if err := c.Start(t.Context(), cmd); err != nil {
			t.Fatal(err)
		}
		go func() { _ = cmd.Wait() }()
		pidByWord(t, word)
		if err := c.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
		if pids, err := c.Processes(); err != nil || len(pids) > 0 {
			t.Errorf("left: %v, %v", pids, err)
		}
	})
}

func TestFindsProcessMovedToOtherGroup(t *testing.T) {
	for _, k := range []Kind{Cgroup2, Freezer} {
		t.Run(string(k), func(t *testing.T) {
			if err := probeKind(t.Context(), k, selfCommand); err != nil {
				t.Skipf("%s does not work here: %v", k, err)
			}
			c, word := newCage(t, CageOptions{Kind: k}), uniqueSleep()
			cmd := exec.Command("sleep", word)
			if err := c.Start(t.Context(), cmd); err != nil {
				t.Fatal(err)
			}
			go func() { _ = cmd.Wait() }()
			pid := pidByWord(t, word)
			if err := os.WriteFile(filepath.Join(filepath.Dir(c.file.Path), procs), []byte(strconv.Itoa(pid)),
				0o600); err != nil {
				t.Fatal(err)
			}
			if inside, err := groupProcesses(c.file.Path); err != nil || len(inside) > 0 {
				t.Fatalf("it did not move: %v, %v", inside, err)
			}
			if err := c.Kill(t.Context()); err != nil {
				t.Fatal(err)
			}
			waitGone(t, pid)
		})
	}
}

// TestCommandKeepsItsEnvironment checks user, folder, environment, files and exit code of a
// command.
func TestCommandKeepsItsEnvironment(t *testing.T) {
	forEachKind(t, func(t *testing.T, k Kind) {
		dir := t.TempDir()
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		visible := "0,2"
		c := newCage(t, CageOptions{Kind: k, VisibleGPUs: &visible})
		cmd := exec.Command("/bin/sh", "-c",
			`id -u; pwd; echo "$GREETING $CURFEW_MACHINE $CUDA_VISIBLE_DEVICES"; cat; cat <&3; exit 7`)
		cmd.Dir, cmd.Env, cmd.Stdin = "/usr", []string{
			"PATH=" + os.Getenv("PATH"), "GREETING=hello", "CUDA_VISIBLE_DEVICES=9",
		}, strings.NewReader("in\n")
		want := strconv.Itoa(os.Getuid())
		if os.Getuid() == 0 {
			want = "65534"
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		}
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		if _, err := w.WriteString("extra\n"); err != nil {
			t.Fatal(err)
		}
		_ = w.Close()
		cmd.ExtraFiles = []*os.File{r}
		var out strings.Builder
		cmd.Stdout, cmd.Stderr = &out, &out
		if err := c.Start(t.Context(), cmd); err != nil {
			t.Fatal(err)
		}
		err = cmd.Wait()
		if got, want := out.String(), want+"\n/usr\nhello "+c.file.Name+" 0,2\nin\nextra\n"; got != want {
			t.Errorf("it wrote %q, want %q", got, want)
		}
		if cmd.ProcessState.ExitCode() != 7 {
			t.Errorf("it exited with %v", err)
		}
		missing := exec.Command("/no/such/program")
		if err := c.Start(t.Context(), missing); err == nil {
			if missing.Wait() == nil {
				t.Error("a program that is not there did not fail")
			}
		}
	})
}

// TestReusedPIDIsNotKilled checks PIDs reused within a boot and after it.
func TestReusedPIDIsNotKilled(t *testing.T) {
	cmd := exec.Command("sleep", uniqueSleep())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }()
	p, err := processOf(cmd.Process.Pid)
	if err != nil || !p.Alive() {
		t.Fatalf("%+v is not alive: %v", p, err)
	}
	for name, other := range map[string]Process{
		"another start": {p.PID, p.Start - 1, p.Boot}, "another boot": {p.PID, p.Start, "9c0a"},
		"no boot": {p.PID, p.Start, ""}, "no number": {0, p.Start, p.Boot},
		"all processes": {-1, p.Start, p.Boot},
	} {
		if other.Alive() {
			t.Errorf("%s: it is taken for the process", name)
		}
		if err := other.Signal(unix.SIGKILL); !errors.Is(err, errProcessEnded) {
			t.Errorf("%s: the signal: %v", name, err)
		}
		if err := other.wait(t.Context()); err != nil {
			t.Errorf("%s: wait: %v", name, err)
		}
	}
	for _, k := range []Kind{Namespace, Cgroup2, Freezer, Environment} {
		c := &Cage{
			dir: t.TempDir(),
			file: cageFile{
				Name: "old", Kind: k, Boot: "9c0a", Init: &Process{p.PID, p.Start, "9c0a"}, Path: "/proc/self",
			},
		}
		if err := errors.Join(c.Kill(t.Context()), c.Remove(t.Context())); err != nil {
			t.Errorf("%s of another boot: %v", k, err)
		}
		if err := c.Start(t.Context(), exec.Command("true")); err == nil {
			t.Errorf("%s of another boot starts a command", k)
		}
	}
	c := &Cage{
		dir:  t.TempDir(),
		file: cageFile{Name: "old", Kind: Namespace, Boot: p.Boot, Init: &Process{p.PID, p.Start - 1, p.Boot}},
	}
	if err := c.Kill(t.Context()); err != nil {
		t.Error(err)
	}
	if !p.Alive() {
		t.Fatal("a process was killed that only has the number of one that was meant")
	}
	if err := p.Signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	if err := p.wait(t.Context()); err != nil || p.Alive() {
		t.Errorf("it is alive after wait: %v", err)
	}
}

// TestProbesWithoutPrivileges checks that an unprivileged user gets a weaker kind, with the reason.
func TestProbesWithoutPrivileges(t *testing.T) {
	if os.Getuid() == 0 {
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestProbesWithoutPrivileges$", "-test.v", "-test.timeout=5m")
		cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS: TestProbesWithoutPrivileges") {
			t.Errorf("as a user without rights: %v\n%s", err, out)
		}
		t.Logf("%s", out)
		return
	}
	p, err := Probe(t.Context(), selfCommand)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("it works by %s; %v", p.Kind, p.Failures)
	for _, k := range Kinds[:slices.Index(Kinds, p.Kind)] {
		if p.Failures[k] == "" {
			t.Errorf("it does not say why %s does not work", k)
		}
	}
	c, word := newCage(t, CageOptions{}), uniqueSleep()
	if got := strings.Contains(fmt.Sprint(c.Limits()), "is not ended"); got == p.Kind.KillsDaemons() {
		t.Errorf("it says %q", c.Limits())
	}
	cmd := exec.Command("/bin/sh", "-c", `(setsid sleep `+word+` &)`)
	if err := c.Start(t.Context(), cmd); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	pid := pidByWord(t, word)
	if err := c.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	waitGone(t, pid)
}

// TestDeniesDevices checks that only the denied devices are refused.
func TestDeniesDevices(t *testing.T) {
	for _, k := range []Kind{Cgroup2, Freezer} {
		t.Run(string(k), func(t *testing.T) {
			if err := probeKind(t.Context(), k, selfCommand); err != nil {
				t.Skipf("%s does not work here: %v", k, err)
			}
			none := ""
			// 1:5 is /dev/zero
			c := newCage(t, CageOptions{Kind: k, VisibleGPUs: &none, DeniedDevices: []Device{{1, 5}, {195, 1}}})
			if !c.file.Enforced {
				if !strings.Contains(fmt.Sprint(c.Limits()), "advisory") {
					t.Errorf("it says %q", c.Limits())
				}
				t.Skipf("%s: no device can be denied here", k)
			}
			if len(c.Limits()) > 0 {
				t.Errorf("it says %q", c.Limits())
			}
			for device, want := range map[string]bool{"/dev/zero": false, "/dev/null": true, "/dev/urandom": true} {
				cmd := exec.Command("head", "-c", "0", device)
				if err := c.Start(t.Context(), cmd); err != nil {
					t.Fatal(err)
				}
				if err := cmd.Wait(); (err == nil) != want {
					t.Errorf("%s is opened: %v, want %v", device, err == nil, want)
				}
				if err := exec.Command("head", "-c", "0", device).Run(); err != nil {
					t.Errorf("%s outside: %v", device, err)
				}
			}
		})
	}
}

func FuzzStat(f *testing.F) {
	f.Add([]byte("1 (a) b) S 0 0 0 0 -1 4194560 43860 624030 0 643 64 358 1754 1023 10 -10 13 0 24 52047872 4687"))
	f.Add([]byte("(("))
	f.Fuzz(func(t *testing.T, line []byte) {
		s, err := parseStat(line)
		if err != nil && s.start != 0 {
			t.Errorf("%q: %+v with %v", line, s, err)
		}
	})
}
