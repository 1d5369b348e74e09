// Package spec reads what a person wants to run: a job or a session of curfew, or a
// workload of Kubernetes that asks for GPUs. Files are read strictly, with the line and
// column of every mistake, and a specification has a hash that an approval is bound to.
package spec

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/curfew-dev/curfew/internal/inventory"
	"github.com/curfew-dev/curfew/internal/money"
)

// Versions of the files.
const (
	JobVersion     = "curfew.job/v1"
	SessionVersion = "curfew.session/v1"
)

// Kind is the kind of the specified work.
type Kind string

// The kinds.
const (
	Job     Kind = "job"     // a batch workload that ends by itself
	Session Kind = "session" // an interactive machine with a lease
)

// Capacity is how machines are bought.
type Capacity string

// The capacities. A file that says nothing means OnDemand, which is never interrupted.
const (
	OnDemand Capacity = "on-demand"
	Spot     Capacity = "spot"
	Auto     Capacity = "auto" // spot while there is some, on demand otherwise
)

// Spec is one job or session.
type Spec struct {
	Kind Kind
	Name string
	// Purpose is unknown where a job does not say; a session is for experimentation
	// unless it says otherwise.
	Purpose   inventory.Purpose
	Owner     inventory.Owner
	Resources Resources
	Capacity  Capacity
	// Regions are those it may run in, the preferred first; empty leaves it to the
	// configuration.
	Regions []string
	// Setup and Run are shell commands; a session has no Run.
	Setup, Run string
	// Duration is how long the work takes without interruption, as its author expects;
	// 0 not declared.
	Duration time.Duration
	// MaxRuntime ends a job, lost work and restarts included, Deadline is when it is to
	// be done, counted from its submission, Lease ends a session. 0: none.
	MaxRuntime, Deadline, Lease time.Duration
	// MaxCost is the most that it may cost; 0: no bound.
	MaxCost money.Amount
	// DiskGiB is the root disk of each machine; 0 leaves it to the configuration.
	DiskGiB int64
	// Checkpoint is how work is saved; nil: it is not.
	Checkpoint *Checkpoint
	// Data are the inputs of the work.
	Data []Dataset
	// Artifacts are the outputs of the work; nil if there are none.
	Artifacts *Artifacts
	Retries   Retries
	// Work is the folder of a session that outlives it; nil: none is named.
	Work *Work
	// Idle ends a session after so long at rest; 0 leaves it to the configuration.
	Idle time.Duration
	// Ports are those of the machine that connect may forward.
	Ports []int
	// Workdir is the folder of a job's code, relative to its file; Code is the SHA-256 of the archive
	// that was made of it, and binds an approval to the code. Empty: none.
	Workdir, Code string
	// Stall ends a job that makes no progress for so long; 0: never.
	Stall time.Duration
	// ReplaceOne replaces a lost node of a job and restarts the others; otherwise all are launched again.
	ReplaceOne bool
	// Env is added to the environment. Secrets maps variables to where their values are
	// read at run time: a parameter or a secret of the provider.
	Env, Secrets map[string]string
	// Image is the machine image, in the provider's terms; empty leaves it to the configuration.
	Image string
	// Unknown lists the parts that the file leaves open and that affect cost, such as a fan-out
	// that is known only at run time. It is empty for a job or session of curfew.
	Unknown []string
	// Selector are the labels that a node must have for the workload, each with the
	// values that it may have; nil for a job or session.
	Selector map[string][]string
	// Digest is the SHA-256 of the whole file that a manifest stands in, so that an
	// approval covers what a Spec has no field for; empty for a job or session.
	Digest string

	// File and Line are where it begins.
	File string
	Line int
}

// Unread reports whether it has no resources, because what it runs is not known: Unknown says why.
func (s *Spec) Unread() bool { return s.Resources == (Resources{}) && len(s.Unknown) > 0 }

// Resources are the machines.
type Resources struct {
	// GPU names the accelerator as in the price book ("A100-80GB") and GPUs is how many
	// of them each node needs. InstanceType is a machine type. A file of curfew has
	// one or the other; a manifest may have both, and then nodes share machines.
	GPU          string
	GPUs         int
	InstanceType string
	// CPUs is how many CPUs each node needs where it needs no GPU; 0: not said.
	CPUs int
	// Nodes is how many machines work together, at least 1; pods, in a manifest.
	Nodes int
}

