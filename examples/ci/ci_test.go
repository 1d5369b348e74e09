// Package ci holds the examples for CI to what they call.
package ci

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

func read(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// stub answers as curfew does: the exit code and the output are in the file it is
// asked about. It shows how it was called, and that its input is not the script's.
const stub = `#!/bin/sh
[ "$1" = gate ] && [ "$3" = --config ] && [ "$5" = -o ] && [ "$6" = json ] || exit 99
file=$2 config=$(cat "$4")
shift 6
echo "$file $config $*$(cat)"
exit "$(cat "$file")"
`

func TestGateScript(t *testing.T) {
	for _, tt := range []struct {
		name   string
		files  map[string]string // that the change holds, each with its exit code
		flag   string
		jobs   string
		key    string
		fork   bool // without secrets
		code   int
		stdout string
	}{
		{name: "nothing changed", code: 0},
		{name: "a fork", files: map[string]string{"jobs/a.yaml": "0"}, fork: true, code: 2},
		{name: "allowed", files: map[string]string{"jobs/a.yaml": "0"}, code: 0, stdout: "jobs/a.yaml limit: 100 \n"},
		{name: "held", files: map[string]string{"jobs/a.yaml": "3"}, code: 3, stdout: "jobs/a.yaml limit: 100 \n"},
		{
			name: "a flag", files: map[string]string{"jobs/a.yaml": "0"}, flag: "--github", code: 0,
			stdout: "jobs/a.yaml limit: 100 --github\n",
		},
		{
			name: "denied outweighs held", files: map[string]string{
				"jobs/a.yaml": "3", "jobs/b.yaml": "4", "jobs/c.yaml": "0",
			},
			code:   4,
			stdout: "jobs/a.yaml limit: 100 \njobs/b.yaml limit: 100 \njobs/c.yaml limit: 100 \n"},
		{
			name: "a mistake outweighs all", files: map[string]string{
				"jobs/a.yaml": "4", "jobs/b.yaml": "2", "jobs/c.yaml": "1",
			}, code: 2,
			stdout: "jobs/a.yaml limit: 100 \njobs/b.yaml limit: 100 \njobs/c.yaml limit: 100 \n"},
		{
			name: "an error outweighs a denial", files: map[string]string{
				"jobs/a.yaml": "4", "jobs/b.yaml": "1",
			}, code: 1,
			stdout: "jobs/a.yaml limit: 100 \njobs/b.yaml limit: 100 \n"},
		{name: "interrupted", files: map[string]string{"jobs/a.yaml": "130", "jobs/b.yaml": "0"}, code: 130,
			stdout: "jobs/a.yaml limit: 100 \njobs/b.yaml limit: 100 \n"},
		{
			name: "in a folder, with a space, and another file", files: map[string]string{
				"jobs/x/a b.yaml": "3", "README.md": "4",
			}, code: 3,
			stdout: "jobs/x/a b.yaml limit: 100 \n"},
		{
			name: "other files", files: map[string]string{"k8s/train.yml": "3", "jobs/a.yaml": "4"},
			jobs: "k8s/*.yml", code: 3,
			stdout: "k8s/train.yml limit: 100 \n"},
		{
			name: "the other ending, and letters that git would quote", files: map[string]string{
				"jobs/ä.yml": "4", "jobs/b.yaml": "0",
			}, code: 4,
			stdout: "jobs/b.yaml limit: 100 \njobs/ä.yml limit: 100 \n"},
		{
			name: "a key, and a flag", files: map[string]string{"jobs/a b.yaml": "0"},
			key: "acme/train!7", flag: "--github",
			code:   0,
			stdout: "jobs/a b.yaml limit: 100 --key acme/train!7 jobs/a b.yaml --github\n"},
		{
			name: "its own limits are not asked", files: map[string]string{
				"jobs/a.yaml": "3", "curfew.yaml": "limit: 1000000",
			},
			code:   3,
			stdout: "jobs/a.yaml limit: 100 \n"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			repo, bin := t.TempDir(), t.TempDir()
			env := append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "JOBS="+tt.jobs, "KEY="+tt.key,
				"CURFEW_DATABASE_URL="+map[bool]string{false: "postgres://db.example.com/curfew"}[tt.fork],
				"GIT_CONFIG_GLOBAL=/dev/null", "GIT_AUTHOR_NAME=a",
				"GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a",
				"GIT_COMMITTER_EMAIL=a@example.com")
			write(t, filepath.Join(bin, "curfew"), stub, 0o755)
			git := func(args ...string) string {
				c := exec.CommandContext(t.Context(), "git", args...)
				c.Dir, c.Env = repo, env
				out, err := c.CombinedOutput()
				if err != nil {
					t.Fatalf("git %q: %v\n%s", args, err, out)
				}
				return strings.TrimSpace(string(out))
			}
			git("init", "-q")
			write(t, filepath.Join(repo, "curfew.yaml"), "limit: 100\n", 0o644)
			write(t, filepath.Join(repo, "jobs/gone.yaml"), "2", 0o644)
			write(t, filepath.Join(repo, "jobs/same.yaml"), "2", 0o644)
			git("add", ".")
			git("commit", "-qm", "base")
			base := git("rev-parse", "HEAD")
			for name, text := range tt.files {
				write(t, filepath.Join(repo, name), text, 0o644)
			}
			git("rm", "-q", "jobs/gone.yaml")
			git("add", ".")
			git("commit", "-qm", "change")

			script, err := filepath.Abs("gate.sh")
			if err != nil {
				t.Fatal(err)
			}
			args := []string{script, base}
			if tt.flag != "" {
				args = append(args, tt.flag)
			}
			c := exec.CommandContext(t.Context(), "sh", args...)
			var out, errs bytes.Buffer
			c.Dir, c.Env, c.Stdout, c.Stderr = repo, env, &out, &errs
			if err := c.Run(); c.ProcessState.ExitCode() != tt.code || out.String() != tt.stdout {
				t.Errorf("%v\n%s%s\nwant exit code %d and\n%s", err, out.String(), errs.String(), tt.code, tt.stdout)
			}
		})
	}
}

