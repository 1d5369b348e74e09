package cli

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/test/sandbox"
)

// answered runs init with answers on its standard input.
func (d *desktop) answered(answers string, args ...string) (int, string, string) {
	var out, errs strings.Builder
	code := Run(d.t.Context(), Process{
		Args: append([]string{"init"}, args...), Dir: d.dir, DataDir: filepath.Join(d.dir, "data"),
		WitnessDir: filepath.Join(d.dir, "witness"), Version: "test",
		Stdin: strings.NewReader(answers), Stdout: &out, Stderr: &errs, Now: d.clock,
		Lookup: func(string) (string, bool) {
			return "", false
		}})
	return code, out.String(), errs.String()
}

// TestInit: answers make a valid configuration and policies that say the same; existing files are
// not overwritten.
func TestInit(t *testing.T) {
	for _, tc := range []struct {
		name, answers string
		want          int
		governance    string
		scratch       bool
		mode          policy.Mode
	}{
		{
			"all answered", "squad, made-by\nlifetime=ephemeral,team=vision,cost=lab\nscratch\n#ml-cost\nno\n",
			ExitDone,
			"vision", true, policy.Enforce,
		},
		{"defaults", "\n\n\nops@example.com smtp.example.com:587\n\n", ExitDone, "", false, policy.Observe},
		{"nothing governed", "\nnone\n\nhttps://hooks.example.com/x\nyes\n", ExitDone, "none", false, policy.Observe},
		{"no recipient", "\n\n\n", ExitUsage, "", false, ""},
		{"a strange recipient", "\n\n\nbob\n\n", ExitUsage, "", false, ""},
		{"a strange disk", "\n\nmaybe\n#a\n\n", ExitUsage, "", false, ""},
		{"a lab", "\n\n\n#a\n\nlocal, onprem\n", ExitDone, "", false, policy.Observe},
		{"a strange cloud", "\n\n\n#a\n\nazure\n", ExitUsage, "", false, ""},
		{"machines without a list", "\n\n\n#a\n\nonprem\n", ExitUsage, "", false, ""},
		{"a strange choice", "\nall\n\n#a\n\n", ExitUsage, "", false, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := &desktop{t: t, dir: t.TempDir()}
			code, out, errs := d.answered(tc.answers)
			if code != tc.want {
				t.Fatalf("exit %d, want %d\n%s%s", code, tc.want, out, errs)
			}
			cfg, err := (*config.Cache)(nil).Load(filepath.Join(d.dir, "curfew.yaml"), func(string) (string, bool) {
				return "", false
			})
			if code != ExitDone {
				if err == nil {
					t.Error("it wrote a file all the same")
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want := "aws"
			if strings.Contains(tc.answers, "local") {
				want = "local"
			}
			if len(cfg.Clouds) != 1 || cfg.Clouds[0] != want {
				t.Errorf("clouds %v, want %s", cfg.Clouds, want)
			}
			switch {
			case tc.governance == "none" && len(cfg.Governance) == 0:
			case tc.governance == "none" || len(cfg.Governance) != 1 ||
				cfg.Governance[0].ScratchInstanceStore != tc.scratch:
				t.Errorf("governance %+v", cfg.Governance)
			case tc.governance == "vision" && (cfg.Governance[0].Select.Team[0] != "vision" ||
				cfg.Governance[0].Select.Tags["cost"] != "lab" || cfg.Tags.User[0] != "made-by"):
				t.Errorf("governance %+v, tags %+v", cfg.Governance, cfg.Tags)
			}
			files, err := filepath.Glob(filepath.Join(d.dir, "policies", "*.yaml"))
			if err != nil || len(files) != 4 {
				t.Fatalf("%d files of policies, want 4", len(files))
			}
			for _, f := range files {
				src, err := os.ReadFile(f)
				if err != nil {
					t.Fatal(err)
				}
				set, err := policy.Parse(f, src)
				if err != nil {
					t.Fatal(err)
				}
				for _, p := range set.Policies {
					// The owner whom no other rule reaches is warned by the address that was given.
					if len(cfg.Notify.Unowned) == 0 || p.Mode != tc.mode || p.Do.ScratchInstanceStore && !tc.scratch ||
						len(p.Warn.Notify) == 0 {
						t.Errorf("%s: mode %q, %+v, notify %v", p.Name, p.Mode, p.Do, p.Warn.Notify)
					}
				}
			}
			if code, _, errs := d.answered(tc.answers); code != ExitUsage ||
				!strings.Contains(errs, "exists; --force overwrites it") {
				t.Errorf("again: exit %d, %s", code, errs)
			}
			code, _, errs = d.answered(tc.answers, "--all", "--force")
			ready, _ := filepath.Glob(shipped + "/*.yaml")
			if all, _ := filepath.Glob(filepath.Join(d.dir, "policies", "*.yaml")); code != ExitDone ||
				len(all) != len(ready) {
				t.Errorf("--all: exit %d, %d files, want %d: %s", code, len(all), len(ready), errs)
			}
			if code, out, errs := d.run("policy", "check"); code != ExitDone ||
				strings.Contains(out, "no entry of governance") != (tc.governance == "none") {
				t.Errorf("policy check: exit %d\n%s%s", code, out, errs)
			}
		})
	}
}

// TestShippedPoliciesOnTheSandbox checks that the files of init, without an edit, stop the idle
// machines of a real AWS API and no other, and the owner's consent lets one machine end whose disk
// would be lost.
func TestShippedPoliciesOnTheSandbox(t *testing.T) {
	l := newLadder(t)
	var posts atomic.Int64
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		posts.Add(1)
	}))
	t.Cleanup(hook.Close)
	t.Setenv("CURFEW_HOOK_SECRET", "secret")
	l.curfew(ExitDone, "init", "--tags", "team,owner", "--govern", "lifetime=ephemeral", "--instance-store", "scratch",
		"--notify", hook.URL+"/x", "--observe", "no", "--force")
	for range 8 {
		l.curfewAny("enforce", "--once", "--enforce")
		l.pass(5 * time.Minute)
	}
	for name, want := range map[string]string{
		sandbox.Idle: "stopped", sandbox.Turning: "stopped", sandbox.Unsaved: "stopped", sandbox.Busy: "running",
		sandbox.Persistent: "running",
		sandbox.Exempt:     "running", sandbox.Unmeasured: "running", sandbox.GangIdle: "running",
		sandbox.Grouped: "running",
	} {
		if got := l.state(name); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	if posts.Load() == 0 {
		t.Error("no warning was sent")
	}
}

