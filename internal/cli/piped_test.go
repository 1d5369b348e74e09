package cli

import (
	"bytes"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestReadsUntimedSMIFromPipe: output of nvidia-smi without timestamps is read from a pipe and from
// a file, each by the time between its samples, and no temporary file remains.
func TestReadsUntimedSMIFromPipe(t *testing.T) {
	d := newDesktop(t)
	temp := t.TempDir()
	t.Setenv("TMPDIR", temp)
	var smi strings.Builder
	smi.WriteString("index, utilization.gpu [%], memory.used [MiB], memory.total [MiB]\n")
	for range 720 {
		smi.WriteString("0, 37 %, 9024 MiB, 24564 MiB\n")
	}
	d.write("smi.csv", smi.String())
	run := func(from string) string {
		var out, errs bytes.Buffer
		code := Run(t.Context(), Process{
			Args: []string{"plan", "rightsize", "--usage", from, "--step", "5s", "--resource", "box",
				"--type", "g5.xlarge", "-o", "json"},
			Dir: d.dir, DataDir: filepath.Join(d.dir, "data"), Version: "test",
			Stdin: strings.NewReader(smi.String()), Stdout: &out, Stderr: &errs, Now: time.Now,
			Lookup: func(string) (string, bool) { return "", false },
		})
		if code != ExitDone || !strings.Contains(errs.String(), "taken 5s apart") {
			t.Fatalf("exit %d, %s", code, errs.String())
		}
		return out.String()
	}
	if piped, read := run("-"), run("smi.csv"); piped != read || !strings.Contains(piped, "37") {
		t.Errorf("from a pipe %s\nfrom a file %s", piped, read)
	}
	if left, _ := filepath.Glob(filepath.Join(temp, "curfew-usage-*")); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
