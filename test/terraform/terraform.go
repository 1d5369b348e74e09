// Package terraform runs a real Terraform over the modules in terraform/, with the stand-in
// of provider/ for AWS's provider: it has the schema of the real one and reaches no network.
package terraform

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// module is the last release that is one Go module; it is built if PATH has no Terraform.
const module = "github.com/hashicorp/terraform@v1.8.5"

// root is the repository, from this package.
const root = "../.."

// Binary returns Terraform: the one on PATH if it is 1.7 or newer, otherwise one that is built once
// per user (some minutes).
func Binary(ctx context.Context) (string, error) {
	if found, err := exec.LookPath("terraform"); err == nil {
		var v struct {
			Version string `json:"terraform_version"`
		}
		cmd := exec.CommandContext(ctx, found, "version", "-json")
		cmd.Env = environment()
		var major, minor int
		if raw, err := cmd.Output(); err == nil && json.Unmarshal(raw, &v) == nil {
			if n, _ := fmt.Sscanf(v.Version, "%d.%d", &major, &minor); n == 2 && major == 1 && minor >= 7 {
				return found, nil
			}
		}
	}
	_, version, _ := strings.Cut(module, "@")
	return cached(ctx, "terraform-"+version, "terraform", func(fresh string) *exec.Cmd {
		build := exec.CommandContext(ctx, "go", "install", "-p", "1", module)
		build.Dir = fresh // outside this module
		build.Env = append(os.Environ(), "GOBIN="+fresh, "CGO_ENABLED=0")
		return build
	})
}

// cached returns a program in the user's cache directory, built on first use in a temporary
// directory and moved into place, so that several processes may do so at once.
func cached(ctx context.Context, folder, name string, build func(fresh string) *exec.Cmd) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "curfew-test", folder)
	program := filepath.Join(dir, name)
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", err
	}
	fresh, err := os.MkdirTemp(filepath.Dir(dir), folder+"-new-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(fresh)
	cmd := build(fresh)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	if err := os.Rename(fresh, dir); err != nil {
		if _, there := os.Stat(program); there != nil || ctx.Err() != nil {
			return "", err
		}
	}
	return program, nil
}

// provider returns the stand-in, built once per version of its sources, and its version.
func provider(ctx context.Context) (program, version string, err error) {
	source, err := filepath.Abs("provider")
	if err != nil {
		return "", "", err
	}
	sum := sha256.New()
	for _, name := range []string{"go.mod", "go.sum", "main.go", "schema.json"} {
		raw, err := os.ReadFile(filepath.Join(source, name))
		if err != nil {
			return "", "", err
		}
		fmt.Fprintf(sum, "%s %d\n", name, len(raw))
		sum.Write(raw)
		if name == "schema.json" {
			var s struct{ Version string }
			if err := json.Unmarshal(raw, &s); err != nil {
				return "", "", err
			}
			version = s.Version
		}
	}
	name := "terraform-provider-aws_v" + version + "_x5"
	program, err = cached(ctx, fmt.Sprintf("terraform-provider-%x", sum.Sum(nil)[:6]), name,
		func(fresh string) *exec.Cmd {
			build := exec.CommandContext(ctx, "go", "build", "-p", "1", "-o", filepath.Join(fresh, name), ".")
			build.Dir = source
			build.Env = append(os.Environ(), "CGO_ENABLED=0")
			return build
		})
	return program, version, err
}

// environment returns this process's environment without variables that Terraform and AWS's
// provider read.
func environment(more ...string) []string {
	var env []string
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "TF_") && !strings.HasPrefix(v, "AWS_") {
			env = append(env, v)
		}
	}
	return append(env, append([]string{"CHECKPOINT_DISABLE=1", "TF_IN_AUTOMATION=1"}, more...)...)
}

// World is a copy of terraform/ in which Terraform runs.
type World struct {
	Dir     string
	t       testing.TB
	program string
	env     []string
}

