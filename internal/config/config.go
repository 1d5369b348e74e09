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
	"github.com/curfew-dev/curfew/internal/cloud/local"
	"github.com/curfew-dev/curfew/internal/document"
	"github.com/curfew-dev/curfew/internal/duty"
	"github.com/curfew-dev/curfew/internal/finding"
	"github.com/curfew-dev/curfew/internal/gate"
	"github.com/curfew-dev/curfew/internal/gateway"
	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/notify"
	"github.com/curfew-dev/curfew/internal/policy"
)

// FileName is the name of the configuration file.
const FileName = "curfew.yaml"

// Config is the content of curfew.yaml. Keys that are left out keep their defaults.
type Config struct {
	// DataDir is the directory in which curfew keeps its state; empty is the user's data
	// directory.
	DataDir string `yaml:"data_dir"`
	// DataVolume is a directory above DataDir that no other user reaches although its mode lets
	// others write, such as a volume of a container; empty is none.
	DataVolume string `yaml:"data_volume"`
	// DatabaseURL is a PostgreSQL database that several machines share; empty is a file
	// in DataDir. Everything that acts on an account has to share one.
	DatabaseURL string `yaml:"database_url"`
	// Server is the URL of the service to which commands speak in place of a state of this
	// machine, such as https://curfew.example.com; empty is the state (docs/serve.md).
	Server string `yaml:"server"`
	// ServerCAFile is a PEM file of the authorities whose certificates of the server count;
	// empty is those of the system.
	ServerCAFile string `yaml:"server_ca_file"`
	// ServerTimeout is how long a command waits for the server, repetitions included.
	ServerTimeout time.Duration `yaml:"server_timeout"`
	// Identity is the identity of the caller; empty is the user of the operating system.
	Identity string `yaml:"identity"`
	// Approvers are people with the roles by which they decide requests: {bo: [approver]}.
	// The person who asks cannot approve.
	Approvers map[string][]string `yaml:"approvers"`
	// People are the identities that one person has at several providers. Identities of two
	// providers are two people only where both are named here.
	People map[string]Identities `yaml:"people"`
	// Approvals lists the identities that approve fixes, and the recipients of requests.
	Approvals Approvals `yaml:"approvals"`
	// Policies are files of policies, or directories of them. Paths in the file are
	// relative to its directory.
	Policies []string `yaml:"policies"`
	// Governance are the resources that policies may act on, next to those with the tag
	// curfew:managed=true.
	Governance policy.Governance `yaml:"governance"`
	// Owners are the tags that curfew tag writes to resources that lack them.
	Owners policy.Owners `yaml:"owners"`
	// Enforce is how passes of the policies run.
	Enforce Enforce `yaml:"enforce"`
	// Serve is how curfew serve runs.
	Serve Serve `yaml:"serve"`
	// Gateway configures curfew gateway (docs/gateway.md).
	Gateway gateway.Config `yaml:"gateway"`
	// Sessions is how sessions are started (docs/sessions.md).
	Sessions Sessions `yaml:"sessions"`
	// Notify is how people are reached (docs/notifications.md).
	Notify notify.Config `yaml:"notify"`
	// Budgets limit the spending of owners (docs/budgets.md).
	Budgets budget.Budgets `yaml:"budgets"`
	// Quotas limit the resources that owners may hold at once (docs/budgets.md).
	Quotas budget.Quotas `yaml:"quotas"`
	// Gate is when an approver has to decide before work starts.
	Gate Gate `yaml:"gate"`
	// GitHub are the names of logins.
	GitHub GitHub `yaml:"github"`
	// Estimate are the defaults of estimates for fields that a specification leaves out.
	Estimate Estimate `yaml:"estimate"`
	// Spot is how often spot machines are interrupted.
	Spot Spot `yaml:"spot"`
	// SharedCosts are rules that divide costs that several owners share (docs/costs.md).
	SharedCosts []bill.SharedRule `yaml:"shared_costs"`
	// Units are products that are counted, for their unit costs (docs/costs.md).
	Units []Unit `yaml:"units"`
	// Tags are the tag keys that name the owner; the first key with a value wins. Case and
	// -, _, :, ., / and spaces in keys do not matter.
	Tags inventory.TagMapping `yaml:"tags"`
	// RequiredTags are the tags that each resource has to have (tag-missing); by default there are none.
	RequiredTags []string `yaml:"required_tags"`
	// ReadData are addresses of data that work reads (s3://bucket/prefix/): no lifecycle rule moves or
	// expires it (bucket-no-lifecycle). Inputs of training jobs and the tag curfew:data count as well.
	ReadData []string `yaml:"read_data"`
	// Clouds lists the clouds that `curfew serve` reads, and `scan` and `enforce` without --cloud: aws, local
	// (sessions on this machine) and onprem (machines below); empty is aws.
	Clouds []string `yaml:"clouds"`
	// AWS chooses the accounts and regions to read, and the call rates.
	AWS AWS `yaml:"aws"`
	// Metrics are servers with recorded usage (docs/metrics.md).
	Metrics Metrics `yaml:"metrics"`
	// Fleets are serving fleets whose size is decided by their demand (docs/policies.md).
	Fleets []Fleet `yaml:"fleets"`
	// Machines are on-premises machines (docs/configuration.md).
	Machines local.Machines `yaml:"machines"`
	// Rates are the costs of on-premises machines.
	Rates local.Rates `yaml:"rates"`
	// Local is this machine as a provider of sessions (docs/sessions.md).
	Local Local `yaml:"local"`
	// Scan is how the audit looks.
	Scan Scan `yaml:"scan"`
	// Thresholds are the thresholds of the findings.
	Thresholds finding.Thresholds `yaml:"thresholds"`
	// Duty are the thresholds between busy, held and idle.
	Duty duty.Thresholds `yaml:"duty"`
	// Audit is how the audit log is signed.
	Audit Audit `yaml:"audit"`
	// State is how an older state is noticed (docs/safety.md).
	State State `yaml:"state"`

	// found is true if the file was found and not named by the user.
	found bool
}

