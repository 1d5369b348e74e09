// Package config reads curfew.yaml: strictly, with the line and column of what is
// wrong, and with every key overridable from the environment.
package config

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"

	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/bill"
	"github.com/curfew-dev/curfew/internal/budget"
	"github.com/curfew-dev/curfew/internal/cloud/onprem"
	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/finding"
	"github.com/curfew-dev/curfew/internal/gate"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/notify"
	"github.com/curfew-dev/curfew/internal/policy"
)

// FileName is the name of the configuration file.
const FileName = "curfew.yaml"

// Config is what curfew.yaml may say. Keys that are left out keep their defaults.
type Config struct {
	// DataDir is where curfew keeps what it remembers.
	DataDir string `yaml:"data_dir"`
	// DatabaseURL is a PostgreSQL database that several machines share; empty: a file
	// in DataDir.
	DatabaseURL string `yaml:"database_url"`
	// Identity is who gives the commands; empty: the user of the operating system.
	Identity string `yaml:"identity"`
	// Approvers gives people the roles by which they decide requests.
	Approvers map[string][]string `yaml:"approvers"`
	// People name the identities that one person has at several providers.
	People map[string]Identities `yaml:"people"`
	// Approvals is which identities open fixes.
	Approvals Approvals `yaml:"approvals"`
	// Policies are files of policies, or directories of them. Like every path in a
	// file, they are relative to the file's directory.
	Policies []string `yaml:"policies"`
	// Governance says which resources policies may act on.
	Governance policy.Governance `yaml:"governance"`
	// Owners says which tags resources get that lack them.
	Owners policy.Owners `yaml:"owners"`
	// Enforce is how passes of the policies are made.
	Enforce Enforce `yaml:"enforce"`
	// Notify is how people are reached.
	Notify notify.Config `yaml:"notify"`
	// Budgets and Quotas are what owners may spend, and hold at once.
	Budgets budget.Budgets `yaml:"budgets"`
	Quotas  budget.Quotas  `yaml:"quotas"`
	// Gate is when an approver has to decide.
	Gate Gate `yaml:"gate"`
	// GitHub is who people are there.
	GitHub GitHub `yaml:"github"`
	// Estimate is what a specification leaves open.
	Estimate Estimate `yaml:"estimate"`
	// Spot is how often spot machines are taken away.
	Spot Spot `yaml:"spot"`
	// SharedCosts divide the costs that several owners share.
	SharedCosts []bill.SharedRule `yaml:"shared_costs"`
	// Units are what is made, for what one of them costs.
	Units []Unit `yaml:"units"`
	// Tags says which tags name the owner.
	Tags inventory.TagMapping `yaml:"tags"`
	// RequiredTags are the keys without which spend cannot be attributed.
	RequiredTags []string `yaml:"required_tags"`
	AWS          AWS      `yaml:"aws"`
	// Metrics are servers with recorded usage.
	Metrics Metrics `yaml:"metrics"`
	// Machines are on-premises machines, Rates their costs.
	Machines onprem.Machines `yaml:"machines"`
	Rates    onprem.Rates    `yaml:"rates"`
	Scan     Scan            `yaml:"scan"`
	// Thresholds are those of the findings.
	Thresholds finding.Thresholds `yaml:"thresholds"`
	// Duty are the thresholds of busy, held and idle.
	Duty duty.Thresholds `yaml:"duty"`

	// Audit is who vouches for the audit log.
	Audit Audit `yaml:"audit"`

	// found says that the file was found and not named by the user.
	found bool
}

// Audit is how the end of the audit log is signed.
type Audit struct {
	// Key is the file of the Ed25519 key that signs, PKCS #8 as PEM; empty: audit.key in
	// DataDir, which is made.
	Key string `yaml:"key"`
	// PublicKey is whose signature counts, "ed25519:" and base64; empty: that of Key.
	PublicKey string `yaml:"public_key"`
}

// AWS is what to read, and how fast.
type AWS struct {
	Profile string   `yaml:"profile"`
	Regions []string `yaml:"regions"`
	// AssumeRoles are the roles of further accounts.
	AssumeRoles []string `yaml:"assume_roles"`
	// RequestsPerSecond bounds the calls to one service in one region.
	RequestsPerSecond float64 `yaml:"requests_per_second"`
	// ListPages bounds the listing of a bucket, in pages of 1,000 objects.
	ListPages int `yaml:"list_pages"`
}

// Scan is how the audit looks.
type Scan struct {
	// Window is how far back usage is read.
	Window time.Duration `yaml:"window"`
	// FailOn is a waste in dollars a month above which scan exits with 3.
	FailOn string `yaml:"fail_on"`
}

// Enforce is how passes of the policies are made.
type Enforce struct {
	// Window is the least that usage is read back; policies that ask for longer
	// durations read as far as they need.
	Window time.Duration `yaml:"window"`
	// MaxRoundGap is the longest pause between two passes that grace runs over.
	MaxRoundGap time.Duration `yaml:"max_round_gap"`
	// KeepMax is the longest time for which a keep can be given.
	KeepMax time.Duration `yaml:"keep_max"`
	// MirrorTag says that a warning is written as a tag of its resource as well.
	MirrorTag bool `yaml:"mirror_tag"`
}