// TestConsentOnTheSandbox checks that a machine whose disk would be lost is left alone until its
// owner consents, and then ended.
func TestConsentOnTheSandbox(t *testing.T) {
	l := newLadder(t)
	l.who = "ana"
	for range 6 {
		l.enforceAny()
		l.pass(5 * time.Minute)
	}
	if got := l.state(sandbox.Unsaved); got != "running" {
		t.Fatalf("unsaved is %s before the consent", got)
	}
	l.jump(5 * time.Hour) // whoever's clock is wrong decides nothing
	l.curfew(ExitError, "consent", l.account.Ref(sandbox.Unsaved).String(), "--reason", "scratch data")
	l.jump(-5 * time.Hour)
	out := l.curfew(ExitDone, "consent", l.account.Ref(sandbox.Unsaved).String(), "--reason", "scratch data")
	if !strings.Contains(out, "GB") || !strings.Contains(out, "vol-") {
		t.Errorf("it does not say what is lost: %s", out)
	}
	l.curfew(ExitDone, "consent", l.account.Ref(sandbox.Unsaved).String(), "--reason", "scratch data", "-o", "json")
	for range 6 {
		l.enforceAny()
		l.pass(5 * time.Minute)
	}
	if got := l.state(sandbox.Unsaved); got != "terminated" {
		t.Errorf("unsaved is %s after the consent", got)
	}
	if audit := l.curfew(ExitDone, "audit", "--what", "consent"); !strings.Contains(audit, "by ana") ||
		!strings.Contains(audit, "scratch data") {
		t.Errorf("the audit log has %s", audit)
	}
	l.curfew(ExitUsage, "consent", l.account.Ref(sandbox.Unsaved).String())
}
