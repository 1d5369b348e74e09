package jobs_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// block is a fenced block of a page, after the name of its file where it is one.
var block = regexp.MustCompile("(?s)(?:`([a-z.]+)`:\n\n)?```(yaml|python|sh)\n(.*?)```")

// TestFirstJobRunsAsWritten runs the page docs/first-job.md: it writes the files and gives the
// commands, in order, and compares what the page shows with what is printed.
func TestFirstJobRunsAsWritten(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/first-job.md")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := exec.LookPath("python3"); err != nil {
		t.Skip("there is no python3 here")
	}
	b := newBench(t)
	for _, name := range []string{"train.py", "curfew.yaml"} { // the page begins with an empty folder
		if err := os.Remove(filepath.Join(b.dir, "code", name)); err != nil {
			t.Fatal(err)
		}
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := t.TempDir()
	if err := os.Symlink(self, filepath.Join(bin, "curfew")); err != nil {
		t.Fatal(err)
	}
	var outputs []string
	for _, m := range block.FindAllStringSubmatch(string(page), -1) {
		if m[1] != "" {
			b.write(m[1], m[3])
			continue
		}
		if strings.Contains(m[3], "--cloud aws") {
			continue
		}
		c := exec.Command("sh", "-ec", m[3])
		c.Dir = filepath.Join(b.dir, "code")
		c.Env = append(b.env, "PATH="+bin+":"+os.Getenv("PATH"))
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s", m[3], err, out)
		}
		outputs = append(outputs, string(out))
	}
	if len(outputs) != 3 {
		t.Fatalf("the page has %d blocks that run", len(outputs))
	}
	result := regexp.MustCompile(`after 40 steps: [0-9.]+`)
	calm, wild := result.FindString(outputs[0]), result.FindString(outputs[1])
	if calm == "" || calm != wild {
		t.Errorf("the results are %q and %q", calm, wild)
	}
	for _, want := range []string{
		"No interruption.", "attempt 1 ended: interrupted: exit status 137: SIGKILL", "attempt 2 starts from step ",
		"begins after step ", "repeated", "waiting",
	} {
		if !strings.Contains(strings.Join(outputs, "\n"), want) {
			t.Errorf("nothing printed %q:\n%s", want, strings.Join(outputs, "\n"))
		}
	}
}