func write(t *testing.T, name, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// workflow has the fields of a GitHub Actions workflow that the tests rely on.
type workflow struct {
	On          map[string]any    `yaml:"on"`
	Permissions map[string]string `yaml:"permissions"`
	Jobs        map[string]struct {
		Steps []struct {
			Uses string            `yaml:"uses"`
			With map[string]any    `yaml:"with"`
			Run  string            `yaml:"run"`
			Env  map[string]string `yaml:"env"`
		} `yaml:"steps"`
	} `yaml:"jobs"`
}

func TestGitHub(t *testing.T) {
	var w workflow
	if err := yaml.Unmarshal([]byte(read(t, "github.yml")), &w); err != nil {
		t.Fatal(err)
	}
	for event := range w.On {
		if event != "pull_request" && event != "pull_request_review" {
			t.Errorf("it runs on %s", event)
		}
	}
	if len(w.On) != 2 || len(w.Permissions) != 2 || w.Permissions["contents"] != "read" ||
		w.Permissions["pull-requests"] != "write" {
		t.Errorf("it runs on %v with %v", w.On, w.Permissions)
	}
	var gates int
	for _, s := range w.Jobs["gate"].Steps {
		if strings.HasPrefix(s.Uses, "actions/checkout@") &&
			(s.With["ref"] != "${{ github.event.pull_request.head.sha }}" ||
				s.With["persist-credentials"] != false) {
			t.Errorf("it checks out %v", s.With)
		}
		// Whatever a pull request names is a value of the environment and no text of a
		// script.
		if strings.Contains(s.Run, "${{") {
			t.Errorf("it runs %q", s.Run)
		}
		if strings.HasPrefix(s.Run, "ci/gate.sh ") {
			gates++
			if s.Env["GITHUB_TOKEN"] == "" || s.Env["CURFEW_DATABASE_URL"] == "" || s.Env["BASE"] == "" {
				t.Errorf("the gate gets %v", s.Env)
			}
		}
	}
	if gates != 1 {
		t.Errorf("it asks the gate %d times", gates)
	}
}

func TestGitLab(t *testing.T) {
	var jobs map[string]struct {
		Script    []string          `yaml:"script"`
		Variables map[string]string `yaml:"variables"`
		Rules     []struct {
			If string `yaml:"if"`
		} `yaml:"rules"`
	}
	if err := yaml.Unmarshal([]byte(read(t, "gitlab.yml")), &jobs); err != nil {
		t.Fatal(err)
	}
	gate := jobs["curfew-gate"]
	if len(gate.Script) != 1 || !strings.HasPrefix(gate.Script[0], `ci/gate.sh "$CI_MERGE_REQUEST_DIFF_BASE_SHA"`) ||
		len(gate.Rules) != 1 || !strings.Contains(gate.Rules[0].If, "merge_request_event") {
		t.Errorf("it runs %+v", gate)
	}
	// Without an identity the requester is the user of the image, which all jobs share.
	if gate.Variables["CURFEW_IDENTITY"] != "$GITLAB_USER_LOGIN" ||
		!strings.Contains(gate.Variables["KEY"], "$CI_MERGE_REQUEST_IID") {
		t.Errorf("it asks as %+v", gate.Variables)
	}
}
