// Package config reads curfew.yaml: strictly, with the line and column of what is
// wrong, and with every key overridable from the environment.
package config

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/curfew-dev/curfew/internal/approval"
	"github.com/curfew-dev/curfew/internal/bill"
	"github.com/curfew-dev/curfew/internal/budget"
	"github.com/curfew-dev/curfew/internal/cloud/onprem"
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
	// Policies are files of policies, or directories of them.
	Policies []string `yaml:"policies"`
	// Governance says which resources policies may act on.
	Governance policy.Governance `yaml:"governance"`
	// Enforce is how passes of the policies are made.
	Enforce Enforce `yaml:"enforce"`
	// Notify is how people are reached.
	Notify notify.Config `yaml:"notify"`
	// Budgets and Quotas are what owners may spend, and hold at once.
	Budgets budget.Budgets `yaml:"budgets"`
	Quotas  budget.Quotas  `yaml:"quotas"`
	// Gate is when somebody has to approve.
	Gate Gate `yaml:"gate"`
	// GitHub is who people are there.
	GitHub GitHub `yaml:"github"`
	// Estimate is what a specification leaves open.
	Estimate Estimate `yaml:"estimate"`
	// SharedCosts divide what belongs to nobody alone.
	SharedCosts []bill.SharedRule `yaml:"shared_costs"`
	// Units are what is made, for what one of them costs.
	Units []Unit `yaml:"units"`
	// Tags says which tags name the owner.
	Tags inventory.TagMapping `yaml:"tags"`
	// RequiredTags are the keys without which spend cannot be attributed.
	RequiredTags []string `yaml:"required_tags"`
	AWS          AWS      `yaml:"aws"`
	// Machines are those of one's own, Rates what they cost.
	Machines onprem.Machines `yaml:"machines"`
	Rates    onprem.Rates    `yaml:"rates"`
	Scan     Scan            `yaml:"scan"`
	// Thresholds are those of the findings.
	Thresholds finding.Thresholds `yaml:"thresholds"`
	// Duty are the thresholds of busy, held and idle.
	Duty duty.Thresholds `yaml:"duty"`
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
		Enforce:      Enforce{Window: 3 * time.Hour, MaxRoundGap: 2 * time.Hour, KeepMax: 30 * 24 * time.Hour, MirrorTag: true},
		Gate:         Gate{AskOver: gate.DefaultThreshold.Cents(), Expiry: approval.DefaultExpiry},
		Thresholds:   finding.DefaultThresholds(),
		Duty:         duty.DefaultThresholds(),
	}
}

// Error is a mistake in a configuration file or in the environment.
type Error struct {
	// File and the 1-based Line and Column of the mistake; Line is 0 where it is
	// not in a file.
	File         string
	Line, Column int
	Message      string
}

// Error returns "curfew.yaml:3:5: message".
func (e *Error) Error() string {
	if e.Line == 0 {
		return e.File + ": " + e.Message
	}
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Column, e.Message)
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
// environment overrides. Mistakes are an *Error.
func Load(path string, lookup func(string) (string, bool)) (Config, error) {
	c := Default()
	if path != "" {
		src, err := os.ReadFile(path)
		if err != nil {
			var pathErr *fs.PathError
			if errors.As(err, &pathErr) {
				err = pathErr.Err
			}
			return Config{}, &Error{File: path, Message: "read the configuration: " + err.Error()}
		}
		if err := Decode(path, src, &c); err != nil {
			return Config{}, err
		}
	}
	if err := override(&c, lookup); err != nil {
		return Config{}, err
	}
	return c, nil
}

// Decode reads a configuration file's text over c; name is the file's, for errors.
// Unknown and repeated keys, wrong types and values out of range are an *Error.
func Decode(name string, src []byte, c *Config) error {
	file, err := parser.ParseBytes(src, 0)
	if err != nil {
		return positioned(name, err)
	}
	if len(file.Docs) > 1 {
		return &Error{File: name, Line: file.Docs[1].Body.GetToken().Position.Line, Column: 1, Message: "a second document: one file holds one configuration"}
	}
	for _, l := range leaves(c) {
		if l.isDuration() {
			if node := l.node(file); node != nil {
				if _, err := ParseDuration(text(node)); err != nil {
					return at(name, node, l.path+": "+err.Error())
				}
			}
		}
	}
	dec := yaml.NewDecoder(bytes.NewReader(src), yaml.Strict(), yaml.CustomUnmarshaler(func(d *time.Duration, b []byte) error {
		var s string
		if err := yaml.Unmarshal(b, &s); err != nil {
			return err
		}
		v, err := ParseDuration(s)
		*d = v
		return err
	}))
	if len(file.Docs) == 1 && file.Docs[0].Body != nil && file.Docs[0].Body.Type() != ast.NullType {
		if err := dec.Decode(c); err != nil {
			return positioned(name, err)
		}
	}
	for _, l := range leaves(c) {
		if err := l.check(); err != nil {
			if node := l.node(file); node != nil {
				return at(name, node, l.path+": "+err.Error())
			}
			return &Error{File: name, Message: l.path + ": " + err.Error()}
		}
	}
	if err := c.checkBooks(file, name); err != nil {
		return err
	}
	if err := c.checkMachines(file, name); err != nil {
		return err
	}
	if err := c.Notify.Validate(); err != nil {
		var field *notify.FieldError
		if errors.As(err, &field) {
			path := "notify." + field.Path
			for _, l := range leaves(c) {
				if node := l.node(file); node != nil && l.path == path {
					return at(name, node, path+": "+field.Message)
				}
			}
		}
		return &Error{File: name, Message: "notify: " + err.Error()}
	}
	if err := c.Duty.Validate(); err != nil {
		return &Error{File: name, Message: "duty: " + err.Error()}
	}
	return nil
}

func text(n ast.Node) string { return n.GetToken().Value }

func at(name string, n ast.Node, message string) *Error {
	p := n.GetToken().Position
	return &Error{File: name, Line: p.Line, Column: p.Column, Message: message}
}

// positioned gives a YAML error its place in the file.
func positioned(name string, err error) *Error {
	var ye yaml.Error
	if errors.As(err, &ye) && ye.GetToken() != nil {
		p := ye.GetToken().Position
		return &Error{File: name, Line: p.Line, Column: p.Column, Message: ye.GetMessage()}
	}
	return &Error{File: name, Message: err.Error()}
}