// Checkpoint is how work is saved.
type Checkpoint struct {
	// Dir is where the work writes, To the object store that keeps it.
	Dir, To string
	// Every is the interval; 0 leaves it to the planner.
	Every time.Duration
	// Keep is how many are kept; at least 1.
	Keep int
	// SizeBytes is one checkpoint; 0 not known.
	SizeBytes int64
	// Restart is the time from an interruption until work goes on, without what was
	// lost; 0 not declared.
	Restart time.Duration
	// Done is a pattern of the marker of a finished checkpoint; empty: none.
	Done string
}

// Work is a folder whose content is saved while a session runs and before it ends, and is
// there again when the session is started again.
type Work struct {
	// Dir is on the machine: an absolute path, or one below "~/", the home of its user.
	Dir string
	// To is the object store that keeps it; empty leaves it to the configuration.
	To string
	// Every is the time between snapshots; 0 leaves it to the configuration.
	Every time.Duration
}

// Dataset is an input of the work.
type Dataset struct {
	URI string
	// SizeBytes is how much of it; 0 not known.
	SizeBytes int64
}

// Shown is an address as people may see it: without user, query and fragment, in which
// signed URLs carry what lets anybody read.
func Shown(uri string) string {
	scheme, rest, ok := strings.Cut(uri, "://")
	if !ok {
		return uri
	}
	bare, hidden := rest, ""
	if i := strings.IndexAny(bare, "?#"); i >= 0 {
		bare, hidden = bare[:i], "?[redacted]"
	}
	host, _, _ := strings.Cut(bare, "/")
	if i := strings.LastIndexByte(host, '@'); i >= 0 {
		bare = "[redacted]@" + strings.TrimPrefix(bare, host[:i+1])
	}
	return scheme + "://" + bare + hidden
}

// Artifacts are the outputs of the work.
type Artifacts struct{ Dir, To string }

// Retries bound how often a job begins again.
type Retries struct {
	// Interruptions is for machines that were taken away, Errors for failures of the
	// job itself.
	Interruptions, Errors int
}

// DefaultInterruptions is how often a job goes on after an interruption where its file
// does not say.
const DefaultInterruptions = 20

// DefaultKeep is how many checkpoints are kept where a file does not say.
const DefaultKeep = 3

// Cap returns the longest that it may run: the least of MaxRuntime, Deadline and Lease,
// with the name of that key. It is 0 and "" where none is given.
func (s *Spec) Cap() (time.Duration, string) {
	least, key := time.Duration(0), ""
	for _, c := range []struct {
		d   time.Duration
		key string
	}{{s.MaxRuntime, "max_runtime"}, {s.Deadline, "deadline"}, {s.Lease, "lease"}} {
		if c.d > 0 && (least == 0 || c.d < least) {
			least, key = c.d, c.key
		}
	}
	return least, key
}

// Hash returns the SHA-256 of the specification's meaning, in hexadecimal: the same for
// every way to write it, and another for every change of what is to be run, for whom, on
// what, and within which bounds.
func (s *Spec) Hash() string {
	h := sha256.New()
	h.Write(s.Canonical())
	// What only a manifest has follows the canonical file, which ends in a newline.
	if s.Digest != "" || len(s.Unknown) > 0 || len(s.Selector) > 0 {
		_ = json.NewEncoder(h).Encode([]any{s.Digest, s.Unknown, s.Selector}) // a hash takes all that is written
	}
	return hex.EncodeToString(h.Sum(nil))
}

// canon is the shape of a file, its keys in order and what is left out left out.
type canon struct {
	APIVersion string            `json:"apiVersion"`
	Name       string            `json:"name"`
	Purpose    inventory.Purpose `json:"purpose,omitempty"`
	Owner      *inventory.Owner  `json:"owner,omitempty"`
	Resources  canonResources    `json:"resources"`
	Capacity   Capacity          `json:"capacity"`
	Regions    []string          `json:"regions,omitempty"`
	Setup      string            `json:"setup,omitempty"`
	Run        string            `json:"run,omitempty"`
	Duration   string            `json:"duration,omitempty"`
	MaxRuntime string            `json:"max_runtime,omitempty"`
	Deadline   string            `json:"deadline,omitempty"`
	Lease      string            `json:"lease,omitempty"`
	MaxCost    json.Number       `json:"max_cost,omitempty"`
	Disk       string            `json:"disk,omitempty"`
	Checkpoint *canonCheckpoint  `json:"checkpoint,omitempty"`
	Data       []canonData       `json:"data,omitempty"`
	Artifacts  *canonArtifacts   `json:"artifacts,omitempty"`
	Retries    *canonRetries     `json:"retries,omitempty"`
	Work       *canonWork        `json:"work,omitempty"`
	Idle       string            `json:"idle,omitempty"`
	Ports      []int             `json:"ports,omitempty"`
	Env        map[string]string `json:"env,omitempty"`
	Secrets    map[string]string `json:"secrets,omitempty"`
	Image      string            `json:"image,omitempty"`
	Workdir    *canonWorkdir     `json:"workdir,omitempty"`
	Stall      string            `json:"stall,omitempty"`
	Nodes      *canonNodes       `json:"nodes,omitempty"`
}

