package agent

import (
	"errors"
	"io/fs"
	"os/exec"
	"strconv"
	"testing"
	"time"
)

// TestUseOfCountsDescendants starts a shell whose child burns CPU and holds memory.
func TestUseOfCountsDescendants(t *testing.T) {
	c := exec.Command("sh", "-c", `python3 -c "
x = b'1' * (64 << 20)
while True: pass" & wait`)
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	var u ProcessUse
	for range 100 {
		time.Sleep(100 * time.Millisecond)
		var err error
		if u, err = UseOf(c.Process.Pid); err != nil {
			t.Fatal(err)
		}
		if u.Memory > 64<<20 && u.CPU > 200*time.Millisecond {
			break
		}
	}
	if len(u.PIDs) != 2 || u.Memory < 64<<20 || u.Memory > 200<<20 || u.CPU < 200*time.Millisecond {
		t.Errorf("%+v", u)
	}
	for _, pid := range u.PIDs[1:] {
		_ = exec.Command("kill", "-KILL", strconv.Itoa(pid)).Run() // its parent ends with it
	}
	_ = c.Wait()
	if _, err := UseOf(c.Process.Pid); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after its end: %v", err)
	}
}
