package docs

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/curfew-dev/curfew/internal/cli"
	"github.com/curfew-dev/curfew/test/github"
	"github.com/curfew-dev/curfew/test/postgres"
)

// TestFirstGatedPullRequest carries out docs/first-gated-pr.md as written, with a PostgreSQL server
// and a stand-in for GitHub. It runs the documented workflow at each push and review.
func TestFirstGatedPullRequest(t *testing.T) {
	g := newGated(t)
	text := string(read(t, "../../docs/first-gated-pr.md"))
	lines := strings.Split(text, "\n")
	var file, said string
	for _, b := range blocks(text) {
		if all := g.pull.Comments(); *pictures != "" && len(all) > 0 {
			write(t, filepath.Join(*pictures, "comment.md"), all[0], 0o644)
			return
		}
		// The paragraph before a file contains its name; a comment before an output describes what
		// people do.
		before := strings.TrimSpace(lines[b.line-3])
		switch b.kind {
		case "yaml":
			if m := named.FindStringSubmatch(before); m != nil {
				file = m[1]
			}
			write(t, filepath.Join(g.dir, file), b.text, 0o644)
		case "sh":
			said = g.block(t, b)
		case "text":
			if m := does.FindStringSubmatch(before); m != nil {
				g.pull.Review(m[1], m[2], "")
				said = g.check(t)
			}
			if m := forked.FindStringSubmatch(before); m != nil {
				g.pull.Fork(m[1])
				g.env = append(g.env, "CURFEW_DATABASE_URL=") // a run for a fork gets no secrets
				said = g.check(t)
			}
			for line := range strings.Lines(b.text) {
				if strings.TrimSpace(line) != "" && !shows(line, said) {
					t.Errorf("line %d shows %q, and the output is\n%s", b.line, strings.TrimSpace(line), said)
				}
			}
		}
	}
	g.after(t)
}

// pictures is the output directory for the pages from which the pictures of documents are made.
var pictures = flag.String("pictures", "",
	"write the first comment of the gate and the audit of the demo to a `directory`")

// TestAuditPicture writes the audit that README.md shows in a terminal as a page.
func TestAuditPicture(t *testing.T) {
	if *pictures == "" {
		t.Skip("make pictures runs it")
	}
	var out bytes.Buffer
	code := cli.Run(t.Context(), cli.Process{
		Args: []string{"scan", "--demo", "--no-save", "-o", "html"}, Stdout: &out, Stderr: os.Stderr, Version: "test",
		Dir: t.TempDir(),
		Lookup: func(string) (string, bool) {
			return "", false
		}, Now: func() time.Time { return time.Date(2026, 11, 21, 9, 0, 0, 0, time.UTC) }})
	if code != cli.ExitDone {
		t.Fatalf("exit %d", code)
	}
	write(t, filepath.Join(*pictures, "audit.html"), out.String(), 0o644)
}

var (
	named  = regexp.MustCompile("Save this as `([^`]+)`")
	does   = regexp.MustCompile(`<!-- (\w+) reviews: (\w+) -->`)
	forked = regexp.MustCompile(`<!-- the pull request comes from the fork (\S+) -->`)
)

// gated is a clone of a repository whose pull requests are gated.
type gated struct {
	dir, base string
	shell     *shell
	pull      *github.Pull
	env       []string
	// decided are the exit codes of the checks.
	decided []string
}

