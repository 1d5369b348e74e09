package ci

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
)

// runStub shows how it was called, one argument a line, and that it has no input.
const runStub = `#!/bin/sh
printf '[%s]\n' "$@"
cat
exit 7
`

// TestRunScript holds how run.sh calls curfew: each path one argument, the command whole,
// without input, and its exit code.
func TestRunScript(t *testing.T) {
	bin := t.TempDir()
	write(t, filepath.Join(bin, "curfew"), runStub, 0o755)
	script, err := filepath.Abs("run/run.sh")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name string
		env  []string
		want string
	}{
		{"bare", []string{"RUN=make train", "FILE=session.yaml", "TIMEOUT=1h", "ARTIFACTS=", "NAME="},
			"[ci]\n[run]\n[--timeout]\n[1h]\n[--file]\n[session.yaml]\n[--]\n[sh]\n[-c]\n[make train]\n"},
		{
			"paths, a name, and what a shell would read", []string{
				`RUN=echo "$HOME" && false; true`, "FILE=a b.yaml", "TIMEOUT=2h", "ARTIFACTS=out put\n\ntrain.log\n",
				"NAME=train-7",
			},
			"[ci]\n[run]\n[--timeout]\n[2h]\n[--file]\n[a b.yaml]\n[--name]\n[train-7]\n[--artifacts]\n[out " +
				"put]\n[--artifacts]\n[train.log]\n[--]\n[sh]\n[-c]\n[echo \"$HOME\" && false; true]\n"},
		{
			"at AWS, without a file", []string{
				"RUN=make train", "FILE=", "CLOUD=aws", "GPU=L4", "TIMEOUT=1h", "ARTIFACTS=", "NAME=",
			},
			"[ci]\n[run]\n[--timeout]\n[1h]\n[--cloud]\n[aws]\n[--gpu]\n[L4]\n[--]\n[sh]\n[-c]\n[make train]\n"},
	} {
		cmd := exec.CommandContext(t.Context(), script)
		var out, errs bytes.Buffer
		cmd.Env, cmd.Stdin, cmd.Stdout, cmd.Stderr = append(os.Environ(),
			append(c.env, "PATH="+bin+":"+os.Getenv("PATH"))...), strings.NewReader("input"), &out, &errs
		_ = cmd.Run() // its exit code is compared
		if cmd.ProcessState.ExitCode() != 7 || out.String() != c.want {
			t.Errorf("%s: exit code %d\n%s%s\nwant 7 and\n%s", c.name, cmd.ProcessState.ExitCode(),
				out.String(), errs.String(),
				c.want)
		}
	}
}

// action has the fields of GitHub's metadata syntax for a composite action; other keys are
// mistakes.
type action struct {
	Name        string `yaml:"name"`
	Description string `yaml:"description"`
	Inputs      map[string]struct {
		Description string  `yaml:"description"`
		Required    bool    `yaml:"required"`
		Default     *string `yaml:"default"`
	} `yaml:"inputs"`
	Runs struct {
		Using string `yaml:"using"`
		Steps []struct {
			Shell string            `yaml:"shell"`
			Run   string            `yaml:"run"`
			Env   map[string]string `yaml:"env"`
		} `yaml:"steps"`
	} `yaml:"runs"`
}

var input = regexp.MustCompile(`^\$\{\{ inputs\.([a-z]+) \}\}$`)

// TestAction holds the action to GitHub's syntax, and the workflow to the action.
func TestAction(t *testing.T) {
	var a action
	if err := yaml.UnmarshalWithOptions([]byte(read(t, "run/action.yml")), &a, yaml.Strict()); err != nil {
		t.Fatal(err)
	}
	if a.Name == "" || a.Description == "" || a.Runs.Using != "composite" || len(a.Runs.Steps) != 1 {
		t.Fatalf("it is %+v", a)
	}
	script := read(t, "run/run.sh")
	step := a.Runs.Steps[0]
	if step.Shell != "bash" || strings.Contains(step.Run, "${{") {
		t.Errorf("it runs %q in %q", step.Run, step.Shell)
	}
	given := map[string]bool{}
	for variable, value := range step.Env {
		m := input.FindStringSubmatch(value)
		if m == nil {
			t.Errorf("%s is %q", variable, value)
			continue
		}
		given[m[1]] = true
		if _, ok := a.Inputs[m[1]]; !ok {
			t.Errorf("%s is an input that is not there", m[1])
		}
		if !strings.Contains(script, "$"+variable) && !strings.Contains(script, "${"+variable) {
			t.Errorf("run.sh does not read %s", variable)
		}
	}
	for name, in := range a.Inputs {
		if !given[name] || in.Description == "" || in.Required == (in.Default != nil) {
			t.Errorf("the input %s is %+v, and given: %v", name, in, given[name])
		}
	}

	for _, file := range []string{"github-run.yml", "github-run-aws.yml"} {
		t.Run(file, func(t *testing.T) { a.usedBy(t, file) })
	}
}

