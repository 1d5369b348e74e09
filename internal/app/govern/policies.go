package govern

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/curfew-dev/curfew/internal/app/audit"
	"github.com/curfew-dev/curfew/internal/app/runtime"
	"github.com/curfew-dev/curfew/internal/config"
	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/policy"
	"github.com/curfew-dev/curfew/internal/round"
	"github.com/curfew-dev/curfew/internal/view"
)

// ReadPolicies reads policy files and the *.yaml files of directories as one set.
func ReadPolicies(req *runtime.Request, names []string) (*policy.Set, error) {
	files, err := YAMLFiles(req, names)
	if err != nil {
		return nil, err
	}
	var sets []*policy.Set
	var mistakes []error
	for _, f := range files {
		src, err := req.Read(f, nil, document.MaxBytes)
		if err != nil {
			return nil, err
		}
		set, err := policy.Parse(f, src)
		if err != nil {
			mistakes = append(mistakes, err)
			continue
		}
		sets = append(sets, set)
	}
	if len(mistakes) > 0 {
		return nil, PolicyError(document.Join(mistakes...))
	}
	set, err := policy.Merge(sets...)
	return set, PolicyError(err)
}

// PolicyError adds a link to the language reference to an error in a policy file.
func PolicyError(err error) error {
	if err == nil {
		return nil
	}
	return &runtime.Error{
		Class: runtime.Usage, Code: "invalid_file", Err: err, Hint: "docs/policies.md has the language",
	}
}

// YAMLFiles lists files, and those in directories (without subdirectories).
func YAMLFiles(req *runtime.Request, names []string) ([]string, error) {
	var out []string
	for _, name := range names {
		path := req.Path(name)
		st, err := os.Stat(path)
		if err != nil {
			return nil, &runtime.Error{
				Class: runtime.Usage, Code: "invalid_file", Err: fmt.Errorf("read %s: %w", name, runtime.Cause(err)),
			}
		}
		if !st.IsDir() {
			out = append(out, name)
			continue
		}
		var found []string
		for _, pattern := range []string{"*.yaml", "*.yml"} {
			m, err := filepath.Glob(filepath.Join(path, pattern))
			if err != nil {
				return nil, fmt.Errorf("list %s: %w", name, err)
			}
			found = append(found, m...)
		}
		if len(found) == 0 {
			return nil, &runtime.Error{
				Class: runtime.Usage, Code: "invalid_file", Err: fmt.Errorf("read %s: no *.yaml file is in it", name),
			}
		}
		slices.Sort(found)
		for _, f := range found {
			out = append(out, filepath.Join(name, filepath.Base(f)))
		}
	}
	return out, nil
}

// PolicyFiles returns the files of arguments, or otherwise the configured ones.
func PolicyFiles(req *runtime.Request, args []string) ([]string, error) {
	if len(args) > 0 {
		return args, nil
	}
	cfg, err := req.Config()
	if err != nil {
		return nil, err
	}
	if len(cfg.Policies) == 0 {
		return nil, runtime.Invalid("no policy is given: name files or directories, or set policies in curfew.yaml")
	}
	return Configured(req, cfg)
}

// Configured lists the policy files of the configuration.
func Configured(req *runtime.Request, cfg config.Config) ([]string, error) {
	files, err := YAMLFiles(req, cfg.Policies)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, f := range files {
		path := req.Path(f)
		if err := cfg.TrustPolicy(path); err != nil {
			return nil, &runtime.Error{
				Class: runtime.Usage, Code: "invalid_file", Err: fmt.Errorf("the policies are not read: %w", err),
				Hint: "read it, then name it with --policy, or `chmod go-w` it if it is yours"}
		}
		if rel, err := filepath.Rel(req.Dir, path); err == nil && filepath.IsLocal(rel) {
			path = rel
		}
		names = append(names, path)
	}
	return names, nil
}