// Audit is how the end of the audit log is signed.
type Audit struct {
	// Key is the file of the Ed25519 key that signs, PKCS #8 as PEM; empty is audit.key in
	// the data directory, which curfew creates.
	Key string `yaml:"key"`
	// PublicKey is the key whose signature counts, "ed25519:" and base64; empty is that of
	// the signing key.
	PublicKey string `yaml:"public_key"`
}

// State is how it is noticed that the state was put back.
type State struct {
	// Witness is where the newest generation of the state that was seen is kept: a folder
	// outside of the data directory, or s3://bucket/prefix. Empty is curfew/witness in the
	// user's state directory ($XDG_STATE_HOME, ~/.local/state), and /var/lib/curfew-witness
	// for root.
	Witness string `yaml:"witness"`
}

// AWS chooses the accounts and regions to read, and the call rates.
type AWS struct {
	// Profile is a profile of the AWS configuration; empty is the SDK's own chain.
	Profile string `yaml:"profile"`
	// Regions are the regions to read, or all; empty is the configured region.
	Regions []string `yaml:"regions"`
	// AssumeRoles are roles of further accounts to read.
	AssumeRoles []string `yaml:"assume_roles"`
	// ExternalID is the external id that the trust policies of these roles ask for.
	ExternalID string `yaml:"external_id"`
	// Accounts are read by curfew serve, each by itself; empty is the account of the credentials
	// and those of assume_roles.
	Accounts []AWSAccount `yaml:"accounts"`
	// Organization finds further accounts for curfew serve by AWS Organizations.
	Organization Organization `yaml:"organization"`
	// RequestsPerSecond bounds the calls to one service in one region.
	RequestsPerSecond float64 `yaml:"requests_per_second"`
	// ListPages bounds the listing of a bucket, in pages of 1,000 objects; 20 times as many
	// for a bucket with 1 TiB or more in the standard class.
	ListPages int `yaml:"list_pages"`
}