type canonNodes struct {
	Replace string `json:"replace"`
}

type canonWorkdir struct {
	Dir    string `json:"dir"`
	SHA256 string `json:"sha256,omitempty"`
}

type canonResources struct {
	GPUs         string `json:"gpus,omitempty"`
	InstanceType string `json:"instance_type,omitempty"`
	CPUs         int    `json:"cpus,omitempty"`
	Nodes        int    `json:"nodes"`
}

type canonCheckpoint struct {
	Dir     string `json:"dir"`
	To      string `json:"to"`
	Every   string `json:"every,omitempty"`
	Keep    int    `json:"keep"`
	Size    string `json:"size,omitempty"`
	Restart string `json:"restart,omitempty"`
	Done    string `json:"done,omitempty"`
}

type canonData struct {
	URI  string `json:"uri"`
	Size string `json:"size,omitempty"`
}

type canonArtifacts struct {
	Dir string `json:"dir"`
	To  string `json:"to"`
}

type canonWork struct {
	Dir   string `json:"dir"`
	To    string `json:"to,omitempty"`
	Every string `json:"every,omitempty"`
}

type canonRetries struct {
	Interruptions int `json:"interruptions"`
	Errors        int `json:"errors"`
}

// Canonical returns the specification as a file of one fixed form, which [Parse] reads
// as the same specification again. It leaves out what only a manifest has.
func (s *Spec) Canonical() []byte {
	c := canon{
		APIVersion: JobVersion, Name: s.Name, Purpose: s.Purpose, Capacity: s.Capacity,
		Regions: s.Regions, Setup: s.Setup,
		Run:      s.Run,
		Duration: durationText(s.Duration), MaxRuntime: durationText(s.MaxRuntime), Deadline: durationText(s.Deadline),
		Lease: durationText(s.Lease),
		Resources: canonResources{
			InstanceType: s.Resources.InstanceType, CPUs: s.Resources.CPUs, Nodes: s.Resources.Nodes,
		},
		Stall: durationText(s.Stall),
		Idle:  durationText(s.Idle), Ports: s.Ports, Env: s.Env, Secrets: s.Secrets, Image: s.Image}
	if s.Kind == Session {
		c.APIVersion = SessionVersion
	} else {
		c.Retries = &canonRetries{s.Retries.Interruptions, s.Retries.Errors}
	}
	if s.ReplaceOne {
		c.Nodes = &canonNodes{replaceOne}
	}
	if s.Owner != (inventory.Owner{}) {
		c.Owner = &s.Owner
	}
	if s.Resources.GPUs > 0 {
		c.Resources.GPUs = fmt.Sprintf("%s:%d", s.Resources.GPU, s.Resources.GPUs)
	}
	if s.MaxCost > 0 {
		c.MaxCost = json.Number(s.MaxCost.String())
	}
	if s.DiskGiB > 0 {
		c.Disk = fmt.Sprintf("%dGiB", s.DiskGiB)
	}
	if p := s.Checkpoint; p != nil {
		c.Checkpoint = &canonCheckpoint{
			p.Dir, p.To, durationText(p.Every), p.Keep, sizeText(p.SizeBytes), durationText(p.Restart),
			p.Done,
		}
	}
	for _, d := range s.Data {
		c.Data = append(c.Data, canonData{d.URI, sizeText(d.SizeBytes)})
	}
	if a := s.Artifacts; a != nil {
		c.Artifacts = &canonArtifacts{a.Dir, a.To}
	}
	if s.Workdir != "" || s.Code != "" {
		c.Workdir = &canonWorkdir{cmp.Or(s.Workdir, "."), s.Code}
	}
	if w := s.Work; w != nil {
		c.Work = &canonWork{w.Dir, w.To, durationText(w.Every)}
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	_ = e.Encode(c) // texts and whole numbers alone
	return b.Bytes()
}
