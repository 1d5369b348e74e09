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

// patience is how long a test waits for what has to come about, on a machine with much else
// to do.
const patience = 3 * time.Minute

// eventually waits for a condition.
func eventually(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for begun := time.Now(); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Since(begun) > patience {
			t.Fatalf("not within %s: %s", patience, what)
		}
	}
}

// each runs a test with a cage of each kind that works here.
func each(t *testing.T, test func(t *testing.T, k Kind)) {
	for _, k := range Kinds {
		t.Run(string(k), func(t *testing.T) {
			if err := try(t.Context(), k, thisProgram); err != nil {
				t.Skipf("%s does not work here: %v", k, err)
			}
			test(t, k)
		})
	}
}

var cages int

func cage(t *testing.T, o CageOptions) *Cage {
	t.Helper()
	cages++
	o.Name = fmt.Sprintf("test-%d-%d", os.Getpid(), cages)
	c, err := NewCage(t.Context(), t.TempDir(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := errors.Join(c.Kill(ctx), c.Remove(ctx)); err != nil {
			t.Error(err)
		}
	})
	return c
}

// ends waits until a process is gone, as the machine tells it.
func ends(t testing.TB, pid int) {
	t.Helper()
	eventually(t, fmt.Sprintf("process %d ends", pid), func() bool { return !running(pid) })
}

func running(pid int) bool {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	return err == nil && !strings.Contains(string(b), "State:\tZ") && !strings.Contains(string(b), "State:\tX")
}