// AWSAccount is an account, or some regions of one, that curfew serve reads by itself.
type AWSAccount struct {
	// Role is the ARN of the role that reads and acts there; empty is the account of the
	// credentials.
	Role string `yaml:"role"`
	// Regions are the regions to read, or all; empty is those of aws.regions.
	Regions []string `yaml:"regions"`
}

// Scan is how the audit looks.
type Scan struct {
	// Window is how far back usage is read.
	Window time.Duration `yaml:"window"`
	// FailOn is the waste in dollars a month (monthly_waste_usd) above which scan exits
	// with 3.
	FailOn string `yaml:"fail_on" form:"dollars"`
}

// Enforce is how passes of the policies are made.
type Enforce struct {
	// Window is the least time for which usage is read; policies that ask for longer
	// durations read as far back as they need.
	Window time.Duration `yaml:"window"`
	// MaxRoundGap is the longest pause between two passes over which grace periods run;
	// after a longer one they begin again.
	MaxRoundGap time.Duration `yaml:"max_round_gap"`
	// KeepMax is the longest time that curfew keep exempts a resource.
	KeepMax time.Duration `yaml:"keep_max"`
	// MirrorTag reports whether a warning is written as the tag curfew:warning of its resource
	// as well; the tag decides nothing.
	MirrorTag bool `yaml:"mirror_tag"`
}

// Default returns the configuration of an empty file.
func Default() Config {
	return Config{
		ServerTimeout: time.Minute,

		Tags: inventory.DefaultTagMapping(),
		AWS:  AWS{RequestsPerSecond: 10, ListPages: 5, Organization: Organization{Refresh: time.Hour}},
		Scan: Scan{Window: 14 * 24 * time.Hour},
		Enforce: Enforce{
			Window: duty.DefaultLookBack, MaxRoundGap: 2 * time.Hour, KeepMax: 30 * 24 * time.Hour, MirrorTag: true,
		},
		Serve:   Serve{Interval: time.Minute, Deadline: 10 * time.Minute, AuditInterval: 6 * time.Hour},
		Gateway: gateway.DefaultConfig(),
		Sessions: Sessions{
			Cloud: "aws", Lease: 4 * time.Hour, MaxLease: 24 * time.Hour,
			Idle: 30 * time.Minute, Grace: 2 * time.Minute,
		},
		Metrics:    Metrics{CloudWatch: CloudWatch{MaxUSDPerMonth: "50"}},
		Gate:       Gate{AskOver: gate.DefaultThreshold.Cents(), Expiry: approval.DefaultExpiry},
		Thresholds: finding.DefaultThresholds(),
		Duty:       duty.DefaultThresholds(),
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
	if where, err := c.Owners.Validate(c.Tags); err != nil {
		return placed(f, root, "owners."+where, err)
	}
	if err := c.checkBooks(f, root); err != nil {
		return err
	}
	if key, err := c.Serve.check(); err != nil {
		return placed(f, root, key, err)
	}
	if err := c.Gateway.Validate(); err != nil {
		var field *gateway.FieldError
		if errors.As(err, &field) {
			return placed(f, root, "gateway."+field.Path, errors.New(field.Message))
		}
		return placed(f, root, "gateway", err)
	}
	if key, err := c.AWS.Organization.check(); err != nil {
		return placed(f, root, key, err)
	}
	if err := c.checkClouds(); err != nil {
		return placed(f, root, "clouds", err)
	}
	if key, err := c.Sessions.check(); err != nil {
		return placed(f, root, key, err)
	}
	if err := c.checkMetrics(f, root); err != nil {
		return err
	}
	if err := c.checkFleets(f, root); err != nil {
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

// placed returns a mistake at a path of a file, or at the nearest parent in the file.
func placed(f *document.File, root ast.Node, path string, err error) error {
	for at := path; at != ""; at = at[:max(0, strings.LastIndexAny(at, ".["))] {
		if n := document.Value(root, at); n != nil {
			return f.At(n, "%s: %s", path, err)
		}
	}
	return &document.Error{File: f.Name, Message: path + ": " + err.Error()}
}