// Default returns the configuration of an empty file.
func Default() Config {
	return Config{
		Tags:         inventory.DefaultTagMapping(),
		RequiredTags: inventory.RequiredTags,
		AWS:          AWS{RequestsPerSecond: 10, ListPages: 5},
		Scan:         Scan{Window: 14 * 24 * time.Hour},
		Enforce:      Enforce{Window: duty.DefaultLookBack, MaxRoundGap: 2 * time.Hour, KeepMax: 30 * 24 * time.Hour, MirrorTag: true},
		Gate:         Gate{AskOver: gate.DefaultThreshold.Cents(), Expiry: approval.DefaultExpiry},
		Thresholds:   finding.DefaultThresholds(),
		Duty:         duty.DefaultThresholds(),
	}
}

// Find returns the configuration file for a working directory: the nearest
// curfew.yaml upward, else the one in the user's configuration directory, else "".
func Find(dir, userConfigDir string) string {
	for d := dir; ; d = filepath.Dir(d) {
		if p := filepath.Join(d, FileName); isFile(p) {
			return p
		}
		if d == filepath.Dir(d) {
			break
		}
	}
	if userConfigDir != "" {
		if p := filepath.Join(userConfigDir, "curfew", FileName); isFile(p) {
			return p
		}
	}
	return ""
}

func isFile(path string) bool {
	st, err := os.Stat(path)
	return err == nil && st.Mode().IsRegular()
}

// Load reads a file, or only the defaults when path is empty, and then what the
// environment overrides. Mistakes are a *document.Error.
func Load(path string, lookup func(string) (string, bool)) (Config, error) {
	return load(path, lookup, func(fs.FileInfo) error { return nil })
}

func load(path string, lookup func(string) (string, bool), check func(fs.FileInfo) error) (Config, error) {
	c := Default()
	if path != "" {
		src, err := read(path, check)
		if err != nil {
			return Config{}, err
		}
		if err := Decode(path, src, &c); err != nil {
			return Config{}, err
		}
		c.resolve(path)
	}
	if err := override(&c, lookup); err != nil {
		return Config{}, err
	}
	return c, nil
}

func read(path string, check func(fs.FileInfo) error) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		var file *fs.PathError
		if errors.As(err, &file) {
			err = file.Err
		}
		return nil, &document.Error{File: path, Message: "read the configuration: " + err.Error()}
	}
	defer f.Close()
	st, err := f.Stat()
	if err == nil {
		err = check(st)
	}
	if err != nil {
		return nil, &document.Error{File: path, Message: "the configuration is not read: " + err.Error()}
	}
	return document.Read(path, f, document.MaxBytes)
}

// Decode reads a configuration file's text over c; name is the file's, for errors.
// Unknown and repeated keys, wrong types and values out of range are a *document.Error.
func Decode(name string, src []byte, c *Config) error {
	f, err := document.Parse(name, src)
	if err != nil {
		return err
	}
	var root ast.Node
	if len(f.Bodies) > 0 {
		if root, err = f.Body(); err != nil {
			return err
		}
		for _, l := range leaves(c) {
			if n := document.Value(root, l.path); l.isDuration() && n != nil {
				if _, err := ParseDuration(n.GetToken().Value); err != nil {
					return f.At(n, "%s: %s", l.path, err)
				}
			}
		}
		if err := f.Decode(root, c, yaml.CustomUnmarshaler(func(d *time.Duration, b []byte) (err error) {
			var s string
			if err = yaml.Unmarshal(b, &s); err == nil {
				*d, err = ParseDuration(s)
			}
			return err
		})); err != nil {
			return err
		}
	}
	for _, l := range leaves(c) {
		if err := l.check(); err != nil {
			return placed(f, root, l.path, err)
		}
	}
	if where, err := c.Owners.Check(c.Tags); err != nil {
		return placed(f, root, "owners."+where, err)
	}
	if err := c.checkBooks(f, root); err != nil {
		return err
	}
	if err := c.checkMetrics(f, root); err != nil {
		return err
	}
	if err := c.checkPeople(f, root); err != nil {
		return err
	}
	if err := c.checkMachines(f, root); err != nil {
		return err
	}
	if err := c.Notify.Validate(); err != nil {
		var field *notify.FieldError
		if errors.As(err, &field) {
			return placed(f, root, "notify."+field.Path, errors.New(field.Message))
		}
		return placed(f, root, "notify", err)
	}
	if err := c.Duty.Validate(); err != nil {
		return placed(f, root, "duty", err)
	}
	return nil
}

// placed is a mistake at a path of a file, or at the nearest part above it that the file
// gives.
func placed(f *document.File, root ast.Node, path string, err error) error {
	for at := path; at != ""; at = at[:max(0, strings.LastIndexAny(at, ".["))] {
		if n := document.Value(root, at); n != nil {
			return f.At(n, "%s: %s", path, err)
		}
	}
	return &document.Error{File: f.Name, Message: path + ": " + err.Error()}
}