// outside is the number on this machine of a process that knows its number in a namespace,
// found by a word of its command line.
func outside(t testing.TB, word string) int {
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

var naps = 100_000 + os.Getpid()%1000*100

// nap returns a duration of sleep that no other process has.
func nap() string { naps++; return strconv.Itoa(naps) }

// Nothing that a command started is left, however it detached.
func TestDaemonsEndWithTheCage(t *testing.T) {
	each(t, func(t *testing.T, k Kind) {
		for _, tc := range []struct{ name, script string }{
			{"in the foreground", `exec sleep NAP`},
			{"in the background", `sleep NAP & wait`},
			{"twice forked, in a session of its own", `(setsid sh -c 'sleep NAP & exit' &) ; exec sleep 0`},
			{"without the terminal", `nohup setsid sleep NAP >/dev/null 2>&1 </dev/null &`},
			{"without its environment", `(env -i "$(command -v setsid)" "$(command -v sleep)" NAP &)`},
		} {
			t.Run(tc.name, func(t *testing.T) {
				c, word := cage(t, CageOptions{Kind: k}), nap()
				cmd := exec.Command("/bin/sh", "-c", strings.ReplaceAll(tc.script, "NAP", word))
				if err := c.Start(t.Context(), cmd); err != nil {
					t.Fatal(err)
				}
				go func() { _ = cmd.Wait() }()
				pid := outside(t, word)
				if tc.name == "without its environment" && !k.Whole() {
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
				if running(pid) {
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

// What starts others faster than they can be killed one by one ends as well.
func TestForkStormEnds(t *testing.T) {
	each(t, func(t *testing.T, k Kind) {
		c, word := cage(t, CageOptions{Kind: k}), nap()
		cmd := exec.Command("/bin/sh", "-c",
			`f() { sleep `+word+` & i=$((i+1)); [ $i -lt 30 ] || wait; (f) & }; i=0; f; wait`)
		if err := c.Start(t.Context(), cmd); err != nil {
			t.Fatal(err)
		}
		go func() { _ = cmd.Wait() }()
		outside(t, word)
		if err := c.Kill(t.Context()); err != nil {
			t.Fatal(err)
		}
		if pids, err := c.Processes(); err != nil || len(pids) > 0 {
			t.Errorf("left: %v, %v", pids, err)
		}
	})
}

// What moves to another control group is found by its environment.
func TestMovedOutIsFound(t *testing.T) {
	for _, k := range []Kind{Cgroup2, Freezer} {
		t.Run(string(k), func(t *testing.T) {
			if err := try(t.Context(), k, thisProgram); err != nil {
				t.Skipf("%s does not work here: %v", k, err)
			}
			c, word := cage(t, CageOptions{Kind: k}), nap()
			cmd := exec.Command("sleep", word)
			if err := c.Start(t.Context(), cmd); err != nil {
				t.Fatal(err)
			}
			go func() { _ = cmd.Wait() }()
			pid := outside(t, word)
			if err := os.WriteFile(filepath.Join(filepath.Dir(c.file.Path), procs), []byte(strconv.Itoa(pid)),
				0o600); err != nil {
				t.Fatal(err)
			}
			if inside, err := members(c.file.Path); err != nil || len(inside) > 0 {
				t.Fatalf("it did not move: %v, %v", inside, err)
			}
			if err := c.Kill(t.Context()); err != nil {
				t.Fatal(err)
			}
			ends(t, pid)
		})
	}
}

// A command of a cage keeps what it was given: user, folder, environment, files, exit code.
func TestCommandIsAsGiven(t *testing.T) {
	each(t, func(t *testing.T, k Kind) {
		dir := t.TempDir()
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		visible := "0,2"
		c := cage(t, CageOptions{Kind: k, Visible: &visible})
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

// The number of a process that has ended is another's: it is not killed. A process of
// another boot neither.
func TestReusedNumberIsNotKilled(t *testing.T) {
	cmd := exec.Command("sleep", nap())
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
		if err := other.Signal(unix.SIGKILL); !errors.Is(err, errGone) {
			t.Errorf("%s: the signal: %v", name, err)
		}
		if err := other.wait(t.Context()); err != nil {
			t.Errorf("%s: wait: %v", name, err)
		}
	}
	for _, k := range []Kind{Namespace, Cgroup2, Freezer, Environment} {
		c := &Cage{
			dir:  t.TempDir(),
			file: cageFile{Name: "old", Kind: k, Boot: "9c0a", Init: &Process{p.PID, p.Start, "9c0a"}, Path: "/proc/self"},
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

// As a user without rights it falls to what works, and says so.
func TestWithoutRights(t *testing.T) {
	if os.Getuid() == 0 {
		cmd := exec.Command("/proc/self/exe", "-test.run=^TestWithoutRights$", "-test.v", "-test.timeout=5m")
		cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), "--- PASS: TestWithoutRights") {
			t.Errorf("as a user without rights: %v\n%s", err, out)
		}
		t.Logf("%s", out)
		return
	}
	p, err := Probe(t.Context(), thisProgram)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("it works by %s; %v", p.Kind, p.Why)
	for _, k := range Kinds[:slices.Index(Kinds, p.Kind)] {
		if p.Why[k] == "" {
			t.Errorf("it does not say why %s does not work", k)
		}
	}
	c, word := cage(t, CageOptions{}), nap()
	if got := strings.Contains(fmt.Sprint(c.Limits()), "is not ended"); got == p.Kind.Whole() {
		t.Errorf("it says %q", c.Limits())
	}
	cmd := exec.Command("/bin/sh", "-c", `(setsid sleep `+word+` &)`)
	if err := c.Start(t.Context(), cmd); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	pid := outside(t, word)
	if err := c.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	ends(t, pid)
}

// The kernel refuses devices that were not given, and no others.
func TestDevicesAreDenied(t *testing.T) {
	for _, k := range []Kind{Cgroup2, Freezer} {
		t.Run(string(k), func(t *testing.T) {
			if err := try(t.Context(), k, thisProgram); err != nil {
				t.Skipf("%s does not work here: %v", k, err)
			}
			none := ""
			c := cage(t, CageOptions{Kind: k, Visible: &none, Deny: []Device{{1, 5}, {195, 1}}}) // 1:5 is /dev/zero
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