func newGated(t *testing.T) *gated {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	all := t.TempDir()
	tools := filepath.Join(all, "tools")
	write(t, filepath.Join(tools, "terraform"), "#!/bin/sh\n[ \"$1\" = plan ] || cat <<'END'\n"+plan+"\nEND\n", 0o755)
	write(t, filepath.Join(tools, "gh"), "#!/bin/sh\n[ \"$1 $2\" = 'secret set' ]\n", 0o755)
	g := &gated{dir: filepath.Join(all, "train"), pull: github.New(t)}
	if err := os.Symlink(self, filepath.Join(tools, "curfew")); err != nil {
		t.Fatal(err)
	}
	run(t, all, "git", "init", "-q", "--bare", "-b", "main", "origin")
	run(t, all, "git", "clone", "-q", "origin", "train")
	run(t, all, "git", "-C", "train", "switch", "-q", "-c", "main")
	run(t, all, "mkdir", "curfew")
	run(t, ".", "cp", "-r", "../../examples", filepath.Join(all, "curfew"))
	g.env = []string{
		"HOME=" + all, "XDG_STATE_HOME=" + filepath.Join(all, "state"), "USER=ana", "CURFEW_IDENTITY=ana",
		"PATH=" + tools + ":" + os.Getenv("PATH"), "CURFEW_DATABASE_URL=" + postgres.Start(t),
		"GIT_CONFIG_NOSYSTEM=1", "GIT_AUTHOR_NAME=ana", "GIT_AUTHOR_EMAIL=ana@example.com", "GIT_COMMITTER_NAME=ana",
		"GIT_COMMITTER_EMAIL=ana@example.com"}
	g.shell = newShell(t, g.dir, g.env...)
	return g
}

// block runs the commands of a block one by one. It replaces the database by the test's; the clone
// of curfew exists already.
func (g *gated) block(t *testing.T, b block) (said string) {
	t.Helper()
	for _, c := range commands("docs/first-gated-pr.md", b.line+1, b.text) {
		if strings.HasPrefix(c.text, "git clone ") || strings.HasPrefix(c.text, "export CURFEW_DATABASE_URL=") {
			continue
		}
		out, code := g.shell.run(c.text)
		said += out
		if code != fmt.Sprint(exits(c)[0]) {
			t.Fatalf("%s: exit %s of\n%s\n%s", c.where, code, c.text, out)
		}
		switch {
		case strings.HasPrefix(c.text, "git push --quiet origin main"):
			g.base = g.head(t)
		case strings.HasPrefix(c.text, "git push "):
			g.pull.Push(g.head(t))
			said += g.check(t)
		}
	}
	return said
}

func (g *gated) head(t *testing.T) string {
	out, _ := g.shell.run("git rev-parse HEAD")
	return strings.TrimSpace(out)
}

// check runs the workflow of the pull request, in a fresh checkout of the head and without its own
// state.
func (g *gated) check(t *testing.T) string {
	t.Helper()
	var workflow struct {
		Jobs map[string]struct{ Steps []struct{ Run string } }
	}
	if err := yaml.Unmarshal(read(t, filepath.Join(g.dir, ".github/workflows/curfew-gate.yml")),
		&workflow); err != nil {
		t.Fatal(err)
	}
	steps := workflow.Jobs["gate"].Steps
	checkout := filepath.Join(t.TempDir(), "checkout")
	run(t, g.dir, "git", "clone", "-q", ".", checkout)
	event := filepath.Join(t.TempDir(), "event.json")
	write(t, event, g.pull.Event(t, g.base), 0o644)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, "bash", "-e", "-c", steps[len(steps)-1].Run)
	c.Dir = checkout
	// An identity in the environment of the workflow would not count.
	c.Env = append(append(g.env, g.pull.Env(event)...), "BASE="+g.base, "HOME="+t.TempDir(), "CURFEW_IDENTITY=")
	out, _ := c.CombinedOutput() // the exit code is checked below
	g.decided = append(g.decided, fmt.Sprint(c.ProcessState.ExitCode()))
	return string(out)
}

// after checks the document's description of the result.
func (g *gated) after(t *testing.T) {
	if got := strings.Join(g.decided, " "); got != "3 0 3 3 2" {
		t.Errorf("the checks ended with %s", got)
	}
	comments := g.pull.Comments()
	if len(comments) != 1 || !strings.Contains(comments[0], "waits for an approval") {
		t.Errorf("the comments are %q", comments)
	}
	if holds, _ := g.shell.run("curfew budget holds"); strings.Count(holds, " live ") != 1 {
		t.Errorf("one approved run is reserved, and the holds are\n%s", holds)
	}
}