// usedBy holds a workflow to the action.
func (a *action) usedBy(t *testing.T, file string) {
	var w workflow
	if err := yaml.Unmarshal([]byte(read(t, file)), &w); err != nil {
		t.Fatal(err)
	}
	may := map[string]string{"contents": "read"}
	if strings.Contains(file, "aws") {
		may["id-token"] = "write"
	}
	if !maps.Equal(w.Permissions, may) {
		t.Errorf("it may %v, want %v", w.Permissions, may)
	}
	uses, credentials, plugin := 0, time.Duration(0), false
	for _, s := range w.Jobs["train"].Steps {
		if strings.Contains(s.Run, "${{") {
			t.Errorf("it runs %q", s.Run)
		}
		plugin = plugin || strings.Contains(s.Run, "session-manager-plugin.deb")
		if strings.HasPrefix(s.Uses, "aws-actions/configure-aws-credentials@") {
			d, err := time.ParseDuration(fmt.Sprint(s.With["role-duration-seconds"]) + "s")
			if credentials = d; err != nil || s.With["role-to-assume"] == nil || s.With["role-session-name"] == nil ||
				s.With["aws-access-key-id"] != nil {
				t.Errorf("its credentials are %v: %v", s.With, err)
			}
		}
		if s.Uses != "./.github/actions/curfew-run" {
			continue
		}
		uses++
		for name := range s.With {
			if _, ok := a.Inputs[name]; !ok {
				t.Errorf("it gives %s, which the action does not take", name)
			}
		}
		for name, in := range a.Inputs {
			if _, ok := s.With[name]; in.Required && !ok {
				t.Errorf("it does not give %s", name)
			}
		}
		if s.Env["CURFEW_DATABASE_URL"] == "" || s.Env["CURFEW_IDENTITY"] == "" {
			t.Errorf("it runs with %v", s.Env)
		}
		d, err := time.ParseDuration(s.With["timeout"].(string))
		if err != nil || d <= 0 || d >= 150*time.Minute {
			t.Errorf("its time-out is %v", s.With["timeout"])
		}
		// Credentials, and the plugin, are there before, and last until the machine has ended.
		if s.With["cloud"] == "aws" && (credentials < d+10*time.Minute || credentials > 12*time.Hour || !plugin) {
			t.Errorf("credentials for %s, plugin: %v", credentials, plugin)
		}
	}
	if uses != 1 {
		t.Errorf("the action is used %d times", uses)
	}
}

// TestGitLabRun holds the jobs of GitLab: the gate first, then the run with its artifacts.
func TestGitLabRun(t *testing.T) {
	for _, file := range []string{"gitlab-run.yml", "gitlab-run-aws.yml"} {
		t.Run(file, func(t *testing.T) { gitLabRun(t, file) })
	}
}

func gitLabRun(t *testing.T, file string) {
	var jobs map[string]any
	if err := yaml.Unmarshal([]byte(read(t, file)), &jobs); err != nil {
		t.Fatal(err)
	}
	script := func(job string) string {
		list, _ := jobs[job].(map[string]any)["script"].([]any)
		if len(list) != 1 {
			t.Fatalf("%s runs %v", job, list)
		}
		return list[0].(string)
	}
	train, _ := jobs["train"].(map[string]any)
	if strings.Contains(file, "aws") {
		before := fmt.Sprint(train["before_script"])
		variables, _ := train["variables"].(map[string]any)
		if train["id_tokens"] == nil || variables["AWS_ROLE_ARN"] == nil ||
			variables["AWS_ROLE_SESSION_NAME"] == nil ||
			!strings.Contains(before, "session-manager-plugin.deb") ||
			!strings.Contains(before, "AWS_WEB_IDENTITY_TOKEN_FILE") {
			t.Errorf("it has %v", train)
		}
	} else if got := script("curfew-gate"); got != "curfew gate session.yaml --dry-run" {
		t.Errorf("the gate is %q", got)
	}
	run := script("train")
	if !strings.HasPrefix(run, "exec curfew ci run ") || !strings.Contains(run, "$CI_PIPELINE_ID") {
		t.Errorf("it runs %q", run)
	}
	kept, _ := train["artifacts"].(map[string]any)
	paths, _ := kept["paths"].([]any)
	if kept["when"] != "always" || len(paths) != 2 {
		t.Errorf("it keeps %v", kept)
	}
	for _, p := range paths {
		if !strings.Contains(run, "--artifacts "+p.(string)+" ") {
			t.Errorf("%v is kept and not copied back", p)
		}
	}
}