// New creates a world. Without Terraform the test is skipped, or fails on CI.
func New(t testing.TB) *World {
	t.Helper()
	w := &World{Dir: t.TempDir(), t: t}
	stop := func(err error) {
		t.Helper()
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	var err error
	if w.program, err = Binary(t.Context()); err != nil {
		stop(err)
	}
	built, version, err := provider(t.Context())
	if err != nil {
		stop(err)
	}
	mirror := filepath.Join(w.Dir, "mirror")
	place := filepath.Join(mirror, "registry.terraform.io/hashicorp/aws", version, runtime.GOOS+"_"+runtime.GOARCH)
	if err := os.MkdirAll(place, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(built, filepath.Join(place, filepath.Base(built))); err != nil {
		t.Fatal(err)
	}
	w.write("terraformrc",
		fmt.Sprintf("provider_installation {\n  filesystem_mirror {\n    path = %q\n  }\n}\n", mirror))
	w.env = environment("TF_CLI_CONFIG_FILE="+filepath.Join(w.Dir, "terraformrc"), "HOME="+w.Dir)
	for _, tree := range []string{"terraform", "examples/terraform"} {
		w.copy(filepath.Join(root, tree), filepath.Join(w.Dir, tree))
	}
	return w
}

// copy copies a tree without Terraform's own files.
func (w *World) copy(from, to string) {
	w.t.Helper()
	err := filepath.WalkDir(from, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && d.Name() == ".terraform" {
			return fs.SkipDir
		}
		if d.IsDir() || strings.Contains(d.Name(), ".tfstate") || strings.HasPrefix(d.Name(), ".terraform") {
			return nil
		}
		inner, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		raw, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if err := os.MkdirAll(filepath.Dir(filepath.Join(to, inner)), 0o755); err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, inner), raw, 0o644)
	})
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *World) write(name, text string) {
	w.t.Helper()
	if err := os.WriteFile(filepath.Join(w.Dir, name), []byte(text), 0o644); err != nil {
		w.t.Fatal(err)
	}
}

// Try runs Terraform in a module and returns its output, including error messages.
func (w *World) Try(module string, args ...string) (string, error) {
	cmd := exec.CommandContext(w.t.Context(), w.program,
		append([]string{"-chdir=" + filepath.Join(w.Dir, "terraform", module)}, args...)...)
	cmd.Env = w.env
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// Run runs Terraform in a module.
func (w *World) Run(module string, args ...string) string {
	w.t.Helper()
	out, err := w.Try(module, args...)
	if err != nil {
		w.t.Fatalf("terraform %s in %s: %v\n%s", strings.Join(args, " "), module, err, out)
	}
	return out
}

// Local initializes a module with its own state in a file.
func (w *World) Local(module string) {
	w.t.Helper()
	w.write(filepath.Join("terraform", module, "backend_override.tf"), "terraform {\n  backend \"local\" {}\n}\n")
	w.Run(module, "init", "-no-color", "-input=false")
}

// State is Terraform's state after an apply.
type State struct {
	Outputs   map[string]struct{ Value any }
	Resources []Resource
}

// Resource is one resource of a state.
type Resource struct {
	Address, Type, Name string
	Values              map[string]any
}

// Apply applies a module with variables, as JSON, and returns its state.
func (w *World) Apply(module string, variables map[string]any) *State {
	w.t.Helper()
	raw, err := json.Marshal(variables)
	if err != nil {
		w.t.Fatal(err)
	}
	w.write(filepath.Join("terraform", module, "test.auto.tfvars.json"), string(raw))
	w.Run(module, "apply", "-no-color", "-input=false", "-auto-approve")
	var shown struct {
		Values struct {
			Outputs map[string]struct{ Value any } `json:"outputs"`
			Root    struct {
				Resources []struct {
					Mode, Address, Type, Name string
					Values                    map[string]any
				}
			} `json:"root_module"`
		}
	}
	if err := json.Unmarshal([]byte(w.Run(module, "show", "-json")), &shown); err != nil {
		w.t.Fatal(err)
	}
	s := &State{Outputs: shown.Values.Outputs}
	for _, r := range shown.Values.Root.Resources {
		if r.Mode == "managed" {
			s.Resources = append(s.Resources, Resource{r.Address, r.Type, r.Name, r.Values})
		}
	}
	return s
}

// Of returns the resources of a type.
func (s *State) Of(kind string) []Resource {
	var out []Resource
	for _, r := range s.Resources {
		if r.Type == kind {
			out = append(out, r)
		}
	}
	return out
}

// Text returns an attribute of a resource by its address, or empty if there is none.
func (s *State) Text(address, attribute string) string {
	for _, r := range s.Resources {
		if r.Address == address {
			text, _ := r.Values[attribute].(string)
			return text
		}
	}
	return ""
}