// underTest returns the policies under test by a file of cases. Of the given policies, these are
// the ones in files with the names that the cases use, if there are any: a case without a policy
// name only concerns those.
func underTest(req *runtime.Request, given []string, tests *policy.Tests, file string) (*policy.Set, error) {
	names := given
	if len(names) == 0 {
		for _, p := range tests.Policies {
			names = append(names, filepath.Join(filepath.Dir(file), p))
		}
	}
	names, err := PolicyFiles(req, names)
	if err != nil {
		return nil, err
	}
	set, err := ReadPolicies(req, names)
	if err != nil || len(given) == 0 {
		return set, err
	}
	return set.FromFiles(tests.Policies), nil
}

// Policies reads the policy files of flags, or otherwise those of the configuration.
func Policies(req *runtime.Request, cfg config.Config, names []string) (*policy.Set, error) {
	if len(names) == 0 {
		var err error
		if names, err = Configured(req, cfg); err != nil {
			return nil, err
		}
	}
	if len(names) == 0 {
		return nil, runtime.Invalid(
			"no policy is given: --policy FILE, or policies in curfew.yaml; examples/policies has some to begin with")
	}
	return ReadPolicies(req, names)
}

// PolicyTest runs the cases in files and directories on the given policies, or otherwise on those
// that the cases name.
func PolicyTest(ctx context.Context, req *runtime.Request, policies, args []string) (view.PolicyTest, error) {
	doc := view.NewPolicyTest()
	files, err := YAMLFiles(req, args)
	if err != nil {
		return doc, err
	}
	cfg, book, err := req.Priced()
	if err != nil {
		return doc, err
	}
	for _, f := range files {
		src, err := req.Read(f, nil, document.MaxBytes)
		if err != nil {
			return doc, err
		}
		tests, err := policy.ParseTests(f, src)
		if err != nil {
			return doc, PolicyError(err)
		}
		tests.Tags, tests.Duty = cfg.Tags, cfg.Duty
		set, err := underTest(req, policies, tests, f)
		if err != nil {
			return doc, err
		}
		doc.Add(f, round.Test(ctx, round.Setting{Prices: book}, set, tests))
	}
	if len(doc.Cases) == 0 {
		return doc, runtime.Invalid("no case is in these files")
	}
	return doc, nil
}

// Last is the name of the newest scan for --against.
const Last = "last"

// newestInventory reads the resources of the newest scan, of any cloud.
func newestInventory(ctx context.Context, req *runtime.Request, cfg config.Config) (*view.Inventory, error) {
	s, err := req.Open(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	all, err := audit.Inventories(ctx, s)
	if err != nil {
		return nil, err
	}
	var newest *view.Inventory
	for i := range all {
		if newest == nil || all[i].At.After(newest.At) {
			newest = &all[i]
		}
	}
	if newest == nil {
		return nil, audit.NoScan(cfg)
	}
	return newest, nil
}

// PolicyCheck validates policies, and counts their possible matches in the inventory that against
// names; empty skips that.
func PolicyCheck(ctx context.Context, req *runtime.Request, files []string, against string) (view.PolicyCheck, error) {
	var none view.PolicyCheck
	cfg, err := req.Config()
	if err != nil {
		return none, err
	}
	names, err := PolicyFiles(req, files)
	if err != nil {
		return none, err
	}
	set, err := ReadPolicies(req, names)
	if err != nil {
		return none, err
	}
	var reach *view.PolicyReach
	if against != "" {
		seen, err := newestInventory(ctx, req, cfg)
		if err != nil {
			return none, err
		}
		reach = &view.PolicyReach{Cloud: seen.Cloud, At: seen.At, Resources: len(seen.Resources),
			Policies: round.PolicyReaches(set, seen.Priced(cfg.Tags), seen.At, cfg.Governance, req.Now().UTC())}
	}
	return view.NewPolicyCheck(set, policy.Check(set, cfg.Governance), reach), nil
}

// LookBack returns how far back usage is needed to judge now: the configured window, or the longest
// duration in a policy plus a fifth for the samples at its edges.
func LookBack(cfg config.Config, set *policy.Set) time.Duration {
	var longest time.Duration
	for _, p := range set.Policies {
		longest = max(longest, p.Horizon())
	}
	return max(cfg.Enforce.Window, longest+longest/5)
}
